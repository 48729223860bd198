"""Write docs/solutions.md, the solutions of the problem sets, out of the source notebooks in course/.

    python tools/solutions.py           write the page
    python tools/solutions.py --check   say whether it is what the notebooks give
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from course import in_order

ROOT = Path(__file__).resolve().parent.parent
SOURCE, PAGE = ROOT / "course" / "source", ROOT / "docs" / "solutions.md"
HEAD = """# Solutions of the problem sets

One way to answer each task of the [course](https://github.com/smoothap-nb/smoothap_nb/blob/main/course/README.md), for those who learn alone. Try first: the checks in the sets say what went wrong and where to read. The lessons' own exercises are answered on
[another page](lesson_solutions.md).

This page is made from the source notebooks by `python tools/solutions.py`; the code on it is the code that the tests run. Whoever teaches a graded class with these sets should change a number or two: [how](teaching.md).
"""  # noqa: E501


def code(source: str) -> str:
    "A solution cell without nbgrader's markers."
    return "\n".join(
        line for line in source.split("\n") if not line.strip().startswith(("### BEGIN", "### END"))
    ).strip("\n")


def answers(path: Path) -> str:
    "Title, then each task with its reference solution."
    notebook, parts, task = nbformat.read(path, as_version=4), [], ""
    for cell in notebook.cells:
        marks = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "markdown" and not marks.get("solution"):
            if not parts:
                name = re.search(r"^# (.+)$", cell.source, re.M)[1]
                parts.append(
                    f"## {name}\n\n[The "
                    f"set]({path.stem}.md)"
                )
            headings = re.findall(r"^##+ (.+)$", cell.source, re.M)
            if headings:
                task = headings[-1]
        elif marks.get("solution"):
            heading, task = ([f"### {task}"] if task else []), ""
            answer = cell.source.strip() if cell.cell_type == "markdown" else f"```python\n{code(cell.source)}\n```"
            parts += [*heading, f"<details><summary>One answer</summary>\n\n{answer}\n\n</details>"]
    return "\n\n".join(parts) + "\n"


def page() -> str:
    "The whole page."
    return "\n".join([HEAD, *(answers(path) for path in in_order(SOURCE))])


if __name__ == "__main__":
    wanted = page()
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted
        print(
            f"{PAGE.relative_to(ROOT)} {'is' if same else 'is not'} what the notebooks "
            f"give{'' if same else ': python tools/solutions.py'}"
        )
        sys.exit(not same)
    PAGE.write_text(wanted, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {wanted.count('```python')} solutions")
