// The codes of the page: a code brings its own fields, a changed field makes a code of one's own, a model's layers join.

import assert from "node:assert/strict";
import { test } from "node:test";

import { auditOf } from "../../src/clockhands/show/explorer/js/audits.js";
import { Codebook, codeOfLayer } from "../../src/clockhands/show/explorer/js/codebook.js";
import { geometricLadder } from "../../src/clockhands/show/explorer/js/ladders.js";
import { rotarySpec } from "../../src/clockhands/show/explorer/js/rotary.js";
import { sinusoidalSpec } from "../../src/clockhands/show/explorer/js/codes.js";
import { scalingOf } from "../../src/clockhands/show/explorer/js/scalings.js";
import { DEFAULTS, Store, fromFragment, toFragment } from "../../src/clockhands/show/explorer/js/state.js";

const CLOSED = { kind: "sinusoidal", says: "Whisper's.", width: 384, base: 10000, span: "closed", layout: "halves", order: "sin-cos", spec: sinusoidalSpec(384, { span: "closed", layout: "halves" }) };
const PAPER = { kind: "sinusoidal", says: "The paper's.", width: 512, base: 10000, span: "open", layout: "interleaved", order: "sin-cos", spec: sinusoidalSpec(512) };
const TURNING = { kind: "rotary", says: "A quarter.", width: 24, base: 10000, span: "open", layout: "halves", order: "sin-cos", spec: rotarySpec(96, { rotated: 24 }) };
const RISING = { ...CLOSED, base: null, spec: { ...CLOSED.spec, spacing: { type: "EvenSteps", first: 1, last: 9, multiplier: 1 } } };
const LAYER = { part: "text", layers: "0-2", kind: "rotary", layout: "interleaved", order: null, width: 16, rotated: 8, base: 10000, rates: [1, 0.1, 0.01, 0.001], attention_factor: 1.25, scaling: null };

const book = () => new Codebook({ vaswani2017: PAPER, whisper: CLOSED, neox: TURNING, rising: RISING });

function page(state = {}) {
  const codes = book(), store = new Store(codes.opened({ ...DEFAULTS, ...state }), (call) => call());
  const set = store.set.bind(store);
  return { codes, store, set: (patch) => { set(codes.followed(patch, store.state)); return store.state; } };
}

test("a code that is picked brings its width, base, layout, order and span", () => {
  const { set } = page();
  const { code, width, base, layout, order, span } = set({ code: "whisper" });
  assert.deepEqual({ code, width, base, layout, order, span }, { code: "whisper", width: 384, base: 10000, layout: "halves", order: "sin-cos", span: "closed" });
});

test("a field that is changed by hand makes a code of one's own, and the others stay", () => {
  for (const patch of [{ base: 500 }, { layout: "interleaved" }, { width: 8, base: 500 }]) {
    const { set } = page({ code: "whisper" });
    const after = set(patch);
    assert.equal(after.code, "custom");
    assert.equal(after.span, "closed");
    const untouched = ["width", "base", "layout"].filter((name) => !(name in patch));
    for (const name of untouched) assert.equal(after[name], CLOSED[name], name);
  }
});

test("a code at another width keeps its name, and is what its formula says there", () => {
  const { codes, set } = page({ code: "whisper" }), state = set({ width: 64, position: 7 });
  assert.deepEqual([state.code, state.width, state.layout, state.span], ["whisper", 64, "halves", "closed"]);
  assert.deepEqual(codes.given(state), { ...CLOSED.spec, width: 64 });
  assert.deepEqual(Array.from(codes.ladder(state).rates), Array.from(geometricLadder(32, 64, 10000, "closed").rates));
  assert.deepEqual([codes.code(state).published, codes.additive(state).width], [384, 64]);
  assert.equal(codes.code(set({ width: 384 })).published, undefined);
  // A closed span of a single pair would divide by nothing.
  assert.deepEqual([set({ width: 2 }).code, set({ code: "whisper" }).width], ["custom", 384]);
  // With another field beside it, it is a code of one's own.
  set({ width: 64 });
  assert.deepEqual([set({ base: 500 }).code, codes.plain(set({ base: 500 })).pairs], ["custom", 32]);
});

