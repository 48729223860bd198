"Retrieval between two galleries against loops that follow the public protocol of VSE++, its folds, ties and refusals."

import pytest
import torch

from smoothap_nb.metrics.two_galleries import DIRECTIONS, evaluate_cross_modal


def pair(images=20, per=5, dim=8, seed=0):
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(images, dim, generator=g, dtype=torch.float64)
    t = v.repeat_interleave(per, 0) + 2.5 * torch.randn(images * per, dim, generator=g, dtype=torch.float64)
    return v, t, torch.arange(images).repeat_interleave(per)


def vse_protocol(images, texts, per=5):
    "Sort, look where the right ones stand: for a picture the best caption, for a caption its picture, in percent."
    scores = torch.nn.functional.normalize(images) @ torch.nn.functional.normalize(texts).T
    forth = [
        min(order.tolist().index(c) for c in range(per * i, per * i + per))
        for i, order in enumerate(scores.argsort(1, descending=True))
    ]
    back = [order.tolist().index(c // per) for c, order in enumerate(scores.T.argsort(1, descending=True))]
    summary = lambda places: [100 * sum(p < k for p in places) / len(places) for k in (1, 5, 10)]
    return summary(forth), summary(back)


def flat(found, k=100):
    return [[k * found[f"{way} R@{n}"] for n in (1, 5, 10)] for way in DIRECTIONS]


def test_equals_the_protocol_of_vse():
    images, texts, ids = pair()
    found, want = evaluate_cross_modal(images, texts, image_ids=ids), vse_protocol(images, texts)
    for mine, theirs in zip(flat(found), want):
        assert mine == pytest.approx(theirs)
    assert found["rsum"] == pytest.approx(sum(map(sum, want))) and 0 < found["image->text mAP"] < 1


def test_folds_are_means_over_consecutive_pictures():
    images, texts, ids = pair(images=20)
    found = evaluate_cross_modal(images, texts, image_ids=ids, folds=5)
    parts = [vse_protocol(images[i : i + 4], texts[5 * i : 5 * i + 20]) for i in range(0, 20, 4)]
    for way in range(2):
        assert flat(found)[way] == pytest.approx([sum(part[way][n] for part in parts) / 5 for n in range(3)])


def test_blocks_and_shuffled_captions_change_nothing():
    images, texts, ids = pair()
    want = evaluate_cross_modal(images, texts, image_ids=ids)
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(1))
    assert evaluate_cross_modal(images, texts[order], image_ids=ids[order], block=7) == pytest.approx(want)


def test_worked_example():
    "Two pictures on the axes, four captions whose scores are those of the hand-made table, up to their length."
    scores = torch.tensor([[0.6, 0.5, 0.55, 0.1], [0.2, 0.65, 0.7, 0.4]], dtype=torch.float64)
    rest = (1 - scores.square().sum(0)).sqrt()  # a third coordinate makes every caption a unit row
    texts, images = torch.cat((scores, rest[None])).T, torch.eye(3, dtype=torch.float64)[:2]
    found = evaluate_cross_modal(images, texts, image_ids=torch.tensor([0, 0, 1, 1]))
    assert found["image->text mAP"] == pytest.approx(5 / 6) and found["text->image mAP"] == pytest.approx(
        (1 + 0.5 + 1 + 1) / 4
    )
    assert found["image->text R@1"] == 1.0 and found["text->image R@1"] == 0.75


def test_ties_count_as_asked():
    images, texts = torch.ones(4, 3), torch.ones(4, 3)
    found = {
        ties: evaluate_cross_modal(images, texts, image_ids=torch.arange(4), ties=ties)
        for ties in ("max", "min", "average")
    }
    assert [found[t]["text->image median rank"] for t in ("max", "min", "average")] == [4, 1, 2.5]
    assert found["max"]["image->text R@1"] == 0 and found["min"]["image->text R@1"] == 1


def test_queries_without_a_positive_are_left_out_and_counted():
    images, texts, ids = pair(images=4, per=2)
    relevance = torch.arange(4)[:, None] == ids
    relevance[:, 0], relevance[3] = False, False
    found = evaluate_cross_modal(images, texts, relevance)
    assert found["text->image queries_skipped"] == 3 and found["image->text queries_skipped"] == 1
    with pytest.raises(ValueError, match="no query has a positive"):
        evaluate_cross_modal(images, texts, torch.zeros_like(relevance))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"folds": 3}, "folds of equal size"),
        ({"image_ids": torch.full((100,), 20)}, "rows of `images`"),
        ({"ks": (0,)}, "ks must be"),
        ({"ties": "lucky"}, "ties must be one of"),
        ({"relevance": torch.ones(2, 2).bool()}, "exactly one of the two"),
        ({"image_ids": None}, "exactly one"),
        ({"image_ids": None, "relevance": torch.ones(2, 2).bool()}, r"relevance must be bool \(20, 100\)"),
    ],
)
def test_bad_input_is_named(change, words):
    images, texts, ids = pair()
    with pytest.raises(ValueError, match=words):
        evaluate_cross_modal(images, texts, **{"image_ids": ids, **change})
