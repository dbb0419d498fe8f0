// The steps on what the code gives: a shift is one rotation, and a dot product knows the distance alone.

import { line, number, svg } from "../draw.js";
import { kernelAt } from "../kernels.js";
import { geometricLadder, phaseAt } from "../ladders.js";
import { warpedStep } from "../shifts.js";
import { arcBetween, dial } from "./dial.js";
import { lessonSlider, lessonStep } from "./frame.js";

const MOVED_PAIRS = 4, MOVED = geometricLadder(MOVED_PAIRS, 2 * MOVED_PAIRS, 100), MOVED_BY = 3;
const EIGHT = geometricLadder(8, 16, 10000), MOST_APART = 60;

export function moveStep() {
  let from = 2;
  const step = lessonStep({
    id: "shift", title: "Move by three",
    words: "Go three tokens on. Each hand turns from its old place (thin) to its new one.",
    question: "Does the turn depend on where you start?",
    options: ["yes", "no, it is the same everywhere"], right: 1,
    answer: () => `Each hand turns by 3 × its frequency, from any start: one rotation R₃ moves every row, and Rₖ moves by k. With position² the first hand turns by ${degrees(warpedStep(MOVED, 0, "square", from, MOVED_BY))} here, otherwise elsewhere.`,
    plot: { height: 320, margin: { top: 8, right: 8, bottom: 8, left: 8 }, label: "Four hands before and after a move by three tokens: with the position, and below with its square" },
  });
  const { plot } = step;
  const slider = lessonSlider("Start at position", { min: 0, max: 40, value: from }, (at) => { from = at; step.draw(); });
  step.paint = () => {
    const across = (plot.width - 16) / MOVED_PAIRS, radius = Math.min(52, across / 2 - 12);
    plot.clear().ink.append(...["none", "square"].flatMap((warp, row) => {
      const y = 30 + radius + row * (2 * radius + 62);
      return [svg("text", { class: "title", x: 8, y: y - radius - 14 }, row === 0 ? "frequency × position" : "frequency × position²"),
        ...Array.from({ length: MOVED_PAIRS }, (_, pair) => {
          const x = 8 + across * (pair + 0.5), at = (position) => phaseAt(MOVED, pair, warp === "square" ? position ** 2 : position), turned = warpedStep(MOVED, pair, warp, from, MOVED_BY);
          return svg("g", {}, dial(x, y, radius, at(from), { state: "before" }), dial(x, y, radius, at(from + MOVED_BY)),
            arcBetween(x, y, radius * 0.6, at(from), at(from + MOVED_BY), { class: warp === "none" ? "turn" : "turn wrong" }),
            svg("text", { x, y: y + radius + 17, "text-anchor": "middle" }, degrees(turned)));
        })];
    }));
    plot.resize(2 * (2 * radius + 62) + 8);
  };
  step.controls.append(slider.element);
  return step;
}

function degrees(angle) {
  const whole = ((angle * 180) / Math.PI % 360 + 360) % 360;
  return `${number(whole, 3)}°`;
}

export function productStep() {
  let position = 7, distance = 3;
  const step = lessonStep({
    id: "product", title: "The dot product forgets where",
    words: "Attention compares by dot products: multiply two rows number by number, and add up.",
    question: "Move both tokens 40 further. Their dot product …",
    options: ["grows", "stays"], right: 1,
    answer: () => `It stays at ${number(kernelAt(EIGHT, distance), 3)} for every pair ${distance} apart: the sum of cos(frequency × distance) over the clocks. Where they stand cancels.`,
    shown: () => { position = 47; places[0].place(47); step.draw(); },
    plot: { height: 270, margin: { top: 76, right: 16, bottom: 42, left: 44 }, label: "Two tokens on a line, and the dot product of their rows by distance" },
  });
  const { plot } = step;
  const places = [lessonSlider("First token", { min: 0, max: 100, value: position }, (at) => { position = at; step.draw(); }),
    lessonSlider("Distance", { min: 0, max: MOST_APART, value: distance }, (at) => { distance = at; step.draw(); })];
  step.paint = () => {
    const { left, right, top, bottom } = plot.inner, along = d3.scaleLinear([0, 160], [left, right]), across = d3.scaleLinear([0, MOST_APART], [left, right]), up = d3.scaleLinear([-2, 8], [bottom, top]);
    const curve = Array.from({ length: 4 * MOST_APART + 1 }, (_, place) => [across(place / 4), up(kernelAt(EIGHT, place / 4))]);
    plot.clear().axes(across, up, "distance (tokens)", "");
    plot.ink.append(
      svg("text", { x: 0, y: top - 18 }, "dot product of their rows"),
      svg("line", { class: "zero", x1: left, x2: right, y1: 24, y2: 24 }),
      ...[position, position + distance].flatMap((at) => [svg("circle", { class: "token-mark", cx: along(at), cy: 24, r: 7 }), svg("text", { x: along(at), y: 12, "text-anchor": "middle" }, at === position || distance > 9 ? `${at}` : "")]),
      line(curve, { class: "score" }), svg("circle", { class: "here", cx: across(distance), cy: up(kernelAt(EIGHT, distance)), r: 6 }),
      svg("text", { class: "where", x: across(distance) + 10, y: up(kernelAt(EIGHT, distance)) - 8 }, number(kernelAt(EIGHT, distance), 3)));
  };
  step.controls.append(...places.map(({ element }) => element));
  return step;
}
