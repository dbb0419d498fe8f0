// What `clockhands audit --json` wrote, read by a page that trusts none of it.

const MOST_LAYERS = 4096; // more than any model has; a file that names more is no audit
const MOST_TARGETS = 64;
const MOST_ENTRIES = 1024; // of one list of one target: groups of layers, findings, readers, and what a finding rests on
const MOST_TEXT = 400; // characters of one text of a file that are shown
const MOST_LINES = 40; // of the change of a file
const MOST_AXES = 8;
const TEXT = ["text", "encoder", "decoder"]; // parts whose positions are those of tokens
export const SEVERITIES = ["error", "warning", "note"];

// What would turn the text around it, or not be seen: written out, as the reports do.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]/g;

// Text of a file as one line that can be shown, whatever was there.
export function shownText(value, most = MOST_TEXT) {
  const text = typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value);
  const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return short.replace(UNSEEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// Layer numbers out of "0-4,6-10"; null for what names none: "input", nothing, or more than a model has.
export function layerNumbers(ranges) {
  if (typeof ranges !== "string") return null;
  const found = [];
  for (const span of ranges.split(",")) {
    const ends = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(span.trim());
    if (!ends) return null;
    const first = Number(ends[1]), last = Number(ends[2] ?? ends[1]);
    if (last >= MOST_LAYERS || found.length + last - first >= MOST_LAYERS) return null;
    for (let layer = first; layer <= last; layer++) found.push(layer);
  }
  return found;
}

// A model by its file or folder, and its type; with the folder before it where a file is called as all of its kind are.
export function titleOfModel({ target, model_type }) {
  const parts = target.split(/[\\/]/).filter(Boolean), last = parts.at(-1) ?? target;
  const name = last.endsWith(".json") && parts.length > 1 ? `${parts.at(-2)}/${last}` : last;
  return shownText(model_type && model_type !== name ? `${name} (${model_type})` : name, 80);
}

const KIND_WORDS = new Map([
  ["rotary", "RoPE: rotates queries and keys"], ["sinusoidal", "sinusoid, added to the tokens"], ["learned", "learned table, added to the tokens"],
  ["alibi", "ALiBi, added to the scores"], ["buckets", "buckets of distances, added to the scores"], ["relative", "relative positions, inside the scores"], ["none", "no position at all"],
]);

// What a layer is told, by its kind.
export function kindWords({ kind }) {
  return KIND_WORDS.get(kind) ?? (kind ? shownText(kind, 40) : "not recognised");
}

// The audits in a text: `clockhands audit --json`, one target of it, or a page that holds one. Gives { audits, unread }, or
// { failed: why } in words for whoever chose the file.
export function auditsIn(text) {
  const documents = /^\s*</.test(text) ? heldByPage(text) : [text];
  if (documents.length === 0) return { failed: "it is a page, and no audit is in it." };
  let reason = "";
  for (const each of documents) {
    let value;
    try {
      value = JSON.parse(each);
    } catch {
      reason ||= "it is not JSON.";
      continue;
    }
    const found = auditsOf(value);
    if (!found.failed) return found;
    reason ||= found.failed;
  }
  return { failed: reason };
}

// What our pages hold, found as text: a document made of the page would be judged by this page's policy.
function heldByPage(text) {
  const found = [];
  for (let at = text.indexOf("<script"); at >= 0; at = text.indexOf("<script", at)) {
    // The backslash is for the pages that hold this module: without it their own script would end here.
    const begin = text.indexOf(">", at) + 1, end = begin && text.indexOf("<\/script>", begin);
    if (begin === 0 || end < 0) break;
    if (text.slice(at, begin).includes('type="application/json"')) found.push(text.slice(begin, end));
    at = end;
  }
  return found;
}

function auditsOf(value) {
  if (value === null || typeof value !== "object") return { failed: "it is JSON, but not of an audit." };
  if (value.schema !== undefined && value.schema !== 1) return { failed: `its schema is ${JSON.stringify(value.schema).slice(0, 20)}, and this page reads schema 1.` };
  const targets = Array.isArray(value.targets) ? value.targets : Array.isArray(value.models) ? value.models : Array.isArray(value.layers) ? [value] : null;
  if (targets === null) {
    return { failed: value.model_type === undefined && value.architectures === undefined
      ? "it is JSON, but not of an audit."
      : "it is a model's config, not its audit, which clockhands audit FILE --json > audit.json makes of it." };
  }
  const unread = Array.isArray(value.unread) ? value.unread.map((each) => shownText(each?.message)) : [];
  if (targets.length === 0) return { failed: unread.length ? `none of its targets could be read: ${unread[0]}` : "it holds no target." };
  if (targets.length > MOST_TARGETS) return { failed: `it holds ${targets.length} targets, and this page takes ${MOST_TARGETS}.` };
  const long = targets.find(tooLong);
  if (long !== undefined) return { failed: `${shownText(long.target, 80) || "a target"} in it lists more than ${MOST_ENTRIES} of one thing, which no audit does.` };
  const audits = targets.map(auditOf);
  if (audits.includes(null)) return { failed: "a target in it has no list of layers." };
  return { audits, unread };
}

function tooLong(target) {
  const lists = [target?.layers, target?.findings, target?.readers], findings = Array.isArray(target?.findings) ? target.findings : [];
  return lists.some((list) => Array.isArray(list) && list.length > MOST_ENTRIES) || findings.some((finding) => Object.keys(finding?.evidence ?? {}).length > MOST_ENTRIES);
}

// One target with every field of the type that the page expects; null where it cannot be one.
export function auditOf(value) {
  if (value === null || typeof value !== "object" || !Array.isArray(value.layers)) return null;
  const objects = (list) => (Array.isArray(list) ? list.filter((each) => each !== null && typeof each === "object") : []);
  const whole = (each) => (Number.isInteger(each) && each > 0 ? each : null);
  const text = (each) => (typeof each === "string" ? each : null);
  return {
    target: shownText(value.target) || "a target without a name",
    model_type: text(value.model_type), verdict: shownText(value.verdict, 2000), context: whole(value.context), length: whole(value.length),
    layers: objects(value.layers).map((layer) => ({
      part: text(layer.part) ?? "text", layers: text(layer.layers), kind: text(layer.kind), layout: text(layer.layout), order: text(layer.order),
      width: whole(layer.width), rotated: whole(layer.rotated), base: Number.isFinite(layer.base) ? layer.base : null,
      rates: Array.isArray(layer.rates) ? layer.rates : null, attention_factor: Number.isFinite(layer.attention_factor) ? layer.attention_factor : null,
      scaling: layer.scaling !== null && typeof layer.scaling === "object" ? layer.scaling : null,
      sections: sectionsOf(layer.sections), rows: whole(layer.rows), window: whole(layer.window), usable_length: whole(layer.usable_length),
    })),
    findings: objects(value.findings).map((finding) => ({
      code: shownText(finding.code), severity: SEVERITIES.includes(finding.severity) ? finding.severity : "note", message: shownText(finding.message, 2000),
      hint: shownText(finding.hint, 2000), layers: text(finding.layers), edit: shownText(finding.edit?.says, 2000), blames: text(finding.blames),
      patched: Array.isArray(finding.edit?.patch) && finding.edit.patch.length > 0, file: shownText(finding.edit?.file, 80),
      lines: Array.isArray(finding.edit?.lines) ? finding.edit.lines.slice(0, MOST_LINES).map((line) => shownText(line, 300)) : [],
      evidence: Object.entries(finding.evidence !== null && typeof finding.evidence === "object" ? finding.evidence : {}).map(([name, held]) => [shownText(name), shownText(held)]),
    })),
    readers: objects(value.readers).map((reader) => ({ title: shownText(reader.title), verdict: shownText(reader.verdict) })),
  };
}

// The thousands of a sentence as those of the page; a list of layers is no number.
export function spaced(text) {
  return text.replace(/(?<![\d.,–-]|layers? )\d{1,3}(?:,\d{3})+(?![\d–-]|,\d)/g, (found) => found.replaceAll(",", "\u202f"));
}

// Which axis has how many pairs: [[name, pairs], …]; null for one axis, or for what is no such thing.
function sectionsOf(value) {
  const { axes, pairs } = value ?? {};
  if (!Array.isArray(axes) || !Array.isArray(pairs) || axes.length !== pairs.length || axes.length > MOST_AXES) return null;
  return pairs.every(Number.isInteger) ? pairs.map((number, axis) => [shownText(axes[axis], 20), number]) : null;
}

// The parts of a model from the bottom up: each its rows (the input, then its layers), which codes stand in a row, and
// which findings are about it.
export function partsOfModel(audit) {
  const parts = new Map();
  audit.layers.forEach((layer, place) => {
    if (!parts.has(layer.part)) parts.set(layer.part, { part: layer.part, groups: [], rows: [] });
    const numbers = layerNumbers(layer.layers);
    parts.get(layer.part).groups.push({ place, layer, numbers, findings: [] });
  });
  for (const part of parts.values()) {
    const unnumbered = part.groups.filter(({ numbers }) => numbers === null).map((group) => ({ name: group.layer.layers === "input" ? "input" : "all", number: null, groups: [group] }));
    const last = part.groups.reduce((most, { numbers }) => (numbers === null ? most : numbers.reduce((high, each) => Math.max(high, each), most)), -1);
    const numbered = Array.from({ length: Math.min(last + 1, MOST_LAYERS) }, (_, number) => ({ name: String(number), number, groups: [] }));
    for (const group of part.groups) for (const number of group.numbers ?? []) numbered[number]?.groups.push(group);
    part.rows = [...unnumbered, ...numbered];
    part.layers = numbered.length;
  }
  const whole = [];
  for (const finding of audit.findings) {
    const found = finding.layers === null ? [] : [...parts.values()].flatMap(({ groups }) => groups).filter((group) => touches(finding, group));
    // What one finding says of several codes is said at the first, in the part that its message names.
    if (found.length) (found.find(({ layer }) => finding.message.includes(`the ${layer.part}`)) ?? found[0]).findings.push(finding);
    else whole.push(finding);
  }
  return { parts: [...parts.values()], whole };
}

function touches(finding, { layer, numbers }) {
  // A finding names the layers, not the part; where parts have layers of the same numbers its message says which.
  if (finding.layers === layer.layers) return true;
  const about = layerNumbers(finding.layers);
  return about !== null && numbers !== null && about.some((number) => numbers.includes(number));
}

// Errors, then warnings; of each, those first whose fix is known as a change of the file.
export function problemsOf({ findings }) {
  const rank = ({ severity, patched }) => 2 * SEVERITIES.indexOf(severity) + (patched ? 0 : 1);
  return findings.filter(({ severity }) => severity !== "note").sort((one, other) => rank(one) - rank(other));
}

// Whether the RoPE frequencies of all layers for text are known.
export function computed({ layers }) {
  return layers.every(({ kind, part, rates }) => kind !== "rotary" || !TEXT.includes(part) || rates?.length > 0);
}

// The audit in one sentence: the command's; of an audit that lacks it the same, with codes in place of titles.
export function verdictOf(audit) {
  if (audit.verdict) return audit.verdict;
  const problems = problemsOf(audit);
  if (!problems.length) {
    if (!audit.layers.some(({ kind }) => kind !== null)) return "No position encoding was recognised.";
    return computed(audit) ? "The position settings look correct." : "No problem was found, but the RoPE frequencies cannot be computed.";
  }
  const codes = [...new Set(problems.map(({ code }) => code))].join(", ");
  if (problems.every(({ blames }) => blames === "reader")) return `The config is correct, but some runtimes misread it: ${codes}.`;
  return `${problems.length} problem${problems.length > 1 ? "s" : ""}: ${codes}.`;
}
