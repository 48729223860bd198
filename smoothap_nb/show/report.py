"""One self-contained page: what the network returns for characters it has never seen, beside raw pixels and beside the
network before training.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from ..metrics.curves import precision_recall_curve
from ..files import write_atomic
from .figures import DASHES, PALETTE, to_png, use_style

__all__ = [
    'precision_recall',
    'mean_precision_recall',
    'class_means',
    'write_report',
    'markdown_table',
    'write_files_report',
]


def precision_recall(scores: Tensor, relevance: Tensor) -> tuple[np.ndarray, np.ndarray]:
    "Recall and precision at each positive of one ranking: scores and bool relevance (G,). Ties count as ahead."
    recall, precision = precision_recall_curve(scores[None].double(), relevance[None])
    return recall[0].numpy(), precision[0].numpy()


def mean_precision_recall(
    embeddings: Tensor,
    labels: Tensor,
    queries: int = 1000,
    points: int = 41,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Precision at fixed recalls, the best at or beyond each recall, averaged over evenly spaced queries; against the
    gallery, or all others.
    """
    at, total, used = np.linspace(0, 1, points), np.zeros(points), 0
    for q in np.unique(np.linspace(0, len(labels) - 1, min(queries, len(labels))).astype(int)):
        keep = torch.arange(len(labels)) != q if gallery is None else slice(None)
        relevance = ((labels if gallery is None else gallery_labels) == labels[q])[keep]
        if not relevance.any():
            continue
        recall, precision = precision_recall(
            ((embeddings if gallery is None else gallery) @ embeddings[q])[keep], relevance
        )
        best = np.maximum.accumulate(precision[::-1])[::-1]
        total += best[np.minimum(np.searchsorted(recall, at - 1e-9), len(best) - 1)]
        used += 1
    return at, total / max(1, used)


_ROLES = {"raw pixels": "exact", "untrained": "h_ap", "start": "fast_ap", "trained": "smooth_ap"}
_COLOURS = {who: PALETTE[role] for who, role in _ROLES.items()}
_LINES = {who: "-" if who == "trained" else DASHES[role] for who, role in _ROLES.items()}



class Picture(NamedTuple):
    "What a template shows as a picture: its address, what it shows in words, and its role."

    url: str
    text: str
    kind: str = ""


