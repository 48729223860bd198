"""Keep what the study of the claims decided with the rows of another commit: docs/results/claims-before.json.

    python tools/claims_before.py COMMIT

The rows themselves stay in that commit. `smoothap reproduce --render` and lesson 20 lay both decisions side by side.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from smoothap_nb.reproduction.replication import write_decided
from smoothap_nb.reproduction.standing import decided, places, read_study

ROOT = Path(__file__).resolve().parent.parent
WHERE = Path("docs") / "results" / "claims"


def main(commit: str) -> int:
    "Decide with the rows of a commit, and keep it; the exit status."
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout
    full = git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(git("archive", full, str(WHERE)))) as archive:
            archive.extractall(folder, filter="data")
        study, rows, trouble = read_study(Path(folder) / WHERE)
        compared = {name: row for name, row in rows.items() if not name.startswith(("e/", "e-tune/"))}
        about = {"rows": f"{WHERE} of commit {full}", "plan": study.hash, "made": places(compared)}
        count = write_decided(ROOT / WHERE.with_name("claims-before.json"), decided(study.plan, rows), about)
    print(f"{count} claims kept", *trouble, sep="\n")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]) if len(sys.argv) == 2 else __doc__)
