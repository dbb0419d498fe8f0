// The speeds of the hands: why these? The waves one would try first beside the paper's, and three bases.

import { additiveCode, naiveSpec } from "../codes.js";
import { Plot, html, number, svg } from "../draw.js";
import { kernelInParts } from "../kernels.js";
import { TURN, firstNeverTurning, geometricLadder, phaseAt, wavelength } from "../ladders.js";
import { meanAngle } from "../shifts.js";
import { decades, powerWords, tokenWords } from "./ladder.js";
import { panelsOf, rowsLookedAt } from "./naive.js";

const WAVES_NEED = ["width", "base", "length", "position"];
const BASES_BESIDE = [100, 1e4, 1e6];

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

// The distance of rows p and q of a ladder by its kernel: |a - b|^2 = 2 (pairs - a b).
function kernelDistance(pairs, values) {
  return (p, q) => Math.sqrt(Math.max(0, 2 * (pairs - values[Math.abs(p - q)])));
}

// Row p of `sines` has sines alone: all distances follow from its kernel, |a - b|^2 = |a|^2 + |b|^2 - 2 a b.
export function sineDistance(values, p, q) {
  const own = (position) => (values[0] - values[2 * position]) / 2;
  return Math.sqrt(Math.max(0, own(p) + own(q) - (values[Math.abs(p - q)] - values[p + q])));
}

// What the panels of the waves tell of a width, a base and a length.
export function* wavesInParts({ width, base, length }) {
  const rows = rowsLookedAt(length), pairs = width / 2, found = {};
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
  found.paper = yield* clocked(base, width, rows, length);
  return { rows, norm: Math.sqrt(width), found };
}

// Of two hands and more.
function* evenlySpaced(width, base, rows) {
  const { ladder } = additiveCode(naiveSpec("even", width, { base })), pairs = ladder.pairs;
  const values = yield* kernelInParts(ladder, rows), apart = kernelDistance(pairs, values);
  // Then every hand has gained a whole turn on its neighbour: all stand at one angle, which is 0 only where the slowest has
  // come round as well.
  const round = Math.round((TURN * (pairs - 1)) / Math.abs(ladder.rates[0] - ladder.rates[pairs - 1]));
  const back = rowDistance(ladder.rates, round), step = rowDistance(ladder.rates, 1), usual = Math.sqrt(2 * pairs);
  const phases = Array.from(ladder.rates, (_, pair) => phaseAt(ladder, pair, round));
  const angle = meanAngle(phases);
  const spread = phases.reduce((most, phase) => Math.max(most, 2 * Math.abs(Math.asin(Math.sin((phase - angle) / 2)))), 0);
  return { apart, round, back, angle, spread,
    loses: `${back < step ? "Repeats" : "Synchronises"}: after ${number(round)} tokens all hands stand ${spread < 0.005 ? "at" : `within ${number(spread, 2)} rad of`} one angle again, ${number(Math.abs(angle), 3)} rad from that of position 0: ` +
      `rows so far apart differ by ${number(back, 3)}, where neighbours differ by ${number(step, 3)} and most rows by about ${number(usual, 3)}` +
      (round < rows ? "." : `; that is beyond these ${number(rows)} tokens.`) };
}

function* clocked(base, width, rows, length) {
  const ladder = geometricLadder(width / 2, width, base), values = yield* kernelInParts(ladder, Math.max(rows, 2));
  const near = nearestRows(ladder, values), step = rowDistance(ladder.rates, 1), never = firstNeverTurning(ladder, length);
  const still = never === null ? 0 : ladder.pairs - never;
  const nearest = near.k === 1 ? `neighbours are the nearest rows of ${rows < length ? `the first ${number(rows)}` : "all"}` : `but rows ${number(near.k)} apart are nearer, ${number(near.apart, 3)}`;
  return { apart: kernelDistance(ladder.pairs, values), near, step, still, waves: Array.from(ladder.rates, wavelength),
    loses: `Keeps one length, ${number(Math.sqrt(ladder.pairs), 3)}, and one step, ${number(step, 3)}; ${nearest}. ` +
      (still ? `Its price: ${neverComplete(still, ladder.pairs)} a rotation in ${tokenWords(length)}.` : `Every pair completes a rotation in ${tokenWords(length)}.`) };
}

function neverComplete(still, pairs) {
  return `${number(still)} of ${number(pairs)} pairs never ${still === 1 ? "completes" : "complete"}`;
}

export const spacing = {
  id: "spacing",
  question: "Why hands of so many speeds?",
  mount(section, app) {
    const { follow } = panelsOf(section, ["sine", "single", "even", "paper"]);
    section.figure.append(html("p", { class: "says" }, "Frequencies here come from width and base alone."),
      html("h3", { class: "naive-bases-title" }, "Three bases"));
    const ladders = new Plot(section.figure, { height: 250, margin: { top: 14, right: 18, bottom: 42, left: 14 }, label: "The wavelengths of three bases and the length" });
    const says = html("ul", { class: "naive-bases" });
    section.figure.append(says);
    let widest = { of: null, found: null };
    return follow(app, WAVES_NEED, wavesInParts, (made, state) => {
      if (widest.of !== state.width) widest = { of: state.width, found: BASES_BESIDE.map((base) => ({ base, ladder: geometricLadder(state.width / 2, state.width, base) })) };
      drawBases(ladders, says, widest.found, state.length);
      section.answer(saidOfSpeeds(made));
    }, [{ plot: ladders }]);
  },
};

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
    const { far, idle } = coverOf(ladder, length);
    const loses = far < length - 1 ? `no hand alone tells ${number((100 * (length - 1 - far)) / (length - 1), 2)}\u2009% of the distances`
      : still ? `${neverComplete(still, ladder.pairs)} a rotation, ${number(idle)} not an eighth of one` : "every distance has a pair in its first half rotation";
    told.push(`Base ${number(base)}: ${loses}.`);
  });
  const across = svg("g", { class: "axis", transform: `translate(0,${bottom})` });
  d3.axisBottom(x).tickValues(decades(x.domain(), 8)).tickFormat((value) => powerWords(value)).tickSizeOuter(0)(d3.select(across));
  const end = x(Math.max(length, 5)) > (left + right) / 2;
  plot.ink.append(across, svg("text", { class: "name", x: right, y: bottom + 36, "text-anchor": "end" }, "wavelength (token), log"),
    svg("text", { class: "halo", x: x(Math.max(length, 5)) + (end ? -5 : 5), y: top - 2, "text-anchor": end ? "end" : "start" }, `length ${number(length)}`));
  says.replaceChildren(...told.map((text) => html("li", {}, text)));
}

function saidOfSpeeds({ found: { paper } }) {
  if (paper.waves.length === 1) return `With one pair there is one speed, and the hand is back after ${number(TURN, 3)} tokens: with a width of more than 2 there are slower ones beside it.`;
  return `Vaswani et al. make each wave longer than the one before by the same factor, here ${number(paper.waves[1] / paper.waves[0], 4)}, from ${number(paper.waves[0], 3)} tokens to ${number(paper.waves.at(-1), 3)}: ` +
    `each doubling of the distance has as many hands, ${number(Math.LN2 / Math.log(paper.waves[1] / paper.waves[0]), 3)}. Other speeds lose something.`;
}
