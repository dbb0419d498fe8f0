import { strict as assert } from "node:assert";
import { test } from "node:test";

import { additiveCode, sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { dotsOf } from "../../src/clockhands/show/explorer/js/heatmap.js";
import { bandsOf, followed } from "../../src/clockhands/show/explorer/js/views/table.js";

const GREYS = Uint32Array.from({ length: 101 }, (_, step) => step);
const dots = (cells, rows, columns, grain) =>
  [...dotsOf(Float32Array.from(cells), rows, columns, new Uint32Array(Math.ceil(rows / grain[0]) * Math.ceil(columns / grain[1])), grain, GREYS, [-1, 1])];

test("a dot of one cell has the cell's colour, and values beyond the range have its ends'", () => {
  assert.deepEqual(dots([-1, 0, 0.5, 1, -7, 7], 2, 3, [1, 1]), [0, 50, 75, 100, 0, 100]);
});

test("a dot of several cells has their mean, the last ones of fewer cells the mean of those", () => {
  assert.deepEqual(dots([1, -1, 1, -1, 1, -1, 1, 1, 0], 3, 3, [2, 2]), [50, 50, 100, 50]);
  assert.deepEqual(dots([1, 0, -1, 0, 1, 1], 3, 2, [2, 1]), [50, 50, 100, 100]);
  assert.deepEqual(dots([1, 0, 0, -1, -1, 0.5], 2, 3, [1, 2]), [75, 50, 0, 75]);
});

test("the never-turning channels are one band at the right, or one in each half", () => {
  // Pairs 161 to 255 of the paper's code have wavelengths over 2,048: 2 pi 10000^(i / 256) > 2048 from i = 160.9.
  const band = (layout, length) => bandsOf(additiveCode(sinusoidalSpec(512, { layout })), length);
  assert.deepEqual(band("interleaved", 2048), [[322, 512]]);
  assert.deepEqual(band("halves", 2048), [[161, 256], [417, 512]]);
  assert.deepEqual(band("interleaved", 100000), []);
  assert.deepEqual(band("interleaved", 6), [[0, 512]]);
});

test("a window moves no further than it must to hold a place, and ends with the table", () => {
  assert.equal(followed(0, 256, 100, 1792), 0);
  assert.equal(followed(0, 256, 256, 1792), 1);
  assert.equal(followed(500, 256, 100, 1792), 100);
  assert.equal(followed(0, 256, 2047, 1792), 1792);
  assert.equal(followed(0, 256, 5000, 1792), 1792);
});
