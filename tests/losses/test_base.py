"What all embedding losses share: tags as labels, and the gallery that is the batch."

import warnings

import pytest
import torch

from smoothap_nb import (
    EmbeddingMemory,
    FastAPLoss,
    HAPLoss,
    PNPLoss,
    RecallAtKLoss,
    RecallLoss,
    ROADMAPLoss,
    SmoothAPLoss,
    SupAPLoss,
    cosine_scores,
    smooth_ap,
)

FLAT = [SmoothAPLoss, FastAPLoss, RecallLoss, SupAPLoss, ROADMAPLoss, RecallAtKLoss, PNPLoss]


def rows(count=18, dim=6, seed=0):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tags_of(count=18, tags=5, seed=1):
    return torch.rand(count, tags, generator=torch.Generator().manual_seed(seed)) < 0.25


def test_tags_match_where_one_is_shared():
    embeddings, tags = rows(), tags_of()
    off = ~torch.eye(18, dtype=torch.bool)
    relevance = torch.tensor([[bool((a & b).any()) for b in tags] for a in tags]) & off
    scores = cosine_scores(embeddings)
    lists = torch.stack([row[keep] for row, keep in zip(scores, off)])
    shared = torch.stack([row[keep] for row, keep in zip(relevance, off)])
    expected = 1 - smooth_ap(lists, shared, 0.1).nanmean()
    torch.testing.assert_close(SmoothAPLoss(0.1)(embeddings, tags), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", FLAT)
def test_one_tag_each_equals_classes(kind):
    embeddings, labels = rows(), torch.arange(18) % 5
    tags = torch.nn.functional.one_hot(labels).bool()
    a, b = (embeddings.clone().requires_grad_() for _ in range(2))
    by_class, by_tag = kind()(a, labels), kind()(b, tags)
    by_class.backward(), by_tag.backward()
    assert torch.equal(by_class, by_tag) and torch.equal(a.grad, b.grad)
    gallery, theirs = rows(30, seed=3), torch.arange(30) % 5
    their_tags = torch.nn.functional.one_hot(theirs).bool()
    by_class = kind()(embeddings, labels, ref_emb=gallery, ref_labels=theirs)
    assert torch.equal(by_class, kind()(embeddings, tags, ref_emb=gallery, ref_labels=their_tags))


def test_memory_of_tags_equals_one_long_gallery_and_resumes():
    memory, first, second = EmbeddingMemory(SmoothAPLoss(0.1), 36), rows(), rows(seed=4)
    tags, more = tags_of(), tags_of(seed=5)
    memory(first, tags)
    again = EmbeddingMemory(SmoothAPLoss(0.1), 36)
    again.load_state_dict(memory.state_dict())
    value = memory(second, more)
    long = SmoothAPLoss(0.1)(second, more, ref_emb=torch.cat([second, first]), ref_labels=torch.cat([more, tags]),
                             query_index=torch.arange(18))
    torch.testing.assert_close(value, long, rtol=0, atol=1e-12)
    assert torch.equal(value, again(second, more)) and again.labels.dtype == torch.bool


def test_an_image_without_tags_is_nobodys_positive():
    tags = tags_of()
    tags[3] = False
    target = SmoothAPLoss().target(tags, tags)
    assert not target[3].any() and not target[:, 3].any()
    none = torch.zeros(18, 5, dtype=torch.bool)
    assert SmoothAPLoss()(rows().requires_grad_(), none).item() == 0


@pytest.mark.parametrize(
    "loss, labels, ref_labels, says",
    [
        (SmoothAPLoss(), torch.arange(18) > 3, None, r"integers \(class numbers\), or bool of shape \(N, tags\)"),
        (SmoothAPLoss(), torch.zeros(18, 0, dtype=torch.bool), None, "class numbers"),
        (HAPLoss(), tags_of(), None, "labels must be integers"),
        (SmoothAPLoss(), tags_of(), torch.arange(18), "both bool tags"),
        (SmoothAPLoss(), tags_of(), tags_of(tags=4), "5 tags, ref_labels 4"),
        (EmbeddingMemory(SmoothAPLoss(), 3), tags_of(), torch.arange(18), "both bool tags"),
    ],
)
def test_labels_that_do_not_fit_are_refused(loss, labels, ref_labels, says):
    gallery = None if ref_labels is None else rows()
    with pytest.raises((TypeError, ValueError), match=says):
        loss(rows(), labels, ref_emb=gallery, ref_labels=ref_labels)


def test_a_memory_of_classes_refuses_tags():
    memory = EmbeddingMemory(SmoothAPLoss(), 30)
    memory(rows(), torch.arange(18) % 5)
    with pytest.raises(ValueError, match="reset"):
        memory(rows(), tags_of())


@pytest.mark.parametrize(
    "loss", [SmoothAPLoss(), EmbeddingMemory(SmoothAPLoss(), 3), EmbeddingMemory(ROADMAPLoss(), 3)]
)
def test_the_batch_as_its_own_gallery_warns(loss):
    embeddings, labels = rows(), torch.arange(18) % 5
    with pytest.warns(UserWarning, match="ref_emb is embeddings") as caught:
        loss(embeddings, labels, ref_emb=embeddings, ref_labels=labels)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(embeddings, labels, ref_emb=embeddings, ref_labels=labels, query_index=torch.arange(18))
        loss(embeddings, labels, ref_emb=embeddings.clone(), ref_labels=labels)
        loss(embeddings, labels)
        SmoothAPLoss(include_query=True)(embeddings, labels, ref_emb=embeddings, ref_labels=labels)
