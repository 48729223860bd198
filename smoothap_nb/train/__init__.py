"""Training: settings, models, the loop, checkpoints. What a script of one's own needs can be imported from here."""

from importlib import import_module as _import_module

_HOME = {
    "config": ("Experiment", "load_experiment", "experiment_from_dict"),
    "setup": ("prepare", "dataset_for"),
    "state": ("Training",),
    "loop": ("fit", "advance"),
    "validation": ("look", "finish"),
    "runs": ("open_run", "load_run", "read_log"),
    "checkpoints": ("RunError", "save_model"),
    "embedding": ("embed",),
    "machine": ("environment", "pick_device", "place"),
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
