import { strict as assert } from "node:assert";
import { test } from "node:test";

import { pathOfColumns } from "../../src/clockhands/show/explorer/js/draw.js";

// A scale of so many values to a pixel, and back.
function scaleOf(perPixel) {
  return Object.assign((value) => value / perPixel, { invert: (at) => at * perPixel });
}

const pointsOf = (path) => path.slice(1).split("L").map((point) => point.split(",").map(Number));

test("a line of more values than pixels keeps every value that stands out, and is no longer than four points a pixel", () => {
  const values = Float64Array.from({ length: 1000 }, (_, at) => Math.sin(at / 300));
  values[437] = 9;
  values[438] = -9;
  const points = pointsOf(pathOfColumns(values, scaleOf(100), (value) => value));
  assert.ok(points.length <= 40);
  assert.deepEqual(points.filter(([, y]) => Math.abs(y) > 2).map(([, y]) => y), [9, -9]);
  assert.deepEqual([points[0], points.at(-1)], [[0, 0], [10, -0.2]]);
  for (let place = 1; place < points.length; place++) assert.ok(points[place][0] >= points[place - 1][0]);
});

test("a line of fewer values than pixels has them all, from where it begins", () => {
  const values = [5, 1, 2, 3], whole = (value) => value;
  assert.deepEqual(pointsOf(pathOfColumns(values, scaleOf(0.1), whole)), [[0, 5], [10, 1], [20, 2], [30, 3]]);
  assert.deepEqual(pointsOf(pathOfColumns(values, scaleOf(0.1), whole, 1)), [[10, 1], [20, 2], [30, 3]]);
});
