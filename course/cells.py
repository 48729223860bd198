"""What happens to the cells of a submission around the grading: lost marks of cells are found again, locked cells put
back, copies told apart; and nothing is stored that would run in the browser of whoever reads it.
"""

from __future__ import annotations

import ast
import html
import re
from copy import deepcopy
from pathlib import Path

import nbformat
import nh3
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from nbgrader.preprocessors import NbGraderPreprocessor

TAGS = {
    "a",
    "abbr",
    "b",
    "blockquote",
    "br",
    "code",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "img",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "small",
    "span",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
}
ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title", "width", "height"},
    "td": {"colspan", "rowspan", "align"},
    "th": {"colspan", "rowspan", "align"},
    "ol": {"start"},
}
PICTURES = {"image/png", "image/jpeg"}
MATHS = re.compile(
    r"\\(href|require|unicode|class|style|cssId|data|def|let|newcommand|renewcommand|newenvironment|Newextarrow|includegraphics|url)(?![A-Za-z])"
)


def clean(page: str) -> str:
    """HTML by an allow-list: no scripts, styles, frames or forms, links of http, https and mailto, pictures that
    come with the page.
    """

    def keep(tag, name, value):
        if (tag, name) == ("img", "src"):
            return value if re.match(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=\s]*$", value) else None
        return value

    return nh3.clean(
        page,
        tags=TAGS,
        attributes=ATTRIBUTES,
        url_schemes={"http", "https", "mailto", "data"},
        attribute_filter=lambda t, n, v: (
            None if (t, n) == ("a", "href") and v.strip().lower().startswith("data:") else keep(t, n, v)
        ),
        link_rel="noopener noreferrer nofollow",
    )


def harmless(markdown: str) -> str:
    """A cell's Markdown, rendered and cleaned, as one block of HTML that Markdown leaves alone: brackets and backticks
    of the text are written as entities, which are never syntax, and no line is blank.
    """
    markdown = MATHS.sub(
        lambda command: "\\text{" + command[1] + "}", markdown
    )  # of MathJax: links, styles, names made anew
    page = clean(markdown2html_mistune(markdown))
    parts = re.split(r"(<[^>]*>)", page)  # cleaned: every < and > of the text is an entity
    page = "".join(
        p if p.startswith("<") else p.replace("[", "&#91;").replace("]", "&#93;").replace("`", "&#96;") for p in parts
    )
    return "<div>\n" + re.sub(r"\n(?=[ \t]*\n)", "\n&#8203;", page.strip()) + "\n</div>"


class FindCells(NbGraderPreprocessor):
    """Gives back to cells the marks that an editor has dropped: by the id of the cell, else by the function that
    it defines.
    """

    def preprocess(self, nb, resources):
        source = source_of(self, resources)
        wanted = {grade_id_of(c): c for c in source.cells if grade_id_of(c)}
        for cell in nb.cells:
            if "nbgrader" in cell.metadata and grade_id_of(cell) not in wanted:
                del cell.metadata["nbgrader"]  # marks of no cell of the set
            elif "nbgrader" in cell.metadata:
                cell.metadata["nbgrader"] = deepcopy(wanted[grade_id_of(cell)].metadata.nbgrader)
        for grade_id, cell in wanted.items():
            if any(grade_id_of(c) == grade_id for c in nb.cells):
                continue
            bare = [c for c in nb.cells if not grade_id_of(c) and c.cell_type == cell.cell_type]
            same = [c for c in bare if c.get("id") == cell.get("id")]
            if not same and cell.cell_type == "code" and cell.metadata.nbgrader.solution:
                same = [c for c in bare if defined(cell.source) & defined(c.source)]
            if same:
                same[-1].metadata["nbgrader"] = deepcopy(cell.metadata.nbgrader)
        return nb, resources


class OneOfEach(NbGraderPreprocessor):
    """Of an answer and its copies the last one counts that is not blank, as in the student's own notebook; the
    others lose their marks, blank copies go.
    """

    def preprocess(self, nb, resources):
        blank = {grade_id_of(c): released(c) for c in source_of(self, resources).cells if grade_id_of(c)}
        for grade_id in {grade_id_of(c) for c in nb.cells} - {None}:
            copies = [c for c in nb.cells if grade_id_of(c) == grade_id]
            answered = [c for c in copies if c.source.strip() != blank.get(grade_id, "").strip()] or copies
            for cell in copies:
                if cell is not answered[-1]:
                    del cell.metadata["nbgrader"]
                    cell.source = "" if cell.source.strip() == blank.get(grade_id, "").strip() else cell.source
        return nb, resources


class RestoreCells(NbGraderPreprocessor):
    "Puts back locked cells (imports, tests) that a student has deleted."

    def preprocess(self, nb, resources):
        place = 0
        for wanted in source_of(self, resources).cells:
            grade_id = grade_id_of(wanted)
            if grade_id is None:
                continue
            here = [n for n, cell in enumerate(nb.cells) if grade_id_of(cell) == grade_id]
            if here:
                place = here[0] + 1
            elif wanted.metadata.nbgrader.locked:
                nb.cells.insert(place, deepcopy(wanted))
                place += 1
        return nb, resources


class Harmless(NbGraderPreprocessor):
    """After the marks were given: nothing stays in the stored notebook that would run in the browser of whoever
    reads it.
    """

    def preprocess(self, nb, resources):
        nb.metadata = nbformat.from_dict(
            {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
                "language_info": {"name": "python"},
            }
        )
        known = {text_of(c) for c in source_of(self, resources).cells}
        for cell in nb.cells:
            cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k == "nbgrader"})
            cell.pop("attachments", None)
            if cell.cell_type == "raw":
                cell.cell_type, cell.source = "markdown", f"<pre>{html.escape(cell.source)}</pre>"
            if cell.cell_type == "markdown" and text_of(cell) not in known:
                cell.source = harmless(cell.source)
            for output in cell.get("outputs", []):
                if "data" in output:
                    output["data"] = {
                        kind: harmless_data(kind, value)
                        for kind, value in output["data"].items()
                        if kind in PICTURES | {"text/plain"}
                    }
                    output["metadata"] = {}
        return nb, resources


def harmless_data(kind: str, value):
    "An output's text as it is, a picture as base64 and nothing else."
    text = value if isinstance(value, str) else "".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if kind == "text/plain" else re.sub(r"[^A-Za-z0-9+/=\n]", "", text)


def text_of(cell) -> tuple[str, str]:
    "What stands in a cell; the teacher's own cells are known by it."
    return cell.cell_type, cell.source.strip()


def source_of(step: NbGraderPreprocessor, resources):
    "The teacher's notebook of the set that is graded."
    names = resources["nbgrader"]
    return nbformat.read(
        Path(step.config.CourseDirectory.root) / "source" / names["assignment"] / f"{names['notebook']}.ipynb",
        as_version=4,
    )


def released(cell) -> str:
    "A cell as students get it."
    from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions

    nb = nbformat.v4.new_notebook(
        cells=[deepcopy(cell)],
        metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}},
    )
    for step in (ClearSolutions(enforce_metadata=False), ClearHiddenTests(enforce_metadata=False)):
        nb, _ = step.preprocess(nb, {})
    return nb.cells[0].source


def grade_id_of(cell) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def defined(source: str) -> set[str]:
    "Names of the functions and classes that a cell defines at its top."
    try:
        return {n.name for n in ast.parse(source).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
