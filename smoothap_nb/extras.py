"""Which extra brings a package that is missing: `pip install 'smoothap_nb[train]'` and its like. Imports nothing, so
that it works where nothing else does.
"""

from __future__ import annotations

# other people's package -> the extra that brings it; torch, numpy and tqdm come with smoothap_nb itself
EXTRAS = {
    **dict.fromkeys(("torchvision", "numba", "matplotlib", "PIL", "safetensors", "accelerate", "tensorboard"), "train"),
    **dict.fromkeys(("typer", "jinja2"), "cli"),
    **dict.fromkeys(("ipywidgets", "anywidget", "timm", "torchmetrics"), "all"),
    **dict.fromkeys(("cv2", "faiss", "scipy"), "local"),
    "transformers": "text",
}


def which_extra(error: ModuleNotFoundError, what: str) -> str:
    "What to install, in one line; the error's own text where it is none of ours."
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return str(error)
    return f"{what} needs {package}: pip install 'smoothap_nb[{EXTRAS[package]}]'"


def need(package: str, what: str):
    """Import somebody else's package that an extra brings.

    Args:
        package: its import name.
        what: of ours needs it.

    Raises:
        ImportError: it is missing; one line that names the extra.
    """
    from importlib import import_module

    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ImportError(which_extra(error, what)) from error
