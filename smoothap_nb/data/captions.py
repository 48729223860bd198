"""Pictures with sentences: glyphs captioned by their Unicode names, and which caption is relevant to which picture."""

from __future__ import annotations

import hashlib
import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothap_nb.data.glyphs import Glyphs
from smoothap_nb.checks import check_choice, check_count

STYLES = ("name", "filler", "accent first", "synonyms", "script dropped")
FILLERS = frozenset("this is the picture shows here you see find it has an with and of for to on in from".split())
_FRAMES = ("this is the {}", "the picture shows the {}", "here you see the {}", "here you find the {}", "it has the {}")
SYNONYMS = {  # a word that no Unicode name of the glyphs holds -> the word it stands for
    "uppercase": "capital",
    "lowercase": "small",
    "twofold": "double",
    "filled": "black",
    "hollow": "white",
    "underneath": "below",
    "overhead": "above",
    "encircled": "circled",
    "flipped": "turned",
    "trema": "diaeresis",
    "hacek": "caron",
    "struckthrough": "stroke",
}
_REPLACED = {meant: word for word, meant in SYNONYMS.items()}


def split_text(text: str) -> list[str]:
    "The words of a text in lower case, split at everything that is neither a letter nor a digit of any script."
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFC", text).lower())


def name_words(name: str) -> list[str]:
    "Words of a Unicode name, in order: lower case, hyphens split, the dots of a Braille pattern as single digits."
    words = split_text(name)
    if words[:1] == ["braille"]:
        words = [part for word in words for part in (word if word.isdigit() else [word])]
    return words


def content_words(words: Iterable[str]) -> frozenset[str]:
    "What a text is about: its words without fillers, synonyms replaced by what they stand for."
    return frozenset(SYNONYMS.get(word, word) for word in words) - FILLERS


@dataclass(frozen=True)
class Vocabulary:
    """The words a text tower knows; row 0 of its table stands for "no word", which pads short captions.

    Attributes:
        words: in order; word i has number i + 1.
    """

    words: tuple[str, ...]

    def __post_init__(self):
        if len(set(self.words)) != len(self.words):
            raise ValueError(
                "a vocabulary holds every word once; twice in this one: "
                f"{sorted(w for w, n in Counter(self.words).items() if n > 1)[:5]}"
            )
        object.__setattr__(self, "numbers", {word: i for i, word in enumerate(self.words, start=1)})

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.numbers

    @property
    def key(self) -> str:
        "Sixteen hexadecimal digits that change with any word or its place."
        return hashlib.sha256(json.dumps(self.words).encode()).hexdigest()[:16]

    def split(self, text: str) -> tuple[list[str], list[str]]:
        "Words of a text that are known, and those that are not, each in order."
        words = split_text(text)
        return [word for word in words if word in self], [word for word in words if word not in self]

    def encode(self, captions: Sequence[Sequence[str] | str], longest: int = 32) -> tuple[Tensor, Tensor]:
        """Captions as rows of numbers.

        Args:
            captions: C texts, or C lists of words; unknown words are left out.
            longest: words kept of each, from the start.

        Returns:
            numbers (C, W) int64, padded with 0 at the end; lengths (C,) int64, each from 1 to `longest`.

        Raises:
            TypeError: one string instead of a list of them.
            ValueError: no caption at all, or one without any known word, which is named.
        """
        if isinstance(captions, str):
            raise TypeError(f"captions must be a list of texts, got one text: pass [{captions!r}]")
        if len(captions) == 0:
            raise ValueError("there is no caption: pass at least one text")
        check_count("longest", longest)
        numbers = self.numbers
        rows = [
            [numbers[w] for w in (split_text(c) if isinstance(c, str) else c) if w in numbers][:longest]
            for c in captions
        ]
        for caption, row in zip(captions, rows):
            if not row:
                text = caption if isinstance(caption, str) else " ".join(caption)
                raise ValueError(
                    f"caption {text!r} is empty"
                    if not text.strip()
                    else f"no word of the caption {text!r} is in the vocabulary of {len(self)} words: use words "
                         "such as "
                    f"{', '.join(self.words[:5])}"
                )
        lengths = torch.tensor([len(row) for row in rows])
        out = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        for i, row in enumerate(rows):
            out[i, : len(row)] = torch.tensor(row)
        return out, lengths


