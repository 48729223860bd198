"VLAD, verification, expansion, diffusion: by definition, by known answers, and on houses that a lesson did not use."

import numpy as np
import pytest
import torch

from smoothap_nb import Codebook, diffuse, hamming_query_expansion, local_features, verify, vlad
from smoothap_nb.retrieval.features import LocalFeatures, features_of, hamming, tentative_pairs
from smoothap_nb.retrieval.local import Verification, one_point_affine, rerank, selectivity, verify_top

TRUE = np.array([[0.8, 0.05, 30.0], [-0.06, 0.9, 10.0]])


def made(n=60, seed=0, size=(300, 300)):
    "Features with a word and a code of their own, n at random places."
    chance = np.random.default_rng(seed)
    rows = np.sqrt(chance.dirichlet(np.full(128, 0.3), n)).astype(np.float32)
    points = chance.uniform(0, 300, (n, 2)).astype(np.float32)
    codes = chance.integers(0, 2**63, (n, 2), dtype=np.uint64)
    return LocalFeatures(rows, points, np.full(n, 4.0, np.float32), size, np.arange(n, dtype=np.int32), codes)


def moved(features, transform, wrong=0, seed=1):
    "The same features elsewhere; the last `wrong` of them anywhere."
    chance = np.random.default_rng(seed)
    points = features.points @ transform[:, :2].T + transform[:, 2]
    if wrong:
        points[-wrong:] = chance.uniform(0, 300, (wrong, 2))
    scales = features.scales * np.sqrt(abs(np.linalg.det(transform[:, :2])))
    return LocalFeatures(features.descriptors, points.astype(np.float32), scales.astype(np.float32), features.size,
                         features.words, features.codes)


def test_vlad_by_loops():
    f = made(30)
    book = Codebook(made(4, seed=9).descriptors)
    sums = np.zeros((4, 128))
    for x in f.descriptors:
        c = ((book.words - x) ** 2).sum(1).argmin()
        sums[c] += x - book.words[c]
    wanted = np.sign(sums).ravel() * np.abs(sums).ravel() ** 0.5
    found = vlad(f, book)
    assert np.allclose(found, wanted / np.linalg.norm(wanted), atol=1e-5) and np.isclose(found.norm(), 1)
    assert torch.equal(vlad(f.take(slice(0, 0)), book), torch.zeros(512))


def test_selectivity_is_odd_above_its_threshold():
    u = torch.linspace(-1, 1, 9)
    assert torch.allclose(selectivity(u, 3.0, -1.0), u**3) and (selectivity(u, 3.0, 0.3)[u < 0.3] == 0).all()
    with pytest.raises(ValueError, match="alpha"):
        selectivity(u, 0)


def test_pairs_share_their_word_and_come_closest_first():
    chance = np.random.default_rng(0)
    a, b = made(50), made(70, 1)
    a = LocalFeatures(a.descriptors, a.points, a.scales, a.size, chance.integers(0, 8, 50).astype(np.int32), a.codes)
    b = LocalFeatures(b.descriptors, b.points, b.scales, b.size, chance.integers(0, 8, 70).astype(np.int32), b.codes)
    wanted = {(i, j): int(hamming(a.codes[i : i + 1], b.codes[j : j + 1])[0])
              for i in range(50) for j in range(70) if a.words[i] == b.words[j]}
    found = list(map(tuple, tentative_pairs(a, b, bits=64, most=10**6).tolist()))
    assert set(found) == {p for p, h in wanted.items() if h <= 64}
    assert [wanted[p] for p in found] == sorted(wanted[p] for p in found)
    assert list(map(tuple, tentative_pairs(a, b, bits=64, most=5).tolist())) == found[:5]


@pytest.mark.parametrize("method", ["usac", "one_point"])
def test_a_known_map_is_found_among_strays(method):
    a = made(60)
    check = verify(a, moved(a, TRUE, wrong=25), method=method)
    assert 35 <= check.inliers <= 38 and np.allclose(check.transform[:, :2], TRUE[:, :2], atol=0.05)
    assert (check.pairs[:, 0] == check.pairs[:, 1]).all() or check.inliers > 35


@pytest.mark.parametrize("method", ["usac", "one_point"])
def test_strangers_agree_on_little_and_the_same_picture_on_all(method):
    a = made(60)
    assert verify(a, a, method=method).inliers == 60
    assert verify(a, moved(a, TRUE, wrong=60), method=method).inliers < 8
    assert verify(a, moved(a, TRUE, wrong=25), method=method).inliers == verify(
        a, moved(a, TRUE, wrong=25), method=method
    ).inliers


def test_one_feature_that_matches_many_counts_once():
    a = made(30)
    rows = np.r_[np.arange(30), np.zeros(20, int)]
    b = moved(a, TRUE).take(rows)  # the first feature stands there 21 times
    assert verify(a, b).inliers == verify(a, b, method="one_point").inliers == 30


def test_one_point_keeps_the_similarity_where_a_fit_would_collapse():
    a = np.column_stack([np.arange(10.0), np.zeros(10)])  # on a line: an affine map is not determined
    votes, transform = one_point_affine(a, 2 * a + 5, np.full(10, 2.0))
    assert votes.all() and np.isfinite(transform).all() and abs(np.linalg.det(transform[:, :2])) > 0.4


