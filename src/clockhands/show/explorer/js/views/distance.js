// The kernel: what does a dot product know?

import { additiveCode, naiveSpec } from "../codes.js";
import { choice, slider } from "../controls.js";
import { Plot, html, number, pathOfColumns, say, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { firstNegative, firstRise, kernelBound, kernelInParts } from "../kernels.js";
import { Labels } from "../labels.js";
import { geometricLadder } from "../ladders.js";
import { drawnHead } from "../rotary.js";

const KERNEL_REDRAWS = ["code", "width", "base", "length", "served", "other", "span", "seed"];
const FARTHEST = 131072; // tokens; more could not be followed by hand
const NAMED = [0.5, 0.36, 0.64, 0.22, 0.78]; // of the way across, where the lines may have their names
const FARTHER = [0, 16, 32]; // px that a name gives way, into its line, where its place is taken
const POLES = [24, 40, 56, 72, 88]; // px from a mark to the words about it
// Ladders to compare with that no preset has, of the same width.
const LADDERS_BESIDE = [["even", "evenly spaced frequencies"], ["single", "one frequency"], ["base100", "base 100"], ["base1000000", `base ${number(1e6)}`]];

// The ladder of the second code, with the words for it; null for none.
export function ladderBeside(app, state) {
  const own = LADDERS_BESIDE.find(([name]) => name === state.other);
  if (own && state.other.startsWith("base")) return { name: own[1], ladder: geometricLadder(state.width / 2, state.width, Number(state.other.slice(4))) };
  if (own) return { name: own[1], ladder: additiveCode(naiveSpec(state.other, state.width, { base: state.base })).ladder };
  const ladder = app.ladderNamed(state.other);
  return ladder && { name: nameOfCode(app, state.other), ladder, without: app.whyNoShiftNamed(state.other) };
}

export function nameOfCode(app, name) {
  return app.data.codes[name].model ? app.data.codes[name].says : name;
}

function ownName(app, state) {
  if (state.code === "custom") return "this encoding";
  return `${nameOfCode(app, state.code)}${app.code(state).published ? `, width ${state.width}` : ""}`;
}

// What an encoding can be compared with.
export function besideOptions(app) {
  return [["", "nothing"], ...LADDERS_BESIDE, ...Object.keys(app.data.codes).map((name) => [name, nameOfCode(app, name)])];
}

// A kernel as a share of a row's likeness to itself, and what is worth marking on it.
function* likenessOf(name, ladder, length) {
  const values = yield* kernelInParts(ladder, length), error = kernelBound(ladder.pairs);
  const rise = firstRise(values, error), below = firstNegative(values, error), pairs = ladder.pairs;
  return { name, rise, below, at: (distance) => values[distance] / pairs, shares: values.map((value) => value / pairs) };
}

// The score of a drawn query and key in a rotary head, as a share of the product of their lengths.
function* scoresOf(head, seed, length) {
  const { query, key } = drawnHead(seed, head.spec.head_width), size = Math.hypot(...query) * Math.hypot(...key);
  const scores = yield* head.scoresInParts(query, key, length);
  return { shares: scores.map((score) => score / size), at: (distance) => head.score(query, key, distance) / size, channels: query.length };
}

export const distance = {
  id: "distance",
  question: "What can be read by comparing two positions?",
  mount(section, app) {
    const other = choice(app, "other", "Compare with", besideOptions(app)).element, list = other.querySelector("select");
    app.onModels(() => {
      list.replaceChildren(...besideOptions(app).map(([value, words]) => html("option", { value }, words)));
      list.value = app.store.state.other;
    });
    section.controls.append(
      slider(app, "shift", "Distance", { min: -4096, max: 4096, unit: "tokens" }).element,
      other,
      slider(app, "seed", "Random query, key", { min: 0, max: 999 }).element,
      slider(app, "served", "Served length", { min: 2, max: FARTHEST, scale: "log", unit: "tokens" }).element);
    const plot = new Plot(section.figure, { height: 336, margin: { top: 46, right: 24, bottom: 42, left: 50 }, label: "The dot product of two rows against their distance, for two encodings" });
    section.figure.append(html("p", { class: "key" },
      html("span", {}, keyed(svg("circle", { class: "mark-rise", cx: 7, cy: 7, r: 5 })), "first rise"),
      html("span", {}, keyed(svg("path", { class: "mark-below", d: "M2,2H12L7,12Z" })), "first below zero"),
      html("span", {}, keyed(svg("path", { class: "likeness likeness-drawn", d: "M1,7H13" })), "a random query, key")));
    const ofHead = section.figure.appendChild(html("p", { class: "says" }));
    let axes = null;
    let made = {};
    const take = (event) => {
      if (!axes || !(event.buttons & 1)) return;
      const box = plot.element.getBoundingClientRect();
      app.store.set({ shift: Math.max(1, Math.round(axes.x.invert(event.clientX - box.left))) });
    };
    plot.element.addEventListener("pointerdown", (event) => { plot.element.setPointerCapture(event.pointerId); take(event); });
    plot.element.addEventListener("pointermove", take);
    plot.element.classList.add("draggable");

    // What is on the page stays whole until all of the next is there.
    const draw = function* (state) {
      const length = Math.min(Math.max(state.served, 2), FARTHEST) + 1, next = { ...made };
      next.key = [state.code, state.kind, state.width, state.base, state.span, length].join(" ");
      next.besideKey = [state.other, state.width, state.base, length].join(" ");
      if (next.key !== made.key) next.own = yield* likenessOf(ownName(app, state), app.ladder(state), length);
      next.headKey = `${next.key} ${state.seed}`;
      if (next.headKey !== made.headKey) next.head = yield* scoresOf(app.head(state), state.seed, length);
      next.without = app.whyNoShift(state);
      next.scaled = app.given(state).type === "Rotary" && app.head(state).spec.xpos !== null;
      if (next.besideKey !== made.besideKey) {
        const beside = ladderBeside(app, state);
        next.beside = beside && { ...(yield* likenessOf(beside.name, beside.ladder, length)), without: beside.without ?? null };
      }
      made = next;
      axes = drawKernels(plot, made, state, length);
      point(app.store.state);
    };
    const point = (state) => {
      pointAt(plot, made, state, axes);
      section.answer(saidOfKernel(made, state, made.own.shares.length - 1));
      say(ofHead, saidOfHead(made.head, state));
    };
    // Two kernels of some thousand distances: while a slider is dragged they follow when there is time.
    const follow = whenIdle(() => draw(app.store.state), section.element);
    return (state, changed) => {
      if (changed.size === Object.keys(state).length) {
        plot.measure();
        follow.now();
      } else if (KERNEL_REDRAWS.some((name) => changed.has(name))) {
        follow();
      } else if (changed.has("shift") && axes) {
        point(state);
      }
    };
  },
};

function keyed(mark) {
  return svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, mark);
}

