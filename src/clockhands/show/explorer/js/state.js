// One state for all views: which code, which position, which pair. It lives in the address, so that a link shares a view.

export const DEFAULTS = {
  code: "vaswani2017", // a code of the page's data, by its name
  other: "even", // a second one to compare with: a code by its name, or a ladder beside it; empty is none
  width: 512, // channels
  base: 10000,
  layout: "interleaved",
  order: "sin-cos",
  kind: "sinusoidal", // added to the tokens, or rotary: turns queries and keys
  span: "open", // open divides by d/2, closed by d/2 - 1
  length: 2048, // tokens that the model was trained on
  served: 8192, // tokens that it is used with
  position: 100,
  pair: 4,
  channel: 8, // the column of the table that is pointed at
  shift: 3, // tokens
  deviation: 0.3, // of the token vectors that a head looks back over, for each dimension
  start: 40, // the position from which the shift is shown
  warp: "none", // none, square, log, reciprocal
  dtype: "bfloat16",
  scaling: "none",
  factor: 4,
  heads: 8,
  head: 0,
  biasOf: 0, // of the biases of the page's models; -1 is the published forms
  code_in_attention: "sinusoidal",
  seed: 0,
  layer: 0,
  model: 0, // of those on the page
  beside: -1, // a second one beside it; -1 is none
  speed: 8, // tokens a second while the clock plays
  firstRow: 0, // the table's first position and channel in view, and how many of each
  firstColumn: 0,
  rowsShown: 256,
  columnsShown: 0, // 0 is all
  fraction: 0, // of a token beyond the position, where a pair is shown between two tokens
  usedBase: 10000, // what the page's trained model is used with, beside what it was trained with
  usedLayout: "interleaved",
  usedScaling: "none",
  usedFactor: 4,
  usedShift: 0, // of all positions
  usedLate: 0, // of queries alone
  usedRounding: "none", // or a dtype and what is rounded to it
  usedRotation: "forward",
  usedLength: 512, // tokens of the text
};

// The limits of what can be typed or shared: whole numbers from..to, or one of some words.
export const LIMITS = {
  width: [2, 2048, 2],
  base: [1.0001, 1e9],
  length: [1, 2 ** 24, 1],
  served: [1, 2 ** 24, 1],
  position: [0, Number.MAX_SAFE_INTEGER, 1],
  pair: [0, 1023, 1],
  channel: [0, 2047, 1],
  shift: [-4096, 4096, 1],
  deviation: [0, 1.5, 0.05],
  start: [0, 2 ** 24, 1],
  factor: [1, 64],
  heads: [1, 128, 1],
  head: [0, 127, 1],
  biasOf: [-1, 63, 1],
  seed: [0, 2 ** 31, 1],
  layer: [0, 1023, 1],
  model: [0, 63, 1],
  beside: [-1, 63, 1],
  speed: [1, 512, 1],
  firstRow: [0, 2 ** 24, 1],
  firstColumn: [0, 2047, 1],
  rowsShown: [1, 2048, 1],
  columnsShown: [0, 2048, 1],
  fraction: [0, 0.99, 0.01],
  usedBase: [1.0001, 1e9],
  usedFactor: [1, 64],
  usedShift: [0, 8192, 1],
  usedLate: [0, 64, 1],
  usedLength: [2, 512, 1],
  layout: ["interleaved", "halves"],
  order: ["sin-cos", "cos-sin"],
  span: ["open", "closed"],
  kind: ["sinusoidal", "rotary"],
  code_in_attention: ["sinusoidal", "rotary", "alibi"],
  warp: ["none", "square", "log", "reciprocal"],
  dtype: ["float32", "bfloat16", "float16"],
  scaling: ["none", "linear", "ntk", "dynamic", "yarn", "llama3"],
  usedLayout: ["interleaved", "halves"],
  usedScaling: ["none", "linear", "ntk", "yarn"],
  usedRounding: ["none", ...["positions", "rates", "phases"].flatMap((way) => [`bfloat16 ${way}`, `float16 ${way}`])],
  usedRotation: ["forward", "backward", "off"],
};

// Whether a quantity is a real number, and no whole number or word.
export function isReal(name) {
  return typeof LIMITS[name]?.[0] === "number" && LIMITS[name][2] === undefined;
}

// A value as the state takes it: in its limits and on its grid; what cannot be read is the default.
export function settled(name, value) {
  const limits = LIMITS[name];
  if (limits === undefined) return String(value).slice(0, 80);
  if (typeof limits[0] === "string") return limits.includes(value) ? value : DEFAULTS[name];
  const number = String(value).trim() === "" ? NaN : Number(value);
  if (Number.isNaN(number)) return DEFAULTS[name];
  const within = Math.min(Math.max(number, limits[0]), limits[1]);
  return limits[2] ? Math.round(within / limits[2]) / (1 / limits[2]) : within; // 0.15, and not 3 times 0.05
}

export function fromFragment(fragment, defaults = DEFAULTS) {
  const state = { ...defaults };
  for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    if (Object.hasOwn(DEFAULTS, name)) state[name] = settled(name, value);
  }
  return state;
}

// Only what differs from the page's own start, so that a link stays short, and what is `always` said.
export function toFragment(state, defaults = DEFAULTS, always = []) {
  const told = new URLSearchParams();
  for (const name of Object.keys(DEFAULTS)) {
    if (state[name] !== defaults[name] || always.includes(name)) told.set(name, String(state[name]));
  }
  return told.toString();
}

// The state and who wants to know of it: views are told once a frame, however often it changes in between.
export class Store {
  constructor(state, schedule) {
    this.state = state;
    this.listeners = [];
    this.changed = new Set();
    this.schedule = schedule;
  }

  set(patch) {
    const next = { ...this.state };
    for (const [name, value] of Object.entries(patch)) {
      const kept = settled(name, value);
      if (next[name] !== kept) {
        next[name] = kept;
        this.changed.add(name);
      }
    }
    // A position that is set anew is a whole one.
    if (patch.position !== undefined && patch.fraction === undefined && next.fraction !== 0) {
      next.fraction = 0;
      this.changed.add("fraction");
    }
    if (next.pair > next.width / 2 - 1) {
      next.pair = next.width / 2 - 1;
      this.changed.add("pair");
    }
    if (next.channel > next.width - 1) {
      next.channel = next.width - 1;
      this.changed.add("channel");
    }
    if (this.changed.has("kind")) this.changed.add("code"); // another encoding, although both are custom
    this.state = next;
    if (this.changed.size && !this.pending) {
      this.pending = true;
      this.schedule(() => this.tell());
    }
  }

  tell() {
    const changed = this.changed;
    this.changed = new Set();
    this.pending = false;
    for (const listener of this.listeners) listener(this.state, changed);
  }

  subscribe(listener) {
    this.listeners.push(listener);
  }
}
