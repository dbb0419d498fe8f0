// Biases: numbers that are added to the score of a query and a key, by how far apart they stand.

import { addTwice, expTwice, logTwice, overTwice, timesTwice } from "./doubles.js";
import { seededDraw } from "./seeds.js";

const NEAR_WHOLE = 1e-22; // nearer to a whole number than this, a boundary is looked at as a question of whole numbers

export function alibiSpec(heads, form = "distance") {
  return { type: "Alibi", heads, form, series: "powers", octaves: 8 };
}

export function bucketsSpec(heads, { buckets = 32, maxDistance = 128, bidirectional = true } = {}) {
  return { type: "Buckets", heads, buckets, max_distance: maxDistance, bidirectional, epsilon: 0, scale: 1 };
}

// 2^(-octaves (h + 1) / n); for n that is no power of two ("powers"): all of the power below, then every other one of the
// power above.
export function alibiSlopes(heads, series = "powers", octaves = 8) {
  const through = (count) => Array.from({ length: count }, (_, head) => 2 ** ((-octaves * (head + 1)) / count));
  const below = 2 ** (31 - Math.clz32(heads));
  if (below === heads || series === "plain") return Float64Array.from(through(heads));
  const more = through(2 * below).filter((_, head) => head % 2 === 0);
  return Float64Array.from([...through(below), ...more.slice(0, heads - below)]);
}

// A bias of a spec as Python writes it down, with its trained numbers where it has some.
export function biasCode(spec, values = null) {
  const make = BIASES[spec.type];
  if (make === undefined) throw new RangeError(`${spec.type} is no bias of one axis`);
  return { spec, heads: spec.heads, slopes: null, boundaries: null, rows: null, bucket: null, ...make(spec, values) };
}

const BIASES = { Alibi: lineOfAlibi, Decay: lineOfDecay, Slopes: lineOfSlopes, Buckets: tableOfBuckets, CeilingBuckets: tableOfCeilings, Clipped: tableOfClipped, Kerple: curveOfKerple, Fire: networkOfFire };

function lineOfAlibi({ heads, series, octaves, form }) {
  return lineBias(alibiSlopes(heads, series, octaves), form);
}

// ln(gamma_h) (q - k), gamma_h = 1 - 2^(-first - h).
function lineOfDecay({ heads, first }) {
  return lineBias(Float64Array.from({ length: heads }, (_, head) => -Math.log1p(-(2 ** (-first - head)))), "distance");
}

function lineOfSlopes({ slopes, form }) {
  return { heads: slopes.length, ...lineBias(Float64Array.from(slopes), form) };
}

function lineBias(slopes, form) {
  const tokens = {
    distance: (query, key) => key - query,
    past: (query, key) => Math.min(key - query, 0),
    symmetric: (query, key) => -Math.abs(query - key),
    key: (_, key) => key,
    "last-key": (_, key, last) => key - last,
  }[form];
  return { slopes, at: (head, query, key, last = key) => slopes[head] * tokens(query, key, last) + 0 };
}

// The smallest distance of every bucket of one direction but the first.
export function bucketBoundaries(spec) {
  const { exact, steps, more = 0, last, strictly } = bucketParts(spec);
  const found = Array.from({ length: exact }, (_, distance) => distance + 1);
  for (let k = strictly ? 0 : 1; k <= (strictly ? steps + more : steps - 1); k++) found.push(boundaryAt(last, exact, k, steps, spec.epsilon ?? 0, strictly));
  return found;
}

function bucketParts(spec) {
  if (spec.type === "CeilingBuckets") {
    const exact = Math.floor(spec.span / 2); // an odd span has one bucket more, beyond the last distance
    return { exact, steps: exact - 1, more: spec.span % 2, last: spec.max_distance - 1, strictly: true };
  }
  const oneWay = spec.bidirectional ? spec.buckets / 2 : spec.buckets, exact = Math.floor(oneWay / 2);
  return { oneWay, exact, steps: oneWay - exact, last: spec.max_distance, strictly: false };
}

