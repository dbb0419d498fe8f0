// Audits are read by a page that trusts none of them: what is no audit has its sentence, and what is one is as it was.

import assert from "node:assert/strict";
import { test } from "node:test";

import { auditOf, auditsIn, layerNumbers, partsOfModel, problemsOf, shownText, titleOfModel, verdictOf } from "../../src/clockhands/show/explorer/js/audits.js";

const LAYER = { part: "text", layers: "0-2", kind: "rotary", layout: "halves", order: null, width: 8, rotated: 8, base: 10000, rates: [1, 0.1, 0.01, 0.001], attention_factor: 1, scaling: null, sections: null, rows: null, window: null, usable_length: 64, offset: null, source: {} };
const FINDING = { code: "never-turning", severity: "note", message: "Two of four.", evidence: { pairs: 2 }, hint: "", layers: "0-2", blames: null, edit: null };
const AUDIT = { target: "a.json", model_type: "llama", context: 64, length: 64, layers: [LAYER], findings: [FINDING], readers: [] };
const told = (audit) => JSON.stringify({ schema: 1, targets: [audit] });

test("layer numbers are read as the command writes them", () => {
  assert.deepEqual(layerNumbers("0-2,4,6-7"), [0, 1, 2, 4, 6, 7]);
  assert.deepEqual(layerNumbers("5"), [5]);
  assert.deepEqual(layerNumbers("0-4095").length, 4096);
});

test("what names no layers, or more than any model has, is no list of them", () => {
  for (const ranges of ["input", "", null, 3, "1-", "-1", "0-4096", "4096", "999999", "0-999999999999", "0-4095,5", "1;2", "1.5"]) assert.equal(layerNumbers(ranges), null, String(ranges));
  assert.deepEqual(layerNumbers("7-5"), []);
});

test("an audit is read with every field that is shown", () => {
  const { audits, unread } = auditsIn(told(AUDIT));
  assert.deepEqual(unread, []);
  assert.equal(audits.length, 1);
  const { offset, source, ...shown } = LAYER;
  assert.deepEqual(audits[0].layers, [shown]);
  assert.deepEqual(audits[0].findings[0].evidence, [["pairs", "2"]]);
  assert.equal(verdictOf(audits[0]), "The position settings look correct.");
});

test("a single target and the page's own data are audits too", () => {
  assert.equal(auditsIn(JSON.stringify(AUDIT)).audits[0].target, "a.json");
  assert.equal(auditsIn(JSON.stringify({ codes: {}, models: [AUDIT, AUDIT] })).audits.length, 2);
});

test("a page is read for the audits that it holds, and for nothing else", () => {
  const page = (...held) => `<!doctype html>\n<body><script type="module">1</script>${held.map((each, at) => `<script type="application/json" id="d${at}">${each.replaceAll("<", "\\u003c")}</script>`).join("")}`;
  const hostile = { ...AUDIT, model_type: "</script><script>alert(1)</script>" };
  assert.equal(auditsIn(page("{}", told(hostile))).audits[0].model_type, hostile.model_type);
  assert.match(auditsIn(page()).failed, /no audit is in it/);
  assert.match(auditsIn(page('{"codes": {}, "models": []}')).failed, /holds no target/);
});

test("each way to be no audit has its own sentence", () => {
  const reasons = {
    "not JSON": "{", "not of an audit": "[1]", "config, not its audit": '{"model_type": "llama", "hidden_size": 8}', "schema is 7": '{"schema": 7, "targets": []}',
    "holds no target": '{"schema": 1, "targets": []}', "no list of layers": '{"targets": [{"target": "x"}]}', "65 targets": JSON.stringify({ targets: Array(65).fill(AUDIT) }),
    "none of its targets could be read: gone": '{"schema": 1, "targets": [], "unread": [{"target": "x", "message": "gone", "hint": ""}]}',
  };
  for (const [words, text] of Object.entries(reasons)) {
    const { failed } = auditsIn(text);
    assert.ok(failed?.includes(words), `${text}: ${failed}`);
  }
  assert.equal(new Set(Object.values(reasons).map((text) => auditsIn(text).failed)).size, Object.keys(reasons).length);
});

