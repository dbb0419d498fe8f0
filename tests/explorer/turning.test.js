// Which pairs complete a turn, by Python's rule to the last bit, and how pairs are marked against two lengths.

import { strict as assert } from "node:assert";
import { test } from "node:test";

import { additiveCode, sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { completes, firstNeverTurning, givenLadder, paceOf } from "../../src/clockhands/show/explorer/js/ladders.js";
import { rotaryCode } from "../../src/clockhands/show/explorer/js/rotary.js";
import { fitness } from "../../src/clockhands/show/explorer/js/views/ladder.js";
import { bandsOf } from "../../src/clockhands/show/explorer/js/views/table.js";
import { golden } from "./golden.js";

const CASES = golden("turning");
const EDGES = CASES.filter((each) => each.lengths), MARKS = CASES.filter((each) => each.spec);

test("a pair whose wavelength is the length completes its turn, and one a little slower does not", () => {
  assert.equal(EDGES.length, 5);
  for (const { lengths, rates, completes: expected } of EDGES) {
    assert.deepEqual(rates.map((rate, at) => completes(rate, lengths[at])), expected);
  }
  assert.ok(EDGES.some((each) => !each.completes.includes(true)) && EDGES.some((each) => !each.completes.includes(false)));
  for (let length = 2; length <= 5000; length++) assert.ok(completes((2 * Math.PI) / length, length), `${length}`);
  assert.equal(completes(0, 1e300), false);
});

test("all that says which pairs never turn says the same, at the edge too", () => {
  for (let length = 2; length <= 5000; length += 3) {
    const rates = [1.5, (2 * Math.PI) / length, ((2 * Math.PI) / length) * (1 - 1e-9), 0], ladder = givenLadder(rates);
    const first = firstNeverTurning(ladder, length), counts = fitness(ladder, ladder, length, length);
    const code = additiveCode({ ...sinusoidalSpec(8), spacing: { type: "Explicit", rates } });
    assert.deepEqual([first, counts.never, counts.still, bandsOf(code, length)], [length < 5 ? 0 : 2, length < 5 ? [0, 2, 3] : [2, 3], length < 5 ? [0, 2, 3] : [2, 3], length < 5 ? [[0, 2], [4, 8]] : [[4, 8]]], `${length}`);
  }
});

for (const { spec, trained, served, before, after } of MARKS) {
  test(`marks of ${spec.scaling?.type ?? "no scaling"}, ${trained} to ${served}, are the report's`, () => {
    const code = rotaryCode(spec), { marks } = fitness(code.plain, code.ladder, trained, served);
    assert.deepEqual(marks.after, after);
    if (spec.scaling !== null) assert.deepEqual(marks.before, before);
    // What is marked as turning stands before the line of its length, what never turns beyond it.
    for (const [kinds, { rates }, length] of [[marks.before, code.plain, trained], [marks.after, code.ladder, served]]) {
      kinds.forEach((kind, pair) => { if (kind !== "beyond") assert.equal(kind === "turning", rates[pair] * length > 2 * Math.PI, `pair ${pair}`); });
    }
  });
}

test("fast and slow are found by the rates, wherever they stand", () => {
  assert.deepEqual(paceOf([1, 0.1, 0.01]), { fast: 0, slow: 2, order: "falling", still: 0 });
  assert.deepEqual(paceOf([2, 30, 400]), { fast: 2, slow: 0, order: "rising", still: 0 });
  assert.deepEqual(paceOf([0, 1, 0.1, 0]), { fast: 1, slow: 2, order: "falling", still: 2 });
  assert.deepEqual(paceOf([0.1, 3, 1]), { fast: 1, slow: 0, order: "mixed", still: 0 });
  assert.deepEqual(paceOf(Float64Array.of(1, 1)), { fast: 0, slow: 1, order: "falling", still: 0 });
  assert.deepEqual(paceOf([0, 0]), { fast: null, slow: null, order: "falling", still: 2 });
});

test("no number of a table is larger than its code says, and some are nearly as large", () => {
  const specs = [sinusoidalSpec(8), { ...sinusoidalSpec(8), scale: 3 }, { ...sinusoidalSpec(16), scale: 0.1, standardised: 1000 }];
  for (const spec of specs) {
    const code = additiveCode(spec), most = code.window(0, 4096, 0, code.width).reduce((sum, value) => Math.max(sum, Math.abs(value)), 0);
    assert.ok(most <= code.largest * (1 + 1e-12) && most > 0.99 * code.largest, `${most} and ${code.largest}`);
  }
  assert.equal(additiveCode(specs[0]).largest, 1);
});
