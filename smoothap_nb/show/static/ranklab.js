// RankLab: one ranking in the hand. Move a picture, and see what every loss of the lessons says and where it pushes.
// The mathematics comes first and knows nothing of the page; `mount(element, state)` draws it; `default.render` is for anywidget.

// ---- mathematics: each function returns the value and its derivative with respect to every score --------------------------------------------

const zeros = (n) => new Array(n).fill(0);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
const indices = (flags) => flags.flatMap((flag, i) => (flag ? [i] : []));

// Rank of item i inside `members`; an equal score counts as ahead ("max") or as half ahead ("average").
function rankIn(scores, i, members, ties = "max") {
  let ahead = 0, level = 0;
  for (const j of members) {
    if (scores[j] > scores[i]) ahead += 1;
    else if (scores[j] === scores[i]) level += 1;
  }
  return ties === "max" ? ahead + level : ahead + (level + 1) / 2;
}

export function ranks(scores, ties = "max") {
  const all = scores.map((_, i) => i);
  return all.map((i) => rankIn(scores, i, all, ties));
}

export function averagePrecision(scores, relevance) {
  const all = scores.map((_, i) => i), positives = indices(relevance);
  const value = sum(positives.map((i) => rankIn(scores, i, positives) / rankIn(scores, i, all))) / positives.length;
  return { value, gradient: zeros(scores.length) };
}

export function smoothAP(scores, relevance, tau) {
  const positives = indices(relevance), gradient = zeros(scores.length);
  let total = 0;
  for (const i of positives) {
    let among = 1, rank = 1;
    const soft = scores.map((s, j) => (j === i ? 0 : sigmoid((s - scores[i]) / tau)));
    soft.forEach((g, j) => { rank += g; if (relevance[j]) among += g; });
    total += among / rank;
    soft.forEach((g, j) => {
      if (j === i) return;
      const weight = ((g * (1 - g)) / tau) * ((relevance[j] ? rank : 0) - among) / (rank * rank) / positives.length;
      gradient[j] += weight;
      gradient[i] -= weight;
    });
  }
  return { value: total / positives.length, gradient };
}

// RaMBO: the loss at the exact ranks, and the slope of the interpolation, found by ranking a second time.
function rambo(scores, relevance, lam, margin, lossAndSlopes) {
  const n = scores.length, reach = lam * n;
  const shifted = scores.map((s, i) => (margin === 0 ? s : s + (relevance[i] ? -margin / 2 : margin / 2)));
  const all = scores.map((_, i) => i), positives = indices(relevance);
  if (!positives.length) return { value: NaN, interpolated: NaN, gradient: zeros(n), shifted, moved: shifted };
  const pairs = positives.map((i) => [rankIn(shifted, i, positives), rankIn(shifted, i, all)]);
  const { loss, slopes } = lossAndSlopes(pairs);
  const incoming = zeros(n);
  positives.forEach((i, k) => { incoming[i] = slopes[k]; });
  const moved = shifted.map((s, i) => s + reach * incoming[i]);
  const before = ranks(shifted), after = ranks(moved);
  const smallest = (s) => dot(s, ranks(s, "average"));
  const envelope = (smallest(moved) - smallest(shifted)) / reach;
  return {
    value: loss, interpolated: loss + envelope - dot(incoming, ranks(shifted, "average")),
    gradient: after.map((r, i) => (r - before[i]) / reach), shifted, moved,
  };
}

export function ramboAP(scores, relevance, lam, margin) {
  return rambo(scores, relevance, lam, margin, (pairs) => ({
    loss: 1 - sum(pairs.map(([among, rank]) => among / rank)) / pairs.length,
    slopes: pairs.map(([among, rank]) => among / (rank * rank) / pairs.length),
  }));
}

export function ramboRecall(scores, relevance, lam, margin) {
  return rambo(scores, relevance, lam, margin, (pairs) => ({
    loss: sum(pairs.map(([among, rank]) => Math.log1p(Math.log1p(rank - among)))) / pairs.length,
    slopes: pairs.map(([among, rank]) => 1 / ((1 + rank - among) * (1 + Math.log1p(rank - among))) / pairs.length),
  }));
}

