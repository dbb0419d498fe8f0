// A model: what is it told?

import { auditsIn, kindWords, partsOfModel, shownText, spaced, titleOfModel, verdictOf } from "../audits.js";
import { css, fromOklch, theme } from "../colours.js";
import { button, slider } from "../controls.js";
import { saidOfFiles } from "../shown.js";
import { html, number, svg } from "../draw.js";

const LARGEST = 16 * 2 ** 20; // bytes of a file that is read
const DEEP = 64; // layers from which on a line of the picture is too thin for a number of its own
const MODEL_STRIP = { numbers: 40, cell: 40, mark: 14, marks: 3 }; // CSS pixels; how many findings have a mark
// The hue of each kind, in degrees.
const HUES = new Map([["rotary", 300], ["sinusoidal", 200], ["learned", 145], ["alibi", 350], ["buckets", 110], ["relative", 75]]);
const LAYOUT_WORDS = { halves: "pairs (i, i + d/2)", interleaved: "pairs (2i, 2i + 1)" };

export const model = {
  id: "model",
  question: "What does this model declare?",
  mount(section, app) {
    let failed = "";
    const { store } = app;
    const opened = async (files) => {
      const had = app.models.length;
      failed = "";
      for (const file of files) failed ||= await openFile(file, app);
      app.notice(saidOfFiles(failed, app.models.slice(had).map(({ audit }) => audit)));
      app.redraw();
    };
    const file = html("input", { type: "file", id: "control-audit", accept: ".json,.html,application/json", multiple: true, onchange: () => { opened([...file.files]); file.value = ""; } });
    const layer = slider(app, "layer", "Layer", { min: 0, max: 1 });
    const [shown, beside] = [modelChoice(app, "model", "Model"), modelChoice(app, "beside", "Compare with")];
    section.controls.append(html("div", { class: "control" }, html("label", { for: "control-audit" }, "Open an audit"), file), shown.element, beside.element, layer.element);
    dropped(app.root, opened);
    const columns = html("div", { class: "models" });
    section.figure.append(columns);

    return (state, changed) => {
      const one = app.models[state.model] ?? app.models[0] ?? null, other = app.models[state.beside] ?? null;
      const both = [one, other === one ? null : other].filter(Boolean);
      if (one === null) layer.element.hidden = true;
      section.element.querySelector(".save")?.toggleAttribute("hidden", one === null);
      for (const each of [shown, beside]) each.show(state);
      if (one === null) {
        columns.replaceChildren(emptyModel());
        section.answer(failed ? `${failed} The page is as it was.` : "No model is on this page yet.");
        return;
      }
      if (!["model", "beside", "layer", "code"].some((name) => changed.has(name))) return;
      const drawn = both.map((each) => ({ ...each, ...partsOfModel(each.audit) }));
      const deepest = Math.max(1, ...drawn.flatMap(({ parts }) => parts.map(({ layers }) => layers)));
      layer.element.hidden = deepest < 2;
      if (changed.has("model") || changed.has("beside")) layer.limits(0, deepest - 1);
      const colours = coloursOf(both);
      const kept = heldFocus(columns);
      columns.classList.toggle("two", both.length === 2);
      columns.replaceChildren(...drawn.map((each) => modelColumn(each, app, state, colours)));
      kept(columns);
      const deep = deepest > DEEP ? ` A deep model: each of its ${number(deepest)} layers is a line of the picture, and Layer steps through them.` : "";
      const compared = drawn.length === 2 ? ` ${differenceOf(drawn[0].audit, drawn[1].audit)}` : "";
      section.answer(`${failed ? `${failed} ` : ""}${saidOfModel(drawn[0])}${compared}${deep}`);
    };
  },
};

// Reads a file into the page; gives why it could not, in a sentence, or nothing.
async function openFile(file, app) {
  const name = shownText(file.name, 80);
  if (file.size > LARGEST) return `${name} cannot be shown: it has ${number(Math.round(file.size / 2 ** 20))} MiB, and an audit has a few kB.`;
  let text;
  try {
    text = await file.text();
  } catch {
    return `${name} cannot be shown: the browser could not read it.`;
  }
  const found = auditsIn(text);
  if (found.failed) return `${name} cannot be shown: ${found.failed}`;
  const had = app.models.length;
  for (const audit of found.audits) app.addModel(audit);
  const first = app.models[had].codes.find((code) => code !== null);
  if (had === 0) app.store.set({ model: 0, beside: found.audits.length > 1 ? 1 : -1, layer: 0, ...(first ? { code: first } : {}) });
  else app.store.set({ beside: had });
  return found.unread.length ? `A target of ${name} had not been read: ${found.unread[0]}` : "";
}