def glyph_vocabulary(names: Iterable[str], least: int = 10) -> Vocabulary:
    """The words of a text tower for glyphs: those of at least `least` different names, then fillers and the synonyms
    of what is there.

    Args:
        names: Unicode names of the training characters.
        least: names that a word needs, so that it is learnt from more than one character.

    Raises:
        ValueError: no word occurs that often.
    """
    counts = Counter(word for name in set(names) for word in set(name_words(name)))
    common = sorted(
        word for word, count in counts.items() if count >= check_count("least", least) and word not in FILLERS
    )
    if not common:
        raise ValueError(f"no word occurs in {least} names: pass more names, or a smaller least")
    frames = {word for frame in _FRAMES for word in split_text(frame.replace("{}", ""))}
    return Vocabulary(
        tuple(common + sorted(FILLERS | frames) + sorted(word for word, meant in SYNONYMS.items() if meant in common))
    )


def word_vocabulary(captions: Iterable[Sequence[str]], least: int = 4) -> Vocabulary:
    """The words of at least `least` captions, in the order of the alphabet (VSE++ takes 4).

    Args:
        captions: lists of words.
        least: captions that a word needs.

    Raises:
        ValueError: no word occurs that often.
    """
    counts = Counter(word for words in captions for word in {part for word in words for part in split_text(word)})
    common = sorted(word for word, count in counts.items() if count >= check_count("least", least))
    if not common:
        raise ValueError(f"no word occurs in {least} captions: pass more captions, or a smaller least")
    return Vocabulary(tuple(common))


def reword(words: Sequence[str], style: str) -> list[str]:
    """One caption out of the words of a name; the same words give the same caption everywhere.

    Args:
        words: of a Unicode name, in order, from `name_words`.
        style: "name" (as it is), "filler" (inside a sentence chosen by the words), "accent first" (what follows WITH
            comes first, or the last word where no WITH does), "synonyms" (as in `SYNONYMS`), or "script dropped" (the
            first word left out, if one that says something stays).

    Raises:
        ValueError: an unknown style.
    """
    words = list(words)
    if check_choice("style", style, STYLES) == "filler":
        place = hashlib.sha256(" ".join(words).encode()).digest()[0] % len(_FRAMES)
        return _FRAMES[place].format(" ".join(words)).split()
    if style == "accent first":
        at = words.index("with") if "with" in words[1:-1] else len(words) - 1
        return [*words[at:][words[at] == "with" :], *(["on"] if len(words) > 1 else []), *words[:at]]
    if style == "synonyms":
        return [_REPLACED.get(word, word) for word in words]
    if style == "script dropped" and content_words(words[1:]):
        return words[1:]
    return words


def random_subset(words: Sequence[str], rng: random.Random, most: int = 4) -> list[str]:
    "A caption of one to `most` of the words that say something, in their order."
    kept = [word for word in words if word not in FILLERS] or list(words)
    size = rng.randint(1, min(most, len(kept)))
    return [kept[i] for i in sorted(rng.sample(range(len(kept)), size))]


def word_table(sets: Sequence[Iterable[str]], vocabulary: Vocabulary) -> Tensor:
    "(N, V) float32, 1 where a set holds the word; words outside the vocabulary have no column."
    table = torch.zeros(len(sets), len(vocabulary) + 1)
    for i, words in enumerate(sets):
        table[i, [vocabulary.numbers[word] for word in words if word in vocabulary]] = 1
    return table[:, 1:]


