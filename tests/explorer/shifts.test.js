import { strict as assert } from "node:assert";
import { test } from "node:test";

import { additiveCode, naiveSpec, sinusoidalSpec, warpPosition } from "../../src/clockhands/show/explorer/js/codes.js";
import { geometricLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { rotaryCode } from "../../src/clockhands/show/explorer/js/rotary.js";
import { bestShift, missOfShift, shiftBlock, warpedStep, whyNoShift } from "../../src/clockhands/show/explorer/js/shifts.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("shifts");
const codeOf = (spec) => (spec.type === "Rotary" ? rotaryCode(spec) : additiveCode(spec));
const WARPED = { type: "WarpedPosition", width: 4, warp: "log", base: 10000, layout: "interleaved", order: "sin-cos" };

// R_k of all channels: the block of each pair on its two.
function shiftMatrix(code, k, width) {
  const matrix = Array.from({ length: width }, (_, row) => Array.from({ length: width }, (_, column) => (row === column ? 1 : 0)));
  for (let pair = 0; pair < code.pairs; pair++) {
    const block = shiftBlock(code, pair, k), at = [code.channels[2 * pair], code.channels[2 * pair + 1]];
    at.forEach((row, i) => at.forEach((column, j) => { matrix[row][column] = block[i][j]; }));
  }
  return matrix;
}

for (const { spec, k, matrix } of CASES.filter((each) => each.matrix)) {
  test(`${spec.type} ${spec.layout} ${spec.order ?? spec.direction}, ${k} tokens: the matrix of a shift`, () => {
    held(shiftMatrix(codeOf(spec), k, matrix.length), matrix, `k = ${k}`);
    assert.notDeepEqual(disagreements(shiftMatrix(codeOf(spec), k + 1, matrix.length), matrix), []);
  });
}

for (const { warp, k, from, to, cosines, sines, largest, rms } of CASES.filter((each) => each.warp)) {
  test(`${warp}, ${k} tokens: the best angle, and what it leaves`, () => {
    const ladder = geometricLadder(4, 8, 100), found = [0, 1, 2, 3].map((pair) => bestShift(ladder, pair, warp, k, from, to));
    held(found.map(({ angle }) => Math.cos(angle)), cosines, "cosine");
    held(found.map(({ angle }) => Math.sin(angle)), sines, "sine");
    held(found.map((each) => each.largest), largest, "largest");
    held(found.map((each) => each.rms), rms, "root of the mean square");
  });
}

test("a row k tokens later is the matrix times the row, wherever it stood", () => {
  const code = additiveCode(sinusoidalSpec(16, { layout: "halves" }));
  for (const [start, k] of [[0, 3], [2 ** 20, -77], [12345, 1]]) {
    const matrix = shiftMatrix(code, k, 16), row = code.row(start);
    const moved = matrix.map((each) => each.reduce((sum, entry, channel) => sum + entry * row[channel], 0));
    assert.deepEqual(disagreements(moved, code.row(start + k), 1e-14), []);
  }
});

test("what a shift misses is counted on the rows: nothing, but for a row that is held at zero", () => {
  for (const spec of [sinusoidalSpec(16, { layout: "halves", order: "cos-sin" }), sinusoidalSpec(9, { odd: "zero" }), { ...sinusoidalSpec(16), scale: 2 }]) {
    const code = additiveCode(spec), holed = additiveCode({ ...spec, zero_rows: [1] });
    for (const [from, k] of [[0, 3], [1, 3], [2 ** 20, -77], [5, -7]]) assert.ok(missOfShift(code, from, k) < 2e-15);
    const [from, to] = [code.row(1), code.row(4)].map((row) => Math.max(...row.map(Math.abs)));
    assert.equal(missOfShift(holed, 1, 3), to, "row 1 moved is zeros, row 4 is not");
    assert.ok(Math.abs(missOfShift(holed, 4, -3) - from) < 0.5 && missOfShift(holed, 4, -3) > 0.1);
    assert.ok(missOfShift(holed, 4, 3) < 2e-15);
  }
});

test("positions themselves leave nothing, from any start", () => {
  const { angle, largest, rms } = bestShift(geometricLadder(4, 8, 100), 1, "none", 3, 0, 500);
  assert.ok(Math.abs(angle - 0.9486832980505138) < 1e-14 && largest < 1e-14 && rms < 1e-14);
});

test("a step of a warped position is that of its numbers", () => {
  const ladder = geometricLadder(4, 8, 100);
  for (const warp of ["none", "square", "log", "reciprocal"]) {
    const step = ladder.rates[1] * (warpPosition(warp, 19) - warpPosition(warp, 12));
    assert.ok(Math.abs(warpedStep(ladder, 1, warp, 12, 7) - step) < 1e-12, warp);
  }
  assert.ok(Number.isNaN(warpedStep(ladder, 1, "log", 0, 7)));
  assert.equal(bestShift(ladder, 1, "log", 7, 0, 40).largest, bestShift(ladder, 1, "log", 7, 1, 40).largest);
});

test("what has no shift says why", () => {
  const none = [naiveSpec("counter", 4), naiveSpec("sine", 4), WARPED, sinusoidalSpec(7, { odd: "extra" }), { ...sinusoidalSpec(8), order: "sin-sin" }, { ...sinusoidalSpec(8), standardised: 9 }];
  const reasons = none.map((spec) => whyNoShift(additiveCode(spec)));
  assert.equal(new Set(reasons).size, 5);
  assert.ok(reasons.every((why) => typeof why === "string"));
  for (const name of ["single", "even"]) assert.equal(whyNoShift(additiveCode(naiveSpec(name, 8))), null);
});
