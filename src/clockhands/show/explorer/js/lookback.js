// A head built by hand: queries rotated by so many tokens back, keys as they are, and what tokens beside the table do to it.
//
// A token is p_t + s e_t: a row of the table and normal numbers of deviation s. With R the rotation by `back` tokens back,
// the score of query t and key u is p(t - back).p_u + s (p(t - back).e_u + R e_t.p_u) + s^2 R e_t.e_u: three numbers, from
// which every deviation follows without another product of vectors.

import { kernelInParts } from "./kernels.js";
import { phaseAt } from "./ladders.js";
import { seededDraw } from "./seeds.js";

export const LOOKED_AT = 200; // tokens of a text, where the length is no shorter
export const DEVIATIONS = Array.from({ length: 31 }, (_, step) => step / 20);

// Cosine and sine of every pair at the positions 0 to length - 1, one row after another; the last ones are kept, so that
// another distance needs no others.
let lastRows = { ladder: null };

function* rowsOfTable(ladder, length) {
  if (lastRows.ladder === ladder && lastRows.length === length) return lastRows.rows;
  const rows = new Float64Array(2 * ladder.pairs * length);
  for (let position = 0, place = 0; position < length; position++) {
    for (let pair = 0; pair < ladder.pairs; pair++) {
      const phase = phaseAt(ladder, pair, position);
      rows[place++] = Math.cos(phase);
      rows[place++] = Math.sin(phase);
    }
    yield;
  }
  lastRows = { ladder, length, rows };
  return rows;
}

// Normal numbers for each token of a text; those of the last few texts are kept.
const DRAWN_KEPT = 8;
const drawnTexts = new Map();

function* drawnText(seed, length, wide) {
  const key = [seed, length, wide].join();
  if (drawnTexts.has(key)) return drawnTexts.get(key);
  const draw = seededDraw(seed), drawn = new Float64Array(length * wide);
  for (let place = 0; place < drawn.length; place++) {
    drawn[place] = draw.normal();
    if (place % wide === 0) yield;
  }
  if (drawnTexts.size === DRAWN_KEPT) drawnTexts.delete(drawnTexts.keys().next().value);
  drawnTexts.set(key, drawn);
  return drawn;
}

// A vector with every pair turned by its rate times so many tokens back.
function turnedBack(vector, ladder, back) {
  const turned = new Float64Array(vector.length);
  for (let pair = 0; pair < ladder.pairs; pair++) {
    const angle = phaseAt(ladder, pair, back), [cosine, sine] = [Math.cos(angle), Math.sin(angle)], [x, y] = vector.subarray(2 * pair, 2 * pair + 2);
    turned[2 * pair] = cosine * x + sine * y;
    turned[2 * pair + 1] = cosine * y - sine * x;
  }
  return turned;
}

// The scores of one query at some deviation, from its three parts.
function scoresAt({ rows, mixed, tokens }, deviation) {
  return rows.map((row, key) => row + deviation * (mixed[key] + deviation * tokens[key]));
}

// The queries back to length - 1 of texts drawn from the seeds on: how many find the token `back` before, for each deviation,
// and the scores of the query `shown` in the first text. Part by part, a query at a time.
export function* lookingBackInParts(ladder, { back, seed = 0, texts = 1, shown = back, length = LOOKED_AT, deviations = DEVIATIONS }) {
  const wide = 2 * ladder.pairs, table = yield* rowsOfTable(ladder, length), kernel = yield* kernelInParts(ladder, length);
  const right = deviations.map(() => 0);
  let parts = null;
  for (let text = 0; text < texts; text++) {
    const drawn = yield* drawnText(seed + text, length, wide);
    for (let query = back; query < length; query++) {
      const asked = table.subarray((query - back) * wide, (query - back + 1) * wide);
      const own = turnedBack(drawn.subarray(query * wide, (query + 1) * wide), ladder, back);
      const found = { rows: new Float64Array(length), mixed: new Float64Array(length), tokens: new Float64Array(length) };
      for (let key = 0, at = 0; key < length; key++) {
        let mixed = 0, tokens = 0;
        for (let channel = 0; channel < wide; channel++, at++) {
          mixed += asked[channel] * drawn[at] + own[channel] * table[at];
          tokens += own[channel] * drawn[at];
        }
        found.rows[key] = kernel[Math.abs(query - back - key)];
        found.mixed[key] = mixed;
        found.tokens[key] = tokens;
      }
      deviations.forEach((deviation, place) => { right[place] += largestAt(scoresAt(found, deviation)) === query - back; });
      if (text === 0 && query === shown) parts = found;
      yield;
    }
  }
  const queries = texts * (length - back);
  const margin = kernel[0] - kernel.subarray(1).reduce((most, each) => Math.max(most, each), -Infinity);
  return { right: right.map((count) => count / queries), queries, margin, largest: kernel[0], scores: (deviation) => scoresAt(parts, deviation) };
}

// The place of the largest number, the first of equals.
export function largestAt(numbers) {
  return numbers.reduce((best, each, place) => (each > numbers[best] ? place : best), 0);
}