test("a file that lists more of one thing than any audit does is refused before anything is drawn of it", () => {
  const many = (each) => Array(1025).fill(each);
  for (const fields of [{ layers: many(LAYER) }, { findings: many(FINDING) }, { readers: many({}) }, { findings: [{ ...FINDING, evidence: Object.fromEntries(many(0).map((_, at) => [at, at])) }] }]) {
    assert.match(auditsIn(told({ ...AUDIT, ...fields })).failed, /a\.json in it lists more than 1024/);
  }
  assert.equal(auditsIn(told({ ...AUDIT, layers: Array(1024).fill(LAYER) })).audits.length, 1);
});

test("a page that begins elements without end is read through once", () => {
  for (const text of ["<script type=x ", "<script>", "<script", '<script type="application/json">']) {
    const start = performance.now();
    assert.ok(auditsIn(`<p>${text.repeat(200000)}`).failed, text);
    assert.ok(performance.now() - start < 20000, "quadratic work would take hours");
  }
});

test("a target that was not read is told beside those that were", () => {
  const found = auditsIn(JSON.stringify({ schema: 1, targets: [AUDIT], unread: [{ target: "b", message: "b does not exist.", hint: "" }] }));
  assert.equal(found.audits.length, 1);
  assert.deepEqual(found.unread, ["b does not exist."]);
});

test("values of a strange type are held to what can be drawn", () => {
  const strange = { ...LAYER, layers: 7, base: "NaN", width: -1, window: 1.5, rates: "many", scaling: "yarn", attention_factor: null };
  const audit = auditOf({ target: ["x"], model_type: { a: 1 }, context: "long", layers: [strange, null, 4], findings: [{ code: 5, severity: "fatal", message: null }, 3], readers: "none" });
  assert.equal(audit.target, '["x"]');
  assert.deepEqual([audit.model_type, audit.context, audit.layers.length, audit.findings.length], [null, null, 1, 1]);
  const { layers, base, width, window, rates, scaling } = audit.layers[0];
  assert.deepEqual([layers, base, width, window, rates, scaling], [null, null, null, null, null, null]);
  assert.deepEqual([audit.findings[0].code, audit.findings[0].severity, audit.findings[0].message], ["5", "note", ""]);
});

test("what would turn a text around, or not be seen in it, is written out", () => {
  assert.equal(shownText("a\u202eb\u200bc\u0000d\n"), "a\\u202eb\\u200bc\\u0000d\\u000a");
  assert.equal(shownText("größe 模型 🕐 e\u0301"), "größe 模型 🕐 e\u0301");
  assert.match(auditsIn('{"schema": "1", "targets": []}').failed, /schema is "1", and/);
});

test("a text is shown up to a length, and says that there is more", () => {
  assert.equal(shownText("<b>bold</b>"), "<b>bold</b>");
  assert.equal(shownText("x".repeat(500)).length, 400);
  assert.equal(shownText("abcdef", 4), "abc…");
});

test("rows are the input and then the layers, and each finding stands at the first code that it is about", () => {
  const audit = auditOf({ ...AUDIT, layers: [
    { ...LAYER, layers: "input", kind: "learned", rates: null }, { ...LAYER, layers: "0,2", window: 16 }, { ...LAYER, layers: "1,3", base: 5e5 },
  ], findings: [{ ...FINDING, layers: "1" }, { ...FINDING, layers: "input" }, { ...FINDING, layers: "1,2" }, { ...FINDING, layers: null }, { ...FINDING, layers: "9" }] });
  const { parts, whole } = partsOfModel(audit);
  assert.equal(parts.length, 1);
  assert.deepEqual(parts[0].rows.map(({ name, groups }) => [name, groups.map(({ place }) => place)]), [["input", [0]], ["0", [1]], ["1", [2]], ["2", [1]], ["3", [2]]]);
  assert.deepEqual(parts[0].groups.map(({ findings }) => findings.map(({ layers }) => layers)), [["input"], ["1,2"], ["1"]]);
  assert.deepEqual(whole.map(({ layers }) => layers), [null, "9"]);
});

