"""A figure that moves in the browser without a kernel, and live in JupyterLab."""

from __future__ import annotations

import hashlib
import html
import json
import math
import os
import re
from itertools import product
from numbers import Integral, Real
from typing import Callable, Sequence

import matplotlib.pyplot as plt

from .figures import show, to_svg

__all__ = ['STAND_IN', 'player_html', 'live_slider', 'live_figures', 'explore']

# hides the still picture in front of a figure that has come alive; ROOT is the figure
STAND_IN = """{ const outputs = ".jp-OutputArea-child,.cell-output,.output_area", shell = ROOT.closest(outputs), still = shell && shell.previousElementSibling;
    if (still && still.matches(outputs) && still.querySelector("img") && !still.querySelector("figure.player,figure.ranklab-figure")) still.style.display = "none"; }"""  # noqa: E501

_PLAYER = """<figure class="player" id="{id}" role="group" aria-label="{alt}" style="margin:0;max-width:100%">
<script type="text/plain" class="player-frames">{frames}</script>
<div class="player-stage"></div>
<p class="player-note" style="font-size:small;margin:0 0 .3em">The slider moves once this notebook is trusted or run.</p>
{bars}
<script>(() => {{
  const root = [...document.querySelectorAll("figure#{id}")].find((figure) => !figure.dataset.awake), texts = {texts};
  const unique = root.dataset.awake = "p" + (window.players = (window.players || 0) + 1);
  root.querySelector(".player-stage").innerHTML = root.querySelector(".player-frames").textContent.replaceAll("{prefix}-", unique + "-");
  const note = root.querySelector(".player-note");
  if (root.closest(".jp-Notebook")) note.innerHTML = "Frames drawn beforehand. For every value in between, add <code>live=True</code> to <code>explore(...)</code> and run the cell."; else note.remove();
  const frames = root.querySelectorAll(".player-stage .frame"), bars = [...root.querySelectorAll("input")];
  const move = () => {{
    const place = bars.reduce((sum, bar, k) => sum * texts[k].length + Number(bar.value), 0);
    frames.forEach((frame, i) => {{ frame.style.display = i == place ? "" : "none"; }});
    bars.forEach((bar, k) => {{ bar.nextElementSibling.textContent = texts[k][bar.value]; bar.setAttribute("aria-valuetext", texts[k][bar.value]); }});
  }};
  bars.forEach((bar) => bar.addEventListener("input", move));
  move(); {stand_in}
}})();</script></figure>"""  # noqa: E501

_BAR = """<label style="display:flex;gap:.8em;align-items:center;font-family:sans-serif;font-size:14px">{name}
<input type="range" min="0" max="{last}" value="{start}" step="1" data-lm-suppress-shortcuts="true" style="flex:1;max-width:24em" aria-label="{name}" aria-valuetext="{now}">
<output style="min-width:6em">{now}</output></label>"""  # noqa: E501


def player_html(draw: Callable, values: dict[str, Sequence], start: Sequence[int], alt: str) -> str:
    """One SVG frame per stop (per pair of stops, for two sliders) behind range inputs; keyboard and screen reader can
    work it.

    Args:
        draw: takes one value per slider, by name, and returns a figure.
        values: slider name -> the values it stops at.
        start: for each slider the place of the value shown first.
        alt: what moving the sliders shows, as a finding.

    Returns:
        HTML, the same for the same frames.
    """
    frames, first = (
        [],
        sum(place * math.prod(len(v) for v in list(values.values())[k + 1 :]) for k, place in enumerate(start)),
    )
    for i, stops in enumerate(product(*values.values())):
        fig = draw(**dict(zip(values, stops)))
        hidden = "" if i == first else ' style="display:none"'
        frames.append(f'<div class="frame"{hidden}>{to_svg(fig)}</div>')
        plt.close(fig)
    body = "\n".join(frames)
    ident = "player-" + hashlib.sha256(body.encode()).hexdigest()[:12]
    texts = [[_text(v) for v in stops] for stops in values.values()]
    bars = [
        _BAR.format(
            name=html.escape(name, quote=True), last=len(t) - 1, start=place, now=html.escape(t[place], quote=True)
        )
        for name, t, place in zip(values, texts, start)
    ]
    return _PLAYER.format(
        id=ident,
        alt=html.escape(alt, quote=True),
        frames=_private_ids(body, ident),
        bars="\n".join(bars),
        prefix=ident[7:13],
        texts=json.dumps(texts).replace("</", "<\\/"),
        stand_in=STAND_IN.replace("ROOT", "root"),
    )


def _text(value) -> str:
    return f"{value:g}" if isinstance(value, Real) and not isinstance(value, bool) else str(value)


