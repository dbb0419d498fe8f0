// Rounding: errors of angles against position, and positions that a dtype cannot tell apart.

import { button, choice } from "../controls.js";
import { html, number, pathThrough, Plot, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { LETTER } from "../labels.js";
import { LAST_TRUE_POSITION, TURN, givenLadder, phaseAt } from "../ladders.js";
import { computedAngles, firstPositionOff, roundTo } from "../precision.js";
import { decades, logAxis, powerWords, sized, tokenWords, uprightPath, wholly } from "./ladder.js";

// What is drawn, worst last; each with the words at its end and those of its column.
const RECKONINGS = [
  { name: "float64", dtype: "float64", way: "throughout", words: "float64", heading: "float64 angles" },
  { name: "float32", dtype: "float32", way: "throughout", words: "float32", heading: "float32 angles" },
  { name: "float16", dtype: "float16", way: "positions", words: "float16", heading: "float16 positions" },
  { name: "bfloat16", dtype: "bfloat16", way: "positions", words: "bfloat16", heading: "bfloat16 positions" },
];
const POSITION_DTYPES = ["float32", "bfloat16", "float16"]; // what positions are kept in, in the row of boxes
const EXACT_ERROR = 2 ** -52; // rad, half the distance of doubles between 2 and pi: what a reduced angle is rounded by
const FIRST_DRAWN = 10, LAST_DRAWN = 1e9; // positions that are drawn
const ERROR_COLUMNS = 48, ERROR_SAMPLES = 2; // of the lines, and positions of each column
const TABLE_LENGTHS = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const ROW_BOXES = 32; // positions in the rows of boxes
const FAR_PLACES = [...TABLE_LENGTHS.map((length) => [length - 1, `${powerWords(length, true)} − 1`]), [2 ** 40, "2⁴⁰"], [1e13, "10¹³"], [1e15, "10¹⁵"], [2 ** 53 - 1, "2⁵³ − 1"]];
const LOST = { left: 28, tall: 20 }; // px: where the words about lost angles stand
const PRECISION_NEEDS = ["code", "width", "base", "span"];

// The largest error found up to each of some positions, [position, rad]; nothing where there is none yet.
export function errorsSoFar(computed, columns = ERROR_COLUMNS) {
  const found = [], ratio = (LAST_DRAWN / FIRST_DRAWN) ** (1 / columns);
  let most = 0;
  for (let column = 0; column < columns; column++) {
    const from = FIRST_DRAWN * ratio ** column;
    for (let sample = 0; sample < ERROR_SAMPLES; sample++) {
      // Odd positions: the even ones are those that a dtype keeps longest.
      const position = 2 * Math.floor((from * ratio ** ((sample + 0.618) / ERROR_SAMPLES)) / 2) + 1;
      most = Math.max(most, computed.largest(position));
    }
    if (most === Infinity) return found;
    if (most > 0) found.push([from * ratio, most]);
  }
  return found;
}

// How many different numbers the positions 0 to length - 1 become in a dtype.
export function distinctPositions(dtype, length) {
  const whole = firstPositionOff(dtype) - 1, bits = Math.log2(whole), last = roundTo(dtype, length - 1);
  if (length - 1 <= whole) return length;
  // All beyond the largest number become infinite, which is one number more.
  const held = last === Infinity ? roundTo(dtype, 65504) : last;
  const octave = Math.floor(Math.log2(held));
  return whole + 1 + ((octave - bits) * whole) / 2 + (held - 2 ** octave) / 2 ** (octave - bits + 1) + (last === Infinity ? 1 : 0);
}

// A position with all its digits, however far.
function placeWords(position) {
  return position < 1e15 ? number(position) : `${number(Math.floor(position / 1e12))}${number(1e12 + (position % 1e12)).slice(1)}`;
}

function errorWords(error) {
  if (error === 0) return "0";
  if (!Number.isFinite(error)) return "none";
  if (error >= 1e-3 && error < 1e5) return number(error, 2);
  const [digits, power] = error.toExponential(1).split("e");
  return `${digits}·${powerWords(10 ** Number(power), true)}`;
}

export const precision = {
  id: "precision",
  question: "Where does rounding spoil the numbers?",
  mount(section, app) {
    const field = html("input", {
      type: "number", class: "long", "aria-label": "Position, as far as a double counts", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, "data-name": "position",
      onchange: () => {
        if (field.value !== "") app.store.set({ position: Number(field.value) });
        field.value = app.store.state.position;
      },
    });
    section.controls.append(
      choice(app, "dtype", "Positions kept in", POSITION_DTYPES.map((name) => [name, name])).element,
      html("div", { class: "control" }, html("span", { class: "unit" }, "Position"), field, html("span", { class: "unit" }, "token")),
      html("div", { class: "control places", role: "group", "aria-label": "Positions to go to" },
        FAR_PLACES.map(([position, words]) => button(words, () => app.store.set({ position }), { "data-position": position }))));
    const place = html("div", { class: "errors" });
    const ways = "float64, float32: frequencies, positions and products are rounded. bfloat16, float16: positions only. Exact: angles are reduced to one rotation before they are rounded.";
    section.figure.append(place, html("p", { class: "note" }, ways));
    const plot = new Plot(place, { height: 340, margin: { top: 40, right: 72, bottom: 42, left: 46 }, label: "Largest error of any hand's angle against position, one line for each way of computing it" });
    const boxesPlace = html("div", {});
    const boxes = new Plot(boxesPlace, { height: 150, margin: { top: 4, right: 0, bottom: 4, left: 0 }, label: "The last positions of the trained length, and which of them share a row in each dtype" });
    const boxesWords = html("p", { class: "note" }), table = html("div", { class: "scrolled" }), far = html("div", { class: "far" });
    section.figure.append(boxesWords, boxesPlace, table, far);
    let found = null, x = null;

    const pointed = (event) => {
      if (!x) return;
      const at = x.invert(event.clientX - plot.element.getBoundingClientRect().left);
      app.store.set({ position: Math.round(Math.min(Math.max(at, 1), LAST_DRAWN)) });
    };
    plot.element.addEventListener("click", pointed);
    plot.element.addEventListener("pointermove", (event) => event.buttons && pointed(event));

    // All that follows from the ladder.
    const reckon = (state, whole) => {
      const ladder = app.ladder(state), fastest = givenLadder([d3.max(ladder.rates)]);
      found = RECKONINGS.map((each) => {
        // Where only positions are rounded, the fastest hand is off most.
        const computed = computedAngles(each.way === "positions" ? fastest : ladder, each.dtype, each.way);
        return { ...each, computed, points: errorsSoFar(computed) };
      });
      drawAll(state, whole);
    };
    const drawAll = (state, whole) => {
      x = drawErrors(plot, found, state, whole);
      drawHere(plot, x, state);
      tell(state);
      far.replaceChildren(...farFrom(app, state));
    };
    const tell = (state) => {
      table.replaceChildren(errorTable(found, state));
      section.answer(roundingWords(found, state));
    };
    const followed = whenIdle(() => reckon(app.store.state, false), section.element);

    return (state, changed) => {
      const whole = wholly(state, changed), touched = (...names) => names.some((name) => changed.has(name));
      if (touched("length", "dtype")) {
        drawBoxes(boxes, state, whole);
        boxesWords.textContent = `The last ${Math.min(ROW_BOXES, state.length)} of the ${number(state.length)} positions: those in one box become one number.`;
      }
      if (changed.has("position") && document.activeElement !== field) field.value = state.position;
      if (whole) reckon(state, whole);
      else if (touched(...PRECISION_NEEDS)) followed();
      else if (changed.has("dtype")) drawAll(state, false);
      else if (touched("position", "length")) {
        drawHere(plot, x, state);
        tell(state);
        if (changed.has("position")) far.replaceChildren(...farFrom(app, state));
      }
    };
  },
};

// The words in the part of the plot where an angle is lost.
function lostWords(plot) {
  return plot.width < 500 ? "beyond half a rotation" : "beyond half a rotation: the angle is lost";
}

function drawErrors(plot, found, state, whole) {
  sized(plot, plot.height, whole);
  const { left, right, top, bottom } = plot.inner;
  const x = d3.scaleLog([FIRST_DRAWN, LAST_DRAWN], [left, right]);
  const y = d3.scaleLog([1e-17, Math.max(100, 3 * d3.max(found, (each) => d3.max(each.points, (point) => point[1]) ?? 0))], [bottom, top]);
  const up = svg("g", { class: "axis", transform: `translate(${left},0)` });
  d3.axisLeft(y).tickValues(decades(y.domain(), 7)).tickFormat((value) => powerWords(value, true)).tickSizeOuter(0)(d3.select(up));
  plot.ink.append(
    svg("rect", { class: "anywhere", x: left, y: top, width: right - left, height: y(Math.PI) - top }),
    up, svg("text", { class: "name", x: 0, y: 13 }, "largest error so far (rad), log"),
    svg("text", { x: left + LOST.left, y: top + 14 }, lostWords(plot)));
  logAxis(plot, x, "position (token), log", plot.width < 500 ? 4 : 9);
  const ends = [{ name: "exact", words: "exact", points: [[FIRST_DRAWN, EXACT_ERROR], [LAST_DRAWN, EXACT_ERROR]] }, ...found].filter((each) => each.points.length);
  for (const { name, words, points } of ends) {
    const path = points.map(([position, error]) => [x(position), y(error)]), [endX, endY] = path.at(-1);
    const cut = points.at(-1)[0] < LAST_DRAWN / 1.01; // beyond its dtype's largest number there is no angle at all
    if (points[0][0] > FIRST_DRAWN * 2) path.unshift([path[0][0], bottom]);
    const kind = name === state.dtype ? "error-line chosen-line" : "error-line";
    plot.ink.append(svg("path", { class: `${kind} of-${name}`, d: pathThrough(path) }));
    if (cut) plot.ink.append(svg("path", { class: `${kind} of-${name}`, d: `M${endX - 4},${endY - 4}l8,8m0,-8l-8,8` }));
    const wordsAt = cut ? { x: endX + 8, y: endY + 15 } : { x: right + 5, y: endY + 4 };
    plot.ink.append(svg("text", { class: `error-end${name === state.dtype ? " chosen-end" : ""}`, ...wordsAt }, words));
  }
  return x;
}

// The line at the position, drawn over the rest and moved without redrawing it.
function drawHere(plot, x, state) {
  const { left, top, bottom, right } = plot.inner, at = x(Math.min(Math.max(state.position, FIRST_DRAWN), LAST_DRAWN));
  plot.settle().element.querySelector(".here")?.remove();
  if (state.position < FIRST_DRAWN || state.position > LAST_DRAWN) return;
  const after = at + 96 < right, words = left + LOST.left, crossed = at > words - 4 && at < words + LETTER * lostWords(plot).length;
  plot.element.append(svg("g", { class: "here" },
    svg("path", { class: "served", fill: "none", d: uprightPath(at, top - 8, bottom, crossed ? [[top, top + LOST.tall]] : []) }),
    svg("text", { x: at + (after ? 4 : -4), y: top - 2, "text-anchor": after ? "start" : "end" }, `position ${number(state.position)}`)));
}

// Rows of boxes: positions that are rounded to one number stand in one.
function drawBoxes(plot, state, whole) {
  const count = Math.min(ROW_BOXES, state.length), from = state.length - count, tall = 22, apart = 44;
  sized(plot, POSITION_DTYPES.length * apart + 8, whole);
  const { left, right } = plot.inner, wide = (right - left) / count;
  POSITION_DTYPES.forEach((dtype, row) => {
    const y = 4 + row * apart, group = svg("g", { class: dtype === state.dtype ? "boxes chosen-boxes" : "boxes", "data-dtype": dtype });
    group.append(svg("text", { x: left, y: y + 12 }, `${dtype}: ${number(distinctPositions(dtype, state.length))} of ${number(state.length)} rows left`));
    for (let start = 0; start < count;) {
      const held = roundTo(dtype, from + start);
      let end = start + 1;
      while (end < count && roundTo(dtype, from + end) === held) end += 1;
      const x0 = left + start * wide, across = (end - start) * wide;
      group.append(svg("rect", { class: end - start > 1 ? "box shared" : "box", x: x0 + 0.75, y: y + 17, width: across - 1.5, height: tall }));
      const words = Number.isFinite(held) ? number(held) : "∞";
      if (end - start > 1 && across > 7.2 * words.length + 6) group.append(svg("text", { class: "box-words", x: x0 + across / 2, y: y + 32.5, "text-anchor": "middle" }, words));
      start = end;
    }
    plot.ink.append(group);
  });
}

// The largest error of any hand at the last position of a text, for each length, and at the position of all views.
function errorTable(found, state) {
  const cell = (each, position) => html("td", { "data-error": each.name }, errorWords(each.computed.largest(position)));
  const row = (position, words, here) => html("tr", { class: here ? "here" : null, "data-position": position }, html("th", { scope: "row" }, words), found.map((each) => cell(each, position)));
  const known = TABLE_LENGTHS.some((length) => length - 1 === state.position);
  const rows = TABLE_LENGTHS.map((length) => row(length - 1, `${powerWords(length, true)} − 1`, length - 1 === state.position));
  if (!known && state.position <= LAST_TRUE_POSITION) {
    const before = TABLE_LENGTHS.filter((length) => length - 1 < state.position).length;
    rows.splice(before, 0, row(state.position, number(state.position), true));
  }
  return html("table", { class: "numbers" },
    html("caption", {}, "Largest error of any hand (rad); none: beyond the dtype"),
    html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "position"), found.map((each) => html("th", { scope: "col" }, each.heading)))),
    html("tbody", {}, rows));
}

