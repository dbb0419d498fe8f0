// Numbers that Python made, and what disagrees with them.

import { readFileSync } from "node:fs";
import { strict as assert } from "node:assert";

export const TOLERANCE = 1e-9;

export function golden(name) {
  return JSON.parse(readFileSync(new URL(`./golden/${name}.json`, import.meta.url), "utf8"));
}

// Where numbers, in arrays of arrays, are not those that were expected, as words; null stands for what is not finite.
// Off is what differs by more than the tolerance, or by that share of a number above 1.
export function disagreements(found, expected, tolerance = TOLERANCE, place = "") {
  if (expected !== null && typeof expected === "object") {
    const length = Object.keys(expected).length;
    if (found === null || typeof found !== "object" || found.length !== length) return [`${place}: ${found} instead of ${length} numbers`];
    return Array.from(expected).flatMap((each, index) => disagreements(found[index], each, tolerance, `${place}[${index}]`));
  }
  if (expected === null) return Number.isFinite(found) ? [`${place}: ${found} is finite`] : [];
  const off = Math.abs(found - expected);
  return off <= tolerance * Math.max(1, Math.abs(expected)) ? [] : [`${place}: ${found} instead of ${expected}`];
}

// All numbers agree; and had the last one of Python's been off by a little more than is allowed, it would have been seen.
export function held(found, expected, name, tolerance = TOLERANCE) {
  const off = disagreements(found, expected, tolerance);
  assert.deepEqual(off, [], `${name}: ${off.length} numbers differ`);
  assert.notDeepEqual(disagreements(found, nudged(expected, tolerance), tolerance), [], `${name}: a wrong number would not be seen`);
}

function nudged(expected, tolerance) {
  if (expected === null) return 0;
  if (typeof expected === "object") {
    const copy = Array.from(expected);
    copy[copy.length - 1] = nudged(copy.at(-1), tolerance);
    return copy;
  }
  return expected + 3 * tolerance * Math.max(1, Math.abs(expected));
}
