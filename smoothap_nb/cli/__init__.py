"The command line: `smoothap`, or `python -m smoothap_nb.cli`."

from .commands import app, main

__all__ = ["app", "main"]