export function fastAP(scores, relevance, bins = 10) {
  const n = scores.length, positives = indices(relevance).length, positive = zeros(bins + 1), all = zeros(bins + 1);
  const place = scores.map((s) => (1 - s) * (bins / 2)), node = place.map((p) => Math.min(Math.max(Math.floor(p), 0), bins - 1));
  scores.forEach((_, i) => {
    const share = Math.min(Math.max(place[i] - node[i], 0), 1);
    for (const [b, mass] of [[node[i], 1 - share], [node[i] + 1, share]]) { all[b] += mass; if (relevance[i]) positive[b] += mass; }
  });
  const found = [], seen = [];
  all.forEach((_, b) => { found.push((found[b - 1] ?? 0) + positive[b]); seen.push((seen[b - 1] ?? 0) + all[b]); });
  const safe = seen.map((x) => (x > 0 ? x : 1));
  const value = sum(positive.map((p, b) => (p * found[b]) / safe[b])) / positives;
  const later = zeros(bins + 2), crowd = zeros(bins + 2); // sums over this node and those behind it
  for (let b = bins; b >= 0; b--) {
    later[b] = later[b + 1] + positive[b] / safe[b];
    crowd[b] = crowd[b + 1] + (seen[b] > 0 ? (positive[b] * found[b]) / (safe[b] * safe[b]) : 0);
  }
  const perMass = (b, isPositive) => (isPositive ? found[b] / safe[b] + later[b] : 0) - crowd[b];
  const gradient = zeros(n);
  if (positives) scores.forEach((_, i) => {
    gradient[i] = ((perMass(node[i] + 1, relevance[i]) - perMass(node[i], relevance[i])) * (-bins / 2)) / positives;
  });
  return { value, gradient };
}

export function relevanceFromLevels(levels, alpha) {
  const top = Math.max(...levels, 1);
  return levels.map((l) => (l > 0 ? (l / top) ** alpha / levels.filter((other) => other === l).length : 0));
}

export function hAP(scores, worth) {
  const all = scores.map((_, i) => i), positives = all.filter((i) => worth[i] > 0);
  let total = 0;
  for (const k of positives) {
    total += sum(positives.map((j) => (scores[j] >= scores[k] ? Math.min(worth[j], worth[k]) : 0))) / rankIn(scores, k, all);
  }
  return { value: total / sum(worth), gradient: zeros(scores.length) };
}

// HAPPIER's surrogate: a step from above for coarser items ahead, one from below for finer items ahead.
export function smoothHAP(scores, levels, worth, tau = 0.01, rho = 100, delta = 0.05, start = 0.5, leak = 10, slope = 25, intercept = 0.5) {
  const n = scores.length, gradient = zeros(n), share = 1 / sum(worth), edge = sigmoid(delta / tau) + start;
  const upper = (t) => {
    if (t > delta) return [rho * (t - delta) + edge, rho];
    const g = sigmoid(t / tau);
    return [t > 0 ? g + start : g, (g * (1 - g)) / tau];
  };
  const lower = (t) => {
    if (!(t > 0)) return [leak * t, leak];
    const ramp = slope * t + intercept;
    return ramp < 1 ? [ramp, slope] : [1, 0];
  };
  let total = 0;
  for (let k = 0; k < n; k++) {
    if (!(levels[k] > 0)) continue;
    let rank = 0, hRank = 0;
    const up = zeros(n), down = zeros(n);
    for (let j = 0; j < n; j++) {
      const gap = scores[j] - scores[k], common = Math.min(worth[j], worth[k]);
      if (levels[j] >= levels[k]) rank += gap >= 0;
      else { const [value, rise] = upper(gap); rank += value; up[j] = rise; }
      if (levels[j] > levels[k]) { const [value, rise] = lower(gap); hRank += common * value; down[j] = common * rise; }
      else if (gap >= 0) hRank += common;
    }
    const weight = worth[k] > 0 ? share / rank : 0;
    total += hRank * weight;
    for (let j = 0; j < n; j++) {
      const push = weight * (down[j] - (up[j] * hRank) / rank);
      gradient[j] += push;
      gradient[k] -= push;
    }
  }
  return { value: sum(worth) > 0 ? total : NaN, gradient };
}

// Everything RankLab shows, for one state {scores, relevance, levels, tau, lam, margin, alpha, bins}. Gradients are those of the losses.
export function compute(state) {
  const { scores, relevance, levels, tau, lam, margin, alpha, bins = 10 } = state;
  const worth = relevanceFromLevels(levels, alpha);
  const asLoss = ({ value, gradient, ...rest }) => ({ ...rest, value, loss: 1 - value, gradient: gradient.map((g) => (g ? -g : 0)) });
  const rival = (found) => ({ ...found, loss: found.value });
  return {
    average_precision: asLoss(averagePrecision(scores, relevance)),
    smooth_ap: asLoss(smoothAP(scores, relevance, tau)),
    rambo_ap: rival(ramboAP(scores, relevance, lam, margin)),
    rambo_recall: rival(ramboRecall(scores, relevance, lam, margin)),
    fast_ap: asLoss(fastAP(scores, relevance, bins)),
    h_ap: { ...asLoss(smoothHAP(scores, levels, worth, tau)), exact: hAP(scores, worth).value },
  };
}

