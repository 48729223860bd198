"""Test losses and metrics on the lowest versions that pyproject.toml allows, in an environment of their own.

    python tools/oldest.py                     the lowest versions, this Python
    python tools/oldest.py --torch 2.6.0       another torch, to find out how low it goes
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# some tests draw or read every public name
TOOLS = [
    "pytest", "pytest-timeout", "hypothesis", "psutil", "safetensors", "matplotlib", "pillow", "numba", "torchmetrics",
    "scikit-learn",
]
TESTS = ["tests/test_ranking.py", "tests/test_vectors.py", "tests/losses", "tests/metrics"]  # what needs no extra


def lowest() -> dict[str, str]:
    "Package -> the lowest version that pyproject.toml allows, for what the package itself requires."
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", need).groups() for need in project["dependencies"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="a version of torch in place of the lowest one")
    args = parser.parse_args()
    wanted = lowest() | ({"torch": args.torch} if args.torch else {})
    with tempfile.TemporaryDirectory() as folder:
        python = str(Path(folder) / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pins = [f"{name}=={version}" + (".*" if version.count(".") < 2 else "") for name, version in wanted.items()]
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins, *TOOLS], check=True
        )
        print("testing", ", ".join(pins), "on Python", ".".join(map(str, sys.version_info[:3])), flush=True)
        # peers are not installed here: their tests are skipped
        env = {key: value for key, value in os.environ.items() if key != "CI"}
        return subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
            cwd=ROOT,
            env=env | {"PYTHONPATH": str(ROOT)},
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
