// Shift is rotation: what does "three further" do?

import { warpPosition } from "../codes.js";
import { choice, slider } from "../controls.js";
import { Plot, html, line, number, put, refill, say, svg } from "../draw.js";
import { TURN, pairsToDraw, phaseAt } from "../ladders.js";
import { bestShift, missOfShift, warpedStep } from "../shifts.js";
import { decades } from "./ladder.js";

const CLOCKED = [["none", "p"], ["square", "p²"], ["log", "log p"], ["reciprocal", "1/p"]];
const STARTS_TRIED = 1024; // starts that one angle for all is asked of
const FAN_ARROWS = 36; // of them drawn in a fan
const LARGEST_WARPED = 2 ** 24; // the largest start whose square, and the angles of it, a double still holds
const FAN_REDRAWS = ["code", "width", "base", "span", "length", "shift", "warp", "pair"];
const SHIFT_REDRAWS = [...FAN_REDRAWS, "order", "start", "position"];

// An angle as it looks on the circle, from -pi to pi.
function onCircle(angle) {
  return angle - TURN * Math.round(angle / TURN);
}

// A point of a circle, counted against the clock from the right, as sine and cosine do.
function pointOn(x, y, radius, angle) {
  return [x + radius * Math.cos(angle), y - radius * Math.sin(angle)];
}

// An arrow along the circle from one angle, by so many radians; whole turns are left out, since nobody could see them.
function arcArrow(x, y, radius, from, turned, attributes) {
  const seen = turned % TURN;
  if (Math.abs(seen) * radius < 1.5) return null;
  const to = from + seen, way = Math.sign(seen);
  const head = Math.min(6, Math.abs(seen) * radius * 0.7), back = to - (way * head) / radius;
  const [x0, y0] = pointOn(x, y, radius, from), [x1, y1] = pointOn(x, y, radius, back);
  const arc = `M${x0},${y0}A${radius},${radius} 0 ${Math.abs(back - from) > Math.PI ? 1 : 0} ${way > 0 ? 0 : 1} ${x1},${y1}`;
  const tip = pointOn(x, y, radius, to), wings = [-1, 1].map((side) => pointOn(x, y, radius + side * head * 0.55, back));
  return svg("g", attributes,
    svg("path", { class: "shift-arc", d: arc }),
    svg("path", { class: "shift-head", d: `M${tip}L${wings[0]}L${wings[1]}Z` }));
}

// What a shift by k does to every hand of a ladder from two starts. By how much R_k of both rows misses the rows that stand
// there is asked of a code that has one.
function shiftedFrom(ladder, state, code) {
  const pairs = ladder.rates.length, k = state.shift;
  const starts = [state.start, state.position].map((from) => {
    const before = new Float64Array(pairs), after = new Float64Array(pairs), turned = new Float64Array(pairs);
    const [here, there] = [from, from + k].map((position) => warpPosition(state.warp, position));
    for (let pair = 0; pair < pairs; pair++) {
      before[pair] = phaseAt(ladder, pair, here);
      after[pair] = phaseAt(ladder, pair, there);
      turned[pair] = state.warp === "none" ? ladder.rates[pair] * k : warpedStep(ladder, pair, state.warp, from, k);
    }
    return { from, before, after, turned };
  });
  const rows = code === null ? [] : starts.flatMap(({ from }) => [from, from + k]);
  return {
    pairs, starts, largest: code === null ? null : Math.max(...starts.map(({ from }) => missOfShift(code, from, k))),
    zeros: [...new Set(rows)].filter((row) => code.zeroRows.has(row)),
  };
}

// Why a start cannot be shown, or null.
function noNumberThere(state) {
  const words = CLOCKED.find(([warp]) => warp === state.warp)[1];
  if (Math.max(state.start, state.position) + state.shift > Number.MAX_SAFE_INTEGER) return "Beyond 2⁵³ this page cannot distinguish neighbouring tokens: choose a smaller start.";
  if (state.warp === "none") return null;
  for (const from of [state.start, state.position]) {
    for (const position of [from, from + state.shift]) {
      if (state.warp !== "square" && position <= 0) return `${words} has no number at position ${number(position)}: choose starts above ${number(Math.max(0, -state.shift))}.`;
    }
    if (from > LARGEST_WARPED) return `Beyond position ${number(LARGEST_WARPED)} this page cannot count the rotations of ${words}: choose a smaller start.`;
  }
  return null;
}

