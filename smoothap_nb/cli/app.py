"""What every command shares: the application, a line for the person at the terminal, a table, common options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

__all__ = ['app', 'say', 'table', 'run', 'exit_codes_of_signals', 'Cpu', 'Fresh', 'Quiet']

app = typer.Typer(
    help="Ranking losses for image retrieval: train, evaluate, search.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"smoothap-nb {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and leave.")
    ] = False,
) -> None:
    "Ranking losses for image retrieval: train, evaluate, search."


# options of several commands
Cpu = Annotated[bool, typer.Option("--cpu", help="Use the CPU even where a CUDA device is found.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete what a run wrote there, and start over.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]


def say(text: str) -> None:
    "A line for the person at the terminal."
    typer.echo(text)


def table(metrics: dict[str, dict]) -> str:
    "Metrics of several competitors as aligned columns."
    keys = [k for k in next(iter(metrics.values())) if not k.endswith("queries_skipped")]
    width = max(map(len, metrics)) + 2
    if len(keys) > 12:  # several tests: a line for each metric
        lines = [f"{'':<{max(map(len, keys)) + 2}}" + "".join(f"{name:>{max(7, len(name)) + 2}}" for name in metrics)]
        return "\n".join(
            lines
            + [
                f"{k:<{max(map(len, keys)) + 2}}"
                + "".join(f"{row[k]:>{max(7, len(name)) + 2}.3f}" for name, row in metrics.items())
                for k in keys
            ]
        )
    lines = [" " * width + "".join(f"{k:>{max(7, len(k)) + 2}}" for k in keys)]
    lines += [
        f"{name:<{width}}" + "".join(f"{row[k]:>{max(7, len(k)) + 2}.3f}" for k in keys)
        for name, row in metrics.items()
    ]
    return "\n".join(lines)


@contextmanager
def exit_codes_of_signals() -> Iterator[None]:
    "End with 128 and the signal's number, as shells count (130 after Ctrl-C, 143 after SIGTERM): typer knows only 130."
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise typer.Exit(128 + getattr(stopped, "number", 2)) from None


def run() -> None:
    "Run a command; tell an input's fault in one line and exit with 2."
    try:
        code = app(standalone_mode=False)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if hasattr(error, "exit_code"):  # raised by the option parser, which shows how the command is used
            if hasattr(error, "show"):
                error.show()
            sys.exit(error.exit_code)
        if isinstance(error, ModuleNotFoundError) and error.name:
            from ..extras import which_extra

            error = OSError(which_extra(error, "this"))
        if os.environ.get("SMOOTHAP_DEBUG") or not isinstance(error, (ValueError, TypeError, OSError, RuntimeError)):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