// Files may be let go anywhere on the page; what is not a file is none of our business.
function dropped(root, opened) {
  // On a page of its own a file that misses the explorer would replace the page.
  const place = root.id === "explorer" ? document.documentElement : root;
  const holdsFiles = (event) => Array.from(event.dataTransfer?.types ?? []).includes("Files");
  place.addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    root.classList.add("dropping");
  });
  place.addEventListener("dragleave", (event) => { if (!place.contains(event.relatedTarget)) root.classList.remove("dropping"); });
  place.addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    root.classList.remove("dropping");
    opened([...event.dataTransfer.files]);
  });
}

// A choice among the models of the page; hidden while there is nothing to choose.
function modelChoice(app, name, label) {
  const id = `control-${name}`, list = html("select", { id, "data-name": name, onchange: () => app.store.set({ [name]: Number(list.value) }) });
  const element = html("div", { class: "control" }, html("label", { for: id }, label), list);
  const fill = () => {
    list.replaceChildren(...(name === "beside" ? [html("option", { value: -1 }, "none")] : []),
      ...app.models.map(({ audit }, place) => html("option", { value: place }, titleOfModel(audit))));
    element.hidden = app.models.length < 2;
  };
  app.onModels(fill);
  fill();
  return { element, show: (state) => { list.value = Math.min(state[name], app.models.length - 1); } };
}

function emptyModel() {
  return html("div", { class: "no-model" },
    html("p", {}, "Drop the audit of a model anywhere on this page, or choose its file above: nothing is sent."),
    html("p", {}, "To make one: ", html("code", {}, "clockhands audit MODEL ", html("span", {}, "--json"), " > audit.json")),
    html("p", {}, "To open this page on a model: ", html("code", {}, "clockhands explore MODEL")));
}

// Drawing

// One colour for each kind and base, the same in both models: the kind is the hue, the base how dark.
function coloursOf(models) {
  const bases = new Map(), dark = theme() === "dark";
  for (const { audit } of models) for (const { kind, base } of audit.layers) bases.set(kind, (bases.get(kind) ?? new Set()).add(base ?? 0));
  return ({ kind, base }) => {
    if (!HUES.has(kind)) return "none";
    const sorted = [...bases.get(kind)].sort((a, b) => a - b), place = sorted.indexOf(base ?? 0);
    const share = sorted.length < 2 ? 0.5 : place / (sorted.length - 1);
    return css(fromOklch(dark ? 0.5 + 0.32 * share : 0.74 - 0.3 * share, 0.11, (HUES.get(kind) * Math.PI) / 180));
  };
}

function modelColumn({ audit, codes, parts, whole }, app, state, colours) {
  return html("article", { class: "one-model" },
    html("h3", {}, titleOfModel(audit)), html("p", { class: "says" }, `${audit.context ? `${number(audit.context)} positions` : "no context declared"}. ${verdictOf(audit)}`),
    parts.map((part) => html("div", { class: "model-part" },
      parts.length > 1 ? html("h4", {}, part.part) : null,
      html("div", { class: "layer-row" }, stripOf(part, app, state, colours),
        html("div", { class: "layer-groups" }, part.groups.map((group) => groupSays(group, codes[group.place], app, state, colours)))))),
    whole.length ? html("div", { class: "layer-group" }, html("h4", {}, "the whole model"), whole.map(findingSays)) : null,
    readersSay(audit));
}

