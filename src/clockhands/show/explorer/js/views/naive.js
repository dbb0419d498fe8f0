// Simple numbers for a position: what does counting break? Small multiples, each with its own number.

import { colourTable } from "../colours.js";
import { additiveCode, naiveSpec, sinusoidalSpec } from "../codes.js";
import { Plot, html, number, pathOfColumns, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { tokenWords } from "./ladder.js";

const COUNTING_NEEDS = ["width", "length", "position"];
const MOST_ROWS = 4096; // positions that are looked at; each sentence says how many
const COUNTING = "Because every way of counting breaks something: its bound, its step, or nearness. The waves of the next section keep all three.";
const SAMPLE = { rows: 64, channels: 16 }; // of the small picture of each code

const NAIVE_TITLES = {
  counter: ["Counter", "the position itself, in every dimension"],
  normalised: ["Counter divided by the length", "position / (length − 1), in every dimension"],
  binary: ["Binary digits", "the position in ones and zeros, the lowest digit first"],
  sine: ["Sines alone", "no cosine beside them"],
  single: ["One frequency", "the same sine and cosine in every pair"],
  even: ["Evenly spaced frequencies", "from 1 rad per token down to 1 / base, in equal steps"],
  paper: ["Each wave longer by the same factor"],
};

function digitsSet(bits) {
  let count = 0;
  for (; bits; bits &= bits - 1) count++;
  return count;
}

// How many positions are looked at.
export function rowsLookedAt(length) {
  return Math.min(length, MOST_ROWS);
}

// What the panels of the counters tell of a width and a length.
export function countersOf({ width, length }) {
  const rows = rowsLookedAt(length), found = {};
  const norm = Math.sqrt(width); // of a token of unit variance
  const digits = Math.min(width, 31);
  found.counter = { apart: (p, q) => Math.abs(p - q) * norm,
    loses: `Loses its bound: at position ${number(length - 1)} its numbers are ${number(length - 1)} times as large as those of a word.` };
  found.normalised = { apart: (p, q) => (Math.abs(p - q) * norm) / Math.max(length - 1, 1),
    loses: length < 2 ? "Loses the step: from one position to the next the number grows by 0.111 in a text of ten tokens and by 0.0101 in one of a hundred."
      : `Loses the step: from one position to the next the number grows by ${number(1 / (length - 1), 3)} in a text of ${number(length)} tokens and by ${length === 10 ? "0.0101 in one of a hundred" : "0.111 in one of ten"}.` };
  // The jump is one of the rows that are looked at; which digits change is asked of the whole length.
  const last = Math.floor(Math.log2(Math.max(rows - 1, 1))), jump = 2 ** last, flipped = Math.min(last + 1, width);
  const used = length > 1 ? Math.floor(Math.log2(length - 1)) + 1 : 0, idle = Math.max(width - used, 0);
  const mask = digits < 31 ? 2 ** digits - 1 : -1;
  found.binary = { apart: (p, q) => Math.sqrt(digitsSet((p ^ q) & mask)), jump, flipped, mark: jump,
    loses: `Loses nearness: ${binaryJump(jump, flipped)}` +
      (idle ? `; ${number(idle)} of ${number(width)} dimensions never change in ${tokenWords(length)}.` : width < 31 && 2 ** width < length ? `; after ${number(2 ** width)} tokens it starts again.` : ".") };
  return { rows, norm, found };
}

// How many digits a step flips: from a position before a power of two, and from that power.
function binaryJump(jump, flipped) {
  if (jump === 1) return "from 0 to 1 one digit flips, from 1 to 2 more than one";
  return `from ${number(jump - 1)} to ${number(jump)} ${flipped === 1 ? "its digit flips" : `${flipped === 2 ? "both" : `all ${flipped}`} digits flip`}, from ${number(jump)} to ${number(jump + 1)} one`;
}

export const naive = {
  id: "naive",
  question: "Why not just count?",
  mount(section, app) {
    const view = panelsOf(section, ["counter", "normalised", "binary"]);
    return view.follow(app, COUNTING_NEEDS, function* (state) {
      yield;
      return countersOf(state);
    }, () => section.answer(COUNTING));
  },
};

// Panels of some codes, and a view that follows the state: `find` gives in parts what they tell, `tell` says it.
export function panelsOf(section, names) {
  const grid = html("div", { class: "naive-grid" }), shown = html("p", { class: "naive-note" });
  section.figure.append(grid, shown);
  const panels = names.map((name) => panelOf(grid, name));
  const follow = (app, needs, find, tell, plots = []) => {
    let made = null;
    const draw = function* (state) {
      const key = needs.filter((name) => name !== "position").map((name) => state[name]).join(" ");
      if (made?.key !== key) {
        made = { ...(yield* find(state)), key };
        for (const panel of panels) {
          drawSample(panel, state);
          yield;
        }
        tell(made, state);
      }
      const from = Math.min(state.position, made.rows - 1);
      shown.textContent = `Strips: ${tokenWords(sampledRows(state))} across, ${Math.min(state.width, SAMPLE.channels)} dimensions down.` +
        (made.rows < state.length ? ` Of ${number(state.length)} positions the first ${number(made.rows)} are shown.` : "");
      for (const panel of panels) {
        drawPanel(panel, made, from);
        yield;
      }
    };
    // Several tables at once are more than a frame has time for: while a slider is dragged they follow when there is time.
    const later = whenIdle(() => draw(app.store.state), section.element);
    return (state, changed) => {
      if (changed.size === Object.keys(state).length) {
        for (const { plot } of [...panels, ...plots]) plot.measure();
        made = null;
        later.now();
      } else if (needs.some((name) => changed.has(name))) {
        later();
      }
    };
  };
  return { follow };
}

function sampledRows({ length }) {
  return Math.min(SAMPLE.rows, length);
}

function panelOf(grid, name) {
  const strip = html("canvas", { class: "naive-strip", width: SAMPLE.rows, height: SAMPLE.channels, role: "img", "aria-label": `${NAIVE_TITLES[name][0]}: the numbers of its first positions` });
  const place = html("div", {}), words = html("p", {}), formula = html("p", { class: "naive-formula" });
  grid.append(html("figure", { class: "naive-panel", "data-naive": name }, html("h3", {}, NAIVE_TITLES[name][0]), formula, strip, place, html("figcaption", {}, words)));
  const plot = new Plot(place, { height: 156, margin: { top: 38, right: 22, bottom: 38, left: 62 }, label: `${NAIVE_TITLES[name][0]}: distance of every row from one` });
  return { name, strip, plot, words, formula };
}

// The first positions of the code, from left to right, some of its channels from top to bottom.
function drawSample({ name, strip, formula }, { width, base, length }) {
  formula.textContent = name === "paper" ? `the paper’s encoding, base ${number(base)}` : NAIVE_TITLES[name][1];
  const code = additiveCode(name === "paper" ? sinusoidalSpec(width, { base }) : naiveSpec(name, width, { base, length }));
  const channels = Math.min(SAMPLE.channels, width), rows = sampledRows({ length });
  const table = colourTable("diverging"), context = strip.getContext("2d");
  strip.height = channels;
  strip.width = rows;
  const image = context.createImageData(rows, channels), pixels = new Uint32Array(image.data.buffer);
  for (let place = 0; place < channels; place++) {
    // Digits beyond the first ones are all 0; of waves, both of a pair, evenly over the ladder.
    const channel = name === "binary" || width <= SAMPLE.channels ? place : 2 * Math.floor(((place >> 1) * width) / SAMPLE.channels) + (place & 1);
    for (let row = 0; row < rows; row++) {
      const value = Math.min(Math.max(code.cell(row, Math.min(channel, width - 1)), -1), 1);
      pixels[place * rows + row] = table[Math.round(((value + 1) / 2) * (table.length - 1))];
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