function drawKernels(plot, { own, beside, head, without }, state, length) {
  plot.clear();
  const { left, top, right, bottom } = plot.inner, wide = plot.width > 560;
  const least = Math.min(beside ? -0.3 : -0.12, ...[own, beside, head].filter(Boolean).map(({ shares }) => shares.reduce((a, b) => Math.min(a, b), 0)));
  const x = d3.scaleLog([1, Math.max(length - 1, 2)], [left, right]), y = d3.scaleLinear([least - 0.1, 1], [bottom, top]);
  plot.axes(x, y, "distance (token), log", "", { xTicks: wide ? 8 : 4, yTicks: 5, xFormat: (value) => number(value) });
  plot.ink.append(
    svg("text", { class: "name", x: 0, y: 14 }, `similarity${without === null ? "" : " of its pairs alone"}, relative to distance 0`),
    svg("line", { class: "zero", x1: left, x2: right, y1: y(0), y2: y(0) }));
  plot.ink.append(svg("path", { class: "likeness likeness-drawn", d: pathOfColumns(head.shares, x, y, 1) }));
  if (beside) plot.ink.append(svg("path", { class: "likeness likeness-beside", d: pathOfColumns(beside.shares, x, y, 1) }));
  plot.ink.append(svg("path", { class: "likeness", d: pathOfColumns(own.shares, x, y, 1) }));
  const lines = new Map([own, beside].filter(Boolean).map((each) => [each, columnsOfLine(each.shares, x, y, left, right)]));
  const labels = new Labels({ left, top, right, bottom }, [...lines.values()]);
  let up = true;
  if (beside) {
    const k = Math.round(x.invert(left + NAMED[0] * (right - left)));
    up = own.at(k) >= beside.at(k);
    markKernel(plot, labels, beside, x, y, " beside-it", !up);
  }
  markKernel(plot, labels, own, x, y, "", up);
  if (beside) for (const [each, over] of [[beside, !up], [own, up]]) nameKernel(plot, labels, each.name, lines.get(each), over);
  if (state.length < length - 1 && state.length > 1) {
    plot.ink.append(
      svg("line", { class: "rule", x1: x(state.length), x2: x(state.length), y1: top - 4, y2: bottom }),
      svg("text", { x: x(state.length), y: top - 9, "text-anchor": x(state.length) > right - 40 ? "end" : x(state.length) < left + 40 ? "start" : "middle" }, `${wide ? "trained length" : "length"} ${number(state.length)}`));
  }
  return { x, y, up, labels, marks: plot.settle().element.appendChild(svg("g")) };
}

