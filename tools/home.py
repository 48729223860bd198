"""Write `_home.md`, the part of the first page that moves: RankLab, alive, before the README. Made when the site is
built, never committed.
"""

from __future__ import annotations

from quarto_filter import ROOT

PATH = ROOT / "_home.md"

TEXT = """
**In five minutes**: drag a picture in the row below and watch which number moves and which does not; then read [why AP cannot be trained on](nbs/00_why.ipynb), one page
with five moving figures. **In thirty**: the lessons [01](nbs/01_ranking.ipynb), [02](nbs/02_average_precision.ipynb) and [03](nbs/03_smooth_ap.ipynb), without a line to install. **In a week**: a
[course](docs/teaching.md) with problem sets that check themselves, and a network of your own that finds characters it has never seen.
"""  # noqa: E501


def write() -> None:
    "RankLab as HTML of its own, without a kernel: the browser computes."
    from smoothap_nb.show.ranklab import rank_lab_html

    text = f"{TEXT.strip()}\n\n````{{=html}}\n{rank_lab_html()}\n````\n"
    if not PATH.exists() or PATH.read_text(encoding="utf-8") != text:
        PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
