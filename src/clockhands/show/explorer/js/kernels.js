// What a dot product knows: g(k) = sum_i cos(rate_i k), the likeness of two positions k tokens apart.
//
// `kernelByDistance` makes units of about 2 sqrt(length) distances exactly and sums products of two: with units of
// 2^-53, each part of a unit is within 4 (phase, sine), a product of two within sqrt(2) 2 x 4 < 12, and a sum of 2 n
// products adds 2 n times the sum of their sizes, at most n. Together n (2 n + 15) 2^-53: 1.5e-11 for 256 pairs. The
// products of a and b give both cos(a + b) and cos(a - b), so each is made once for two distances.

import { allOf } from "./idle.js";
import { phaseAt } from "./ladders.js";

export function kernelAt(ladder, distance) {
  let sum = 0;
  for (let pair = 0; pair < ladder.pairs; pair++) sum += Math.cos(phaseAt(ladder, pair, distance));
  return sum;
}

// How far a number of `kernelByDistance` may be from the real one.
export function kernelBound(pairs) {
  return pairs * (2 * pairs + 15) * 2 ** -53;
}

// The kernel at the distances 0 to length - 1.
export function kernelByDistance(ladder, length) {
  return allOf(kernelInParts(ladder, length));
}

// The same, part by part, for a page that has something else to do meanwhile.
export function* kernelInParts(ladder, length) {
  const fine = 2 ** Math.ceil(Math.log2(length) / 2), half = fine / 2, coarse = Math.ceil(length / fine) + 1;
  const far = unitsAt(ladder, coarse, fine), near = unitsAt(ladder, Math.floor(half) + 1, 1);
  const found = new Float64Array(length), wide = 2 * ladder.pairs;
  for (let step = 0; step < coarse; step++) {
    kernelAround(found, step, { far, near, fine, half, wide });
    yield;
  }
  return found;
}

// The distances around a coarse step.
function kernelAround(found, step, { far, near, fine, half, wide }) {
  const { length } = found;
  for (let by = 0; by <= half; by++) {
    const before = step * fine - by, after = step * fine + by;
    if (before >= length) continue;
    const a = step * wide, b = by * wide;
    let cosines = 0, sines = 0;
    for (let part = 0; part < wide; part += 2) {
      cosines += far[a + part] * near[b + part];
      sines += far[a + part + 1] * near[b + part + 1];
    }
    if (before >= 0) found[before] = cosines + sines;
    if (after < length) found[after] = cosines - sines;
  }
}

// Cosine and sine of each pair at 0, step, 2 step, …
function unitsAt(ladder, count, step) {
  const made = new Float64Array(2 * count * ladder.pairs);
  for (let number = 0, place = 0; number < count; number++) {
    for (let pair = 0; pair < ladder.pairs; pair++) {
      const phase = phaseAt(ladder, pair, number * step);
      made[place++] = Math.cos(phase);
      made[place++] = Math.sin(phase);
    }
  }
  return made;
}

// The first distance k with values[k + 1] > values[k], or null; a rise of at most twice the error is none.
export function firstRise(values, error = 0) {
  for (let k = 0; k + 1 < values.length; k++) if (values[k + 1] - values[k] > 2 * error) return k;
  return null;
}

// The first distance with a value below 0, or null.
export function firstNegative(values, error = 0) {
  const found = values.findIndex((value) => value < -error);
  return found < 0 ? null : found;
}
