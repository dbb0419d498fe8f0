// The steps on the idea: a wave and its second one, many speeds, and the row of a position as its address.

import { additiveCode, sinusoidalSpec } from "../codes.js";
import { css, diverging } from "../colours.js";
import { line, svg } from "../draw.js";
import { geometricLadder, phaseAt } from "../ladders.js";
import { dial } from "./dial.js";
import { draggedAngle, lessonSlider, lessonStep } from "./frame.js";

const DEGREE = Math.PI / 180;
const SMALL_WIDTH = 16, SMALL_PAIRS = SMALL_WIDTH / 2, DIGIT_CLOCKS = geometricLadder(SMALL_PAIRS, SMALL_WIDTH, 10000);

// One height, two angles: only the cosine tells them apart.
export function waveStep() {
  let angle = 30;
  const step = lessonStep({
    id: "wave", title: "One wave, one height, two places",
    words: "A wave stays between −1 and 1. But each height comes twice in a turn. Drag the hand.",
    question: "The sine is 0.5 at 30° and at 150°. What tells them apart?",
    options: ["the cosine", "a higher wave"], right: 0,
    answer: () => "Cosine: 0.87 at 30°, −0.87 at 150°. Sine and cosine together are a point on a circle: the hand of a clock.",
    plot: { height: 250, margin: { top: 16, right: 16, bottom: 30, left: 16 }, label: "A hand on a circle, and its sine over the angle" },
  });
  const { plot } = step;
  const slider = lessonSlider("Angle", { min: 0, max: 360, value: angle, words: (at) => `${at}°, sine ${fixed(Math.sin(at * DEGREE))}, cosine ${fixed(Math.cos(at * DEGREE))}` }, (at) => { angle = at; step.draw(); });
  let centre = [0, 0];
  draggedAngle(plot.element, () => centre, (at) => { angle = Math.round(at / DEGREE); slider.place(angle); step.draw(); });
  step.paint = () => {
    const { top, bottom, right } = plot.inner, middle = (top + bottom) / 2, radius = Math.min((bottom - top) / 2, plot.width / 5), x = radius + 16;
    const from = x + radius + 30, across = (at) => from + (at / 360) * (right - from), up = (value) => middle - value * radius;
    const wave = (of) => Array.from({ length: 121 }, (_, place) => [across(3 * place), up(of(3 * place * DEGREE))]);
    centre = [x, middle];
    const here = angle * DEGREE, other = (180 - angle + 360) % 360;
    plot.clear().ink.append(
      svg("line", { class: "zero", x1: from, x2: right, y1: middle, y2: middle }),
      line(wave(Math.sin), { class: "sine" }), line(wave(Math.cos), { class: "cosine faint" }),
      svg("line", { class: "level", x1: x, x2: right, y1: up(Math.sin(here)), y2: up(Math.sin(here)) }),
      dial(x, middle, radius, here), dial(x, middle, radius, other * DEGREE, { state: "second" }),
      ...[[angle, "at"], [other, "at second"]].flatMap(([at, kind]) => [svg("circle", { class: `${kind} sine`, cx: across(at), cy: up(Math.sin(at * DEGREE)), r: 6 }),
        svg("circle", { class: `${kind} cosine`, cx: across(at), cy: up(Math.cos(at * DEGREE)), r: 6 })]),
      svg("text", { class: "end sine", x: across(96), y: up(1) - 3 }, "sine"), svg("text", { class: "end cosine", x: across(336), y: up(0.95) - 3, "text-anchor": "end" }, "cosine"),
      svg("text", { x: from, y: bottom + 24 }, "0°"), svg("text", { x: right, y: bottom + 24, "text-anchor": "end" }, "360°"));
  };
  step.controls.append(slider.element);
  return step;
}

function fixed(value) {
  return value.toFixed(2).replace("-", "−");
}

