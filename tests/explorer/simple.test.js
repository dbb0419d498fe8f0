// What the panels of the simple codes say is what the rows of these codes are: closed forms against the rows themselves,
// and sentences against the numbers of Python's properties and claims (width 512, 2,048 tokens).

import { strict as assert } from "node:assert";
import { test } from "node:test";

import { additiveCode, naiveSpec, sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { kernelByDistance } from "../../src/clockhands/show/explorer/js/kernels.js";
import { geometricLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { coverOf, nearestRows, rowDistance, simpleCodes } from "../../src/clockhands/show/explorer/js/views/naive.js";

function rowsApart(code, p, q) {
  const [a, b] = [p, q].map((position) => code.row(position));
  return Math.hypot(...a.map((value, channel) => value - b[channel]));
}

for (const [width, base, length] of [[512, 10000, 2048], [8, 100, 64], [2, 10000, 5], [6, 1e6, 700]]) {
  test(`distances of rows at width ${width}, base ${base}, ${length} tokens`, () => {
    const { found, rows } = simpleCodes({ width, base, length });
    assert.equal(rows, length);
    for (const [name, { apart }] of Object.entries(found)) {
      const code = additiveCode(name === "paper" ? sinusoidalSpec(width, { base }) : naiveSpec(name, width, { base, length }));
      for (const [p, q] of [[0, 1], [1, 0], [2, 4], [length - 1, 0], [Math.floor(length / 2), Math.floor(length / 3)]]) {
        const real = rowsApart(code, p, q);
        // The root of a small difference of large sums has half of the digits.
        assert.ok(Math.abs(apart(p, q) - real) < 1e-6 * Math.max(1, real), `${name} from ${p} to ${q}: ${apart(p, q)} instead of ${real}`);
      }
    }
  });
}

test("the nearest two rows are those that a search of all rows finds", () => {
  for (const [pairs, base] of [[256, 10000], [4, 10000], [3, 50], [1, 10]]) {
    const ladder = geometricLadder(pairs, 2 * pairs, base), length = 500;
    const { k, apart } = nearestRows(ladder, kernelByDistance(ladder, length));
    const all = Array.from({ length: length - 1 }, (_, at) => rowDistance(ladder.rates, at + 1));
    assert.equal(apart, Math.min(...all));
    assert.equal(k, all.indexOf(apart) + 1);
  }
});

test("a binary code that is too narrow starts again, and the panel says when", () => {
  const { found } = simpleCodes({ width: 4, base: 10000, length: 100 });
  assert.equal(found.binary.apart(0, 16), 0);
  assert.match(found.binary.loses, /all 4 digits flip.*after 16 tokens it starts again/);
});

test("the numbers that are told are Python's", () => {
  const { found } = simpleCodes({ width: 512, base: 10000, length: 2048 });
  assert.deepEqual([found.single.twin.k, found.even.round, found.binary.jump, found.binary.flipped, found.paper.near.k, found.paper.still], [710, 1602, 1024, 11, 1, 95]);
  assert.equal(found.paper.step.toFixed(3), "3.714");
  // 16 times the 6.03e-5 of a single pair.
  assert.equal((found.single.twin.apart / 16).toPrecision(3), "0.0000603");
  const narrow = simpleCodes({ width: 64, base: 10000, length: 512 }).found.sine;
  assert.deepEqual([narrow.least.toFixed(3), narrow.most.toFixed(3)], ["0.756", "1.819"]);
});

test("how far three bases reach, and which of their hands serve no distance", () => {
  const told = [100, 1e4, 1e6].map((base) => coverOf(geometricLadder(256, 512, base), 2048));
  assert.deepEqual(told, [{ far: 308, idle: 0 }, { far: 2047, idle: 37 }, { far: 2047, idle: 110 }]);
});
