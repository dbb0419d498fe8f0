import { strict as assert } from "node:assert";
import { test } from "node:test";

import { compareTwice, expTwice, logTwice } from "../../src/clockhands/show/explorer/js/doubles.js";
import { evenLadder, firstNeverTurning, geometricLadder, ladderFrom, ladderOf, pairsToDraw, phaseAt, turnsWithin, wavelength } from "../../src/clockhands/show/explorer/js/ladders.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("ladders");

for (const { spacing, pairs, channels, chosen, rates, lows, positions, cosines, sines } of CASES) {
  const name = `${spacing.type} of ${pairs} pairs`;
  const ladder = ladderOf(spacing, pairs, channels);

  test(`${name}: each rate is the double that Python has, and so is most of what it misses`, () => {
    assert.deepEqual(chosen.map((pair) => ladder.rates[pair]), rates);
    // To 2^-93 of the rate: a progression of n pairs loses up to n times 2^-100.
    chosen.forEach((pair, place) => assert.ok(Math.abs(ladder.lows[pair] - lows[place]) <= rates[place] * 2 ** -93, `pair ${pair}`));
  });

  test(`${name}: phases up to 2^53 - 1`, () => {
    const far = 1e-12 * Math.max(1, ...rates), near = positions.filter((at) => at <= 2 ** 20).length;
    for (const [part, expected] of [[Math.cos, cosines], [Math.sin, sines]]) {
      const found = positions.map((at) => chosen.map((pair) => part(phaseAt(ladder, pair, at))));
      held(found, expected, name, far);
      held(found.slice(0, near), expected.slice(0, near), `${name}, to 2^20`, 1e-15);
    }
  });
}

test("one double for a rate is not enough: at 2^53 - 1 its phases are wrong, at 2^20 those of the paper are not", () => {
  const { spacing, pairs, channels, chosen, positions, cosines } = CASES[0];
  const plain = ladderFrom(Array.from(ladderOf(spacing, pairs, channels).rates, (rate) => [rate, 0]));
  const off = (at) => disagreements(chosen.map((pair) => Math.cos(phaseAt(plain, pair, at))), cosines[positions.indexOf(at)]);
  assert.deepEqual(off(2 ** 20), []);
  assert.notDeepEqual(off(2 ** 53 - 1), []);
});

test("a base that is off by a millionth of a millionth is seen at 2^20", () => {
  const { chosen, positions, cosines } = CASES[0];
  const wrong = geometricLadder(256, 512, 10000 * (1 + 1e-12));
  const row = chosen.map((pair) => Math.cos(phaseAt(wrong, pair, 2 ** 20)));
  assert.notDeepEqual(disagreements(row, cosines[positions.indexOf(2 ** 20)]), []);
});

test("a ladder of few pairs is the one that can be worked out by hand", () => {
  assert.deepEqual(Array.from(geometricLadder(4, 8, 100).rates), [1, 0.31622776601683794, 0.1, 0.03162277660168379]);
  assert.deepEqual(Array.from(evenLadder(3, 1, 2).rates), [1, 1.5, 2]);
  assert.deepEqual(Array.from(evenLadder(1, 1, 2).rates), [1]);
});

test("a closed span needs two pairs", () => {
  assert.throws(() => geometricLadder(1, 2, 100, "closed"), RangeError);
});

test("a phase is between half a turn before and half a turn after, and that of a negative position its opposite", () => {
  const ladder = geometricLadder(16, 32, 10000);
  for (const at of [1, 3, 4, 22, 12345.5, 2 ** 40 + 7]) {
    for (let pair = 0; pair < 16; pair++) {
      const phase = phaseAt(ladder, pair, at);
      assert.ok(Math.abs(phase) <= Math.PI);
      assert.equal(phaseAt(ladder, pair, -at), -phase);
    }
  }
});

test("turns within a length, and the first pair that never comes round", () => {
  const ladder = geometricLadder(64, 128, 10000);
  assert.ok(Math.abs(turnsWithin(ladder, 2048)[0] - 2048 / (2 * Math.PI)) < 1e-12);
  const first = firstNeverTurning(ladder, 2048);
  assert.ok(wavelength(ladder.rates[first]) > 2048 && wavelength(ladder.rates[first - 1]) <= 2048);
  assert.equal(firstNeverTurning(geometricLadder(2, 4, 1.5), 2048), null);
  assert.deepEqual([wavelength(0), wavelength(1), wavelength(Math.PI)], [Infinity, 2 * Math.PI, 2]);
});

test("exponential and logarithm of twice the digits undo each other", () => {
  for (const x of [1.5, 1 + 2 ** -40, 10000, 5e-5, 1e200, 7]) {
    const [high, low] = expTwice(logTwice([x, 0]));
    assert.equal(high, x);
    assert.ok(Math.abs(low) < Math.abs(x) * Math.max(1, Math.abs(Math.log(x))) * 2 ** -98, `${x}: ${low}`);
  }
  assert.ok(compareTwice([1, 1e-20], [1, 0]) > 0 && compareTwice([1, 0], [1, 1e-20]) < 0 && compareTwice([1, 0], [1, 0]) === 0);
});

test("the pairs that are drawn keep both ends, hold the chosen one and stand in order", () => {
  assert.deepEqual(pairsToDraw(256, 0, 4), [0, 85, 170, 255]);
  assert.deepEqual(pairsToDraw(256, 90, 4), [0, 90, 170, 255]);
  assert.deepEqual(pairsToDraw(256, 3, 4), [0, 3, 170, 255]);
  assert.deepEqual(pairsToDraw(256, 254, 4), [0, 85, 254, 255]);
  assert.deepEqual(pairsToDraw(3, 1, 12), [0, 1, 2]);
  assert.deepEqual(pairsToDraw(1, 0, 12), [0]);
});
