"""Local features of a picture (RootSIFT, by OpenCV) and the codebook of words that they are sorted into (k-means, by
faiss). Both packages come with the extra `local` and are asked for at the first use.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothap_nb.checks import check_count, check_number
from smoothap_nb.extras import need
from smoothap_nb.files import write_atomic

__all__ = ["LocalFeatures", "Codebook", "local_features", "features_of", "StoredFeatures", "from_raw", "to_grey",
           "pack_signs", "hamming", "tentative_pairs", "as_list"]

WIDTH = 128  # numbers of a SIFT descriptor


@dataclass(frozen=True)
class LocalFeatures:
    """What is found in one picture: n places and what they look like.

    `words` and `codes` are there after `Codebook.describe`: each feature's nearest word and the signs of its residual.
    """

    descriptors: np.ndarray  # (n, 128) float32, RootSIFT: rows of length 1
    points: np.ndarray  # (n, 2) float32, x and y in pixels of the picture
    scales: np.ndarray  # (n,) float32, diameter in pixels
    size: tuple[int, int]  # width and height of the picture
    words: np.ndarray | None = None  # (n,) int32
    codes: np.ndarray | None = None  # (n, 2) uint64

    def __len__(self) -> int:
        return len(self.descriptors)

    def take(self, rows) -> LocalFeatures:
        "The features of some rows."
        some = lambda a: None if a is None else a[rows]  # noqa: E731
        return replace(
            self, descriptors=self.descriptors[rows], points=self.points[rows], scales=self.scales[rows],
            words=some(self.words), codes=some(self.codes),
        )


def to_grey(image) -> np.ndarray:
    """A picture as grey levels.

    Args:
        image: a path; a PIL image; an array (h, w) or (h, w, 3) uint8; a tensor (3, h, w) or (1, h, w), floating in
            [0, 1] or uint8.

    Returns:
        (h, w) uint8.

    Raises:
        PhotoError, FileNotFoundError: a file that cannot be read.
        TypeError, ValueError: something else, another shape.
    """
    if isinstance(image, Tensor):
        if image.ndim != 3 or image.shape[0] not in (1, 3):
            raise ValueError(f"a picture as a tensor must be (3, height, width), got {tuple(image.shape)}")
        image = image.detach().cpu()
        image = (image.clamp(0, 1) * 255).round().to(torch.uint8) if image.is_floating_point() else image
        image = image.permute(1, 2, 0).numpy()
    elif isinstance(image, (str, os.PathLike)):
        from smoothap_nb.images import open_rgb

        image = np.asarray(open_rgb(image))
    elif hasattr(image, "convert"):
        image = np.asarray(image.convert("RGB"))
    if not isinstance(image, np.ndarray):
        raise TypeError(f"a picture must be a path, a PIL image, an array or a tensor, got {type(image).__name__}")
    fits = image.ndim in (2, 3) and 0 not in image.shape and image.shape[2:] in ((), (1,), (3,))
    if image.dtype != np.uint8 or not fits:
        raise ValueError(f"a picture as an array must be (h, w) or (h, w, 3) uint8, got {image.shape} {image.dtype}")
    if image.ndim == 3:
        image = image[..., 0] if image.shape[2] == 1 else np.round(image @ np.array([0.299, 0.587, 0.114]))
    return np.ascontiguousarray(image.astype(np.uint8))


def local_features(image, limit: int = 700, *, upright: bool = True, contrast: float = 0.01) -> LocalFeatures:
    """RootSIFT features of a picture (Lowe 2004; Arandjelović and Zisserman 2012), strongest first.

    Args:
        image: see `to_grey`.
        limit: how many to keep at most.
        upright: take every patch as it stands instead of turning it to its main gradient: buildings stand upright.
            Features that then differ in nothing are kept once.
        contrast: of the weakest feature, > 0; OpenCV's own default of 0.04 leaves dark pictures without any.

    Returns:
        `LocalFeatures`; a picture of one colour, or one with less than 16 pixels on a side, has none.

    Raises:
        ImportError: OpenCV is missing; the message names the extra.
        TypeError, ValueError: no picture; a limit below 1.
    """
    return from_raw(*_detect(image, limit, upright, contrast))


def _detect(image, limit: int, upright: bool, contrast: float):
    "Raw descriptors (n, 128) uint8, points, scales, and the picture's size."
    limit, grey = check_count("limit", limit), to_grey(image)
    size = (grey.shape[1], grey.shape[0])
    if min(size) < 16:
        return _nothing(size)
    cv2 = need("cv2", "local_features")
    sift = cv2.SIFT_create(contrastThreshold=contrast)
    found = sorted(sift.detect(grey, None), key=lambda k: (-k.response, k.pt, k.size))
    if upright:
        # one place may come with several directions; with all of them set to 0 they would be one feature many times
        found = list({(k.pt, k.size): k for k in reversed(found)}.values())[::-1]
        for keypoint in found:
            keypoint.angle = 0.0
    found, raw = sift.compute(grey, found[:limit])
    if not len(found):
        return _nothing(size)
    points = np.array([k.pt for k in found], np.float32)
    return raw.astype(np.uint8), points, np.array([k.size for k in found], np.float32), size


def from_raw(raw: np.ndarray, points: np.ndarray, scales: np.ndarray, size) -> LocalFeatures:
    "SIFT descriptors (n, 128) uint8 become RootSIFT: the square root of their shares."
    shares = raw / np.maximum(raw.sum(1, keepdims=True, dtype=np.float32), 1)
    return LocalFeatures(np.sqrt(shares).astype(np.float32), points, scales, (int(size[0]), int(size[1])))


def _nothing(size: tuple[int, int]):
    return np.zeros((0, WIDTH), np.uint8), np.zeros((0, 2), np.float32), np.zeros(0, np.float32), size


def features_of(pictures: Sequence, limit: int = 700, cache=None, shard: int = 1000, *, upright: bool = True,
                contrast: float = 0.01, side: int | None = None, progress: bool = False) -> list[LocalFeatures]:
    """Local features of many pictures, kept on disk between calls.

    Args:
        pictures: paths, or (path, box) for a part of a picture, box = (left, top, right, bottom).
        limit, upright, contrast: as for `local_features`.
        cache: a folder; nothing is kept when left out. About 100 kB for a picture with 700 features.
        shard: pictures in one file of the cache; a shard is made anew when one of its pictures has changed.
        side: longer side to which pictures are reduced first, and boxes by the same factor; as they are when left out.
        progress: show a bar.

    Returns:
        one `LocalFeatures` per picture, in order.

    Raises:
        ImportError, ValueError, FileNotFoundError: as for `local_features`; a damaged shard is made anew.
    """
    out = []
    for path, part in _parts(pictures, cache, shard, (limit, upright, contrast, side), progress):
        raw = _read_shard(path, len(part))
        if raw is None:
            raw = [_detect(_cut(p, b, side), limit, upright, contrast) for p, b in part]
            _write_shard(path, raw)
        out += [from_raw(*r) for r in raw]
    return out


def _parts(pictures: Sequence, cache, shard: int, settings: tuple, progress: bool):
    "The file of each shard, None without a cache, and its pictures with their boxes."
    todo = [(p, None) if isinstance(p, (str, os.PathLike)) else p for p in pictures]
    parts = [todo[i : i + check_count("shard", shard)] for i in range(0, len(todo), shard)]
    if progress:
        from tqdm.auto import tqdm

        parts = tqdm(parts, desc="local features", unit="shard")
    for part in parts:
        keys = [[str(p), os.stat(p).st_size, os.stat(p).st_mtime_ns, b and list(b)] for p, b in part]
        name = hashlib.sha256(json.dumps([_SHARD, keys, *settings]).encode()).hexdigest()[:24]
        yield None if cache is None else Path(cache) / f"features-{name}.safetensors", part


class StoredFeatures(Sequence):
    """Local features that stay on disk and are read one picture at a time: for sets that are larger than memory.

    Args:
        pictures, limit, shard, side, progress: as for `features_of`, which finds what is not there yet.
        cache: the folder of the shards.
    """

    def __init__(self, pictures: Sequence, limit: int = 700, cache=None, shard: int = 1000, side: int | None = None,
                 progress: bool = False):
        from safetensors import safe_open

        if cache is None:
            raise ValueError("stored features need a folder: give cache")
        self._files, self._edges, self._shard = [], [], check_count("shard", shard)
        for path, part in _parts(pictures, cache, shard, (limit, True, 0.01, side), progress):
            if not path.is_file():
                features_of(part, limit, cache, shard, side=side)
            self._files.append(safe_open(path, framework="np"))
            self._edges.append(np.r_[0, self._files[-1].get_tensor("counts").cumsum()])

    def __len__(self) -> int:
        return sum(len(e) - 1 for e in self._edges)

    def __getitem__(self, index: int) -> LocalFeatures:
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} pictures, no {index}")
        file, edges, row = self._files[index // self._shard], self._edges[index // self._shard], index % self._shard
        part = slice(int(edges[row]), int(edges[row + 1]))
        raw, points, scales = (file.get_slice(name)[part] for name in ("raw", "points", "scales"))
        return from_raw(raw, points, scales, file.get_slice("sizes")[row : row + 1][0])


_SHARD = 1  # version of a shard's content


def _cut(path, box, side: int | None):
    "A picture, reduced where that is asked for, or the part of it in a box, as the revisited protocol reads it."
    if box is None and side is None:
        return path
    if box is None:
        from smoothap_nb.images import open_rgb

        with open_rgb(path) as picture:
            picture.thumbnail((side, side))
            return picture.copy()
    from smoothap_nb.data.revisited_files import read_image

    return read_image(path, bbx=box, size=side)


def _write_shard(path: Path | None, raw: list) -> None:
    if path is not None:
        from safetensors.numpy import save

        path.parent.mkdir(parents=True, exist_ok=True)
        joined = {n: np.concatenate([r[i] for r in raw]) for i, n in enumerate(("raw", "points", "scales"))}
        sizes = np.array([r[3] for r in raw], np.int64)
        write_atomic(path, save(joined | {"sizes": sizes, "counts": np.array([len(r[0]) for r in raw], np.int64)}))


def _read_shard(path: Path | None, pictures: int) -> list | None:
    "What `_write_shard` wrote; None where there is nothing whole."
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = load(path.read_bytes()) if path is not None and path.is_file() else None
        if content is None or len(content["counts"]) != pictures or content["counts"].sum() != len(content["raw"]):
            return None
        edges = content["counts"].cumsum()[:-1]
        parts = [np.split(content[name], edges) for name in ("raw", "points", "scales")]
        return list(zip(*parts, map(tuple, content["sizes"].tolist())))
    except (SafetensorError, KeyError, OSError):
        return None


def pack_signs(vectors: np.ndarray) -> np.ndarray:
    "(n, 128) numbers to (n, 2) uint64: one bit each, set where the number is above 0."
    return np.packbits(np.ascontiguousarray(vectors) > 0, axis=1, bitorder="little").view(np.uint64)


_BITS = np.array([bin(i).count("1") for i in range(256)], np.uint8)


def hamming(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    "Number of bits in which codes (n, 2) and (n, 2) differ: (n,)."
    return _BITS[np.bitwise_xor(a, b).view(np.uint8).reshape(len(a), WIDTH // 8)].sum(1, dtype=np.int64)


def tentative_pairs(query: LocalFeatures, candidate: LocalFeatures, bits: int = 52, most: int = 400) -> np.ndarray:
    """Features of two pictures that may show the same point: one word, codes that differ in few bits.

    Args:
        query, candidate: with words and codes, as `Codebook.describe` gives them.
        bits: how many of 128 may differ, 0 to 128.
        most: how many pairs to keep, the closest.

    Returns:
        (m, 2) rows of the query and of the candidate, the closest first.

    Raises:
        ValueError: features without words, bits out of range.
    """
    if query.words is None or candidate.words is None:
        raise ValueError("these features carry no words: call codebook.describe(features) first")
    if not 0 <= check_number("bits", bits) <= 128:
        raise ValueError(f"bits must lie in 0 ... 128, got {bits}")
    order = np.argsort(candidate.words, kind="stable")
    first = np.searchsorted(candidate.words[order], query.words, side="left")
    count = np.searchsorted(candidate.words[order], query.words, side="right") - first
    left = np.repeat(np.arange(len(query)), count)
    within = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
    right = order[np.repeat(first, count) + within]
    differ = hamming(query.codes[left], candidate.codes[right])
    keep = np.argsort(differ, kind="stable")[: check_count("most", most)]
    keep = keep[differ[keep] <= bits]
    return np.stack([left[keep], right[keep]], 1)


class Codebook:
    """Words: the centres that descriptors are sorted to.

    Args:
        words: (k, 128) floating point, array or tensor.

    Raises:
        ValueError: another width, no words, NaN.
    """

    def __init__(self, words):
        words = np.ascontiguousarray(words.detach().cpu() if isinstance(words, Tensor) else words, dtype=np.float32)
        if words.ndim != 2 or not len(words) or words.shape[1] != WIDTH:
            raise ValueError(f"a codebook must be words (k, {WIDTH}), got {words.shape}: learn it from local_features")
        if not np.isfinite(words).all():
            raise ValueError("the codebook holds NaN or infinity")
        self.words = words

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"Codebook({len(self)} words, {self.fingerprint[:8]})"

    @property
    def fingerprint(self) -> str:
        "What tells it from other codebooks."
        return hashlib.sha256(self.words.tobytes()).hexdigest()

    @classmethod
    def learn(cls, features, size: int = 4096, *, seed: int = 0, iterations: int = 20) -> Codebook:
        """k-means on descriptors (faiss).

        Args:
            features: `LocalFeatures` of many pictures, or descriptors (n, 128); of pictures that are not searched.
            size: how many words, at most as many as descriptors.
            seed: of the first centres.
            iterations: of k-means.

        Raises:
            ImportError: faiss is missing; the message names the extra.
            ValueError: descriptors of another width, fewer descriptors than words.
        """
        if not isinstance(features, np.ndarray):
            features = [f.descriptors for f in features]
            features = np.concatenate(features) if features else np.zeros((0, WIDTH), np.float32)
        rows, size = _check_descriptors(features), check_count("size", size)
        if len(rows) < size:
            raise ValueError(f"{len(rows)} descriptors cannot make {size} words: take a smaller codebook")
        faiss = need("faiss", "Codebook.learn")
        means = faiss.Kmeans(
            WIDTH, size, niter=iterations, seed=seed, min_points_per_centroid=1,
            max_points_per_centroid=-(-len(rows) // size),
        )
        means.train(np.ascontiguousarray(rows))
        return cls(means.centroids.reshape(size, WIDTH))

    def assign(self, descriptors: np.ndarray, multiple: int = 1) -> np.ndarray:
        """The nearest words, nearest first.

        Args:
            descriptors: (n, 128).
            multiple: how many words for each, 1 to k.

        Returns:
            (n, multiple) int32.
        """
        rows = torch.from_numpy(_check_descriptors(descriptors))
        if check_count("multiple", multiple) > len(self):
            raise ValueError(f"multiple must be at most {len(self)}, the number of words, got {multiple}")
        words = torch.from_numpy(self.words)
        near, half = [], (words**2).sum(1) / 2
        for part in rows.split(4096):  # distance up to what all words share
            near.append((part @ words.T - half).topk(multiple, dim=1).indices)
        return torch.cat(near).to(torch.int32).numpy() if near else np.zeros((0, multiple), np.int32)

    def describe(self, features: LocalFeatures) -> LocalFeatures:
        "The same features with their nearest word and the signs of their residual, as `verify` wants them."
        words = self.assign(features.descriptors)[:, 0]
        return replace(features, words=words, codes=pack_signs(features.descriptors - self.words[words]))


def _check_descriptors(descriptors) -> np.ndarray:
    descriptors = np.asarray(descriptors, dtype=np.float32)
    if descriptors.ndim != 2 or descriptors.shape[1] != WIDTH:
        raise ValueError(f"descriptors must be (n, {WIDTH}), got {descriptors.shape}")
    return descriptors


def as_list(features: LocalFeatures | Iterable[LocalFeatures], name: str) -> Sequence[LocalFeatures]:
    "One picture's features or many, as a list."
    found = [features] if isinstance(features, LocalFeatures) else list(features)
    wrong = next((f for f in found if not isinstance(f, LocalFeatures)), None)
    if wrong is not None:
        raise TypeError(f"{name} must be LocalFeatures, as local_features gives them, got {type(wrong).__name__}")
    return found