def caption_relevance(image_words: Sequence[Iterable[str]], caption_words: Sequence[Iterable[str]]) -> Tensor:
    """A caption is relevant to every picture whose name holds all its words; so captions of equal text have equal
    relevance.

    Args:
        image_words: for each of I pictures the words of its name.
        caption_words: for each of C captions the words it is about, as `content_words` gives them.

    Returns:
        (I, C) bool. A column without any True is a caption without a relevant picture.

    Raises:
        ValueError: no picture, no caption, or a caption without words, which would be relevant to everything; the
            first is numbered.
    """
    images, captions = [frozenset(words) for words in image_words], [frozenset(words) for words in caption_words]
    if not images or not captions:
        raise ValueError(f"relevance needs pictures and captions, got {len(images)} and {len(captions)}")
    if not all(captions):
        raise ValueError(
            f"caption {captions.index(frozenset())} says nothing: without a word it would be relevant to every picture"
        )
    every = Vocabulary(tuple(sorted(frozenset().union(*images, *captions))))
    asked = word_table(captions, every)
    return (word_table(images, every) @ asked.T) == asked.sum(1)


class GlyphCaptions:
    """Glyphs with five captions each, reworded from their Unicode names; characters of the splits are disjoint, words
    are shared.

    Args:
        split: "train", "val" or "test", as in `Glyphs`.
        vocabulary: of the run that captions are for; left out, that of the training characters with `least` names a
            word.
        least: names that a word needs.
        per_character: pictures of each character that are kept, chosen by a hash of what they are; 0 keeps all.
        size, strength, seed, root: of the pictures, as in `Glyphs`.

    Attributes:
        glyphs: the pictures, a `Glyphs`.
        vocabulary: a `Vocabulary`.
        names: of the C characters, in the order of their numbers.
        character: (N,) int64, the character of every picture, a row of `names`.
        words: for each character the set of the words of its full name, fillers left out: what captions are held
            against.
        left_out: names of characters that hold no word of the vocabulary.

    Raises:
        TypeError, ValueError: as `Glyphs`; a vocabulary that knows no word of these names.
    """

    def __init__(
        self,
        split: str = "train",
        vocabulary: Vocabulary | None = None,
        least: int = 10,
        per_character: int = 0,
        *,
        size: int = 32,
        strength: float = 1.0,
        seed: int = 0,
        root=None,
    ):
        check_choice("split", split, ("train", "val", "test"))
        glyphs = Glyphs(split, size=size, strength=strength, seed=seed, root=root)
        if vocabulary is None:
            vocabulary = glyph_vocabulary(
                set((glyphs if split == "train" else Glyphs("train", size=size, root=root)).captions), least
            )
        self.split, self.vocabulary = split, vocabulary
        told = {name: self._told(name) for name in dict.fromkeys(glyphs.captions)}
        self.left_out = [name for name, words in told.items() if not content_words(words)]
        self.names = [name for name, words in told.items() if content_words(words)]
        if not self.names:
            raise ValueError(
                f"the vocabulary of {len(vocabulary)} words knows no word of the {len(told)} names: it belongs "
                "to other captions"
            )
        self._words = [told[name] for name in self.names]
        self.words = [content_words(name_words(name)) for name in self.names]
        row = {name: i for i, name in enumerate(self.names)}
        keep = [i for i, name in enumerate(glyphs.captions) if name in row]
        if per_character:
            keep = _first_by_hash(keep, glyphs, check_count("per_character", per_character))
        self.glyphs = glyphs.subset(keep)
        self.character = torch.tensor([row[name] for name in self.glyphs.captions])
        order = torch.argsort(self.character, stable=True)
        self._places = order.split(torch.bincount(self.character, minlength=len(row)).tolist())

    def _told(self, name: str) -> list[str]:
        "The words of a name that captions may use: fillers, and what the vocabulary knows."
        words = [word for word in name_words(name) if word in FILLERS or word in self.vocabulary]
        while words and words[0] in FILLERS:
            words.pop(0)
        while words and words[-1] in FILLERS:
            words.pop()
        return words

    def __len__(self) -> int:
        return len(self.glyphs)

    def __repr__(self) -> str:
        return (
            f"GlyphCaptions({self.split!r}): {len(self):,} pictures of {len(self.names):,} characters, five "
            "captions each, "
            f"{len(self.vocabulary)} words known"
        )

    def captions(self, character: int) -> list[str]:
        "The five captions of a character, one for each of `STYLES`."
        return [" ".join(reword(self._words[character], style)) for style in STYLES]

    def test_captions(self) -> tuple[list[str], Tensor]:
        "All captions (five for each character) and the character of each, (5 C,) int64."
        return [text for c in range(len(self.names)) for text in self.captions(c)], torch.arange(
            len(self.names)
        ).repeat_interleave(len(STYLES))

    def relevance(self, captions: Sequence[str], characters: Sequence[int] | Tensor | None = None) -> Tensor:
        """Which pictures captions are about, by containment.

        Args:
            captions: C texts.
            characters: rows of `names` that stand for the pictures; all pictures when left out.

        Returns:
            (I, C) bool.

        Raises:
            ValueError: a caption without a word that says something.
        """
        rows = self.character if characters is None else torch.as_tensor(characters)
        unique, place = rows.unique(return_inverse=True)
        return caption_relevance(
            [self.words[c] for c in unique.tolist()], [content_words(split_text(text)) for text in captions]
        )[place]

    def batch(self, characters: int = 64, per_image: int = 5, step: int = 0, seed: int = 0, subsets: float = 0.5):
        """A training batch: one picture of each of several characters, several captions of each picture.

        Args:
            characters: different characters, hence pictures, in the batch.
            per_image: captions of each picture.
            step, seed: decide the batch, together with the settings; the same ones give the same batch.
            subsets: share of captions that are random subsets of the words instead of one of the five.

        Returns:
            images (B, 1, H, H) float32 in [0, 1], B * per_image captions (those of one picture together), relevance
            (B, B * per_image) bool.

        Raises:
            ValueError: more characters than there are, or counts and shares out of range.
        """
        if check_count("characters", characters) > len(self.names):
            raise ValueError(f"a batch of {characters} characters was asked for, there are {len(self.names)}")
        if not 0 <= subsets <= 1:
            raise ValueError(f"subsets must be a share from 0 to 1, got {subsets}")
        rng = random.Random(f"captions {seed} {step}")
        rows = rng.sample(range(len(self.names)), characters)
        places = [int(self._places[c][rng.randrange(len(self._places[c]))]) for c in rows]
        texts = []
        for c in rows:
            fixed = rng.sample(STYLES, len(STYLES))
            for k in range(check_count("per_image", per_image)):
                words = (
                    random_subset(self._words[c], rng)
                    if rng.random() < subsets
                    else reword(self._words[c], fixed[k % len(fixed)])
                )
                texts.append(" ".join(words))
        return self.glyphs.batch(places, draw=1 + step)[0], texts, self.relevance(texts, rows)

    def pair_queries(self, least: int = 5, most: int = 200) -> list[str]:
        """Queries of two words that occur together in the names of several characters, in the order of the alphabet.

        Args:
            least, most: characters that both words must hold for; rarer pairs are single characters, more frequent
                ones whole alphabets.
        """
        counts: Counter = Counter()
        for told, words in zip(self._words, self.words):
            known = sorted(content_words(told) & words)
            counts.update((a, b) for i, a in enumerate(known) for b in known[i + 1 :])
        return [f"{a} {b}" for (a, b), count in sorted(counts.items()) if least <= count <= most]


def _first_by_hash(rows: list[int], glyphs: Glyphs, count: int) -> list[int]:
    "Of every character the `count` pictures whose hash is smallest, in the order of the data set."
    identity, taken = glyphs.identity.tolist(), Counter()
    kept = []
    for i in sorted(rows, key=lambda i: hashlib.sha256(f"captions {identity[i]}".encode()).digest()):
        if taken[glyphs.captions[i]] < count:
            taken[glyphs.captions[i]] += 1
            kept.append(i)
    return sorted(kept)
