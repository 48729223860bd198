"The frame player: the same bytes on every run, ids that do not cross, and in a browser the frame really moves."

import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from smoothap_nb.interactive import explore, player_html

TAUS = [0.1, 0.05, 0.01]


def draw(tau):
    fig, ax = plt.subplots(figsize=(3, 2))
    x = np.linspace(-.2, .2, 21)
    ax.plot(x, 1 / (1 + np.exp(-x / tau)), marker="o")
    ax.set(xlabel="score difference", ylabel="sigmoid", title=f"tau = {tau:g}")
    return fig


def page():
    return player_html(draw, "tau", TAUS, 1, 'a "step" <appears>')


def test_same_bytes_on_every_run():
    assert page() == page()


def test_ids_are_private_and_references_resolve():
    html = page()
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', html))
    assert wanted and wanted <= set(ids)


def test_says_what_it_is_to_a_screen_reader():
    html = page()
    assert 'aria-label="a &quot;step&quot; &lt;appears&gt;"' in html and 'aria-label="tau"' in html and 'aria-valuetext="0.05"' in html


def test_wrong_calls_are_named():
    for wrong in ({}, {"tau": []}, {"tau": [1], "lam": [2]}):
        with pytest.raises(ValueError, match="one slider"):
            explore(draw, alt="x", **wrong)


@pytest.mark.browser
def test_the_frame_moves_in_a_browser(chromium, tmp_path):
    from playwright.sync_api import sync_playwright

    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{page()}{player_html(draw, 'width', TAUS, 0, 'a second player')}</body>", encoding="utf-8")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab, problems = browser.new_page(), []
        tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        tab.goto(path.as_uri())
        first, second = tab.locator("figure.player").all()

        def visible(player):
            return [i for i, frame in enumerate(player.locator(".frame").all()) if frame.is_visible()]

        assert visible(first) == [1] and visible(second) == [0] and first.locator("output").inner_text() == "0.05"
        before = first.screenshot()
        first.locator("input").focus()
        tab.keyboard.press("ArrowRight")
        assert visible(first) == [2] and first.locator("output").inner_text() == "0.01" and first.screenshot() != before
        assert visible(second) == [0], "one player must not move the other"
        tab.keyboard.press("Home")
        assert visible(first) == [0] and "tau = 0.1" in first.locator(".frame").first.inner_text()
        assert problems == []
        browser.close()