test("a head that rotates whole keeps its scaling at another width; one that rotates in part, or a factor for each pair, has no other", () => {
  const scaling = scalingOf("yarn", 4, 2048), whole = { ...TURNING, width: 96, spec: rotarySpec(96, { scaling }) };
  const list = { ...whole, spec: rotarySpec(96, { scaling: { ...scaling, short: [1, 2] } }) };
  const codes = new Codebook({ whole, list, part: TURNING, model: { ...PAPER, model: true } });
  const after = (code) => codes.followed({ width: 64 }, codes.opened({ ...DEFAULTS, code })).code;
  assert.deepEqual(["whole", "list", "part", "model"].map(after), [undefined, "custom", "custom", "custom"]);
  assert.deepEqual(codes.given({ ...codes.opened({ ...DEFAULTS, code: "whole" }), width: 64 }), rotarySpec(64, { scaling }));
});

test("a link to a code at another width is that code at that width, also where the width is the page's own", () => {
  const { codes, set } = page();
  for (const [code, width] of [["whisper", 64], ["whisper", DEFAULTS.width], ["vaswani2017", 64]]) {
    const state = { ...set({ code: "neox" }), ...set({ code }), ...set({ width }) };
    assert.deepEqual([state.code, state.width], [code, width]);
    const address = toFragment(state, DEFAULTS, state.code === DEFAULTS.code ? [] : codes.brings(state));
    const again = codes.opened(fromFragment(address), new Set(new URLSearchParams(address).keys()));
    assert.deepEqual([again.code, again.width], [code, width], address);
  }
});

test("a field that is set to what it is, or beside the code, changes no code", () => {
  const { set } = page({ code: "whisper" });
  assert.equal(set({ width: 384, position: 7 }).code, "whisper");
  assert.equal(set({ pair: 3, length: 99 }).code, "whisper");
});

test("a link names a code, and the code's own fields hold; an unknown name is a code of one's own", () => {
  assert.equal(page({ code: "whisper", width: 8 }).store.state.width, 384);
  const told = { ...DEFAULTS, code: "whisper", width: 8, base: 500 }, opened = book().opened(told, new Set(["code", "width", "base"]));
  assert.deepEqual([opened.code, opened.width, opened.base], ["whisper", 8, 10000], "but for a width that it can have");
  assert.equal(book().opened({ ...told, code: "neox" }, new Set(["code", "width"])).width, 24);
  const { code, width } = page({ code: "constructor", width: 8 }).store.state;
  assert.deepEqual([code, width], ["custom", 8]);
});

test("an address that tells a field without a code's name makes a code of one's own of the page's", () => {
  const codes = book(), state = { ...DEFAULTS, code: "whisper", width: 8, base: 500 };
  const { code, width, layout, span, pair, channel } = codes.opened(state, new Set(["width", "base"]));
  assert.deepEqual([code, width, layout, span], ["custom", 8, "halves", "closed"]);
  assert.deepEqual([pair, channel], [3, 7], "held to what there is");
  assert.deepEqual(codes.opened({ ...state, base: 10000 }, new Set(["width"])).code, "whisper", "the width alone does not");
  assert.equal(codes.opened({ ...DEFAULTS, code: "whisper" }, new Set(["position"])).code, "whisper");
  const turned = codes.opened({ ...DEFAULTS, kind: "rotary" }, new Set(["kind"]));
  assert.deepEqual([turned.code, codes.given(turned)], ["custom", rotarySpec(512, { layout: "interleaved" })]);
});

test("the ladder is that of the code, of one's own as of a known one", () => {
  const { codes, store, set } = page();
  const first = codes.ladder(store.state);
  assert.equal(first, codes.ladder(store.state), "it is remembered");
  assert.equal(first.rates.length, 256);
  const own = codes.ladder(set({ width: 8, base: 10000 })).rates;
  [1, 0.1, 0.01, 0.001].forEach((rate, pair) => assert.ok(Math.abs(own[pair] - rate) < 1e-16, `${own[pair]}`));
  assert.deepEqual(Array.from(codes.ladder(set({ code: "rising" })).rates.slice(0, 2)), [1, 1 + 8 / 191]);
});

