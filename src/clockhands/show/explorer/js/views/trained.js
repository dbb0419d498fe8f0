// A trained model runs on the page, in a worker: what does each wrong setting of its positions cost?

import { softmaxOf } from "../attention.js";
import { button, choice, slider } from "../controls.js";
import { decoderOf, serve } from "../decoder.js";
import { html, line, number, Plot, svg } from "../draw.js";
import { faultsOf, rotationOf, settingsKey, trainedSettings } from "../faults.js";
import { tokenizerOf, UNKNOWN } from "../pieces.js";
import { LIMITS } from "../state.js";

const MOST_TOKENS = LIMITS.usedLength[1];
const LONGEST_TEXT = 8192; // characters, more than MOST_TOKENS have
const SMOOTHED = 32; // tokens whose mean a point of the line is
const NEXT_TOKENS = 6;
const NEXT_ROW = 36, NEXT_HEAD = 30, BARS = 30, TOKEN_WIDTH = 84; // px
const SAME_LOSS = 5e-4; // nats that are not spoken of
const LEAST_CHANCE = 1e-4; // whose digits are worth reading
const LEAST_COST = 0.1; // nats that the axis shows at least
const LINES_APART = 16; // px between the words at the ends of lines
const ROUNDINGS = [["positions", "positions"], ["rates", "frequencies"], ["phases", "angles"]]
  .flatMap(([way, words]) => ["bfloat16", "float16"].map((dtype) => [`${dtype} ${way}`, `${words} to ${dtype}`]));

export const trained = {
  id: "trained",
  question: "What do wrong positions cost a trained model?",
  mount(section, app) {
    const model = app.data.trained, { store } = app, encode = tokenizerOf(model), correct = trainedSettings(model);
    const field = html("textarea", { id: "trained-text", rows: 5, maxlength: LONGEST_TEXT, spellcheck: "false", autocomplete: "off", oninput: () => ask() }, model.text);
    const faults = faultsOf(model).map(([name, settings]) => [settingsKey(settings), button(name, () => store.set(settings))]);
    const factor = slider(app, "usedFactor", "Factor", { min: 1, max: 64, scale: "log" }).element;
    section.controls.append(
      html("div", { class: "places" }, html("label", { for: "trained-text" }, "Text"), field),
      html("div", { class: "places faults", role: "group", "aria-label": "Faults, as clockhands probe names them" },
        faults.map(([, press]) => press), button("Repair", () => store.set(correct))));
    section.element.append(html("div", { class: "controls" },
      slider(app, "usedBase", "Base", { min: 2, max: 1e8, scale: "log" }).element,
      choice(app, "usedLayout", "Layout", [["interleaved", "interleaved"], ["halves", "halves"]]).element,
      choice(app, "usedScaling", "Scaling", [["none", "none"], ["linear", "linear"], ["ntk", "NTK"], ["yarn", "YaRN"]]).element,
      factor,
      choice(app, "usedRotation", "Rotation", [["forward", "as trained"], ["backward", "other direction"], ["off", "off"]]).element,
      choice(app, "usedRounding", "Rounding", [["none", "none"], ...ROUNDINGS]).element,
      slider(app, "usedShift", "Positions later by", { min: 0, max: LIMITS.usedShift[1] }).element,
      slider(app, "usedLate", "Queries later by", { min: 0, max: LIMITS.usedLate[1] }).element,
      slider(app, "usedLength", "Length", { min: 2, max: MOST_TOKENS, unit: "tokens" }).element));
    const byPosition = html("div"), ofNext = html("div"), margin = { top: 34, right: 84, bottom: 42, left: 40 };
    section.figure.append(html("div", { class: "trained-figure" }, byPosition, ofNext));
    const losses = new Plot(byPosition, { height: 230, margin, label: "The loss by position, as trained and with these settings" });
    const cost = new Plot(byPosition, { height: 180, margin, label: "What these settings add to the loss, by position" });
    const next = new Plot(ofNext, { height: NEXT_HEAD + NEXT_TOKENS * NEXT_ROW, margin: { top: NEXT_HEAD, right: 48, bottom: 0, left: TOKEN_WIDTH }, label: "The most probable next tokens, as trained and with these settings" });
    let shown = null, asked = null, waiting = null, turned = null;
    const worker = workerOf(decoderOf, serve);
    const fail = () => {
      section.answer("The model cannot run in this browser.");
      section.element.removeAttribute("aria-busy");
    };
    if (!worker) {
      fail();
      return () => {};
    }
    worker.postMessage({ sizes: { ...model, text: null }, most: MOST_TOKENS, rotations: { trained: rotationOf(correct, model, MOST_TOKENS) } });
    worker.onerror = fail;
    worker.onmessage = ({ data: { read } }) => {
      shown = { ...asked, ...read };
      asked = null;
      draw();
      section.element.dispatchEvent(new CustomEvent("read", { detail: { ...shown, milliseconds: performance.now() - shown.since } }));
      if (waiting) ask(waiting.since);
      else section.element.removeAttribute("aria-busy");
    };

    // One text at a time: what is asked for meanwhile is asked when the answer has come.
    const ask = (since = performance.now()) => {
      section.element.setAttribute("aria-busy", "true");
      waiting = asked ? { since } : null;
      if (asked) return;
      const { state } = store, key = settingsKey(state), changed = key !== settingsKey(correct), all = encode(field.value), ids = all.slice(0, state.usedLength);
      for (const [own, press] of faults) press.setAttribute("aria-pressed", own === key);
      factor.hidden = state.usedScaling === "none";
      if (!ids.length) {
        shown = null;
        draw();
        section.element.removeAttribute("aria-busy");
        return;
      }
      const names = changed ? ["trained", "used"] : ["trained"], rotations = changed && turned !== key ? { used: rotationOf(state, model, MOST_TOKENS) } : {};
      if (rotations.used) turned = key;
      asked = { ids, all: all.length, since };
      worker.postMessage({ ids, names, rotations });
    };
    const draw = () => {
      section.answer(shown ? saidOfLosses(shown, model) : field.value ? "" : "Type a text.");
      drawLosses(losses, shown, model.length);
      drawCost(cost, shown, model.length);
      drawNext(next, shown, model.tokens);
    };
    return (state, changed) => {
      if (changed.size === Object.keys(state).length) {
        for (const plot of [losses, cost, next]) plot.measure();
        draw();
        ask();
      } else if ([...changed].some((name) => name.startsWith("used"))) ask();
    };
  },
};

