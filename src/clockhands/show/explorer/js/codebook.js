// The codes that the page knows: those put in by name, those of models, and one of the reader's own.

import { shownText, titleOfModel } from "./audits.js";
import { additiveCode, channelsOf, sinusoidalSpec } from "./codes.js";
import { geometricLadder, ladderOf } from "./ladders.js";
import { rotaryCode, rotarySpec } from "./rotary.js";
import { whyNoShift } from "./shifts.js";
import { settled } from "./state.js";

export const CUSTOM = "custom";
const OF_A_CODE = ["kind", "width", "base", "layout", "order", "span"];
const OF_A_CELL = ["code", "pair", "channel", ...OF_A_CODE];
const LENGTHS = ["length", "served"];
const IN_THE_LENGTH = ["position", "start"];
const SAME_DOUBLES = 2 ** -51; // of a rate: how far two doubles of one real number may be apart, each within an ulp
const REMEMBERED = 64;
const MOST_PAIRS = 1024; // as many as the state's width allows
const LEAST_RATE = 1e-200; // where doubles.js ends

export class Codebook {
  constructor(codes) {
    this.codes = codes;
    this.known = new Map();
    this.missing = ""; // the name in the last address that is not on this page
  }

  has(name) {
    return Object.hasOwn(this.codes, name);
  }

  // What is known of the state's code, at the state's width; of one's own nothing but what the state says.
  code(state) {
    if (!this.has(state.code)) return { kind: state.kind, says: "custom", own: true };
    return this.atWidth(state.code, state.width) ?? this.codes[state.code];
  }

  // A code by its name at some width, or null where it has only the width that it was published with.
  atWidth(name, width) {
    const code = this.codes[name];
    return width === code.width ? code : this.remember(`width ${name} ${width}`, () => codeAtWidth(code, width));
  }

  // The spec of the hands as a table: of a rotary code, which adds nothing to tokens, the sines and cosines of its ladder.
  spec(state) {
    const code = this.code(state);
    if (code.own) return ownSpec(state);
    if (code.spec.type === "Sinusoidal") return code.spec;
    // A scaling is no spacing: what it makes is given rate by rate.
    return { ...ownSpec(state), spacing: code.spec.scaling === null ? code.spec.spacing : { type: "Explicit", rates: Array.from(this.ladder(state).rates) } };
  }

