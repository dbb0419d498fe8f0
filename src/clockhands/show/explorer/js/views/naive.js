// Naive codes: what do the simple ones lose? Small multiples, each with its own number.

import { colourTable } from "../colours.js";
import { additiveCode, naiveSpec, sinusoidalSpec } from "../codes.js";
import { Plot, html, number, pathOfColumns, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { kernelInParts } from "../kernels.js";
import { TURN, firstNeverTurning, geometricLadder, phaseAt, wavelength } from "../ladders.js";
import { decades, powerWords, tokenWords } from "./ladder.js";

const NAIVE_REDRAWS = ["width", "base", "length", "position"];
const MOST_ROWS = 4096; // positions that are looked at; each sentence says how many
const SAMPLE = { rows: 64, channels: 16 }; // of the small picture of each code
const BASES_BESIDE = [100, 1e4, 1e6];

const NAIVE_TITLES = {
  counter: ["Counter", "p in every dimension"],
  normalised: ["Normalised counter", "p / (length − 1)"],
  sine: ["Sine only", "sin p ω, no cosine"],
  single: ["One frequency", "sin p, cos p in every pair"],
  even: ["Evenly spaced frequencies", "from 1 down in equal steps"],
  binary: ["Binary", "the digits of p, lowest first"],
  paper: ["Sine and cosine, geometric frequencies"],
};

// The distance of two rows of a ladder k tokens apart, sqrt(sum_i 4 sin^2(rate_i k / 2)); small ones keep their digits.
export function rowDistance(rates, k) {
  let sum = 0;
  for (const rate of rates) sum += 4 * Math.sin((rate * k) / 2) ** 2;
  return Math.sqrt(sum);
}

// The distance k at which two rows of a ladder are nearest, and how far apart they are; `values` is its kernel.
export function nearestRows(ladder, values) {
  let most = -Infinity;
  for (let k = 1; k < values.length; k++) if (values[k] > most) most = values[k];
  // The kernel loses the digits of near rows: of all that are as near as it can tell, the formula decides.
  let found = { k: null, apart: Infinity };
  for (let k = 1; k < values.length; k++) {
    if (most - values[k] > ladder.pairs * 1e-9) continue;
    const apart = rowDistance(ladder.rates, k);
    if (apart < found.apart * (1 - 1e-12)) found = { k, apart };
  }
  return found;
}

// Row p of `sines` has sines alone: all distances follow from its kernel, |a - b|^2 = |a|^2 + |b|^2 - 2 a b.
export function sineDistance(values, p, q) {
  const own = (position) => (values[0] - values[2 * position]) / 2;
  return Math.sqrt(Math.max(0, own(p) + own(q) - (values[Math.abs(p - q)] - values[p + q])));
}

function digitsSet(bits) {
  let count = 0;
  for (; bits; bits &= bits - 1) count++;
  return count;
}

// All that the panels tell of a width, a base and a length.
export function* simpleInParts({ width, base, length }) {
  const rows = Math.min(length, MOST_ROWS), pairs = width / 2, found = {};
  const norm = Math.sqrt(width); // of a token of unit variance
  const digits = Math.min(width, 31);
  found.counter = { apart: (p, q) => Math.abs(p - q) * norm, ratio: length - 1,
    loses: `Loses its bound: at position ${number(length - 1)} the row is ${number(length - 1)} times as long as a token of unit variance.` };
  found.normalised = { apart: (p, q) => (Math.abs(p - q) * norm) / Math.max(length - 1, 1), step: 1 / Math.max(length - 1, 1),
    loses: length < 2 ? "Loses the step: one token further is 0.111 in ten tokens and 0.0101 in a hundred."
      : `Loses the step: one token further is ${number(1 / (length - 1), 3)} in ${number(length)} tokens and ${length === 10 ? "0.0101 in a hundred" : "0.111 in ten"}.` };
  const sines = additiveCode(naiveSpec("sine", width, { base })).ladder, sineKernel = yield* kernelInParts(sines, 2 * rows + 1);
  let [least, most] = [Infinity, 0];
  for (let p = 0; p + 1 < rows; p++) {
    const step = sineDistance(sineKernel, p, p + 1);
    least = Math.min(least, step);
    most = Math.max(most, step);
  }
  found.sine = { apart: (p, q) => sineDistance(sineKernel, p, q), least, most,
    loses: "Loses the direction: row 0 is all zeros, and no matrix gives row 1 from it" +
      (rows < 3 ? "." : `; a step is ${number(least, 3)} in one place and ${number(most, 3)} in another.`) };
  const beside = rowDistance([1], 1) * Math.sqrt(pairs), twin = { k: 1, apart: beside };
  for (let k = 2; k < rows; k++) {
    const apart = rowDistance([1], k) * Math.sqrt(pairs);
    if (apart < twin.apart) Object.assign(twin, { k, apart });
  }
  found.single = { apart: (p, q) => rowDistance([1], p - q) * Math.sqrt(pairs), twin: twin.k === 1 ? null : twin,
    loses: twin.k === 1 ? `Loses the position: its one pair repeats every 6.28 tokens, beyond ${rows === 1 ? "this one" : `these ${number(rows)}`}.`
      : `Loses the position: positions 0 and ${number(twin.k)}, or any two ${number(twin.k)} apart, differ by ${number(twin.apart, 3)} only, where neighbours differ by ${number(beside, 3)}.` };
  found.even = pairs === 1 ? { ...found.single, loses: found.single.loses.replace("Loses the position", "Repeats") } : yield* evenlySpaced(width, base, rows);
  // The jump is one of the rows that are looked at; which digits change is asked of the whole length.
  const last = Math.floor(Math.log2(Math.max(rows - 1, 1))), jump = 2 ** last, flipped = Math.min(last + 1, width);
  const idle = Math.max(width - (length > 1 ? Math.floor(Math.log2(length - 1)) + 1 : 0), 0);
  const mask = digits < 31 ? 2 ** digits - 1 : -1;
  found.binary = { apart: (p, q) => Math.sqrt(digitsSet((p ^ q) & mask)), jump, flipped, mark: jump,
    loses: `Loses nearness: ${binaryJump(jump, flipped)}` +
      (idle ? `; ${number(idle)} of ${number(width)} dimensions never change in ${tokenWords(length)}.` : width < 31 && 2 ** width < length ? `; after ${number(2 ** width)} tokens it starts again.` : ".") };
  found.paper = yield* clocked(base, width, rows, length);
  return { rows, norm, found };
}

// How many digits a step flips: from a position before a power of two, and from that power.
function binaryJump(jump, flipped) {
  if (jump === 1) return "from 0 to 1 one digit flips, from 1 to 2 more than one";
  return `from ${number(jump - 1)} to ${number(jump)} ${flipped === 1 ? "its digit flips" : `${flipped === 2 ? "both" : `all ${flipped}`} digits flip`}, from ${number(jump)} to ${number(jump + 1)} one`;
}

// Of two hands and more.
function* evenlySpaced(width, base, rows) {
  const { ladder } = additiveCode(naiveSpec("even", width, { base })), pairs = ladder.pairs;
  const values = yield* kernelInParts(ladder, rows), apart = (p, q) => Math.sqrt(Math.max(0, 2 * (pairs - values[Math.abs(p - q)])));
  // Then every hand has gained a whole turn on its neighbour: all stand at one angle, which is 0 only where the slowest has
  // come round as well.
  const round = Math.round((TURN * (pairs - 1)) / Math.abs(ladder.rates[0] - ladder.rates[pairs - 1]));
  const back = rowDistance(ladder.rates, round), step = rowDistance(ladder.rates, 1), usual = Math.sqrt(2 * pairs);
  const phases = Array.from(ladder.rates, (_, pair) => phaseAt(ladder, pair, round));
  const angle = Math.atan2(phases.reduce((sum, phase) => sum + Math.sin(phase), 0), phases.reduce((sum, phase) => sum + Math.cos(phase), 0));
  const spread = phases.reduce((most, phase) => Math.max(most, 2 * Math.abs(Math.asin(Math.sin((phase - angle) / 2)))), 0);
  return { apart, round, back, angle, spread,
    loses: `${back < step ? "Repeats" : "Synchronises"}: after ${number(round)} tokens all pairs are ${spread < 0.005 ? "at" : `within ${number(spread, 2)} rad of`} one angle again, ${number(Math.abs(angle), 3)} rad from where they began: ` +
      `rows are ${number(back, 3)} apart, where neighbours are ${number(step, 3)} and strangers ${number(usual, 3)}` +
      (round < rows ? "." : `; that is beyond these ${number(rows)} tokens.`) };
}

function* clocked(base, width, rows, length) {
  const ladder = geometricLadder(width / 2, width, base), values = yield* kernelInParts(ladder, Math.max(rows, 2));
  const near = nearestRows(ladder, values), step = rowDistance(ladder.rates, 1), never = firstNeverTurning(ladder, length);
  const still = never === null ? 0 : ladder.pairs - never;
  const nearest = near.k === 1 ? `neighbours are the nearest rows of ${rows < length ? `the first ${number(rows)}` : "all"}` : `but rows ${number(near.k)} apart are nearer, ${number(near.apart, 3)}`;
  return { apart: (p, q) => Math.sqrt(Math.max(0, 2 * (ladder.pairs - values[Math.abs(p - q)]))), near, step, still,
    loses: `Keeps one length, ${number(Math.sqrt(ladder.pairs), 3)}, and one step, ${number(step, 3)}; ${nearest}. Its price: ${number(still)} of ${number(ladder.pairs)} pairs never complete a rotation in ${tokenWords(length)}.` };
}

export const naive = {
  id: "naive",
  question: "What do the simple encodings lose?",
  mount(section, app) {
    const grid = html("div", { class: "naive-grid" });
    const shown = html("p", { class: "naive-note" });
    section.figure.append(grid, shown);
    const order = ["counter", "normalised", "sine", "single", "even", "binary", "paper"];
    const panels = order.map((name) => panelOf(grid, name));
    const bases = html("h3", { class: "naive-bases-title" }, "Three bases: do the hands span the length?");
    section.figure.append(bases);
    const ladders = new Plot(section.figure, { height: 250, margin: { top: 14, right: 18, bottom: 42, left: 14 }, label: "The wavelengths of three bases and the length" });
    const says = html("ul", { class: "naive-bases" });
    section.figure.append(says);
    let made = null, widest = { of: null, found: null };
    const draw = function* (state) {
      const key = [state.width, state.base, state.length].join(" ");
      if (made?.key !== key) {
        made = { ...(yield* simpleInParts(state)), key };
        for (const panel of panels) {
          drawSample(panel, state);
          yield;
        }
        if (widest.of !== state.width) widest = { of: state.width, found: BASES_BESIDE.map((base) => ({ base, ladder: geometricLadder(state.width / 2, state.width, base) })) };
        drawBases(ladders, says, widest.found, state.length);
        section.answer(saidOfSimple(made, state));
      }
      const from = Math.min(state.position, made.rows - 1);
      shown.textContent = `Above each curve the encoding itself, ${SAMPLE.rows} positions across and up to ${SAMPLE.channels} of its dimensions down, from −1 to 1; each curve is the distance from position ${number(from)}` +
        (from < state.position ? ", the last one of those shown." : ".") + (made.rows < state.length ? ` Of ${number(state.length)} positions the first ${number(made.rows)} are shown.` : "");
      for (const panel of panels) {
        drawPanel(panel, made, from);
        yield;
      }
    };
    // Seven tables at once are more than a frame has time for: while a slider is dragged they follow when there is time.
    const follow = whenIdle(() => draw(app.store.state), section.element);
    return (state, changed) => {
      if (changed.size === Object.keys(state).length) {
        for (const { plot } of [...panels, { plot: ladders }]) plot.measure();
        made = null;
        follow.now();
      } else if (NAIVE_REDRAWS.some((name) => changed.has(name))) {
        follow();
      }
    };
  },
};

function panelOf(grid, name) {
  const strip = html("canvas", { class: "naive-strip", width: SAMPLE.rows, height: SAMPLE.channels, role: "img", "aria-label": `${NAIVE_TITLES[name][0]}: the numbers of its first positions` });
  const place = html("div", {}), words = html("p", {}), formula = html("p", { class: "naive-formula" });
  grid.append(html("figure", { class: "naive-panel", "data-naive": name }, html("h3", {}, NAIVE_TITLES[name][0]), formula, strip, place, html("figcaption", {}, words)));
  const plot = new Plot(place, { height: 156, margin: { top: 38, right: 22, bottom: 38, left: 62 }, label: `${NAIVE_TITLES[name][0]}: distance of every row from one` });
  return { name, strip, plot, words, formula };
}

// The first positions of the code, from left to right, some of its channels from top to bottom.
function drawSample({ name, strip, formula }, { width, base, length }) {
  formula.textContent = name === "paper" ? `the paper's encoding, base ${number(base)}` : NAIVE_TITLES[name][1];
  const code = additiveCode(name === "paper" ? sinusoidalSpec(width, { base }) : naiveSpec(name, width, { base, length }));
  const channels = Math.min(SAMPLE.channels, width);
  const table = colourTable("diverging"), context = strip.getContext("2d");
  strip.height = channels;
  const image = context.createImageData(SAMPLE.rows, channels), pixels = new Uint32Array(image.data.buffer);
  for (let place = 0; place < channels; place++) {
    // Digits beyond the first ones are all 0; of waves, both of a pair, evenly over the ladder.
    const channel = name === "binary" || width <= SAMPLE.channels ? place : 2 * Math.floor(((place >> 1) * width) / SAMPLE.channels) + (place & 1);
    for (let row = 0; row < SAMPLE.rows; row++) {
      const value = Math.min(Math.max(code.cell(row, Math.min(channel, width - 1)), -1), 1);
      pixels[place * SAMPLE.rows + row] = table[Math.round(((value + 1) / 2) * (table.length - 1))];
    }
  }
  context.putImageData(image, 0, 0);
}

function drawPanel({ name, plot, words }, made, from) {
  const { apart, loses, mark, twin, round } = made.found[name], rows = made.rows;
  plot.clear();
  const { left, top, right, bottom } = plot.inner;
  const values = Float64Array.from({ length: rows }, (_, p) => apart(p, from));
  const largest = values.reduce((a, b) => Math.max(a, b), 0) || 1;
  const x = d3.scaleLinear([0, Math.max(rows - 1, 1)], [left, right]), y = d3.scaleLinear([0, largest * 1.05], [bottom, top]);
  // The page's own way with numbers, thin spaces and all.
  x.tickFormat = y.tickFormat = () => (value) => number(value, 3);
  if (made.norm < largest) {
    plot.ink.append(svg("line", { class: "rule", x1: left, x2: right, y1: y(made.norm), y2: y(made.norm) }));
  }
  plot.ink.append(svg("path", { class: "likeness", d: pathOfColumns(values, x, y) }),
    svg("circle", { class: "tip", cx: x(from), cy: y(0), r: 4 }));
  const marked = [mark, ...(twin || round ? [from + (twin?.k ?? round), from - (twin?.k ?? round)] : [])].find((place) => place !== undefined && place >= 0 && place < rows);
  if (marked !== undefined) {
    const cx = x(marked), cy = y(values[marked]), end = cx > (left + right) / 2;
    plot.ink.append(
      svg("line", { class: "likeness-leader", x1: cx, x2: cx, y1: top - 6, y2: cy }),
      svg("circle", { class: "mark-rise", cx, cy, r: 4, "data-marked": marked }),
      svg("text", { class: "halo strong", x: cx + (end ? 4 : -4), y: top - 10, "text-anchor": end ? "end" : "start" }, number(marked)));
  }
  plot.axes(x, y, "position (token)", "", { xTicks: 4, yTicks: 3 });
  plot.ink.append(svg("text", { class: "name", x: 0, y: 12 }, `distance from row ${number(from)}`));
  words.textContent = loses;
}

// The farthest distance that a hand goes to on its first half turn, and how many pairs turn by less than an eighth even
// over the whole length.
export function coverOf(ladder, length) {
  const waves = Array.from(ladder.rates, wavelength);
  return { far: Math.min(length - 1, Math.floor(Math.max(...waves) / 2)), idle: waves.filter((wave) => wave / 8 > length - 1).length };
}

// Three rows of wavelengths on one axis; those beyond the length stand apart by shape as well.
function drawBases(plot, says, ladders, length) {
  plot.clear();
  const { left, top, right, bottom } = plot.inner, room = (bottom - top) / BASES_BESIDE.length;
  const longest = Math.max(length, ...ladders.map(({ ladder }) => wavelength(ladder.rates[ladder.pairs - 1])));
  const x = d3.scaleLog([5, longest * 1.3], [left, right]), told = [];
  plot.ink.append(svg("line", { class: "trained", x1: x(Math.max(length, 5)), x2: x(Math.max(length, 5)), y1: top - 12, y2: bottom }));
  ladders.forEach(({ base, ladder }, at) => {
    const never = firstNeverTurning(ladder, length) ?? ladder.pairs, still = ladder.pairs - never, y = top + (at + 0.62) * room;
    const ticks = (from, to, size) => Array.from(ladder.rates.subarray(from, to), (rate) => `M${x(wavelength(rate)).toFixed(1)},${(y - size).toFixed(1)}v${2 * size}`).join("");
    const slowest = wavelength(ladder.rates[ladder.pairs - 1]);
    plot.ink.append(
      svg("path", { class: "rung turning", d: ticks(0, never, 12) }), svg("path", { class: "rung never", d: ticks(never, ladder.pairs, 5) }),
      svg("text", { class: "halo strong", x: left + 2, y: y - 20, "data-base": base, "data-still": still }, `base ${number(base)}: 6.28 to ${number(slowest, 3)} tokens`));
    const step = number(rowDistance(ladder.rates, 1), 3), { far, idle } = coverOf(ladder, length);
    const loses = far < length - 1 ? `beyond ${number(far)} tokens no pair is still in its first half rotation, which is ${number((100 * (length - 1 - far)) / (length - 1), 2)}\u2009% of the distances`
      : still ? `${number(still)} of ${number(ladder.pairs)} pairs never complete a rotation, and ${number(idle)} rotate by less than an eighth` : "every pair rotates, and every distance has a pair in its first half rotation";
    told.push(`Base ${number(base)}: ${loses}; a step is ${step}.`);
  });
  const across = svg("g", { class: "axis", transform: `translate(0,${bottom})` });
  d3.axisBottom(x).tickValues(decades(x.domain(), 8)).tickFormat((value) => powerWords(value)).tickSizeOuter(0)(d3.select(across));
  const end = x(Math.max(length, 5)) > (left + right) / 2;
  plot.ink.append(across, svg("text", { class: "name", x: right, y: bottom + 36, "text-anchor": "end" }, "wavelength (token), log"),
    svg("text", { class: "halo", x: x(Math.max(length, 5)) + (end ? -5 : 5), y: top - 2, "text-anchor": end ? "end" : "start" }, `length ${number(length)}`));
  says.replaceChildren(...told.map((text) => html("li", {}, text)));
}

function saidOfSimple({ found, rows }, { width }) {
  const { counter, single, even, paper } = found;
  return `Each loses something that a model needs. At width ${number(width)} the counter grows to ${number(counter.ratio)} times a token, one frequency is back after ${number(single.twin ? single.twin.k : TURN, 3)} tokens${even.round === undefined ? "; " : ", "}` +
    (even.round === undefined ? "" : `evenly spaced frequencies repeat after ${number(even.round)}; `) + `the paper's frequencies keep the nearest of ${number(rows)} rows ${number(paper.near.apart, 3)} apart.`;
}
