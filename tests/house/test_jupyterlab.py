"""JupyterLab for real: a fresh clone's figures are visible before anything runs, and alive afterwards; RankLab talks
to Python both ways.
"""

import shutil

import nbformat
import pytest

# JupyterLab paints when it likes on a busy machine: two more tries, and only here
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900), pytest.mark.flaky(reruns=2)]
LESSON = "03_smooth_ap.ipynb"
LIVE = [
    "from smoothap_nb import RankLab\nlab = RankLab([.9, .7, .6, .4], [True, False, True, False])\nlab",
    "print('score is', lab.scores[1])",
    "lab.scores = [.8, .7, .6, .4]",
    "import matplotlib.pyplot as plt\nfrom smoothap_nb import explore\nseen = []\ndef draw(tau):\n    "
    "seen.append(tau)\n    fig, ax = plt.subplots(figsize=(2, 1))\n"
    "    ax.set(xlabel='x', ylabel='y')\n    return fig\nexplore(draw, alt='x', live=True, tau=[.1, .01, .001])",
    "print('drawn at', seen)",
]


@pytest.fixture(scope="module")
def lab_url(tmp_path_factory, root, serve_lab):
    "A JupyterLab on a copy of one lesson and a live notebook, with a data folder of its own: nothing is trusted there."
    home = tmp_path_factory.mktemp("lab")
    (home / "work").mkdir()
    shutil.copy(root / "nbs" / LESSON, home / "work")
    live = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}
    )
    live.cells = [nbformat.v4.new_code_cell(source) for source in LIVE]
    nbformat.write(live, home / "work" / "live.ipynb")
    with serve_lab(home) as url:
        yield url


@pytest.fixture
def open_notebook(chromium, lab_url):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 1400})
        tab.set_default_timeout(120_000)

        def go(name):
            tab.goto(f"{lab_url}/lab/tree/{name}?reset", wait_until="domcontentloaded")
            tab.wait_for_selector(".jp-Notebook .jp-Cell")
            return tab

        yield go
        browser.close()


def run_all(tab):
    "Run every cell and wait until the last one has its number: nothing moves on the page any more."
    tab.get_by_role("menuitem", name="Run", exact=True).click()
    tab.get_by_text("Run All Cells", exact=True).first.click()
    until_idle(tab)


def until_idle(tab):
    "Wait until the kernel has been idle for two seconds."
    calm = 0
    while calm < 4:
        tab.wait_for_timeout(500)
        calm = calm + 1 if tab.locator("#jp-main-statusbar").get_by_text("| Idle").count() else 0


def run_cell(tab, index):
    "Run one cell, wait for its number and return it."
    cell = tab.locator(".jp-CodeCell").nth(index)
    cell.locator(".cm-content").click()
    tab.keyboard.press("Control+Enter")
    tab.wait_for_function(
        "(i) => /\\[\\d+\\]/.test(document.querySelectorAll('.jp-CodeCell')[i].querySelector('.jp-InputPrompt').textContent)",  # noqa: E501
        arg=index,
    )
    return cell


def show_cell(tab, selector, scrolls=60):
    """JupyterLab makes cells as they come into view, and moves them while it does: scroll until one with `selector` is
    there and stays.
    """
    found = tab.locator(selector).first
    for _ in range(scrolls):
        if found.count():
            found.scroll_into_view_if_needed()
            tab.wait_for_timeout(500)
            if found.count() and found.is_visible():
                return found
            continue
        tab.evaluate("document.querySelector('.jp-WindowedPanel-outer').scrollBy(0, 900)")
        tab.wait_for_timeout(150)
    raise AssertionError(f"no {selector} in the notebook")


def test_a_lesson_is_readable_untrusted_and_alive_once_run(open_notebook):
    tab = open_notebook(LESSON)
    player = show_cell(tab, ".jp-OutputArea figure.player")
    player.get_by_text("once this notebook is trusted or run").first.wait_for()
    assert player.locator("svg").count() == 0
    still = tab.locator(".jp-OutputArea-child:has(+ .jp-OutputArea-child figure.player) img").first
    assert still.is_visible() and still.evaluate("(img) => img.naturalWidth") > 200
    run_all(tab)
    tab.wait_for_function("document.querySelector('.jp-Notebook .jp-OutputArea figure.player .player-stage svg')")
    player = show_cell(tab, ".jp-OutputArea figure.player:has(svg)")
    assert not still.is_visible(), "the still picture steps aside"

    def frame():
        return [i for i, one in enumerate(player.locator(".frame").all()) if one.is_visible()]

    before, bar = frame(), player.locator("input")
    bar.click(position={"x": bar.bounding_box()["width"] - 4, "y": 8})
    clicked = frame()
    assert clicked != before and clicked == [player.locator(".frame").count() - 1]
    tab.keyboard.press("ArrowLeft")
    assert frame() == [clicked[0] - 1] and tab.evaluate("document.activeElement.tagName") == "INPUT", (
        "the keyboard keeps the slider after a click"
    )
    show_cell(tab, ".ranklab .rl-item")
    picture = tab.locator(".ranklab .rl-item").nth(1)
    before = picture.get_attribute("aria-valuenow")
    picture.focus()
    tab.keyboard.press("ArrowLeft")
    assert float(picture.get_attribute("aria-valuenow")) == pytest.approx(float(before) - .005, abs=1e-4)


def test_ranklab_and_explore_live(open_notebook):
    tab = open_notebook("live.ipynb")
    until_idle(tab)
    run_cell(tab, 0)
    tab.wait_for_selector(".rl-item")
    picture = tab.locator(".rl-item").nth(1)
    box = picture.bounding_box()
    tab.mouse.move(box["x"] + 10, box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] - 60, box["y"] + 20)
    tab.mouse.move(box["x"] - 120, box["y"] + 20)
    tab.mouse.up()
    dragged = float(picture.get_attribute("aria-valuenow"))
    assert dragged < .69
    tab.wait_for_timeout(500)
    run_cell(tab, 1).get_by_text(f"score is {dragged}").wait_for()
    run_cell(tab, 2)
    tab.wait_for_function("document.querySelector('.rl-item').getAttribute('aria-valuenow') === '0.8'")
    assert float(picture.get_attribute("aria-valuenow")) == .7
    slider = run_cell(tab, 3).locator("[role=slider], .noUi-handle").first
    slider.wait_for()
    slider.focus()
    tab.keyboard.press("ArrowRight")
    tab.wait_for_timeout(1500)
    run_cell(tab, 4)
    said = tab.locator(".jp-CodeCell").nth(4).locator(".jp-OutputArea-output").inner_text()
    drawn = [float(x) for x in said.split("[")[1].strip(" ]\n").split(",")]
    assert drawn[0] == pytest.approx(.01) and .01 < drawn[-1] < .1, "a value between the stops"
