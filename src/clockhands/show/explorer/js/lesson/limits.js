// The steps on where it fails: past the trained length, how scalings repair that, and a runtime that reads another base.

import { line, number, svg } from "../draw.js";
import { kernelAt } from "../kernels.js";
import { TURN, geometricLadder, phaseAt } from "../ladders.js";
import { scaledLadder, scalingOf } from "../scalings.js";
import { dial } from "./dial.js";
import { lessonSlider, lessonStep } from "./frame.js";

const TRAINED = 2048, SERVED = 8192, SERVED_FACTOR = SERVED / TRAINED;
const TOLD_PAIRS = 32, TOLD = geometricLadder(TOLD_PAIRS, 2 * TOLD_PAIRS, 10000);
const DECLARED_BASE = 500000, READ_BASE = 10000;
const DECLARED = geometricLadder(TOLD_PAIRS, 2 * TOLD_PAIRS, DECLARED_BASE), MISREAD = geometricLadder(TOLD_PAIRS, 2 * TOLD_PAIRS, READ_BASE);

// Whether a hand, on its way to a distance, comes to angles where it never stood within the trained length.
function passesNew(ladder, pair, distance) {
  const most = TOLD.rates[pair] * TRAINED;
  return most < TURN && ladder.rates[pair] * distance > most * (1 + 1e-12);
}

// Whether it stands at such an angle: past a whole turn it may be back where training has seen it.
function standsNew(pair, distance) {
  const angle = ((phaseAt(TOLD, pair, distance) % TURN) + TURN) % TURN;
  return passesNew(TOLD, pair, distance) && angle > TOLD.rates[pair] * TRAINED;
}

export function beyondStep() {
  let distance = 1500;
  const step = lessonStep({
    id: "beyond", title: "Past the trained length",
    words: `Training had distances up to ${number(TRAINED)}. Over these, slow hands turn only in part (shaded); fast ones have been everywhere.`,
    question: "Compare tokens 5 000 apart. What is new to the model?",
    options: ["nothing: angles repeat", "slow hands, where they never were"], right: 1,
    answer: () => `At distance ${number(distance)}, ${count()} of ${TOLD_PAIRS} hands stand at angles that training never had: measured losses rise.`,
    shown: () => { distance = 5000; slider.place(distance); step.draw(); },
    plot: { height: 300, margin: { top: 8, right: 8, bottom: 8, left: 8 }, label: "The 32 clocks of a head, the part of each that training has seen, and the hands at the distance" },
  });
  const count = () => Array.from({ length: TOLD_PAIRS }, (_, pair) => standsNew(pair, distance)).filter(Boolean).length;
  const { plot } = step;
  const slider = lessonSlider("Distance", { min: 1, max: SERVED, value: distance, words: (at) => number(at) }, (at) => { distance = at; step.draw(); });
  step.paint = () => {
    const columns = plot.width < 560 ? 6 : 8, across = (plot.width - 16) / columns, radius = Math.min(30, across / 2 - 6), tall = 2 * radius + 14;
    plot.resize(Math.ceil(TOLD_PAIRS / columns) * tall + 12);
    plot.clear().ink.append(...Array.from({ length: TOLD_PAIRS }, (_, pair) => dial(8 + across * ((pair % columns) + 0.5), 8 + radius + Math.floor(pair / columns) * tall, radius, phaseAt(TOLD, pair, distance),
      { past: TOLD.rates[pair] * TRAINED, state: standsNew(pair, distance) ? "unseen" : "" })));
  };
  step.controls.append(slider.element);
  return step;
}

