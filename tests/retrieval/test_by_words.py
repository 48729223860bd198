"Search by words: what is found, what is ignored and named, rows and sheets, the command line."

import subprocess
import sys

import pytest
import torch

from smoothap_nb.data.captions import Vocabulary
from smoothap_nb.retrieval.by_words import draw_words, search_words, write_sheet
from smoothap_nb.train.text import load_glyph_words

NAMES = ["LATIN SMALL LETTER A", "LATIN CAPITAL LETTER A", "GREEK SMALL LETTER ALPHA"]
WORDS = Vocabulary(("latin", "greek", "small", "capital", "uppercase", "letter", "a", "alpha", "with", "the"))
AXES = {"latin": 0, "greek": 1, "small": 2, "capital": 3, "uppercase": 3}


def embed(texts):
    "A bag of words, one axis each: rankings can be read off."
    rows = torch.zeros(len(texts), 4)
    for row, text in zip(rows, texts):
        WORDS.encode([text])
        for word in WORDS.split(text)[0]:
            if word in AXES:
                row[AXES[word]] += 1
    return torch.nn.functional.normalize(rows, dim=1)


GALLERY = embed(["latin small", "latin capital", "greek small"])


def test_the_right_pictures_come_first():
    found = search_words("small latin letter", embed, WORDS, GALLERY, NAMES, k=2)
    assert (
        found.rows[0] == 0
        and found.names[0] == NAMES[0]
        and found.right == [True, False]
        and found.note == ""
        and len(found.scores) == 2
    )
    assert search_words("UPPERCASE", embed, WORDS, GALLERY, NAMES, k=9).rows[0] == 1  # a synonym
    assert search_words("uppercase", embed, WORDS, GALLERY, NAMES, k=1).right == [True]


def test_unknown_words_are_ignored_and_named():
    found = search_words("greek буква Schloss small schloss", embed, WORDS, GALLERY, NAMES, k=1)
    assert found.rows == [2] and found.unknown == ["буква", "schloss", "schloss"] and found.known == ["greek", "small"]
    assert found.note == "ignored, as the network never learnt them: буква, schloss"


def test_words_that_say_nothing_fit_nothing():
    assert search_words("with the", embed, WORDS, GALLERY, NAMES, k=1).right == [False]


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"text": "  "}, ValueError, "is empty"),
        ({"text": "буква"}, ValueError, "no word of the caption"),
        ({"text": 3}, TypeError, "must be a string"),
        ({"names": NAMES[:2]}, ValueError, "2 names for 3 pictures"),
        ({"k": 0}, ValueError, "k must be"),
        ({"gallery": torch.ones(3, 7)}, ValueError, "dimensions"),
    ],
)
def test_bad_input_is_named(change, error, words):
    with pytest.raises(error, match=words):
        search_words(
            **{"text": "latin", "embed": embed, "vocabulary": WORDS, "gallery": GALLERY, "names": NAMES, **change}
        )


def test_rows_and_sheets(tmp_path):
    pictures = torch.arange(3)[:, None, None].expand(3, 8, 8).to(torch.uint8)
    results = [
        search_words(text, embed, WORDS, GALLERY, NAMES, k=3)
        for text in ("latin", "small a with a very long description of it")
    ]
    assert len(draw_words(results, pictures, shown=2).axes) == 6
    sheet = write_sheet(results[0], pictures, tmp_path / "new" / "sheet.png")
    assert sheet.read_bytes()[:4] == b"\x89PNG" and list(sheet.parent.iterdir()) == [sheet]
    unnamed = search_words("latin", embed, WORDS, GALLERY)
    assert unnamed.names == unnamed.right == [] and write_sheet(unnamed, pictures, tmp_path / "two.png").exists()
    with pytest.raises(ValueError, match="must end in .png"):
        write_sheet(results[0], pictures, tmp_path / "sheet.jpg")


def test_the_shipped_towers_find_letters_never_seen():
    held = load_glyph_words()
    from smoothap_nb.data.glyphs import split_of
    import unicodedata

    assert all(split_of(unicodedata.lookup(name)) == "test" for name in held.names) and len(held.names) == len(
        held.gallery
    ) == len(held.images)
    assert held.made["commit"] and not held.made["commit"].endswith("+")
    queries = [
        "braille pattern dots",
        "capital letter with circumflex",
        "domino tile horizontal",
        "rightwards arrow",
        "circled digit",
        "arabic letter final form",
    ]
    for query in queries:
        found = search_words(query, held.embed_texts, held.vocabulary, held.gallery, held.names, k=10)
        share = sum(found.right) / 10
        everywhere = sum(
            set(query.split()) - {"with"} <= set(name.lower().replace("-", " ").split()) for name in held.names
        ) / len(held.names)
        assert share > 3 * everywhere, (query, share, everywhere)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "Towers that learnt nothing, with the vocabulary of the glyphs."
    from smoothap_nb.data.captions import GlyphCaptions
    from smoothap_nb.train.text import TowerConfig, TwoTowers, save_towers

    torch.manual_seed(0)
    return save_towers(
        TwoTowers(GlyphCaptions("train").vocabulary, TowerConfig(dim=8, width=4, word_dim=8, hidden=8)),
        tmp_path_factory.mktemp("runs") / "run",
    )


def smoothap(*words):
    from smoothap_nb.cli.commands import app
    from typer.testing import CliRunner

    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_searches_held_out_glyphs(run, tmp_path):
    done = smoothap(
        "search", "--text", "capital Schloss with circumflex", "--run", run, "-k", 4, "--sheet", tmp_path / "sheet.png"
    )
    lines = done.output.splitlines()
    assert done.exit_code == 0 and lines[0] == "ignored, as the network never learnt them: schloss" and len(lines) == 6
    assert (tmp_path / "sheet.png").exists()


def test_the_command_searches_a_folder(run, tmp_path):
    from PIL import Image

    folder = tmp_path / "mine"
    folder.mkdir()
    for i in range(3):
        Image.new("L", (40, 30), 60 * i).save(folder / f"{i}.png")
    done = smoothap(
        "search",
        "--text",
        "small letter",
        "--run",
        run,
        "--gallery",
        folder,
        "--sheet",
        tmp_path / "sheet.png",
        "--quiet",
    )
    assert done.exit_code == 0 and done.output.count(str(folder)) == 3


@pytest.mark.parametrize(
    "words, message",
    [
        (("--text", "буква"), "no word of the caption"),
        ((), "name the picture to look for"),
        (("one.png", "--text", "a"), "not for both"),
        (("--text", "a", "--sheet", "sheet.gif"), "name one that ends in .png"),
    ],
)
def test_the_command_names_what_is_wrong(run, words, message):
    done = smoothap("search", *words, "--run", run)
    assert isinstance(done.exception, ValueError) and message in str(done.exception)


def test_the_command_tells_a_fault_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "smoothap_nb.cli", "search", "--text", "a", "--run", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "holds no pictures-and-words run" in done.stderr and "Traceback" not in done.stderr
