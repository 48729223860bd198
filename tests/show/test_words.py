"The search box: the same bytes on every run, the browser's numbers are Python's, and a person can work it."

import json

import pytest
import torch

from smoothap_nb.data.captions import Vocabulary
from smoothap_nb.show.words import eight_bits, rounded_tower, word_search_html, word_search_state, words_module
from smoothap_nb.train.text import TextTower

WORDS = Vocabulary(("a", "b", "capital", "circumflex", "latin", "letter", "small", "uppercase", "with"))
NAMES = [
    "LATIN SMALL LETTER A",
    "LATIN CAPITAL LETTER A",
    "LATIN SMALL LETTER B",
    "LATIN CAPITAL LETTER B",
    "LATIN CAPITAL LETTER A WITH CIRCUMFLEX",
]


@pytest.fixture(scope="module")
def state():
    torch.manual_seed(0)
    tower = TextTower(len(WORDS), dim=12, word_dim=6, hidden=10)
    gallery = torch.nn.functional.normalize(torch.randn(5, 12), dim=1)
    return dict(
        tower=tower.state_dict(),
        vocabulary=WORDS,
        gallery=gallery,
        images=torch.randint(0, 256, (5, 32, 32), dtype=torch.uint8),
        names=NAMES,
        examples=["capital letter with circumflex", "small b"],
    )


def test_same_bytes_on_every_run(state):
    text = word_search_html(**state)
    assert text == word_search_html(**state) != word_search_html(**state | {"examples": ["latin"]})
    assert "http" not in text.replace("http://www.w3.org", "")


def test_eight_bits_are_near(state):
    small, scales = eight_bits(state["gallery"])
    assert abs(torch.from_numpy(small * scales[:, None]) - state["gallery"]).max() <= 0.5 * scales.max() + 1e-7
    zeros, _ = eight_bits(torch.zeros(2, 3))
    assert not zeros.any()


@pytest.mark.parametrize(
    "change, words",
    [
        ({"names": NAMES[:2]}, "do not belong together"),
        ({"examples": []}, "at least one example"),
        ({"vocabulary": Vocabulary(("a",))}, "of different runs"),
    ],
)
def test_bad_input_is_named(state, change, words):
    with pytest.raises(ValueError, match=words):
        word_search_state(**state | change)


@pytest.mark.browser
def test_the_browser_computes_what_python_computes(state, chromium, tmp_path):
    from playwright.sync_api import sync_playwright

    packed, texts = (
        word_search_state(**state),
        ["capital letter with circumflex", "a", "B uppercase xyz Latin", "буква"],
    )
    tower = TextTower(len(WORDS), dim=12, word_dim=6, hidden=10)
    tower.load_state_dict(rounded_tower(state["tower"]))
    gallery = torch.from_numpy((lambda small, scales: small * scales[:, None])(*eight_bits(state["gallery"])))
    (tmp_path / "words.mjs").write_text(words_module())
    page = f"""<!doctype html><meta charset="utf-8"><title>words</title>{word_search_html(**state)}"""
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--allow-file-access-from-files"]
        )
        tab, problems = browser.new_page(), []
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.goto((tmp_path / "page.html").as_uri())
        found = tab.evaluate(
            """async ([url, state, texts]) => { const m = await import(url), box = m.unpack(state);
            return texts.map((text) => m.search(box, text, 5)); }""",
            [(tmp_path / "words.mjs").as_uri(), json.loads(json.dumps(packed)), texts],
        )
        for text, answer in zip(texts, found):
            known, unknown = WORDS.split(text)
            assert (answer["known"], answer["unknown"]) == (known, unknown)
            if known:
                with torch.no_grad():
                    best = (tower(*WORDS.encode([text])) @ gallery.T)[0].sort(descending=True)
                assert answer["rows"] == best.indices.tolist()
                torch.testing.assert_close(torch.tensor(answer["scores"]), best.values, atol=1e-5, rtol=0)
        assert (
            found[0]["right"] == [NAMES[i].endswith("CIRCUMFLEX") for i in found[0]["rows"]] and found[3]["rows"] == []
        )
        assert [answer["there"] for answer in found] == [1, 3, 1, 0]
        field = tab.get_by_label("Describe a character:")
        assert field.input_value() == "capital letter with circumflex" and tab.locator("li").count() == 5
        field.fill("small dragon letter")
        assert "dragon" in tab.get_by_role("status").inner_text()
        tab.get_by_role("button", name="small b").click()
        first = tab.locator("li").first
        assert field.input_value() == "small b" and first.inner_text().upper() in NAMES
        assert first.get_by_role("img").get_attribute("aria-label").split(": ")[0] in ("fits", "does not fit")
        field.fill("буква")
        assert (
            tab.locator("li").count() == 0
            and "No word that the network knows" in tab.get_by_role("status").inner_text()
        )
        assert problems == []
        browser.close()