export function slowerStep() {
  const made = [["as trained", TOLD], ...[["linear", "linear"], ["NTK", "ntk"], ["YaRN", "yarn"]].map(([words, name]) => [words, scaledLadder(scalingOf(name, SERVED_FACTOR, TRAINED), TOLD)])];
  const missed = (ladder) => Array.from({ length: TOLD_PAIRS }, (_, pair) => passesNew(ladder, pair, SERVED)).filter(Boolean).length;
  const step = lessonStep({
    id: "slower", title: "Slow the hands",
    words: `To read ${number(SERVED)} tokens, turn hands slower, to stay where training has seen them (●). Bars: speed, of the trained one.`,
    question: "Which way slows fast hands too, and blurs neighbours?",
    options: ["linear", "NTK", "YaRN"], right: 0,
    answer: () => `Linear: all run at a quarter. NTK spares fast hands, leaves ${missed(made[2][1])} at new angles (○). YaRN keeps hands that often came round, slows those that never did to a quarter, others less.`,
    shown: () => step.draw(),
    plot: { height: 330, margin: { top: 8, right: 8, bottom: 24, left: 90 }, label: "Speed of the 32 hands as trained and under linear, NTK and YaRN scaling by four" },
  });
  const { plot } = step;
  step.paint = () => {
    const { left, right, top, bottom } = plot.inner, tall = (bottom - top) / made.length, bar = (right - left) / TOLD_PAIRS;
    plot.clear().ink.append(...(step.guessed === null ? made.slice(0, 1) : made).flatMap(([words, ladder], row) => {
      const foot = top + (row + 1) * tall - 18, most = tall - 30;
      return [svg("text", { class: "title", x: 4, y: foot - most / 2 + 5 }, words), svg("line", { class: "zero", x1: left, x2: right, y1: foot - most, y2: foot - most }),
        ...Array.from({ length: TOLD_PAIRS }, (_, pair) => {
          const share = ladder.rates[pair] / TOLD.rates[pair], fresh = passesNew(ladder, pair, SERVED);
          return svg("g", {}, svg("rect", { class: "column", x: left + pair * bar, width: Math.max(bar - 2, 1), y: foot - share * most, height: share * most }),
            svg("circle", { class: fresh ? "mark fresh" : "mark", cx: left + (pair + 0.5) * bar - 1, cy: foot + 8, r: Math.min(4, bar / 3) }));
        })];
    }), svg("text", { x: left, y: bottom + 18 }, "fast hands"), svg("text", { x: right, y: bottom + 18, "text-anchor": "end" }, "slow hands"));
  };
  return step;
}

export function baseStep() {
  let distance = 1;
  const score = (ladder, at) => kernelAt(ladder, at) / TOLD_PAIRS;
  const step = lessonStep({
    id: "base", title: "A program reads another base",
    words: `The base slows each hand but the first, the last most. Llama 3’s is ${number(DECLARED_BASE)}; programs that overlook it take ${number(READ_BASE)}, and raise no error.`,
    question: "Where must the two scores agree?",
    options: ["nowhere", "at distance 0 only"], right: 1,
    answer: () => `Only at 0, before any hand turns. At distance ${number(distance)} the score is ${number(score(MISREAD, distance), 2)} in place of ${number(score(DECLARED, distance), 2)}. Near tokens differ less: short tests can pass.`,
    shown: () => { distance = 1000; slider.place(distance); step.draw(); },
    plot: { height: 290, margin: { top: 34, right: 16, bottom: 42, left: 44 }, label: "The score by distance for the declared base and for the one that is read" },
  });
  const { plot } = step;
  const slider = lessonSlider("Distance", { min: 1, max: SERVED, value: distance, log: true, words: (at) => number(at) }, (at) => { distance = at; step.draw(); });
  step.paint = () => {
    const { left, right, top, bottom } = plot.inner, across = d3.scaleLog([1, SERVED], [left, right]), up = d3.scaleLinear([-0.2, 1], [bottom, top]);
    const places = [...Array.from({ length: 480 }, (_, place) => SERVED ** (place / 479)), distance].sort((one, two) => one - two);
    const curve = (ladder) => places.map((at) => [across(at), up(score(ladder, at))]);
    plot.clear().axes(across, up, "distance (tokens)", "", { xFormat: "~s" });
    plot.ink.append(svg("text", { x: 0, y: 14 }, "score, as a part of that at distance 0"), line(curve(DECLARED), { class: "score" }), line(curve(MISREAD), { class: "score wrong" }),
      ...[[DECLARED, "here"], [MISREAD, "here wrong"]].map(([ladder, kind]) => svg("circle", { class: kind, cx: across(distance), cy: up(score(ladder, distance)), r: 6 })),
      svg("text", { class: "where", x: right, y: up(0.86), "text-anchor": "end" }, `base ${number(DECLARED_BASE)}, as trained`),
      svg("text", { class: "where wrong", x: left + 8, y: up(0.05) }, `base ${number(READ_BASE)}, as read`));
  };
  step.controls.append(slider.element);
  return step;
}
