// Controls: each has a label, a keyboard twin and a number field, and writes one name of the state.

import { html } from "./draw.js";
import { isReal } from "./state.js";

let numbered = 0;
const ARROWS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
const PAGES = { PageDown: -1, PageUp: 1 };
const KEY_STEPS = 100; // arrow keys from one end of a slider of ratios to the other
const KEYS = "Arrow keys: one step, with Shift ten. Page Up and Page Down: a tenth of the range. Home and End: the ends.";

// A slider with a number field; `scale` "log" moves in ratios. Its title says what the keys do.
export function slider(app, name, label, { min, max, step = 1, scale = "linear", unit = "" }) {
  const id = `control-${name}-${++numbered}`;
  const toSlider = (value) => (scale === "log" ? Math.log(value) : value);
  const fromSlider = (value) => (scale === "log" ? Math.exp(value) : value);
  const range = html("input", {
    type: "range", id, min: toSlider(min), max: toSlider(max), step: scale === "log" ? "any" : step,
    "data-name": name,
    oninput: () => set(snapped(fromSlider(Number(range.value)))),
    title: isReal(name) ? `${KEYS} With Alt an arrow key moves a tenth of a step.` : KEYS,
    onkeydown: (event) => {
      const next = valueOfKey(event);
      if (next === null) return;
      event.preventDefault();
      set(next);
    },
  });
  const field = html("input", {
    type: "number", min, max, step: scale === "log" ? "any" : step, "aria-label": `${label}, as a number`, "data-name": name,
    onchange: () => {
      // What is no number is empty here, and changes nothing; what is beyond an end is seen to be held to it.
      if (field.value !== "") set(Number(field.value));
      field.value = app.store.state[name];
    },
  });
  // Where a key leads to, or null for a key that is the browser's: Alt with an arrow key is, where there are whole numbers only.
  const valueOfKey = ({ key, altKey, ctrlKey, metaKey, shiftKey }) => {
    if (ctrlKey || metaKey || (altKey && !(isReal(name) && key in ARROWS))) return null;
    if (key === "Home" || key === "End") return key === "Home" ? min : max;
    const here = app.store.state[name], arrow = key in ARROWS;
    if (!arrow && !(key in PAGES)) return null;
    const times = arrow ? ARROWS[key] * (shiftKey ? 10 : 1) * (altKey ? 0.1 : 1) : PAGES[key];
    if (scale === "log") return here * Math.exp((times * (toSlider(max) - toSlider(min))) / (arrow ? KEY_STEPS : 10));
    return here + times * step * (arrow ? 1 : Math.max(1, Math.round((max - min) / step / 10)));
  };
  const snapped = (value) => (scale === "log" && value > 100 ? Math.round(value) : value);
  const set = (value) => app.store.set({ [name]: Math.min(Math.max(value, min), max) });
  const show = (state) => {
    range.value = toSlider(state[name]);
    range.setAttribute("aria-valuetext", `${state[name]} ${unit}`.trim());
    if (document.activeElement !== field) field.value = state[name];
  };
  app.store.subscribe((state, changed) => changed.has(name) && show(state));
  show(app.store.state);
  const limits = (least, most) => {
    if (least === min && most === max) return;
    range.min = toSlider(least); range.max = toSlider(most); field.min = least; field.max = most; [min, max] = [least, most];
    show(app.store.state);
  };
  const element = html("div", { class: "control slider" }, html("label", { for: id }, label), range, field, unit ? html("span", { class: "unit" }, unit) : null);
  return { element, limits };
}

// One of some words; where a link says a number that is none of them, `worded` makes it one more, and else the first stands.
export function choice(app, name, label, options, worded = null) {
  const id = `control-${name}-${++numbered}`;
  const list = html("select", { id, "data-name": name, onchange: () => app.store.set({ [name]: list.value }) },
    options.map(([value, words]) => html("option", { value }, words)));
  const show = (state) => {
    list.value = state[name];
    if (list.selectedIndex >= 0) return;
    if (worded) list.append(html("option", { value: state[name], selected: true }, worded(state[name])));
    else list.selectedIndex = 0;
  };
  app.store.subscribe((state, changed) => changed.has(name) && show(state));
  show(app.store.state);
  return { element: html("div", { class: "control" }, html("label", { for: id }, label), list) };
}

export function button(label, press, attributes = {}) {
  return html("button", { type: "button", onclick: press, ...attributes }, label);
}