// The likeness at the distance that is pointed at.
function pointAt(plot, { own, head }, state, { x, y, up, labels, marks }) {
  marks.replaceChildren();
  const k = Math.abs(state.shift);
  if (k >= 1 && k < own.shares.length) {
    const cx = x(k), cy = y(own.at(k)), text = `${number(own.at(k), 3)} at ${number(k)}`;
    const seats = (up ? [-7, 20, -24, 37] : [20, -7, 37, -24]).flatMap((by) => [{ x: cx + 9, y: cy + by, anchor: "start" }, { x: cx - 9, y: cy + by, anchor: "end" }]);
    const { anchor, ...place } = labels.seat(text, seats, false);
    marks.append(
      svg("line", { class: "shift-before", x1: cx, x2: cx, y1: y(0), y2: cy }),
      svg("circle", { class: "tip-drawn", cx, cy: y(head.shares[k]), r: 3, "data-score": head.shares[k] }),
      svg("circle", { class: "tip", cx, cy, r: 5, "data-distance": k, "data-share": own.at(k) }),
      svg("text", { class: "halo strong", ...place, "text-anchor": anchor }, text));
  }
}

// The lowest and the highest place of a line in each column of pixels, as `Labels` takes them.
function columnsOfLine(shares, x, y, left, right) {
  const count = Math.max(1, Math.ceil(right - left)), least = new Float32Array(count), most = new Float32Array(count), last = shares.length - 1;
  const at = (k) => y(shares[Math.min(Math.max(k, 1), last)]);
  for (let column = 0; column < count; column++) {
    const [from, to] = [x.invert(left + column), x.invert(left + column + 1)];
    // Where no distance lies in the column the line is on its way from one to the next.
    let low = -Infinity, high = Infinity;
    if (Math.ceil(from) > Math.floor(to)) {
      const before = Math.floor(from), part = Math.sqrt(from * to) - before, height = at(before) + (at(before + 1) - at(before)) * part;
      low = high = height;
    }
    for (let k = Math.ceil(from); k <= to; k++) {
      const height = at(k);
      if (height > low) low = height;
      if (height < high) high = height;
    }
    [least[column], most[column]] = [low, high];
  }
  return [least, most];
}

