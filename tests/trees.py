"""Random trees of labels, random rankings over them, and what their tests compare with."""

import torch


def tree(images, depth, seed=0, branching=2):
    "Labels of a random proper tree, coarse to fine: every level refines the one before."
    random = torch.Generator().manual_seed(seed)
    columns, label = [], torch.zeros(images, dtype=torch.long)
    for _ in range(depth):
        label = label * branching + torch.randint(branching, (images,), generator=random)
        columns.append(label)
    return torch.stack(columns, 1)


def ranking(queries=12, gallery=17, depth=3, seed=0, spread=0.1, ties=False, dtype=torch.float64):
    "Scores and levels of random rankings; with `ties` few different scores."
    random = torch.Generator().manual_seed(seed)
    levels = torch.randint(0, depth + 1, (queries, gallery), generator=random)
    levels[:, 0] = depth
    scores = torch.randn(queries, gallery, generator=random, dtype=torch.float64) * spread
    if ties:
        scores = torch.randint(-5, 6, (queries, gallery), generator=random) * spread / 2
    return scores.to(dtype), levels


def is_ahead(t, ties):
    return 1.0 if t > 0 else {"max": 1.0, "min": 0.0, "average": 0.5}[ties] if t == 0 else 0.0


def rows(function, *tensors, **kwargs):
    return torch.tensor([function(*(t.tolist() for t in row), **kwargs) for row in zip(*tensors)], dtype=torch.float64)


def same(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol, equal_nan=True)
