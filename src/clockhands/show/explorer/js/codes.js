// Additive codes on one axis: the numbers that are added to a token at a position.
//
// `cell` and `row` reduce every phase exactly (ladders.js): a phase is within 5e-16 rad up to position 2^40 (half an ulp of
// pi for its product, as much for 2 pi and for the fraction of a turn), its sine within 6e-16. `window` fills many rows of
// consecutive positions: exact phases each BLOCK rows, and between them a turn by steps that are made once. A product of
// two such turns is within sqrt(2) (6e-16 + 6e-16) and its own rounding: 2e-15. A Float32Array rounds once more.

import { geometricLadder, ladderOf, phaseAt } from "./ladders.js";

const BLOCK = 64;
const MOST_BINARY = 64; // digits that a position can have in Python

// The two channels of a pair: interleaved (2i, 2i + 1) or halves (i, i + pairs).
export function channelsOf(pair, pairs, layout) {
  return layout === "interleaved" ? [2 * pair, 2 * pair + 1] : [pair, pair + pairs];
}

// Those of all pairs, one pair after another.
export function pairChannels(pairs, layout) {
  return Int32Array.from({ length: 2 * pairs }, (_, place) => channelsOf(place >> 1, pairs, layout)[place & 1]);
}

// The waves that the channels of a pair hold.
export function heldWaves(code, pair) {
  const channels = Array.from(code.channels.subarray(2 * pair, 2 * pair + 2)).filter((channel) => channel >= 0);
  return new Set(channels.map((channel) => code.waveOf(channel).replace("-", "")));
}

export function sinusoidalSpec(width, { base = 10000, span = "open", layout = "interleaved", order = "sin-cos", odd = "extra" } = {}) {
  return {
    type: "Sinusoidal", width, spacing: { type: "Geometric", base, span, multiplier: 1 }, layout, order, odd,
    first: 0, zero_rows: [], scale: 1, scaled: false, standardised: null,
  };
}

// A code that one would try first, as Python writes it down.
export function naiveSpec(name, width, { length = 2048, base = 10000 } = {}) {
  const hands = { width: width + (width % 2), layout: "interleaved", order: "sin-cos" };
  if (name === "counter") return { type: "Counter", width };
  if (name === "normalised") return { type: "NormalizedCounter", width, length: Math.max(length, 2) };
  if (name === "binary") return { type: "Binary", width };
  if (name === "sine") return { type: "SineOnly", width, base };
  if (name === "single") return { type: "SingleFrequency", ...hands, rate: 1 };
  if (name === "even") return { type: "EvenlySpaced", ...hands, first_rate: 1, last_rate: 1 / base };
  throw new RangeError(`no naive encoding ${name}`);
}

// What stands for the position; NaN where there is no such number.
export function warpPosition(warp, position) {
  if (warp === "square") return position * position;
  if (warp === "log") return position > 0 ? Math.log(position) : NaN;
  if (warp === "reciprocal") return position === 0 ? NaN : 1 / position;
  return position;
}

// An additive code of a spec as Python writes it down. `scale` is the trained number of a code that has one.
export function additiveCode(spec, { scale = 1 } = {}) {
  const make = ADDITIVE[spec.type];
  if (make === undefined) throw new RangeError(`${spec.type} has no formula on one axis`);
  const made = make(spec, scale);
  return made instanceof WavesCode || made instanceof ValuesCode ? made : new WavesCode(spec, made);
}

// A code whose channels hold a number of the position itself.
class ValuesCode {
  constructor(spec, value, exists = Number.isFinite) {
    Object.assign(this, { spec, width: spec.width, ladder: null, pairs: 0, channels: null, exists, value });
  }

  pairOf() {
    return -1;
  }

  waveOf() {
    return "value";
  }

  cell(position, channel) {
    return this.exists(position) ? this.value(position, channel) : NaN;
  }

  row(position, out = new Float64Array(this.width)) {
    return this.window(position, 1, 0, this.width, out);
  }

  window(from, rows, firstChannel, channels, out = new Float64Array(rows * channels)) {
    for (let row = 0, at = 0; row < rows; row++) {
      for (let channel = firstChannel; channel < firstChannel + channels; channel++) out[at++] = this.cell(from + row, channel);
    }
    return out;
  }
}

