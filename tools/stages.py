"""The lower stages that the demo starts from: train them and put them into the package.

    python tools/stages.py        about ten minutes of one idle core; writes smoothap_nb/train/glyph_stages.safetensors

They are network 0 of the study of the claims (smoothap_nb/reproduction/papers/claims.toml): a ResNet-18 that learns by
softmax, at 32 px, the half of Glyphs' training characters that is called `pretext`. No validation or test character is
seen. What is written is all of it but the last stage and the layers above, in float16; the file's header says what made
it. Another processor rounds otherwise, so the same command gives a network as good elsewhere, not the same bits.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from smoothap_nb.files import data_root  # noqa: E402
from smoothap_nb.reproduction.pretext import load_pretext, save_stages  # noqa: E402
from smoothap_nb.reproduction.tracks import read_plan  # noqa: E402
from smoothap_nb.train.weights import GLYPH_STAGES  # noqa: E402


def main() -> None:
    torch.set_num_threads(1)  # so that the weights depend on nothing else
    plan = read_plan()
    model = load_pretext(plan, 0, data_root() / "claims")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    made = {"network": json.dumps(plan["networks"]), "commit": commit, "torch": torch.__version__}
    save_stages(GLYPH_STAGES, model, command="python tools/stages.py", **made)
    print(f"written: {GLYPH_STAGES.relative_to(ROOT)}, {GLYPH_STAGES.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