// The two marks, each with its number as a flag on a pole: above the upper line and below the lower where there is room.
function markKernel(plot, labels, { rise, below, at }, x, y, second, up) {
  const marks = [[rise || null, "rises from", "mark-rise"], [below, "below 0 from", "mark-below"]].filter(([place]) => place !== null);
  for (const [place, words, name] of marks.sort(([a], [b]) => b - a)) {
    const [cx, cy] = [x(place), y(at(place))], text = `${words} ${number(place)}`;
    const seats = [up ? -1 : 1, up ? 1 : -1].flatMap((side) => POLES.flatMap((far) => ["start", "end"].map((anchor) => ({
      x: cx + (anchor === "end" ? -5 : 5), y: cy + side * far + (side < 0 ? 0 : 8), anchor, pole: [cx, cy + 7 * side, cy + side * far + (side < 0 ? -9 : 8)],
    }))));
    const { pole, anchor, ...seat } = labels.seat(text, seats);
    plot.ink.append(
      svg("line", { class: `likeness-leader${second}`, x1: cx, x2: cx, y1: pole[1], y2: pole[2] }),
      name === "mark-rise" ? svg("circle", { class: name + second, cx, cy, r: 5, "data-rise": place })
        : svg("path", { class: name + second, d: `M${cx - 6},${cy - 6}H${cx + 6}L${cx},${cy + 5}Z`, "data-below": place }),
      svg("text", { class: second ? "halo" : "halo strong", ...seat, "text-anchor": anchor }, text));
  }
}

// A code's name beside its line, on the side that is free of the other's where there is one.
function nameKernel(plot, labels, name, [least, most], over) {
  const { left, top, right, bottom } = plot.inner, wide = 7 * name.length;
  const seats = FARTHER.flatMap((far) => [over, !over].flatMap((above) => NAMED.map((share) => {
    const from = Math.max(0, Math.min(Math.round(share * (right - left)), Math.floor(right - left - wide))), near = [from, from + wide];
    const height = above ? most.slice(...near).reduce((a, b) => Math.min(a, b), Infinity) - 9 : least.slice(...near).reduce((a, b) => Math.max(a, b), -Infinity) + 17;
    return { x: left + from, y: Math.min(Math.max(height, top + 12), bottom - 5) + (above ? far : -far), anchor: "start" };
  })));
  const { x, y } = labels.seat(name, seats);
  plot.ink.append(svg("text", { class: "halo name-of", x, y }, name));
}

function saidOfKernel({ own, beside, without, scaled }, state, farthest) {
  const k = Math.abs(state.shift), tokens = `${number(k)} ${k === 1 ? "token" : "tokens"}`, compared = "Attention compares two rows by their dot product: multiply them number by number, and add up.";
  const known = k > farthest ? "The product" : k === 0 ? "At distance 0 a row is compared with itself, which gives 1; the product" : `A row ${tokens} ahead and one ${tokens} behind both give ${number(own.at(k), 3)} of what a row gives with itself: the product`;
  const fall = (of) => (of.rise === null ? `only falls up to ${number(farthest)}` : of.rise === 0 ? "rises at once" : `falls to distance ${number(of.rise)} and then rises`);
  const sink = (of) => (of.below === null ? `is nowhere below 0 up to ${number(farthest)}` : `is first below 0 at ${number(of.below)}`);
  const second = beside ? ` With ${beside.without === null ? beside.name : `the hands of ${beside.name}, which has no kernel,`} it ${fall(beside)}, and ${sink(beside)}.` : "";
  if (without !== null) {
    return `${compared} Here that says more than the distance: its rows have no kernel (no dot product that depends on the distance alone), since ${without}. The line shows only the sines and cosines of its pairs` +
      `${k === 0 || k > farthest ? "" : `, ${number(own.at(k), 3)} of a row with itself at ${tokens}`}: it ${fall(own)}, and it ${sink(own)}.${second}` +
      (scaled ? " The score of a query with a key depends on the distance alone nevertheless, since keys shrink with the position where queries grow." : "");
  }
  return `How far apart they are, roughly; not which of them comes first. ${compared} ${known} is the same from any start and in both directions. It ${fall(own)}` +
    `, and it ${sink(own)}; distances are shown to ${number(farthest)}, ${farthest < state.served ? "the farthest that this page draws" : "the served length (how many tokens the model is used with)"}.${second}`;
}

function saidOfHead(head, state) {
  const k = Math.abs(state.shift), tokens = `${number(k)} ${k === 1 ? "token" : "tokens"}`;
  const told = k === 0 ? `${number(head.at(0), 3)} at one position` : `${number(head.at(k), 3)} with the key ${tokens} behind the query, and ${number(head.at(-k), 3)} with it as far ahead`;
  return `The thin line, of a query and a key of ${number(head.channels)} random values with RoPE, over the product of their lengths, is ${told}.`;
}