// ---- the figure ---------------------------------------------------------------------------------------------------------------------------

const COLOURS = {
  positive: "#0072B2", negative: "#D55E00", exact: "#777777", smooth_ap: "#009E73", rambo: "#CC79A7", h_ap: "#E69F00", fast_ap: "#56B4E9",
};
const LOSSES = [ // key, name, what its number is, colour, whether lower is better
  ["average_precision", "Exact AP", "metric ↑", COLOURS.exact],
  ["smooth_ap", "Smooth-AP", "soft metric ↑", COLOURS.smooth_ap],
  ["fast_ap", "FastAP", "binned metric ↑", COLOURS.fast_ap],
  ["h_ap", "H-AP", "metric ↑", COLOURS.h_ap],
  ["rambo_ap", "RaMBO AP", "loss ↓, interpolated", COLOURS.rambo, true],
  ["rambo_recall", "RaMBO recall", "loss ↓, interpolated", COLOURS.rambo, true],
];
const SLIDERS = [ // key, symbol, who listens, least, most, logarithmic
  ["tau", "τ", "Smooth-AP, H-AP", 0.001, 0.3, true],
  ["lam", "λ", "RaMBO", 0.02, 20, true],
  ["margin", "margin", "RaMBO", 0, 0.3, false],
  ["alpha", "α", "H-AP", 0, 5, false],
];
const SYNCED = ["scores", "relevance", "levels", "tau", "lam", "margin", "alpha", "gradient"];
const TRACK = 46, SIZE = 36, GUTTER = 58, AXIS = 44, TOP = 20;

const CSS = `
.ranklab{--rl-line:color-mix(in srgb,currentColor 22%,transparent);--rl-soft:color-mix(in srgb,currentColor 7%,transparent);
 font:14px/1.35 system-ui,-apple-system,"Segoe UI",sans-serif;max-width:820px;margin:0;color:inherit;container-type:inline-size}
.ranklab *{box-sizing:border-box}
.ranklab :focus-visible{outline:3px solid #56B4E9;outline-offset:2px}
.ranklab .rl-caption{font-size:12px;opacity:.8;margin:0 0 4px}
.ranklab .rl-row{position:relative;margin:0 0 8px}
.ranklab .rl-cell{position:absolute;top:0;text-align:center;font-size:11px;transition:transform .25s ease}
.ranklab .rl-pic{display:block;background:#000;border:3px solid currentColor;border-radius:5px;width:100%;aspect-ratio:1}
.ranklab .rl-pic.rl-positive{border-color:${COLOURS.positive}}
.ranklab .rl-pic.rl-negative{border-color:${COLOURS.negative};border-style:dashed}
.ranklab fieldset{border:0;margin:0 0 8px;padding:0;min-width:0}
.ranklab legend{padding:0;font-size:12px;opacity:.8;margin-bottom:4px}
.ranklab .rl-cards{display:grid;grid-template-columns:4fr 2fr;gap:6px 14px}
.ranklab .rl-side{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));gap:2px 6px;align-content:start}
.ranklab .rl-side.rl-lower{grid-template-columns:repeat(2,minmax(0,1fr))}
.ranklab .rl-side>span{grid-column:1/-1;font-size:11.5px;opacity:.8}
.ranklab .rl-lower .rl-card{border-style:dashed;border-top:4px dashed var(--rl-colour)}
.ranklab .rl-card{position:relative;display:block;padding:6px 8px 8px;border:1px solid var(--rl-line);border-radius:8px;cursor:pointer;margin:0;
 border-top:4px solid var(--rl-colour)}
.ranklab .rl-card:has(input:checked){background:color-mix(in srgb,var(--rl-colour) 20%,transparent);border-color:var(--rl-colour)}
.ranklab .rl-card:has(input:focus-visible){outline:3px solid #56B4E9;outline-offset:2px}
.ranklab .rl-card input{position:absolute;opacity:0;inset:0;width:100%;height:100%;margin:0;cursor:pointer}
.ranklab .rl-card b{display:block;font-size:12.5px;font-weight:600;white-space:nowrap}
.ranklab .rl-card strong{display:block;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums;line-height:1.2}
.ranklab .rl-card small{display:block;font-size:11px;opacity:.8;font-variant-numeric:tabular-nums;white-space:nowrap}
.ranklab .rl-stage{position:relative;user-select:none;-webkit-user-select:none}
.ranklab .rl-stage>svg{display:block;width:100%;overflow:visible;color:inherit}
.ranklab .rl-stage text{fill:currentColor;font:11px system-ui,sans-serif}
.ranklab .rl-item{position:absolute;left:0;top:0;width:${SIZE}px;height:${SIZE}px;cursor:grab;touch-action:pan-y;border-radius:5px}
.ranklab .rl-item:active{cursor:grabbing}
.ranklab .rl-item .rl-pic{pointer-events:none}
.ranklab .rl-item[data-active]{box-shadow:0 0 0 2px currentColor}
.ranklab .rl-badge{position:absolute;right:-6px;top:-6px;width:15px;height:15px;pointer-events:none}
.ranklab .rl-edit,.ranklab .rl-sliders{display:flex;flex-wrap:wrap;gap:6px 14px;align-items:center;margin:8px 0}
.ranklab .rl-edit button{font:inherit;color:inherit;background:var(--rl-soft);border:1px solid var(--rl-line);border-radius:6px;padding:5px 10px;cursor:pointer;min-height:32px}
.ranklab .rl-edit button:hover{background:var(--rl-line)}
.ranklab .rl-what{flex:1 1 200px;font-size:13px;min-width:0}
.ranklab .rl-sliders{display:grid;grid-template-columns:1fr 1fr;gap:6px 22px}
.ranklab .rl-slider{display:grid;grid-template-columns:minmax(112px,auto) 1fr 48px;gap:8px;align-items:center;font-size:13px;margin:0}
.ranklab .rl-slider i{font-style:normal;font-size:11px;opacity:.8;display:block;line-height:1.1}
.ranklab .rl-slider input{width:100%;min-width:0;margin:0;accent-color:${COLOURS.positive}}
.ranklab .rl-slider output{font-variant-numeric:tabular-nums;text-align:right}
.ranklab .rl-note{font-size:12.5px;margin:4px 0 8px;min-height:2.7em}
.ranklab .rl-note.rl-help{min-height:0;opacity:.85}
.ranklab .rl-hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@container (max-width:560px){.ranklab .rl-cards{grid-template-columns:1fr}.ranklab .rl-side,.ranklab .rl-side.rl-lower{grid-template-columns:repeat(2,minmax(0,1fr))}.ranklab .rl-card{padding:6px 6px 8px}.ranklab .rl-card small{white-space:normal;line-height:1.15}.ranklab .rl-sliders{grid-template-columns:1fr}}
@media (prefers-reduced-motion:reduce){.ranklab *{transition:none!important}}
`;

