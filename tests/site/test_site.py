"""The site: one order of pages, sources that every viewer reads alike, a reference that leaves nothing out, and pages
that work in a browser.

The browser tests drive Chromium over the plain pages (tools/pages.py), which are built once.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

import api
import links
import notebooks
import pages
import site_check

PUBLIC = [(module, name) for module, names in api.public_names().items() for name in names]
SOURCES = [page.source for page in pages.order()]
WRITTEN = [s for s in SOURCES if not s.startswith("docs/api/")]
PROMISED: set[str] = set()  # lessons that are linked before they are written


# --- the order ------------------------------------------------------------------------------------------------------

def test_the_sidebar_lists_every_page_once():
    there = {"index.qmd", "CONTRIBUTING.md", "CHANGELOG.md", "docs/api/index.md"}
    there |= {f"nbs/{p.name}" for p in notebooks.notebooks()} | {f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")}
    there |= {f"docs/api/{api.page_of(module)}.md" for module in api.public_names()}
    assert sorted(SOURCES) == sorted(there), (
        "add the page to the sidebar in _quarto.yml; for the reference, run python tools/api.py"
    )


def test_lessons_stand_in_the_order_of_their_numbers():
    parts = {}
    for page in pages.order():
        if page.source.endswith(".ipynb"):
            parts.setdefault(page.part, []).append(page.source)
    assert all(lessons == sorted(lessons) for lessons in parts.values())
    reference = [p.source for p in pages.order() if p.source.startswith("docs/api/")]
    assert reference == [
        "docs/api/index.md",
        *(f"docs/api/{api.page_of(module)}.md" for module in api.public_names()),
    ], "run python tools/api.py"


# --- stale notebooks ------------------------------------------------------------------------------------------------

def lesson(code):
    return {
        "cells": [{"cell_type": "markdown", "source": "# 00 A lesson"}, {"cell_type": "code", "source": code}],
        "metadata": {},
    }


def test_a_fingerprint_follows_the_code_and_not_the_words():
    nb = lesson("from smoothap_nb import ranks\nranks")
    same = lesson("from smoothap_nb import ranks\nranks")
    same["cells"][0]["source"] = "# 00 Another title"
    assert (
        notebooks.fingerprint(nb)
        == notebooks.fingerprint(same)
        != notebooks.fingerprint(lesson("from smoothap_nb import ranks\nranks "))
    )


def test_a_fingerprint_follows_the_modules_that_the_code_reaches(monkeypatch):
    facts = notebooks.module_facts.__wrapped__
    assert {"checks", "losses.gradient"} <= facts("losses.smooth")[1]

    def changed(name):
        text, imports = facts(name)
        return (text + "changed" if name == "losses.gradient" else text), imports

    reaching, apart = lesson("from smoothap_nb.losses.smooth import smooth_ap"), lesson("import math")
    before = [notebooks.fingerprint(nb) for nb in (reaching, apart)]
    monkeypatch.setattr(notebooks, "module_facts", changed)
    after = [notebooks.fingerprint(nb) for nb in (reaching, apart)]
    assert before[0] != after[0] and before[1] == after[1]


def test_comments_and_docstrings_make_nothing_stale():
    one = 'def f(x):\n    """Words."""\n    return x  # kept\n'
    two = '# a comment\ndef f(x):\n    """Other\n\n    words."""\n\n    return x  # kept\n'
    assert (
        notebooks.without_words(one)
        == notebooks.without_words(two)
        != notebooks.without_words(one.replace("return x", "return -x"))
    )


# --- the reference --------------------------------------------------------------------------------------------------

SHAPE = re.compile(
    r"\([\w.+* ]+,[^()]*\)|\([A-Z0-9]\)|\bscalar\b|\bshape\b|\bshaped\b|\bsame\b|\blikewise\b|0-dimensional"
)


def documented(obj):
    "Argument -> what the docstring says of it; a line may stand for several."
    found = api.sections(obj)
    items = found.get("attributes", []) + found.get("other parameters", []) + found.get("parameters", [])
    return {name.strip().lstrip("*"): item.description for item in items for name in item.name.split(",")}


def complaints(obj):
    "What an entry of the reference leaves the reader to guess."
    if obj.docstring is None:
        return ["has no docstring"]
    found, said, out = api.sections(obj), documented(obj), []
    for p in obj.parameters:
        if p.name in ("self", "cls"):
            continue
        if p.name not in said:
            out.append(f"says nothing of the argument {p.name}")
        elif re.fullmatch(r"Tensor(?: \| None)?|torch\.Tensor(?: \| None)?", str(p.annotation)) and not SHAPE.search(
            said[p.name]
        ):
            out.append(f"gives no shape for {p.name}")
    if obj.is_function and obj.returns is not None and str(obj.returns) not in ("None", "'None'"):
        if "returns" not in found and "yields" not in found:
            out.append("does not say what it returns")
        elif "Tensor" in str(obj.returns) and not SHAPE.search(
            " ".join(i.description for i in found.get("returns", []))
        ):
            out.append("gives no shape for what it returns")
    tree = ast.parse("class C:\n pass" if obj.lineno is None else _dedented(obj))
    calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    if (
        any(isinstance(n, ast.Raise) and n.exc is not None for n in ast.walk(tree))
        or any(c.startswith("check_") for c in calls)
    ) and "raises" not in found:
        out.append("refuses something and has no Raises section")
    return out


def _dedented(obj):
    import textwrap

    return textwrap.dedent("\n".join(obj.lines))


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=[name for _, name in PUBLIC])
def test_arguments_shapes_and_errors_are_documented(module, name):
    obj = api.public_object(module, name)
    if obj.is_attribute:
        assert obj.docstring or documented(obj) is not None
        return
    assert complaints(obj) == []


def test_the_reference_is_written_once_and_leads_to_lessons_and_back():
    api.write()
    assert api.write() == [], "writing twice changes nothing"
    for module, names in api.public_names().items():
        text = (api.FOLDER / f"{api.page_of(module)}.md").read_text(encoding="utf-8")
        assert re.findall(r"^## (\w+)$", text, re.M) == list(names)
        home = api.lesson_of(module)
        if home is None:
            assert f"/smoothap_nb/{module.replace('.', '/')}.py)" in text
            continue
        assert home.exists() and f"(../../nbs/{home.name})" in text
        shown = json.dumps(
            [
                c
                for c in pages.reader_notebook(json.loads(home.read_text(encoding="utf-8")))["cells"]
                if c["cell_type"] == "markdown"
            ][0]
        )
        assert (
            f"../docs/api/{api.page_of(module)}.md" in shown
            and "colab.research.google.com/github/" in shown
            and f"/nbs/{home.name}" in shown
        )


def test_every_loss_and_every_metric_of_a_ranking_is_shown():
    names = api.public_names()
    losses = {name for module, name in PUBLIC if module.startswith("losses.") and name.endswith("Loss")}
    metrics = {*names["metrics.flat"], "h_ap", "ap_at_level", "ndcg", "asi"}
    assert losses - {"RankingLoss"} <= set(api.shown())
    for module, name in PUBLIC:
        assert name not in api.shown() or (found := api.derivation(module, name)) and found[1], f"who derives {name}?"
    assert metrics <= {name for name, facts in api.shown().items() if "ties" in facts}


def test_every_loss_of_embeddings_tells_its_call():
    for module, name in PUBLIC:
        if module.startswith("losses.") and name.endswith("Loss"):
            text = "\n".join(api.entry(module, name))
            assert "loss_fn(embeddings, labels, indices_tuple=None" in text or f"### {name}.forward" in text, name


@pytest.mark.parametrize("name", sorted(api.shown()))
def test_the_example_of_the_reference_runs(name):
    import torch

    import smoothap_nb

    assert name in smoothap_nb.__all__, f"tools/reference.toml shows {name}, which is no public name"
    exec(api.example(name), {"torch": torch, **{n: getattr(smoothap_nb, n) for n in smoothap_nb.__all__}})
    assert pages.formula(api.shown()[name]["formula"], "block").startswith("<div"), "the formula cannot be drawn"


# --- links of the built pages ---------------------------------------------------------------------------------------

def test_dead_links_are_mended_or_named(tmp_path):
    (tmp_path / "nbs").mkdir()
    (tmp_path / "index.html").write_text(
        '<h2 id="a-heading-x">A</h2><a href="nbs/01.ipynb#The-big:-step">1</a><a href="LICENSE">2</a><a '
        'href="nowhere.md">3</a><a href="README.md#a-heading-x">4</a>'
    )
    (tmp_path / "nbs" / "01.html").write_text(
        '<section id="the-big-step"><a href="../index.html#nothing">4</a><a href="#The-big-step">5</a><h2 '
        'id="ranking">01 Ranking</h2><a href="#01-Ranking">6</a></section>'
    )
    assert links.mend(tmp_path) == ["index.html: nowhere.md", "nbs/01.html: ../index.html#nothing (no such heading)"]
    text = (tmp_path / "index.html").read_text()
    assert 'href="nbs/01.html#the-big-step"' in text and "/blob/main/LICENSE" in text
    assert 'href="index.html#a-heading-x"' in text, "the first page shows the README"
    text = (tmp_path / "nbs" / "01.html").read_text()
    assert 'href="#the-big-step"' in text and 'href="#ranking"' in text


def test_a_line_of_quartos_code_says_where_it_begins():
    anchor = '<a href="#cb1-{0}" aria-hidden="true" tabindex="-1"></a>'
    lines = [
        f'<span id="cb1-1">{anchor.format(1)}<span class="cf">for</span> i <span class="kw">in</span> x:</span>',
        f'<span id="cb1-2">{anchor.format(2)}    <span class="bu">print</span>(i)</span>',
        f'<span id="cb1-3">{anchor.format(3)}<span class="co">        # a  comment</span></span>',
    ]
    made = links.with_hanging_lines("\n".join(lines))
    assert re.findall(r'id="(cb1-\d)" style="--in:(\d)"', made) == [("cb1-1", "0"), ("cb1-2", "4"), ("cb1-3", "8")]
    assert re.sub(r' style="--in:\d"', "", made) == "\n".join(lines) and links.with_hanging_lines(made) == made


def test_both_renderers_have_one_palette():
    sheet = (ROOT / "tools" / "pages.css").read_text(encoding="utf-8")
    rules = re.findall(r"(?m)^:root(?:\[data-theme=dark\])? \{(.*)\}$", sheet)
    same = {"body-bg": "page", "body-color": "text", "link-color": "link", "text-muted": "soft", "code-bg": "panel",
            "border-color": "line", "sidebar-bg": "page", "sidebar-fg": "text", "sidebar-hl": "link"}
    for rule, name in zip(rules, ("theme.scss", "theme-dark.scss"), strict=True):
        ours = dict(re.findall(r"--(\w+): (#\w+)", rule))
        theirs = dict(re.findall(r"(?m)^\$([\w-]+): (#\w+);", (ROOT / "tools" / name).read_text(encoding="utf-8")))
        assert {ours[mine] == theirs[quartos] for quartos, mine in same.items()} == {True}, name


def test_a_player_replaces_its_still_picture():
    from quarto_filter import with_noscript

    still = {
        "output_type": "display_data",
        "data": {"image/png": "QUJD"},
        "metadata": {"image/png": {"alt": "a curve (still picture at tau = 1)"}},
    }
    player = {
        "output_type": "display_data",
        "data": {"text/html": ['<figure class="player">\n', "</figure>"]},
        "metadata": {},
    }
    out, = with_noscript([still, player])
    assert out["data"]["text/html"].endswith(
        '<noscript><img src="data:image/png;base64,QUJD" alt="a curve (still picture at tau = 1)"></noscript>'
    )
    assert with_noscript([still]) == [still]


def test_imports_are_folded_and_work_is_not():
    from quarto_filter import only_prepares

    assert (
        only_prepares("import torch\nfrom a import b\n\nuse_style()\ntorch.manual_seed(0);")
        and not only_prepares("import torch\nx = torch.ones(1)")
        and not only_prepares("%pip install x")
    )


def test_long_cells_of_the_library_are_folded_under_their_names():
    from quarto_filter import LONG, reader_notebook

    def notebook(number, source):
        cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": []}
        return {"cells": [{"cell_type": "markdown", "source": f"# {number} A title", "metadata": {}}, cell]}

    work = "def _helper():\n    pass\n\n\ndef fit():\n    pass\n" + "# a line\n" * LONG
    text = lambda number, source: "".join(reader_notebook(notebook(number, source))["cells"][-1]["source"])
    for number in ("03", "14"):
        assert f'#| code-summary: "Code: fit ({len(work.splitlines())} lines)"' in text(number, "#| export\n" + work)
    for source in (work, "#| export\nx = 1"):
        assert "code-fold" not in text("14", source)


def test_formulas_become_mathml():
    assert "𝒢" in pages.formula(r"\mathcal G", "inline") and 'mathvariant="normal">&#x003A9;' in pages.formula(
        r"\Omega", "inline"
    )
    assert "arg" in (made := pages.formula(r"\arg\min_\pi s", "block")) and "\\" not in made
    assert pages.formula(r"\begin{aligned}a&=b\\c&=d\end{aligned}", "block").count("<mtr>") == 2


def test_the_check_of_a_built_site_sees_what_a_reader_trips_over():
    rendered = {"nbs/01_ranking.ipynb"}
    lines = site_check.known_cell(ROOT / "nbs" / "01_ranking.ipynb")
    block = lambda text: "<pre><code>" + text.replace("&", "&amp;").replace("<", "&lt;") + "</code></pre>"
    assert site_check.check_page("nbs/01_ranking.html", block("\n".join(lines)), rendered) == []
    lost, = site_check.check_page("nbs/01_ranking.html", block("".join(lines)), rendered)
    assert "line ends" in lost
    for bad, word in (
        (block("#| export\nx = 1"), "#| export"),
        ("<p>::: {.cell}</p>", ":::"),
        ('<a href="nbs/01_ranking.ipynb#x">1</a>', "page of this site"),
    ):
        line, = site_check.check_page("index.html", bad, rendered)
        assert word in line
    assert (
        site_check.check_page("index.html", '<a href="https://a.b/nbs/01_ranking.ipynb">1</a><p>fine</p>', rendered)
        == []
    )


def test_the_check_of_a_built_site_misses_the_card_of_a_link(tmp_path):
    address = pages.settings()["website"]["site-url"]
    (tmp_path / "index.html").write_text(f'<meta property="og:image" content="{address}/docs/images/card.png"><p>x')
    line, = site_check.check(tmp_path)
    assert "card.png" in line
    (tmp_path / "docs" / "images").mkdir(parents=True)
    (tmp_path / "docs" / "images" / "card.png").touch()
    assert site_check.check(tmp_path) == []


# --- the pages ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def site(tmp_path_factory):
    "The plain pages, built once for all workers of a run."
    from filelock import FileLock

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder, dead = shared / "pages", shared / "dead.json"
    with FileLock(shared / "pages.lock"):
        if not dead.exists():
            api.write()
            dead.write_text(json.dumps(pages.build(folder)))
    assert [line for line in json.loads(dead.read_text()) if not any(p in line for p in PROMISED)] == [], (
        "every link and every anchor leads somewhere"
    )
    return folder


@pytest.fixture(scope="module")
def address(site):
    "The site on a local server."
    with site_check.served(site) as where:
        yield where


HREFS = [page.href for page in pages.order()]


@pytest.mark.browser
def test_pages_are_built_whole(site):
    for href in HREFS:
        text = (site / href).read_text(encoding="utf-8")
        assert len(text) < 3_000_000, f"{href} is {len(text)} bytes"
        assert text.count("<h1") == 1, f"{href} has {text.count('<h1')} main headings"
        for word in ("export", "default_exp", "hide", "fig-alt", "code-fold"):
            assert f"#| {word}" not in text.replace("<code>#| export</code>", "").replace(
                "<code>#| default_exp</code>", ""
            ), f"{href} shows the directive {word}"
        assert 'class="tex"' not in text, f"{href} has a formula that could not be converted"
        assert not (left := re.findall(r"<m[io][^>]*>(\\[A-Za-z]+)<", text)), f"{href} draws {left} as it stands"


def test_the_ten_pages_that_are_looked_at_most_are_there():
    assert len(site_check.TEN) == 10 and {f"{name}.html" for name in site_check.TEN} <= set(HREFS)


def looked_at(folder):
    "What the check of a site says of a folder, as its status and its complaints."
    pytest.importorskip("axe_playwright_python", reason="axe-core comes with pip install axe-playwright-python")
    command = [sys.executable, str(ROOT / "tools" / "site_check.py"), str(folder), "--browser"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.browser
def test_the_check_of_the_site_finds_nothing(site, chromium):
    "Every page on a phone in light colours, ten in every width and theme."
    assert looked_at(site) == (0, "")


@pytest.mark.browser
def test_the_check_of_a_site_sees_what_is_wrong_in_a_browser(tmp_path, chromium):
    (tmp_path / "index.html").write_text(
        '<!doctype html><html lang="en"><title>A page</title><h1>A page</h1><p style="color:#bbb">pale</p>'
        '<div style="width:700px">wide</div><img src="no.png" alt=""><script>console.error("broken")</script>'
        '<img src="http://other.test/a.png" alt="elsewhere">'
    )
    status, found = looked_at(tmp_path)
    for word in ("scrolls sideways to", "picture without words", "404:", "console: broken", "from outside"):
        assert status == 1 and word in found, found
    assert found.count("color-contrast") == 4, "the page of a site is looked at in both widths and both themes"


@pytest.mark.browser
@pytest.mark.parametrize("href", [h for h in HREFS if h.startswith("nbs/") or h == "index.html"])
def test_every_slider_moves_its_picture(browser, address, href):
    with site_check.opened(browser, address, href, 1280, "light") as (tab, problems):
        for player in tab.locator("figure.player").all():
            moves(tab, player)
        for lab in tab.locator(".ranklab").all():
            lab_moves(tab, lab)
        assert problems == []


def moves(tab, player):
    "Every slider of a player shows another frame at its other end, and says so."
    for bar in player.locator("input[type=range]").all():
        first, last, before = (bar.get_attribute("min"), bar.get_attribute("max"), _shown(player))
        value = bar.input_value()
        if first == last:
            continue
        bar.focus()
        tab.keyboard.press("End" if value != last else "Home")
        assert bar.input_value() != value and _shown(player) != before, "the slider moved and the frame did not"
        assert (
            bar.get_attribute("aria-valuetext") == player.locator("output").first.inner_text()
            or player.locator("output").count() > 1
        )


def lab_moves(tab, lab):
    "Every slider of RankLab changes what it draws or says."
    for bar in lab.locator("input[type=range]:visible:enabled").all():
        value, before = (
            bar.input_value(),
            lab.evaluate("e => e.innerText + [...e.querySelectorAll('svg')].map(s => s.outerHTML).join('')"),
        )
        bar.focus()
        tab.keyboard.press("End" if value != bar.get_attribute("max") else "Home")
        tab.wait_for_function(
            "([e, old]) => e.innerText + [...e.querySelectorAll('svg')].map(s => s.outerHTML).join('') !== old",
            arg=[lab.element_handle(), before],
            timeout=10_000,
        )
        assert bar.input_value() != value


def _shown(player):
    "The frame that can be seen."
    return player.evaluate("""figure => [...figure.querySelectorAll('.frame, svg, canvas')]
        .filter(f => f.getClientRects().length && !f.parentElement.closest('.frame svg')).map(f => f.outerHTML).join('')""")  # noqa: E501


@pytest.mark.browser
def test_panels_stand_above_each_other_on_a_phone_and_still_move(browser, address):
    heights = "[...document.querySelectorAll('.player-stage.stacked .frame')].find(f => f.style.display !== 'none')"
    with site_check.opened(browser, address, "nbs/00_why.html", 390, "light") as (tab, problems):
        stages = tab.locator(".player-stage.stacked")
        assert stages.count() >= 2 and problems == []
        tops = tab.evaluate(f"[...{heights}.children].map(e => e.getBoundingClientRect().top)")
        assert len(tops) == 2 and tops[1] > tops[0] + 50
        player = tab.locator("figure.player").filter(has=tab.locator(".stacked")).first
        before, bar = stages.first.locator(".frame:visible").inner_html(), player.locator("input[type=range]")
        bar.press("End" if bar.input_value() != bar.get_attribute("max") else "Home")
        assert stages.first.locator(".frame:visible").inner_html() != before
    with site_check.opened(browser, address, "nbs/00_why.html", 1280, "light") as (tab, problems):
        assert tab.locator(".player-stage.stacked").count() == 0


@pytest.mark.browser
def test_a_link_to_a_paper_shows_its_entry(browser, address):
    with site_check.opened(browser, address, "nbs/03_smooth_ap.html", 1280, "light") as (tab, problems):
        link = tab.locator("a[data-note]").first
        link.focus()
        said = link.evaluate("e => getComputedStyle(e, '::after').content")
        assert "Brown, Xie, Kalogeiton and Zisserman (2020)" in said and problems == []


@pytest.mark.browser
def test_search_menu_and_theme(browser, address):
    tab = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark").new_page()
    tab.goto(f"{address}/nbs/03_smooth_ap.html")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark", "the system's choice holds at first"
    assert not tab.locator("#sidebar").is_visible()
    tab.locator("#menu").click()
    assert tab.locator("#sidebar [aria-current=page]").is_visible()
    tab.locator("#theme").click()
    tab.reload()
    assert tab.evaluate("document.documentElement.dataset.theme") == "light", "the reader's choice outlives the page"
    tab.keyboard.press("/")
    tab.keyboard.type("operating region")
    first = tab.locator("#found a").first
    first.wait_for()
    assert "operating region" in first.inner_text().lower()
    first.click()
    tab.wait_for_url("**/*#*")
    assert tab.locator(f"[id='{tab.evaluate('decodeURIComponent(location.hash.slice(1))')}']").count() == 1
    tab.context.close()


QUESTIONS = {
    "where do I see that AP has no gradient?": "nbs/02_average_precision.html#Why-AP-cannot-teach,-either",
    "what does tau do?": "nbs/03_smooth_ap.html#What-the-temperature-does",
    "how do I use it with my loader?": "docs/losses_in_your_loop.html",
    "what did they reach?": "index.html#What-it-reaches",
    "loss.backward": "index.html#Try-it",
    "smooth_ap(scores": "nbs/03_smooth_ap.html#In-vectors",
    "SmoothAPLoss": "docs/api/losses-smooth.html#SmoothAPLoss",
}


@pytest.mark.browser
def test_a_readers_questions_are_answered_by_the_first_results(browser, address):
    with site_check.opened(browser, address, "docs/start.html", 1280, "light") as (tab, problems):
        for question, wanted in QUESTIONS.items():
            tab.locator("#search").fill(question)
            tab.locator("#found a").first.wait_for()
            first = [link.get_attribute("href") for link in tab.locator("#found a").all()[:3]]
            assert f"../{wanted}" in first, question
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate("document.activeElement.getAttribute('href')") == first[0]
        tab.keyboard.press("Enter")
        tab.wait_for_url(f"**/{first[0].removeprefix('../')}")
        assert tab.locator(".highlight .copy").count() == tab.locator(".highlight").count() > 0
        assert problems == []


@pytest.mark.browser
def test_the_way_through_the_site(browser, address):
    "Next, next, next: every page once, in the order of the sidebar."
    tab = browser.new_page()
    tab.goto(f"{address}/index.html")
    seen = [tab.evaluate("location.pathname.slice(1)")]
    while tab.locator("a.next").count():
        tab.goto(tab.locator("a.next").evaluate("a => a.href"), wait_until="domcontentloaded")
        seen.append(tab.evaluate("location.pathname.slice(1)"))
        assert len(seen) <= len(HREFS)
    tab.close()
    assert seen == HREFS


@pytest.mark.browser
def test_pages_can_be_read_without_scripts(browser, address):
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto(f"{address}/nbs/03_smooth_ap.html")
    assert tab.locator("h1").inner_text().startswith("03") and tab.locator("#sidebar").is_visible()
    assert tab.locator("noscript img").count() or tab.locator(".picture img").count()
    tab.context.close()


def test_make_docs_has_one_script():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "docs.py"), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--plain" in done.stdout
