// The plain site's few moving parts: theme, menu on small screens, search, and boxes that scroll reachable by keyboard.
(() => {
  const up = document.currentScript.dataset.up, root = document.documentElement;

  const theme = document.getElementById("theme");
  const name = () => { const dark = root.dataset.theme === "dark"; theme.textContent = dark ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to ${dark ? "light" : "dark"} colours`); };
  theme.addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* private window: the choice lasts for this page */ }
    name();
  });
  name();

  const menu = document.getElementById("menu"), sidebar = document.getElementById("sidebar");
  menu.addEventListener("click", () => menu.setAttribute("aria-expanded", sidebar.classList.toggle("open")));
  const here = sidebar.querySelector("[aria-current]");
  if (here) sidebar.scrollTop = here.offsetTop - sidebar.clientHeight / 2;
  const toc = document.querySelector(".toc");
  if (toc && matchMedia("(max-width: 75rem)").matches) toc.open = false;

  // A box that scrolls must be reachable without a mouse.
  const reach = () => document.querySelectorAll(".scroll, pre.out, .toc, #sidebar, .player-stage").forEach((box) => {
    if (box.scrollWidth > box.clientWidth + 1 || (box.scrollHeight > box.clientHeight + 1 && getComputedStyle(box).overflowY !== "visible" && !box.matches(".formula"))) box.tabIndex = 0;
    else if (box.tabIndex === 0 && box.hasAttribute("tabindex")) box.removeAttribute("tabindex");
  });
  addEventListener("load", reach); addEventListener("resize", reach);

  // Code can be taken along.
  document.querySelectorAll(".highlight").forEach((box) => {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.type = "button"; button.className = "copy"; button.textContent = "Copy"; button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", () => navigator.clipboard.writeText(box.querySelector("pre").textContent).then(
      () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); }, () => { button.textContent = "Select it by hand"; }));
    box.append(button);
  });

  // The section being read is marked in the list of sections.
  const entries = new Map([...document.querySelectorAll(".toc a")].map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
  const heads = [...entries.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  const mark = () => {
    const past = heads.filter((head) => head.getBoundingClientRect().top < 120), now = past.length ? past[past.length - 1].id : "";
    entries.forEach((link, id) => { if (id === now) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current"); });
  };
  if (heads.length) { let due = false; addEventListener("scroll", () => { if (!due) { due = true; requestAnimationFrame(() => { due = false; mark(); }); } }, { passive: true }); mark(); }

  const field = document.getElementById("search"), found = document.getElementById("found");
  let pages = null, loading = false;
  const load = () => {
    if (loading) return;
    loading = true;
    const script = document.createElement("script");
    script.src = `${up}assets/search.js`;
    script.onload = () => {
      pages = window.pagesToSearch.map((entry) => ({ entry, head: lower(entry.head || entry.page), page: lower(entry.page), text: lower(entry.text) }));
      search();
    };
    document.head.append(script);
  };
  const lower = (text) => text.toLowerCase();
  const LITTLE = new Set("a about an and are as at be been but by can could did do does for from had has have how i in into is it its me my of on one or our see shall should so some than that the their them then there they this those to us was we were what when where which who whose why will with would you your".split(" "));
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  // What a question asks for: its words without the little ones, and pairs of neighbours that say more than each alone.
  const asked = (question) => {
    const all = lower(question).split(/\s+/).map((word) => word.replace(/^["'?!.,:;]+|["'?!.,:;]+$/g, "")).filter(Boolean);
    const large = all.filter((word) => !LITTLE.has(word)), words = [...new Set(large.length ? large : all)];
    const pairs = all.slice(1).map((word, i) => [all[i], word]).filter((pair) => pair.some((word) => words.includes(word))).map((pair) => pair.join(" "));
    const term = (text, weight) => ({ weight, begun: new RegExp(`(?<![a-z0-9])${escaped(text)}`), whole: new RegExp(`(?<![a-z0-9])${escaped(text)}(?![a-z0-9])`) });
    return { words, terms: [...words.map((word) => term(word, 1)), ...pairs.map((pair) => term(pair, 0.5))] };
  };
  const marked = (text, words) => {
    const low = lower(text), at = Math.max(0, Math.min(...words.map((w) => low.indexOf(w)).filter((i) => i >= 0), low.length) - 50);
    const line = document.createElement("small"), piece = text.slice(at, at + 170), pattern = new RegExp(`(${words.map(escaped).join("|")})`, "ig");
    piece.split(pattern).forEach((bit, i) => { const node = i % 2 ? document.createElement("mark") : document.createElement("span"); node.textContent = bit; line.append(node); });
    return line;
  };
  const search = () => {
    const { words, terms } = asked(field.value);
    found.hidden = !words.length || !pages;
    if (found.hidden) return;
    // A rare word says more than a common one, a whole one more than a beginning; in a heading it says most.
    const there = (text, term) => term.whole.test(text) ? 1 : term.begun.test(text) ? 0.75 : 0;
    const worth = (hit, term) => Math.max(4 * there(hit.head, term), 2 * there(hit.page, term), there(hit.text, term));
    for (const hit of pages) hit.worths = terms.map((term) => worth(hit, term));
    const rarity = terms.map((term, k) => term.weight * Math.log(1 + pages.length / (1 + pages.filter((hit) => hit.worths[k]).length)));
    const total = words.reduce((sum, _, k) => sum + rarity[k], 0);
    const hits = [];
    for (const { entry, head, worths } of pages) {
      const share = words.reduce((sum, _, k) => sum + (worths[k] ? rarity[k] : 0), 0) / total;
      if (share < 0.5) continue;
      const score = worths.reduce((sum, value, k) => sum + value * rarity[k], 0) * share * share;
      hits.push([score * (/^(Reference|Course|The project)$/.test(entry.part) && head !== words.join(" ") ? 0.6 : 1), entry]);
    }
    hits.sort((a, b) => b[0] - a[0]);
    const list = document.createElement("ul");
    for (const [, entry] of hits.slice(0, 25)) {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = up + entry.href; link.textContent = entry.head ? `${entry.page}: ${entry.head}` : entry.page;
      item.append(link, marked(entry.text, words)); list.append(item);
    }
    const count = document.createElement("p");
    count.textContent = hits.length ? `${hits.length} ${hits.length === 1 ? "place" : "places"}` : "Nothing found: try one word, or part of it.";
    found.replaceChildren(count, ...(hits.length ? [list] : []));
  };
  field.addEventListener("focus", load);
  field.addEventListener("input", () => { load(); search(); });
  const close = () => { found.hidden = true; };
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") { close(); field.blur(); }
    if (!found.hidden && ["ArrowDown", "ArrowUp", "Enter"].includes(event.key) && event.target.closest("#found, search")) {
      const links = [...found.querySelectorAll("a")], at = links.indexOf(document.activeElement);
      if (event.key === "Enter") { if (at < 0 && links.length) { event.preventDefault(); links[0].click(); } return; }
      event.preventDefault();
      const next = at + (event.key === "ArrowDown" ? 1 : -1);
      if (next < 0) field.focus(); else if (next < links.length) links[next].focus();
    }
    if (event.key === "/" && !event.target.closest("input, textarea, select, [contenteditable]")) { event.preventDefault(); field.focus(); }
  });
  document.addEventListener("click", (event) => { if (!event.target.closest("#found, search")) close(); else if (event.target.closest("#found a")) close(); });
})();
