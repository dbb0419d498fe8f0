import { strict as assert } from "node:assert";
import { test } from "node:test";

import { additiveCode, channelsOf, naiveSpec, pairChannels, sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("additive");
const { spec: WARPED } = CASES.find(({ name }) => name === "log 100.0");
const made = ({ spec, scale }) => additiveCode(spec, { scale: scale ?? 1 });

for (const each of CASES) {
  test(`${each.name}: rows and cells`, () => {
    const code = made(each), { positions, channels, table } = each;
    held(positions.map((at) => channels.map((channel) => code.cell(at, channel))), table, `${each.name}, cells`);
    held(positions.map((at) => { const row = code.row(at); return channels.map((channel) => row[channel]); }), table, `${each.name}, rows`);
  });

  test(`${each.name}: windows that end at each position`, () => {
    const code = made(each), rows = 70;
    each.positions.forEach((at, place) => {
      if (at < rows) return;
      const window = code.window(at - rows + 1, rows, 0, code.width);
      const last = each.channels.map((channel) => window[(rows - 1) * code.width + channel]);
      held(last, each.table[place], `${each.name} at ${at}`);
    });
  });
}

test("each number of a window is that of its row, within 3e-15, wherever it is cut", () => {
  for (const { spec, scale, name } of CASES) {
    const code = additiveCode(spec, { scale: scale ?? 1 }), rows = 131, first = Math.min(3, code.width - 1), channels = Math.min(7, code.width - first);
    for (const from of [spec.type === "WarpedPosition" ? 1 : 0, 90, 2 ** 40 + 1]) {
      const window = code.window(from, rows, first, channels, new Float64Array(rows * channels));
      for (let row = 0; row < rows; row += 13) {
        const found = Array.from({ length: channels }, (_, place) => window[row * channels + place]);
        const size = Math.max(1, Math.abs(code.row(from + row)[first]));
        const off = disagreements(found, code.row(from + row).slice(first, first + channels), 3e-15 * size);
        assert.deepEqual(off, [], `${name} from ${from}, row ${row}`);
      }
    }
  }
});

test("a mean of rows is that of the rows of a window, of fewer at its end, or is left to the window", () => {
  let made = 0;
  for (const { spec, scale, name } of CASES) {
    const code = additiveCode(spec, { scale: scale ?? 1 }), rows = 131, first = Math.min(3, code.width - 1), channels = Math.min(7, code.width - first);
    for (const [from, tall] of [[1, 2], [90, 9], [2 ** 40 + 1, 64], [17, 131], [5, 200]]) {
      const means = code.means?.(from, rows, tall, first, channels) ?? null;
      if (means === null) {
        assert.ok(code.channels === null || code.warp !== "none" || code.zeroRows.size > 0, name);
        continue;
      }
      const window = code.window(from, rows, first, channels, new Float64Array(rows * channels));
      assert.equal(means.length, Math.ceil(rows / tall) * channels);
      for (let start = 0; start < rows; start += tall) {
        const count = Math.min(tall, rows - start), wanted = new Float64Array(channels);
        for (let row = start; row < start + count; row++) for (let place = 0; place < channels; place++) wanted[place] += window[row * channels + place] / count;
        const found = means.subarray((start / tall) * channels, (start / tall + 1) * channels);
        const size = Math.max(1, ...code.row(from + start).map(Math.abs));
        assert.deepEqual(disagreements(found, wanted, 2e-14 * size), [], `${name} from ${from}, ${tall} rows at ${start}`);
        made += 1;
      }
    }
  }
  assert.ok(made > 100);
});

test("a window can be written into numbers of 32 bits", () => {
  const code = additiveCode(sinusoidalSpec(16));
  const exact = code.window(1000, 100, 0, 16), short = code.window(1000, 100, 0, 16, new Float32Array(1600));
  assert.deepEqual(Array.from(short), Array.from(exact, Math.fround));
});

test("a wrong base, layout, order or span is seen in the paper's table", () => {
  const { spec, positions, channels, table } = CASES.find(({ name }) => name === "vaswani2017");
  const rows = (changed) => positions.map((at) => channels.map((channel) => additiveCode({ ...spec, ...changed }).cell(at, channel)));
  assert.deepEqual(disagreements(rows({}), table), []);
  for (const changed of [{ layout: "halves" }, { order: "cos-sin" }, { scale: 1 + 1e-8 }, { zero_rows: [97] }, { spacing: { ...spec.spacing, base: 10000.00001 } }, { spacing: { ...spec.spacing, span: "closed" } }]) {
    assert.notDeepEqual(disagreements(rows(changed), table), [], JSON.stringify(changed));
  }
});

test("positions without a number have none", () => {
  const log = additiveCode(WARPED), binary = additiveCode(naiveSpec("binary", 8));
  assert.ok(Number.isNaN(log.cell(0, 0)) && !log.exists(0) && log.exists(1));
  assert.ok(Number.isNaN(additiveCode({ ...WARPED, warp: "reciprocal" }).row(0)[3]));
  assert.ok(Number.isNaN(binary.cell(0.5, 0)) && Number.isNaN(binary.cell(-1, 0)) && binary.exists(3));
});

test("channels know their pair and their wave", () => {
  const code = additiveCode(sinusoidalSpec(7, { layout: "halves", odd: "extra" }));
  assert.deepEqual(Array.from({ length: 7 }, (_, channel) => [code.pairOf(channel), code.waveOf(channel)]), [[0, "sin"], [1, "sin"], [2, "sin"], [3, "sin"], [0, "cos"], [1, "cos"], [2, "cos"]]);
  assert.deepEqual([additiveCode(sinusoidalSpec(7, { odd: "zero" })).waveOf(6), additiveCode(sinusoidalSpec(7, { odd: "zero" })).pairOf(6)], ["zero", -1]);
  assert.equal(additiveCode(naiveSpec("counter", 3)).waveOf(0), "value");
  assert.deepEqual(Array.from(pairChannels(3, "halves")), [0, 3, 1, 4, 2, 5]);
  assert.deepEqual(channelsOf(2, 3, "interleaved"), [4, 5]);
});

test("specs by hand are those of Python", () => {
  const specOf = (wanted) => CASES.find(({ name }) => name === wanted).spec;
  assert.deepEqual(sinusoidalSpec(512, { odd: "refuse" }), specOf("vaswani2017"));
  assert.deepEqual(sinusoidalSpec(7, { base: 100, span: "closed", layout: "halves" }), specOf("odd extra halves, 7 closed"));
  for (const [name, width] of [["counter", 4], ["normalised", 4], ["binary", 24], ["sine", 8], ["single", 8], ["even", 16]]) {
    // The presets of these two names have other widths.
    const kept = { counter: "counter, narrow", binary: "binary, 24 digits" }[name] ?? name;
    assert.deepEqual(naiveSpec(name, width), specOf(kept), name);
  }
  assert.equal(naiveSpec("even", 7).width, 8);
  assert.equal(naiveSpec("normalised", 4, { length: 1 }).length, 2);
});

test("zero rows are where they are, and what lies behind a window stays as it was", () => {
  const code = additiveCode({ ...sinusoidalSpec(6), zero_rows: [97] });
  for (const from of [90, 96, 97, 98, 99, 200]) {
    const window = code.window(from, 10, 0, 6, new Float64Array(100).fill(7));
    for (let row = 0; row < 10; row++) {
      const zeros = window.slice(6 * row, 6 * row + 6).every((each) => each === 0);
      assert.equal(zeros, from + row === 97, `${from + row}`);
    }
    assert.ok(window.slice(60).every((each) => each === 7));
  }
});

test("what was in the numbers before is not left there", () => {
  for (const spec of [{ ...sinusoidalSpec(7, { odd: "zero" }), zero_rows: [5] }, naiveSpec("binary", 7), WARPED]) {
    const code = additiveCode(spec), used = new Float64Array(code.width * 3).fill(7);
    assert.deepEqual(code.row(5, used.slice(0, code.width)), code.row(5));
    assert.deepEqual(code.window(4, 3, 0, code.width, used), code.window(4, 3, 0, code.width));
  }
});

test("every naive code can be made by its name, and no other", () => {
  for (const name of ["counter", "normalised", "binary", "sine", "single", "even"]) assert.equal(additiveCode(naiveSpec(name, 7, { length: 100 })).row(5).every(Number.isFinite), true, name);
  assert.throws(() => naiveSpec("sundial", 8), RangeError);
  assert.throws(() => additiveCode({ type: "Learned", width: 8 }), RangeError);
});
