"""Make the file that search by words uses in lesson 30 and on its page, from a finished run.

python tools/glyph_words.py runs/captions/nt-xent-tau-0.1
"""

import dataclasses
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from smoothap_nb.data.captions import GlyphCaptions
from smoothap_nb.train.captions import embed_glyphs
from smoothap_nb.train.text import FILE, GLYPH_WORDS, load_towers


def main(run: Path) -> None:
    model, facts = load_towers(run), json.loads((run / FILE).read_text(encoding="utf-8"))["training"]
    data = GlyphCaptions("test", model.vocabulary, per_character=1, strength=facts["settings"]["strength"])
    chosen = torch.arange(0, len(data), 2)  # every second character: the page stays under a megabyte
    tensors = {f"text.{key}": value.half() for key, value in model.text.state_dict().items()}
    tensors |= {"gallery": embed_glyphs(model, data)[chosen].half(), "identity": data.glyphs.identity[chosen]}
    made = {key: facts[key] for key in ("contender", "seed", "date")} | {"commit": facts["environment"]["commit"]}
    metadata = {
        "made": json.dumps(made),
        "towers": json.dumps(dataclasses.asdict(model.config)),
        "vocabulary": json.dumps(model.vocabulary.words),
        "names": json.dumps([data.glyphs.captions[i] for i in chosen.tolist()]),
    }
    save_file({key: value.contiguous() for key, value in tensors.items()}, GLYPH_WORDS, metadata=metadata)
    print(GLYPH_WORDS, f"{GLYPH_WORDS.stat().st_size / 1e3:.0f} kB", made)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
