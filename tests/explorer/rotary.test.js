import { strict as assert } from "node:assert";
import { test } from "node:test";

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
    held(positions.map((at) => code.scores(query, key, at, 1)[0]), scores, name, 1e-9);
  });
}

test("scores at many distances are those of turned queries and keys, wherever they stand", () => {
  const { spec } = CASES.find(({ name }) => name === "llama3.1"), code = rotaryCode(spec), { query, key } = drawnHead(3, spec.head_width);
  const scores = code.scores(query, key, -5, 40);
  for (const [place, start] of [[0, 5], [17, 1000], [39, 2 ** 20]]) {
    const turned = code.turn(query, start + place - 5), still = code.turn(key, start, "key");
    held(scores[place], turned.reduce((sum, each, channel) => sum + each * still[channel], 0), `distance ${place - 5}`, 1e-12);
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
