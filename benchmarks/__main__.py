"""Measure, keep the numbers as JSON, and write the page that shows them.

    python -m benchmarks                   everything; results to docs/results/, then docs/benchmarks.md
    python -m benchmarks losses            only what is named (a module of this folder)
    python -m benchmarks losses -k "B = 384"   only rows whose name holds these words
    python -m benchmarks losses blackbox evaluation --quick   without what takes minutes; about 8 minutes
    python -m benchmarks --list            the names
    python -m benchmarks --render          no measurement: the page again, from the JSON files
    python -m benchmarks --check           no measurement: does the page still follow from the JSON files?
    python -m benchmarks --tiny --out DIR  everything in seconds, on toy sizes, into a folder of its own
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import harness


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="benchmarks to run; all when left out")
    parser.add_argument("-k", dest="only", default="", help="only rows whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="leave out the rows that take minutes; they keep theirs")
    parser.add_argument("--tiny", action="store_true", help="toy sizes: shows that everything runs, measures nothing")
    parser.add_argument(
        "--out", type=Path, default=harness.DOCS, help="folder that gets results/ and benchmarks.md (default: docs)"
    )
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--render", action="store_true", help="write the page from the stored results and stop")
    parser.add_argument("--check", action="store_true", help="compare the page with the stored results and stop")
    args = parser.parse_args(argv)

    if args.check:
        stale = not harness.is_current(args.out)
        print(
            f"{args.out}/benchmarks.md "
            + ("differs from its results: run python -m benchmarks --render" if stale else "follows from its results")
        )
        return int(stale)
    if not args.render:
        found = harness.discover()
        if args.list:
            print("\n".join(f"{name:12} {module.TITLE}" for name, module in found.items()))
            return 0
        if unknown := set(args.name) - set(found):
            parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(found)}")
        if args.tiny and args.out == harness.DOCS:
            parser.error("--tiny numbers mean nothing: give them a folder of their own with --out")
        for name in args.name or found:
            harness.run(name, found[name], args.out, tiny=args.tiny, only=args.only, quick=args.quick)
    print(harness.render(args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
