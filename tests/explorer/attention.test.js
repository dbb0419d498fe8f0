import { strict as assert } from "node:assert";
import { test } from "node:test";

import { attentionOf, commutingForm, drawnWeights, formScores, offsetMeans, offsetShare, projectionForm, sentenceAttention, wordVectors } from "../../src/clockhands/show/explorer/js/attention.js";
import { additiveCode, sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { seededDraw } from "../../src/clockhands/show/explorer/js/seeds.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("attention");
const SENTENCES = CASES.filter((each) => each.words);
const rowsOf = (code, count) => Array.from({ length: count }, (_, position) => Float64Array.from(code.row(position)));

for (const { words, code, seed, weights, mean, offset_share } of SENTENCES) {
  const name = `"${words.join(" ")}", ${code}, seed ${seed}`;

  test(`${name}: weights and the mean of what comes out`, () => {
    const found = sentenceAttention(words, { code, seed });
    held(found.weights, weights, `${name}, weights`);
    held(found.mean, mean, `${name}, mean`);
    found.weights.flat().forEach((row) => assert.ok(Math.abs(row.reduce((sum, each) => sum + each, 0) - 1) < 1e-15));
  });

  if (offset_share) {
    test(`${name}: the share of the offset`, () => {
      const drawn = drawnWeights(seed);
      const form = projectionForm(drawn.query[0], drawn.key[0], drawn.width);
      held(offsetShare(formScores(form, rowsOf(additiveCode(sinusoidalSpec(32)), 64)), 64), offset_share, `${name}, offset`);
    });
  }
}

test("a block form, and the share of the offset behind a form of the other layout", () => {
  const { form, offset_share } = CASES.find((each) => each.form);
  const found = commutingForm(4, "halves", [0, 1, 2, 3], [-1.5, -0.5, 0.5, 1.5]);
  held(Array.from({ length: 8 }, (_, row) => Array.from(found.subarray(8 * row, 8 * row + 8))), form, "form");
  held(offsetShare(formScores(found, rowsOf(additiveCode(sinusoidalSpec(8, { base: 100 })), 20)), 20), offset_share, "offset");
  const right = commutingForm(4, "interleaved", [0, 1, 2, 3], [-1.5, -0.5, 0.5, 1.5]);
  const share = offsetShare(formScores(right, rowsOf(additiveCode(sinusoidalSpec(8, { base: 100 })), 20)), 20);
  assert.ok(Math.abs(share - 1) < 1e-12 && offset_share < 0.9);
});

test("without a code the order of words changes nothing but the order of rows; with one it does", () => {
  const other = [2, 1, 0];
  for (const { code, least } of [{ code: "none", least: 0 }, { code: "sinusoidal", least: 0.01 }, { code: "rotary", least: 0.01 }, { code: "alibi", least: 0.01 }]) {
    const [here, there] = [["dog", "bites", "man"], ["man", "bites", "dog"]].map((words) => sentenceAttention(words, { code, seed: 1 }));
    let apart = 0;
    here.weights.forEach((head, number) => head.forEach((row, at) => row.forEach((weight, key) => {
      apart = Math.max(apart, Math.abs(weight - there.weights[number][other[at]][other[key]]));
    })));
    // ALiBi of distances that do not change when a sentence is turned round tells nothing here.
    if (code === "none" || code === "alibi") assert.ok(apart < 1e-14, `${code}: ${apart}`);
    else assert.ok(apart > least, `${code}: ${apart}`);
  }
});

test("a wrong seed, width of a head or code is seen", () => {
  const { words, weights } = SENTENCES.find(({ code, seed }) => code === "sinusoidal" && seed === 0);
  for (const changed of [{ seed: 1 }, { code: "none" }, { base: 9999.99 }, { code: "rotary" }]) {
    const found = sentenceAttention(words, { code: "sinusoidal", seed: 0, ...changed });
    assert.notDeepEqual(disagreements(found.weights, weights), [], JSON.stringify(changed));
  }
});

test("a causal token sees none that comes after", () => {
  const tokens = wordVectors(["a", "b", "c"]), found = attentionOf(tokens, drawnWeights(0), { causal: true });
  assert.deepEqual([Array.from(found.weights[0][0]), found.weights[1][1][2]], [[1, 0, 0], 0]);
});

test("means of diagonals, and scores that are all alike", () => {
  assert.deepEqual(Array.from(offsetMeans([1, 2, 3, 5], 2)), [3, 3, 2]);
  assert.equal(offsetShare(new Float64Array(9).fill(2), 3), 1);
  assert.equal(offsetShare([1, 2, 3, 1], 2), 1);
  const scores = [1, 2, 3, 5, 1, 2, 8, 1, 3], small = scores.map((score) => score * 1e-15);
  assert.ok(Math.abs(offsetShare(small, 3) - offsetShare(scores, 3)) < 1e-12 && offsetShare(scores, 3) < 0.99);
});

test("the generator is Park and Miller's: after 10,000 steps from 1 it stands at 399268537", () => {
  // That number is told of the multiplier 48271 by the C++ standard (minstd_rand); eight steps are skipped.
  const draw = seededDraw(0);
  let last = 0;
  for (let step = 8; step < 10000; step++) last = draw.uniform();
  assert.equal(Math.round(last * (2 ** 31 - 1)), 399268537);
});
