"""Write docs/references.md from docs/references.bib, and tell the site what a link to a paper leads to.

    python tools/references.py            write the page
    python tools/references.py --check    say whether it is as it should be

Standard library only: Quarto runs tools/links.py, which asks here for the notes of links, and its Python may have no
other.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import dataclass

from quarto_filter import ROOT

BIB = ROOT / "docs" / "references.bib"
PAGE = ROOT / "docs" / "references.md"
ACCENTS = {"'": "\u0301", "v": "\u030c", "`": "\u0300", '"': "\u0308", "^": "\u0302", "~": "\u0303"}
HEAD = """# The papers

What the lessons and guides cite. A link to one of these papers, on any page of the site, shows its entry when it is
pointed at or reached by keyboard. All of it as one file: [references.bib](references.bib).
"""


@dataclass
class Entry:
    "One paper."

    key: str
    fields: dict[str, str]
    bibtex: str

    @property
    def authors(self) -> str:
        names = [name.partition(",")[0] for name in self.fields["author"].split(" and ")]
        if names[-1] == "others":
            return f"{names[0]} et al."
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    @property
    def venue(self) -> str:
        "Its short name, where the full one has it in brackets."
        where = self.fields.get("booktitle") or self.fields["journal"]
        return short[1] if (short := re.search(r"\(([^()]+)\)", where)) else where

    @property
    def note(self) -> str:
        "One line: who, when, what, where."
        stop = "" if self.fields["title"].endswith("?") else "."
        return f"{self.authors} ({self.fields['year']}). {self.fields['title']}{stop} {self.venue}."


def plain(text: str) -> str:
    "BibTeX's accents and braces as characters."
    text = re.sub(r"\{?\\(['v`\"^~])\{?(\w)\}?\}?", lambda m: unicodedata.normalize("NFC", m[2] + ACCENTS[m[1]]), text)
    return re.sub(r"[{}]", "", text)


def entries() -> list[Entry]:
    "Every entry of docs/references.bib, in its order."
    found = []
    for text in re.findall(r"(?ms)^@\w+\{.*?^\}", BIB.read_text(encoding="utf-8")):
        key = re.match(r"@\w+\{([^,]+),", text)[1]
        fields = re.findall(r"(?m)^  (\w+)\s*=\s*\{(.*)\},?$", text)
        found.append(Entry(key, {name: value if name == "url" else plain(value) for name, value in fields}, text))
    return found


def notes() -> dict[str, str]:
    "The address of a paper -> what to say of it in one line."
    return {entry.fields["url"]: entry.note for entry in entries()}


def page() -> str:
    "docs/references.md: by first author and year, each with its BibTeX to fold out and copy."
    parts = [HEAD]
    for entry in sorted(entries(), key=lambda e: (e.authors.casefold(), e.fields["year"])):
        parts.append(
            f"**{entry.authors}** ({entry.fields['year']}). [{entry.fields['title']}]({entry.fields['url']})"
            f"{'' if entry.fields['title'].endswith('?') else '.'} "
            f"*{entry.venue}.*\n\n"
            f"<details><summary>BibTeX</summary>\n\n```bibtex\n{entry.bibtex}\n```\n\n</details>\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE} is old: python tools/references.py")
    PAGE.write_text(page(), encoding="utf-8")