def test_verification_refuses_what_it_cannot_use():
    a = made(10)
    bare = LocalFeatures(a.descriptors, a.points, a.scales, a.size)
    with pytest.raises(ValueError, match="codebook.describe"):
        verify(a, bare)
    with pytest.raises(ValueError, match="method"):
        verify(a, a, method="ransac")
    with pytest.raises(ValueError, match="bits"):
        tentative_pairs(a, a, bits=200)
    strangers = LocalFeatures(a.descriptors, a.points, a.scales, a.size, a.words + 100, a.codes)
    assert tentative_pairs(a, strangers).shape == (0, 2) and verify(a, strangers).inliers == 0  # no word in common
    assert verify(a, a.take(slice(0, 0))).inliers == 0
    few = verify(a, a.take(slice(0, 2)))
    assert few.inliers == 0 and few.transform is None and few.pairs.shape == (0, 2)


def test_verified_pictures_come_first():
    check = lambda n: Verification(n, None, np.zeros((0, 2), int))  # noqa: E731
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6]])
    order = rerank(scores, [{0: check(4), 1: check(7), 2: check(7), 3: check(30)}], least=5)[0].argsort(descending=True)
    assert order.tolist() == [3, 1, 2, 0]  # by inliers, equal ones as they stood, the unverified behind
    assert torch.equal(rerank(scores, [{}]), scores)


def test_verify_top_looks_at_the_best_alone():
    a = made(20)
    found = verify_top([a], [moved(a, TRUE), made(20, 5), a], torch.tensor([[0.1, 0.5, 0.9]]), top=2)
    assert set(found[0]) == {1, 2} and found[0][2].inliers == 20


def test_expansion_brings_what_falls_into_the_frame():
    query = made(40)
    far = made(80, 3)
    picture = moved(far, TRUE)
    check = Verification(25, TRUE, np.zeros((0, 2), int))
    narrow = LocalFeatures(query.descriptors, query.points, query.scales, (150, 300), query.words, query.codes)
    wider = hamming_query_expansion(narrow, [(picture, check)], least=20)
    inside = far.points[:, 0] < 150
    assert len(wider) == 40 + inside.sum() and wider.words is None
    assert np.allclose(wider.points[40:], far.points[inside], atol=1e-3)
    assert np.allclose(wider.scales[40:], far.scales[inside], rtol=1e-4)
    for ignored in (Verification(19, TRUE, check.pairs), Verification(0, None, check.pairs)):
        assert len(hamming_query_expansion(narrow, [(picture, ignored)], least=20)) == 40


def dense_diffusion(similarities, queries, k, alpha, gamma):
    "By an inverse instead of conjugate gradients."
    G, s = len(similarities), similarities.double().numpy().copy()
    np.fill_diagonal(s, -np.inf)
    near = np.zeros((G, G))
    for i in range(G):
        for j in np.argsort(-s[i])[:k]:
            if i in np.argsort(-s[j])[:k]:
                near[i, j] = max(s[i, j], 0) ** gamma
    root = np.sqrt(np.maximum(near.sum(1), 1e-12))
    start = np.zeros(queries.shape)
    for row, q in zip(start, queries.numpy()):
        row[np.argsort(-q)[:k]] = np.maximum(np.sort(q)[::-1][:k], 0) ** gamma
    return start @ np.linalg.inv(np.eye(G) - alpha * near / root[:, None] / root)


@pytest.mark.parametrize("k, alpha, gamma", [(3, 0.5, 3.0), (5, 0.99, 1.0), (50, 0.9, 2.0)])
def test_diffusion_solves_its_equation(k, alpha, gamma):
    x = torch.nn.functional.normalize(torch.randn(14, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    own, asked = x[:12] @ x[:12].T, x[12:] @ x[:12].T
    wanted = dense_diffusion(own, asked, min(k, 11), alpha, gamma)
    assert np.allclose(diffuse(own, asked, k, alpha, gamma), wanted, atol=1e-4)


def test_diffusion_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="similarities must be"):
        diffuse(torch.eye(3), torch.ones(1, 4))
    with pytest.raises(ValueError, match="alpha"):
        diffuse(torch.eye(3), torch.ones(1, 3), alpha=1.0)
    for own, asked in ((torch.eye(3) * torch.nan, torch.ones(1, 3)), (torch.eye(3), torch.full((1, 3), torch.inf))):
        with pytest.raises(ValueError, match="NaN or infinity"):
            diffuse(own, asked)


def test_features_are_kept_on_disk(tmp_path, monkeypatch):
    from PIL import Image

    chance = np.random.default_rng(0)
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        shape = (60, 80) if i else (8, 8)
        Image.fromarray(np.kron(chance.integers(0, 255, shape), np.ones((3, 3))).astype(np.uint8)).save(path)
    todo = [*paths, (paths[1], (10, 10, 200, 150))]
    first = features_of(todo, cache=tmp_path / "kept", shard=2)
    assert len(list((tmp_path / "kept").iterdir())) == 2 and first[3].size == (190, 140)
    assert np.array_equal(first[1].descriptors, local_features(paths[1]).descriptors)
    from smoothap_nb.retrieval import features as module

    with monkeypatch.context() as patch:
        patch.setattr(module, "_detect", lambda *a: pytest.fail("looked again"))
        again = features_of(todo, cache=tmp_path / "kept", shard=2)
    for a, b in zip(first, again):
        assert a.size == b.size and all(np.array_equal(getattr(a, k), getattr(b, k))
                                        for k in ("descriptors", "points", "scales"))
    shard = next((tmp_path / "kept").iterdir())
    shard.write_bytes(shard.read_bytes()[:40])
    assert [len(f) for f in features_of(todo, cache=tmp_path / "kept", shard=2)] == [len(f) for f in first]
