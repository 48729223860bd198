// Search by words: a text tower and a gallery of pictures in the browser. The arithmetic comes first and knows nothing of the page.

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

// A matrix of 8-bit numbers with one scale for each row, as rows of floats.
export function matrix({ rows, columns, scales, data }) {
  const raw = new Int8Array(bytes(data).buffer), scale = new Float32Array(bytes(scales).buffer), out = [];
  for (let i = 0; i < rows; i++) out.push(Float32Array.from(raw.subarray(i * columns, (i + 1) * columns), (x) => x * scale[i]));
  return out;
}

const vector = (text) => new Float32Array(bytes(text).buffer);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const dot = (a, b) => { let s = 0; for (let i = 0; i < a.length; i++) s += a[i] * b[i]; return s; };
const affine = (weights, bias, x) => weights.map((row, i) => dot(row, x) + bias[i]);

export function split(text) {
  return text.normalize("NFC").toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
}

export function unpack(state) {
  const t = state.tower, tower = {};
  for (const name of ["words", "input", "hidden", "head"]) tower[name] = matrix(t[name]);
  for (const name of ["input_bias", "hidden_bias", "head_bias"]) tower[name] = vector(t[name]);
  return { ...state, tower, gallery: matrix(state.gallery), numbers: new Map(state.vocabulary.map((word, i) => [word, i + 1])) };
}

// A gated recurrent unit over the words, its last state, a linear layer, length 1.
export function embed(tower, numbers) {
  const size = tower.hidden[0].length;
  let state = new Float32Array(size);
  for (const number of numbers) {
    const a = affine(tower.input, tower.input_bias, tower.words[number]), b = affine(tower.hidden, tower.hidden_bias, state);
    state = state.map((old, i) => {
      const reset = sigmoid(a[i] + b[i]), keep = sigmoid(a[size + i] + b[size + i]);
      return (1 - keep) * Math.tanh(a[2 * size + i] + reset * b[2 * size + i]) + keep * old;
    });
  }
  const out = affine(tower.head, tower.head_bias, state), length = Math.sqrt(dot(out, out));
  return out.map((x) => x / length);
}

export function search(box, text, k) {
  const words = split(text), known = words.filter((w) => box.numbers.has(w)), unknown = [...new Set(words.filter((w) => !box.numbers.has(w)))];
  if (!known.length) return { known, unknown, rows: [], scores: [], right: [], there: 0 };
  const query = embed(box.tower, known.map((w) => box.numbers.get(w)));
  const scores = box.gallery.map((row) => dot(row, query));
  const rows = scores.map((_, i) => i).sort((i, j) => scores[j] - scores[i] || i - j).slice(0, k);
  const asked = known.map((w) => box.synonyms[w] || w).filter((w) => !box.fillers.includes(w));
  const fits = box.words.map((words) => asked.length > 0 && asked.every((w) => words.split(" ").includes(w)));
  return { known, unknown, rows, scores: rows.map((i) => scores[i]), right: rows.map((i) => fits[i]), there: fits.filter(Boolean).length };
}

const CSS = `.word-search{font-family:sans-serif;font-size:14px;max-width:44em}.word-search input{font:inherit;width:100%;box-sizing:border-box;padding:.45em .6em;
border:1px solid #767676;border-radius:4px;background:#fff;color:#000}.word-search .ws-say{min-height:1.4em;margin:.4em 0}.word-search ol{display:flex;flex-wrap:wrap;gap:8px;
list-style:none;margin:0;padding:0}.word-search li{width:68px;font-size:11px;line-height:1.15;overflow-wrap:anywhere}.word-search .ws-tile{width:64px;height:64px;border:3px solid #0072B2;
background-repeat:no-repeat;image-rendering:auto}.word-search .ws-wrong{border:3px dashed #D55E00}.word-search .ws-try{display:flex;flex-wrap:wrap;gap:6px;margin:.5em 0}
.word-search .ws-try button{font:inherit;font-size:12px;padding:.3em .6em;min-height:24px;border:1px solid #767676;border-radius:12px;background:transparent;color:inherit;cursor:pointer}`;

export function mount(element, state) {
  const box = unpack(state), make = (tag, options = {}) => Object.assign(document.createElement(tag), options);
  element.classList.add("word-search");
  const label = make("label", { textContent: "Describe a character:" });
  const input = make("input", { type: "search", value: state.examples[0], autocomplete: "off", spellcheck: false });
  input.dataset.lmSuppressShortcuts = "true";
  const tries = make("div", { className: "ws-try" }), say = make("p", { className: "ws-say" }), list = make("ol");
  say.setAttribute("role", "status");
  label.append(input);
  for (const text of state.examples) {
    const button = make("button", { type: "button", textContent: text });
    button.addEventListener("click", () => { input.value = text; show(); });
    tries.append(button);
  }
  function show() {
    const found = search(box, input.value, state.shown), hits = found.right.filter(Boolean).length;
    const ignored = found.unknown.length ? ` Ignored, as the network never learnt ${found.unknown.length > 1 ? "them" : "it"}: ${found.unknown.join(", ")}.` : "";
    say.textContent = (!input.value.trim() ? "Write a few words." : !found.rows.length ? "No word that the network knows." :
      `${hits} of the first ${found.rows.length} pictures have all these words in their names; the gallery holds ${found.there} such.`) + ignored;
    list.replaceChildren(...found.rows.map((row, place) => {
      const item = make("li"), tile = make("div", { className: found.right[place] ? "ws-tile" : "ws-tile ws-wrong" });
      tile.setAttribute("role", "img");
      tile.setAttribute("aria-label", `${found.right[place] ? "fits" : "does not fit"}: ${state.names[row].toLowerCase()}`);
      tile.title = `${state.names[row].toLowerCase()}, cosine ${found.scores[place].toFixed(2)}`;
      tile.style.backgroundImage = `url(${state.sprite})`;
      tile.style.backgroundSize = `${64 * state.across}px auto`;
      tile.style.backgroundPosition = `-${64 * (row % state.across)}px -${64 * Math.floor(row / state.across)}px`;
      item.append(tile, state.names[row].toLowerCase());
      return item;
    }));
  }
  input.addEventListener("input", show);
  for (const kind of ["keydown", "keypress", "keyup"]) input.addEventListener(kind, (event) => event.stopPropagation());
  element.replaceChildren(make("style", { textContent: CSS }), label, tries, say, list);
  show();
}
