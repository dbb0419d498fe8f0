// Where two encodings differ: the phase of each pair in one against the same pair in the other, by position.

import { colourTable } from "../colours.js";
import { choice } from "../controls.js";
import { addTwice, minusTwice } from "../doubles.js";
import { Plot, html, number, put, say, svg } from "../draw.js";
import { exactRate, ladderFrom, phaseAt } from "../ladders.js";
import { besideOptions, ladderBeside, nameOfCode } from "./distance.js";
import { logAxis } from "./ladder.js";
import { decimal } from "./pair.js";

const VISIBLE = 0.1; // rad: a difference that is called visible
const PAIR_LINES = 220; // lines of the picture; a line stands for one pair
const ACROSS = 2; // CSS pixels of a column

// The differences of the rates of two ladders, pair by pair, as a ladder: its phase at a position is the exact difference.
export function ladderBetween(one, other) {
  return ladderFrom(Array.from({ length: Math.min(one.pairs, other.pairs) }, (_, pair) => addTwice(exactRate(one, pair), minusTwice(exactRate(other, pair)))));
}

// The first position at which a pair differs by more than so many rad, and the pair that differs most there; null where
// none ever does.
export function firstVisible(between, least = VISIBLE) {
  let found = null;
  for (let pair = 0; pair < between.pairs; pair++) {
    // Whole rotations between two tokens cannot be seen.
    const step = Math.abs(phaseAt(between, pair, 1)), off = (at) => Math.abs(phaseAt(between, pair, at)) > least;
    if (step === 0) continue;
    let at = Math.max(1, Math.floor(least / step));
    if (!Number.isSafeInteger(at + 1)) continue;
    while (at > 1 && off(at - 1)) at--;
    while (!off(at)) at++;
    const by = Math.abs(phaseAt(between, pair, at));
    if (found === null || at < found.position || (at === found.position && by > found.by)) found = { position: at, pair, by };
  }
  return found;
}

export const difference = {
  id: "difference",
  question: "Where do two encodings differ?",
  mount(section, app) {
    const { store } = app;
    const other = choice(app, "other", "Compare with", besideOptions(app)).element, list = other.querySelector("select");
    app.onModels(() => {
      list.replaceChildren(...besideOptions(app).map(([value, words]) => html("option", { value }, words)));
      list.value = store.state.other;
    });
    section.controls.append(other);
    const canvas = html("canvas", { class: "cells large", tabindex: 0, role: "application", "aria-label": "Phase differences by position and pair: arrow keys move position and pair, with shift by ten" });
    const place = html("div", { class: "heatmap" }, canvas);
    const readout = html("p", { class: "readout" }), note = html("p", { class: "note" });
    const key = html("p", { class: "key" }, html("span", {}, "0 rad", phaseKey(), "π rad"));
    const plot = new Plot(place, { height: 300, margin: { top: 46, right: 16, bottom: 42, left: 50 }, label: "The size of the phase difference of every pair, by position" });
    plot.element.classList.add("over");

    let made = null, axes = null;
    const set = (position, pair) => store.set({
      position: Math.min(Math.max(position, 0), Math.max(store.state.length - 1, store.state.position)), pair: Math.min(Math.max(pair, 0), made.between.pairs - 1) });
    const take = (event) => {
      if (!axes || !(event.buttons & 1)) return;
      const box = plot.element.getBoundingClientRect();
      set(Math.round(axes.x.invert(event.clientX - box.left)), Math.floor(axes.y.invert(event.clientY - box.top)));
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); take(event); });
    canvas.addEventListener("pointermove", take);
    canvas.addEventListener("keydown", (event) => {
      const times = event.shiftKey ? 10 : 1, [along, down] = { ArrowLeft: [-times, 0], ArrowRight: [times, 0], ArrowUp: [0, -times], ArrowDown: [0, times] }[event.key] ?? [];
      if (!axes || along === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      set(store.state.position + along, Math.min(store.state.pair, made.between.pairs - 1) + down);
    });

    return (state, changed) => {
      const both = twoOf(app, state);
      other.hidden = both.models;
      section.element.querySelector(".save")?.toggleAttribute("hidden", both.why !== null);
      if (both.why !== null) {
        made = axes = null;
        section.figure.replaceChildren();
        section.answer(both.why);
        return;
      }
      if (!place.isConnected) section.figure.append(place, key, readout, note);
      if (changed.size === Object.keys(state).length || made === null) plot.measure();
      if (made?.one !== both.one.ladder || made?.other !== both.other.ladder) {
        const between = ladderBetween(both.one.ladder, both.other.ladder);
        made = { one: both.one.ladder, other: both.other.ladder, between, first: firstVisible(between), painted: null };
      }
      axes = drawDifference(plot, canvas, place, made, both, state);
      const pair = Math.min(state.pair, made.between.pairs - 1), [first, second] = [both.one, both.other].map(({ ladder }) => phaseAt(ladder, pair, state.position));
      say(readout, `The phase of pair ${pair} at position ${number(state.position)}: ${decimal(first, 4)} rad in ${both.one.name}, ${decimal(second, 4)} rad in ${both.other.name}; they differ by ${decimal(Math.abs(phaseAt(made.between, pair, state.position)), 4)} rad.`);
      say(note, noteOfDifference(both, made));
      section.answer(saidOfDifference(both, made, state));
    };
  },
};

