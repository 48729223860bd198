"""The papers' numbers and claims: recipes, runs, results, and the study on Glyphs."""

from importlib import import_module as _import_module

_HOME = {
    "recipes": (
        "PAPERS",
        "LEVELS",
        "Entry",
        "nest",
        "read_papers",
        "row_name",
        "registry",
        "find_entry",
        "find_entries",
        "show_entry",
        "paper_rows",
        "in_tables",
        "entries_for",
        "key_of",
        "printed",
        "weighted_ap",
        "obtained",
    ),
    "runner": ("MINIATURE", "miniature_settings", "changed_settings", "measure_protocols", "reproduce"),
    "times": ("measure_times",),
    "costs": ("CARDS", "PICTURES_PER_CORE", "cost_of", "bottleneck", "cost_in_words", "as_toml"),
    "results": ("keep", "runs_of", "read_runs", "read_rows", "against_paper"),
    "page": ("reproduction_page", "obtained_table", "too_early_table", "from_nothing", "mean_and_range"),
    "figures": ("claims_figure", "replication_figure", "movers_figure"),
    "statistics": ("character_error",),
    "verdicts": ("SMALLEST", "VERDICTS", "Paired", "Decision", "paired_difference", "decide_claims", "holm"),
    "conduct": ("Study",),
    "standing": ("read_study", "decided", "verdicts_table", "tuning_table", "comparison_table", "movers"),
    "replication": ("read_decided", "same_and_other"),
    "referee": ("Admission", "ClaimVerdict", "admission", "difference_of", "images_of", "verdicts_of", "power_of"),
}
_HOME = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})
