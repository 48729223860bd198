"""One self-contained page: what the network returns for characters it has never seen, beside raw pixels and beside the network before training."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from ..train.checkpoints import write_atomic
from .figures import DASHES, PALETTE, to_png, use_style

__all__ = ['precision_recall', 'mean_precision_recall', 'class_means', 'write_report', 'markdown_table', 'write_files_report']


def precision_recall(scores: Tensor, relevance: Tensor) -> tuple[np.ndarray, np.ndarray]:
    "Recall and precision at each positive of one ranking: scores and bool relevance (G,); ties in the gallery's order."
    hits = relevance[scores.argsort(descending=True, stable=True)].nonzero()[:, 0].numpy() + 1.0
    found = np.arange(1, len(hits) + 1)
    return found / max(1, len(hits)), found / hits


def mean_precision_recall(embeddings: Tensor, labels: Tensor, queries: int = 1000, points: int = 41, gallery: Tensor | None = None,
                          gallery_labels: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
    "Precision at fixed recalls, the best at or beyond each recall, averaged over evenly spaced queries; against the gallery, or all others."
    at, total, used = np.linspace(0, 1, points), np.zeros(points), 0
    for q in np.unique(np.linspace(0, len(labels) - 1, min(queries, len(labels))).astype(int)):
        keep = torch.arange(len(labels)) != q if gallery is None else slice(None)
        relevance = ((labels if gallery is None else gallery_labels) == labels[q])[keep]
        if not relevance.any():
            continue
        recall, precision = precision_recall(((embeddings if gallery is None else gallery) @ embeddings[q])[keep], relevance)
        best = np.maximum.accumulate(precision[::-1])[::-1]
        total += best[np.minimum(np.searchsorted(recall, at - 1e-9), len(best) - 1)]
        used += 1
    return at, total / max(1, used)


_COLOURS = {"raw pixels": PALETTE["exact"], "untrained": PALETTE["h_ap"], "trained": PALETTE["smooth_ap"]}
_LINES = {"raw pixels": DASHES["exact"], "untrained": DASHES["h_ap"], "trained": "-"}

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff; }}
h1 {{ font-size: 1.7rem; margin-bottom: .2rem; }} h2 {{ margin-top: 2.2rem; font-size: 1.25rem; }} h3 {{ font-size: 1rem; margin: 1.4rem 0 .3rem; }}
table {{ border-collapse: collapse; }} th, td {{ padding: .3rem .9rem; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }} tr.best td {{ font-weight: 600; }}
.row {{ display: flex; gap: .35rem; align-items: center; margin: .3rem 0; overflow-x: auto; padding: 2px; }}
.row .who {{ flex: 0 0 9.5rem; font-size: .9rem; }}
.row img {{ width: 52px; height: 52px; image-rendering: pixelated; border: 4px solid; flex: none; box-sizing: content-box; }}
img.query {{ border-color: {query}; margin-right: .5rem; }} img.positive {{ border-color: {positive}; }} img.negative {{ border-color: {negative}; border-style: dashed; }}
img.member {{ border-color: transparent; }} img.figure {{ max-width: 100%; height: auto; }} .small {{ color: #555; font-size: .88rem; }} pre {{ background: #f5f5f5; padding: 1rem; overflow-x: auto; font-size: .82rem; }}
.wide {{ overflow-x: auto; }}
</style></head><body>
<h1>{title}</h1>
<p>{description}</p>
<p class="small">{counts}</p>
<h2>How well does it rank characters it has never seen?</h2>
<div class="wide">{table}</div>
<p class="small">{selfnote}</p>
<h2>What it returns</h2>
<p>The query has a black frame. Then the ten nearest pictures, best first: <span style="color:{positive}">the same character, solid blue</span>;
<span style="color:{negative}">another character, dashed vermillion</span>. {choice}</p>
{rows}
<h2>Class by class</h2>
{classes}
<h2>Precision against recall</h2>
<img class="figure" alt="{pr_alt}" src="data:image/png;base64,{pr}">
<h2>The loss while it learned</h2>
{loss}
<h2>Everything needed to repeat it</h2>
<p class="small">{environment}</p>
<pre>{config}</pre>
</body></html>
"""


