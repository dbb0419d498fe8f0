// The steps on RoPE: a query and a key as arrows that their positions rotate, and all pairs of a head summed to a curve.

import { line, number, svg } from "../draw.js";
import { kernelAt } from "../kernels.js";
import { TURN, geometricLadder, phaseAt } from "../ladders.js";
import { rotatedArrows } from "./dial.js";
import { draggedAngle, lessonSlider, lessonStep } from "./frame.js";

const ARROW_RATE = geometricLadder(1, 2, 100, 1, 0.2); // 0.2 radians per token: 11.5 degrees
const MOST_ARROW = 40; // the last position
export const CONTENT = { query: 0.5, key: 1.2 }; // the angles of the two before any rotation
const HEAD_PAIRS = 32, HEAD = geometricLadder(HEAD_PAIRS, 2 * HEAD_PAIRS, 10000), CURVE_LENGTH = 256;

export function ropeStep() {
  let query = 9, key = 4;
  const step = lessonStep({
    id: "rope", title: "RoPE: turn query and key",
    words: "A query is what a token looks for, a key what it offers; their dot product is the score. Today’s models rotate each by its position. One pair of their numbers: thin arrows before, thick after.",
    question: "Move both by the same number. The angle between them …",
    options: ["stays", "changes"], right: 0,
    answer: () => `If both move, it stays. Of the positions, only the distance, ${Math.abs(query - key)}, is left in the score.`,
    shown: () => move(12),
    plot: { height: 320, margin: { top: 8, right: 8, bottom: 8, left: 8 }, label: "A query and a key as arrows, rotated by their positions" },
  });
  const { plot } = step;
  const sliders = [lessonSlider("Query at", { min: 0, max: MOST_ARROW, value: query }, (at) => { query = at; step.draw(); }),
    lessonSlider("Key at", { min: 0, max: MOST_ARROW, value: key }, (at) => { key = at; step.draw(); }),
    lessonSlider("Move both by", { min: 0, max: 20, value: 0 }, (at) => { both = at; step.draw(); })];
  let both = 0;
  // The arrow that is nearer to where the pointer is pressed follows it, by whole tokens.
  let centre = [0, 0], held = "query";
  draggedAngle(plot.element, () => centre, (at, first) => {
    const behind = (role) => {
      const by = at - CONTENT[role] - phaseAt(ARROW_RATE, 0, (role === "query" ? query : key) + both);
      return by - TURN * Math.round(by / TURN);
    };
    if (first) held = Math.abs(behind("query")) <= Math.abs(behind("key")) ? "query" : "key";
    const moved = Math.min(Math.max((held === "query" ? query : key) + Math.round(behind(held) / ARROW_RATE.rates[0]), 0), MOST_ARROW);
    if (held === "query") query = moved;
    else key = moved;
    sliders[held === "query" ? 0 : 1].place(moved);
    step.draw();
  });
  const move = (by) => { both = by; sliders[2].place(by); step.draw(); };
  step.paint = () => {
    const angle = (content, position) => content + phaseAt(ARROW_RATE, 0, position + both);
    const after = { query: angle(CONTENT.query, query), key: angle(CONTENT.key, key) };
    centre = rotatedArrows(plot, { at: { query: query + both, key: key + both }, before: CONTENT, after, product: Math.cos(after.query - after.key) });
  };
  step.controls.append(...sliders.map(({ element }) => element));
  return step;
}

export function curveStep() {
  let distance = 12;
  const step = lessonStep({
    id: "curve", title: "All pairs, one curve",
    words: "A head of 64 numbers has 32 such pairs (grey: four of them); its score is their sum. Here query and key are equal.",
    question: "How does the score run with distance?",
    options: ["it falls evenly", "it falls, with waves"], right: 1,
    answer: () => `It falls with waves: near tokens agree in all pairs, far ones only in the slow. At distance ${distance}: ${number(kernelAt(HEAD, distance) / HEAD_PAIRS, 2)} of the score at 0.`,
    shown: () => step.draw(),
    plot: { height: 290, margin: { top: 34, right: 16, bottom: 42, left: 44 }, label: "The score of 32 pairs by distance, over the waves of four of them" },
  });
  const { plot } = step;
  const slider = lessonSlider("Distance", { min: 0, max: CURVE_LENGTH, value: distance }, (at) => { distance = at; step.draw(); });
  step.paint = () => {
    const { left, right, top, bottom } = plot.inner, across = d3.scaleLinear([0, CURVE_LENGTH], [left, right]), up = d3.scaleLinear([-1, 1], [bottom, top]);
    const wave = (of) => Array.from({ length: 2 * CURVE_LENGTH + 1 }, (_, place) => [across(place / 2), up(of(place / 2))]);
    const here = kernelAt(HEAD, distance) / HEAD_PAIRS;
    plot.clear().axes(across, up, "distance (tokens)", "");
    plot.ink.append(svg("text", { x: 0, y: 14 }, "score, as a part of that at distance 0"), ...[8, 14, 20, 26].map((pair) => line(wave((at) => Math.cos(phaseAt(HEAD, pair, at))), { class: "one-pair" })),
      ...(step.guessed === null ? [] : [line(wave((at) => kernelAt(HEAD, at) / HEAD_PAIRS), { class: "score" }), svg("circle", { class: "here", cx: across(distance), cy: up(here), r: 6 })]));
  };
  step.controls.append(slider.element);
  return step;
}