// A page that opens from disk can load no file for a worker: it gets the text of the functions. Null where there are no workers.
function workerOf(decoder, work) {
  try {
    return new Worker(URL.createObjectURL(new Blob([`(${work})(${decoder});`], { type: "text/javascript" })));
  } catch {
    return null;
  }
}

function mean(values, from = 0, to = values.length) {
  let sum = 0;
  for (let place = from; place < to; place++) sum += values[place];
  return sum / (to - from);
}

function saidOfLosses({ ids, all, trained: sound, used }, { name, parameters, length, tokens }) {
  const size = Object.values(parameters).reduce((sum, each) => sum + each, 0), count = ids.length, { losses } = sound;
  const unknown = ids.filter((id) => tokens[id] === UNKNOWN).length, without = unknown ? `, ${number(unknown)} of them unknown characters` : "";
  const first = `${name}, a model of ${number(size)} parameters that was trained with texts of ${number(length)} tokens, reads ${count < all ? `the first ${number(count)} of ${number(all)}` : number(count)} tokens${without}. `;
  if (!losses.length) return first;
  const nats = `Its loss, the logarithm of 1 / probability of each next token, is ${number(mean(losses), 3)} nats per token`;
  if (!used) return `${first}${nats}.`;
  const inside = Math.min(losses.length, length - 1), more = (from, to) => moreWords(mean(used.losses, from, to) - mean(losses, from, to));
  const past = losses.length > inside ? `, ${more(inside, losses.length)} past it` : "";
  return `${first}${nats} as trained, and ${number(mean(used.losses), 3)} with these settings: ${more(0, inside)} within its trained length${past}.`;
}

function moreWords(nats) {
  if (Math.abs(nats) < SAME_LOSS) return "the same";
  return `${number(Math.abs(nats), 2)} ${nats > 0 ? "more" : "less"}`;
}

// The mean of each loss and those before it, up to SMOOTHED of them.
function smoothed(losses) {
  return Array.from(losses, (_, place) => mean(losses, Math.max(0, place + 1 - SMOOTHED), place + 1));
}