// A code of hands: each channel is ofSine sin + ofCosine cos of its pair's phase, less a mean.
class WavesCode {
  constructor(spec, { ladder, channels, waves, width = spec.width, warp = "none", zeroRows = [], factor = 1, mean = 0 }) {
    Object.assign(this, { spec, width, ladder, channels, pairs: ladder.pairs, warp, zeroRows: new Set(zeroRows), factor, mean });
    this.pairOfChannel = new Int32Array(width).fill(-1);
    this.waves = Array(width).fill("zero");
    this.ofSine = new Float64Array(width);
    this.ofCosine = new Float64Array(width);
    channels.forEach((channel, place) => {
      if (channel < 0) return;
      const wave = waves[place & 1];
      this.pairOfChannel[channel] = place >> 1;
      this.waves[channel] = wave;
      if (wave === "cos") this.ofCosine[channel] = factor;
      else this.ofSine[channel] = wave === "sin" ? factor : -factor;
    });
    this.steps = new Map();
  }

  // No number of the code is larger.
  get largest() {
    return Math.abs(this.factor) * (1 + Math.abs(this.mean));
  }

  pairOf(channel) {
    return this.pairOfChannel[channel];
  }

  waveOf(channel) {
    return this.waves[channel];
  }

  exists(position) {
    return Number.isFinite(warpPosition(this.warp, position));
  }

  phase(position, pair) {
    return phaseAt(this.ladder, pair, warpPosition(this.warp, position));
  }

  cell(position, channel) {
    const pair = this.pairOfChannel[channel];
    if (!this.exists(position)) return NaN;
    if (pair < 0 || this.zeroRows.has(position)) return 0;
    const phase = this.phase(position, pair);
    return this.ofSine[channel] * Math.sin(phase) + this.ofCosine[channel] * Math.cos(phase) - this.mean * this.factor;
  }

  row(position, out = new Float64Array(this.width)) {
    out.fill(0, 0, this.width);
    if (this.zeroRows.has(position)) return out;
    for (let pair = 0; pair < this.pairs; pair++) {
      const phase = this.phase(position, pair);
      this.put(out, 0, 0, this.width, pair, Math.sin(phase), Math.cos(phase));
    }
    return out;
  }

  put(out, at, from, to, pair, sine, cosine) {
    for (let place = 2 * pair; place < 2 * pair + 2; place++) {
      const channel = this.channels[place];
      if (channel < from || channel >= to) continue;
      out[at + channel - from] = this.ofSine[channel] * sine + this.ofCosine[channel] * cosine - this.mean * this.factor;
    }
  }

  // The mean of each `tall` rows that follow one another, the last of fewer where there are fewer; null where that takes
  // every row. A sum of turns by equal steps is one turn of their sum, so that a mean costs no more than a row.
  means(from, rows, tall, firstChannel, channels, out = new Float64Array(Math.ceil(rows / tall) * channels)) {
    if (this.warp !== "none" || this.zeroRows.size) return null;
    const whole = Math.floor(rows / tall), rest = rows - whole * tall;
    this.turnedWindow(from, whole, firstChannel, channels, out, tall);
    if (rest) this.turnedWindow(from + whole * tall, 1, firstChannel, channels, out.subarray(whole * channels), rest);
    return out;
  }

  window(from, rows, firstChannel, channels, out = new Float64Array(rows * channels)) {
    if (this.warp === "none") this.turnedWindow(from, rows, firstChannel, channels, out);
    else this.exactWindow(from, rows, firstChannel, channels, out);
    for (const position of this.zeroRows) {
      const row = position - from;
      if (row >= 0 && row < rows && Number.isInteger(row)) out.fill(0, row * channels, (row + 1) * channels);
    }
    return out;
  }

  exactWindow(from, rows, firstChannel, channels, out) {
    for (let row = 0; row < rows; row++) {
      for (let pair = 0; pair < this.pairs; pair++) {
        const phase = this.phase(from + row, pair);
        this.put(out, row * channels, firstChannel, firstChannel + channels, pair, Math.sin(phase), Math.cos(phase));
      }
    }
  }

  // Rows, or means of each `tall` rows.
  turnedWindow(from, rows, firstChannel, channels, out, tall = 1) {
    const [fineSine, fineCosine] = this.stepsOfBlock(tall), { pairs } = this, block = rowsOfBlock(tall);
    const bySine = new Float64Array(channels), byCosine = new Float64Array(channels), pairAt = new Int32Array(channels);
    const sines = new Float64Array(pairs), cosines = new Float64Array(pairs), needed = new Set();
    for (let place = 0; place < channels; place++) {
      const pair = this.pairOfChannel[firstChannel + place];
      if (pair < 0) continue;
      pairAt[place] = pair;
      needed.add(pair);
    }
    const less = this.mean * this.factor;
    for (let begin = 0; begin < rows; begin += block) {
      for (const pair of needed) {
        const phase = phaseAt(this.ladder, pair, from + begin * tall);
        sines[pair] = Math.sin(phase);
        cosines[pair] = Math.cos(phase);
      }
      // Of sin(a + b) and cos(a + b), a at the block's beginning, what each channel holds of sin(b) and of cos(b).
      for (let place = 0; place < channels; place++) {
        const channel = firstChannel + place, pair = this.pairOfChannel[channel];
        if (pair < 0) continue;
        bySine[place] = this.ofSine[channel] * cosines[pair] - this.ofCosine[channel] * sines[pair];
        byCosine[place] = this.ofSine[channel] * sines[pair] + this.ofCosine[channel] * cosines[pair];
      }
      for (let row = begin, at = begin * channels; row < Math.min(begin + block, rows); row++) {
        const step = (row - begin) * pairs;
        for (let place = 0; place < channels; place++, at++) {
          const pair = step + pairAt[place];
          out[at] = bySine[place] * fineSine[pair] + byCosine[place] * fineCosine[pair] - less;
        }
      }
    }
  }

