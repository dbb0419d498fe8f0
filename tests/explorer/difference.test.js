import { strict as assert } from "node:assert";
import { test } from "node:test";

import { geometricLadder, ladderFrom, phaseAt } from "../../src/clockhands/show/explorer/js/ladders.js";
import { firstVisible, ladderBetween } from "../../src/clockhands/show/explorer/js/views/difference.js";
import { golden, held } from "./golden.js";

golden("difference").forEach(({ rates, first }, place) => {
  test(`two ladders, number ${place}: the first visible difference is where Python counts it`, () => {
    const found = firstVisible(ladderBetween(...rates.map((exact) => ladderFrom(exact))));
    if (first === null) return assert.equal(found, null);
    held([found.position, found.pair, found.by], first, "position, pair and difference");
  });
});

test("a phase of the ladder between two is the difference of their phases, far out too", () => {
  const [one, other] = [geometricLadder(16, 32, 1e4), geometricLadder(16, 32, 10001)], between = ladderBetween(one, other);
  for (const position of [0, 7, 2 ** 20, 2 ** 40 + 1]) {
    for (const pair of [0, 5, 15]) {
      const apart = phaseAt(one, pair, position) - phaseAt(other, pair, position) - phaseAt(between, pair, position);
      assert.ok(Math.abs(apart - 2 * Math.PI * Math.round(apart / (2 * Math.PI))) < 1e-14);
    }
  }
});

test("another threshold is passed at another position", () => {
  const between = ladderBetween(ladderFrom([[0.25, 0]]), ladderFrom([[0.125, 0]]));
  assert.deepEqual([0.1, 0.125, 0.3, 3].map((least) => firstVisible(between, least).position), [1, 2, 3, 25]);
});
