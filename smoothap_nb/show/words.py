"""A search box that needs no kernel: a small text tower and a gallery of pictures, both in the page."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothap_nb.data.captions import FILLERS, SYNONYMS, Vocabulary, content_words, name_words
from smoothap_nb.show.players import STAND_IN

ACROSS = 32  # tiles in a row of the sprite
# what the browser calls the parts of a `TextTower`
MATRICES = {"words": "words.weight", "input": "gru.weight_ih_l0", "hidden": "gru.weight_hh_l0", "head": "head.weight"}
VECTORS = {"input_bias": "gru.bias_ih_l0", "hidden_bias": "gru.bias_hh_l0", "head_bias": "head.bias"}

_FIGURE = """<figure class="word-search-figure" style="margin:0;max-width:100%"><div data-words="{id}"><p
style="font-size:small">The search box works once this notebook is trusted or run.</p></div>
<script type="module">{module}
for (const place of document.querySelectorAll('[data-words="{id}"]:not(.word-search)')) {{ mount(place, {state});
{stand_in} }}
</script></figure>"""


def _text(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def eight_bits(values: Tensor) -> tuple[np.ndarray, np.ndarray]:
    "(N, D) as int8 and one float32 scale for each row; the error is at most half a scale."
    rows = values.detach().float().numpy()
    scales = np.maximum(np.abs(rows).max(1), 1e-12).astype(np.float32) / np.float32(127)
    return np.round(rows / scales[:, None]).astype(np.int8), scales


def rounded_tower(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    "A text tower's weights as the browser has them: matrices rounded to 8 bits."
    out = {name: value.detach().float().clone() for name, value in state.items()}
    for name in MATRICES.values():
        small, scales = eight_bits(out[name])
        out[name] = torch.from_numpy(small * scales[:, None])
    return out


def _packed(values: Tensor) -> dict:
    small, scales = eight_bits(values)
    return {"rows": small.shape[0], "columns": small.shape[1], "scales": _text(scales), "data": _text(small)}


def _sprite(images: Tensor) -> str:
    "All tiles as one PNG of 16 greys."
    from PIL import Image

    count, side = len(images), images.shape[-1]
    sheet = np.zeros((-(-count // ACROSS) * side, ACROSS * side), dtype=np.uint8)
    for i, tile in enumerate(images.numpy()):
        y, x = divmod(i, ACROSS)
        sheet[y * side : (y + 1) * side, x * side : (x + 1) * side] = tile
    picture = Image.fromarray(((sheet.astype(np.uint16) * 15 + 127) // 255).astype(np.uint8), "P")
    picture.putpalette([17 * level for level in range(16) for _ in range(3)])
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", bits=4, optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def word_search_state(
    tower: Mapping[str, Tensor],
    vocabulary: Vocabulary,
    gallery: Tensor,
    images: Tensor,
    names: Sequence[str],
    examples: Sequence[str],
    shown: int = 12,
) -> dict:
    """All that the browser needs, as JSON.

    Args:
        tower: state of a `TextTower`.
        vocabulary: of the same run.
        gallery: (G, D) embeddings of the pictures.
        images: (G, H, H) uint8.
        names: G Unicode names.
        examples: queries to click on; the first one is shown.
        shown: pictures in an answer.

    Raises:
        ValueError: numbers of pictures, names and embeddings that differ, no example, weights of another vocabulary.
    """
    if not len(gallery) == len(images) == len(names):
        raise ValueError(
            f"{len(gallery)} embeddings, {len(images)} pictures and {len(names)} names do not belong together"
        )
    if not examples:
        raise ValueError("give at least one example query: it is what the page shows first")
    if len(tower[MATRICES["words"]]) != len(vocabulary) + 1:
        raise ValueError(
            f"the tower knows {len(tower[MATRICES['words']]) - 1} words, the vocabulary holds "
            f"{len(vocabulary)}: they are of different runs"
        )
    return {
        "tower": {
            **{name: _packed(tower[key]) for name, key in MATRICES.items()},
            **{name: _text(tower[key].detach().float().numpy()) for name, key in VECTORS.items()},
        },
        "vocabulary": list(vocabulary.words),
        "synonyms": {word: meant for word, meant in SYNONYMS.items() if word in vocabulary},
        "fillers": sorted(FILLERS),
        "gallery": _packed(gallery),
        "names": list(names),
        "words": [" ".join(sorted(content_words(name_words(n)))) for n in names],
        "sprite": _sprite(images),
        "across": ACROSS,
        "examples": list(examples),
        "shown": int(shown),
    }


@functools.cache
def words_module() -> str:
    "The figure's JavaScript, from the package's folder."
    path = Path(__file__).parent / "static" / "words.js"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: reinstall smoothap_nb")
    return path.read_text(encoding="utf-8")


def word_search_html(**state) -> str:
    """The search box as one piece of HTML, arguments as in `word_search_state`; the same text for the same state."""
    text = json.dumps(word_search_state(**state), sort_keys=True, separators=(",", ":")).replace("</", "<\\/")
    ident = hashlib.sha256(text.encode()).hexdigest()[:12]
    return _FIGURE.format(id=ident, module=words_module(), state=text, stand_in=STAND_IN.replace("ROOT", "place"))