def _page(template: str, **values) -> str:
    "A page from its template; everything is escaped there."
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    pages = Environment(
        loader=PackageLoader("smoothap_nb.show"),
        autoescape=select_autoescape(["html.jinja"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template(template).render(palette=PALETTE, **values)


def _encoded(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _drawn(fig, text: str) -> Picture:
    "A figure as an embedded picture; the figure is closed."
    url = _encoded("png", to_png(fig))
    plt.close(fig)
    return Picture(url, text)


def _photo_url(picture: Tensor) -> str:
    "A (C, H, W) picture in [0, 1] as a data URL: glyphs as PNG, photographs as small JPEG."
    from PIL import Image

    buffer, values = io.BytesIO(), (picture.clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    if len(values) == 1:
        Image.fromarray(values[0].numpy()).save(buffer, format="PNG")
        return _encoded("png", buffer.getvalue())
    photo = Image.fromarray(values.permute(1, 2, 0).contiguous().numpy())
    photo.thumbnail((96, 96))
    photo.save(buffer, format="JPEG", quality=80)
    return _encoded("jpeg", buffer.getvalue())


def _caption(data, index: int) -> str:
    "What a picture shows, in words."
    return data.captions[index]


def _picture(data, index: int, kind: str, text: str) -> Picture:
    return Picture(_photo_url(data.batch(torch.tensor([index]), draw=0)[0][0]), text, kind)


def _table(metrics: dict[str, dict]) -> dict:
    "Heading and rows of (value, is it the best?): a column for each metric, or, where there are many, a line for each."
    names, keys = list(metrics), [k for k in metrics["trained"] if not k.endswith("queries_skipped")]
    cell = {(n, k): (metrics[n][k], metrics[n][k] == max(metrics[m][k] for m in names)) for n in names for k in keys}
    if len(keys) > 12:
        return {"head": names, "rows": [(k, [cell[n, k] for n in names]) for k in keys]}
    return {"head": keys, "rows": [(n, [cell[n, k] for k in keys]) for n in names]}


def _example(shown: dict, q: int, k: int = 10) -> list[dict]:
    "One row for each competitor: the query, then the `k` nearest pictures."
    data, indices, fine = shown["data"], shown["indices"], shown["labels"][:, -1]
    there, apart = shown.get("answers", data), "answers" in shown
    where, known = (torch.arange(len(there)), there.labels[:, -1].cpu()) if apart else (indices, fine)
    out = []
    for who, rows in shown["embeddings"].items():
        scores = (shown["gallery"][who] if apart else rows) @ rows[q]
        if not apart:
            scores[q] = -torch.inf
        pictures = [_picture(data, int(indices[q]), "query", f"query: {_caption(data, int(indices[q]))}")]
        for place, i in enumerate(scores.topk(min(k, len(scores) - 1)).indices.tolist(), 1):
            right = bool(known[i] == fine[q])
            text = f"rank {place}, {'right' if right else 'wrong'}: {_caption(there, int(where[i]))}"
            pictures.append(_picture(there, int(where[i]), "positive" if right else "negative", text))
        out.append({"who": who, "note": f"AP {shown['per_query'][who][q]:.3f}", "pictures": pictures})
    return out


def _examples(shown: dict) -> list[dict]:
    "Ranked rows of the five queries at fixed places in the order of the trained network's AP."
    ap = shown["per_query"]["trained"]
    order = ap.nan_to_num(2.0).argsort()[: int((~ap.isnan()).sum())]
    chosen = [(place, int(order[int(place * (len(order) - 1))])) for place in (.9, .7, .5, .3, .1)]
    return [
        {"name": _caption(shown["data"], int(shown["indices"][q])), "place": f"{place:.0%}", "rows": _example(shown, q)}
        for place, q in chosen
    ]


def class_means(values: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of a per-query metric for each class, best class first.

    Args:
        values: (Q,) such as each query's AP; NaN is left out.
        classes: (Q,) integers.

    Returns:
        (C,) class numbers and (C,) means, for the classes with at least one value.
    """
    kept = ~values.isnan()
    found, place = classes[kept].unique(return_inverse=True)
    means = torch.zeros(len(found), dtype=torch.float64).index_add_(0, place, values[kept].double()) / place.bincount(
        minlength=len(found)
    )
    order = means.argsort(descending=True, stable=True)
    return found[order], means[order]


def _ends(count: int, of: int) -> list[tuple[str, range]]:
    "The places of the best and of the worst classes."
    return [("best", range(min(count, of))), ("worst", range(of - 1, max(-1, of - 1 - count), -1))]


def _histogram(means: dict[str, Tensor]) -> Picture:
    "Distribution of the classes' means, one line for each competitor."
    fig, ax = plt.subplots(figsize=(6, 2.8))
    for who, values in means.items():
        ax.hist(values.numpy(), bins=np.linspace(0, 1, 41), histtype="step", linewidth=1.8, label=who,
                color=_COLOURS.get(who, PALETTE["smooth_ap"]), linestyle=_LINES.get(who, "-"))
    ax.set(xlabel="mean AP of a class", ylabel="number of classes", xlim=(0, 1))
    if len(means) > 1:
        ax.legend(loc="upper right")
    medians = ", ".join(f"{who} {float(v.median()):.2f}" for who, v in means.items())
    return _drawn(fig, f"distribution of the mean AP of a class; medians {medians}")


def _class_rows(shown: dict, count: int = 6) -> list[tuple[str, list[dict]]]:
    "The classes that the trained network ranks best and worst, with their pictures."
    data, indices, fine = shown["data"], shown["indices"], shown["labels"][:, -1]
    classes, means = class_means(shown["per_query"]["trained"], fine)

    def row(c: int) -> dict:
        members = indices[(fine == classes[c]).nonzero()[:, 0]][:8].tolist()
        name = _caption(data, members[0])
        return {
            "who": name.lower(),
            "note": f"mean AP {means[c]:.3f}",
            "pictures": [_picture(data, i, "member", name) for i in members],
        }

    return [(title, [row(c) for c in chosen]) for title, chosen in _ends(count, len(classes))]


def _curves(shown: dict, headline: dict[str, float]) -> Picture:
    "Precision against recall of each competitor."
    fig, ax = plt.subplots(figsize=(6, 3.6))
    for who, rows in shown["embeddings"].items():
        against = (shown["gallery"][who], shown["answers"].labels[:, -1].cpu()) if "answers" in shown else (None, None)
        ax.plot(
            *mean_precision_recall(rows, shown["labels"][:, -1], gallery=against[0], gallery_labels=against[1]),
            label=who,
            color=_COLOURS[who],
            linestyle=_LINES[who],
        )
    ax.set(
        xlabel="recall (share of the positives found)",
        ylabel="precision, mean over queries",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    ax.legend(loc="best")
    return _drawn(fig, "precision against recall; mAP " + ", ".join(f"{n} {v:.3f}" for n, v in headline.items()))


def _loss_picture(log: list[dict]) -> Picture | None:
    "The loss of each logged step; None where nothing was logged."
    if not log:
        return None
    fig, ax = plt.subplots(figsize=(6, 2.8))
    ax.plot([r["step"] for r in log], [r["loss"] for r in log], color=_COLOURS["trained"])
    ax.set(xlabel="optimiser step", ylabel="loss of the batch")
    return _drawn(fig, f"training loss from {log[0]['loss']:.3f} at the start to {log[-1]['loss']:.3f} at the end")


def _facts(record: dict) -> str:
    return "; ".join(f"{k} {v}" for k, v in record["environment"].items()) + f"; {record['date']}"


def write_report(run, record: dict, shown: dict) -> Path:
    """Write the run's `report.html`, a page without outside parts.

    Args:
        run: the run's folder.
        record, shown: what `train.measure.measure` returned.

    Returns:
        the page's path.
    """
    use_style()
    run, trained = Path(run), record["metrics"]["trained"]
    headline = {n: next((m[k] for k in m if k.endswith("mAP")), float("nan")) for n, m in record["metrics"].items()}
    seconds, what = record["training"].get("seconds"), shown["data"].classes_called
    against = f"a gallery of {len(shown['answers']):,} others." if "answers" in shown else "all others."
    page = _page(
        "run.html.jinja",
        title=f"{record['experiment']}: what the network finds",
        description=record["config"]["description"],
        counts=f"{record['test_images']:,} pictures of {record['test_classes']:,} {what} that were never trained on, "
               f"each a query once, "
        f"ranked against {against}",
        table=_table(record["metrics"]),
        started="start" in record["metrics"],
        skipped=sum(int(v) for k, v in trained.items() if k.endswith("queries_skipped")),
        examples=_examples(shown),
        ends=_class_rows(shown),
        curves=_curves(shown, headline),
        loss=_loss_picture(shown["log"]),
        histogram=_histogram(
            {who: class_means(ap, shown["labels"][:, -1])[1] for who, ap in shown["per_query"].items()}
        ),
        facts=f"seed {record['seed']}; "
        + (f"trained in {seconds:.0f} s; " if seconds is not None else "")
        + _facts(record),
        config=(run / "experiment.toml").read_text(encoding="utf-8"),
    )
    write_atomic(run / "report.html", page)
    return run / "report.html"


def markdown_table(metrics: dict[str, dict]) -> str:
    "Metrics of one or several competitors as a Markdown table."
    keys = [k for k in next(iter(metrics.values())) if not k.endswith("queries_skipped")]
    lines = ["| | " + " | ".join(keys) + " |", "|---|" + "---:|" * len(keys)]
    return (
        "\n".join(
            lines + [f"| {name} | " + " | ".join(f"{row[k]:.4f}" for k in keys) + " |" for name, row in metrics.items()]
        )
        + "\n"
    )


def write_files_report(path, record: dict, values: dict, count: int = 10) -> Path:
    """Write a page without outside parts for embeddings from files: table, distribution over classes, best and worst
    classes.

    Args:
        path: the page.
        record, values: what `train.measure.measure_files` returned.
        count: classes listed at each end.

    Returns:
        the page's path.
    """
    use_style()
    classes, means = class_means(torch.as_tensor(values["per_query"]["mAP"]), values["fine"])
    ends = [
        (title, [(int(classes[c]), float(means[c])) for c in chosen]) for title, chosen in _ends(count, len(classes))
    ]
    page = _page("files.html.jinja", title=f"Retrieval metrics of {Path(record['embeddings']).name}", record=record,
                 metrics={k: v for k, v in record["metrics"].items() if k != "queries_skipped"},
                 histogram=_histogram({"these embeddings": means}), ends=ends, facts=_facts(record))
    write_atomic(Path(path), page)
    return Path(path)
