// What stands under the controls: whose code the views show, and what of the models they cannot.

import assert from "node:assert/strict";
import { test } from "node:test";

import { auditOf } from "../../src/clockhands/show/explorer/js/audits.js";
import { saidOfCode, saidOfFiles } from "../../src/clockhands/show/explorer/js/shown.js";

const audit = (target, ...kinds) => auditOf({ target, layers: kinds.map((kind) => ({ part: "text", layers: "0", kind })) });
const KNOWN = { says: "The paper's table.", base: 10000 };

test("a published code is its own sentence, and without a base it says what moving the base does", () => {
  assert.equal(saidOfCode(KNOWN, { code: "vaswani2017" }, "", []), "The paper's table.");
  assert.match(saidOfCode({ ...KNOWN, base: null }, { code: "x" }, "", []), /^The paper's table\. No base alone/);
});

test("a published code at another width is named with both widths", () => {
  const said = saidOfCode({ ...KNOWN, published: 512 }, { code: "vaswani2017", width: 64 }, "", []);
  assert.equal(said, "This is vaswani2017 with width 64, where it was published with 512. The paper's table.");
});

test("a model's code is named, with what is left out of it", () => {
  const models = [{ audit: audit("a/llama.json", "rotary"), codes: ["model-0-0"] }];
  assert.equal(saidOfCode({ model: true, says: "llama.json, layer 0", note: "" }, {}, "", models), "The views show the frequencies of llama.json, layer 0.");
  assert.match(saidOfCode({ model: true, says: "llama.json", note: "It has 3 axes." }, {}, "", models), / It has 3 axes\.$/);
});

test("models without hands are named, so that nobody takes the paper's code for theirs", () => {
  const models = ["bloom.json", "t5", "gpt2", "bert", "mpt"].map((name, at) => ({ audit: audit(name, ["alibi", "buckets", "learned", "learned", "alibi"][at]), codes: [null] }));
  const said = saidOfCode(KNOWN, { code: "vaswani2017" }, "", models.slice(0, 1));
  assert.match(said, /^No layer of bloom\.json \(ALiBi, added to the scores\) has rotating pairs .* it declares\. The views show vaswani2017: The paper's table\.$/);
  assert.match(saidOfCode(KNOWN, { code: "vaswani2017" }, "", models), /bloom\.json .*, of t5 .*, of gpt2 .* and of 2 more has rotating pairs .* they declare/);
  assert.doesNotMatch(saidOfCode(KNOWN, { code: "vaswani2017" }, "", [...models, { audit: audit("llama", "rotary"), codes: ["model-5-0"] }]), /No layer/);
});

test("an address that names an unknown code is told so", () => {
  assert.match(saidOfCode({ own: true }, {}, "model-0-0", []), /not on this page, model-0-0: the views show a custom one/);
  assert.equal(saidOfCode({ own: true }, {}, "", []), "");
});

test("what became of files is one sentence", () => {
  assert.equal(saidOfFiles("a.json cannot be shown: it is not JSON.", []), "a.json cannot be shown: it is not JSON.");
  assert.equal(saidOfFiles("", [audit("a/b.json", "rotary")]), "a/b.json is on the page.");
  assert.equal(saidOfFiles("c.json cannot be shown.", [audit("a", "rotary"), audit("b", "rotary")]), "c.json cannot be shown. 2 models are on the page.");
});
