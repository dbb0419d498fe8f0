import { strict as assert } from "node:assert";
import { test } from "node:test";

import { innerProduct } from "../../src/clockhands/show/explorer/js/attention.js";
import { additiveCode, sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { allOf } from "../../src/clockhands/show/explorer/js/idle.js";
import { drawnTokens, leastDeviations, rowsOver, shareFound } from "../../src/clockhands/show/explorer/js/views/added.js";
import { golden, held } from "./golden.js";

for (const { width, base, seed, length, deviations, found, norms, cosine } of golden("added")) {
  test(`width ${width}: as many tokens are found, and rows are as long, as in Python`, () => {
    const code = additiveCode(sinusoidalSpec(width, { base })), tokens = drawnTokens(seed, width), rows = rowsOver(length).map((position) => code.row(position));
    const least = allOf(leastDeviations(tokens, rows));
    assert.deepEqual(deviations.map((deviation) => shareFound(least, deviation)), found);
    held(rows.map((row) => Math.sqrt(innerProduct(row, row))), norms, "lengths of rows");
    held([innerProduct(tokens[0], rows.at(-1)) / Math.sqrt(innerProduct(tokens[0], tokens[0]) * innerProduct(rows.at(-1), rows.at(-1)))], [cosine], "cosine");
  });
}

test("the share only grows with the deviation, from none to all", () => {
  const least = Float64Array.of(-0.5, 0.1, 0.1, 0.4);
  assert.deepEqual([0, 0.05, 0.1, 0.2, 0.4, 1].map((deviation) => shareFound(least, deviation)), [0, 0.25, 0.25, 0.75, 0.75, 1]);
});

test("the rows are spread over the length, each position once", () => {
  assert.deepEqual(rowsOver(1), [0]);
  assert.deepEqual(rowsOver(3), [0, 1, 2]);
  const many = rowsOver(2048);
  assert.deepEqual([many.length, many[0], many.at(-1), new Set(many).size], [32, 0, 2047, 32]);
});
