// What the views of lengths, rounding and biases count before they draw.

import { strict as assert } from "node:assert";
import { test } from "node:test";

import { alibiSlopes, biasCode, bucketsSpec, drawnBuckets } from "../../src/clockhands/show/explorer/js/biases.js";
import { kernelAt } from "../../src/clockhands/show/explorer/js/kernels.js";
import { geometricLadder, givenLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { computedAngles, roundTo } from "../../src/clockhands/show/explorer/js/precision.js";
import { scaledLadder, scalingOf } from "../../src/clockhands/show/explorer/js/scalings.js";
import { bucketSteps, reachOf } from "../../src/clockhands/show/explorer/js/views/bias.js";
import { decades, fitness, kernelColumns, powerWords } from "../../src/clockhands/show/explorer/js/views/ladder.js";
import { distinctPositions, errorsSoFar } from "../../src/clockhands/show/explorer/js/views/precision.js";

const PAPER = geometricLadder(256, 512, 10000);
const scaled = (name, factor, length, served) => scaledLadder(scalingOf(name, factor, length), PAPER, served);

test("a pair never turns in training where its wavelength is longer", () => {
  // 2 pi 10000^(i / 256) > 2048
  const first = Math.ceil((256 * Math.log(2048 / (2 * Math.PI))) / Math.log(10000));
  const { never, beyond, kept } = fitness(PAPER, PAPER, 2048, 8192);
  assert.equal(first, 161);
  assert.deepEqual(never, Array.from({ length: 256 - first }, (_, place) => first + place));
  assert.deepEqual(beyond, never);
  assert.equal(kept, 256);
});

test("a slowing by as much as the text grows leaves no pair where training never pointed, less of one does", () => {
  for (const name of ["linear", "yarn", "llama3"]) {
    assert.equal(fitness(PAPER, scaled(name, 4, 2048, 8192), 2048, 8192).beyond.length, 0, name);
    assert.equal(fitness(PAPER, scaled(name, 3.99, 2048, 8192), 2048, 8192).beyond.length, 95, name);
  }
  // NTK-aware slows only the last pair by the whole factor.
  assert.equal(fitness(PAPER, scaled("ntk", 4, 2048, 8192), 2048, 8192).beyond.length, 94);
});

test("the pairs that keep their rate", () => {
  assert.equal(fitness(PAPER, scaled("linear", 4, 2048, 8192), 2048, 8192).kept, 0);
  assert.equal(fitness(PAPER, scaled("ntk", 4, 2048, 8192), 2048, 8192).kept, 1);
  // Llama 3 keeps those of at least four turns: 2 pi 10000^(i / 256) <= 512.
  assert.equal(fitness(PAPER, scaled("llama3", 4, 2048, 8192), 2048, 8192).kept, Math.floor((256 * Math.log(512 / (2 * Math.PI))) / Math.log(10000)) + 1);
});

test("a pair that stands still never turns and never goes anywhere", () => {
  const still = givenLadder([1, 0]);
  assert.deepEqual(fitness(still, still, 10, 100), {
    never: [1], beyond: [], still: [1], kept: 2, marks: { before: ["turning", "never"], after: ["turning", "never"] },
  });
});

test("the columns of a kernel hold every distance once, with its least, largest and mean number", () => {
  const ladder = geometricLadder(4, 8, 10000), columns = kernelColumns(ladder, 1000, 60);
  const all = Array.from({ length: 1000 }, (_, place) => kernelAt(ladder, place + 1) / 4);
  assert.ok(Math.abs(Math.min(...columns.map((each) => each[1])) - Math.min(...all)) < 1e-12);
  assert.ok(Math.abs(Math.max(...columns.map((each) => each[2])) - Math.max(...all)) < 1e-12);
  assert.ok(columns.every(([, least, most, mean]) => least <= mean && mean <= most));
  assert.deepEqual([columns[0][0], columns.at(-1)[0] <= 1000], [1, true]);
  assert.ok(columns.every((each, place) => place === 0 || each[0] > columns[place - 1][0]));
});

test("where there are too many distances, those of a column are sampled within it", () => {
  const columns = kernelColumns(PAPER, 2 ** 20 - 1, 300);
  assert.ok(columns.length > 150);
  assert.ok(Math.abs(columns[0][3] - kernelAt(PAPER, 1) / 256) < 1e-12);
  assert.ok(columns.every(([, least, most]) => least >= -1 && most <= 1));
});

test("an attention factor counts twice in a dot product", () => {
  const yarn = scaled("yarn", 4, 2048, 8192);
  const [[, , value]] = kernelColumns(yarn, 100, 50);
  assert.ok(Math.abs(value - (kernelAt(yarn, 1) / 256) * (1 + 0.1 * Math.log(4)) ** 2) < 1e-12);
});

test("positions that are left in a dtype, against counting them", () => {
  for (const dtype of ["float32", "bfloat16", "float16"]) {
    for (const length of [1, 2, 256, 257, 258, 259, 300, 2048, 2049, 2050, 4096, 5000, 65504, 65505, 65519, 65520, 65521, 70001]) {
      const seen = new Set();
      for (let position = 0; position < length; position++) seen.add(roundTo(dtype, position));
      assert.equal(distinctPositions(dtype, length), seen.size, `${dtype}, ${length}`);
    }
  }
  assert.deepEqual([distinctPositions("bfloat16", 4096), distinctPositions("float16", 4096)], [769, 3073]);
});

test("errors so far grow, begin where the dtype first fails and end where it has no number", () => {
  const bfloat = errorsSoFar(computedAngles(PAPER, "bfloat16", "positions"));
  assert.ok(bfloat[0][0] > 257 && bfloat[0][0] < 400 && bfloat[0][1] === 1);
  assert.ok(bfloat.every((each, place) => place === 0 || each[1] >= bfloat[place - 1][1]));
  const half = errorsSoFar(computedAngles(PAPER, "float16", "positions"));
  assert.ok(half.at(-1)[0] < 2 * 65504 && half.at(-1)[0] > 30000);
  assert.deepEqual(errorsSoFar({ largest: () => 0 }), []);
});

test("the fastest hand alone tells how far rounded positions turn any hand", () => {
  const fastest = computedAngles(givenLadder([PAPER.rates[0]]), "bfloat16", "positions"), all = computedAngles(PAPER, "bfloat16", "positions");
  for (const position of [255, 257, 999, 4097, 99999]) assert.equal(fastest.largest(position), all.largest(position));
});

test("a head of ALiBi reaches as far as its slope says", () => {
  for (const slope of alibiSlopes(8)) {
    assert.ok(Math.abs(Math.exp(-slope * reachOf(slope, Math.log(2))) - 0.5) < 1e-15);
  }
  assert.equal(reachOf(0.5, Math.log(2)).toFixed(2), "1.39");
});

test("the steps of a bucketed bias join without a gap, and each has its bucket's number", () => {
  const spec = bucketsSpec(4), values = drawnBuckets(spec, 7), code = biasCode(spec, values);
  for (const last of [0, 5, 8, 90, 91, 500]) {
    const steps = bucketSteps(code, 2, last);
    assert.deepEqual([steps[0].from, steps.at(-1).to], [0, last]);
    steps.forEach((step, bucket) => {
      if (bucket) assert.equal(step.from, steps[bucket - 1].to + 1);
      for (const distance of [step.from, step.to]) assert.equal(step.bias, values.table[bucket][2], `${distance}`);
      assert.equal(code.bucket(step.to, 0), bucket);
    });
  }
  assert.equal(bucketSteps(code, 0, 2047).length, 16);
});

test("powers of ten on an axis and in words", () => {
  assert.deepEqual(decades([6, 2e5], 8), [10, 100, 1000, 10000, 100000]);
  assert.deepEqual(decades([1e-16, 1e4], 7), [1e-16, 1e-13, 1e-10, 1e-7, 1e-4, 1e-1, 100]);
  assert.equal(powerWords(1e6), "10⁶");
  assert.equal(powerWords(1e-17), "10⁻¹⁷");
  assert.equal(powerWords(100), "100");
  assert.equal(powerWords(100, true), "10²");
});