  // The code itself, as Python knows it: a rotary one whose base is moved turns queries and keys as before.
  given(state) {
    const code = this.code(state);
    if (!code.own) return code.spec;
    return code.kind === "rotary" ? { ...rotarySpec(state.width, { layout: state.layout }), spacing: ownSpec(state).spacing } : ownSpec(state);
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

  // A rotary head with the ladder in use: of a code that is added, what a head with its hands would do.
  head(state) {
    return this.remember(`head ${keyOf(state)}`, () => {
      const spec = this.given(state), ladder = this.ladder(state);
      if (spec.type === "Rotary") return rotaryCode(spec, ladder);
      return rotaryCode({ ...rotarySpec(2 * ladder.pairs), spacing: { type: "Explicit", rates: Array.from(ladder.rates) } }, ladder);
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

  // A patch of the state with all that follows from it: a known code brings its own kind, width, base, layout, order and
  // span, and the lengths that it is told, if any; where one of the first six is changed by hand it is that code no longer,
  // unless that one is the width and the code has a formula for any.
  followed(patch, state) {
    if (patch.code !== undefined && this.has(patch.code) && patch.code !== state.code) {
      const code = this.codes[patch.code];
      return this.paired(withinLength({ ...lengthsOf(code), ...patch, ...fieldsOf(code) }, state), state);
    }
    const moved = OF_A_CODE.filter((name) => patch[name] !== undefined && settled(name, patch[name]) !== state[name]);
    const other = moved.length > 0 && this.has(state.code) && !this.onlyWider(state.code, moved, settled("width", patch.width ?? state.width));
    return this.paired(withinLength(other ? { ...patch, code: CUSTOM } : patch, state), state);
  }

  // Whether of a code's fields the width alone has moved, to one that the code can have.
  onlyWider(name, moved, width) {
    return moved.length === 1 && moved[0] === "width" && this.atWidth(name, width) !== null;
  }

  // One cell, one pair: a channel that is set leads its pair, and else the pair its channel. At once, since a view that
  // is drawn later would not know which of them was moved last.
  paired(patch, state) {
    if (!OF_A_CELL.some((name) => patch[name] !== undefined)) return patch;
    const next = { ...state };
    for (const [name, value] of Object.entries(patch)) next[name] = settled(name, value);
    const led = patch.channel !== undefined && patch.pair === undefined && next.channel !== state.channel;
    return { ...patch, ...this.cell(next, led) };
  }

  // The pair and the channel of a state that belong to each other.
  cell(state, led) {
    const pair = Math.min(state.pair, state.width / 2 - 1), channel = Math.min(state.channel, state.width - 1);
    const held = this.has(state.code) ? this.heldBy(state) : ownCells(state), own = held.pairOf(channel);
    if (own < 0 || own === pair) return { pair, channel };
    return led ? { pair: own, channel } : { pair, channel: held.channelsOf(pair).find((each) => each >= 0) ?? channel };
  }

  heldBy(state) {
    const code = this.additive(state);
    return { pairOf: (channel) => code.pairOf(channel), channelsOf: (pair) => Array.from(code.channels.slice(2 * pair, 2 * pair + 2)) };
  }

  // A state as a page or an address has it, of which `told` are the names that were said: a name that this page does not
  // know is a code of one's own, and so is one whose fields are told otherwise without its name.
  opened(state, told = new Set(["code"])) {
    const known = this.has(state.code) ? fieldsOf(this.codes[state.code]) : {};
    const next = { ...state, code: this.has(state.code) ? state.code : CUSTOM };
    this.missing = next.code === state.code ? "" : shownText(state.code, 40);
    const differs = OF_A_CODE.filter((name) => told.has(name) && known[name] !== undefined && known[name] !== state[name]);
    // With its name, a code's own fields hold but for a width that it can have.
    const wider = this.onlyWider(next.code, told.has("code") ? differs.filter((name) => name === "width") : differs, state.width);
    const moved = told.has("code") || wider ? [] : differs;
    for (const [name, value] of Object.entries(known)) if (!moved.includes(name) && !(wider && name === "width")) next[name] = settled(name, value);
    if (moved.length) next.code = CUSTOM;
    else if (told.has("code") && this.has(next.code)) {
      for (const [name, value] of Object.entries(lengthsOf(this.codes[next.code]))) if (!told.has(name)) next[name] = settled(name, value);
    }
    const untold = IN_THE_LENGTH.filter((name) => !told.has(name));
    return { ...next, ...heldTo(next.length, untold, next), ...this.cell(next, told.has("channel") && !told.has("pair")) };
  }

  // What an address has to say although it is what the page began with: a code would bring its own.
  brings(state) {
    if (!this.has(state.code)) return [];
    const code = this.codes[state.code], lengths = lengthsOf(code);
    return [...LENGTHS.filter((name) => Object.hasOwn(lengths, name)), ...(state.width === code.width ? [] : ["width"])];
  }

  // The codes of a model's layers join the others. Gives the name of each layer's code, null where it has no hands.
  addModel(audit, number, axes = {}) {
    return audit.layers.map((layer, place) => {
      const name = `model-${number}-${place}`, code = codeOfLayer(layer, audit, Object.hasOwn(axes, name) ? axes[name] : 1);
      if (code === null) return null;
      this.codes[name] = code;
      return name;
    });
  }
}

// A shorter length takes the positions with it, unless they are set by the same patch.
function withinLength(patch, state) {
  if (patch.length === undefined) return patch;
  const length = settled("length", patch.length), untold = IN_THE_LENGTH.filter((name) => patch[name] === undefined);
  return length < state.length ? { ...patch, ...heldTo(length, untold, state) } : patch;
}

// Those of some positions that are beyond a length, at its last one.
function heldTo(length, names, state) {
  return Object.fromEntries(names.filter((name) => state[name] > length - 1).map((name) => [name, Math.max(length - 1, 0)]));
}

function fieldsOf(code) {
  const fields = { kind: code.kind, width: code.width, layout: code.layout, order: code.order, span: code.span };
  return code.base === null ? fields : { ...fields, base: code.base };
}

// The lengths that a code is told: of a model those of its layer, of a published scaling the one before it and after.
function lengthsOf({ lengths, spec }) {
  if (lengths !== undefined) return lengths;
  const { original, factor } = spec.scaling ?? {};
  return Number.isFinite(original) ? { length: original, served: original * (Number.isFinite(factor) ? Math.max(factor, 1) : 1) } : {};
}

// A context of one token, or of 2^40, is outside what the controls can be set to.
function lengthsOfLayer({ scaling, usable_length, window }, { context, length }) {
  const reached = usable_length ?? context ?? length, original = Number.isInteger(scaling?.original) && scaling.original > 0 ? scaling.original : reached;
  if (original === null) return {};
  // Up to its original length such a ladder has these rates, and others beyond; in a window no distance is longer.
  const served = scaling?.type === "longrope" ? original : reached ?? original, held = (tokens) => Math.max(Math.min(tokens, window ?? Infinity), 2);
  return { length: held(original), served: held(served) };
}

function noteOfLayer({ scaling, window }, { context }, axes) {
  const said = [];
  if (axes > 1) said.push(`It has ${axes} axes: here every pair uses the same position on all of them.`);
  if (window !== null) said.push(`Its queries see the last ${window} positions only, so that is the length here.`);
  if (scaling?.type === "longrope" && context !== null && context > scaling.original) {
    said.push(`Beyond ${scaling.original} tokens it uses other frequencies (its long factors); the views show the short ones, and clockhands audit --length ${context} prints the others.`);
  }
  return said.join(" ");
}

function keyOf(state) {
  return state.code === CUSTOM ? OF_A_CODE.map((name) => state[name]).join(" ") : `${state.code} ${state.width}`;
}

// A published code at another width, where its formula says what that is: frequencies that are powers of a base with the
// width in the exponent, in every dimension. `published` is the width that it was published with.
function codeAtWidth(code, width) {
  const { spec } = code, { spacing } = spec, rotates = spec.type === "Rotary";
  if (code.model || spacing.type !== "Geometric" || typeof spacing.span !== "string" || (spacing.span === "closed" && width < 4)) return null;
  if (rotates && (spec.rotated !== spec.head_width || spec.blocks.length || Object.values(spec.scaling ?? {}).some(Array.isArray))) return null;
  return { ...code, width, published: code.width, spec: { ...spec, ...(rotates ? { head_width: width, rotated: width } : { width }) } };
}

// Where the pairs of a code of one's own stand, without making it: it is asked with every move of a slider.
function ownCells({ width, layout }) {
  const pairs = width / 2;
  return { pairOf: (channel) => (layout === "halves" ? channel % pairs : channel >> 1), channelsOf: (pair) => channelsOf(pair, pairs, layout) };
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

// Rates in a file are doubles. Where they are the powers of the base that stands beside them, the ladder has twice the
// digits; else each is what the file holds.
function spacingOf(rates, base) {
  if (base !== null) {
    const exact = geometricLadder(rates.length, 2 * rates.length, base).rates;
    if (rates.every((rate, pair) => Math.abs(rate - exact[pair]) <= SAME_DOUBLES * exact[pair])) return { type: "Geometric", base, span: "open", multiplier: 1 };
  }
  return { type: "Explicit", rates };
}

// The code of one layer of an audit, from its rates as they stand in the JSON; null without rates that can be drawn.
export function codeOfLayer(layer, audit, axes = 1) {
  const { rates } = layer;
  if (!Array.isArray(rates) || rates.length === 0 || rates.length > MOST_PAIRS || !rates.every(canTurn)) return null;
  const width = 2 * rates.length;
  const layout = layer.layout === "interleaved" ? "interleaved" : "halves";
  const order = layer.order === "cos-sin" ? "cos-sin" : "sin-cos";
  const base = Number.isFinite(layer.base) && layer.base > 1 ? layer.base : null;
  const spacing = spacingOf(rates, base);
  const turns = layer.kind === "rotary";
  const head = Number.isInteger(layer.width) && layer.width >= width ? layer.width : width;
  const spec = turns
    ? { type: "Rotary", head_width: head, layout, spacing, rotated: width, part: "first", axes: null, blocks: [], direction: "forward", reordered: false, xpos: null, scaling: null, length: null }
    : { ...sinusoidalSpec(width, { layout, order }), spacing };
  const where = layer.layers === null ? "" : layer.layers === "input" ? ", input" : `, layer${/[-,]/.test(layer.layers) ? "s" : ""} ${shownText(layer.layers, 16)}`;
  const code = { kind: turns ? "rotary" : "sinusoidal", says: `${shownText(titleOfModel(audit), 48)}${where}`, width, base, span: "open", layout, order, spec, model: true, lengths: lengthsOfLayer(layer, audit), note: noteOfLayer(layer, audit, axes) };
  if (turns && Number.isFinite(layer.attention_factor)) code.factor = layer.attention_factor;
  if (layer.scaling !== null && layer.scaling !== undefined && base !== null) code.trained = { base };
  return code;
}
