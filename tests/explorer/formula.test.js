import { strict as assert } from "node:assert";
import { test } from "node:test";

import { geometricLadder, givenLadder, ladderOf } from "../../src/clockhands/show/explorer/js/ladders.js";
import { exactDecimal, ruleOf, stepsOf } from "../../src/clockhands/show/explorer/js/views/formula.js";
import { golden, held } from "./golden.js";

const plain = (text) => text.replaceAll("\u202f", "");

for (const { spec, pair, position, exponent, divisor, angle, sine, cosine } of golden("formula")) {
  const { base, span } = spec.spacing;
  test(`width ${spec.width}, base ${base}, ${span}, pair ${pair}, position ${position}: each step has Python's number`, () => {
    const rule = ruleOf(spec), ladder = ladderOf(spec.spacing, spec.width / 2, spec.width), steps = stepsOf(rule, ladder, pair, position);
    assert.equal(rule.base, base);
    held([steps.exponent, steps.divisor], [exponent, divisor], "exponent and divisor", 1e-14);
    held([steps.sine, steps.cosine], [sine, cosine], "sine and cosine", 1e-11);
    assert.equal(plain(exactDecimal(steps.angle)), angle);
    assert.ok(steps.rest >= 0 && steps.rest <= 2 * Math.PI);
    if (position <= 2 ** 20) held([steps.rotations * 2 * Math.PI + steps.rest], [Number(angle)], "rotations and rest", 6e-9);
  });
}

test("a code without a base, or with a scaling, has no formula with one", () => {
  assert.equal(ruleOf({ width: 8, spacing: { type: "Explicit", rates: [1, 0.5, 0.25, 0] } }).base, null);
  assert.equal(ruleOf({ rotated: 64, spacing: { type: "Geometric", base: 1e4, span: "open", multiplier: 1 }, scaling: { type: "Linear" } }).base, null);
  assert.equal(ruleOf({ width: 8 }).base, null);
  const steps = stepsOf(ruleOf({ width: 2, spacing: { type: "Explicit", rates: [0] } }), givenLadder(Float64Array.of(0)), 0, 5);
  assert.deepEqual([steps.exponent, steps.divisor, steps.sine, steps.cosine, steps.rotations], [null, null, 0, 1, 0]);
});

test("of a width that is odd the exponent divides by what the encoding divides by", () => {
  const spacing = { type: "Geometric", base: 100, span: "open", multiplier: 1 };
  assert.deepEqual(["zero", "cut", "extra"].map((odd) => ruleOf({ width: 7, odd, spacing }).d), [6, 8, 7]);
  assert.equal(ruleOf({ width: 7, odd: "zero", spacing: { ...spacing, span: "closed" } }).under, 2);
});

test("a number of twice the digits keeps them, and a nine that is rounded up is carried", () => {
  assert.equal(exactDecimal([2 ** 53, 1]), "9\u202f007\u202f199\u202f254\u202f740\u202f993.00000000");
  assert.equal(exactDecimal([3, -1e-12]), "3.00000000");
  assert.equal(exactDecimal([2.5, 0], 2), "2.50");
  assert.equal(plain(exactDecimal(stepsOf(ruleOf({ width: 2, spacing: { type: "Geometric", base: 9, span: "open", multiplier: 1 } }), geometricLadder(1, 2, 9), 0, 7).angle)), "7.00000000");
});