// The two that are compared: two models where two are chosen and both have pairs, or the encoding and a second one.
function twoOf(app, state) {
  const [one, second] = [app.models[state.model] ?? app.models[0], app.models[state.beside]];
  if (one && second && one !== second) {
    const names = [one, second].map(({ codes }) => codes.find((name) => name !== null) ?? null);
    if (names.includes(null)) return { models: true, why: "One of the two models on this page has no rotating pairs, so there are no phases to compare." };
    return { models: true, why: null, one: namedLadder(app, names[0]), other: namedLadder(app, names[1]) };
  }
  const other = ladderBeside(app, state);
  if (!other) return { models: false, why: "There is no second encoding: choose one to compare with." };
  const own = { name: state.code === "custom" ? "this encoding" : nameOfCode(app, state.code), ladder: app.ladder(state), layout: state.layout };
  return { models: false, why: null, one: own, other: { ...other, layout: app.data.codes[state.other]?.layout ?? null } };
}

function namedLadder(app, name) {
  return { name: nameOfCode(app, name), ladder: app.ladderNamed(name), layout: app.data.codes[name].layout };
}

// The colours from no difference to half a rotation.
function differenceColours() {
  const whole = colourTable("diverging");
  return whole.subarray((whole.length - 1) / 2);
}

function phaseKey() {
  const mark = html("canvas", { class: "phase-key", width: 64, height: 1, role: "img", "aria-label": "The colours from no difference to half a rotation" });
  return mark;
}

function paintKey(mark, colours) {
  const context = mark.getContext("2d"), image = context.createImageData(64, 1), dots = new Uint32Array(image.data.buffer);
  for (let dot = 0; dot < 64; dot++) dots[dot] = colours[Math.round((dot / 63) * (colours.length - 1))];
  context.putImageData(image, 0, 0);
}

