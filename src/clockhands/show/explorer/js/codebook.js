// The codes that the page knows: those put in by name, those of models, and one of the reader's own.

import { shownText } from "./audits.js";
import { additiveCode, sinusoidalSpec } from "./codes.js";
import { geometricLadder, ladderOf } from "./ladders.js";
import { rotaryCode } from "./rotary.js";
import { whyNoShift } from "./shifts.js";
import { settled } from "./state.js";

export const CUSTOM = "custom";
const OF_A_CODE = ["width", "base", "layout", "order", "span"];
const REMEMBERED = 64;
const MOST_PAIRS = 1024; // as many as the state's width allows
const LEAST_RATE = 1e-200; // where doubles.js ends

export class Codebook {
  constructor(codes) {
    this.codes = codes;
    this.known = new Map();
  }

  has(name) {
    return Object.hasOwn(this.codes, name);
  }

  // What is known of the state's code; of one's own nothing but what the state says.
  code(state) {
    return this.has(state.code) ? this.codes[state.code] : { kind: "sinusoidal", says: "a code of your own", own: true };
  }

  // The spec of the hands as a table: of a rotary code, which adds nothing to tokens, the sines and cosines of its ladder.
  spec(state) {
    const code = this.code(state);
    if (code.own) return ownSpec(state);
    if (code.spec.type === "Sinusoidal") return code.spec;
    // A scaling is no spacing: what it makes is given rate by rate.
    return { ...ownSpec(state), spacing: code.spec.scaling === null ? code.spec.spacing : { type: "Explicit", rates: Array.from(this.ladder(state).rates) } };
  }

  additive(state) {
    return this.remember(`additive ${keyOf(state)}`, () => additiveCode(this.spec(state)));
  }

  // Why no one rotation is a shift of the state's code, or null where one is. The code itself is asked: of a rotary one the
  // table above holds the ladder alone.
  whyNoShift(state) {
    return this.remember(`shift ${keyOf(state)}`, () => this.code(state).own ? whyNoShift(this.additive(state)) : whyNoShiftOfCode(this.code(state)));
  }

  // The same of another code by its name.
  whyNoShiftNamed(name) {
    return this.has(name) ? this.remember(`named shift ${name}`, () => whyNoShiftOfCode(this.codes[name])) : null;
  }

  // The ladder in use, after the scaling that the code declares.
  ladder(state) {
    return this.remember(`ladder ${keyOf(state)}`, () => {
      const code = this.code(state);
      return code.own ? ladderOf(ownSpec(state).spacing, state.width / 2, state.width) : ladderOfCode(code);
    });
  }

  // The ladder as it was trained, before any scaling.
  plain(state) {
    const code = this.code(state);
    if (code.own) return this.ladder(state);
    return this.remember(`plain ${keyOf(state)}`, () => plainOfCode(code) ?? this.ladder(state));
  }

  // The ladder of another code by its name, or null.
  ladderNamed(name) {
    return this.has(name) ? this.remember(`named ${name}`, () => ladderOfCode(this.codes[name])) : null;
  }

  remember(key, make) {
    if (!this.known.has(key)) {
      if (this.known.size > REMEMBERED) this.known.clear();
      this.known.set(key, make());
    }
    return this.known.get(key);
  }

  // A patch of the state with all that follows from it: a known code brings its own width, base, layout, order and span,
  // and where one of them is changed by hand it is that code no longer.
  followed(patch, state) {
    if (patch.code !== undefined && this.has(patch.code) && patch.code !== state.code) return { ...patch, ...fieldsOf(this.codes[patch.code]) };
    const moved = OF_A_CODE.some((name) => patch[name] !== undefined && settled(name, patch[name]) !== state[name]);
    return moved && this.has(patch.code ?? state.code) ? { ...patch, code: CUSTOM } : patch;
  }