// The smallest whole d with d / first + epsilon at or above (last / first)^(k / steps); `strictly`: above.
function boundaryAt(last, first, k, steps, epsilon, strictly) {
  const power = expTwice(overTwice(timesTwice(logTwice(overTwice([last, 0], [first, 0])), [k, 0]), [steps, 0]));
  const top = timesTwice([first, 0], addTwice(power, [-epsilon, 0]));
  const near = Math.round(top[0]), off = top[0] - near + top[1];
  if (Math.abs(off) > NEAR_WHOLE * near) return Math.max(first, off > 0 ? near + 1 : near);
  if (epsilon) return Math.max(first, near + (strictly ? 1 : 0));
  const ours = BigInt(near) ** BigInt(steps), theirs = BigInt(last) ** BigInt(k) * BigInt(first) ** BigInt(steps - k);
  return near + (ours < theirs || (strictly && ours === theirs) ? 1 : 0);
}

// How many boundaries a distance has reached.
function stepsReached(boundaries, distance) {
  let low = 0, high = boundaries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (boundaries[middle] <= distance) low = middle + 1;
    else high = middle;
  }
  return low;
}

function tableBias(spec, rows, bucket, boundaries, values) {
  const at = (head, query, key) => (values === null ? NaN : (spec.scale ?? 1) * values.table[bucket(query, key)][head]);
  return { rows, boundaries, bucket, at };
}

function tableOfBuckets(spec, values) {
  const boundaries = bucketBoundaries(spec), { oneWay } = bucketParts(spec);
  const bucket = (query, key) => {
    if (key <= query) return stepsReached(boundaries, query - key);
    return spec.bidirectional ? oneWay + stepsReached(boundaries, key - query) : 0;
  };
  return tableBias(spec, spec.buckets, bucket, boundaries, values);
}

function tableOfCeilings(spec, values) {
  const boundaries = bucketBoundaries(spec);
  const bucket = (query, key) => signedRow(spec.span, query - key, stepsReached(boundaries, Math.abs(query - key)));
  return tableBias(spec, 2 * spec.span, bucket, boundaries, values);
}

function tableOfClipped(spec, values) {
  const bucket = (query, key) => signedRow(spec.span, query - key, Math.min(Math.abs(query - key), spec.span));
  return tableBias(spec, 2 * spec.span, bucket, null, values);
}

function signedRow(span, distance, steps) {
  return Math.min(span + (distance < 0 ? -steps : steps), 2 * span - 1);
}

// A table where none is given: normal numbers, drawn.
export function drawnBuckets(spec, seed = 0) {
  const draw = seededDraw(seed), rows = spec.type === "Buckets" ? spec.buckets : 2 * spec.span;
  return { table: Array.from({ length: rows }, () => Array.from({ length: spec.heads }, () => draw.normal())) };
}

// -p ln(1 + a d) or -a d^p.
function curveOfKerple({ kernel: shape, symmetric }, { p, a }) {
  const apart = (query, key) => (symmetric ? Math.abs(query - key) : Math.max(query - key, 0));
  const at = shape === "log"
    ? (head, query, key) => -p[head] * Math.log1p(a[head] * apart(query, key)) + 0
    : (head, query, key) => -a[head] * apart(query, key) ** p[head] + 0;
  return { at };
}

// A small network of how far back a key stands, as a share of how far one could look.
function networkOfFire({ epsilon }, { c, threshold, w1, b1, w2, b2 }) {
  const at = (head, query, key) => {
    const reach = Math.log1p(Math.abs(c) * Math.max(query, threshold)) + epsilon;
    const share = Math.log1p(Math.abs(c) * Math.max(query - key, 0)) / reach;
    return w2[head].reduce((sum, weight, unit) => sum + weight * Math.max(share * w1[unit][0] + b1[unit], 0), b2[head]);
  };
  return { at };
}
