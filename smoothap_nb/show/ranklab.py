"""One ranking in the hand: drag a picture, and see what every loss says and where it pushes."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from ..metrics.flat import average_precision
from ..metrics.graded import h_ap, levels_from_labels, relevance_from_levels
from ..losses.blackbox import blackbox_ap, recall_loss
from ..losses.fastap import check_cosines, fast_ap
from .figures import PALETTE, show
from ..losses.hierarchical import smooth_h_ap
from .players import STAND_IN
from ..checks import check_choice, check_count, check_levels, check_positive, check_relevance, check_scores
from ..losses.smooth import smooth_ap

__all__ = ["GRADIENTS", "SETTINGS", "rank_lab_numbers", "check_setting", "rank_lab_html", "rank_lab", "RankLab"]

GRADIENTS = {  # name in the figure -> loss of (scores, relevance, levels, settings), colour, its name in prose
    "average_precision": (None, "exact", "the exact AP"),
    "smooth_ap": (lambda s, y, l, o: 1 - smooth_ap(s, y, o["tau"]), "smooth_ap", "Smooth-AP"),
    "rambo_ap": (lambda s, y, l, o: 1 - blackbox_ap(s, y, o["lam"], o["margin"]), "rambo", "RaMBO's AP loss"),
    "rambo_recall": (
        lambda s, y, l, o: recall_loss(s, y, o["lam"], o["margin"], reduction="none"),
        "rambo",
        "RaMBO's recall loss",
    ),
    "fast_ap": (lambda s, y, l, o: 1 - fast_ap(s, y, o["bins"]), "fast_ap", "FastAP"),
    "h_ap": (
        lambda s, y, l, o: 1 - smooth_h_ap(s, l, relevance_from_levels(l, o["alpha"]), o["tau"]),
        "h_ap",
        "the surrogate of H-AP",
    ),
}


def rank_lab_numbers(
    scores: Tensor,
    relevance: Tensor,
    levels: Tensor,
    tau: float = 0.01,
    lam: float = 0.2,
    margin: float = 0.02,
    alpha: float = 1.0,
    bins: int = 10,
) -> dict:
    """What RankLab shows of one ranking, worked out by the library.

    Args:
        scores: (G,) similarity in [-1, 1].
        relevance: (G,) bool, read by AP, Smooth-AP, RaMBO and FastAP.
        levels: (G,) integers, 0 for negatives, read by H-AP.
        tau: temperature of Smooth-AP and of the surrogate of H-AP, > 0.
        lam, margin: of RaMBO, in the authors' convention; > 0 and 0 or above.
        alpha: how steeply relevance grows with the level, 0 or above.
        bins: of FastAP.

    Returns:
        dict: for each name in `GRADIENTS` a dict of `loss` (float, NaN without positives) and `gradient` (list of G
            floats, of the loss); and under
        "exact" a dict of `average_precision` and `h_ap`.

    Raises:
        TypeError, ValueError: inputs that do not fit, settings out of range.
    """
    options = {"tau": tau, "lam": lam, "margin": margin, "alpha": alpha, "bins": bins}
    scores, relevance, levels = scores.double()[None], relevance[None], levels[None]
    numbers: dict = {}
    for name, (loss, *_) in GRADIENTS.items():
        if loss is None:
            numbers[name] = {
                "loss": 1 - average_precision(scores, relevance).item(),
                "gradient": [0.0] * scores.shape[1],
            }
            continue
        leaf = scores.clone().requires_grad_()
        value = loss(leaf, relevance, levels, options)
        (slope,) = torch.autograd.grad(value.nan_to_num().sum(), leaf)
        numbers[name] = {"loss": value.item(), "gradient": slope[0].tolist()}
    worth = relevance_from_levels(levels, alpha)
    numbers["exact"] = {
        "average_precision": average_precision(scores, relevance).item(),
        "h_ap": h_ap(scores, worth).item(),
    }
    return numbers


@functools.cache
def _glyph_ranking() -> dict:
    "The ranking that RankLab shows when it is given none."
    from ..data.glyphs import glyph_batch

    batch, query = glyph_batch(), 284
    scores, levels = batch["trained"] @ batch["trained"][query], levels_from_labels(batch["labels"])[query]
    scores[query] = -2
    order = scores.argsort(descending=True)
    places = {3: (0, 1, 2), 2: (0, 3), 1: (2, 9, 16), 0: (2,)}  # of each level: which ones, counted from the best
    chosen = torch.cat([order[levels[order] == level][list(which)] for level, which in places.items()])
    chosen = chosen[scores[chosen].argsort(descending=True)]
    bright = lambda picture: (picture - picture.min().float()).div(picture.max() - picture.min()).numpy()
    return {
        "scores": scores[chosen].double().mul(1000).round().div(1000),
        "levels": levels[chosen],
        "images": [bright(batch["images"][i]) for i in chosen.tolist()],
        "query": bright(batch["images"][query]),
        "names": [batch["captions"][i] for i in chosen.tolist()],
    }


SETTINGS = {"tau": 0.01, "lam": 0.2, "margin": 0.02, "alpha": 1.0, "bins": 10, "gradient": "smooth_ap"}


def _address(picture) -> str:
    "A picture as a data address that an img element takes."
    from PIL import Image

    picture = np.asarray(picture)
    if picture.dtype.kind == "f":
        picture = (picture.clip(0, 1) * 255).round()
    buffer = io.BytesIO()
    Image.fromarray(picture.squeeze().astype(np.uint8)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _tile(text: str) -> str:
    "A picture for an item that has none: its number."
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" fill="#222"/>'
        f'<text x="16" y="22" font-size="17" font-family="sans-serif" text-anchor="middle" '
        f'fill="#fff">{text}</text></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(drawing.encode()).decode()


def _one_row(name: str, values, kind) -> Tensor:
    row = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values)).detach().cpu()
    row = row[0] if row.ndim == 2 and len(row) == 1 else row
    if row.ndim != 1 or not len(row):
        raise ValueError(
            f"{name} must be one row of at least one number, got shape {tuple(row.shape)}: RankLab shows one query"
        )
    return row.to(kind)


def check_setting(name: str, value):
    "Refuse a setting of RankLab that its losses would refuse."
    if name in ("tau", "lam"):
        return float(check_positive(name, value))
    if name in ("margin", "alpha"):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be a finite number, 0 or above, got {value!r}")
        return float(value)
    return check_count(name, value) if name == "bins" else check_choice(name, value, GRADIENTS)


def _state(scores=None, relevance=None, levels=None, images=None, query=None, names=None, **settings) -> dict:
    "The checked state of a RankLab, ready for JSON."
    if scores is None:
        if not (relevance is levels is images is query is names is None):
            raise ValueError(
                "relevance, levels and pictures belong to scores: give the scores too, or nothing at all for the glyphs"
            )
        return _state(**_glyph_ranking(), **settings)
    scores = _one_row("scores", scores, torch.float64)
    check_scores(scores[None]), check_cosines(scores[None])
    if relevance is None and levels is None:
        raise ValueError("relevance or levels must say which pictures are positives")
    levels = _one_row("levels", relevance if levels is None else levels, torch.int64)
    check_levels(levels[None], scores[None])
    top = max(1, int(levels.max()))
    relevance = levels == top if relevance is None else _one_row("relevance", relevance, torch.bool)
    check_relevance(relevance[None], scores[None])
    for name, given in (("images", images), ("names", names)):
        if given is not None and len(given) != len(scores):
            raise ValueError(f"{len(given)} {name} for {len(scores)} scores: one each is needed")
    if unknown := set(settings) - set(SETTINGS):
        raise ValueError(f"RankLab has no {sorted(unknown)[0]!r}; it has {', '.join(SETTINGS)}")
    settings = {name: check_setting(name, value) for name, value in (SETTINGS | settings).items()}
    pictures = (
        [_tile(str(i + 1)) for i in range(len(scores))] if images is None else [_address(image) for image in images]
    )
    return {
        "scores": [round(s, 6) for s in scores.tolist()],
        "relevance": relevance.tolist(),
        "levels": levels.tolist(),
        **settings,
        "num_levels": top,
        "images": pictures,
        "query": None if query is None else _address(query),
        "names": list(names or []),
    }


def _still(state: dict):
    "The state as a figure: one track per picture, an arrow where the chosen loss pushes it."
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage
    from PIL import Image

    options = {name: state[name] for name in SETTINGS if name != "gradient"}
    numbers = rank_lab_numbers(*(torch.tensor(state[name]) for name in ("scores", "relevance", "levels")), **options)
    scores, gradient, colour = (
        np.array(state["scores"]),
        np.array(numbers[state["gradient"]]["gradient"]),
        PALETTE[GRADIENTS[state["gradient"]][1]],
    )
    count, low = len(scores), min(0.5, np.floor(scores.min() * 10 - 0.5) / 10)
    fig, ax = plt.subplots(figsize=(7, 0.42 * count + 1.1))
    reach = 0.14 * (1.03 - low) / max(abs(gradient).max(), 0.02)
    for i, score in enumerate(scores):
        kind = "positive" if state["relevance"][i] else "negative"
        frame = {"edgecolor": PALETTE[kind], "linewidth": 2, "linestyle": "--" if kind == "negative" else "-"}
        if state["images"][i].startswith("data:image/png"):
            picture = np.asarray(
                Image.open(io.BytesIO(base64.b64decode(state["images"][i].split(",")[1]))).convert("RGB")
            )
            ax.add_artist(AnnotationBbox(OffsetImage(picture, zoom=0.62), (score, i), pad=0.1, bboxprops=frame))
        else:
            ax.text(score, i, str(i + 1), ha="center", va="center", bbox={"facecolor": "white", **frame})
        if abs(gradient[i] * reach) > 0.002:
            start = score - np.sign(gradient[i]) * 0.024 * (1.03 - low)
            ax.annotate(
                "",
                (start - gradient[i] * reach, i),
                (start, i),
                arrowprops={"color": colour, "width": 2.5, "headwidth": 9, "headlength": 6, "shrink": 0},
            )
    ax.set(
        xlabel="score: similarity to the query",
        ylabel="picture",
        yticks=range(count),
        yticklabels=range(1, count + 1),
        xlim=(low, 1.07),
        ylim=(count - 0.4, -0.6),
    )
    exact = numbers["exact"]
    loss, _, spoken = GRADIENTS[state["gradient"]]
    arrows = f"Arrows: where {spoken} pushes" if loss else f"No arrows: {spoken} pushes nobody"
    ax.set_title(f"AP {exact['average_precision']:.3f}, H-AP {exact['h_ap']:.3f}. {arrows}", fontsize=10)
    return fig


@functools.cache
def _module() -> str:
    "The figure's JavaScript, from the package's folder."

    path = Path(__file__).parent / "static" / "ranklab.js"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: reinstall smoothap_nb")
    return path.read_text(encoding="utf-8")


_FIGURE = """<figure class="ranklab-figure" style="margin:0;max-width:100%"><div data-ranklab="{id}"><p style="font-size:small">The pictures move once this notebook is trusted or run.</p></div>
<script type="module">{module}
for (const place of document.querySelectorAll('[data-ranklab="{id}"]:not(.ranklab)')) {{ mount(place, {state}); {stand_in} }}
</script></figure>"""  # noqa: E501


def rank_lab_html(**state) -> str:
    """RankLab as one piece of HTML, module and state included; arguments as in `rank_lab`.

    Returns:
        the same text for the same state. Several may stand on one page, the same one twice too.
    """
    text = json.dumps(_state(**state), sort_keys=True, separators=(",", ":")).replace("</", "<\\/")
    ident = hashlib.sha256(text.encode()).hexdigest()[:12]
    return _FIGURE.format(id=ident, module=_module(), state=text, stand_in=STAND_IN.replace("ROOT", "place"))


def rank_lab(
    scores=None,
    relevance=None,
    levels=None,
    *,
    images=None,
    query=None,
    names=None,
    tau: float = 0.01,
    lam: float = 0.2,
    margin: float = 0.02,
    alpha: float = 1.0,
    bins: int = 10,
    gradient: str = "smooth_ap",
    alt: str = "One ranking, and where the chosen loss pushes each picture",
) -> None:
    """Show one ranking whose pictures can be dragged, with every loss and its gradient, as plain HTML beside a still
    picture.

    Needs no kernel once it is shown: the browser computes. `RankLab` is the same figure connected to Python.

    Args:
        scores: (G,) similarity to the query in [-1, 1]; left out, nine real glyphs.
        relevance: (G,) bool, True for positives; left out, the pictures of the highest level.
        levels: (G,) integers, 0 for negatives; left out, 1 for positives.
        images: G pictures, (H, W) or (H, W, 3), uint8 or floating in [0, 1]; left out, numbered tiles.
        query: the query's own picture.
        names: G words that say what each picture is, read out by screen readers.
        tau: temperature of Smooth-AP and of the surrogate of H-AP, in score units, > 0.
        lam: RaMBO's interpolation strength, > 0. It acts on the gradient of this one query; in training, on its
            share of a mean over the batch.
        margin: RaMBO's margin, in score units, 0 or above.
        alpha: how steeply H-AP's relevance grows with the level, 0 or above.
        bins: of FastAP.
        gradient: whose arrows show first: "average_precision", "smooth_ap", "rambo_ap", "rambo_recall", "fast_ap"
            or "h_ap".
        alt: what there is to see, for the still picture.

    Raises:
        TypeError, ValueError: inputs that do not fit each other, scores that are no cosines, settings out of range.
    """
    from IPython.display import HTML, display

    state = dict(
        scores=scores,
        relevance=relevance,
        levels=levels,
        images=images,
        query=query,
        names=names,
        tau=tau,
        lam=lam,
        margin=margin,
        alpha=alpha,
        bins=bins,
        gradient=gradient,
    )
    show(_still(_state(**state)), f"{alt} (still picture)")
    display(HTML(rank_lab_html(**state)))


@functools.cache
def _widget_class():
    "The anywidget, built at first use."
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError(
            "RankLab as a live widget needs anywidget: pip install anywidget. rank_lab(...) shows the same figure "
            "without it."
        ) from error

    class Row(traitlets.List):
        "A list that takes tensors and arrays too."

        def validate(self, obj, value):
            return super().validate(obj, value.tolist() if hasattr(value, "tolist") else value)

    class RankLab(anywidget.AnyWidget):
        _esm = _module()
        scores = Row(traitlets.Float()).tag(sync=True)
        relevance = Row(traitlets.Bool()).tag(sync=True)
        levels = Row(traitlets.Int()).tag(sync=True)
        tau, lam, margin, alpha = (
            traitlets.Float(SETTINGS[name]).tag(sync=True) for name in ("tau", "lam", "margin", "alpha")
        )
        bins = traitlets.Int(SETTINGS["bins"]).tag(sync=True)
        gradient = traitlets.Unicode(SETTINGS["gradient"]).tag(sync=True)
        num_levels = traitlets.Int(1).tag(sync=True)
        images = traitlets.List(traitlets.Unicode()).tag(sync=True)
        query = traitlets.Unicode(None, allow_none=True).tag(sync=True)
        names = traitlets.List(traitlets.Unicode()).tag(sync=True)

        @traitlets.validate("scores", "relevance", "levels")
        def _check_row(self, proposal):
            name, row = proposal["trait"].name, proposal["value"]
            if len(self.images) and len(row) != len(self.images):
                raise ValueError(
                    f"{name} must hold {len(self.images)} values, one per picture, got {len(row)}: make a new RankLab "
                    f"for another ranking"
                )
            if name == "scores":
                (
                    check_scores(torch.tensor([row], dtype=torch.float64)),
                    check_cosines(torch.tensor([row], dtype=torch.float64)),
                )
            if name == "levels" and not all(0 <= level <= self.num_levels for level in row):
                raise ValueError(f"levels must lie in 0 ... {self.num_levels}, got {row}")
            return row

        @traitlets.validate("tau", "lam", "margin", "alpha", "bins", "gradient")
        def _check_setting(self, proposal):
            return check_setting(proposal["trait"].name, proposal["value"])

        def numbers(self) -> dict:
            "What the library says of the ranking as it is now; see `rank_lab_numbers`."
            rows = (torch.tensor(getattr(self, name)) for name in ("scores", "relevance", "levels"))
            return rank_lab_numbers(*rows, **{name: getattr(self, name) for name in SETTINGS if name != "gradient"})

    return RankLab


def RankLab(scores=None, relevance=None, levels=None, *, images=None, query=None, names=None, **settings):
    """RankLab as a live widget: the figure of `rank_lab`, its state shared with Python.

    Args:
        scores, relevance, levels, images, query, names: as in `rank_lab`; none of them for nine real glyphs.
        **settings: tau, lam, margin, alpha, bins, gradient, as in `rank_lab`.

    Returns:
        an `anywidget.AnyWidget` with the traitlets `scores`, `relevance`, `levels`, `tau`, `lam`, `margin`, `alpha`,
        `bins` and `gradient`. Read them to know what the hand has moved, set them to move the figure, `observe` them to
        be told; `numbers()` is the library's view of the moment.

    Raises:
        ImportError: anywidget is not installed.
        TypeError, ValueError: as in `rank_lab`; a traitlet set to something that does not fit.
    """
    make = _widget_class()  # first: without anywidget nothing else matters
    state = _state(
        scores=scores, relevance=relevance, levels=levels, images=images, query=query, names=names, **settings
    )
    return make(**state)
