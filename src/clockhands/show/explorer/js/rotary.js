// Rotary codes on one axis: in a pair a query or key at position p is turned by p x rate.

import { channelsOf } from "./codes.js";
import { ladderOf, phaseAt } from "./ladders.js";
import { scaledLadder } from "./scalings.js";
import { seededDraw } from "./seeds.js";

export function rotarySpec(headWidth, { base = 10000, layout = "halves", rotated = headWidth, scaling = null, length = null } = {}) {
  return {
    type: "Rotary", head_width: headWidth, layout, spacing: { type: "Geometric", base, span: "open", multiplier: 1 }, rotated,
    part: "first", axes: null, blocks: [], direction: "forward", reordered: false, xpos: null, scaling, length,
  };
}

// A rotary code of a spec as Python writes it down.
export function rotaryCode(spec) {
  if (spec.axes !== null) throw new RangeError("a rotary code of several axes turns by several positions");
  return new RotaryCode(spec);
}

class RotaryCode {
  constructor(spec) {
    this.spec = spec;
    this.pairs = spec.rotated / 2;
    this.plain = ladderOf(spec.spacing, this.pairs, spec.rotated);
    this.ladder = scaledLadder(spec.scaling, this.plain, spec.length);
    const start = spec.part === "last" ? spec.head_width - spec.rotated : 0;
    this.channels = rotaryChannels(spec, start);
    // Where the two numbers of a pair are written.
    this.written = spec.reordered ? rotaryChannels({ ...spec, layout: "halves", blocks: [] }, start) : this.channels;
    this.way = spec.direction === "backward" ? -1 : 1;
    // The logarithm of a pair's growth for each token, in a query.
    this.growth = Float64Array.from({ length: this.pairs }, (_, pair) =>
      (spec.xpos === null ? 0 : Math.log((pair / this.pairs + spec.xpos.smoothing) / (1 + spec.xpos.smoothing)) / spec.xpos.scale));
  }

  turn(vector, position, role = "query") {
    const out = Float64Array.from(vector), { attentionFactor } = this.ladder;
    const grown = (role === "query" ? 1 : -1) * (position - (this.spec.xpos === null ? 0 : this.spec.xpos.centre));
    for (let pair = 0; pair < this.pairs; pair++) {
      const phase = this.way * phaseAt(this.ladder, pair, position);
      const factor = attentionFactor * Math.exp(this.growth[pair] * grown);
      const cosine = factor * Math.cos(phase), sine = factor * Math.sin(phase);
      const x = vector[this.channels[2 * pair]], y = vector[this.channels[2 * pair + 1]];
      out[this.written[2 * pair]] = x * cosine - y * sine;
      out[this.written[2 * pair + 1]] = x * sine + y * cosine;
    }
    return out;
  }

  scores(query, key, from, count) {
    const scores = new Float64Array(count), squared = this.ladder.attentionFactor ** 2;
    const still = new Set(query.keys());
    for (let pair = 0; pair < this.pairs; pair++) {
      const first = this.channels[2 * pair], second = this.channels[2 * pair + 1];
      still.delete(first);
      still.delete(second);
      const along = squared * (query[first] * key[first] + query[second] * key[second]);
      const across = squared * this.way * (query[first] * key[second] - query[second] * key[first]);
      for (let place = 0; place < count; place++) {
        const distance = from + place, phase = phaseAt(this.ladder, pair, distance);
        const grown = Math.exp(this.growth[pair] * distance);
        scores[place] += grown * (along * Math.cos(phase) + across * Math.sin(phase));
      }
    }
    let constant = 0;
    for (const channel of still) constant += query[channel] * key[channel];
    return scores.map((score) => score + constant);
  }
}

// The two channels of each pair of a head; each block of pairs has a layout of its own.
function rotaryChannels({ layout, blocks, rotated }, start) {
  const found = [];
  for (const pairs of blocks.length ? blocks : [rotated / 2]) {
    const first = start + found.length;
    for (let pair = 0; pair < pairs; pair++) found.push(...channelsOf(pair, pairs, layout).map((channel) => first + channel));
  }
  return Int32Array.from(found);
}

// A query and a key of normal numbers: what an untrained head might hold.
export function drawnHead(seed, width) {
  const draw = seededDraw(seed);
  return { query: Float64Array.from({ length: width }, () => draw.normal()), key: Float64Array.from({ length: width }, () => draw.normal()) };
}
