"""Names that a person typed: the nearest known one, and the error that says so. Without torch: a typo is answered at
once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["ConfigError", "nearest"]

MANY = 24  # names that are still a list to read


class ConfigError(ValueError):
    "A setting that cannot be used; the message names it and the mend."


def nearest(word: str, known: Iterable) -> str:
    "'did you mean X?' where a known word is near, else which words there are."
    known = sorted(map(str, known))
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), lower, n=1, cutoff=0.6)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    if len(known) > MANY:
        return f"known are {len(known)} names, {', '.join(known[:3])}, ... among them"
    return f"known: {', '.join(known)}"
