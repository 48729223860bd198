"""Two towers on one sphere: a network for pictures, a network for words, and the vocabulary that belongs to them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from smoothap_nb.data.captions import Vocabulary
from smoothap_nb.checks import check_count
from smoothap_nb.files import check_path, replacing, write_atomic

FILE = "captions.json"  # says that a folder holds a run of two towers


@dataclass
class TowerConfig:
    "Both towers."

    dim: int = 128  # length of the embeddings
    width: int = 32  # channels of the small picture tower after its first layer
    size: int = 32  # side of the small tower's pictures, pixels
    backbone: str = (
        "small"  # "small" (glyphs), or a backbone of `EmbeddingModel`: a torchvision ResNet, "se_resnet50", "timm/NAME"
    )
    weights: str = "none"  # of such a backbone: "none", "imagenet" or a path
    frozen: bool = False  # of such a backbone: only the linear layer on top is trained, as in VSE++
    word_dim: int = 64  # length of a word's own vector
    hidden: int = 128  # of the GRU
    text: str = "gru"  # "gru", or the folder of a Hugging Face text encoder (pip install smoothap_nb[text])


class _Block(nn.Module):
    "Two 3 x 3 convolutions beside a shortcut."

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Identity() if before == after and stride == 1 else short

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.path(x) + self.short(x))


class SmallPictureTower(nn.Module):
    """A residual network of three blocks for small grey pictures; a linear layer that sees where things are, not only
    whether, closes it.

    Args:
        dim: length of the embeddings.
        width: channels after the first layer; doubled twice.
        size: side of the pictures, pixels, a multiple of 8.
    """

    def __init__(self, dim: int = 128, width: int = 32, size: int = 32):
        super().__init__()
        if size % 8:
            raise ValueError(f"the small picture tower takes sides that are multiples of 8, got {size}")
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 5, 1, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.blocks = nn.Sequential(
            _Block(width, width, 1), _Block(width, 2 * width, 2), _Block(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width * (size // 8) ** 2, dim)

    def forward(self, images: Tensor) -> Tensor:
        "(N, 1, size, size) in [0, 1] to (N, dim) float32, rows of length 1."
        return F.normalize(self.head(self.blocks(self.stem(images)).flatten(1)).float(), dim=1)


class TextTower(nn.Module):
    """Word vectors learnt from scratch, one GRU, its last state, a linear layer (as in VSE++).

    Args:
        words: of the vocabulary; number 0 pads.
        dim: length of the embeddings.
        word_dim: length of a word's vector.
        hidden: of the GRU.
    """

    def __init__(self, words: int, dim: int = 128, word_dim: int = 64, hidden: int = 128):
        super().__init__()
        self.words = nn.Embedding(words + 1, word_dim, padding_idx=0)
        self.gru = nn.GRU(word_dim, hidden, batch_first=True)
        self.head = nn.Linear(hidden, dim)

    def forward(self, numbers: Tensor, lengths: Tensor) -> Tensor:
        """Embeddings of captions.

        Args:
            numbers: (C, W) int64, padded with 0 at the end.
            lengths: (C,) int64, from 1 to W.

        Returns:
            (C, dim) float32, rows of length 1.
        """
        states = self.gru(self.words(numbers))[0]
        last = states[
            torch.arange(len(numbers), device=numbers.device), lengths - 1
        ]  # padding comes later and changes nothing
        return F.normalize(self.head(last).float(), dim=1)


class PretrainedTextTower(nn.Module):
    """A Hugging Face text encoder from a folder on this disk, mean over its tokens, a linear layer.

    Args:
        folder: with the encoder's config, weights (safetensors) and tokenizer; nothing is downloaded, no code out of
            it is run.
        dim: length of the embeddings.

    Raises:
        ImportError: transformers is not installed.
        FileNotFoundError: no such folder.
    """

    def __init__(self, folder: str | Path, dim: int = 128):
        super().__init__()
        try:
            import transformers
        except ImportError as error:
            raise ImportError(
                'a pretrained text encoder needs transformers: pip install smoothap_nb[text]; text = "gru" '
                'needs nothing'
            ) from error
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"there is no folder {folder}: download the text encoder and name its folder")
        options = {"local_files_only": True, "trust_remote_code": False}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **options)
        self.encoder = transformers.AutoModel.from_pretrained(str(folder), use_safetensors=True, **options)
        self.head = nn.Linear(self.encoder.config.hidden_size, dim)

    def forward(self, captions: Sequence[str]) -> Tensor:
        "C texts to (C, dim) float32, rows of length 1."
        tokens = self.tokenizer(list(captions), padding=True, truncation=True, return_tensors="pt").to(
            self.head.weight.device
        )
        states, seen = self.encoder(**tokens).last_hidden_state, tokens["attention_mask"][..., None]
        return F.normalize(self.head((states * seen).sum(1) / seen.sum(1)).float(), dim=1)


class TwoTowers(nn.Module):
    """Pictures and captions as points on one sphere.

    Args:
        vocabulary: the words that the text tower knows.
        config: see `TowerConfig`.

    Raises:
        ValueError: sizes that are no whole numbers from 1 on.
        ConfigError, ImportError: a backbone or text encoder that cannot be had.
    """

    def __init__(self, vocabulary: Vocabulary, config: TowerConfig | None = None):
        super().__init__()
        self.vocabulary, self.config = vocabulary, config or TowerConfig()
        c = self.config
        for name in ("dim", "width", "size", "word_dim", "hidden"):
            check_count(name, getattr(c, name))
        if c.backbone == "small":
            self.picture = SmallPictureTower(c.dim, c.width, c.size)
        else:
            self.picture = _backbone_tower(c)
        self.text = (
            TextTower(len(vocabulary), c.dim, c.word_dim, c.hidden)
            if c.text == "gru"
            else PretrainedTextTower(c.text, c.dim)
        )

    def embed_images(self, images: Tensor) -> Tensor:
        "(N, C, H, W) in [0, 1] to (N, dim), rows of length 1."
        return self.picture(images)

    def embed_texts(self, captions: Sequence[str]) -> Tensor:
        """C texts to (C, dim), rows of length 1; words outside the vocabulary are left out.

        Raises:
            ValueError: no text, an empty one, or one without a known word.
        """
        if isinstance(self.text, PretrainedTextTower):
            return self.text(captions)
        numbers, lengths = (t.to(self.text.head.weight.device) for t in self.vocabulary.encode(captions))
        return self.text(numbers, lengths)


def _backbone_tower(config: TowerConfig) -> nn.Module:
    "Lesson 13's embedding model; frozen: only the linear layer on top learns, batch norm keeps its statistics."
    from smoothap_nb.train.config import ModelConfig
    from smoothap_nb.train.models import EmbeddingModel

    model = EmbeddingModel(
        ModelConfig(
            backbone=config.backbone,
            dim=config.dim,
            weights=config.weights,
            batch_norm="frozen" if config.frozen else "live",
        )
    )
    if config.frozen:
        for parameter in model.backbone.parameters():
            parameter.requires_grad_(False)
    return model


class TowersError(RuntimeError):
    "A run of two towers that cannot be used; the message says why and what to do."


def save_towers(model: TwoTowers, folder: str | Path, facts: dict | None = None) -> Path:
    """Write both towers, their vocabulary and settings.

    Args:
        model: trained.
        folder: made if absent; files of an earlier run in it are replaced.
        facts: what else belongs to the run, as JSON: settings of the training, numbers, where and when.

    Returns:
        the folder.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    with replacing(folder / "model.safetensors") as unfinished:
        save_file(weights, unfinished, metadata={"vocabulary": model.vocabulary.key})
    text = {
        "towers": dataclasses.asdict(model.config),
        "vocabulary": {"key": model.vocabulary.key, "words": model.vocabulary.words},
        **(facts or {}),
    }
    write_atomic(folder / FILE, json.dumps(text, indent=1, ensure_ascii=False) + "\n")
    return folder