test("a rotary code whose base is moved stays rotary, and what is given out for Python is such a spec", () => {
  const { codes, store, set } = page();
  assert.deepEqual(codes.given(set({ code: "neox" })), TURNING.spec);
  const state = set({ base: 500000 });
  assert.deepEqual([state.code, codes.code(state).kind], ["custom", "rotary"]);
  assert.deepEqual(codes.given(state), rotarySpec(24, { base: 500000, layout: "halves" }));
  assert.deepEqual(Array.from(codes.ladder(state).rates), Array.from(codes.head(state).ladder.rates));
  assert.deepEqual(codes.given(set({ code: "whisper" })), CLOSED.spec);
  assert.equal(codes.given(set({ base: 500 })).type, "Sinusoidal");
  // As a link has it.
  const opened = codes.opened(fromFragment(toFragment({ ...DEFAULTS, ...state })), new Set(["code"]));
  assert.deepEqual(codes.given(opened), codes.given(state));
  assert.equal(store.state.kind, "sinusoidal");
});

test("a cell and its pair are settled at once, and what is moved leads", () => {
  const { codes, store, set } = page();
  const both = (state) => [state.pair, state.channel];
  assert.deepEqual(both(set({ pair: 100 })), [100, 200]);
  assert.deepEqual(both(set({ channel: 31 })), [15, 31]);
  assert.deepEqual(both(set({ pair: 15 })), [15, 31], "a channel of the pair stays");
  // Another layout, width or code: the pair stays, wherever its channels are.
  assert.deepEqual(both(set({ layout: "halves" })), [15, 15]);
  assert.deepEqual(both(set({ channel: 256 + 40 })), [40, 296]);
  assert.deepEqual(both(set({ code: "vaswani2017" })), [40, 80]);
  assert.deepEqual(both(set({ code: "whisper" })), [40, 40]);
  assert.deepEqual(both(set({ width: 8 })), [3, 7]);
  assert.deepEqual(both(set({ pair: 0, channel: 7 })), [0, 0], "where both are said the pair leads");
  // As addresses have them.
  for (const [told, wanted] of [[{ pair: 100 }, [100, 200]], [{ channel: 31 }, [15, 31]], [{ pair: 7, channel: 15 }, [7, 15]], [{ pair: 7, channel: 99 }, [7, 14]]]) {
    assert.deepEqual(both(codes.opened({ ...DEFAULTS, ...told }, new Set(Object.keys(told)))), wanted);
  }
  assert.equal(store.state.width, 8);
});

test("one pair of a closed span is a pair of an open one", () => {
  const { codes, set } = page({ code: "whisper" });
  assert.deepEqual(Array.from(codes.ladder(set({ width: 2 })).rates), [1]);
});

test("the table of a rotary code has the sines and cosines of the channels that turn", () => {
  const { codes, set } = page();
  const state = set({ code: "neox" }), code = codes.additive(state);
  assert.deepEqual([code.width, code.pairs], [24, 12]);
  assert.ok(Math.abs(code.cell(5, 0) - Math.sin(5)) < 1e-15);
  assert.ok(Math.abs(code.cell(5, 12) - Math.cos(5)) < 1e-15);
  // Both digits of each rate: far positions need them.
  for (const name of ["rates", "lows"]) assert.deepEqual(Array.from(code.ladder[name]), Array.from(codes.ladder(state)[name]));
});

test("a scaled code has its ladder before and after", () => {
  const spec = rotarySpec(16, { scaling: scalingOf("linear", 4, 2048) });
  const codes = new Codebook({ scaled: { ...TURNING, width: 16, spec } }), state = codes.opened({ ...DEFAULTS, code: "scaled" });
  assert.deepEqual(Array.from(codes.plain(state).rates, (rate) => rate / 4), Array.from(codes.ladder(state).rates));
});

