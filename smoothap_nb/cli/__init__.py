"The command line: `smoothap`, or `python -m smoothap_nb.cli`."

import sys

from ..extras import which_extra


def main() -> None:
    "Entry point: run a command, tell an input's fault in one line, exit with 2."
    try:
        from .commands import run
    except ModuleNotFoundError as error:
        print(f"error: {which_extra(error, 'the command smoothap')}", file=sys.stderr)
        sys.exit(2)
    run()
