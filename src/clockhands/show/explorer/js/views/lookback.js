// A head built by hand: can one matrix look back?

import { slider } from "../controls.js";
import { Plot, html, line, number, say, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { DEVIATIONS, LOOKED_AT, largestAt, lookingBackInParts } from "../lookback.js";
import { tokenWords } from "./ladder.js";

const TEXTS_DRAWN = 4;
const FARTHEST_BACK = 100;
const HEAD_REDRAWS = ["code", "width", "base", "span", "shift", "seed", "length"];

export const lookback = {
  id: "lookback",
  question: "Can one matrix look back?",
  mount(section, app) {
    section.controls.append(
      slider(app, "shift", "Look back", { min: 1, max: FARTHEST_BACK, unit: "tokens" }).element,
      slider(app, "deviation", "Token deviation", { min: 0, max: 1.5, step: 0.05 }).element,
      slider(app, "seed", "Random text, number", { min: 0, max: 999 }).element);
    const margin = { top: 34, right: 24, bottom: 42, left: 50 };
    const shares = new Plot(section.figure, { height: 250, margin, label: "Queries that find the right token, in per cent, against the deviation of the token vectors" });
    const words = section.figure.appendChild(html("p", { class: "says" }));
    const scores = new Plot(section.figure, { height: 220, margin, label: "The scores of one query with every key" });
    let made = null;
    const take = (event) => {
      if (!made || !(event.buttons & 1)) return;
      const x = acrossOf(shares), box = shares.element.getBoundingClientRect();
      app.store.set({ deviation: x.invert(event.clientX - box.left) });
    };
    shares.element.addEventListener("pointerdown", (event) => { shares.element.setPointerCapture(event.pointerId); take(event); });
    shares.element.addEventListener("pointermove", take);
    shares.element.classList.add("draggable");

    // What is on the page stays whole until all of the next is there.
    const draw = function* (state) {
      const back = Math.min(Math.max(state.shift, 1), FARTHEST_BACK), length = Math.min(LOOKED_AT, state.length), shown = Math.floor((length + back) / 2), ladder = app.ladder(state);
      const key = [state.code, state.width, state.base, state.span, back, state.seed, length].join(" ");
      if (back >= length) {
        made = null;
        for (const plot of [shares, scores]) plot.clear();
        say(words, "");
        section.answer(`A text of ${tokenWords(length)} has no token ${number(back)} back: look back less far, or choose a larger length.`);
        return;
      }
      if (made?.key !== key) made = { key, back, shown, length, pairs: ladder.pairs, ...(yield* lookingBackInParts(ladder, { back, seed: state.seed, texts: TEXTS_DRAWN, shown, length })) };
      point(app.store.state);
    };
    const point = (state) => {
      const at = DEVIATIONS.indexOf(state.deviation);
      drawShares(shares, made, at);
      const found = drawScores(scores, made, DEVIATIONS[at]);
      section.answer(saidOfLooking(made, at, app.whyNoShift(state), app.given(state).type === "Rotary"));
      say(words, saidOfScores(made, found, DEVIATIONS[at]));
    };
    const follow = whenIdle(() => draw(app.store.state), section.element);
    return (state, changed) => {
      if (changed.size === Object.keys(state).length) {
        for (const plot of [shares, scores]) plot.measure();
        follow.now();
      } else if (HEAD_REDRAWS.some((name) => changed.has(name))) {
        follow();
      } else if (changed.has("deviation") && made) {
        point(state);
      }
    };
  },
};

function acrossOf(plot) {
  return d3.scaleLinear([0, DEVIATIONS.at(-1)], [plot.inner.left, plot.inner.right]);
}

function drawShares(plot, made, at) {
  plot.clear();
  const { top, bottom } = plot.inner, x = acrossOf(plot), y = d3.scaleLinear([0, 100], [bottom, top]);
  plot.axes(x, y, "token deviation in each dimension", "", { xTicks: 6, yTicks: 5 });
  plot.ink.append(
    svg("text", { class: "name", x: 0, y: 14 }, `queries that find the token ${number(made.back)} back (%)`),
    line(made.right.map((share, place) => [x(DEVIATIONS[place]), y(100 * share)]), { class: "likeness" }));
  const share = made.right[at], late = at > DEVIATIONS.length / 2;
  const [cx, cy] = [x(DEVIATIONS[at]), y(100 * share)];
  plot.ink.append(
    svg("line", { class: "shift-before", x1: cx, x2: cx, y1: bottom, y2: cy }),
    svg("circle", { class: "tip", cx, cy, r: 5, "data-deviation": DEVIATIONS[at], "data-right": share }),
    svg("text", { class: "halo strong", x: cx + (late ? -9 : 9), y: Math.max(cy - 9, top + 4), "text-anchor": late ? "end" : "start" }, `${number(100 * share, 3)}\u2009% at ${number(DEVIATIONS[at])}`));
}

// The scores of a query in the middle; which key has the largest, and whether it is the right one.
function drawScores(plot, made, deviation) {
  plot.clear();
  const { left, top, right, bottom } = plot.inner, values = made.scores(deviation), wanted = made.shown - made.back, best = largestAt(values);
  const x = d3.scaleLinear([0, made.length - 1], [left, right]), y = d3.scaleLinear(d3.extent(values), [bottom, top]).nice();
  plot.axes(x, y, "key (token)", "", { xTicks: plot.width > 560 ? 10 : 5, yTicks: 4 });
  plot.ink.append(
    svg("text", { class: "name", x: 0, y: 14 }, `scores of the query at ${number(made.shown)}`),
    line(Array.from(values, (value, key) => [x(key), y(value)]), { class: "likeness likeness-beside" }),
    svg("circle", { class: "tip", cx: x(wanted), cy: y(values[wanted]), r: 5, "data-wanted": wanted }));
  if (best !== wanted) plot.ink.append(svg("circle", { class: "tip-drawn", cx: x(best), cy: y(values[best]), r: 4, "data-best": best }));
  const late = wanted > made.length / 2;
  plot.ink.append(svg("text", { class: "halo strong", x: x(wanted) + (late ? -9 : 9), y: y(values[wanted]) + 4, "text-anchor": late ? "end" : "start" }, `${number(made.back)} back`));
  return { wanted, best, above: values.reduce((count, value) => count + (value > values[wanted]), 0) };
}

function saidOfLooking(made, at, without, rotary) {
  const percent = (place) => `${number(100 * made.right[place], 3)}\u2009%`, far = tokenWords(made.back);
  const own = without === null ? "" : ` This encoding has no such matrix: ${without}; the numbers are those of its hands alone.`;
  return `${without === null ? "Yes" : "With its hands alone"}, as long as the words’ own numbers are small beside the position’s. Each token has two vectors of numbers: a query, with which it looks, and a key, by which it is found; their product is a score. ` +
    `One matrix rotates every query ${far} back, onto that key. ` +
    `Of ${number(made.queries)} queries in random texts of ${number(made.length)} tokens, ${percent(0)} find that token if there is nothing but positions, and ` +
    `${percent(at)} if words whose numbers have a deviation (a typical size) of ${number(DEVIATIONS[at])} are added. With positions alone the right score is ${number(made.largest)}, and the next best is only ${number(made.margin, 4)} below it.${own}` +
    (rotary ? " The chosen encoding rotates queries and keys and adds nothing; here its sines and cosines are added." : "");
}

function saidOfScores(made, { wanted, best, above }, deviation) {
  const first = `Below, the query at ${number(made.shown)} should find the key at ${number(wanted)}. `;
  if (best === wanted) return `${first}It does.`;
  return `${first}With a deviation of ${number(deviation)} it finds the key at ${number(best)}: ${number(above)} of ${number(made.length)} scores are larger than the right one.`;
}