// The layers from top to bottom as they are passed, one cell each, with a mark beside those that a finding is about.
function stripOf(part, app, state, colours) {
  const { rows } = part, deep = rows.length > DEEP;
  const tall = rows.length > 240 ? 720 / rows.length : Math.min(22, Math.max(4, Math.floor(480 / rows.length)));
  const top = 12, left = MODEL_STRIP.numbers, bottom = top + rows.length * tall;
  const gap = tall < 6 ? 0 : 1, each = deep ? 16 : tall >= 12 ? 1 : Math.ceil(12 / tall);
  const findings = part.groups.flatMap((group) => group.findings.map((finding) => ({ finding, group }))).slice(0, MODEL_STRIP.marks);
  const width = left + MODEL_STRIP.cell + 4 + MODEL_STRIP.mark * findings.length, marks = [];
  rows.forEach((row, place) => {
    const y = top + place * tall, shared = MODEL_STRIP.cell / Math.max(row.groups.length, 1);
    const chosen = row.number !== null && row.number === state.layer;
    const cells = row.groups.map(({ layer }, column) => {
      const colour = colours(layer), wide = (layer.window === null ? 1 : 0.6) * shared;
      return svg("rect", { class: colour === "none" ? "untold" : "cell", x: left + column * shared, y, width: wide - 1, height: Math.max(tall - gap, 0.5), fill: colour });
    });
    marks.push(svg("g", { class: chosen ? "layer chosen" : "layer", onclick: () => row.number !== null && app.store.set({ layer: row.number }) },
      svg("title", {}, `${row.number === null ? row.name : `layer ${row.number}`}: ${row.groups.map(({ layer }) => kindWords(layer)).join("; ") || "nothing is declared"}`),
      svg("rect", { class: "whole-layer", x: left, y, width: MODEL_STRIP.cell, height: tall }), cells));
    if (row.number === null || row.number % each === 0) {
      marks.push(svg("text", { x: left - 6, y: y + Math.min(tall, 14) / 2 + 4, "text-anchor": "end" }, row.name));
    }
  });
  const at = rows.findIndex((row) => row.number !== null && row.number === state.layer);
  if (at >= 0) marks.push(svg("rect", { class: "lit", x: left - 2, y: top + at * tall - 1.5, width: MODEL_STRIP.cell + 3, height: tall + 2 }));
  findings.forEach(({ finding, group }, column) => {
    const x = left + MODEL_STRIP.cell + MODEL_STRIP.mark * (column + 0.5) + 3;
    const runs = runsOf(rows, (row) => row.groups.includes(group));
    for (const [from, to] of runs) marks.push(svg("line", { class: `reach ${finding.severity}`, x1: x, x2: x, y1: top + from * tall + 0.5, y2: top + (to + 1) * tall - 1.5 }));
    if (runs.length) marks.push(severityShape(finding.severity, x, Math.max(top, top + runs[0][0] * tall + Math.min(7, ((runs[0][1] - runs[0][0] + 1) * tall) / 2))));
  });
  return svg("svg", { class: "layer-strip", width, height: bottom + 4, role: "img",
    "aria-label": `${part.part}: ${part.groups.map(({ layer }) => `${layer.layers ?? "layers not known"}: ${kindWords(layer)}`).join("; ")}` }, marks);
}

// Where a row of rows holds: [first, last] of each run.
function runsOf(rows, holds) {
  const runs = [];
  rows.forEach((row, place) => {
    if (!holds(row)) return;
    if (runs.length && runs.at(-1)[1] === place - 1) runs.at(-1)[1] = place;
    else runs.push([place, place]);
  });
  return runs;
}

// An error is a filled square on its corner, a warning a triangle, a note a ring: told apart without colour.
function severityShape(severity, x, y) {
  if (severity === "error") return svg("path", { class: "severity error", d: `M${x},${y - 7}l7,7l-7,7l-7,-7z` });
  if (severity === "warning") return svg("path", { class: "severity warning", d: `M${x},${y - 7}l7,12h-14z` });
  return svg("circle", { class: "severity note", cx: x, cy: y, r: 4.5 });
}

function whereWords({ layers }) {
  if (layers === null) return "layers, their number not known";
  if (layers === "input") return "before the layers";
  const spans = layers.split(",");
  const short = spans.length > 6 ? `${spans.slice(0, 4).join(", ")}, … ${spans.at(-1)}` : spans.join(", ");
  return `layer${/[-,]/.test(layers) ? "s" : ""} ${shownText(short, 60).replaceAll("-", "–")}`;
}

function groupSays(group, code, app, state, colours) {
  const { layer } = group, colour = colours(layer), chosen = group.numbers?.includes(state.layer);
  const swatch = svg("svg", { class: "swatch", width: 16, height: 16, "aria-hidden": "true" },
    svg("rect", { class: colour === "none" ? "untold" : "cell", x: 1, y: 1, width: layer.window === null ? 14 : 8.4, height: 14, fill: colour }));
  const use = code === null ? null : button(state.code === code ? "The page shows these frequencies" : "Show these frequencies on the page", () => app.store.set({ code }), { "aria-pressed": String(state.code === code), "data-code": code });
  return html("div", { class: chosen ? "layer-group chosen" : "layer-group" },
    html("h4", {}, swatch, `${whereWords(layer)}: ${kindWords(layer)}`),
    html("p", { class: "layer-facts" }, layerFacts(layer).join(" · ")), use, group.findings.map(findingSays));
}

