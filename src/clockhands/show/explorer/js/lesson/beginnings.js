// The steps on the problem: attention does not see order, and a plain count does not help it.

import { attentionOf, drawnWeights, wordVectors } from "../attention.js";
import { button } from "../controls.js";
import { css, diverging } from "../colours.js";
import { number, svg } from "../draw.js";
import { lessonSlider, lessonStep } from "./frame.js";

const SHUFFLED_WIDTH = 32;

// Without a code the rows and columns of attention only change places.
export function shuffleStep(words) {
  let order = words().map((_, place) => place);
  const step = lessonStep({
    id: "order", title: "Shuffle your words",
    words: "Attention with no positions: how much each word (row) looks at each other.",
    question: "Shuffle the words. What changes?",
    options: ["who looks at whom", "only the order"], right: 1,
    answer: () => `Each looks at each other exactly as before: the largest difference is ${number(worst, 2)}. The order is lost.`,
    shown: () => { if (order.every((each, place) => each === place)) shuffle(); },
    plot: { height: 300, margin: { top: 92, right: 40, bottom: 8, left: 96 }, label: "Attention of each word to each other word, as typed and shuffled" },
  });
  const { plot } = step;
  let worst = 0;
  const shuffle = () => {
    // The first word goes to the end and the rest is turned round: every word of three and more stands elsewhere.
    order = order.length > 3 ? [...order.slice(2).reverse(), order[0], order[1]] : [...order].reverse();
    step.draw();
  };
  step.paint = () => {
    const typed = words();
    if (order.length !== typed.length) order = typed.map((_, place) => place);
    const seen = weightsOf(typed), mixed = order.map((place) => typed[place]), again = weightsOf(mixed);
    worst = Math.max(0, ...order.flatMap((from, row) => order.map((to, column) => Math.abs(again[row][column] - seen[from][to]))));
    const narrow = plot.width < 560, { left, top } = plot.inner;
    const side = Math.min(40, (narrow ? plot.width - left - 40 : (plot.width - left - 110) / 2 - 24) / Math.max(typed.length, 1));
    const panels = narrow ? [[left, top, mixed, again]] : [[left, top, typed, seen], [left + side * typed.length + 110, top, mixed, again]];
    plot.resize(top + side * Math.max(typed.length, 3) + 8);
    plot.clear().ink.append(...panels.map(([x, y, names, rows], panel) => svg("g", {},
      svg("text", { class: "title", x, y: 16 }, panel === 0 && !narrow ? "as typed" : same(order) ? "as typed" : "shuffled"),
      names.map((name, at) => svg("text", { transform: `translate(${x + side * (at + 0.5)} ${y - 8}) rotate(-40)` }, shortened(name))),
      rows.flatMap((row, at) => [svg("text", { x: x - 6, y: y + side * (at + 0.5) + 4, "text-anchor": "end" }, shortened(names[at])),
        ...Array.from(row, (weight, other) => svg("rect", { x: x + side * other, y: y + side * at, width: side - 1, height: side - 1, fill: css(diverging(weight)) }))]))));
  };
  step.controls.append(button("Shuffle", shuffle));
  return step;
}

function same(order) {
  return order.every((each, place) => each === place);
}

function shortened(word) {
  return [...word].length > 11 ? `${[...word].slice(0, 10).join("")}…` : word;
}

function weightsOf(words) {
  return attentionOf(wordVectors(words, { width: SHUFFLED_WIDTH }), drawnWeights(0, { heads: 1, width: SHUFFLED_WIDTH })).weights[0];
}

// A word's numbers, and the same with the position added to each.
export function countStep(words) {
  let position = 7;
  const step = lessonStep({
    id: "count", title: "Count, and drown",
    words: "First idea: add the position, 0, 1, 2, …, to every number of the word.",
    question: "At position 500, how much of the sum is still the word?",
    options: ["about half", "almost nothing"], right: 1,
    answer: () => `At position ${number(position)} the word is ${number(100 * share(), 2)} % of the sum: all words look alike.`,
    shown: () => move(500),
    plot: { height: 240, margin: { top: 28, right: 8, bottom: 24, left: 8 }, label: "The sixteen numbers of two words, with their position added" },
  });
  const { plot } = step;
  const slider = lessonSlider("Position", { min: 0, max: 1000, value: position }, (at) => { position = at; step.draw(); });
  const move = (at) => { slider.place(at); position = at; step.draw(); };
  const share = () => {
    const [vector] = wordVectors(words().slice(0, 1), { width: 16 }), size = (vector ?? []).reduce((sum, each) => sum + Math.abs(each), 0);
    return size === 0 ? 0 : size / (size + 16 * position); // an empty sentence has no word
  };
  step.paint = () => {
    const shown = [...new Set(words())].slice(0, 2), vectors = wordVectors(shown, { width: 16 }), { top, bottom } = plot.inner;
    const across = plot.width / Math.max(shown.length, 1), bar = (across - 28) / 16;
    const most = Math.max(3, ...vectors.flatMap((vector) => Array.from(vector, (each) => Math.abs(each + position))));
    const y = (value) => bottom - ((value + 3) / (most + 3)) * (bottom - top);
    plot.clear().ink.append(...shown.map((word, place) => svg("g", {},
      svg("text", { class: "title", x: place * across + 6, y: 16 }, `${shortened(word)} + ${number(position)}`),
      svg("line", { class: "zero", x1: place * across + 6, x2: (place + 1) * across - 16, y1: y(0), y2: y(0) }),
      Array.from(vectors[place], (each, at) => {
        const value = each + position, from = y(Math.max(value, 0)), to = y(Math.min(value, 0));
        return svg("rect", { class: "column", x: place * across + 6 + at * bar, width: Math.max(bar - 2, 1), y: from, height: Math.max(to - from, 1) });
      }))));
  };
  step.controls.append(slider.element);
  return step;
}