def _data_url(picture: Tensor) -> str:
    "A (C, H, W) picture in [0, 1] as a data URL: glyphs as PNG, photographs as small JPEG."
    from PIL import Image

    buffer, values = io.BytesIO(), (picture.clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    if len(values) == 1:
        Image.fromarray(values[0].numpy()).save(buffer, format="PNG")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    photo = Image.fromarray(values.permute(1, 2, 0).contiguous().numpy())
    photo.thumbnail((96, 96))
    photo.save(buffer, format="JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _caption(data, index: int) -> str:
    "What a picture shows, in words."
    if hasattr(data, "captions"):
        return data.captions[index]
    fine = int(data.labels[index, -1])
    return str(data.class_names[-1][fine]) if data.class_names else f"class {fine}"


def _picture(data, index: int, kind: str, caption: str) -> str:
    image = data.batch(torch.tensor([index]), draw=0)[0][0]
    return f'<img class="{kind}" alt="{html.escape(caption)}" title="{html.escape(caption)}" src="{_data_url(image)}">'


def _table(record: dict) -> str:
    names = list(record["metrics"])
    keys = [k for k in record["metrics"]["trained"] if not k.endswith("queries_skipped")]
    best = {k: max(record["metrics"][n][k] for n in names) for k in keys}
    cell = lambda n, k: f"<td{' style=font-weight:600' if record['metrics'][n][k] == best[k] else ''}>{record['metrics'][n][k]:.3f}</td>"
    if len(keys) > 12:  # several tests: a line for each metric
        head = "<table><tr><th></th>" + "".join(f"<th>{n}</th>" for n in names) + "</tr>"
        return "\n".join([head, *(f"<tr><td>{html.escape(k)}</td>" + "".join(cell(n, k) for n in names) + "</tr>" for k in keys)]) + "</table>"
    lines = ["<table><tr><th></th>" + "".join(f"<th>{html.escape(k)}</th>" for k in keys) + "</tr>"]
    for n in names:
        lines.append(f"<tr><td>{n}</td>{''.join(cell(n, k) for k in keys)}</tr>")
    return "\n".join(lines) + "</table>"


def _example_rows(shown: dict, k: int = 10) -> str:
    "Ranked rows of the five queries at fixed places in the order of the trained network's AP."
    data, indices, fine = shown["data"], shown["indices"], shown["labels"][:, -1]
    there, apart = shown.get("answers", data), "answers" in shown
    where, known = (torch.arange(len(there)), there.labels[:, -1].cpu()) if apart else (indices, fine)
    ap = shown["per_query"]["trained"]
    order = ap.nan_to_num(2.0).argsort()[: int((~ap.isnan()).sum())]
    out = []
    for place in (.9, .7, .5, .3, .1):
        q = int(order[int(place * (len(order) - 1))])
        name = _caption(data, int(indices[q]))
        out.append(f"<h3>{html.escape(name)} <span class='small'>(query at {place:.0%} in the order of the trained network's AP)</span></h3>")
        for who, rows in shown["embeddings"].items():
            scores = (shown["gallery"][who] if apart else rows) @ rows[q]
            if not apart:
                scores[q] = -torch.inf
            top = scores.topk(min(k, len(scores) - 1)).indices
            cells = [_picture(data, int(indices[q]), "query", f"query: {name}")]
            for place_, i in enumerate(top.tolist(), 1):
                right = bool(known[i] == fine[q])
                cells.append(_picture(there, int(where[i]), "positive" if right else "negative",
                                      f"rank {place_}, {'right' if right else 'wrong'}: {_caption(there, int(where[i]))}"))
            out.append(f'<div class="row"><span class="who">{who}<br><span class="small">AP {shown["per_query"][who][q]:.3f}</span></span>{"".join(cells)}</div>')
    return "\n".join(out)


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
    means = torch.zeros(len(found), dtype=torch.float64).index_add_(0, place, values[kept].double()) / place.bincount(minlength=len(found))
    order = means.argsort(descending=True, stable=True)
    return found[order], means[order]


def _histogram(means: dict[str, Tensor], what: str) -> str:
    "Distribution of the classes' means, one line for each competitor, as an embedded picture."
    fig, ax = plt.subplots(figsize=(6, 2.8))
    for who, values in means.items():
        ax.hist(values.numpy(), bins=np.linspace(0, 1, 41), histtype="step", linewidth=1.8, label=who, color=_COLOURS.get(who, PALETTE["smooth_ap"]),
                linestyle=_LINES.get(who, "-"))
    ax.set(xlabel="mean AP of a class", ylabel=f"number of {what}", xlim=(0, 1))
    if len(means) > 1:
        ax.legend(loc="upper right")
    picture = base64.b64encode(to_png(fig)).decode()
    plt.close(fig)
    alt = "distribution of the mean AP of a class; medians " + ", ".join(f"{who} {float(v.median()):.2f}" for who, v in means.items())
    return f'<img class="figure" alt="{alt}" src="data:image/png;base64,{picture}">'


def _class_section(shown: dict, count: int = 6) -> str:
    "Distribution over classes, and the classes that the trained network ranks best and worst."
    data, indices, fine = shown["data"], shown["indices"], shown["labels"][:, -1]
    out = [_histogram({who: class_means(ap, fine)[1] for who, ap in shown["per_query"].items()}, "classes")]
    classes, means = class_means(shown["per_query"]["trained"], fine)
    for title, chosen in (("best", range(min(count, len(classes)))), ("worst", range(len(classes) - 1, max(-1, len(classes) - 1 - count), -1))):
        out.append(f"<h3>The classes ranked {title}</h3>")
        for c in chosen:
            members = indices[(fine == classes[c]).nonzero()[:, 0]][:8].tolist()
            name = _caption(data, members[0])
            pictures = "".join(_picture(data, i, "member", name) for i in members)
            out.append(f'<div class="row"><span class="who">{html.escape(name.lower())}<br><span class="small">mean AP {means[c]:.3f}</span></span>{pictures}</div>')
    return "\n".join(out)


def _curves(shown: dict) -> bytes:
    fig, ax = plt.subplots(figsize=(6, 3.6))
    for who, rows in shown["embeddings"].items():
        against = (shown["gallery"][who], shown["answers"].labels[:, -1].cpu()) if "answers" in shown else (None, None)
        ax.plot(*mean_precision_recall(rows, shown["labels"][:, -1], gallery=against[0], gallery_labels=against[1]), label=who, color=_COLOURS[who], linestyle=_LINES[who])
    ax.set(xlabel="recall (share of the positives found)", ylabel="precision, mean over queries", xlim=(0, 1), ylim=(0, 1.02))
    ax.legend(loc="best")
    picture = to_png(fig)
    plt.close(fig)
    return picture


def _loss_picture(log: list[dict]) -> str:
    if not log:
        return "<p>No log was found in the run's folder.</p>"
    fig, ax = plt.subplots(figsize=(6, 2.8))
    ax.plot([r["step"] for r in log], [r["loss"] for r in log], color=_COLOURS["trained"])
    ax.set(xlabel="optimiser step", ylabel="loss of the batch")
    picture = base64.b64encode(to_png(fig)).decode()
    plt.close(fig)
    return f'<img class="figure" alt="training loss from {log[0]["loss"]:.3f} at the start to {log[-1]["loss"]:.3f} at the end" src="data:image/png;base64,{picture}">'


def write_report(run, record: dict, shown: dict) -> Path:
    """Write the run's `report.html`, a page without outside parts.

    Args:
        run: the run's folder.
        record, shown: what `measure` returned.

    Returns:
        the page's path.
    """
    use_style()
    run, env, trained = Path(run), record["environment"], record["metrics"]["trained"]
    glyphs = record["config"]["data"]["name"] == "glyphs"
    skipped = sum(int(v) for k, v in trained.items() if k.endswith("queries_skipped"))
    headline = {n: next((m[k] for k in m if k.endswith("mAP")), float("nan")) for n, m in record["metrics"].items()}
    seconds = record["training"].get("seconds")
    page = _PAGE.format(
        title=html.escape(f"{record['experiment']}: what the network finds"), description=html.escape(record["config"]["description"]),
        counts=f"{record['test_images']:,} pictures of {record['test_classes']:,} {'characters' if glyphs else 'classes'} that were never trained on, each a query once, ranked against "
               + (f"a gallery of {len(shown['answers']):,} others." if "answers" in shown else "all others."),
        table=_table(record), query=PALETTE["query"], positive=PALETTE["positive"], negative=PALETTE["negative"],
        selfnote="The query itself is never in its own ranking. mAP: mean Average Precision over all pictures of the character; R@K: share of queries with at least "
                 f"one right picture among the first K. Ties count against the ranking. Queries without a second picture, left out: {skipped}.",
        choice="Nobody picked these queries: they stand at fixed places in the order of the trained network's AP, from easy to hard.",
        rows=_example_rows(shown), classes=_class_section(shown), pr=base64.b64encode(_curves(shown)).decode(),
        pr_alt="precision against recall; mAP " + ", ".join(f"{n} {v:.3f}" for n, v in headline.items()),
        loss=_loss_picture(shown["log"]),
        environment=html.escape(f"seed {record['seed']}; trained in {seconds:.0f} s" if seconds is not None else f"seed {record['seed']}")
        + html.escape("; " + "; ".join(f"{k} {v}" for k, v in env.items()) + f"; {record['date']}"),
        config=html.escape((run / "experiment.toml").read_text(encoding="utf-8")))
    write_atomic(run / "report.html", page)
    return run / "report.html"


def markdown_table(metrics: dict[str, dict]) -> str:
    "Metrics of one or several competitors as a Markdown table."
    keys = [k for k in next(iter(metrics.values())) if not k.endswith("queries_skipped")]
    lines = ["| | " + " | ".join(keys) + " |", "|---|" + "---:|" * len(keys)]
    return "\n".join(lines + [f"| {name} | " + " | ".join(f"{row[k]:.4f}" for k in keys) + " |" for name, row in metrics.items()]) + "\n"


def write_files_report(path, record: dict, values: dict, count: int = 10) -> Path:
    "A page without outside parts for embeddings from files: table, distribution over classes, best and worst classes."
    use_style()
    classes, means = class_means(torch.as_tensor(values["per_query"]["mAP"]), values["fine"])
    keys = [k for k in record["metrics"] if k != "queries_skipped"]
    table = "<table><tr>" + "".join(f"<th>{html.escape(k)}</th>" for k in keys) + "</tr><tr>" + "".join(f"<td>{record['metrics'][k]:.4f}</td>" for k in keys) + "</tr></table>"
    ends = [("best", range(min(count, len(classes)))), ("worst", range(len(classes) - 1, max(-1, len(classes) - 1 - count), -1))]
    lists = "".join(f"<h2>The classes ranked {title}</h2><table><tr><th>class</th><th>mean AP</th></tr>"
                    + "".join(f"<tr><td>{int(classes[c])}</td><td>{means[c]:.4f}</td></tr>" for c in chosen) + "</table>" for title, chosen in ends)
    title = html.escape(f"Retrieval metrics of {Path(record['embeddings']).name}")
    style = _PAGE[_PAGE.index("<style>"):_PAGE.index("</style>") + 8].format(query=PALETTE["query"], positive=PALETTE["positive"], negative=PALETTE["negative"])
    facts = html.escape("; ".join(f"{k} {v}" for k, v in record["environment"].items()) + f"; {record['date']}")
    page = (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>\n{style}</head>'
            f'<body><h1>{title}</h1><p class="small">{record["queries"]:,} queries against {record["gallery"]:,} images; queries without a positive, left out: '
            f'{record["metrics"]["queries_skipped"]}.</p><div class="wide">{table}</div><h2>Class by class</h2>{_histogram({"these embeddings": means}, "classes")}{lists}'
            f'<h2>Everything needed to repeat it</h2><p class="small">{facts}</p></body></html>\n')
    write_atomic(Path(path), page)
    return Path(path)
