import { strict as assert } from "node:assert";
import { test } from "node:test";

import { firstNegative, firstRise, kernelAt, kernelBound, kernelByDistance } from "../../src/clockhands/show/explorer/js/kernels.js";
import { geometricLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { nearestRows, rowDistance } from "../../src/clockhands/show/explorer/js/views/spacing.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("kernels");

for (const { pairs, base, length, distances, values, far, far_values, bound, first_rise, first_negative, apart, nearest } of CASES) {
  const name = `${pairs} pairs, base ${base}`, ladder = geometricLadder(pairs, 2 * pairs, base);

  test(`${name}: the kernel by distance, and at single distances up to 2^53 - 1`, () => {
    const found = kernelByDistance(ladder, length);
    assert.equal(found.length, length);
    held(distances.map((distance) => found[distance]), values, name, 1e-9 / Math.max(...values));
    held(far.map((distance) => kernelAt(ladder, distance)), far_values, name);
  });

  test(`${name}: where it first rises and is first negative`, () => {
    const found = kernelByDistance(ladder, length), error = kernelBound(pairs);
    assert.equal(error, bound);
    assert.equal(firstRise(found, error), first_rise);
    assert.equal(firstNegative(found, error), first_negative);
  });

  test(`${name}: how far apart two rows are, and which are nearest`, () => {
    held(distances.map((distance) => rowDistance(ladder.rates, distance)), apart, name);
    assert.equal(nearestRows(ladder, kernelByDistance(ladder, length)).k, nearest);
  });
}

test("every distance of the fast way is within its bound of the slow one", () => {
  const ladder = geometricLadder(256, 512, 10000), found = kernelByDistance(ladder, 700);
  for (let distance = 0; distance < 700; distance += 7) {
    assert.ok(Math.abs(found[distance] - kernelAt(ladder, distance)) <= kernelBound(256), `distance ${distance}`);
  }
});

test("another base is seen", () => {
  const { pairs, base, far, far_values } = CASES[0];
  const found = far.map((distance) => kernelAt(geometricLadder(pairs, 2 * pairs, base + 1e-6), distance));
  assert.notDeepEqual(disagreements(found, far_values), []);
});

test("a rise or a negative value within the error is none", () => {
  assert.equal(firstRise([3, 1, 1.1, 2], 0.1), 2);
  assert.equal(firstRise([3, 2, 1]), null);
  assert.equal(firstNegative([3, -0.1, -2], 0.1), 2);
  assert.equal(firstNegative([3, 1]), null);
  assert.equal(firstNegative([-1, 1]), 0);
  assert.equal(firstRise([1, 2]), 0);
});
