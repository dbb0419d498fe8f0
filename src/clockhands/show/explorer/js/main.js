// The page: all views on one state.

import { choice, slider } from "./controls.js";
import { html } from "./draw.js";
import { geometric } from "./ladders.js";
import { DEFAULTS, Store, fromFragment, toFragment } from "./state.js";
import { clock } from "./views/clock.js";

const VIEWS = [clock];

// Fill a place with the explorer. `data` is what Python put in: codes by name, and the audit of each target.
export function explore(root, data, { fragment = "", onfragment = null, schedule = requestAnimationFrame } = {}) {
  const defaults = { ...DEFAULTS, ...data.start };
  const store = new Store(fromFragment(fragment, defaults), schedule);
  const app = { store, data, rates: (state) => ratesOf(data, state) };
  const common = html("div", { class: "common", role: "group", "aria-label": "The code" },
    choice(app, "code", "Code", [["custom", "of my own"], ...Object.entries(data.codes).map(([name, code]) => [name, code.says])]).element,
    slider(app, "width", "Width", { min: 2, max: 2048, step: 2, unit: "channels" }).element,
    slider(app, "base", "Base", { min: 2, max: 1e8, scale: "log" }).element,
    slider(app, "length", "Length", { min: 2, max: 131072, scale: "log", unit: "tokens" }).element,
    choice(app, "layout", "Layout", [["interleaved", "interleaved (2i, 2i + 1)"], ["halves", "halves (i, i + d/2)"]]).element);
  root.replaceChildren(common);
  const updates = VIEWS.map((view) => {
    const section = sectionOf(view);
    root.append(section.element);
    return view.mount(section, app);
  });
  store.subscribe((state, changed) => {
    for (const update of updates) update(state, changed);
    if (onfragment) onfragment(toFragment(state, defaults));
  });
  const everything = new Set(Object.keys(DEFAULTS));
  const redraw = () => { for (const update of updates) update(store.state, everything); };
  redraw();
  return { store, redraw };
}

// A section: the question as its heading, the answer as a caption, the figure, its controls.
function sectionOf(view) {
  const answer = html("p", { class: "answer", "aria-live": "polite" });
  const controls = html("div", { class: "controls" });
  const figure = html("div", { class: "figure" });
  const element = html("section", { id: view.id, "aria-labelledby": `${view.id}-question` },
    html("h2", { id: `${view.id}-question` }, view.question), answer, controls, figure);
  return { element, controls, figure, answer: (text) => { if (answer.textContent !== text) answer.textContent = text; } };
}

const remembered = new Map();

// The rates of the code that the state names; a code of one's own is geometric.
function ratesOf(data, state) {
  const known = Object.hasOwn(data.codes, state.code) ? data.codes[state.code] : null;
  const key = known ? `${state.code} ${state.width} ${state.base}` : `${state.width} ${state.base}`;
  if (!remembered.has(key)) {
    if (remembered.size > 64) remembered.clear();
    const span = known ? known.span : "open";
    remembered.set(key, known && known.rates ? Float64Array.from(known.rates) : geometric(state.width / 2, state.width, state.base, span));
  }
  return remembered.get(key);
}

// As a widget in a notebook, by anywidget.
export default {
  render({ model, el }) {
    el.classList.add("clockhands");
    const { store } = explore(el, JSON.parse(model.get("data")));
    store.subscribe((state, changed) => {
      if (changed.has("position")) { model.set("position", state.position); model.save_changes(); }
    });
    model.on("change:position", () => store.set({ position: model.get("position") }));
  },
};
