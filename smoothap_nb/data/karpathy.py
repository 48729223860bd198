"""COCO and Flickr30k captions in Karpathy's split, miniatures of both, and the region features that VSRN takes."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothap_nb.checks import check_count
from smoothap_nb.data.captions import Vocabulary, random_subset, split_text, word_vocabulary
from smoothap_nb.data.glyphs import Glyphs
from smoothap_nb.data.interface import DatasetError, MissingData
from smoothap_nb.data.lists import find_missing
from smoothap_nb.data.miniatures import glyph_photographs
from smoothap_nb.data.photographs import ImageSet
from smoothap_nb.data.sources import MARKER
from smoothap_nb.files import check_path, data_root

PER_IMAGE = 5  # captions of a picture that the protocols count


@dataclass(frozen=True)
class CaptionSource:
    "What a captioned data set consists of."

    title: str
    json: str  # the file of the split
    images: str  # the folder of the pictures, where the file names none for each
    sizes: dict[str, int]  # pictures of every split
    source: str


SOURCES = {
    "coco": CaptionSource(
        "MS-COCO captions (Lin et al. 2014), Karpathy's split",
        "dataset_coco.json",
        "",
        {"train": 82783, "restval": 30504, "val": 5000, "test": 5000},
        "cocodataset.org (train2014, val2014) and caption_datasets.zip (cs.stanford.edu/people/karpathy/deepimagesent)",
    ),
    "flickr30k": CaptionSource(
        "Flickr30k (Young et al. 2014), Karpathy's split",
        "dataset_flickr30k.json",
        "flickr30k-images",
        {"train": 29000, "val": 1014, "test": 1000},
        "shannon.cs.illinois.edu/DenotationGraph (pictures) and caption_datasets.zip "
        "(cs.stanford.edu/people/karpathy/deepimagesent)",
    ),
}


def caption_source(name: str) -> CaptionSource:
    """A captioned data set by name.

    Raises:
        DatasetError: an unknown name.
    """
    if not isinstance(name, str) or name not in SOURCES:
        raise DatasetError(f"there is no captioned data set {name!r}: {' or '.join(map(repr, SOURCES))}")
    return SOURCES[name]


class CaptionedPhotos:
    """Photographs with sentences.

    Attributes:
        photos: an `ImageSet` with one class per picture: what opens, cuts and augments the pictures.
        captions: C sentences.
        tokens: C lists of words, as the file gives them.
        image_ids: (C,) int64, the row of `photos` that each caption describes; captions of one picture stand together.
        file_ids: what the file calls every picture (COCO's own number, else Karpathy's).
    """

    def __init__(
        self, photos: ImageSet, captions: list[str], tokens: list[list[str]], image_ids: Tensor, file_ids: list[int]
    ):
        if not len(captions) == len(tokens) == len(image_ids) or len(file_ids) != len(photos):
            raise DatasetError(
                f"{len(captions)} captions, {len(tokens)} lists of words, {len(image_ids)} picture rows; "
                f"{len(photos)} pictures, "
                f"{len(file_ids)} ids: they do not belong together"
            )
        self.photos, self.captions, self.tokens, self.image_ids, self.file_ids = (
            photos,
            captions,
            tokens,
            image_ids,
            file_ids,
        )

    def __len__(self) -> int:
        return len(self.photos)

    def captions_of(self, row: int) -> list[str]:
        "The sentences about one picture."
        return [self.captions[i] for i in (self.image_ids == row).nonzero()[:, 0].tolist()]

    def batch(self, rows: Sequence[int], draw: int = 0) -> tuple[Tensor, list[str], Tensor]:
        """Pictures with all their captions.

        Args:
            rows: B pictures.
            draw: 0 for evaluation, 1, 2, ... for training.

        Returns:
            images (B, C, H, W), their captions, and for each caption its row in this batch (as `CrossModalLoss` takes
            it).
        """
        images, texts, owners = self.photos.batch(rows, draw)[0], [], []
        for place, row in enumerate(torch.as_tensor(rows).tolist()):
            mine = self.captions_of(row)
            texts += mine
            owners += [place] * len(mine)
        return images, texts, torch.tensor(owners)


def load_captions(
    name: str,
    root=None,
    split: str = "train",
    *,
    transform: Callable | None = None,
    per_image: int | None = PER_IMAGE,
    with_restval: bool = True,
    check: bool = True,
) -> CaptionedPhotos:
    """COCO or Flickr30k in Karpathy's split.

    Args:
        name: "coco" or "flickr30k".
        root: the folder that holds the split's JSON file and the folders of pictures; None: a folder of that name in
            the cache.
        split: "train", "val" or "test".
        transform: of the pictures, as in `ImageSet`.
        per_image: the first so many captions of each picture (COCO has up to seven; the protocols count five); None:
            all.
        with_restval: COCO's 30,504 further training pictures belong to "train", as all recent work has it.
        check: look whether every picture of the list is there.

    Returns:
        the pictures with their captions.

    Raises:
        MissingData: no folder, no list, pictures that are not there (the first are named).
        DatasetError: an unknown name or split, a list that is damaged or contradicts itself, a picture with too few
            captions.
    """
    info = caption_source(name)
    if split not in ("train", "val", "test"):
        raise DatasetError(f"{info.title} has no split {split!r}: 'train', 'val' or 'test'")
    root = data_root() / name if root is None or root == "none" else check_path("root", root)
    wanted = {split, "restval"} if split == "train" and with_restval else {split}
    entries = [entry for entry in _read_list(root, info) if entry["split"] in wanted]
    if not entries:
        raise DatasetError(f"{root / info.json} lists no picture of the split {split!r}")
    paths = [f"{entry.get('filepath') or info.images}/{entry['filename']}" for entry in entries]
    if check and (missing := find_missing(root, paths, info.json)):
        raise MissingData(
            f"{len(missing)} of {len(paths)} pictures of {info.json} are not in {root}, first {missing[0]}. Get "
            f"{info.title}: {info.source}"
        )
    captions, tokens, owners = [], [], []
    for row, entry in enumerate(entries):
        for sentence in _sentences(entry, root / info.json, per_image):
            captions.append(sentence["raw"].strip())
            tokens.append(sentence.get("tokens") or split_text(sentence["raw"]))
            owners.append(row)
    photos = ImageSet(
        root, paths, torch.arange(len(paths))[:, None], ("picture",), transform=transform, name=name, split=split
    )
    return CaptionedPhotos(
        photos, captions, tokens, torch.tensor(owners), [entry.get("cocoid", entry["imgid"]) for entry in entries]
    )


class PhotoCaptions:
    """Photographs with sentences in the batches that `train_towers` takes, as `GlyphCaptions` gives them.

    Args:
        data: training pictures with their captions.
        vocabulary: of the run; left out, the words of at least `least` captions.
        least: captions that a word needs (VSE++: 4).
    """

    def __init__(self, data: CaptionedPhotos, vocabulary: Vocabulary | None = None, least: int = 4):
        self.data = data
        self.vocabulary = word_vocabulary(data.tokens, least) if vocabulary is None else vocabulary

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, pictures: int = 128, per_image: int = 1, step: int = 0, seed: int = 0, subsets: float = 0.0):
        """A training batch: different pictures, some captions of each; else as `GlyphCaptions.batch`.

        Raises:
            ValueError: more pictures than there are, or more captions than a picture has.
        """
        if check_count("pictures", pictures) > len(self.data):
            raise ValueError(f"a batch of {pictures} pictures was asked for, there are {len(self.data)}")
        rng = random.Random(f"photos {seed} {step}")
        rows, texts = rng.sample(range(len(self.data)), pictures), []
        for row in rows:
            mine = self.data.captions_of(row)
            if len(mine) < check_count("per_image", per_image):
                raise ValueError(f"{per_image} captions of each picture were asked for, picture {row} has {len(mine)}")
            for caption in rng.sample(mine, per_image):
                words = self.vocabulary.split(caption)[0]
                short = words and rng.random() < subsets
                texts.append(" ".join(random_subset(words, rng) if short else words) or caption)
        owners = torch.arange(pictures).repeat_interleave(per_image)
        return self.data.photos.batch(rows, 1 + step)[0], texts, torch.arange(pictures)[:, None] == owners


def _read_list(root: Path, info: CaptionSource) -> list[dict]:
    "Entries of the split's file, checked for what every entry needs."
    path = root / info.json
    if not root.is_dir():
        raise MissingData(f"there is no folder {root} for {info.title}: pass root=... Get it: {info.source}")
    if not path.is_file():
        raise MissingData(f"{path} is missing: it holds the captions and the split. Get it: {info.source}")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["images"]
        for entry in entries:
            entry["filename"], entry["split"], entry["imgid"], entry["sentences"]
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is not Karpathy's list ({type(error).__name__}: {error}): fetch it again") from None
    twice = [imgid for imgid, count in Counter(entry["imgid"] for entry in entries).items() if count > 1]
    if twice:
        raise DatasetError(f"{path} gives the id {twice[0]} to {len(twice) + 1} pictures or more: fetch it again")
    return entries


def _sentences(entry: dict, path: Path, per_image: int | None) -> list[dict]:
    "The captions of an entry that count; those that belong to another picture or say nothing are refused."
    found = entry["sentences"]
    for sentence in found:
        if sentence.get("imgid", entry["imgid"]) != entry["imgid"]:
            raise DatasetError(
                f"{path}: the caption {sentence.get('raw', '')[:40]!r} of picture {entry['imgid']} names "
                f"picture {sentence['imgid']}: "
                "ids that do not match. Fetch the list again"
            )
        if not str(sentence.get("raw", "")).strip():
            raise DatasetError(f"{path}: picture {entry['imgid']} has an empty caption")
    if per_image is not None and len(found) < per_image:
        raise DatasetError(
            f"{path}: picture {entry['imgid']} has {len(found)} captions, {per_image} are needed: pass "
            "per_image=None to take what is there"
        )
    return found if per_image is None else found[:per_image]


def check_captions(name: str, root=None) -> list[str]:
    """Hold a copy against the published counts.

    Returns:
        what differs, in sentences; an empty list where nothing does. A miniature differs in every count and says so
        first.

    Raises:
        DatasetError, MissingData: as `load_captions`.
    """
    info = caption_source(name)
    root = data_root() / name if root is None or root == "none" else check_path("root", root)
    entries = _read_list(root, info)
    found = Counter(entry["split"] for entry in entries)
    out = [f"{root} is a miniature made by this package"] if (root / MARKER).exists() else []
    out += [
        f"split {split}: {found.get(split, 0):,} pictures, published {count:,}"
        for split, count in info.sizes.items()
        if found.get(split, 0) != count
    ]
    few = [entry["imgid"] for entry in entries if len(entry["sentences"]) < PER_IMAGE]
    if few:
        out.append(f"{len(few)} pictures have fewer than {PER_IMAGE} captions, first picture {few[0]}")
    missing = find_missing(
        root, [f"{entry.get('filepath') or info.images}/{entry['filename']}" for entry in entries], info.json
    )
    return out + ([f"{len(missing)} of {len(entries)} pictures are missing, first {missing[0]}"] if missing else [])


def region_features(
    folder, split: str = "test", *, regions: int = 36, width: int = 2048
) -> tuple[np.ndarray, list[str], Tensor]:
    """Region features that VSRN takes, as SCAN's authors gave them out: `SPLIT_ims.npy` beside `SPLIT_caps.txt`.

    Args:
        folder: `f30k_precomp` or `coco_precomp`.
        split: "train", "dev" or "test" (COCO also "testall").
        regions, width: of each picture.

    Returns:
        features (I, regions, width), read from the disk only where touched; the captions; for each its row of the
        features.

    Raises:
        MissingData: a file that is not there.
        DatasetError: arrays of another shape, or captions that are not five to a picture.
    """
    array, text = Path(folder).expanduser() / f"{split}_ims.npy", Path(folder).expanduser() / f"{split}_caps.txt"
    for path in (array, text):
        if not path.is_file():
            raise MissingData(
                f"not run: {path} is missing. VSRN needs region features of a Faster R-CNN trained on Visual "
                "Genome, which this package "
                "does not compute; get data.zip of SCAN (github.com/kuanghuei/SCAN) and name the folder that "
                "holds the file"
            )
    features = np.load(array, mmap_mode="r", allow_pickle=False)
    captions = [line.strip() for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    if features.ndim != 3 or features.shape[1:] != (regions, width):
        raise DatasetError(f"{array} holds {features.shape}, expected (pictures, {regions}, {width})")
    if len(features) == len(captions):  # dev and test repeat every picture for each of its captions
        features = features[::PER_IMAGE]
    if len(captions) != PER_IMAGE * len(features):
        raise DatasetError(
            f"{text} holds {len(captions)} captions for {len(features)} pictures, expected {PER_IMAGE} for each"
        )
    return features, captions, torch.arange(len(features)).repeat_interleave(PER_IMAGE)


def caption_miniature(name: str, folder, *, train: int = 12, held_out: int = 5, seed: int = 0) -> Path:
    """A few small photographs of glyphs with five captions each, in the layout of the real data set.

    Args:
        name: "coco" or "flickr30k".
        folder: a new or an empty one.
        train: training pictures (COCO: half of them in restval), at least 2.
        held_out: pictures in val, and in test; at least 1.
        seed: of tint, light and shape.

    Returns:
        the folder, ready as `root`; a file `MINIATURE.txt` marks it.

    Raises:
        DatasetError: an unknown name, a folder that holds something.
        ValueError: sizes too small.
    """
    from smoothap_nb.data.captions import STYLES, name_words, reword

    info, folder = caption_source(name), Path(folder).expanduser()
    if train < 2 or held_out < 1:
        raise ValueError(
            f"a miniature needs two training pictures and one to hold out, got train={train}, held_out={held_out}"
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise DatasetError(
            f"{folder} is {'a file' if folder.is_file() else 'not empty'}: name a new or empty folder for the miniature"
        )
    data = Glyphs("all", size=32, strength=0.5)
    total = train + 2 * held_out
    rows = torch.linspace(0, len(data) - 1, total).long().tolist()
    splits = ["train"] * train + ["val"] * held_out + ["test"] * held_out
    entries = []
    for number, (row, split, photo) in enumerate(zip(rows, splits, glyph_photographs(rows, seed))):
        if name == "coco" and split == "train" and number % 2:
            split = "restval"
        place = ("train2014" if split == "train" else "val2014") if name == "coco" else info.images
        file = f"COCO_{place}_{100 + number:012d}.jpg" if name == "coco" else f"{1000 + number}.jpg"
        (folder / place).mkdir(parents=True, exist_ok=True)
        photo.save(folder / place / file, format="JPEG", quality=90)
        texts = [reword(name_words(data.captions[row]), style) for style in STYLES] + [["one", "more", "caption"]] * (
            number % 3 == 0
        )
        entry = {
            "filename": file,
            "imgid": number,
            "split": split,
            "sentids": [10 * number + k for k in range(len(texts))],
            "sentences": [
                {"tokens": words, "raw": " ".join(words).capitalize() + ".", "imgid": number, "sentid": 10 * number + k}
                for k, words in enumerate(texts)
            ],
        }
        entries.append(entry | ({"filepath": place, "cocoid": 100 + number} if name == "coco" else {}))
    (folder / info.json).write_text(json.dumps({"images": entries, "dataset": name}) + "\n", encoding="utf-8")
    (folder / MARKER).write_text(
        f"A miniature of {name}, drawn from typefaces by smoothap_nb (seed {seed}): for tests and lessons, not "
        "for results.\n"
    )
    return folder