// The hands over the binary digits of the same position.
export function speedsStep() {
  let position = 7;
  const step = lessonStep({
    id: "speeds", title: "Many speeds, as digits have",
    words: "One hand repeats. Binary digits do not: the last flips at every step, the first hardly ever. Clocks turn so, smoothly.",
    question: "Which clock tells 7 from 8, and which 7 from 700?",
    options: ["fast one, slow one", "slow one, fast one"], right: 0,
    answer: () => "Fast clocks tell neighbours apart; slow ones, which have not come round, far places.",
    plot: { height: 190, margin: { top: 8, right: 8, bottom: 8, left: 8 }, label: "Eight clocks from slow to fast, over the eight last binary digits of the position" },
  });
  const { plot } = step;
  const slider = lessonSlider("Position", { min: 0, max: 255, value: position }, (at) => { position = at; step.draw(); });
  step.paint = () => {
    const across = (plot.width - 16) / SMALL_PAIRS, radius = Math.min(34, across / 2 - 5), digits = position.toString(2).padStart(SMALL_PAIRS, "0");
    const side = Math.min(24, across - 8);
    plot.clear().ink.append(...Array.from({ length: SMALL_PAIRS }, (_, place) => {
      const pair = SMALL_PAIRS - 1 - place, x = 8 + across * (place + 0.5), y = 2 * radius + 34, on = digits[place] === "1";
      return svg("g", {}, dial(x, radius + 10, radius, phaseAt(DIGIT_CLOCKS, pair, position)),
        svg("rect", { class: on ? "bit on" : "bit", x: x - side / 2, y, width: side, height: side }),
        svg("text", { class: on ? "digit on" : "digit", x, y: y + side / 2 + 5, "text-anchor": "middle" }, digits[place]),
        place === 0 || pair === 0 ? svg("text", { x, y: y + side + 22, "text-anchor": "middle" }, pair === 0 ? "fast" : "slow") : null);
    }));
  };
  step.controls.append(slider.element);
  return step;
}

// The table of the first positions, and the rows that are nearest to the chosen one.
export function rowStep() {
  let position = 7;
  const ROWS = 24, code = additiveCode(sinusoidalSpec(SMALL_WIDTH));
  const rows = Array.from({ length: ROWS }, (_, at) => code.row(at));
  const apart = (one, two) => Math.hypot(...Array.from(one, (each, place) => each - two[place]));
  const nearest = () => rows.map((row, at) => [at, apart(row, rows[position])]).filter(([at]) => at !== position).sort((one, two) => one[1] - two[1]).slice(0, 2);
  const step = lessonStep({
    id: "row", title: "The row is an address",
    words: "Write down sine and cosine of each clock: sixteen numbers, added to the word at that position. This is the code of 2017.",
    question: "Which rows are most like row 7?",
    options: ["1 and 13, a turn of the fastest clock away", "6 and 8"], right: 1,
    answer: () => `To row ${position}, ${nearest().map(([at, by]) => `row ${at} (${by.toFixed(2)} away)`).join(" and ")} are nearest. No two rows are equal.`,
    shown: () => step.draw(),
    plot: { height: 330, margin: { top: 22, right: 60, bottom: 8, left: 34 }, label: "The rows of the first 24 positions, sixteen numbers each" },
  });
  const { plot } = step;
  const slider = lessonSlider("Position", { min: 0, max: ROWS - 1, value: position }, (at) => { position = at; step.draw(); });
  step.paint = () => {
    const { left, top, right, bottom } = plot.inner, wide = (right - left) / SMALL_WIDTH, tall = (bottom - top) / ROWS;
    plot.clear().ink.append(
      svg("text", { x: left, y: 14 }, "fast clocks"), svg("text", { x: (left + right) / 2, y: 14, "text-anchor": "middle" }, "purple −1, green 1"), svg("text", { x: right, y: 14, "text-anchor": "end" }, "slow clocks"),
      ...rows.flatMap((row, at) => Array.from(row, (value, channel) => svg("rect", { x: left + channel * wide, y: top + at * tall, width: wide - 1, height: tall - 1, fill: css(diverging(value)) }))),
      ...[0, position, ROWS - 1].map((at) => svg("text", { class: at === position ? "where" : "", x: left - 6, y: top + (at + 0.5) * tall + 4, "text-anchor": "end" }, `${at}`)),
      svg("rect", { class: "chosen-row", x: left - 1, y: top + position * tall - 1, width: right - left + 1, height: tall + 1 }),
      ...(step.guessed === null ? [] : nearest()).map(([at, by]) => svg("text", { class: "where", x: right + 6, y: top + (at + 0.5) * tall + 4 }, by.toFixed(2))));
  };
  step.controls.append(slider.element);
  return step;
}
