"""Make the batch of glyph embeddings that several lessons use, from a finished run.

    python tools/glyph_batch.py runs/demo
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from smoothap_nb.train.config import load_experiment
from smoothap_nb.data.glyphs import choose_batch
from smoothap_nb.train.models import EmbeddingModel
from smoothap_nb.train.loop import embed
from smoothap_nb.train import dataset_for, load_run

ROOT = Path(__file__).resolve().parent.parent


def main(run: Path) -> None:
    experiment = load_experiment(str(run / "experiment.toml"))
    data = dataset_for(experiment.data, "test")
    chosen = choose_batch(data.labels, skip=(list(data.group_names).index("OTHER"),))
    torch.manual_seed(experiment.seed)
    untrained = EmbeddingModel(experiment.model).eval()
    trained, _ = load_run(run, "cpu")
    images, labels = data.batch(chosen, draw=0)
    tensors = {
        "images": (images[:, 0] * 255).round().to(torch.uint8),
        "labels": labels,
        "trained": embed(trained, data, chosen, progress=False).half(),
        "untrained": embed(untrained, data, chosen, progress=False).half(),
    }
    facts = json.loads((run / "run.json").read_text())
    made = {
        "experiment": experiment.name,
        "seed": experiment.seed,
        "steps": facts["steps"],
        "commit": facts["environment"]["commit"],
        "split": "test",
    }
    metadata = {"made": json.dumps(made), "captions": json.dumps([data.captions[i] for i in chosen.tolist()])}
    path = ROOT / "smoothap_nb" / "data" / "glyph_batch.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata=metadata)
    print(path, f"{path.stat().st_size / 1e3:.0f} kB", made)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