function layerFacts(layer) {
  const facts = [];
  if (layer.base !== null) facts.push(`base ${number(layer.base)}`);
  if (layer.kind === "rotary" && layer.rotated !== null) facts.push(`${layer.rotated} of ${layer.width ?? layer.rotated} RoPE dimensions`);
  else if (layer.width !== null) facts.push(`width ${number(layer.width)}`);
  if (Object.hasOwn(LAYOUT_WORDS, layer.layout ?? "")) facts.push(LAYOUT_WORDS[layer.layout]);
  else if (layer.kind === "rotary") facts.push("layout not known");
  if (layer.sections !== null) facts.push(`${layer.sections.map(([axis, pairs]) => `${axis} ${number(pairs)}`).join(", ")} pairs`);
  if (layer.rows !== null) facts.push(`${number(layer.rows)} rows`);
  if (layer.window !== null) facts.push(`sees ${number(layer.window)} tokens`);
  if (layer.scaling !== null) {
    const { type, factor, original } = layer.scaling;
    facts.push([`${shownText(type, 30)} scaling`, Number.isFinite(factor) ? `by ${number(factor)}` : "", Number.isFinite(original) ? `from an original length of ${number(original)} tokens` : ""].filter(Boolean).join(" "));
  }
  if (layer.kind === "rotary" && layer.rates === null) facts.push("frequencies cannot be computed");
  return facts;
}

function findingSays(finding) {
  const more = [...finding.evidence.map(([name, held]) => html("li", {}, `${name}: ${held}`)), finding.hint ? html("li", {}, spaced(finding.hint)) : null, finding.edit ? html("li", {}, finding.edit) : null].filter(Boolean);
  return html("div", { class: `finding ${finding.severity}` },
    svg("svg", { class: "swatch", width: 16, height: 16, "aria-hidden": "true" }, severityShape(finding.severity, 8, finding.severity === "warning" ? 9 : 8)),
    html("p", {}, html("strong", {}, `${finding.severity} ${finding.code}`), ` ${spaced(finding.message)}`),
    more.length ? html("details", {}, html("summary", { "aria-label": `Evidence and fix of ${finding.code}` }, "evidence and what to do"), html("ul", {}, more)) : null);
}

function readersSay({ readers }) {
  const by = (verdict) => readers.filter((reader) => reader.verdict === verdict).map(({ title }) => title).join(", ");
  const said = [["same", "Same result in"], ["differs", "Read otherwise by"], ["refuses", "Refused by"]].filter(([verdict]) => by(verdict)).map(([verdict, words]) => `${words} ${by(verdict)}.`);
  return said.length ? html("p", { class: "says" }, said.join(" ")) : null;
}

// Pictures are made anew; whoever had a button in focus, or an evidence open, keeps it.
function heldFocus(place) {
  const all = () => [...place.querySelectorAll("button, summary")];
  const focused = all().indexOf(document.activeElement), open = all().map((each) => each.localName === "summary" && each.parentElement.open);
  const count = all().length;
  return () => {
    if (all().length !== count) return;
    all().forEach((each, at) => { if (open[at]) each.parentElement.open = true; });
    if (focused >= 0) all()[focused].focus({ preventScroll: true });
  };
}

// Words

function saidOfModel({ audit, parts }) {
  const told = parts.flatMap(({ groups, part }) => groups.map(({ layer, numbers }) => {
    const where = numbers === null ? (layer.layers === "input" ? "before the layers" : "in all layers") : `in ${numbers.length} layer${numbers.length === 1 ? "" : "s"}`;
    return `${parts.length > 1 ? `${part}: ` : ""}${kindWords(layer).split(/[:,]/)[0]}${layer.base === null ? "" : `, base ${number(layer.base)},`} ${where}`;
  }));
  const shown = told.length > 4 ? [...told.slice(0, 3), `and ${told.length - 3} more`] : told;
  return `${titleOfModel(audit)}: ${shown.join("; ") || "nothing about position"}. ${verdictOf(audit)}`;
}

// Where two models part, of what their first turning or first other layers are told.
function differenceOf(one, two) {
  const pick = ({ layers }) => layers.find(({ rates }) => rates !== null) ?? layers[0];
  const [ours, theirs] = [pick(one), pick(two)];
  if (!ours || !theirs) return "One of them declares no position encoding.";
  const scaled = ({ scaling }) => (scaling === null ? "none" : shownText(scaling.type, 30));
  const rows = [["kind", ours.kind, theirs.kind], ["base", ours.base, theirs.base], ["width", ours.width, theirs.width], ["RoPE dimensions", ours.rotated, theirs.rotated],
    ["layout", ours.layout, theirs.layout], ["scaling", scaled(ours), scaled(theirs)], ["context", one.context, two.context], ["encodings", one.layers.length, two.layers.length]];
  const told = (value) => (value === null ? "not known" : typeof value === "number" ? number(value) : shownText(value, 40));
  const parted = rows.filter(([, left, right]) => left !== right).map(([name, left, right]) => `${name} ${told(left)} against ${told(right)}`);
  return parted.length ? `Compared with ${titleOfModel(two)}: ${parted.join(", ")}.` : `${titleOfModel(two)} declares the same.`;
}