def load_towers(folder: str | Path, device: torch.device | str = "cpu") -> TwoTowers:
    """Both towers of a run, ready to embed.

    Args:
        folder: what `smoothap captions` wrote.
        device: where they go.

    Returns:
        the towers, in evaluation mode, with their vocabulary.

    Raises:
        TowersError: no run there, damaged files, weights of other towers, or a vocabulary that is not the one they
            were trained with.
    """
    from safetensors import SafetensorError, safe_open

    folder = check_path("folder", folder)
    if not (folder / FILE).is_file():
        raise TowersError(
            f"{folder} holds no pictures-and-words run: name a folder that `smoothap captions` wrote (it "
            f"contains {FILE})"
        )
    try:
        facts = json.loads((folder / FILE).read_text(encoding="utf-8"))
        vocabulary = Vocabulary(tuple(facts["vocabulary"]["words"]))
        config = TowerConfig(**facts["towers"])
        with safe_open(folder / "model.safetensors", "pt") as file:
            trained_with = (file.metadata() or {}).get("vocabulary")
            state = {key: file.get_tensor(key) for key in file.keys()}
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise TowersError(
            f"{folder} is damaged or incomplete ({type(error).__name__}: {error}): train it again"
        ) from None
    if trained_with != vocabulary.key:
        raise TowersError(
            f"the words in {folder / FILE} are not those that the weights were trained with (vocabulary "
            f"{vocabulary.key}, "
            f"trained with {trained_with}): every word would mean another one. Put back the file of the same run"
        )
    model = TwoTowers(vocabulary, config)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise TowersError(
            f"the weights in {folder} do not fit its settings ({str(error).splitlines()[1].strip()[:120]})"
        ) from None
    return model.to(device).eval()


