// The widget's side of the page: names for specs, and no echo of what Python has said.

import assert from "node:assert/strict";
import test from "node:test";
import { sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { theme } from "../../src/clockhands/show/explorer/js/colours.js";
import { codeOfSpec, inNotebook, textOfSpec } from "../../src/clockhands/show/explorer/js/notebook.js";

const PAPER = sinusoidalSpec(512, {});
const TURNING = {
  type: "Rotary", head_width: 64, layout: "halves", spacing: { type: "Geometric", base: 500000, span: "open", multiplier: 1 }, rotated: 32,
  part: "first", axes: null, blocks: [], direction: "forward", reordered: false, xpos: null, scaling: null, length: null,
};

// Of the notebook's own page: what it says of its theme, and who looks on.
const words = new Set(), watchers = new Set(), system = Object.assign(new EventTarget(), { matches: false });
globalThis.document = { documentElement: { dataset: {} }, body: { matches: (selector) => selector.split(", ").some((word) => words.has(word)) } };
globalThis.matchMedia = () => system;
globalThis.MutationObserver = class {
  constructor(call) { Object.assign(this, { call, seen: [] }); watchers.add(this); }
  observe(element) { this.seen.push(element); }
  disconnect() { watchers.delete(this); }
};

// A model as anywidget gives it, and a page that keeps only its state.
function setup(spec = PAPER, position = 7) {
  const state = { spec, position, data: JSON.stringify({ codes: { paper: { spec: PAPER } }, start: { length: 64 }, models: [] }) };
  const calls = {}, saved = [];
  const held = {
    get: (name) => state[name],
    set: (name, value) => { state[name] = value; (held.pending ??= {})[name] = value; },
    save_changes: () => { saved.push(held.pending); held.pending = null; },
    on: (event, call) => { calls[event] = call; },
    off: (event, call) => { if (calls[event] === call) delete calls[event]; },
  };
  const page = { listeners: [], redrawn: 0, root: Object.assign(new EventTarget(), { querySelectorAll: () => [] }) };
  const explore = (root, data, options) => {
    Object.assign(page, { data, options });
    const store = {
      state: { code: data.start.code, position: data.start.position },
      set: (patch) => { Object.assign(store.state, patch); for (const tell of page.listeners) tell(store.state); },
      subscribe: (tell) => page.listeners.push(tell),
    };
    const addCode = (name, code) => { data.codes[name] = code; };
    page.store = store;
    return { store, redraw: () => page.redrawn++, app: { addCode, given: ({ code, width }) => (width ? { ...PAPER, width } : data.codes[code]?.spec ?? { ...PAPER, width: 8 }) } };
  };
  const letGo = inNotebook(held, page.root, explore);
  return { state, calls, saved, page, letGo };
}

test("a spec is one text in whatever order its fields stand", () => {
  assert.equal(textOfSpec({ b: [1, null], a: { d: "x", c: 2 } }), textOfSpec({ a: { c: 2, d: "x" }, b: [1, null] }));
  assert.notEqual(textOfSpec({ a: [1, 2] }), textOfSpec({ a: [2, 1] }));
  assert.notEqual(textOfSpec({ a: 1 }), textOfSpec({ a: "1" }));
});

test("a rotary spec is as wide as what turns, and has a base where one makes its ladder", () => {
  const { kind, width, base, span, layout } = codeOfSpec(TURNING, "");
  assert.deepEqual({ kind, width, base, span, layout }, { kind: "rotary", width: 32, base: 500000, span: "open", layout: "halves" });
  assert.equal(codeOfSpec({ ...TURNING, spacing: { type: "Explicit", rates: Array(16).fill(1) } }, "").base, null);
  assert.equal(codeOfSpec({ ...PAPER, spacing: { ...PAPER.spacing, multiplier: 2 } }, "").base, null);
});

test("it opens on the notebook's spec and position, by the name of the page where it has one", () => {
  const { page, saved } = setup();
  assert.deepEqual([page.data.start.code, page.data.start.position, page.data.start.length], ["paper", 7, 64]);
  assert.equal(page.options.hosted, true);
  assert.deepEqual(saved, []);
  assert.equal(setup(TURNING).page.data.start.code, "the notebook's");
});

test("what Python says is followed and not said back", () => {
  const { state, calls, saved, page } = setup();
  state.position = 21;
  calls["change:position"]();
  state.spec = TURNING;
  calls["change:spec"]();
  assert.deepEqual([page.store.state.position, page.store.state.code], [21, "the notebook's"]);
  state.spec = { ...TURNING, rotated: 16 };
  calls["change:spec"]();
  assert.equal(page.store.state.code, "the notebook's, 2");
  state.spec = PAPER;
  calls["change:spec"]();
  assert.equal(page.store.state.code, "paper");
  assert.deepEqual(saved, []);
});

test("what the page says is told to Python once, in one message", () => {
  const { saved, page } = setup();
  page.store.set({ position: 8, code: "custom" });
  assert.deepEqual(saved, [{ position: 8, spec: { ...PAPER, width: 8 } }]);
  page.store.set({ position: 8 });
  assert.equal(saved.length, 1);
});

test("a code at another width is the same code when Python says it back", () => {
  const { state, calls, page } = setup();
  page.store.set({ width: 64 });
  assert.equal(state.spec.width, 64);
  calls["change:spec"]();
  assert.equal(page.store.state.code, "paper");
});

test("a widget that is gone says nothing more", () => {
  const { calls, saved, page, letGo } = setup();
  letGo();
  page.store.set({ position: 9 });
  assert.deepEqual([calls, saved], [{}, []]);
});

test("the notebook's theme is followed, whatever the system's is, until the widget is gone", () => {
  watchers.clear();
  const { page, letGo } = setup(), [watcher] = watchers;
  assert.deepEqual(watcher.seen, [document.documentElement, document.body]);
  const says = (...told) => {
    words.clear();
    for (const word of told) words.add(word);
    watcher.call();
    return [theme(), page.redrawn];
  };
  assert.deepEqual(says(), ["light", 0]);
  assert.deepEqual(says('[data-jp-theme-light="false"]'), ["dark", 1]);
  assert.deepEqual(says(".vscode-dark"), ["dark", 1]);
  assert.deepEqual(says(".vscode-high-contrast", ".vscode-high-contrast-light"), ["light", 2]);
  system.matches = true;
  system.dispatchEvent(new Event("change"));
  assert.deepEqual(says('[data-jp-theme-light="true"]'), ["light", 2]);
  assert.deepEqual(says(), ["dark", 3]);
  letGo();
  system.matches = false;
  system.dispatchEvent(new Event("change"));
  assert.deepEqual([page.redrawn, watchers.size], [3, 0]);
});

test("a key that a control has is kept from the notebook, a chord and what runs a cell are not", () => {
  const { page, letGo } = setup();
  const kept = (fields) => {
    const event = Object.assign(new Event("keydown", { bubbles: true }), fields);
    page.root.dispatchEvent(event);
    return event.cancelBubble;
  };
  assert.deepEqual([{ key: "d" }, { key: "ArrowUp", shiftKey: true }, { key: "Enter" }].map(kept), [true, true, true]);
  const others = [{ key: "s", ctrlKey: true }, { key: "s", metaKey: true }, { key: "Enter", altKey: true }, { key: "Enter", shiftKey: true }];
  assert.deepEqual(others.map(kept), [false, false, false, false]);
  letGo();
  assert.equal(kept({ key: "d" }), false);
});
