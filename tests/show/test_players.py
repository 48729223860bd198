"The frame player: the same bytes on every run, ids that do not cross, and in a browser the frame really moves."

import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from smoothap_nb.show.players import explore, live_figures, live_slider, player_html

TAUS = [0.1, 0.05, 0.01]


def draw(tau):
    fig, ax = plt.subplots(figsize=(3, 2))
    x = np.linspace(-.2, .2, 21)
    ax.plot(x, 1 / (1 + np.exp(-x / tau)), marker="o")
    ax.set(xlabel="score difference", ylabel="sigmoid", title=f"tau = {tau:g}")
    return fig


def pair(tau, gap):
    fig = draw(tau)
    fig.axes[0].plot([gap], [.5], marker="s")
    fig.axes[0].set_title(f"tau = {tau:g}, gap = {gap:g}")
    return fig


def page():
    return player_html(draw, {"tau": TAUS}, [1], 'a "step" <appears>')


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
    assert (
        'aria-label="a &quot;step&quot; &lt;appears&gt;"' in html
        and 'aria-label="tau"' in html
        and 'aria-valuetext="0.05"' in html
    )


def test_wrong_calls_are_named():
    for wrong in ({}, {"tau": []}, {"tau": [1], "lam": []}, {"tau": [1], "lam": [2], "margin": [3]}):
        with pytest.raises(ValueError, match="one slider or two"):
            explore(draw, alt="x", **wrong)
    for start in (3, -1, [0, 0], [0.5]):
        with pytest.raises((TypeError, ValueError), match="start"):
            explore(draw, alt="x", start=start, tau=TAUS)


def test_live_slider_covers_the_range_between_the_stops():
    widgets = pytest.importorskip("ipywidgets")
    for stops, kind in (
        ([0.1, 0.01, 0.001], widgets.FloatLogSlider),
        ([0.1, 0.2, 0.4], widgets.FloatSlider),
        ([0.0, 0.01, 1.0], widgets.FloatSlider),
        ([4, 16, 128], widgets.IntSlider),
        (["easy", "hard"], widgets.SelectionSlider),
        ([1.0], widgets.SelectionSlider),
        ([True, False], widgets.SelectionSlider),
    ):
        slider = live_slider("x", stops, start=len(stops) - 1)
        assert type(slider) is kind and slider.value == pytest.approx(stops[-1]) and slider.description == "x"
        if kind is widgets.FloatLogSlider:
            assert 10 ** slider.min == pytest.approx(.001) and 10 ** slider.max == pytest.approx(.1)
        elif kind is not widgets.SelectionSlider:
            assert (slider.min, slider.max) == (min(stops), max(stops))
    assert type(live_slider("x", [.1, .01], between=False)) is widgets.SelectionSlider


def test_live_calls_the_drawing_function_with_values_in_between(monkeypatch):
    widgets, seen, made = pytest.importorskip("ipywidgets"), [], []
    monkeypatch.setattr(widgets, "interactive", lambda f, **sliders: made.append((f, sliders)))
    monkeypatch.setattr("smoothap_nb.show.players.show", lambda fig, alt: plt.close(fig))
    live_figures()
    try:
        explore(lambda tau, bins: seen.append((tau, bins)) or draw(tau), alt="x", tau=TAUS, bins=[5, 20])
    finally:
        live_figures(False)
    (redraw, sliders), = made
    redraw(tau=.0321, bins=7)
    assert seen == [(.0321, 7)] and list(sliders) == ["tau", "bins"]


def test_two_sliders_draw_every_pair():
    html = player_html(pair, {"tau": TAUS, "gap": [0., .1]}, [1, 0], "x")
    assert html.count('class="frame"') == 6 and html.count('type="range"') == 2
    assert [i for i, f in enumerate(html.split('<div class="frame"')[1:]) if not f.startswith(' style')] == [2]


def test_a_word_on_the_slider_cannot_break_out():
    html = player_html(lambda word: draw(.1), {"word": ["</script>", 'a"b']}, [0], "x")
    assert html.count("</script>") == 2 and 'aria-valuetext="&lt;/script&gt;"' in html


@pytest.mark.browser
def test_the_frame_moves_in_a_browser(chromium, tmp_path):
    from playwright.sync_api import sync_playwright

    path = tmp_path / "page.html"
    path.write_text(
        f"<!doctype html><meta "
        f"charset=utf-8><body>{page()}{player_html(lambda width: draw(width), {'width': TAUS}, [0], 'a second player')}{page()}"  # noqa: E501
        f"{player_html(pair, {'tau': TAUS, 'gap': [0.0, 0.1]}, [1, 0], 'two sliders')}</body>",
        encoding="utf-8",
    )
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab, problems = browser.new_page(), []
        tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        tab.goto(path.as_uri())
        first, second, twin, both = tab.locator("figure.player").all()

        def visible(player):
            return [i for i, frame in enumerate(player.locator(".frame").all()) if frame.is_visible()]

        assert visible(first) == [1] and visible(second) == [0] and first.locator("output").inner_text() == "0.05"
        before = first.screenshot()
        first.locator("input").focus()
        tab.keyboard.press("ArrowRight")
        assert visible(first) == [2] and first.locator("output").inner_text() == "0.01" and first.screenshot() != before
        assert visible(second) == [0] and visible(twin) == [1], (
            "one player must not move another, its own twin included"
        )
        tab.keyboard.press("Home")
        assert visible(first) == [0] and "tau = 0.1" in first.locator(".frame").first.inner_text()
        ids = tab.evaluate("[...document.querySelectorAll('.player-stage [id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
        tau, gap = both.locator("input").all()
        assert visible(both) == [2]
        gap.focus()
        tab.keyboard.press("End")
        assert (
            visible(both) == [3]
            and gap.get_attribute("aria-valuetext") == "0.1"
            and "gap = 0.1" in both.locator(".frame").nth(3).inner_text()
        )
        tau.focus()
        tab.keyboard.press("End")
        assert (
            visible(both) == [5]
            and tau.get_attribute("aria-valuetext") == "0.01"
            and gap.get_attribute("aria-valuetext") == "0.1"
        )
        tab.mouse.click(tau.bounding_box()["x"] + 3, tau.bounding_box()["y"] + 8)
        assert visible(both) == [1] and tab.evaluate("document.activeElement.getAttribute('aria-label')") == "tau"
        assert problems == []
        browser.close()
