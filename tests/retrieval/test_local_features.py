"RootSIFT, codebooks, the match kernels and their index."

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file

from smoothap_nb import ASMKIndex, Codebook, local_features
from smoothap_nb.retrieval.features import LocalFeatures, hamming, pack_signs, to_grey


def facade(seed=0, size=(160, 200)):
    "A picture with corners."
    chance = np.random.default_rng(seed)
    picture = np.full((*size, 3), 128, np.uint8)
    for _ in range(60):
        y, x = chance.integers(0, size[0] - 12), chance.integers(0, size[1] - 12)
        picture[y : y + chance.integers(4, 12), x : x + chance.integers(4, 12)] = chance.integers(0, 255, 3)
    return picture


def made_up(n, seed, spread=0.4):
    "Features around a few centres, so that words are shared within and between pictures."
    chance = np.random.default_rng(seed)
    centres = np.abs(np.random.default_rng(0).standard_normal((6, 128)))
    rows = np.abs(centres[chance.integers(0, 6, n)] + spread * chance.standard_normal((n, 128)))
    rows = np.sqrt(rows / rows.sum(1, keepdims=True)).astype(np.float32)
    points = chance.uniform(0, 100, (n, 2)).astype(np.float32)
    return LocalFeatures(rows, points, np.ones(n, np.float32), (100, 100))


@pytest.fixture(scope="module")
def pictures():
    return [made_up(n, seed) for seed, n in enumerate((40, 25, 60, 3, 33))]


@pytest.fixture(scope="module")
def codebook(pictures):
    return Codebook.learn(pictures, 12, seed=1)


def test_features_are_rootsift():
    found = local_features(facade())
    assert 20 < len(found) <= 700 and found.size == (200, 160)
    assert np.allclose(np.linalg.norm(found.descriptors, axis=1), 1, atol=1e-5) and (found.descriptors >= 0).all()
    assert (found.points >= 0).all() and (found.points < [200, 160]).all() and (found.scales > 0).all()
    weakest = local_features(facade(), limit=10)
    assert len(weakest) == 10 and np.array_equal(weakest.descriptors, found.descriptors[:10])


def test_upright_features_have_no_duplicates():
    found = local_features(facade())
    places = np.column_stack([found.points, found.scales])
    assert len(np.unique(places, axis=0)) == len(found)
    turning = local_features(facade(), upright=False)
    places = np.column_stack([turning.points, turning.scales])
    assert len(np.unique(places, axis=0)) < len(turning)


def test_every_way_to_hand_over_a_picture(tmp_path):
    picture = facade()
    Image.fromarray(picture).save(tmp_path / "a.png")
    tensor = torch.from_numpy(picture).permute(2, 0, 1)
    for way in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(picture), tensor, tensor.float() / 255):
        assert np.array_equal(to_grey(way), to_grey(picture))


@pytest.mark.parametrize("blank", [np.full((100, 100, 3), 77, np.uint8), facade()[:9], facade()[:, :15],
                                   np.zeros((1, 1), np.uint8)])
def test_pictures_without_features_have_none(blank):
    found = local_features(blank)
    assert len(found) == 0 and found.descriptors.shape == (0, 128) and found.points.shape == (0, 2)


@pytest.mark.parametrize("wrong, error", [(np.zeros((4, 4)), ValueError), (np.zeros((0, 4), np.uint8), ValueError),
                                          (torch.zeros(4, 4), ValueError), (7, TypeError)])
def test_what_is_no_picture_is_refused(wrong, error):
    with pytest.raises(error, match="picture"):
        local_features(wrong)


def test_codebook_assigns_the_nearest_words(codebook, pictures):
    rows = pictures[0].descriptors
    gaps = ((rows[:, None] - codebook.words[None]) ** 2).sum(2)
    assert np.array_equal(codebook.assign(rows, 3), np.argsort(gaps, axis=1)[:, :3])
    assert codebook.assign(rows[:0], 2).shape == (0, 2)
    again = Codebook.learn(pictures, 12, seed=1)
    assert again.fingerprint == codebook.fingerprint != Codebook.learn(pictures, 12, seed=2).fingerprint