const reachOf = (tau) => 2 * tau * Math.acosh(Math.max(1, 1 / (2 * Math.sqrt(0.005 * tau)))); // lesson 03, (3.4)

const NOTES = {
  average_precision: () => "The exact AP only counts who is ahead of whom: a small move changes nothing, so its gradient is zero for every picture.",
  smooth_ap: (s) => `Shaded: the reach of τ, ±${shorten(reachOf(s.tau))} around the chosen picture, where a pair's sigmoid has a slope above 0.005. Pairs further apart hardly push.`,
  rambo_ap: () => "Dotted squares: where the second sort sees the pictures, with the margin taken and positives lifted by λ times the incoming gradient. Whoever changes rank there is pushed.",
  rambo_recall: () => "Dotted squares: where the second sort sees the pictures, with the margin taken and positives lifted by λ times the incoming gradient. Whoever changes rank there is pushed.",
  fast_ap: () => "Dotted lines: the nodes of FastAP's histogram. A picture shares its weight between the two nodes beside it, and only the shares have a slope.",
  h_ap: (s) => `Arrows: HAPPIER's surrogate of H-AP, with the sigmoid at τ and a line beyond 0.05. The more squares beside a picture, the more it is worth; α = ${shorten(s.alpha)} says how much more.`,
};

const shorten = (x) => (Number.isNaN(x) ? "–" : Math.abs(x) >= 100 ? x.toFixed(0) : String(Number(x.toPrecision(3))));
const unsigned = (text) => (Number(text) === 0 ? text.replace("-", "") : text); // no "-0.000"
const fixed = (x) => (Number.isFinite(x) ? unsigned(x.toFixed(Math.abs(x) >= 100 ? 1 : 3)) : "–");
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "line", "path", "rect", "text", "circle"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function badge(positive) { // a disc or a cross, so that grey print tells them apart
  const svg = make("svg", { class: "rl-badge", viewBox: "0 0 16 16", "aria-hidden": "true" });
  if (positive) svg.append(make("circle", { cx: 8, cy: 8, r: 6.5, fill: COLOURS.positive, stroke: "#fff", "stroke-width": 1.5 }));
  else for (const [w, colour] of [[6, "#fff"], [3.5, COLOURS.negative]]) svg.append(make("path", { d: "M3 3L13 13M13 3L3 13", stroke: colour, "stroke-width": w }));
  return svg;
}