// Where the page's own product is worth nothing: what Python put in, beside what the page would have said.
function farFrom(app, state) {
  if (state.position <= LAST_TRUE_POSITION) return [];
  const ladder = app.ladder(state), given = app.data.precise, known = given && Object.hasOwn(given.codes, state.code) && !app.code(state).published ? given.codes[state.code] : null;
  const sentence = `Position ${placeWords(state.position)} is beyond 2⁴⁰ = ${number(LAST_TRUE_POSITION)}, where this page trusts its own double precision no more. `;
  const nearest = (position) => Math.abs(Math.log(position / state.position));
  const row = known ? d3.minIndex(given.positions, nearest) : -1, position = known ? given.positions[row] : state.position;
  const pairs = known ? known.pairs : d3.range(6).map((step) => Math.round((step * (ladder.pairs - 1)) / 5)).filter((pair, place, all) => all.indexOf(pair) === place);
  const source = known
    ? `These angles were put in by Python, which multiplies in integers${position === state.position ? "" : `, for position ${placeWords(position)}`}.`
    : `For this encoding Python stored none; the page computed these angles ${ladder.lows.some(Boolean) ? "from frequencies with twice the digits" : "from the frequencies in the file, each a double"}.`;
  const angle = (value) => value.toFixed(4).replace("-", "−");
  const body = pairs.map((pair, place) => {
    const real = known ? known.angles[row][place] : phaseAt(ladder, pair, position), plain = position * ladder.rates[pair];
    const said = Math.atan2(Math.sin(plain), Math.cos(plain)), apart = Math.abs(said - real);
    return html("tr", { "data-pair": pair }, html("th", { scope: "row" }, `pair ${pair}`),
      [angle(real), angle(said), errorWords(onlyTrue(Math.min(apart, TURN - apart)))].map((words) => html("td", {}, words)));
  });
  return [
    html("p", { class: "far-words", role: "status" }, html("span", { "aria-hidden": "true" }, "▲ "), sentence + source),
    html("table", { class: "numbers" },
      html("thead", {}, html("tr", {}, ["hand", known ? "angle by Python (rad)" : "angle (rad)", "position × frequency in one double (rad)", "apart (rad)"].map((words) => html("th", { scope: "col" }, words)))),
      html("tbody", {}, body)),
  ];
}

// The difference of two angles, as far as the doubles that hold them tell it.
function onlyTrue(off) {
  return off < 2 * EXACT_ERROR ? 0 : off;
}

function roundingWords(found, state) {
  const { dtype, length } = state, whole = firstPositionOff(dtype) - 1, distinct = distinctPositions(dtype, length);
  const at = (name, position) => errorWords(found.find((each) => each.name === name).computed.largest(position));
  const first = distinct < length
    ? `In ${dtype} from position ${number(whole + 1)} on: it becomes ${number(roundTo(dtype, whole + 1))}, and ${number(length)} positions become ${number(distinct)} rows.`
    : `In ${dtype} nowhere within ${tokenWords(length)}: every whole number up to ${number(whole)} has a value of its own there.`;
  return `${first} (A dtype is the format in which a computer keeps a number.) Angles are rounded as well: in float32 they are off by ${at("float32", length - 1)} rad at position ${number(length - 1)} and by ${at("float32", 999999)} rad at the end of a million tokens.`;
}
