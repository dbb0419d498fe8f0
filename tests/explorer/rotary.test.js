import { strict as assert } from "node:assert";
import { test } from "node:test";

import { allOf } from "../../src/clockhands/show/explorer/js/idle.js";
import { geometricLadder, givenLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { drawnHead, rotaryCode, rotarySpec } from "../../src/clockhands/show/explorer/js/rotary.js";
import { SCALINGS, scaledLadder, scalingOf } from "../../src/clockhands/show/explorer/js/scalings.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("rotary");
const head = (width, step) => Float64Array.from({ length: width }, (_, channel) => (((channel * step) % 11) - 5) / 4);

for (const { name, spec, chosen, rates, attention_factor, positions, channels, queries, keys, scores } of CASES) {
  const code = rotaryCode(spec), query = head(spec.head_width, 7), key = head(spec.head_width, 3);

  test(`${name}: the ladder in use`, () => {
    assert.deepEqual(chosen.map((pair) => code.ladder.rates[pair]), rates);
    held(code.ladder.attentionFactor, attention_factor, name, 1e-14);
  });

  test(`${name}: turned queries and keys`, () => {
    const turned = (vector, role) => positions.map((at) => { const row = code.turn(vector, at, role); return channels.map((channel) => row[channel]); });
    held(turned(query, "query"), queries, `${name}, queries`);
    held(turned(key, "key"), keys, `${name}, keys`);
  });

  test(`${name}: scores by distance`, () => {
    held(positions.map((at) => code.score(query, key, at)), scores, name, 1e-9);
    const near = positions.filter((at) => at <= 4096), all = allOf(code.scoresInParts(query, key, 4097));
    held(near.map((at) => all[at]), near.map((at) => scores[positions.indexOf(at)]), `${name}, in parts`, 1e-9);
  });
}

test("scores at many distances are those of turned queries and keys, wherever they stand", () => {
  const { spec } = CASES.find(({ name }) => name === "llama3.1"), code = rotaryCode(spec), { query, key } = drawnHead(3, spec.head_width);
  const scores = allOf(code.scoresInParts(query, key, 40));
  for (const [distance, start] of [[-5, 5], [0, 12], [17, 1000], [39, 2 ** 20]]) {
    const turned = code.turn(query, start + distance), still = code.turn(key, start, "key");
    const product = turned.reduce((sum, each, channel) => sum + each * still[channel], 0);
    held(code.score(query, key, distance), product, `distance ${distance}`, 1e-12);
    if (distance >= 0) held(scores[distance], product, `distance ${distance}, in parts`, 1e-12);
  }
});

test("scores in parts are those one by one, also where pairs grow or some channels stand still", () => {
  for (const changed of [{}, { rotated: 8 }, { direction: "backward" }, { xpos: { scale: 100, smoothing: 0.25, centre: 40 } }]) {
    const code = rotaryCode({ ...rotarySpec(16), ...changed }), { query, key } = drawnHead(1, 16);
    for (const length of [1, 2, 3, 300, 1025]) {
      const scores = allOf(code.scoresInParts(query, key, length));
      assert.equal(scores.length, length);
      for (const at of [0, 1, 2, 31, 32, 299, 1024]) if (at < length) held(scores[at], code.score(query, key, at), `${JSON.stringify(changed)}, ${at} of ${length}`, 1e-12);
    }
  }
});

test("a wrong scaling, layout, direction or length is seen", () => {
  const { spec, positions, channels, queries } = CASES.find(({ name }) => name === "llama3.1");
  const turned = (changed) => positions.map((at) => channels.map((channel) => rotaryCode({ ...spec, ...changed }).turn(head(spec.head_width, 7), at)[channel]));
  assert.deepEqual(disagreements(turned({}), queries), []);
  for (const changed of [{ scaling: null }, { scaling: { ...spec.scaling, factor: 8.0001 } }, { layout: "interleaved" }, { direction: "backward" }, { rotated: 64 }]) {
    assert.notDeepEqual(disagreements(turned(changed), queries), [], JSON.stringify(changed));
  }
  const dynamic = CASES.find(({ name }) => name === "Dynamic at 10000");
  assert.notDeepEqual(Array.from(rotaryCode({ ...dynamic.spec, length: null }).ladder.rates), Array.from(rotaryCode(dynamic.spec).ladder.rates));
});

test("a scaling by its name has the published values", () => {
  const published = (name) => CASES.find((each) => each.name === name).spec.scaling;
  assert.deepEqual(scalingOf("linear", 4, 4096), published("Linear at None"));
  assert.deepEqual(scalingOf("ntk", 4, 4096), published("Ntk at None"));
  assert.deepEqual(scalingOf("dynamic", 4, 4096), published("Dynamic at None"));
  assert.deepEqual(scalingOf("yarn", 4, 4096), published("Yarn at None"));
  assert.deepEqual(scalingOf("llama3", 4, 4096), published("Llama3 at None"));
  assert.equal(scalingOf("none", 4, 4096), null);
  const ladder = geometricLadder(32, 64, 10000);
  for (const name of SCALINGS) assert.equal(scaledLadder(scalingOf(name, 4, 4096), ladder, 8192).pairs, 32, name);
});

test("specs by hand are those of Python", () => {
  const specOf = (wanted) => CASES.find(({ name }) => name === wanted).spec;
  assert.deepEqual(rotarySpec(64), specOf("esm2"));
  assert.deepEqual(rotarySpec(256, { layout: "interleaved", rotated: 64 }), specOf("gpt-j"));
  assert.deepEqual(rotarySpec(64, { scaling: scalingOf("dynamic", 4, 4096), length: 10000 }), specOf("Dynamic at 10000"));
});

test("what cannot be scaled says so", () => {
  assert.throws(() => scaledLadder(scalingOf("yarn", 4, 4096), givenLadder([1, 0.3, 0.2])), RangeError);
  assert.throws(() => scaledLadder(scalingOf("ntk", 4, 4096), givenLadder([1])), RangeError);
  assert.throws(() => scaledLadder({ type: "Sundial" }, givenLadder([1])), RangeError);
  assert.throws(() => rotaryCode({ ...rotarySpec(8), axes: [0, 0, 1, 1] }), RangeError);
});

test("a drawn head is the same for the same seed and another for the next", () => {
  assert.deepEqual(drawnHead(4, 64), drawnHead(4, 64));
  assert.notDeepEqual(drawnHead(4, 64).query, drawnHead(5, 64).query);
  const { query } = drawnHead(0, 4096), mean = query.reduce((sum, each) => sum + each, 0) / 4096;
  const deviation = Math.sqrt(query.reduce((sum, each) => sum + (each - mean) ** 2, 0) / 4095);
  assert.ok(Math.abs(mean) < 0.06 && Math.abs(deviation - 1) < 0.05, `${mean} ${deviation}`);
});
