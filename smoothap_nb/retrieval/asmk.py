"""Selective match kernels over an inverted file: SMK* and ASMK* (Tolias, Avrithis and Jégou, IJCV 2016).

Lesson 19 derives the kernels; here is the plumbing that makes a query fast: for each word the list of its entries,
128 bits each, in one array sorted by word and then by picture.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numba import njit
from torch import Tensor

from smoothap_nb.checks import check_choice, check_count, check_number, check_positive
from smoothap_nb.files import write_atomic
from smoothap_nb.retrieval.features import WIDTH, Codebook, LocalFeatures, as_list, pack_signs

__all__ = ["ASMKIndex"]

_FORMAT = "smoothap_nb ASMKIndex 1"


@njit(cache=True, nogil=True)
def _bits(x):
    "Set bits of a uint64."
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(cache=True, nogil=True)
def _gather(s, image, last, total, rooted, out):
    "One more match in a burst: of the picture at hand, or of the next one, and then the last one's burst counts."
    if image != last and total > 0.0:
        out[last] += rooted / np.sqrt(total)
        total, rooted = 0.0, 0.0
    return image, total + s, rooted + s * np.sqrt(s)


@njit(cache=True, nogil=True)
def _add_binary(words, codes, starts, images, stored, table, burst, out):
    "Add to `out` (pictures,) what the query's entries match; `table` holds the kernel for 0 ... 128 differing bits."
    for e in range(len(words)):
        total, rooted, last = 0.0, 0.0, -1
        a, b = codes[e, 0], codes[e, 1]
        for p in range(starts[words[e]], starts[words[e] + 1]):
            s = table[_bits(a ^ stored[p, 0]) + _bits(b ^ stored[p, 1])]
            if s == 0.0:
                continue
            if burst:
                last, total, rooted = _gather(s, images[p], last, total, rooted, out)
            else:
                out[images[p]] += s
        if burst and total > 0.0:
            out[last] += rooted / np.sqrt(total)


@njit(cache=True, nogil=True)
def _add_float(words, vectors, starts, images, stored, alpha, threshold, burst, out):
    "The same for residuals of length 1 (entries, 128)."
    for e in range(len(words)):
        total, rooted, last = 0.0, 0.0, -1
        for p in range(starts[words[e]], starts[words[e] + 1]):
            u = 0.0
            for d in range(vectors.shape[1]):
                u += vectors[e, d] * stored[p, d]
            if u < threshold or u == 0.0:
                continue
            s = np.sign(u) * np.abs(u) ** alpha
            if burst:
                last, total, rooted = _gather(s, images[p], last, total, rooted, out)
            else:
                out[images[p]] += s
        if burst and total > 0.0:
            out[last] += rooted / np.sqrt(total)


def _digest(content: dict[str, np.ndarray]) -> str:
    "A changed bit is another code, and nothing else would tell."
    found = hashlib.sha256()
    for name in sorted(content):
        found.update(np.ascontiguousarray(content[name]).view(np.uint8))
    return found.hexdigest()


class ASMKIndex:
    """Pictures by their local features, compared word by word.

    Args:
        codebook: of the words.
        kernel: "asmk" adds up the residuals of a picture's features within a word and compares the sums; "smk"
            compares every feature with every other.
        binary: keep the signs of the residuals alone (the star of ASMK*): 16 bytes instead of 512.
        alpha: selectivity, > 0: a similarity u counts as u ** alpha.
        threshold: similarities below it count nothing, -1 ... 1 (0 ... 1 with `burst` under "smk").
        burst: for "smk", several matches of one query feature in one picture share their weight (Jégou, Douze and
            Schmid, CVPR 2009); "asmk" does this by itself.

    Raises:
        TypeError, ValueError: what does not fit is named.
    """

    def __init__(self, codebook: Codebook, kernel: str = "asmk", binary: bool = True, alpha: float = 3.0,
                 threshold: float = 0.0, burst: bool = True):
        if not isinstance(codebook, Codebook):
            raise TypeError(f"codebook must be a Codebook, got {type(codebook).__name__}")
        self.codebook, self.binary = codebook, bool(binary)
        self.kernel = check_choice("kernel", kernel, ("asmk", "smk"))
        self.alpha, self.threshold = check_positive("alpha", alpha), check_number("threshold", threshold)
        self.burst = bool(burst) and kernel == "smk"
        if not (0 if self.burst else -1) <= threshold <= 1:
            raise ValueError(f"threshold must lie in {'0' if self.burst else '-1'} ... 1, got {threshold}")
        self._pictures, self._chunks = 0, []
        self._norms = np.zeros(0)
        self._words, self._images = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._vectors = np.zeros((0, 2), np.uint64) if binary else np.zeros((0, WIDTH), np.float32)
        self._starts = np.zeros(len(codebook) + 1, np.int64)
        similarity = 1 - 2 * np.arange(WIDTH + 1) / WIDTH
        self._table = np.where(
            similarity >= threshold, np.sign(similarity) * np.abs(similarity) ** self.alpha, 0.0
        )

    def __len__(self) -> int:
        return self._pictures

    def __repr__(self) -> str:
        star = "*" if self.binary else ""
        return f"ASMKIndex({self.kernel.upper()}{star}, {len(self)} pictures, {len(self.codebook)} words)"

    def entries(self, features: LocalFeatures, multiple: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """What a picture puts into the index: words (e,), ascending, and codes (e, 2) or residuals (e, 128).

        Args:
            features: of the picture.
            multiple: how many words each feature goes to.
        """
        assigned = self.codebook.assign(features.descriptors, multiple)
        words, rows = assigned.ravel(), np.repeat(np.arange(len(features)), multiple)
        order = np.argsort(words, kind="stable")
        words, rows = words[order], rows[order]
        residuals = features.descriptors[rows] - self.codebook.words[words]
        if self.kernel == "asmk" and len(words):
            first = np.flatnonzero(np.r_[True, words[1:] != words[:-1]])
            words, residuals = words[first], np.add.reduceat(residuals, first)
        if self.binary:
            return words, pack_signs(residuals)
        return words, residuals / np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), 1e-12)

    def _add_up(self, words, vectors, starts, images, stored, burst, out) -> None:
        if self.binary:
            _add_binary(words, vectors, starts, images, stored, self._table, burst, out)
        else:
            _add_float(words, vectors, starts, images, stored, self.alpha, float(self.threshold), burst, out)

    def norm(self, words: np.ndarray, vectors: np.ndarray) -> float:
        "Square root of what a picture's entries give against themselves, over all pairs within a word."
        if self.kernel == "asmk":
            return float(np.sqrt(len(words)))
        known, local = np.unique(words, return_inverse=True)
        starts = np.searchsorted(local, np.arange(len(known) + 1))
        out = np.zeros(1)
        self._add_up(local.astype(np.int32), vectors, starts, np.zeros(len(words), np.int32), vectors, False, out)
        return float(np.sqrt(max(out[0], 0.0)))

    def add(self, pictures: LocalFeatures | Iterable[LocalFeatures]) -> ASMKIndex:
        """Add pictures behind those that are there; one without features takes its place and is never found.

        Returns:
            the index itself.
        """
        norms = []
        for features in as_list(pictures, "pictures"):
            words, vectors = self.entries(features)
            norms.append(self.norm(words, vectors))
            self._chunks.append((words, np.full(len(words), self._pictures, np.int32), vectors))
            self._pictures += 1
        self._norms = np.concatenate([self._norms, norms])
        return self

    def _sort(self) -> None:
        "Bring new entries to their words."
        if not self._chunks:
            return
        words, images, vectors = (
            np.concatenate([old, *new])
            for old, new in zip((self._words, self._images, self._vectors), zip(*self._chunks))
        )
        order = np.argsort(words, kind="stable")  # pictures stay in order within a word
        self._words, self._images, self._vectors, self._chunks = words[order], images[order], vectors[order], []
        self._starts = np.searchsorted(self._words, np.arange(len(self.codebook) + 1))

    def search(self, queries: LocalFeatures | Iterable[LocalFeatures], multiple: int = 3) -> Tensor:
        """Similarity of queries to all pictures, ready for `evaluate_revisited`.

        Args:
            queries: features of one picture or of many.
            multiple: how many words each query feature goes to (the gallery's go to one).

        Returns:
            (Q, pictures) float32, 1 at most for `multiple` = 1.

        Raises:
            ValueError: an empty index, a query without features.
        """
        multiple, queries = check_count("multiple", multiple), as_list(queries, "queries")
        if not len(self):
            raise ValueError("the index is empty: add pictures first")
        self._sort()
        out = np.zeros((len(queries), len(self)))
        for q, (row, query) in enumerate(zip(out, queries)):
            if not len(query):
                raise ValueError(f"query {q} has no local features: it is of one colour, or too small")
            words, vectors = self.entries(query, multiple)
            self._add_up(words, vectors, self._starts, self._images, self._vectors, self.burst, row)
            row /= max(self.norm(words, vectors), 1e-12)
        return torch.from_numpy((out / np.maximum(self._norms, 1e-12)).astype(np.float32))

    def save(self, path) -> None:
        "Write the index and its codebook as one safetensors file, whole or not at all."
        from safetensors.numpy import save

        self._sort()
        settings = {k: getattr(self, k) for k in ("kernel", "binary", "alpha", "threshold", "burst")}
        settings |= {"pictures": len(self), "codebook": self.codebook.fingerprint}
        content = {
            "codebook": self.codebook.words, "words": self._words, "images": self._images, "norms": self._norms,
            "vectors": self._vectors.view(np.int64) if self.binary else self._vectors,
        }
        settings["content"] = _digest(content)
        write_atomic(path, save(content, {"format": _FORMAT, "settings": json.dumps(settings)}))

    @classmethod
    def load(cls, path, codebook: Codebook | None = None) -> ASMKIndex:
        """Read an index that `save` wrote.

        Args:
            path: of the file.
            codebook: the one that the caller works with; the file's own when left out.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a damaged file, one that is no index, one that belongs to another codebook.
        """
        from safetensors import SafetensorError, safe_open

        if not Path(path).is_file():
            raise FileNotFoundError(f"no index {path}")
        try:
            with safe_open(path, framework="np") as file:
                meta = file.metadata() or {}
                if meta.get("format") != _FORMAT:
                    raise ValueError("it was not written by ASMKIndex.save")
                settings = json.loads(meta["settings"])
                content = {name: file.get_tensor(name) for name in file.keys()}
            if settings.pop("content", None) not in (None, _digest(content)):  # older files have none
                raise ValueError("its content is not what was saved")
            own = Codebook(content["codebook"])
            pictures, stored = settings.pop("pictures"), settings.pop("codebook")
            index = cls(own, **settings)
            index._fill(content, pictures)
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{path} is damaged or is no index: {error}") from None
        if stored != own.fingerprint:
            raise ValueError(f"{path} is damaged: its codebook is not the one it was saved with")
        if codebook is not None and codebook.fingerprint != own.fingerprint:
            raise ValueError(
                f"{path} belongs to another codebook ({len(own)} words, {own.fingerprint[:8]}) than the one given "
                f"({len(codebook)} words, {codebook.fingerprint[:8]}): words would not mean the same"
            )
        return index

    def _fill(self, content: dict[str, np.ndarray], pictures: int) -> None:
        "Take over what a file holds, after a look at whether its parts fit together."
        words, images, norms = content["words"], content["images"], content["norms"]
        vectors = content["vectors"].view(np.uint64) if self.binary else content["vectors"]
        if not (
            len(words) == len(images) == len(vectors) and norms.shape == (pictures,) and words.ndim == images.ndim == 1
            and vectors.shape[1:] == self._vectors.shape[1:] and words.dtype == images.dtype == np.int32
            and (np.diff(words) >= 0).all() and np.isfinite(norms).all()
            and (not len(words) or (0 <= words[0] and words[-1] < len(self.codebook)
                                    and images.min() >= 0 and images.max() < pictures))
        ):
            raise ValueError("its parts do not fit together")
        self._pictures, self._norms, self._words, self._images, self._vectors = pictures, norms, words, images, vectors
        self._starts = np.searchsorted(words, np.arange(len(self.codebook) + 1))
