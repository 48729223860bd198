"""What a study of the claims decided on an earlier set of networks, kept as one small file: does it come out again?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ..checks import ConfigError, reason
from ..files import write_atomic
from .referee import ClaimVerdict
from .verdicts import Decision, Paired

__all__ = ["write_decided", "read_decided", "same_and_other"]


def write_decided(path, verdicts: Sequence[ClaimVerdict], about: dict) -> int:
    """Keep what was decided; claims that were not are left out.

    Args:
        path: of the JSON file.
        verdicts: of `decided`.
        about: where the rows are: commit, plan, machines.

    Returns:
        how many claims.
    """
    claims = [
        {
            **{key: v.claim[key] for key in ("text", "source", "metric")},
            **asdict(v.decision),
            "pairs": [{"better": a, "worse": b, **asdict(pair)} for a, b, pair in v.pairs],
        }
        for v in verdicts
        if v.decision is not None
    ]
    write_atomic(Path(path), json.dumps({**about, "claims": claims}, indent=1, ensure_ascii=False) + "\n")
    return len(claims)


def read_decided(path) -> tuple[dict[str, ClaimVerdict], dict]:
    """What was decided before, by the text of the claim, and where its rows are; both empty where no file is.

    Args:
        path: of a file of `write_decided`.

    Raises:
        ConfigError: a file that is damaged.
    """
    if not Path(path).exists():
        return {}, {}
    try:
        about = json.loads(Path(path).read_text(encoding="utf-8"))
        found = {}
        for kept in about.pop("claims"):
            pairs = [(pair.pop("better"), pair.pop("worse"), Paired(**pair)) for pair in kept.pop("pairs")]
            decision = Decision(*(kept.pop(key) for key in ("verdict", "p_direction", "p_equivalent")))
            found[kept["text"]] = ClaimVerdict(kept, decision.verdict, tuple(pairs), decision)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {reason(error)}. Take the committed file back") from None
    return found, about


def same_and_other(now: Sequence[ClaimVerdict], before: Mapping[str, ClaimVerdict]) -> tuple[list[str], list[str], int]:
    """Which verdicts came out again.

    Args:
        now: of `decided`.
        before: of `read_decided`.

    Returns:
        texts of the claims decided both times with the same verdict, those with another, and how many of the latter
        turned round (holds against contradicted).
    """
    both = [(v, before[v.claim["text"]]) for v in now if v.decision is not None and v.claim["text"] in before]
    other = [(v, old) for v, old in both if v.verdict != old.verdict]
    turned = sum({v.verdict, old.verdict} == {"holds", "contradicted"} for v, old in other)
    names = [v.claim["text"] for v, _ in other]
    return [v.claim["text"] for v, _ in both if v.claim["text"] not in names], names, turned
