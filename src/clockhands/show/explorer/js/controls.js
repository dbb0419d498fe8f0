// Controls: each has a label, a keyboard twin and a number field, and writes one name of the state.

import { html } from "./draw.js";

let numbered = 0;

// A slider with a number field; `scale` "log" moves in ratios. Arrow keys step, with shift by ten.
export function slider(app, name, label, { min, max, step = 1, scale = "linear", unit = "" }) {
  const id = `control-${name}-${++numbered}`;
  const toSlider = (value) => (scale === "log" ? Math.log(value) : value);
  const fromSlider = (value) => (scale === "log" ? Math.exp(value) : value);
  const range = html("input", {
    type: "range", id, min: toSlider(min), max: toSlider(max), step: scale === "log" ? "any" : step,
    "data-name": name,
    oninput: () => set(snapped(fromSlider(Number(range.value)))),
    onkeydown: (event) => {
      const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (way === undefined) return;
      event.preventDefault();
      const here = app.store.state[name], times = event.shiftKey ? 10 : 1;
      set(scale === "log" ? here * Math.exp((way * times * (toSlider(max) - toSlider(min))) / 100) : here + way * step * times);
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
  const element = html("div", { class: "control" }, html("label", { for: id }, label), range, field, unit ? html("span", { class: "unit" }, unit) : null);
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
