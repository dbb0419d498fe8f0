// Rotary codes on one axis: in a pair a query or key at position p is turned by p x rate.

import { channelsOf } from "./codes.js";
import { ladderOf, phaseAt } from "./ladders.js";
import { scaledLadder } from "./scalings.js";
import { seededDraw } from "./seeds.js";

const UNITS_AT_ONCE = 16; // distances whose units are made before a page may do something else

export function rotarySpec(headWidth, { base = 10000, layout = "halves", rotated = headWidth, scaling = null, length = null } = {}) {
  return {
    type: "Rotary", head_width: headWidth, layout, spacing: { type: "Geometric", base, span: "open", multiplier: 1 }, rotated,
    part: "first", axes: null, blocks: [], direction: "forward", reordered: false, xpos: null, scaling, length,
  };
}

// A rotary code of a spec as Python writes it down; its ladder is that of the spec unless another is given.
export function rotaryCode(spec, ladder = null) {
  if (spec.axes !== null) throw new RangeError("RoPE with several axes rotates by several positions");
  return new RotaryCode(spec, ladder);
}

class RotaryCode {
  constructor(spec, ladder) {
    this.spec = spec;
    this.pairs = spec.rotated / 2;
    this.plain = ladderOf(spec.spacing, this.pairs, spec.rotated);
    this.ladder = ladder ?? scaledLadder(spec.scaling, this.plain, spec.length);
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

  // What the score of a query and a key k tokens behind it is made of:
  // rest + sum_i e^(growth_i k) (along_i cos(rate_i k) + across_i sin(rate_i k)).
  partsOfScore(query, key) {
    const along = new Float64Array(this.pairs), across = new Float64Array(this.pairs), squared = this.ladder.attentionFactor ** 2;
    const still = new Set(query.keys());
    for (let pair = 0; pair < this.pairs; pair++) {
      const first = this.channels[2 * pair], second = this.channels[2 * pair + 1];
      still.delete(first);
      still.delete(second);
      along[pair] = squared * (query[first] * key[first] + query[second] * key[second]);
      across[pair] = squared * this.way * (query[first] * key[second] - query[second] * key[first]);
    }
    let rest = 0;
    for (const channel of still) rest += query[channel] * key[channel];
    return { along, across, rest };
  }

  // The score of a query and a key behind it, or of one ahead where the distance is below 0.
  score(query, key, distance) {
    const { along, across, rest } = this.partsOfScore(query, key);
    let sum = rest;
    for (let pair = 0; pair < this.pairs; pair++) {
      const phase = phaseAt(this.ladder, pair, distance);
      sum += Math.exp(this.growth[pair] * distance) * (along[pair] * Math.cos(phase) + across[pair] * Math.sin(phase));
    }
    return sum;
  }

  // The scores at the distances 0 to length - 1, part by part: each is a product of a coarse and a fine unit, as in kernels.js.
  *scoresInParts(query, key, length) {
    const { along, across, rest } = this.partsOfScore(query, key), found = new Float64Array(length).fill(rest);
    const fine = 2 ** Math.ceil(Math.log2(length) / 2), wide = 2 * this.pairs, near = new Float64Array(fine * wide), far = new Float64Array(wide);
    for (let by = 0; by < fine; by++) {
      this.grownUnits(by, near, by * wide);
      if (by % UNITS_AT_ONCE === 0) yield;
    }
    for (let start = 0; start < length; start += fine) {
      this.grownUnits(start, far, 0);
      for (let pair = 0, part = 0; pair < this.pairs; pair++, part += 2) {
        const cosine = far[part], sine = far[part + 1];
        far[part] = along[pair] * cosine + across[pair] * sine;
        far[part + 1] = along[pair] * sine - across[pair] * cosine;
      }
      for (let by = 0; by < fine && start + by < length; by++) {
        let sum = 0;
        for (let part = 0, place = by * wide; part < wide; part += 2, place += 2) sum += far[part] * near[place] - far[part + 1] * near[place + 1];
        found[start + by] += sum;
      }
      yield;
    }
    return found;
  }

  // Cosine and sine of every pair at a distance, with its growth.
  grownUnits(distance, out, place) {
    for (let pair = 0; pair < this.pairs; pair++) {
      const phase = phaseAt(this.ladder, pair, distance), grown = Math.exp(this.growth[pair] * distance);
      out[place++] = grown * Math.cos(phase);
      out[place++] = grown * Math.sin(phase);
    }
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