  // A state as a page or an address has it, of which `told` are the names that were said: a name that this page does not
  // know is a code of one's own, and so is one whose fields are told otherwise without its name.
  opened(state, told = new Set(["code"])) {
    const known = this.has(state.code) ? fieldsOf(this.codes[state.code]) : {};
    const next = { ...state, code: this.has(state.code) ? state.code : CUSTOM };
    const moved = OF_A_CODE.filter((name) => !told.has("code") && told.has(name) && known[name] !== undefined && known[name] !== state[name]);
    for (const [name, value] of Object.entries(known)) if (!moved.includes(name)) next[name] = settled(name, value);
    if (moved.length) next.code = CUSTOM;
    next.pair = Math.min(next.pair, next.width / 2 - 1);
    next.channel = Math.min(next.channel, next.width - 1);
    return next;
  }

  // The codes of a model's layers join the others. Gives the name of each layer's code, null where it has no hands.
  addModel(audit, number) {
    return audit.layers.map((layer, place) => {
      const code = codeOfLayer(layer, audit);
      if (code === null) return null;
      const name = `model-${number}-${place}`;
      this.codes[name] = code;
      return name;
    });
  }
}

function fieldsOf(code) {
  const fields = { width: code.width, layout: code.layout, order: code.order, span: code.span };
  return code.base === null ? fields : { ...fields, base: code.base };
}

function keyOf(state) {
  return state.code === CUSTOM ? OF_A_CODE.map((name) => state[name]).join(" ") : state.code;
}

function ownSpec({ width, base, span, layout, order }) {
  // A closed span of a single pair would divide by nothing.
  return sinusoidalSpec(width, { base, span: width < 4 ? "open" : span, layout, order });
}

function ladderOfCode(code) {
  if (code.spec.type === "Rotary") {
    const { ladder } = rotaryCode(code.spec);
    return code.factor === undefined ? ladder : { ...ladder, attentionFactor: code.factor };
  }
  return additiveCode(code.spec).ladder;
}

function whyNoShiftOfCode({ spec }) {
  return whyNoShift(spec.type === "Rotary" ? rotaryCode(spec) : additiveCode(spec));
}

function plainOfCode(code) {
  if (code.trained) return geometricLadder(code.width / 2, code.width, code.trained.base);
  return code.spec.type === "Rotary" ? rotaryCode(code.spec).plain : null;
}

// A rate that can be drawn: so slow a hand that its wavelength is no number would have no place on any axis, and no
// wavelength is negative.
function canTurn(rate) {
  return Number.isFinite(rate) && (rate === 0 || (rate > LEAST_RATE && rate < 1 / LEAST_RATE));
}

// The code of one layer of an audit, from its rates as they stand in the JSON; null without rates that can be drawn.
export function codeOfLayer(layer, audit) {
  const { rates } = layer;
  if (!Array.isArray(rates) || rates.length === 0 || rates.length > MOST_PAIRS || !rates.every(canTurn)) return null;
  const width = 2 * rates.length;
  const layout = layer.layout === "interleaved" ? "interleaved" : "halves";
  const order = layer.order === "cos-sin" ? "cos-sin" : "sin-cos";
  const base = Number.isFinite(layer.base) && layer.base > 1 ? layer.base : null;
  const spacing = { type: "Explicit", rates };
  const turns = layer.kind === "rotary";
  const head = Number.isInteger(layer.width) && layer.width >= width ? layer.width : width;
  const spec = turns
    ? { type: "Rotary", head_width: head, layout, spacing, rotated: width, part: "first", axes: null, blocks: [], direction: "forward", reordered: false, xpos: null, scaling: null, length: null }
    : { ...sinusoidalSpec(width, { layout, order }), spacing };
  const name = shownText(audit.model_type ?? audit.target.split(/[\\/]/).filter(Boolean).at(-1) ?? audit.target, 30);
  const where = layer.layers === null ? "" : layer.layers === "input" ? ", input" : `, layers ${shownText(layer.layers, 16)}`;
  const code = { kind: turns ? "rotary" : "sinusoidal", says: `${name}${where}`, width, base, span: "open", layout, order, spec, model: true };
  if (turns && Number.isFinite(layer.attention_factor)) code.factor = layer.attention_factor;
  if (layer.scaling !== null && layer.scaling !== undefined && base !== null) code.trained = { base };
  return code;
}
