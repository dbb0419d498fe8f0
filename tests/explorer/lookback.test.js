import { strict as assert } from "node:assert";
import { test } from "node:test";

import { allOf } from "../../src/clockhands/show/explorer/js/idle.js";
import { geometricLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { DEVIATIONS, largestAt, lookingBackInParts } from "../../src/clockhands/show/explorer/js/lookback.js";
import { golden, held } from "./golden.js";

for (const { width, base, back, seed, length, deviations, right, query, scores, margin } of golden("lookback")) {
  test(`width ${width}, ${back} back: as many find the token as by Python's head, and the scores are its scores`, () => {
    const found = allOf(lookingBackInParts(geometricLadder(width / 2, width, base), { back, seed, texts: 2, shown: query, length, deviations }));
    held(found.right, right, "right");
    held([found.margin, found.largest], [margin, width / 2], "margin");
    deviations.forEach((deviation, place) => held(found.scores(deviation), scores[place], `scores at ${deviation}`));
  });
}

test("with another distance than the matrix turns, no query finds its token", () => {
  const found = allOf(lookingBackInParts(geometricLadder(32, 64, 10000), { back: 3, shown: 10, length: 40, deviations: [0] }));
  assert.deepEqual(found.right, [1]);
  assert.equal(largestAt(found.scores(0)), 7);
  assert.notEqual(largestAt(found.scores(0)), 8);
});

test("the deviations are those that the slider can have", () => {
  DEVIATIONS.forEach((each, place) => assert.equal(each, Math.round(each * 20) / 20, `at ${place}`));
});