def _private_ids(body: str, ident: str) -> str:
    """Frames share a page: give every SVG id in a frame a prefix of its own, so that clip paths and markers do not
    cross over.
    """
    out = []
    for i, frame in enumerate(body.split('<div class="frame"')):
        prefix = f"{ident[7:13]}-{i}-"
        frame = re.sub(r'\bid="([^"]+)"', lambda m: f'id="{prefix}{m[1]}"', frame)
        frame = re.sub(r'url\(#([^)]+)\)', lambda m: f'url(#{prefix}{m[1]})', frame)
        out.append(re.sub(r'xlink:href="#([^"]+)"', lambda m: f'xlink:href="#{prefix}{m[1]}"', frame))
    return '<div class="frame"'.join(out)


def live_slider(name: str, stops: Sequence, start: int = 0, between: bool = True):
    """The ipywidgets slider for some stops: over the whole range between the least and the greatest, or
    (`between=False`) over the stops alone.

    Args:
        name: what it is called.
        stops: values, at least one. All whole numbers: an integer slider; numbers above 0 that span a decade or
            more: a logarithmic one; other numbers: a
            linear one; anything else: a choice among the stops.
        start: place of the first value.
        between: whether values between the stops make sense.

    Raises:
        ImportError: ipywidgets is not installed.
    """
    try:
        import ipywidgets
    except ImportError as error:
        raise ImportError(
            "a live figure needs ipywidgets: pip install ipywidgets; without live=True explore needs no widgets"
        ) from error
    stops, now = list(stops), stops[start]
    numbers = all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in stops)
    if not between or not numbers or len(set(stops)) < 2:
        return ipywidgets.SelectionSlider(options=[(_text(v), v) for v in stops], index=start, description=name)
    low, high = min(stops), max(stops)
    if all(isinstance(v, Integral) for v in stops):
        return ipywidgets.IntSlider(value=int(now), min=int(low), max=int(high), description=name)
    if low > 0 and high >= 10 * low:
        return ipywidgets.FloatLogSlider(
            value=float(now),
            base=10,
            min=math.log10(low),
            max=math.log10(high),
            step=math.log10(high / low) / 200,
            readout_format=".3g",
            description=name,
        )
    return ipywidgets.FloatSlider(
        value=float(now),
        min=float(low),
        max=float(high),
        step=(float(high) - float(low)) / 200,
        readout_format=".3g",
        description=name,
    )


_LIVE = [os.environ.get("SMOOTHAP_LIVE", "") not in ("", "0")]


def live_figures(on: bool = True) -> None:
    """Make every `explore` that follows live (or static again), as if each were called with ``live=True``.
    SMOOTHAP_LIVE=1 in the environment does the same.

    Args:
        on: True for live, False for frames drawn once.
    """
    _LIVE[0] = bool(on)


def explore(
    draw: Callable,
    *,
    alt: str,
    start: int | Sequence[int] | None = None,
    live: bool | None = None,
    between: bool = True,
    **values: Sequence,
):
    """A figure with one or two sliders.

    Args:
        draw: takes one value per slider, by the slider's name, and returns a figure.
        alt: what moving the slider shows, as a finding.
        start: place of the value shown first, one for each slider; the middle when left out.
        live: use ipywidgets and call `draw` at every move, over the whole range between the values (needs a kernel);
            else frames drawn once, as plain HTML. Left out, what `live_figures` says: static, unless it was called.
        between: whether `draw` can take values between the listed ones when live; False keeps to the list.
        **values: each slider's name and the values it stops at, e.g. ``tau=[0.1, 0.01, 0.001]``; two sliders draw
            every pair.

    Raises:
        ValueError: no slider or more than two, a slider without values, a start outside its values.
        ImportError: live without ipywidgets.
    """
    values = {name: list(stops) for name, stops in values.items()}
    if not 1 <= len(values) <= 2 or not all(values.values()):
        raise ValueError(
            f"explore takes one slider or two, each with at least one value, e.g. tau=[0.1, 0.01]; got {values}"
        )
    start = (
        [len(stops) // 2 for stops in values.values()]
        if start is None
        else [start]
        if isinstance(start, Integral)
        else list(start)
    )
    if len(start) != len(values) or not all(
        isinstance(place, Integral) and 0 <= place < len(stops) for place, stops in zip(start, values.values())
    ):
        raise ValueError(
            f"start must be one place for each slider, {[f'0 ... {len(v) - 1}' for v in values.values()]}; got {start}"
        )
    if _LIVE[0] if live is None else live:
        return _explore_live(draw, alt, start, between, values)
    from IPython.display import HTML, display

    now = {name: stops[place] for (name, stops), place in zip(values.items(), start)}
    still = (
        ""
        if any(isinstance(v, bool) or not isinstance(v, Real) for v in now.values())
        else f" (still picture at {', '.join(f'{k} = {v:g}' for k, v in now.items())})"
    )
    show(draw(**now), alt + still)
    display(HTML(player_html(draw, values, start, alt)))


def _explore_live(draw, alt, start, between, values):
    sliders = {name: live_slider(name, stops, place, between) for (name, stops), place in zip(values.items(), start)}
    import ipywidgets
    from IPython.display import display

    display(ipywidgets.interactive(lambda **now: show(draw(**now), alt), **sliders))
