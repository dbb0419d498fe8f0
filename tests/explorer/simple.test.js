// What the panels of the simple codes say is what the rows of these codes are: closed forms against the rows themselves,
// and sentences against the numbers of Python's properties and claims (width 512, 2,048 tokens).

import { strict as assert } from "node:assert";
import { test } from "node:test";

import { additiveCode, naiveSpec, sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { kernelByDistance } from "../../src/clockhands/show/explorer/js/kernels.js";
import { geometricLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { countersOf } from "../../src/clockhands/show/explorer/js/views/naive.js";
import { coverOf, nearestRows, rowDistance, wavesInParts } from "../../src/clockhands/show/explorer/js/views/spacing.js";
import { allOf } from "../../src/clockhands/show/explorer/js/idle.js";

// What the panels of both views tell.
function simpleCodes(state) {
  const counters = countersOf(state), waves = allOf(wavesInParts(state));
  assert.deepEqual([counters.rows, counters.norm], [waves.rows, waves.norm]);
  return { rows: waves.rows, norm: waves.norm, found: { ...counters.found, ...waves.found } };
}

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

const words = (text) => text.replace(/[\u202f\u2009]/g, "");
const numbersOf = (text, pattern) => words(text).match(pattern).slice(1).map(Number);

for (const width of [8, 512]) {
  for (const base of [100, 500, 1e4]) {
    test(`evenly spaced frequencies fall into step, width ${width}, base ${base}: what is told is what the rows are`, () => {
      const code = additiveCode(naiveSpec("even", width, { base })), { loses, round } = simpleCodes({ width, base, length: 2048 }).found.even;
      const back = rowsApart(code, 0, round), step = rowsApart(code, 0, 1);
      const [told, angle, apart, beside, strangers] = numbersOf(loses, /after (\d+) tokens all .* one angle again, ([\d.]+) rad .* differ by ([\d.]+), where neighbours differ by ([\d.]+) and most rows by about (\d+\.\d+)/);
      assert.equal(told, round);
      for (const [one, other] of [[apart, back], [beside, step], [strangers, Math.sqrt(width)]]) assert.ok(Math.abs(one - other) < 0.006 * other, loses);
      // Comes round only what comes near to where it began: nearer than a step.
      assert.equal(loses.startsWith("Repeats"), back < step, loses);
      // All hands within what is told of one angle, and that angle is where the slowest stands.
      const off = words(loses).match(/stand within ([\d.]+) rad of one angle/), most = off ? Number(off[1]) * 1.05 : 0.005;
      for (let pair = 0; pair < width / 2; pair++) {
        const phase = Math.atan2(code.cell(round, 2 * pair), code.cell(round, 2 * pair + 1)), apartBy = Math.min(...[angle, -angle].map((at) => Math.abs(Math.sin((phase - at) / 2)) * 2));
        assert.ok(apartBy <= most + 0.006, `pair ${pair}: ${phase} and not ${angle}`);
      }
    });
  }
}

test("a single hand has no neighbour to gain a turn on", () => {
  for (const base of [100, 500, 1e4]) {
    const { even, single } = simpleCodes({ width: 2, base, length: 2048 }).found;
    assert.equal(even.loses, single.loses.replace("Loses the position", "Repeats"));
    assert.match(even.loses, /^Repeats:/);
    assert.equal(even.apart(0, 710), single.apart(0, 710));
    assert.doesNotMatch(even.loses, /neighbour's|every pair|all pairs/);
  }
});

test("digits are counted over the whole length, not over the rows that are looked at", () => {
  for (const [width, length, idle] of [[512, 131072, 495], [512, 131073, 494], [512, 2048, 501], [512, 2, 511], [512, 1, 512]]) {
    const code = additiveCode(naiveSpec("binary", width)), changing = code.row(length - 1).lastIndexOf(1) + 1;
    assert.equal(width - changing, idle);
    assert.deepEqual(numbersOf(simpleCodes({ width, base: 1e4, length }).found.binary.loses, /; (\d+) of 512 dimensions never change/), [idle]);
  }
  assert.match(simpleCodes({ width: 4, base: 1e4, length: 10000 }).found.binary.loses, /after 16 tokens it starts again/);
});

test("what is told of one, two and three tokens is so", () => {
  for (const length of [1, 2, 3, 4, 6]) {
    const { found } = simpleCodes({ width: 8, base: 100, length }), digits = additiveCode(naiveSpec("binary", 8));
    const flips = (from) => digits.row(from).filter((digit, channel) => digit !== digits.row(from + 1)[channel]).length;
    const binary = words(found.binary.loses);
    if (length < 3) assert.ok(/0 to 1 one digit flips, from 1 to 2 more than one/.test(binary) && flips(0) === 1 && flips(1) > 1);
    else {
      const [before, , count, from] = binary.match(/from (\d+) to (\d+) (both|all \d+) digits flip, from (\d+) to \d+ one/).slice(1);
      assert.equal(flips(Number(before)), count === "both" ? 2 : Number(count.slice(4)));
      assert.equal(flips(Number(from)), 1);
    }
    for (const { loses } of Object.values(found)) assert.doesNotMatch(loses, /never in one|Infinity|NaN|in 1 tokens|undefined/);
  }
  assert.doesNotMatch(simpleCodes({ width: 8, base: 100, length: 2 }).found.sine.loses, /a step is/);
});

test("row 0 of sines alone is all zeros and row 1 is not: that no matrix undoes", () => {
  const code = additiveCode(naiveSpec("sine", 8));
  assert.ok(code.row(0).every((value) => value === 0) && code.row(1).some((value) => value !== 0));
  assert.match(simpleCodes({ width: 8, base: 1e4, length: 2048 }).found.sine.loses, /row 0 is all zeros, and no matrix gives row 1 from it; a step is/);
});

test("where some rows are looked at only, the nearest are those of these", () => {
  const told = (length) => words(simpleCodes({ width: 64, base: 1e4, length }).found.paper.loses);
  assert.match(told(4096), /nearest rows of all\./);
  assert.match(told(4097), /nearest rows of the first 4096\./);
});

test("how far three bases reach, and which of their hands serve no distance", () => {
  const told = [100, 1e4, 1e6].map((base) => coverOf(geometricLadder(256, 512, base), 2048));
  assert.deepEqual(told, [{ far: 308, idle: 0 }, { far: 2047, idle: 37 }, { far: 2047, idle: 110 }]);
});
