"Captioned glyphs: rewording, containment, splits, batches, vocabularies, bad input."

import random

import pytest
import torch

from smoothap_nb.data.captions import (
    FILLERS,
    STYLES,
    SYNONYMS,
    GlyphCaptions,
    Vocabulary,
    caption_relevance,
    content_words,
    glyph_vocabulary,
    name_words,
    random_subset,
    reword,
    split_text,
)


@pytest.fixture(scope="module")
def train():
    return GlyphCaptions("train")


@pytest.fixture(scope="module")
def test(train):
    return GlyphCaptions("test", train.vocabulary, per_character=1)


def test_names_become_words():
    assert name_words("LATIN CAPITAL LETTER A WITH CIRCUMFLEX") == [
        "latin",
        "capital",
        "letter",
        "a",
        "with",
        "circumflex",
    ]
    assert name_words("BRAILLE PATTERN DOTS-1234") == ["braille", "pattern", "dots", "1", "2", "3", "4"]
    assert name_words("DOMINO TILE HORIZONTAL-02-04") == ["domino", "tile", "horizontal", "02", "04"]


def test_the_five_styles():
    words = name_words("LATIN CAPITAL LETTER A WITH CIRCUMFLEX AND ACUTE")
    captions = {style: " ".join(reword(words, style)) for style in STYLES}
    assert captions["name"] == "latin capital letter a with circumflex and acute"
    assert captions["accent first"] == "circumflex and acute on latin capital letter a"
    assert captions["synonyms"] == "latin uppercase letter a with circumflex and acute"
    assert captions["script dropped"] == "capital letter a with circumflex and acute"
    assert captions["filler"].endswith(captions["name"]) or captions["name"] in captions["filler"]
    want = content_words(words)
    for style, caption in captions.items():
        assert content_words(split_text(caption)) == want - ({"latin"} if style == "script dropped" else set())
        assert reword(words, style) == reword(list(words), style)
    assert reword(["comma"], "accent first") == ["comma"] and reword(["comma"], "script dropped") == ["comma"]


def test_fillers_and_synonyms_mean_no_other_name():
    "A synonym that some name holds would change what a caption is about."
    from smoothap_nb import Glyphs

    known = {word for name in set(Glyphs("all", strength=0).captions) for word in name_words(name)}
    assert not set(SYNONYMS) & known and set(SYNONYMS.values()) <= known and not set(SYNONYMS) & FILLERS
    assert FILLERS & known <= {"for", "the", "from", "with", "in", "of", "and", "to", "an", "on"}  # small words alone


def test_relevance_is_containment():
    pictures = [{"latin", "small", "a"}, {"latin", "capital", "a"}, {"greek", "small", "alpha"}]
    captions = [{"latin"}, {"small"}, {"latin", "small", "a"}, {"greek", "capital"}]
    assert caption_relevance(pictures, captions).int().tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    with pytest.raises(ValueError, match="caption 1 says nothing"):
        caption_relevance(pictures, [{"latin"}, set()])
    with pytest.raises(ValueError, match="pictures and captions, got 3 and 0"):
        caption_relevance(pictures, [])


def test_relevance_equals_a_loop(test):
    captions, own = test.test_captions()
    rows = random.Random(0).sample(range(len(captions)), 60)
    found = test.relevance([captions[i] for i in rows])
    for column, i in enumerate(rows):
        asked = content_words(captions[i].split())
        want = [asked <= set(name_words(name)) for name in test.glyphs.captions]
        assert found[:, column].tolist() == want and want[own[i]]  # one picture per character: row = character
    equal = [i for i in range(len(captions)) if captions[i] == captions[rows[0]]]
    assert len(test.relevance([captions[i] for i in equal]).unique(dim=1)[0]) == 1


def test_characters_are_disjoint_and_words_are_shared(train, test):
    assert not set(train.names) & set(test.names)
    counts = {}
    for name in train.names + train.left_out:
        for word in set(name_words(name)):
            counts[word] = counts.get(word, 0) + 1
    for captions in (test.captions(c) for c in range(0, len(test.names), 7)):
        assert len(captions) == 5
        for word in content_words(" ".join(captions).split()):
            assert counts[word] >= 10, word
    assert len(test) == len(test.names) and not set(test.left_out) & set(test.names)


def test_batches_follow_from_the_step_alone(train):
    images, captions, relevance = train.batch(8, 3, step=4, seed=2)
    again = train.batch(8, 3, step=4, seed=2)
    assert torch.equal(images, again[0]) and captions == again[1] and torch.equal(relevance, again[2])
    assert images.shape == (8, 1, 32, 32) and len(captions) == 24 and relevance.shape == (8, 24)
    own = torch.arange(8).repeat_interleave(3)
    assert relevance[own, torch.arange(24)].all()
    other = train.batch(8, 3, step=5, seed=2)
    assert other[1] != captions and not torch.equal(other[0], images)
    fixed = train.batch(8, 5, step=1, subsets=0.0)[1]
    assert {" ".join(sorted(fixed[i : i + 5])) for i in range(0, 40, 5)} <= {
        " ".join(sorted(train.captions(c))) for c in range(len(train.names))
    }


def test_random_subsets_keep_order_and_say_something():
    words, rng = name_words("GREEK SMALL LETTER ALPHA WITH PSILI"), random.Random(3)
    for _ in range(50):
        part = random_subset(words, rng)
        assert 1 <= len(part) <= 4 and part == [w for w in words if w in part] and not set(part) & FILLERS


def test_pair_queries_have_enough_pictures(test):
    queries = test.pair_queries(5, 200)
    counts = test.relevance(queries).sum(0)
    assert len(set(queries)) == len(queries) > 300 and queries == sorted(queries)
    assert int(counts.min()) >= 5 and int(counts.max()) <= 200


def test_vocabulary_encodes_and_refuses(train):
    words = train.vocabulary
    numbers, lengths = words.encode(["capital letter", "Letter!", "latin xyzzy small letter a"])
    assert lengths.tolist() == [2, 1, 4] and numbers.shape == (3, 4) and (numbers[1, 1:] == 0).all()
    assert words.split("Capital Schloss, буква a") == (["capital", "a"], ["schloss", "буква"])
    assert Vocabulary(words.words).key == words.key != Vocabulary(words.words[::-1]).key
    for captions, error, text in (
        (["", "a"], ValueError, "is empty"),
        (["  "], ValueError, "is empty"),
        ([], ValueError, "no caption"),
        (["буква"], ValueError, "no word of the caption 'буква'"),
        ("letter", TypeError, "got one text"),
    ):
        with pytest.raises(error, match=text):
            words.encode(captions)
    with pytest.raises(ValueError, match="twice in this one"):
        Vocabulary(("a", "b", "a"))
    with pytest.raises(ValueError, match="no word occurs in 10 names"):
        glyph_vocabulary(["LATIN SMALL LETTER A"])


def test_bad_settings_are_named(train):
    with pytest.raises(ValueError, match="belongs to other captions"):
        GlyphCaptions("test", Vocabulary(("zebra", "of")))
    with pytest.raises(ValueError, match="'train', 'val', 'test'"):
        GlyphCaptions("all")
    with pytest.raises(ValueError, match="there are"):
        train.batch(10**6)
    with pytest.raises(ValueError, match="share from 0 to 1"):
        train.batch(4, subsets=2)
    with pytest.raises(ValueError, match="style must be one of"):
        reword(["a"], "shouted")