def test_codebooks_that_cannot_be():
    with pytest.raises(ValueError, match="take a smaller codebook"):
        Codebook.learn([made_up(5, 0)], 6)
    for words in (np.zeros((3, 64)), np.zeros((0, 128)), np.zeros(128)):
        with pytest.raises(ValueError, match=r"words \(k, 128\)"):
            Codebook(words)
    with pytest.raises(ValueError, match="NaN"):
        Codebook(torch.full((2, 128), torch.nan))
    with pytest.raises(ValueError, match="at most 2"):
        Codebook(np.zeros((2, 128))).assign(np.zeros((1, 128)), 3)
    with pytest.raises(ValueError, match="128"):
        Codebook(np.zeros((2, 128))).assign(np.zeros((1, 64)))


def test_signs_and_hamming():
    chance = np.random.default_rng(0)
    a, b = chance.standard_normal((2, 50, 128))
    assert hamming(pack_signs(a), pack_signs(b)).tolist() == ((a > 0) != (b > 0)).sum(1).tolist()


def dense(query, picture, codebook, kernel, binary, alpha, threshold, burst, multiple):
    "The kernel by its definition: loops over words and pairs, and no index."
    def groups(f, m):
        assigned = codebook.assign(f.descriptors, m)
        for c in range(len(codebook)):
            rows = f.descriptors[(assigned == c).any(1)] - codebook.words[c]
            if len(rows):
                rows = rows.sum(0, keepdims=True) if kernel == "asmk" else rows
                yield c, (np.where(rows > 0, 1, -1) if binary else rows / np.linalg.norm(rows, axis=1, keepdims=True))

    def sigma(u):
        return np.where(u >= threshold, np.sign(u) * np.abs(u) ** alpha, 0)

    def inner(x, y):
        return x.astype(float) @ y.T.astype(float) / (128 if binary else 1)

    def own(groups_of):
        return sum(sigma(inner(v, v)).sum() for v in groups_of.values())

    x, y, total = dict(groups(query, multiple)), dict(groups(picture, 1)), 0.0
    for c in x.keys() & y.keys():
        s = sigma(inner(x[c], y[c]))
        if burst and kernel == "smk":
            sums = s.sum(1)
            total += ((s * np.sqrt(s)).sum(1)[sums > 0] / np.sqrt(sums[sums > 0])).sum()
        else:
            total += s.sum()
    return total / np.sqrt(own(x) * own(y))


