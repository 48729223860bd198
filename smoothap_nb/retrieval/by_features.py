"""Search a folder by local features: ASMK* over a codebook of the folder's own, then spatial verification. Nothing is
trained, no network is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from smoothap_nb.checks import check_count
from smoothap_nb.images import PhotoError
from smoothap_nb.retrieval.asmk import ASMKIndex
from smoothap_nb.retrieval.features import Codebook, features_of, local_features
from smoothap_nb.retrieval.folders import is_sheet, list_images, query_picture, to_stderr
from smoothap_nb.retrieval.local import rerank, verify_top

__all__ = ["LocalHit", "search_local"]

_SIDE = 640  # pixels: larger pictures are reduced, so that 700 features cover them


class LocalHit(NamedTuple):
    "One answer of `search_local`."

    path: Path
    inliers: int  # points that agree on one arrangement; 0 where it was not verified
    score: float  # ASMK*

    @property
    def caption(self) -> str:
        "What a contact sheet says of it: answers are ordered by points first."
        return f"{self.inliers} points" if self.inliers else f"{self.score:.3f}"


def search_local(image, folder, k: int = 10, *, limit: int = 700, top: int = 100, least: int = 5, cache=None,
                 progress: bool = True, notify: Callable[[str], None] = to_stderr) -> list[LocalHit]:
    """Pictures of a folder that show what a picture shows.

    Args:
        image: the query, a path or a PIL image.
        folder: where to look, with its subfolders.
        k: answers at most.
        limit: features of a picture at most.
        top: answers that are verified.
        least: points that must agree for an answer to go first.
        cache: a folder for the features, so that the next search is quick.
        progress: show a bar.
        notify: receives a line for each picture that is skipped.

    Returns:
        the answers, best first; the query itself, where it lies in the folder, among them.

    Raises:
        ImportError: OpenCV or faiss is missing; the message names the extra.
        FileNotFoundError, NotADirectoryError, PhotoError: no such query, no such folder.
        ValueError: a folder without pictures that have features, a query without features.
    """
    check_count("k", k)
    query = local_features(_reduced(query_picture(image)), limit)
    if not len(query):
        raise ValueError(f"{image} has no local features: it is of one colour, or too small")
    paths, features = [], []
    shown = list_images(folder)
    if progress:
        from tqdm.auto import tqdm

        shown = tqdm(shown, desc="local features", unit="image")
    for path in shown:
        if is_sheet(path):
            continue
        try:
            features += features_of([path], limit, cache, side=_SIDE)
            paths.append(path)
        except (PhotoError, OSError) as error:
            notify(f"skipped: {error}")
    descriptors = sum(map(len, features))
    if descriptors < 2:
        raise ValueError(f"no picture in {folder} has local features")
    book = Codebook.learn(features, max(1, min(4096, descriptors // 20)))
    scores = ASMKIndex(book).add(features).search(query, min(3, len(book)))
    found = verify_top([book.describe(query)], [book.describe(f) for f in features], scores, min(top, len(paths)))
    order = rerank(scores, found, least)[0].argsort(descending=True)[:k].tolist()
    return [
        LocalHit(paths[i], found[0][i].inliers if i in found[0] else 0, float(scores[0, i])) for i in order
    ]


def _reduced(picture):
    picture = picture.copy()
    picture.thumbnail((_SIDE, _SIDE))
    return picture