test("a model's layers become codes, with their rates to the last bit", () => {
  const codes = book(), audit = auditOf({ target: "a/b.json", model_type: "llama", layers: [LAYER, { ...LAYER, kind: "learned", rates: null }] });
  assert.deepEqual(codes.addModel(audit, 3), ["model-3-0", null]);
  const state = codes.opened({ ...DEFAULTS, code: "model-3-0" });
  assert.deepEqual([state.width, state.layout, state.base], [8, "interleaved", 10000]);
  const { rates, attentionFactor } = codes.ladder(state);
  assert.deepEqual([Array.from(rates), attentionFactor], [LAYER.rates, 1.25]);
  assert.equal(codes.code(state).spec.head_width, 16);
});

test("a scaled layer keeps the ladder that its base declares beside the one in use", () => {
  const codes = book(), audit = auditOf({ target: "b", layers: [{ ...LAYER, rates: LAYER.rates.map((rate) => rate / 8), scaling: { type: "linear", factor: 8 } }] });
  codes.addModel(audit, 0);
  const state = codes.opened({ ...DEFAULTS, code: "model-0-0" });
  assert.deepEqual(Array.from(codes.ladder(state).rates), LAYER.rates.map((rate) => rate / 8));
  codes.plain(state).rates.forEach((rate, pair) => assert.ok(Math.abs(rate - LAYER.rates[pair]) < 1e-16));
});

test("a model's code brings the length that it was trained on and the one that it serves", () => {
  const { codes, set } = page(), audit = (fields, layer) => auditOf({ target: "x", layers: [{ ...LAYER, ...layer }], ...fields });
  const cases = [
    [{ context: 64 }, {}, 64, 64], [{ context: 4096 }, { scaling: { type: "llama3", original: 512 } }, 512, 4096],
    [{ length: 300 }, {}, 300, 300], [{}, { usable_length: 77 }, 77, 77], [{ context: 448 }, { usable_length: 1500, rows: 1500 }, 1500, 1500],
    [{ context: 131072 }, { window: 1024 }, 1024, 1024], [{ context: 131072 }, { scaling: { type: "longrope", original: 4096 } }, 4096, 4096], [{ context: 1 }, {}, 2, 2], [{ context: 2 ** 40 }, {}, 2 ** 24, 2 ** 24],
  ];
  cases.forEach(([fields, layer, trained, served], number) => {
    const [code] = codes.addModel(audit(fields, layer), number), { length, served: asked } = set({ code });
    assert.deepEqual([length, asked], [trained, served]);
  });
  const [code] = codes.addModel(audit({}, {}), 99), before = set({ length: 1234, served: 5678 }), after = set({ code });
  assert.deepEqual([after.length, after.served], [before.length, before.served], "nothing is told, so nothing changes");
});

test("what the views leave out of a model's code is said", () => {
  const noted = (layer, context, axes) => codeOfLayer(auditOf({ target: "x", layers: [{ ...LAYER, ...layer }] }).layers[0], { target: "x", model_type: null, context, length: context }, axes).note;
  assert.equal(noted({}, 4096), "");
  assert.match(noted({}, 4096, 3), /3 axes: here every pair uses the same position/);
  assert.match(noted({ window: 1024 }, 4096), /last 1024 positions only/);
  assert.match(noted({ scaling: { type: "longrope", original: 4096 } }, 131072), /Beyond 4096 tokens .* long factors\); .* audit --length 131072/);
  assert.equal(noted({ scaling: { type: "longrope", original: 4096 } }, 4096), "");
});

