// The explorer as a widget in a notebook: its code and its position follow Python's, and Python's follow them.

import { additiveCode } from "./codes.js";
import { onTheme } from "./colours.js";
import { rotaryCode } from "./rotary.js";
import { DEFAULTS } from "./state.js";

const OF_THE_NOTEBOOK = "the notebook's";

// The entry among the page's codes of a spec with hands along one axis.
export function codeOfSpec(spec, says) {
  const turns = spec.type === "Rotary", { pairs } = turns ? rotaryCode(spec) : additiveCode(spec);
  const { type, base, span, multiplier } = spec.spacing ?? {};
  return {
    kind: turns ? "rotary" : "sinusoidal", says, width: 2 * pairs,
    base: type === "Geometric" && multiplier === 1 && base > 1 ? base : null,
    span: typeof span === "string" ? span : "open",
    layout: spec.layout ?? "interleaved", order: spec.order === "cos-sin" ? "cos-sin" : "sin-cos", spec,
  };
}

// One text for a spec, in whatever order its fields stand.
export function textOfSpec(value) {
  if (Array.isArray(value)) return `[${value.map(textOfSpec).join()}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${textOfSpec(value[key])}`).join()}}`;
}

// Fill a place of the notebook by `explore`. `held` is what the notebook keeps of the widget: get, set, save_changes, on, off.
// Gives a function that lets go of it.
export function inNotebook(held, root, explore) {
  const data = JSON.parse(held.get("data"));
  let page = null;
  // The name of the code with this spec; one that the page does not know gets a name of its own.
  const nameOf = (spec, add) => {
    // Several published codes are one spec: the one that is shown keeps its name.
    const text = textOfSpec(spec);
    if (page && textOfSpec(page.app.given(page.store.state)) === text) return page.store.state.code;
    const [known] = [page?.store.state.code, DEFAULTS.code, ...Object.keys(data.codes)]
      .filter((name) => Object.hasOwn(data.codes, name ?? "") && textOfSpec(data.codes[name].spec) === text);
    if (known !== undefined) return known;
    let name = OF_THE_NOTEBOOK;
    for (let number = 2; Object.hasOwn(data.codes, name); number++) name = `${OF_THE_NOTEBOOK}, ${number}`;
    add(name, codeOfSpec(spec, "The encoding from the notebook."));
    return name;
  };
  const code = nameOf(held.get("spec"), (name, entry) => { data.codes[name] = entry; });
  page = explore(root, { ...data, start: { ...data.start, code, position: held.get("position") } }, { hosted: true });
  const { store, app, redraw } = page;
  withOwnIds(root);
  root.addEventListener("keydown", keepKey);
  const themeEnds = onTheme(redraw);
  const follow = {
    "change:spec": () => store.set({ code: nameOf(held.get("spec"), app.addCode) }),
    "change:position": () => store.set({ position: held.get("position") }),
  };
  for (const [event, call] of Object.entries(follow)) held.on(event, call);
  // What Python has said already is not said back to it.
  let open = true;
  store.subscribe((state) => {
    if (!open) return;
    const spec = app.given(state);
    const moved = held.get("position") !== state.position, changed = textOfSpec(held.get("spec")) !== textOfSpec(spec);
    if (moved) held.set("position", state.position);
    if (changed) held.set("spec", spec);
    if (moved || changed) held.save_changes();
  });
  return () => {
    open = false;
    themeEnds();
    root.removeEventListener("keydown", keepKey);
    for (const [event, call] of Object.entries(follow)) held.off(event, call);
  };
}

// A key that a control has is none of the notebook's: two d's in a list would delete the cell. Chords and what runs a cell are.
function keepKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === "Enter")) return;
  event.stopPropagation();
}

// Several widgets may stand on one page: what a label names must be in its own.
function withOwnIds(root) {
  const own = `w${Math.random().toString(36).slice(2, 10)}-`;
  for (const element of root.querySelectorAll("[id]")) element.id = own + element.id;
  for (const name of ["for", "aria-labelledby", "aria-describedby", "aria-controls"]) {
    for (const element of root.querySelectorAll(`[${name}]`)) element.setAttribute(name, own + element.getAttribute(name));
  }
}