// Each column is one position, evenly on a log axis, and each line one pair. Gives the scales.
function drawDifference(plot, canvas, place, made, both, state) {
  plot.clear();
  const { between, first } = made, { left, right, top, bottom } = plot.inner, last = Math.max(state.length - 1, state.served - 1, 2);
  const x = d3.scaleLog([1, last], [left, right]), y = d3.scaleLinear([0, between.pairs], [top, bottom]);
  const columns = Math.max(1, Math.floor((right - left) / ACROSS)), lines = Math.min(between.pairs, PAIR_LINES), colours = differenceColours();
  place.style.setProperty("height", `${plot.height}px`);
  const key = [last, columns, lines].join();
  if (made.painted !== key || made.colours !== colours[0]) {
    [made.painted, made.colours] = [key, colours[0]];
    paintDifference(canvas, between, columns, lines, (column) => Math.round(x.invert(left + ((column + 0.5) / columns) * (right - left))), colours);
    paintKey(place.nextElementSibling.querySelector(".phase-key"), colours);
  }
  for (const [name, value] of Object.entries({ left, top, width: right - left, height: bottom - top })) canvas.style.setProperty(name, `${value}px`);
  logAxis(plot, x, "position (token), log", plot.width < 500 ? 6 : 8);
  const axis = svg("g", { class: "axis", transform: `translate(${left},0)` });
  d3.axisLeft(d3.scaleLinear([0, between.pairs], [top + (bottom - top) / (2 * between.pairs), bottom + (bottom - top) / (2 * between.pairs)]))
    .tickValues(d3.ticks(0, between.pairs - 1, Math.min(5, between.pairs)).filter(Number.isInteger)).tickFormat((pair) => number(pair)).tickSizeOuter(0)(d3.select(axis));
  axis.querySelector(".domain").remove();
  plot.ink.append(axis, svg("text", { class: "name", x: 0, y: 14 }, "pair"));
  if (first && first.position <= last) {
    const [cx, cy] = [x(first.position), y(first.pair + 0.5)], late = cx > (left + right) / 2;
    plot.ink.append(svg("line", { class: "halo", x1: cx, x2: cx, y1: top - 6, y2: bottom }), svg("line", { class: "edge", x1: cx, x2: cx, y1: top - 6, y2: bottom }),
      svg("circle", { class: "mark-rise", cx, cy, r: 5, "data-first": first.position, "data-pair": first.pair }),
      svg("text", { class: "strong", x: cx + (late ? 4 : -4), y: top - 12, "text-anchor": late ? "end" : "start" }, `visible from position ${number(first.position)}`));
  }
  if (state.position >= 1 && state.position <= last) {
    const pair = Math.min(state.pair, between.pairs - 1), [cx, cy] = [x(state.position), y(pair + 0.5)];
    plot.ink.append(svg("circle", { class: "halo", cx, cy, r: 5 }), svg("circle", { class: "lit", cx, cy, r: 5 }));
  }
  return { x, y };
}

function paintDifference(canvas, between, columns, lines, positionOf, colours) {
  put(canvas, { width: columns, height: lines });
  const context = canvas.getContext("2d"), image = context.createImageData(columns, lines), dots = new Uint32Array(image.data.buffer);
  const scale = (colours.length - 1) / Math.PI, pairs = Array.from({ length: lines }, (_, row) => Math.floor(((row + 0.5) * between.pairs) / lines));
  for (let column = 0; column < columns; column++) {
    const position = positionOf(column);
    for (let row = 0; row < lines; row++) dots[row * columns + column] = colours[Math.min(Math.round(Math.abs(phaseAt(between, pairs[row], position)) * scale), colours.length - 1)];
  }
  context.putImageData(image, 0, 0);
}

function saidOfDifference({ one, other }, { between, first, one: own, other: second }, state) {
  const least = Math.min(own.pairs, second.pairs), names = `${one.name} and ${other.name}`;
  const common = own.pairs === second.pairs ? "" : ` They have ${number(own.pairs)} and ${number(second.pairs)} pairs; the first ${number(least)} of both are compared.`;
  if (first === null) return `Nowhere: ${names} have the same frequencies${own.pairs === second.pairs ? "" : " in the pairs that both have"}, so every phase agrees at every position.${common}`;
  const { position, pair, by: off } = first;
  const same = Array.from(between.rates).filter((rate) => rate === 0).length;
  return `From position ${number(position)} on${position >= state.length ? `, beyond the length of ${number(state.length)} tokens,` : ""} ${names} visibly differ: there the phases of pair ${pair} are ${number(off, 3)} rad apart, and more than ${VISIBLE} rad counts as visible.` +
    ` ${same ? `${number(same)} of ${number(least)} pairs ${same === 1 ? "is" : "are"} the same in both.` : least === 1 ? "" : `None of the ${number(least)} pairs is the same in both.`}${common}`;
}

function noteOfDifference({ models, one, other }, { between, one: own, other: second }) {
  const said = between.pairs > PAIR_LINES ? [`${PAIR_LINES} of ${number(between.pairs)} pairs are drawn.`] : [];
  if (one.layout && other.layout && one.layout !== other.layout) said.push(`Their layouts differ too (${one.layout} and ${other.layout}): the same pair is in other dimensions.`);
  if (own.attentionFactor !== second.attentionFactor) said.push(`They also multiply cosine and sine by ${number(own.attentionFactor, 5)} and ${number(second.attentionFactor, 5)}.`);
  if (models) said.push("The two models of the last view are compared, each by its first layers that have pairs.");
  return said.join(" ");
}
