"What the site's readers see of a notebook: no directive, no steering cell, alternative text where Quarto looks for it."

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("[0-9]*.ipynb")), ids=lambda p: p.stem)
def test_no_directive_reaches_the_reader(path):
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "quarto_filter.py"], input=path.read_bytes(), capture_output=True, check=True
    )
    nb, before = json.loads(done.stdout), json.loads(path.read_text(encoding="utf-8"))
    assert all(isinstance(c["source"], list) for c in nb["cells"]), (
        "Quarto loses the line ends of a source that is one string"
    )
    assert all(line.endswith("\n") for c in nb["cells"] for line in c["source"][:-1])
    sources = ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code"]
    assert not any(
        word in line
        for s in sources
        for line in s.splitlines()
        if line.startswith("#|")
        for word in ("export", "default_exp", "hide")
    )
    live = sum(
        "<figure" in "".join(o.get("data", {}).get("text/html", ""))
        for c in before["cells"]
        for o in c.get("outputs", [])
    )
    assert 0 < len(nb["cells"]) <= len(before["cells"]) + live
    assert not any(
        "<script" in "".join(o.get("data", {}).get("text/html", "")) for c in nb["cells"] for o in c.get("outputs", [])
    ), "Quarto asks other hosts for jQuery"


def test_alt_text_becomes_an_option():
    from quarto_filter import reader_notebook

    cell = {
        "cell_type": "code",
        "source": ["#| export\n", "x = 1"],
        "metadata": {},
        "outputs": [
            {
                "output_type": "display_data",
                "data": {"image/png": "..."},
                "metadata": {"image/png": {"alt": 'the "step"'}},
            }
        ],
    }
    steer = {"cell_type": "code", "source": "#| default_exp ranking", "metadata": {}, "outputs": []}
    out = reader_notebook({"cells": [steer, cell], "nbformat": 4})
    assert [c["source"] for c in out["cells"]] == [
        ['#| fig-alt: "the \\"step\\""\n', '#| fig-cap: "The \\"step\\"."\n', "x = 1"]
    ]


def test_a_cell_that_only_draws_is_folded_and_keeps_its_picture():
    from quarto_filter import reader_notebook

    picture = {
        "output_type": "display_data",
        "data": {"image/png": "..."},
        "metadata": {"image/png": {"alt": "a step"}},
    }
    cell = {"cell_type": "code", "source": "# Code of the figure\nplot(x)", "metadata": {}, "outputs": [picture]}
    shown, = reader_notebook({"cells": [cell], "nbformat": 4})["cells"]
    assert (
        "".join(shown["source"])
        == '#| fig-alt: "a step"\n#| fig-cap: "A step."\n#| code-fold: true\n#| code-summary: Code of the '
           'figure\nplot(x)'
    )
    assert shown["outputs"][0]["data"] == picture["data"]


def test_a_caption_that_the_prose_gives_stands_alone():
    from quarto_filter import reader_notebook

    picture = {
        "output_type": "display_data",
        "data": {"image/png": "..."},
        "metadata": {"image/png": {"alt": "a step (still picture at tau = 1)"}},
    }
    cell = {"cell_type": "code", "source": "plot(x)", "metadata": {}, "outputs": [picture]}
    prose = {"cell_type": "markdown", "source": "*Figure 1.1.* A step.", "metadata": {}}
    alone, followed = (
        "".join(reader_notebook({"cells": cells, "nbformat": 4})["cells"][0]["source"])
        for cells in ([cell], [cell, prose])
    )
    assert '#| fig-cap: "A step."' in alone and "fig-cap" not in followed and "fig-alt" in followed


def figure(alt: str) -> dict:
    shown = {"output_type": "display_data", "data": {"image/png": "..."}, "metadata": {"image/png": {"alt": alt}}}
    return {"cell_type": "code", "source": ["draw()"], "metadata": {}, "outputs": [shown]}


def test_figures_of_a_lesson_are_numbered_in_their_order():
    from quarto_filter import reader_notebook

    title = {"cell_type": "markdown", "source": ["# 12b Sampling"], "metadata": {}}
    cells = reader_notebook({"cells": [title, figure("one"), figure("two")], "nbformat": 4})["cells"]
    heads = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert '#| fig-cap: "Figure 12b.1. One."' in heads[0] and '#| fig-cap: "Figure 12b.2. Two."' in heads[1]


def test_a_lesson_that_numbers_its_figures_itself_gets_no_second_number():
    from quarto_filter import reader_notebook

    title = {"cell_type": "markdown", "source": ["# 03 Smooth-AP"], "metadata": {}}
    said = {"cell_type": "markdown", "source": ["*Figure 3.1.* What it shows."], "metadata": {}}
    cells = reader_notebook({"cells": [title, figure("one"), said, figure("two")], "nbformat": 4})["cells"]
    heads = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert "fig-cap" not in heads[0] and '#| fig-cap: "Two."' in heads[1]