// Axes over the positions of a text, with what is past the trained length shaded; gives the scale of positions.
function drawPositions(plot, last, length, y, name) {
  const { left, top, right, bottom } = plot.inner, x = d3.scaleLinear([0, last], [left, right]), past = Math.min(x(length), right);
  plot.ink.append(svg("rect", { class: "beyond", x: past, y: top, width: right - past, height: bottom - top }));
  plot.axes(x, y, "position (token)", "", { xTicks: plot.width > 560 ? 8 : 4, yTicks: 4 });
  plot.ink.append(svg("text", { class: "name", x: 0, y: 14 }, name));
  if (last > length) plot.ink.append(svg("line", { class: "edge", x1: past, x2: past, y1: top, y2: bottom }));
  return x;
}

function drawLosses(plot, shown, length) {
  plot.clear();
  if (!shown?.trained.losses.length) return;
  const { top, right, bottom } = plot.inner, last = shown.ids.length - 1;
  const lines = [["trained", "sine", "as trained"], ["used", "cosine", "changed"]].filter(([name]) => shown[name])
    .map(([name, hue, words]) => ({ hue, words, means: smoothed(shown[name].losses) }));
  const most = Math.max(...lines.flatMap(({ means }) => means)), y = d3.scaleLinear([0, most], [bottom, top]).nice();
  const x = drawPositions(plot, last, length, y, `loss (nats), mean of ${SMOOTHED} tokens`);
  const ends = lines.map(({ means }) => y(means.at(-1))), apart = ends.length > 1 ? Math.max(0, LINES_APART - Math.abs(ends[0] - ends[1])) / 2 : 0, upper = ends[1] <= ends[0] ? 1 : 0;
  lines.forEach(({ hue, words, means }, place) => plot.ink.append(
    line(means.map((each, at) => [x(at + 1), y(each)]), { class: `${hue} wave` }),
    svg("text", { class: `end ${hue}`, x: right + 6, y: ends[place] + 4 + (place === upper ? -apart : apart) }, words)));
  if (last > length) plot.ink.append(svg("text", { class: "halo", x: x(length) + 5, y: bottom - 8 }, `past ${number(length)}`));
}

function drawCost(plot, shown, length) {
  plot.clear();
  plot.element.toggleAttribute("hidden", !shown?.used?.losses.length);
  if (!shown?.used?.losses.length) return;
  const { left, top, right, bottom } = plot.inner, last = shown.ids.length - 1;
  const means = smoothed(shown.used.losses.map((each, place) => each - shown.trained.losses[place]));
  const y = d3.scaleLinear([Math.min(-LEAST_COST, ...means), Math.max(LEAST_COST, ...means)], [bottom, top]).nice(), x = drawPositions(plot, last, length, y, "changed − as trained (nats)");
  plot.ink.append(svg("line", { class: "zero", x1: left, x2: right, y1: y(0), y2: y(0) }),
    line(means.map((each, at) => [x(at + 1), y(each)]), { class: "cosine wave" }));
}

// The tokens that are most probable in either, most probable first.
function drawNext(plot, shown, tokens) {
  plot.clear();
  if (!shown) return;
  const { left, top, right } = plot.inner, kinds = [["trained", "sine"], ["used", "cosine"]].filter(([name]) => shown[name]);
  const chances = kinds.map(([name]) => softmaxOf(shown[name].logits)), best = (token) => Math.max(...chances.map((each) => each[token]));
  const ordered = Array.from(tokens.keys()).sort((one, other) => best(other) - best(one)).slice(0, NEXT_TOKENS);
  const x = d3.scaleLinear([0, best(ordered[0])], [left, right]), thick = BARS / kinds.length;
  plot.ink.append(svg("text", { class: "name", x: 0, y: 14 }, "next token (probability, %)"));
  ordered.forEach((token, row) => {
    const y = top + row * NEXT_ROW;
    plot.ink.append(svg("text", { x: left - 8, y: y + BARS / 2 + 4, "text-anchor": "end" }, tokens[token].replaceAll("\n", "⏎").replaceAll("▁", "␣")));
    kinds.forEach(([, hue], place) => {
      const end = Math.max(x(chances[place][token]), left + 1), at = y + place * thick;
      plot.ink.append(svg("rect", { class: `bar ${hue}`, x: left, y: at, width: end - left, height: thick - 1 }),
        svg("text", { x: end + 5, y: at + thick / 2 + 4 }, percentWords(chances[place][token])));
    });
  });
}

function percentWords(chance) {
  return chance < LEAST_CHANCE ? `< ${100 * LEAST_CHANCE}` : number(100 * chance, 2);
}