@pytest.mark.parametrize("kernel", ["asmk", "smk"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("burst, threshold", [(False, 0.0), (False, -0.3), (True, 0.0), (True, 0.25)])
@pytest.mark.parametrize("multiple", [1, 3])
def test_index_equals_the_definition(codebook, pictures, kernel, binary, burst, threshold, multiple):
    if kernel == "asmk" and burst and threshold < 0:
        return
    index = ASMKIndex(codebook, kernel, binary, 3.0, threshold, burst).add(pictures[:2]).add(pictures[2:])
    queries = [made_up(30, 9), made_up(12, 10)]
    scores = index.search(queries, multiple)
    wanted = [[dense(q, p, codebook, kernel, binary, 3.0, threshold, burst, multiple) for p in pictures]
              for q in queries]
    assert scores.shape == (2, 5) and np.allclose(scores, wanted, atol=2e-6)


def test_a_picture_is_most_like_itself(codebook, pictures):
    for kernel in ("asmk", "smk"):
        scores = ASMKIndex(codebook, kernel, burst=False).add(pictures).search(pictures, 1)
        assert torch.allclose(scores.diagonal(), torch.ones(5)) and (scores.argmax(1) == torch.arange(5)).all()
        assert torch.allclose(scores, scores.T, atol=1e-6)


def test_asmk_package_agrees(codebook, pictures):
    asmk = pytest.importorskip("asmk", reason="optional") if _installed("asmk") else None
    if asmk is None:
        wanted = [[dense(q, p, codebook, "asmk", True, 3.0, 0.0, False, 3) for p in pictures] for q in pictures]
    else:
        wanted = _by_the_package(asmk, codebook, pictures)
    assert np.allclose(ASMKIndex(codebook).add(pictures).search(pictures, 3), wanted, atol=1e-4)


def _installed(name):
    from importlib.util import find_spec

    return find_spec(name) is not None


def _by_the_package(asmk, codebook, pictures):
    "Scores (Q, G) of the public package, its codebook replaced by ours."
    from asmk import codebook as books
    from asmk import index, inverted_file, kernel

    factory = index.initialize_index(gpu_id=None)
    book = books.Codebook.initialize_from_state(
        {"type": "Codebook", "params": {"size": len(codebook)}, "state": {"centroids": codebook.words}}, factory
    )
    kern = kernel.ASMKKernel(book, binary=True)
    ivf = inverted_file.IVF.initialize_empty(codebook_size=len(codebook), use_idf=False)
    rows = np.concatenate([p.descriptors for p in pictures])
    ids = np.repeat(np.arange(len(pictures)), [len(p) for p in pictures])
    ivf.add(*kern.aggregate(*book.quantize(rows, ids, multiple_assignment=1)))
    out = np.zeros((len(pictures), len(pictures)))
    for q, picture in enumerate(pictures):
        des, words = book.quantize(picture.descriptors, multiple_assignment=3)
        found, scores = ivf.search(
            *kern.aggregate_image(des, words), topk=len(pictures),
            similarity_func=lambda *a: kern.similarity(*a, alpha=3.0, similarity_threshold=0.0),
        )
        out[q, found] = scores
    return out


def test_pictures_without_features_are_never_found_and_never_ask(codebook, pictures):
    blank = local_features(np.full((40, 40), 9, np.uint8))
    index = ASMKIndex(codebook).add([blank, *pictures])
    assert (index.search(pictures)[:, 0] == 0).all() and len(index) == 6
    with pytest.raises(ValueError, match="query 1 has no local features"):
        index.search([pictures[0], blank])
    with pytest.raises(ValueError, match="index is empty"):
        ASMKIndex(codebook).search(pictures)
    with pytest.raises(TypeError, match="LocalFeatures"):
        index.search([np.zeros((3, 128))])


@pytest.mark.parametrize("keywords", [{"kernel": "vlad"}, {"alpha": 0}, {"threshold": 2}, {"threshold": float("nan")},
                                      {"kernel": "smk", "threshold": -0.1}])
def test_settings_out_of_range_are_named(codebook, keywords):
    with pytest.raises(ValueError, match=next(reversed(keywords))):
        ASMKIndex(codebook, **keywords)


@pytest.mark.parametrize("kernel, binary", [("asmk", True), ("smk", True), ("asmk", False)])
def test_an_index_comes_back_as_it_was(tmp_path, codebook, pictures, kernel, binary):
    index = ASMKIndex(codebook, kernel, binary, alpha=2.0, threshold=0.1).add(pictures)
    index.save(tmp_path / "town.safetensors")
    again = ASMKIndex.load(tmp_path / "town.safetensors", codebook)
    assert torch.equal(again.search(pictures), index.search(pictures))
    again.add(pictures[:1])
    assert len(again) == 6 and torch.equal(again.search(pictures)[:, 5], index.search(pictures)[:, 0])


def test_an_index_that_does_not_fit_is_refused(tmp_path, codebook, pictures):
    path = tmp_path / "town.safetensors"
    ASMKIndex(codebook).add(pictures).save(path)
    with pytest.raises(ValueError, match="belongs to another codebook"):
        ASMKIndex.load(path, Codebook(codebook.words[::-1]))
    with pytest.raises(FileNotFoundError, match="no index"):
        ASMKIndex.load(tmp_path / "nowhere")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged or is no index"):
        ASMKIndex.load(path)
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(ValueError, match="not written by ASMKIndex.save"):
        ASMKIndex.load(path)


def test_one_changed_bit_of_an_index_is_noticed(tmp_path, codebook, pictures):
    path = tmp_path / "town.safetensors"
    ASMKIndex(codebook).add(pictures).save(path)
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in range(start, len(whole), (len(whole) - start) // 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="damaged"):
            ASMKIndex.load(path)


def test_an_empty_index_is_kept(tmp_path, codebook):
    ASMKIndex(codebook).save(tmp_path / "none.safetensors")
    assert len(ASMKIndex.load(tmp_path / "none.safetensors")) == 0


@pytest.mark.parametrize("part", ["words", "images", "norms", "codebook"])
def test_an_index_with_one_part_altered_is_refused(tmp_path, codebook, pictures, part):
    from safetensors import safe_open

    path = tmp_path / "town.safetensors"
    ASMKIndex(codebook).add(pictures).save(path)
    content = load_file(path)
    with safe_open(path, framework="np") as file:
        meta = file.metadata()
    content[part] = content[part] + 1 if part == "codebook" else content[part][1:]
    save_file(content, path, meta)
    with pytest.raises(ValueError, match="damaged"):
        ASMKIndex.load(path)
