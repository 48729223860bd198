"""The study of the papers' claims as data: which pieces there are, and which can be done now.

Everything here is a function of the plan (papers/claims.toml) and of the rows that are there. A piece is one training
of at most a few minutes; which pieces come next (a grid that widens, ablations from tuned settings) follows from the
rows, so that a study goes on wherever it was stopped, on another machine too. A network's pieces come together, so that
a machine which begins anew trains again only the networks of which pieces are left.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from .recipes import read_papers

__all__ = [
    "Piece",
    "read_plan",
    "plan_hash",
    "pieces",
    "best_cell",
    "grid_cells",
    "rows_of_cell",
    "best_settings",
    "estimate",
]


@dataclass(frozen=True)
class Piece:
    "One training (or extraction), and where its row goes."

    name: str
    kind: str  # "pretext", "features", "start", "tune", "length", "main", "retune", "ablation", "e-tune", "e-main"
    track: str = "f"
    method: str = ""
    network: int = 0
    seed: int = 0
    split: str = "val"
    steps: int = 0
    settings: tuple = ()  # ((key, value), ...): rate, proxy_rate, classes, images, loss.NAME


def read_plan(changes: dict | None = None) -> dict:
    """The plan: claims.toml.

    Args:
        changes: tables to merge over it, {"track-f": {"steps": 2}}; those of methods and ablations take their place.
            The hash then is another.
    """
    plan = dict(read_papers("claims.toml"))
    for table, values in (changes or {}).items():
        plan[table] = values if table in ("methods", "ablations") else {**plan[table], **values}
    return plan


def plan_hash(plan: dict) -> str:
    "Sixteen digits that change with any word of the plan."
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def grid_cells(plan: dict, method: str) -> list[tuple[int, int]]:
    "The cells (place of the rate, place of the own setting) that are tried at first."
    (a, b), (c, d) = plan["track-f"]["first_rates"], plan["methods"][method]["first"]
    return [(i, j) for i in range(a, b + 1) for j in range(c, d + 1)]


def _tune_name(method: str, cell: tuple[int, int], seed: int) -> str:
    return f"tune/{method}/{cell[0]},{cell[1]}/seed{seed}"


def rows_of_cell(plan: dict, rows: dict, method: str, cell: tuple[int, int]) -> list[dict]:
    "A cell's tuning rows, one for each seed; empty while one is missing."
    found = [rows.get(_tune_name(method, cell, seed)) for seed in plan["track-f"]["tune_seeds"]]
    return [row for row in found if row] if all(found) else []


def _cell_settings(plan: dict, method: str, cell: tuple[int, int]) -> tuple:
    entry = plan["methods"][method]
    own = [k if k == "proxy_rate" else f"loss.{k}" for k in entry["knob"].split("+")]
    fixed = (("proxy_rate", entry["proxy_rate"]),) if "proxy_rate" in entry else ()
    return (("rate", plan["track-f"]["rates"][cell[0]]), *fixed, *((k, entry["axis"][cell[1]]) for k in own))


def _score(plan: dict, method: str, row: dict) -> float:
    return row["values"].get(plan["methods"][method].get("select", "mAP"), -1.0) if row.get("values") else -1.0


def best_cell(plan: dict, rows: dict, method: str) -> tuple[tuple[int, int], set]:
    """The best cell of those with all seeds, and its neighbours that are still to be tried.

    The grid is wide enough when no neighbour is left: the best is inside, or at an end of what can be tried.
    """
    scores = {}
    for i in range(len(plan["track-f"]["rates"])):
        for j in range(len(plan["methods"][method]["axis"])):
            if found := rows_of_cell(plan, rows, method, (i, j)):
                scores[i, j] = sum(_score(plan, method, row) for row in found) / len(found)
    best = max(scores, key=lambda cell: scores[cell])
    around = {(best[0] + a, best[1] + b) for a, b in ((-1, 0), (1, 0), (0, -1), (0, 1))}
    inside = {
        (i, j)
        for i, j in around
        if 0 <= i < len(plan["track-f"]["rates"]) and 0 <= j < len(plan["methods"][method]["axis"])
    }
    return best, inside - set(scores)


def best_settings(plan: dict, rows: dict, method: str) -> tuple:
    "The settings of a method whose tuning is done."
    return _cell_settings(plan, method, best_cell(plan, rows, method)[0])


def _tuning(plan: dict, rows: dict, method: str) -> list[Piece]:
    "Tuning runs that are to be done now; none when the tuning is complete."
    make = lambda cells: [
        Piece(
            _tune_name(method, cell, seed), "tune", "f", method, 0, seed, "val", plan["track-f"]["steps"],
            _cell_settings(plan, method, cell),
        )
        for cell in sorted(cells)
        for seed in plan["track-f"]["tune_seeds"]
    ]  # fmt: skip
    left = [p for p in make(grid_cells(plan, method)) if p.name not in rows]
    return left or [p for p in make(best_cell(plan, rows, method)[1]) if p.name not in rows]


def _after_tuning(plan: dict, rows: dict, method: str) -> list[Piece]:
    "What follows the tuning of a method: twice the steps for the admission, the comparison, its ablations."
    table, best, out = plan["track-f"], best_settings(plan, rows, method), []
    for seed in table["tune_seeds"]:
        out.append(
            Piece(f"length/{method}/seed{seed}", "length", "f", method, 0, seed, "val", 2 * table["steps"], best)
        )
    for network in range(plan["networks"]["count"]):
        for seed in table["seeds"]:
            name = f"main/{method}/net{network}/seed{seed}"
            out.append(Piece(name, "main", "f", method, network, seed, "test", table["steps"], best))
    for name, entry in plan["ablations"].items():
        if entry["method"] == method:
            for number in range(len(entry["points"])):
                out += _ablation(plan, rows, name, number, best)
    return [p for p in out if p.name not in rows]


def point_name(plan: dict, name: str, number: int) -> str:
    "An ablation's point as the claims call it: tau/tau=0.01."
    entry = plan["ablations"][name]
    value = entry["values"][number] if "values" in entry else list(entry["points"][number].values())[-1]
    return f"{name}/{entry['label']}={value:g}"


def _ablation(plan: dict, rows: dict, name: str, number: int, best: tuple) -> list[Piece]:
    "A point's runs: three rates anew on network 0; then, with the best of them, once on every network."
    entry, rates, point = plan["ablations"][name], plan["track-f"]["rates"], point_name(plan, name, number)
    settings = dict(entry["points"][number])
    steps = round(plan["track-f"]["steps"] * settings.pop("steps", 1.0))
    middle = min(max(rates.index(dict(best)["rate"]), 1), len(rates) - 2)
    tries = {}
    for rate in rates[middle - 1 : middle + 2]:
        given = tuple((dict(best) | settings | {"rate": rate}).items())
        tries[f"retune/{point}/rate={rate:g}"] = given
    tuning = [
        Piece(k, "retune", "f", entry["method"], 0, 0, "val", steps, v) for k, v in tries.items() if k not in rows
    ]
    if tuning:
        return tuning
    chosen = tries[max(tries, key=lambda k: _score(plan, entry["method"], rows[k]))]
    return [
        Piece(f"{point}/net{k}", "ablation", "f", entry["method"], k, 0, "test", steps, chosen)
        for k in range(plan["networks"]["count"])
    ]


def _fine_tuning(plan: dict, rows: dict, method: str) -> list[Piece]:
    "Track E of one method: the network's rate on validation characters, then runs on each network."
    table, best = plan["track-e"], best_settings(plan, rows, method)
    tries = {
        f"e-tune/{method}/network_rate={share:g}": (*best, ("network_rate", share)) for share in table["network_rate"]
    }
    short = max(1, table["steps"] // 5)
    left = [Piece(k, "e-tune", "e", method, 0, 0, "val", short, v) for k, v in tries.items() if k not in rows]
    if left:
        return left
    chosen = tries[max(tries, key=lambda k: _score(plan, method, rows[k]))]
    every = [
        Piece(f"e/{method}/net{k}/seed{seed}", "e-main", "e", method, k, seed, "test", table["steps"], chosen)
        for k in table["networks"]
        for seed in table["seeds"]
    ]
    return [p for p in every if p.name not in rows]


def _foundation(rows: dict, network: int, tracks: str) -> list[Piece]:
    "What everything on a network stands on: its training; for track F its features and what they reach alone."
    if f"pretext/net{network}" not in rows:
        return [Piece(f"pretext/net{network}", "pretext", network=network, seed=network)]
    if "f" not in tracks:
        return []
    if f"features/net{network}" not in rows:
        return [Piece(f"features/net{network}", "features", network=network)]
    starts = [Piece(f"start/net{network}/{s}", "start", network=network, split=s) for s in ("val", "test")]
    return [p for p in starts if p.name not in rows]


def pieces(plan: dict, rows: dict, tracks: str = "fe") -> list[Piece]:
    """The pieces that can be done now, in the order to do them; empty when the study is done.

    Network by network, and on each method by method (tuning, admission, comparison, ablations), then track E. So a
    worker goes on to the next network only when all that is left of the ones before is done or in other hands.

    Args:
        plan: of `read_plan`.
        rows: of all tracks, by name.
        tracks: "fe", "f" for the features alone, or "e" for whole networks with settings that are tuned already.
    """
    networks = range(plan["networks"]["count"])
    out, tuned = [p for k in networks for p in _foundation(rows, k, tracks)], []
    ready = {k for k in networks if f"features/net{k}" in rows}
    for method in plan["methods"] if 0 in ready or "f" not in tracks else ():
        left = _tuning(plan, rows, method)
        tuned += [] if left else [method]
        if "f" in tracks:
            out += left or [p for p in _after_tuning(plan, rows, method) if p.network in ready]
    if "e" in tracks:
        for method in plan["track-e"]["methods"]:
            if method in tuned:
                out += [p for p in _fine_tuning(plan, rows, method) if f"pretext/net{p.network}" in rows]
    return sorted(out, key=lambda piece: piece.network)


def estimate(plan: dict, workers: int = 2) -> dict[str, float]:
    """Hours of the whole plan on idle cores, one worker a core, by stage.

    Args:
        plan: of `read_plan`.
        workers: side by side.
    """
    f, e, methods = plan["track-f"]["seconds"], plan["track-e"]["seconds"], len(plan["methods"])
    networks, points = plan["networks"]["count"], sum(len(a["points"]) for a in plan["ablations"].values())
    cells = sum(len(grid_cells(plan, m)) + 3 for m in plan["methods"])  # a grid is widened by three cells on average
    seeds = len(plan["track-f"]["tune_seeds"])
    tracked = len(plan["track-e"]["methods"])
    stages = {
        "networks and features": networks * (f["pretext"] + f["features"] + 2 * f["start"]),
        "track F": cells * seeds * f["tune"]
        + methods * (seeds * f["length"] + networks * len(plan["track-f"]["seeds"]) * f["main"]),
        "ablations": points * (3 * f["tune"] + networks * f["main"]),
        "track E": tracked
        * (
            len(plan["track-e"]["network_rate"]) * e["tune"]
            + len(plan["track-e"]["networks"]) * len(plan["track-e"]["seeds"]) * e["main"]
        ),
    }
    return {name: round(seconds / workers / 3600, 2) for name, seconds in stages.items()}