test("a finding about the input of one part stands in the part that it names", () => {
  const audit = auditOf({ ...AUDIT, layers: [{ ...LAYER, part: "encoder", layers: "input" }, { ...LAYER, part: "decoder", layers: "input" }],
    findings: [{ ...FINDING, layers: "input", message: "Rows of the decoder end early." }] });
  assert.deepEqual(partsOfModel(audit).parts.map(({ part, groups }) => [part, groups[0].findings.length]), [["encoder", 0], ["decoder", 1]]);
});

test("the verdict is the gravest, in the command's words", () => {
  const severe = (...severities) => auditOf({ ...AUDIT, findings: severities.map((severity) => ({ ...FINDING, severity })) });
  assert.equal(verdictOf(severe("note", "error", "error")), "2 problems: never-turning.");
  assert.equal(verdictOf(severe("warning")), "1 problem: never-turning.");
  assert.equal(verdictOf(severe()), "The position settings look correct.");
  assert.equal(verdictOf(auditOf({ ...AUDIT, layers: [{ ...LAYER, kind: null }], findings: [] })), "No position encoding was recognised.");
  const without = (part) => auditOf({ ...AUDIT, layers: [LAYER, { ...LAYER, part, rates: null }] });
  assert.equal(verdictOf(without("decoder")), "No problem was found, but the RoPE frequencies cannot be computed.");
  assert.equal(verdictOf(without("vision")), "The position settings look correct.");
});

test("a model is called by its file and its type, and a config by its folder too", () => {
  const title = (target, model_type = null) => titleOfModel({ target, model_type });
  assert.equal(title("models/smol/config.json", "llama"), "smol/config.json (llama)");
  assert.equal(title("C:\\models\\smol\\", "llama"), "smol (llama)");
  assert.equal(title("config.json"), "config.json");
  assert.equal(title("llama", "llama"), "llama");
  assert.equal(title("models/tiny.gguf", "llama"), "tiny.gguf (llama)");
  assert.equal(title("/"), "/");
});

test("the verdict is the command's where the file has it", () => {
  const found = auditOf({ ...AUDIT, verdict: "1 problem: RoPE scaling is missing.", findings: [{ ...FINDING, severity: "error" }] });
  assert.equal(verdictOf(found), "1 problem: RoPE scaling is missing.");
  const blamed = auditOf({ ...AUDIT, findings: [{ ...FINDING, severity: "warning", blames: "reader" }] });
  assert.equal(verdictOf(blamed), "The config is correct, but some runtimes misread it: never-turning.");
});

test("problems come as in the command: errors first, those with a change of the file before the others", () => {
  const patch = [{ op: "add", path: "/rope_theta", value: 1 }];
  const of = (code, severity, edit = null) => ({ ...FINDING, code, severity, edit });
  const found = auditOf({ ...AUDIT, findings: [of("a", "warning"), of("b", "warning", { says: "Set it.", file: "config.json", patch, lines: ["-  1", "+  2\u0007"] }), of("c", "error"), of("d", "note")] });
  assert.deepEqual(problemsOf(found).map(({ code }) => code), ["c", "b", "a"]);
  const { lines, file, edit } = problemsOf(found)[1];
  assert.deepEqual([lines, file, edit], [["-  1", "+  2\\u0007"], "config.json", "Set it."]);
});

test("sections are read where they are some, and nothing else is", () => {
  const of = (sections) => auditOf({ ...AUDIT, layers: [{ ...LAYER, sections }] }).layers[0].sections;
  assert.deepEqual(of({ axes: ["temporal", "height"], pairs: [2, 2], order: "consecutive" }), [["temporal", 2], ["height", 2]]);
  for (const wrong of [null, 3, {}, { axes: ["a"], pairs: [1, 2] }, { axes: ["a"], pairs: ["1"] }, { axes: Array(99).fill("a"), pairs: Array(99).fill(1) }]) assert.equal(of(wrong), null);
});