export const shift = {
  id: "shift",
  question: "What does “three further” do to the numbers?",
  mount(section, app) {
    const first = slider(app, "start", "First start", { min: 0, max: app.store.state.length - 1, unit: "token" });
    const second = slider(app, "position", "Second start", { min: 0, max: app.store.state.length - 1, unit: "token" });
    section.controls.append(
      slider(app, "shift", "Further by k", { min: -256, max: 256, unit: "tokens" }).element,
      first.element, second.element,
      choice(app, "warp", "In place of p", CLOCKED.map(([warp, words]) => [warp, warp === "none" ? "p, the position itself" : words])).element);
    const faces = new Plot(section.figure, { height: 300, label: "Hands before and after the shift, from two starts" });
    // Hands can be chosen and drawn round: a group, since what stands inside an image cannot be reached by keyboard.
    faces.element.setAttribute("role", "group");
    faces.element.classList.add("shift-faces");
    const formula = html("p", { class: "formula" });
    section.figure.append(formula);
    const angles = new Plot(section.figure, { height: 230, margin: { top: 26, right: 16, bottom: 40, left: 64 }, label: "The angle by which the shift rotates each hand, from both starts" });
    const words = html("p", { class: "shift-fan-title" });
    const fans = html("div", { class: "shift-fans" });
    section.figure.append(words, fans);
    const each = CLOCKED.map(([warp, name]) => {
      const picture = svg("svg", { class: "shift-fan", width: 104, height: 104, viewBox: "-52 -52 104 104", "aria-hidden": "true" });
      const says = html("span", { class: "shift-fan-says" });
      const press = html("button", { type: "button", "data-warp": warp, onclick: () => app.store.set({ warp }) }, picture, html("span", { class: "shift-fan-name" }, name), says);
      fans.append(press);
      return { warp, picture, says, press };
    });

    let placed = [], held = null;
    dragHands(faces.element, app, () => placed, (face) => { held = face; }, () => held);
    faces.element.addEventListener("keydown", (event) => {
      const hand = event.target.getAttribute("data-hand");
      if (hand === null || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      app.store.set({ pair: parseInt(hand, 10) });
    });

    return (state, changed) => {
      if (!SHIFT_REDRAWS.some((name) => changed.has(name))) return;
      if (changed.has("length")) for (const control of [first, second]) control.limits(0, Math.max(state.length - 1, 1));
      if (changed.size === Object.keys(state).length) for (const plot of [faces, angles]) plot.measure();
      const ladder = app.ladder(state), without = app.whyNoShift(state), pair = Math.min(state.pair, ladder.rates.length - 1);
      const reason = noNumberThere(state);
      if (reason) {
        placed = [];
        put(faces.clear().element, { height: 0, viewBox: `0 0 ${faces.width} 0` });
        angles.clear();
        formula.replaceChildren();
        section.answer(reason);
      } else {
        const found = shiftedFrom(ladder, state, without === null && state.warp === "none" ? app.additive(state) : null);
        placed = drawShifted(faces, found, state, pair, app);
        drawTurned(angles, found, state, pair);
        refill(formula, (without === null && state.warp === "none" ? shiftEquations(ladder, state, pair) : []).map((text) => html("span", {}, text)));
        section.answer(saidOfShift(found, ladder, state, pair, without));
      }
      if (FAN_REDRAWS.some((name) => changed.has(name))) drawFans(each, ladder, state, pair, without);
      say(words, `With another number in place of p no one angle fits: pair ${pair} from every start`);
    };
  },
};

// Take a hand and turn it: k follows, to the nearest whole token.
function dragHands(element, app, faces, hold, heldNow) {
  const placeOf = (event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  element.addEventListener("pointerdown", (event) => {
    const [x, y] = placeOf(event);
    const face = faces().find((each) => Math.hypot(x - each.x, y - each.y) <= each.radius + 6);
    if (!face) return;
    app.store.set({ pair: face.pair });
    if (app.store.state.warp !== "none" || !face.rate) return;
    hold(face);
    element.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  element.addEventListener("pointermove", (event) => {
    const face = heldNow();
    if (!face) return;
    const [x, y] = placeOf(event), k = app.store.state.shift;
    const after = face.before + face.rate * k;
    app.store.set({ shift: Math.round(k + onCircle(Math.atan2(face.y - y, x - face.x) - after) / face.rate) });
  });
  for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, () => hold(null));
}

function drawShifted(plot, found, state, chosen, app) {
  const focused = plot.element.contains(document.activeElement) ? document.activeElement.getAttribute("data-hand") : null;
  plot.clear();
  const columns = Math.max(3, Math.min(10, Math.floor(plot.width / 106))), shown = pairsToDraw(found.pairs, chosen, columns);
  const size = Math.min(92, plot.width / columns - 8), across = plot.width / columns, radius = size / 2 - 4;
  const row = size + 44, head = 20;
  plot.height = head + 3 * row + 2;
  plot.element.setAttribute("height", plot.height);
  plot.element.setAttribute("viewBox", `0 0 ${plot.width} ${plot.height}`);
  const same = state.warp === "none", placed = [];
  const titles = [...found.starts.map(({ from }) => `from ${number(from)} to ${number(from + state.shift)}, in rad`),
    same ? "both arrows, laid on each other: the same" : "both arrows, laid on each other: they differ by"];
  titles.forEach((title, at) => plot.ink.append(svg("text", { class: "shift-title", x: 0, y: head + at * row + 13 }, title)));
  shown.forEach((pair, column) => {
    const x = (column + 0.5) * across;
    const [one, two] = found.starts;
    plot.ink.append(svg("text", { class: pair === chosen ? "strong" : "", x, y: 13, "text-anchor": "middle" }, `pair ${pair}`));
    [one, two].forEach((start, at) => {
      const y = head + at * row + 20 + size / 2;
      const face = { pair, x, y, radius, before: start.before[pair], rate: state.shift ? start.turned[pair] / state.shift : 0 };
      placed.push(face);
      plot.ink.append(svg("g", {
        class: pair === chosen ? "hand chosen" : "hand", tabindex: 0, role: "button", "data-hand": `${pair} ${at}`, "aria-pressed": String(pair === chosen),
        "aria-label": `Pair ${pair} from position ${start.from}, rotated by ${number(start.turned[pair], 3)} rad`,
      },
      svg("circle", { class: "face", cx: x, cy: y, r: radius }),
      armTo(x, y, radius, start.before[pair], "shift-before"),
      armTo(x, y, radius, start.after[pair], at ? "shift-after shift-second" : "shift-after"),
      arcArrow(x, y, radius * 0.66, start.before[pair], start.turned[pair], { class: at ? "shift-second" : "" }),
      svg("text", { x, y: y + size / 2 + 11, "text-anchor": "middle", "data-turned": start.turned[pair] }, number(start.turned[pair], 3))));
    });
    const y = head + 2 * row + 20 + size / 2, apart = Math.abs(onCircle(one.turned[pair] - two.turned[pair]));
    plot.ink.append(
      svg("circle", { class: "face", cx: x, cy: y, r: radius }),
      armTo(x, y, radius, 0, "shift-before"),
      ...[one, two].flatMap((start, at) => [
        armTo(x, y, radius, start.turned[pair], at ? "shift-after shift-second" : "shift-after"),
        arcArrow(x, y, radius * (at ? 0.8 : 0.56), 0, start.turned[pair], { class: at ? "shift-second" : "" }) ?? ""]),
      svg("text", { x, y: y + size / 2 + 11, "text-anchor": "middle", "data-apart": apart }, same ? "=" : number(apart, 3)));
  });
  if (focused) plot.settle().element.querySelector(`[data-hand="${focused}"]`)?.focus({ preventScroll: true });
  return placed;
}

function armTo(x, y, radius, angle, name) {
  const [x1, y1] = pointOn(x, y, radius, angle);
  return svg("line", { class: name, x1: x, y1: y, x2: x1, y2: y1 });
}

// All hands at once: the angle that the shift turns each by, from both starts.
function drawTurned(plot, found, state, chosen) {
  plot.clear();
  const { left, top, right, bottom } = plot.inner;
  const sizes = found.starts.map(({ turned }) => turned.map(Math.abs));
  const all = sizes.flatMap((each) => Array.from(each)).filter((size) => size > 0);
  if (!all.length) {
    plot.ink.append(svg("text", { x: left, y: top + 20 }, state.shift === 0 ? "k = 0: no rotation; R₀ leaves every row unchanged." : "No hand of this encoding rotates."));
    return;
  }
  const late = chosen > found.pairs / 2, x = d3.scaleLinear([0, Math.max(found.pairs - 1, 1)], [left, right]);
  const y = d3.scaleLog([Math.min(...all) / 1.6, Math.max(...all, TURN) * 1.6], [bottom, top]);
  plot.ink.append(
    svg("line", { class: "rule", x1: left, x2: right, y1: y(TURN), y2: y(TURN) }),
    svg("text", { class: "halo", x: right, y: y(TURN) - 5, "text-anchor": "end" }, "one rotation"),
    svg("line", { class: "rule", x1: x(chosen), x2: x(chosen), y1: top, y2: bottom }),
    svg("text", { class: "halo", x: x(chosen) + (late ? -5 : 5), y: late ? y(TURN) + 18 : bottom - 6, "text-anchor": late ? "end" : "start" }, `pair ${chosen}`));
  sizes.forEach((each, at) => {
    const points = Array.from(each, (size, pair) => [x(pair), y(size)]).filter((_, pair) => each[pair] > 0);
    plot.ink.append(points.length > 1 ? line(points, { class: at ? "shift-line shift-second" : "shift-line" }) : svg("circle", { class: "tip", cx: points[0][0], cy: points[0][1], r: 4 }));
  });
  const at = (share) => Math.floor(share * (found.pairs - 1)), same = state.warp === "none";
  const upper = sizes[0][at(0.5)] >= sizes[1][at(0.5)] ? 0 : 1;
  // A hand that stands still has no place on this axis.
  const over = (text, size) => size > 0 && plot.ink.append(svg("text", { class: "halo", x: x(at(0.22)) + 8, y: y(size) - 6 }, text));
  const under = (text, size) => size > 0 && plot.ink.append(svg("text", { class: "halo", x: x(at(0.5)) - 8, y: y(size) + 16, "text-anchor": "end" }, text));
  over(same ? "the same from both starts" : `from ${number(found.starts[upper].from)}`, sizes[upper][at(0.22)]);
  if (!same) under(`from ${number(found.starts[1 - upper].from)}`, sizes[1 - upper][at(0.5)]);
  const powers = decades(y.domain(), 5);
  plot.axes(x, y, "pair", "", { xTicks: Math.min(8, found.pairs), yValues: powers.length > 1 ? powers : null, yFormat: (value) => number(value, 1), xFormat: "d" });
  plot.ink.append(svg("text", { class: "name", x: 0, y: 14 }, "angle (rad), log"));
}

// What R_k says of the chosen pair, as equations with its own numbers; each stays on one line where there is room.
function shiftEquations(ladder, state, pair) {
  const k = state.shift, moved = `(p ${k < 0 ? "−" : "+"} ${number(Math.abs(k))})ω`;
  const angle = phaseAt(ladder, pair, k), a = Math.cos(angle), b = Math.sin(angle);
  const first = (value) => `${value < 0 ? "−" : ""}${number(Math.abs(value), 4)}`, next = (value) => `${value < 0 ? "−" : "+"} ${number(Math.abs(value), 4)}`;
  return [
    `R${subscripted(k)} on pair ${pair} (ω = ${number(ladder.rates[pair], 4)} rad/token), for every p:`,
    `sin ${moved} = ${first(a)} sin pω ${next(b)} cos pω`,
    `cos ${moved} = ${first(-b)} sin pω ${next(a)} cos pω`,
  ];
}

function subscripted(k) {
  return String(k).replace(/[0-9]/g, (digit) => String.fromCharCode(0x2080 + Number(digit))).replace("-", "₋");
}

function saidOfShift(found, ladder, state, pair, without) {
  const k = state.shift, far = `${number(Math.abs(k))} ${Math.abs(k) === 1 ? "token" : "tokens"} ${k < 0 ? "back" : "further"}`;
  const [one, two] = found.starts, turns = [one, two].map(({ turned }) => number(turned[pair], 4));
  if (k === 0) return "With k = 0 nothing rotates: R₀ leaves every row unchanged. Drag k, or rotate a hand.";
  if (state.warp === "none") {
    return `It rotates every hand by an angle of its own, the same wherever one starts. ${far} rotates pair ${pair} by ${turns[0]} rad from position ${number(one.from)} and by ${turns[1]} rad from position ${number(two.from)}: ` +
      "k times its frequency. " +
      (without !== null ? `But no single rotation is a shift of this encoding: ${without}.`
        : found.zeros.length ? `So one matrix, R${subscripted(k)}, moves every row but row ${found.zeros.map((row) => number(row)).join(" and row ")}, which is all zeros: there it is off by ${number(found.largest, 2)}.`
          : `So one matrix, R${subscripted(k)}, makes the row ${far} from any row: from both of these within ${number(found.largest, 2)}, on all ${2 * found.pairs} dimensions.`);
  }
  const words = CLOCKED.find(([warp]) => warp === state.warp)[1];
  const apart = Math.abs(onCircle(one.turned[pair] - two.turned[pair]));
  const best = bestForAll(ladder, pair, state.warp, state);
  return `With ${words} in place of p, ${far} rotates pair ${pair} by ${turns[0]} rad from position ${number(one.from)} but by ${turns[1]} rad from ` +
    `position ${number(two.from)}: on the circle the arrows are ${number(apart, 3)} rad apart. The one angle that is nearest on average for starts ` +
    `from ${number(best.from)} to ${number(best.to)} still misses by up to ${number(best.degrees, 3)}°, so there is no R${subscripted(k)}.`;
}

// The one angle that serves all starts best on average, and by how many degrees it misses where it is worst.
function bestForAll(ladder, pair, warp, state) {
  const k = state.shift, from = Math.max(1, 1 - k), to = Math.max(from, Math.min(state.length, STARTS_TRIED) - 1 - Math.max(k, 0));
  const { angle, largest } = bestShift(ladder, pair, warp, k, from, to);
  return { from, to, angle, degrees: (2 * Math.asin(Math.min(largest / 2, 1)) * 180) / Math.PI };
}

function drawFans(each, ladder, state, pair, without) {
  for (const { warp, picture, says, press } of each) {
    const { from, to, degrees } = bestForAll(ladder, pair, warp, state);
    const starts = new Set(Array.from({ length: FAN_ARROWS }, (_, place) => Math.round(from * Math.pow(to / from, place / (FAN_ARROWS - 1)))));
    const arms = Array.from(starts, (start) => `M0,0L${pointOn(0, 0, 46, warpedStep(ladder, pair, warp, start, state.shift)).map((at) => at.toFixed(2))}`);
    refill(picture, [svg("circle", { class: "face", r: 46 }), armTo(0, 0, 46, 0, "shift-before"), svg("path", { class: "shift-fan-arm", d: arms.join("") })]);
    say(says, warp === "none" ? `one arrow${without === null ? ": R\u2096 exists" : " from every start"}` : `misses by up to ${number(degrees, 3)}°`);
    put(says, { "data-degrees": degrees });
    put(press, { "aria-pressed": state.warp === warp });
  }
}
