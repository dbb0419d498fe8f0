import { strict as assert } from "node:assert";
import { test } from "node:test";

import { geometricLadder, givenLadder, ladderFrom } from "../../src/clockhands/show/explorer/js/ladders.js";
import { WAYS, computedAngles, firstPositionOff, roundTo } from "../../src/clockhands/show/explorer/js/precision.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("precision");

for (const { dtype, numbers, rounded } of CASES.filter((each) => each.rounded)) {
  test(`${dtype}: numbers are rounded to the nearest, ties to even, as they are in Python`, () => {
    numbers.forEach((number, place) => {
      const found = roundTo(dtype, number);
      if (rounded[place] === null) assert.equal(Math.abs(found), Infinity, `${number}`);
      else assert.equal(found, rounded[place], `${number}`);
      assert.equal(roundTo(dtype, -number), -found);
    });
    // A number that is cut instead of rounded differs somewhere.
    assert.ok(numbers.some((number, place) => rounded[place] !== null && Math.abs(roundTo(dtype, number * (1 - 2 ** -12))) !== Math.abs(rounded[place])));
  });
}

for (const { pairs, base, given, dtype, way, chosen, positions, errors } of CASES.filter((each) => each.errors)) {
  test(`${way} in ${dtype}, base ${base}: how far computed angles are off`, () => {
    const angles = computedAngles(geometricLadder(pairs, 2 * pairs, base), dtype, way, given);
    const found = positions.map((at) => { const all = angles.errors(at); return chosen.map((pair) => all[pair]); });
    // Errors themselves, not the angles, are within 1e-9 of what they are, and tiny ones within a millionth.
    held(found, errors, `${way} in ${dtype}`);
    positions.forEach((at, row) => chosen.forEach((pair, place) => {
      const real = errors[row][place];
      if (real !== null) assert.ok(Math.abs(found[row][place] - real) <= 1e-6 * Math.abs(real) + 1e-20, `${at}, pair ${pair}: ${found[row][place]} and ${real}`);
    }));
  });
}

test("rates from a base in double precision are off by the last bits of a power", () => {
  const ladder = geometricLadder(64, 128, 10000);
  for (const way of ["power", "exponential"]) {
    const angles = computedAngles(ladder, "float64", way);
    for (let pair = 0; pair < 64; pair++) assert.ok(Math.abs(angles.error(10 ** 6, pair)) <= 10 ** 6 * ladder.rates[pair] * 2 ** -49, `${way}, pair ${pair}`);
    assert.ok(angles.largest(10 ** 6) > 0);
  }
});

test("another dtype or way is seen", () => {
  const { pairs, base, positions, chosen, errors } = CASES.find((each) => each.way === "throughout" && each.dtype === "bfloat16");
  for (const [dtype, way] of [["float32", "throughout"], ["bfloat16", "positions"], ["bfloat16", "power"]]) {
    const angles = computedAngles(geometricLadder(pairs, 2 * pairs, base), dtype, way);
    assert.notDeepEqual(disagreements(positions.map((at) => chosen.map((pair) => angles.error(at, pair))), errors), [], `${way} in ${dtype}`);
  }
});

test("the numbers of each dtype are its own: every one of 16 bits is rounded to itself", () => {
  const real = new Float32Array(1), words = new Uint32Array(real.buffer);
  for (let bits = 0; bits < 0x7f80; bits++) {
    words[0] = bits << 16;
    assert.equal(roundTo("bfloat16", real[0]), real[0]);
  }
  for (let exponent = -24; exponent < 16; exponent++) {
    const unit = 2 ** (Math.max(exponent, -14) - 10);
    for (let step = 0; step < 1024; step++) {
      const number = exponent < -14 ? step * unit : 2 ** exponent + step * unit;
      if (number <= 65504) assert.equal(roundTo("float16", number), number);
    }
  }
});

test("between two neighbours a number goes to the nearer one, and half way to the even one", () => {
  for (const [dtype, bits, least] of [["bfloat16", 7, -126], ["float16", 10, -14], ["float32", 23, -126]]) {
    for (const exponent of [least - 3, least, -1, 0, 9]) {
      const unit = 2 ** (Math.max(exponent, least) - bits), start = Math.floor(2 ** exponent / unit) * unit;
      for (let step = 0; step < 6; step++) {
        const low = start + step * unit, high = low + unit, even = (low / unit) % 2 === 0 ? low : high;
        assert.deepEqual([0.25, 0.5, 0.75].map((share) => roundTo(dtype, low + share * unit)), [low, even, high], `${dtype} at ${low}`);
      }
    }
  }
});

test("what is too large is infinite, what is not a number stays none, and zeros keep their sign", () => {
  assert.deepEqual([65519, 65520, -1e9].map((each) => roundTo("float16", each)), [65504, Infinity, -Infinity]);
  for (const dtype of ["float64", "float32", "bfloat16", "float16"]) {
    assert.ok(Number.isNaN(roundTo(dtype, NaN)));
    assert.deepEqual([roundTo(dtype, Infinity), roundTo(dtype, -0)], [Infinity, -0]);
  }
  assert.ok(Object.is(roundTo("float16", -1e-30), -0));
});

test("the first position that a dtype does not hold", () => {
  for (const [dtype, first] of [["bfloat16", 257], ["float16", 2049], ["float32", 16777217]]) {
    assert.equal(firstPositionOff(dtype), first);
    assert.ok(roundTo(dtype, first) !== first && roundTo(dtype, first - 1) === first - 1);
  }
  assert.equal(firstPositionOff("float64"), 2 ** 53 + 1);
});

test("a rate of twice the digits is rounded once: beside a midpoint its lower half decides", () => {
  const rounded = (high, low) => computedAngles(ladderFrom([[high, low]]), "bfloat16", "rates").rates[0];
  const step = 2 ** -7;
  for (const [high, low, nearest] of [[1 + step / 2, 2 ** -70, 1 + step], [1 + step / 2, -(2 ** -70), 1], [1 + step / 2, 0, 1], [1 + 1.5 * step, -(2 ** -70), 1 + step], [1 + 1.5 * step, 2 ** -70, 1 + 2 * step]]) {
    assert.equal(rounded(high, low), nearest, `${high} and ${low}`);
  }
  const phases = computedAngles(ladderFrom([[1 + step / 2, -(2 ** -70)]]), "bfloat16", "phases");
  assert.deepEqual([1, 2, 4].map((at) => phases.error(at, 0) + at * (step / 2)), [0, 0, 0]);
});

test("the error is of the angle as it was computed; the largest error is infinite where a number is", () => {
  const angles = computedAngles(geometricLadder(64, 128, 10000), "float16", "throughout");
  assert.equal(angles.error(2049, 0), 2048 - 2049);
  assert.equal(angles.largest(2049), Math.max(...angles.errors(2049).map(Math.abs)));
  const small = computedAngles(geometricLadder(64, 128, 10000), "float32", "throughout");
  assert.equal(small.largest(3), Math.max(...small.errors(3).map(Math.abs)));
  assert.equal(computedAngles(givenLadder([1, 0.25]), "bfloat16", "positions").largest(257), 1);
  assert.equal(angles.largest(70000), Infinity);
  assert.throws(() => computedAngles(givenLadder([1]), "float32", "power"), RangeError);
  assert.throws(() => computedAngles(givenLadder([1]), "float32", "sundial"), RangeError);
  assert.equal(Object.keys(WAYS).length, 6);
});