  // Sine and cosine of all pairs after 0 tokens, after 1, … as far as a block goes; of each `tall` of them the mean.
  stepsOfBlock(tall) {
    const kept = this.steps.get(tall);
    if (kept !== undefined) return kept;
    const { pairs } = this, steps = rowsOfBlock(tall), made = [new Float64Array(pairs * steps), new Float64Array(pairs * steps)];
    for (let step = 0; step < steps; step++) {
      for (let pair = 0; pair < pairs; pair++) {
        let sine = 0, cosine = 0;
        for (let token = step * tall; token < (step + 1) * tall; token++) {
          const phase = phaseAt(this.ladder, pair, token);
          sine += Math.sin(phase);
          cosine += Math.cos(phase);
        }
        made[0][step * pairs + pair] = sine / tall;
        made[1][step * pairs + pair] = cosine / tall;
      }
    }
    this.steps.set(tall, made);
    return made;
  }
}

// Rows, or means of `tall` rows, between two exact phases.
function rowsOfBlock(tall) {
  return Math.max(1, Math.floor(BLOCK / tall));
}

const ADDITIVE = {
  Sinusoidal: sinusoidalHands,
  Counter: (spec) => new ValuesCode(spec, (position) => position),
  NormalizedCounter: (spec) => new ValuesCode(spec, (position) => position / (spec.length - 1)),
  Binary: (spec) => new ValuesCode(spec, binaryDigit, (position) => Number.isInteger(position) && position >= 0),
  NoPosition: (spec) => new ValuesCode(spec, () => 0),
  SineOnly: ({ width, base }) => ({
    ladder: geometricLadder(width, 2 * width, base), waves: ["sin", "sin"],
    channels: Int32Array.from({ length: 2 * width }, (_, place) => (place & 1 ? -1 : place >> 1)),
  }),
  SingleFrequency: (spec) => handsOf(spec, { type: "EvenSteps", first: spec.rate, last: spec.rate, multiplier: 1 }),
  EvenlySpaced: (spec) => handsOf(spec, { type: "EvenSteps", first: spec.first_rate, last: spec.last_rate, multiplier: 1 }),
  WarpedPosition: (spec) => ({ ...handsOf(spec, { type: "Geometric", base: spec.base, span: "open", multiplier: 1 }), warp: spec.warp }),
};

function binaryDigit(position, channel) {
  return channel < MOST_BINARY ? Math.floor(position / 2 ** channel) % 2 : 0;
}

function handsOf({ width, layout, order }, spacing) {
  const pairs = width / 2;
  return { ladder: ladderOf(spacing, pairs, width), channels: pairChannels(pairs, layout), waves: wavesOf(order) };
}

// "sin-cos" and its kind, also with a minus before one of them: what a pair's two channels are.
function wavesOf(order) {
  return order.match(/(^-|--)?(sin|cos)/g).map((wave) => wave.replace("--", "-"));
}

function sinusoidalHands(spec, scale) {
  const { width, odd } = spec, zero = odd === "zero";
  const pairs = zero ? Math.floor(width / 2) : Math.ceil(width / 2);
  const ladder = ladderOf(spec.spacing, pairs, zero ? width - (width % 2) : odd === "cut" ? 2 * pairs : width);
  const hands = Math.min(width, 2 * pairs);
  const channels = pairChannels(pairs, spec.layout).map((channel) => (channel < hands ? channel : -1));
  const made = { ladder, channels, waves: wavesOf(spec.order), zeroRows: spec.zero_rows, factor: scale * spec.scale };
  if (spec.standardised === null) return made;
  // The mean and the deviation of the first rows, over all of their numbers.
  const plain = new WavesCode(spec, { ...made, factor: 1 }).window(0, spec.standardised, 0, width);
  const mean = plain.reduce((sum, each) => sum + each, 0) / plain.length;
  const squares = plain.reduce((sum, each) => sum + (each - mean) ** 2, 0);
  return { ...made, mean, factor: made.factor / Math.sqrt(squares / (plain.length - 1)) };
}