@dataclass(frozen=True)
class GlyphWords:
    """What search by words over held-out glyphs needs, without the picture tower: a file of the package.

    Attributes:
        vocabulary: of the run.
        tower: the text tower, in evaluation mode.
        gallery: (G, D) float32 embeddings of the pictures, rows of length 1.
        images: (G, H, H) uint8, one picture of each of G characters that were never seen in training.
        names: their G Unicode names.
        made: by which run: contender, seed, commit, date.
    """

    vocabulary: Vocabulary
    tower: TextTower
    gallery: Tensor
    images: Tensor
    names: list[str]
    made: dict

    @torch.no_grad()
    def embed_texts(self, captions: Sequence[str]) -> Tensor:
        "C texts to (C, D), as `TwoTowers.embed_texts`."
        return self.tower(*self.vocabulary.encode(captions))


GLYPH_WORDS = Path(__file__).parent.parent / "data" / "glyph_words.safetensors"


def load_glyph_words() -> GlyphWords:
    """A trained text tower and the embeddings of held-out glyphs, from a file in the package; the pictures come from
    `Glyphs`.

    Raises:
        FileNotFoundError: the package was installed without its data.
    """
    from safetensors import safe_open

    from smoothap_nb.data.glyphs import Glyphs

    if not GLYPH_WORDS.exists():
        raise FileNotFoundError(
            f"{GLYPH_WORDS} is missing: reinstall smoothap_nb, or make the file with python tools/glyph_words.py RUN"
        )
    with safe_open(GLYPH_WORDS, "pt") as file:
        held, facts = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()
    config, vocabulary = TowerConfig(**json.loads(facts["towers"])), Vocabulary(tuple(json.loads(facts["vocabulary"])))
    tower = TextTower(len(vocabulary), config.dim, config.word_dim, config.hidden).eval()
    tower.load_state_dict(
        {key.removeprefix("text."): value.float() for key, value in held.items() if key.startswith("text.")}
    )
    glyphs = Glyphs("test", size=config.size, strength=0.0)
    place = {identity: row for row, identity in enumerate(glyphs.identity.tolist())}
    drawn = [
        i for i, identity in enumerate(held["identity"].tolist()) if identity in place
    ]  # all of them, unless matplotlib's typefaces changed
    images, names = glyphs.images[[place[int(held["identity"][i])] for i in drawn]], json.loads(facts["names"])
    return GlyphWords(
        vocabulary,
        tower,
        F.normalize(held["gallery"].float(), dim=1)[drawn],
        images,
        [names[i] for i in drawn],
        json.loads(facts["made"]),
    )