// Draw RankLab into `element` and keep it in step with `state`; `changed(names)` is called after a move by hand.
// Returns {state, update(partial), compute(), destroy()}.
export function mount(element, initial, changed = () => {}) {
  const state = structuredClone({ tau: 0.01, lam: 4, margin: 0.02, alpha: 1, bins: 10, gradient: "smooth_ap", names: [], images: [], ...initial });
  const origin = structuredClone(state), count = state.scores.length;
  const top = state.num_levels ?? Math.max(1, ...state.levels), range = state.range ?? scoreRange(state.scores);
  let active = 0, found = compute(state), width = 0, dragging = null, speaking = 0;
  element.replaceChildren();
  element.classList.add("ranklab");
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", state.label ?? "RankLab: move the pictures of one ranking and see what each loss says");

  const pictures = (i, attributes = {}) => make("img", { class: "rl-pic", src: state.images[i], alt: state.names[i] || `picture ${i + 1}`, draggable: "false", ...attributes });
  const row = make("div", { class: "rl-row", "aria-hidden": "true" }), caption = make("p", { class: "rl-caption" });
  const queryCell = make("div", { class: "rl-cell" }, make("img", { class: "rl-pic", src: state.query ?? null, alt: "the query" }), "query");
  const cells = state.scores.map((_, i) => make("div", { class: "rl-cell" }, pictures(i), make("span")));
  row.append(...(state.query ? [queryCell] : []), ...cells);

  const group = `ranklab-${(globalThis.ranklabs = (globalThis.ranklabs ?? 0) + 1)}`; // several on a page must not share their radio buttons
  const cards = LOSSES.map(([key, name, kind, colour, lower = false]) => {
    const input = make("input", { type: "radio", name: group, value: key });
    input.addEventListener("change", () => edit({ gradient: key }));
    return { key, input, value: make("strong"), extra: make("small"), colour, name, kind, lower };
  });
  const card = (c) => make("label", { class: "rl-card", style: `--rl-colour:${c.colour}` }, c.input, make("b", {}, c.name), c.value, make("small", {}, c.kind), c.extra);
  const side = (lower, words) => make("div", { class: lower ? "rl-side rl-lower" : "rl-side" }, make("span", {}, words), ...cards.filter((c) => c.lower === lower).map(card));
  const chooser = make("fieldset", {}, make("legend", {}, "This ranking, in numbers. Choose whose gradient the arrows show:"),
    make("div", { class: "rl-cards" }, side(false, "↑ Measures: higher is better, 1 is perfect"), side(true, "↓ Losses: lower is better, 0 is perfect")));

  const height = TOP + count * TRACK + AXIS;
  const svg = make("svg", { height, "aria-hidden": "true" });
  const items = state.scores.map((_, i) => {
    const item = make("div", { class: "rl-item", role: "slider", tabindex: "0", "aria-valuemin": range[0], "aria-valuemax": range[1], "aria-orientation": "horizontal" }, pictures(i));
    item.addEventListener("pointerdown", (event) => {
      dragging = { i, offset: event.clientX - toX(state.scores[i]), pointer: event.pointerId };
      item.setPointerCapture(event.pointerId);
      choose(i);
      item.focus({ preventScroll: true });
      event.preventDefault();
    });
    item.addEventListener("pointermove", (event) => { if (dragging?.i === i && dragging.pointer === event.pointerId) move(i, toScore(event.clientX - dragging.offset)); });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) item.addEventListener(end, () => { if (dragging?.i === i) dragging = null; });
    item.addEventListener("dblclick", () => flip(i));
    item.addEventListener("focus", () => choose(i));
    item.addEventListener("keydown", (event) => key(i, event));
    return item;
  });
  const stage = make("div", { class: "rl-stage" }, svg, ...items);

  const what = make("div", { class: "rl-what" });
  const button = (text, action, title) => { const b = make("button", { type: "button", title }, text); b.addEventListener("click", action); return b; };
  const flipButton = button("Flip relevance", () => flip(active), "positive or negative for this query");
  const levelButton = button("Next level", () => cycle(active), "how much of its label this picture shares with the query");
  const stepButton = button("Step downhill", step, "move every picture along its arrow, by 0.02 at most");
  const resetButton = button("Reset", () => edit(structuredClone(Object.fromEntries(SYNCED.map((k) => [k, origin[k]])))), "back to the scores, labels and settings at the start");
  const editor = make("div", { class: "rl-edit" }, what, flipButton, levelButton, stepButton, resetButton);

  const sliders = SLIDERS.map(([name, symbol, who, low, high, log]) => {
    const input = make("input", { type: "range", min: 0, max: 1000, step: 1, "aria-label": `${symbol} (${who})` }), output = make("output");
    const toValue = (at) => Number((log ? low * (high / low) ** (at / 1000) : low + (high - low) * (at / 1000)).toPrecision(3));
    const toPlace = (value) => Math.round(1000 * (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)));
    input.addEventListener("input", () => edit({ [name]: toValue(Number(input.value)) }));
    const label = make("label", { class: "rl-slider" }, make("span", {}, symbol, make("i", {}, who)), input, output);
    return { name, input, output, toPlace, label };
  });
  const note = make("p", { class: "rl-note" });
  const help = make("p", { class: "rl-note rl-help" }, "Drag a picture, or focus it and press ← → (Shift: ten times as far; Home, End). Space flips its relevance, L changes its level.");
  const live = make("div", { class: "rl-hidden", role: "status", "aria-live": "polite" });
  element.append(make("style", {}, CSS), caption, row, chooser, stage, note, editor, make("div", { class: "rl-sliders" }, ...sliders.map((s) => s.label)), help, live);

  const left = () => GUTTER + SIZE / 2 + 4, right = () => width - SIZE / 2 - (width > 560 ? 56 : 34);
  const toX = (score) => left() + ((score - range[0]) / (range[1] - range[0])) * (right() - left());
  const toScore = (x) => range[0] + ((x - left()) / (right() - left())) * (range[1] - range[0]);
  const middle = (i) => TOP + (i + 0.5) * TRACK;

  function scoreRange(scores) {
    const low = Math.floor((Math.min(...scores) - 0.05) * 10) / 10, high = Math.max(...scores) <= 1 ? 1 : Math.ceil(Math.max(...scores) * 10) / 10;
    return [Math.min(low, 0.5), high];
  }
  function edit(partial, quiet = false) {
    Object.assign(state, partial);
    found = compute(state);
    draw();
    if (!quiet) { changed(Object.keys(partial)); speak(); }
  }
  const replaced = (values, i, value) => values.map((v, j) => (j === i ? value : v));
  const move = (i, score) => edit({ scores: replaced(state.scores, i, Number(clamp(score, ...range).toFixed(4))) });
  const flip = (i) => edit({ relevance: replaced(state.relevance, i, !state.relevance[i]), levels: replaced(state.levels, i, state.relevance[i] ? 0 : top) });
  function cycle(i) {
    const level = (state.levels[i] + 1) % (top + 1);
    edit({ levels: replaced(state.levels, i, level), relevance: replaced(state.relevance, i, level === top) });
  }
  function step() {
    const slope = found[state.gradient].gradient, most = Math.max(...slope.map(Math.abs));
    edit({ scores: state.scores.map((s, i) => Number(clamp(s - (0.02 * slope[i]) / Math.max(most, 0.02), ...range).toFixed(6))) }); // as long as the arrows
  }
  function choose(i) { if (i !== active) { active = i; draw(); } }
  function key(i, event) {
    const far = event.shiftKey ? 0.05 : 0.005;
    const actions = {
      ArrowRight: () => move(i, state.scores[i] + far), ArrowUp: () => move(i, state.scores[i] + far), ArrowLeft: () => move(i, state.scores[i] - far),
      ArrowDown: () => move(i, state.scores[i] - far), PageUp: () => move(i, state.scores[i] + 0.05), PageDown: () => move(i, state.scores[i] - 0.05),
      Home: () => move(i, range[0]), End: () => move(i, range[1]), " ": () => flip(i), l: () => cycle(i), L: () => cycle(i),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }
  function speak() {
    clearTimeout(speaking);
    speaking = setTimeout(() => { live.textContent = LOSSES.map(([k, name]) => `${name} ${fixed(shown(k))}`).join(", "); }, 600);
  }
  const shown = (k) => (k === "h_ap" ? found.h_ap.exact : (found[k].interpolated ?? found[k].value));

  function drawRow(order) {
    const positives = indices(state.relevance), total = count + (state.query ? 1 : 0), size = Math.min(52, (width - 6 * total - 8) / total);
    row.style.height = `${size + 34}px`;
    const put = (cell, place) => { cell.style.width = `${size}px`; cell.style.transform = `translateX(${place * (size + 6) + (state.query && place ? 8 : 0)}px)`; };
    put(queryCell, 0);
    order.forEach((i, place) => {
      put(cells[i], place + (state.query ? 1 : 0));
      cells[i].firstChild.className = `rl-pic ${state.relevance[i] ? "rl-positive" : "rl-negative"}`;
      const precision = state.relevance[i] ? `${rankIn(state.scores, i, positives)}/${rankIn(state.scores, i, order)}` : "";
      cells[i].lastChild.replaceChildren(String(place + 1), make("br"), make("b", {}, precision));
    });
  }

  function drawCards() {
    for (const { key: k, input, value, extra } of cards) {
      input.checked = state.gradient === k;
      value.textContent = fixed(shown(k));
      value.dataset.value = shown(k);
      const f = found[k];
      extra.textContent = k === "h_ap" ? `surrogate ${fixed(f.value)}` : f.interpolated !== undefined ? `at the ranks ${fixed(f.value)}` : "";
    }
  }

  function drawStage(order) {
    const { gradient } = found[state.gradient], colour = LOSSES.find((l) => l[0] === state.gradient)[3];
    const most = Math.max(...gradient.map(Math.abs)), longest = Math.min(90, 0.16 * width), scale = longest / Math.max(most, 0.02);
    const bottom = TOP + count * TRACK, parts = [], text = (x, y, content, attributes = {}) => make("text", { x, y, ...attributes }, content);
    const guide = (x, attributes) => make("line", { x1: x, x2: x, y1: TOP - 4, y2: bottom, stroke: "currentColor", ...attributes });
    for (let i = 0; i < count; i++) parts.push(make("line", { x1: GUTTER, x2: width, y1: middle(i), y2: middle(i), stroke: "currentColor", "stroke-opacity": 0.13 }));
    const unit = range[1] - range[0] > 1.2 || width < 460 ? 0.2 : 0.1;
    for (let tick = Math.ceil(range[0] / unit - 1e-9) * unit; tick <= range[1] + 1e-9; tick += unit) {
      parts.push(make("line", { x1: toX(tick), x2: toX(tick), y1: bottom, y2: bottom + 5, stroke: "currentColor" }), text(toX(tick), bottom + 17, tick.toFixed(1), { "text-anchor": "middle" }));
    }
    parts.push(make("line", { x1: GUTTER, x2: width, y1: bottom, y2: bottom, stroke: "currentColor" }),
      text((left() + right()) / 2, bottom + 35, "score: similarity to the query", { "text-anchor": "middle", style: "font-size:12px" }), text(2, TOP - 8, "rank, level"));
    const here = toX(state.scores[active]);
    if (state.gradient === "smooth_ap") {
      const reach = reachOf(state.tau), from = clamp(toX(state.scores[active] - reach), GUTTER, width), to = clamp(toX(state.scores[active] + reach), GUTTER, width);
      parts.push(make("rect", { class: "rl-window", x: from, width: Math.max(0, to - from), y: TOP - 4, height: bottom - TOP + 4, fill: colour, "fill-opacity": 0.16 }));
    }
    if (state.gradient === "fast_ap") for (let b = 0; b <= state.bins; b++) {
      const score = 1 - (2 * b) / state.bins;
      if (score >= range[0] - 1e-9 && score <= range[1] + 1e-9) parts.push(guide(toX(score), { stroke: colour, "stroke-dasharray": "2 3", "stroke-width": 2 }));
    }
    parts.push(guide(here, { "stroke-opacity": 0.5, "stroke-dasharray": "1 3" }));
    order.forEach((i, place) => {
      const x = toX(state.scores[i]), y = middle(i);
      parts.push(text(2, y + 4, `${place + 1}.`, { style: "font-size:13px;font-variant-numeric:tabular-nums" }));
      for (let l = 0; l < top; l++) parts.push(make("rect", { x: 22 + 10 * l, y: y - 4, width: 7, height: 7, fill: l < state.levels[i] ? COLOURS.h_ap : "none", stroke: "currentColor", "stroke-opacity": 0.6 }));
      if (found[state.gradient].moved) {
        const ghost = clamp(toX(found[state.gradient].moved[i]), GUTTER + SIZE / 2, width - SIZE / 2 - 1);
        parts.push(make("line", { x1: x, x2: ghost, y1: y + SIZE / 2 - 2, y2: y + SIZE / 2 - 2, stroke: colour, "stroke-width": 1.5, "stroke-dasharray": "2 2" }),
          make("rect", { class: "rl-ghost", x: ghost - SIZE / 2, y: y - SIZE / 2, width: SIZE, height: SIZE, rx: 5, fill: "none", stroke: colour, "stroke-width": 1.5, "stroke-dasharray": "2 3" }));
      }
      const push = -gradient[i] * scale;
      if (Math.abs(push) < 0.75) return;
      const side = Math.sign(push), from = x + side * (SIZE / 2 + 3), to = clamp(from + side * Math.max(Math.abs(push), 5), 4, width - 4), tip = to - side * Math.min(9, Math.abs(to - from));
      const reads = `${-gradient[i] > 0 ? "+" : "−"}${Math.abs(gradient[i]) < 0.1 ? gradient[i].toPrecision(1).replace("-", "") : Math.abs(gradient[i]).toFixed(2)}`, inside = side > 0 ? to + 48 < width : to - 48 > GUTTER;
      parts.push(make("path", { class: "rl-arrow", "data-index": i, "data-push": -gradient[i], d: `M${from} ${y}L${tip} ${y}`, stroke: colour, "stroke-width": 4 }),
        make("path", { d: `M${to} ${y}L${tip} ${y - 7}L${tip} ${y + 7}Z`, fill: colour, stroke: "currentColor", "stroke-width": 0.5 }),
        text(inside ? to + 5 * side : side > 0 ? width : GUTTER, inside ? y + 4 : y - 11, reads, { "text-anchor": (side > 0) === inside ? "start" : "end", style: "font-variant-numeric:tabular-nums" }));
    });
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren(...parts);
    items.forEach((item, i) => {
      item.style.transform = `translate(${toX(state.scores[i]) - SIZE / 2}px,${middle(i) - SIZE / 2}px)`;
      item.toggleAttribute("data-active", i === active);
      const kind = state.relevance[i] ? "positive" : "negative", push = -gradient[i];
      if (item.dataset.kind !== kind) {
        item.dataset.kind = kind;
        item.firstChild.className = `rl-pic rl-${kind}`;
        item.querySelector(".rl-badge")?.remove();
        item.append(badge(state.relevance[i]));
      }
      item.setAttribute("aria-label", `Picture ${i + 1}${state.names[i] ? `, ${state.names[i]}` : ""}: ${kind}, level ${state.levels[i]} of ${top}`);
      item.setAttribute("aria-valuenow", state.scores[i]);
      item.setAttribute("aria-valuetext", `score ${shorten(state.scores[i])}, rank ${order.indexOf(i) + 1}, ${Math.abs(push) < 1e-9 ? "no push" : `pushed ${push > 0 ? "up" : "down"}, ${shorten(Math.abs(push))}`}`);
    });
  }

  function draw() {
    width = stage.clientWidth || element.clientWidth || 640;
    const order = state.scores.map((_, i) => i).sort((a, b) => state.scores[b] - state.scores[a] || state.relevance[a] - state.relevance[b] || a - b);
    caption.textContent = `The ranking, best first. Below each positive: positives so far / pictures so far. Their mean is the AP, ${fixed(found.average_precision.value)}.`;
    drawRow(order);
    drawCards();
    drawStage(order);
    for (const { name, input, output, toPlace } of sliders) {
      const place = clamp(toPlace(state[name]), 0, 1000), reads = shorten(state[name]);
      if (document.activeElement !== input || Math.abs(place - input.value) > 1) input.value = place;
      output.textContent = reads;
      input.setAttribute("aria-valuetext", reads);
    }
    what.textContent = `Picture ${active + 1}${state.names[active] ? `, ${state.names[active].toLowerCase()}` : ""}: score ${state.scores[active].toFixed(3)}, `
      + `${state.relevance[active] ? "positive" : "negative"}, level ${state.levels[active]} of ${top}`;
    const none = !state.relevance.some(Boolean) && state.gradient !== "h_ap";
    note.textContent = none ? "No positive is left: AP is not defined, and the query is left out of the mean." : NOTES[state.gradient](state);
  }

  // JupyterLab looks its shortcuts up from the focus outwards, so the focused element itself must refuse them
  for (const node of element.querySelectorAll("input,button,[tabindex]")) node.setAttribute("data-lm-suppress-shortcuts", "true");

  const watcher = new ResizeObserver(() => { if (Math.abs((stage.clientWidth || width) - width) > 0.5) draw(); });
  watcher.observe(element);
  draw();
  return {
    state, compute: () => found,
    update(partial) { edit(partial, true); },
    destroy() { watcher.disconnect(); clearTimeout(speaking); element.replaceChildren(); },
  };
}

// anywidget: the same figure, its state held by Python.
function render({ model, el }) {
  const figure = document.createElement("div");
  el.append(figure);
  const names = [...SYNCED, "bins", "names", "images", "query", "num_levels", "range", "label"];
  const read = () => Object.fromEntries(names.map((name) => [name, model.get(name)]).filter(([, value]) => value !== null && value !== undefined));
  let lab, own = false;
  const build = () => { lab?.destroy(); lab = mount(figure, read(), (changed) => { own = true; changed.forEach((name) => model.set(name, lab.state[name])); own = false; model.save_changes(); }); };
  build();
  for (const name of names) model.on(`change:${name}`, () => {
    if (own) return;
    if (SYNCED.includes(name) && model.get("scores").length === lab.state.scores.length) lab.update({ [name]: model.get(name) });
    else if (model.get("scores").length === model.get("relevance").length && model.get("scores").length === model.get("levels").length) build();
  });
  return () => lab.destroy();
}
export default { render };