test("a published scaling brings the length that it starts from; what is said beside the code holds", () => {
  const spec = rotarySpec(16, { scaling: scalingOf("yarn", 4, 4096) }), codes = new Codebook({ vaswani2017: PAPER, scaled: { ...TURNING, width: 16, spec } });
  const patch = codes.followed({ code: "scaled" }, DEFAULTS);
  assert.deepEqual([patch.length, patch.served], [4096, 16384]);
  assert.equal(codes.followed({ code: "scaled", length: 9 }, DEFAULTS).length, 9);
  const opened = codes.opened({ ...DEFAULTS, code: "scaled", length: 9 }, new Set(["code", "length"]));
  assert.deepEqual([opened.length, opened.served], [9, 16384]);
  // An address says both, even where they are what the page began with, since the code would bring its own.
  const state = { ...opened, length: DEFAULTS.length, served: DEFAULTS.served };
  const address = new URLSearchParams(toFragment(state, DEFAULTS, codes.brings(state)));
  assert.deepEqual([address.get("length"), address.get("served")], [String(DEFAULTS.length), String(DEFAULTS.served)]);
  assert.deepEqual(codes.brings({ ...state, code: "vaswani2017", width: 512 }), []);
});

test("rates that are the powers of their base have twice the digits, and others are what the file holds", () => {
  const codes = book(), rates = Array.from(geometricLadder(16, 32, 500000).rates);
  const of = (fields) => { const [code] = codes.addModel(auditOf({ target: "x", layers: [{ ...LAYER, base: 500000, rates, ...fields }] }), Math.random()); return codes.ladder({ ...DEFAULTS, code }); };
  assert.deepEqual(Array.from(of({}).lows), Array.from(geometricLadder(16, 32, 500000).lows));
  assert.ok(of({}).lows.some(Boolean));
  for (const other of [{ base: null }, { base: 500001 }, { rates: rates.map((rate) => rate * (1 + 2 ** -40)) }]) {
    assert.ok(!of(other).lows.some(Boolean));
    assert.deepEqual(Array.from(of(other).rates), other.rates ?? rates);
  }
});

test("why a code has no shift is asked of the code itself, not of the ladder that its table shows", () => {
  const spec = { ...rotarySpec(24), xpos: { type: "XPos", scale: 512, smoothing: 0.4, centre: 0 } };
  const codes = new Codebook({
    vaswani2017: PAPER, neox: TURNING, decays: { ...TURNING, spec }, moved: { ...TURNING, spec: { ...rotarySpec(24), reordered: true } },
    sines: { ...PAPER, spec: { ...PAPER.spec, order: "sin-sin" } }, centred: { ...PAPER, spec: { ...PAPER.spec, standardised: 9 } },
  });
  const why = (name) => codes.whyNoShift(codes.opened({ ...DEFAULTS, code: name }));
  assert.deepEqual(["vaswani2017", "neox", "custom"].map(why), [null, null, null]);
  const reasons = ["decays", "moved", "sines", "centred"].map(why);
  [/grow or shrink/, /other dimensions/, /same function/, /the mean/].forEach((words, at) => assert.match(reasons[at], words));
  assert.deepEqual(["decays", "moved", "sines", "centred"].map((name) => codes.whyNoShiftNamed(name)), reasons);
  assert.equal(codes.whyNoShiftNamed("nobody"), null);
});

test("rates that cannot be drawn make no code", () => {
  for (const rates of [[1, -0.1], [-1e-9], null, [], "1", [1, "Infinity"], [1, null], Array(1025).fill(1)]) assert.equal(codeOfLayer({ ...LAYER, rates }, { target: "x", model_type: null }), null);
});

test("a shorter length takes the positions with it, and a longer one leaves them", () => {
  const { store, set } = page();
  assert.deepEqual([store.state.position, store.state.start], [100, 40]);
  const short = set({ length: 10 });
  assert.deepEqual([short.position, short.start], [9, 9]);
  assert.equal(set({ length: 2048 }).position, 9);
  assert.equal(set({ position: 2 ** 45 }).position, 2 ** 45, "a position beyond the length may be asked for");
  assert.equal(set({ length: 4096 }).position, 2 ** 45);
});

test("a page and an address of a short text begin within it, unless a position is said", () => {
  const codes = book();
  assert.equal(codes.opened({ ...DEFAULTS, length: 10 }).position, 9);
  const told = (address) => codes.opened(fromFragment(address), new Set(new URLSearchParams(address).keys()));
  assert.deepEqual([told("length=10").position, told("length=10&position=1000").position], [9, 1000]);
  assert.equal(told("length=10").start, 9);
});
