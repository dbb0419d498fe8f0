// One pair: why two waves?

import { heldWaves } from "../codes.js";
import { slider } from "../controls.js";
import { Plot, html, line, number, put, refill, say, svg, unlessKept } from "../draw.js";
import { TURN, phaseAt, wavelength } from "../ladders.js";
import { stepKeys, turnable } from "./clock.js";

const SAMPLES = 240; // points of a curve
const FAR_OUT = 1e6; // the position from which on labels say only how much further
const FAR_ROWS = 1e9; // and those of the table
const MOST_DOTS = 64; // tokens that are dots of their own

export const pair = {
  id: "pair",
  question: "Why sine and cosine?",
  mount(section, app) {
    const { store } = app;
    const which = slider(app, "pair", "Pair", { min: 0, max: Math.max(store.state.width / 2 - 1, 1) });
    const position = slider(app, "position", "Position", { min: 0, max: store.state.length - 1, unit: "token" });
    section.controls.append(which.element, position.element);

    const wavesPlace = html("div", { class: "waves" }), circlePlace = html("div", { class: "circle" });
    const waves = new Plot(wavesPlace, { height: 300, margin: { top: 54, right: 64, bottom: 44, left: 52 }, label: "Position, on the sine and cosine of this pair" });
    const circle = new Plot(circlePlace, { height: 300, label: "Position, as the point on the circle of this pair" });
    for (const plot of [waves, circle]) {
      for (const [name, value] of [["role", "slider"], ["tabindex", 0], ["aria-valuemin", 0]]) plot.element.setAttribute(name, value);
      plot.element.classList.add("turned");
    }
    const facts = html("dl", { class: "facts" });
    const rows = html("tbody");
    const table = html("table", { class: "numbers" }, html("thead", {}, html("tr", {},
      ["position", "sine", "cosine", "sin² + cos²"].map((name) => html("th", { scope: "col" }, name)))), rows);
    const sum = html("p", { class: "note" });
    section.figure.append(html("div", { class: "beside" }, wavesPlace, circlePlace), sum, html("div", { class: "beside" }, facts, table));

    let now = null; // what is drawn
    turnable(circle.element, { app, pair: () => store.state.pair, ladder: () => now.ladder, centre: () => now.centre, svgElement: circle.element, choose: false });
    let held = false;
    const toPointer = (event) => {
      const { left } = waves.element.getBoundingClientRect(), { length, position: here } = store.state;
      const at = Math.round(now.across.invert(event.clientX - left));
      store.set({ position: Math.min(Math.max(at, 0), Math.max(length - 1, here)) });
    };
    waves.element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !now) return;
      held = true;
      waves.element.setPointerCapture(event.pointerId);
      toPointer(event);
    });
    waves.element.addEventListener("pointermove", (event) => { if (held) toPointer(event); });
    for (const end of ["pointerup", "pointercancel"]) waves.element.addEventListener(end, () => { held = false; });
    waves.element.addEventListener("keydown", (event) => stepKeys(event, app, now.rate));

    return (state, changed) => {
      const code = app.additive(state);
      which.limits(0, Math.max(code.pairs - 1, 1));
      if (changed.has("length")) position.limits(0, Math.max(state.length - 1, 1));
      const chosen = Math.min(state.pair, code.pairs - 1), rate = code.ladder.rates[chosen];
      const phase = phaseAt(code.ladder, chosen, state.position);
      now = { ladder: code.ladder, rate, phase, twin: twinOf(code.ladder, chosen, state.position), chosen };
      const all = changed.size === Object.keys(state).length;
      for (const plot of [waves, circle]) {
        if (all) plot.measure();
        put(plot.element, {
          "aria-valuemax": Math.max(state.length - 1, state.position), "aria-valuenow": state.position,
          "aria-valuetext": `position ${state.position}, sine ${decimal(Math.sin(phase), 3)}, cosine ${decimal(Math.cos(phase), 3)}`,
        });
      }
      drawWaves(waves.clear(), now, state);
      drawCircle(circle.clear(), now, state);
      const sine = Math.sin(phase), cosine = Math.cos(phase);
      say(sum, `sin² + cos² at position ${number(state.position)}: ${decimal(sine ** 2)} + ${decimal(cosine ** 2)} = ${number(sine ** 2 + cosine ** 2, 12)}. The point never leaves the circle.`);
      refill(facts, factsOf(code, chosen, state).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
      refill(rows, rowsOf(code.ladder, chosen, state, now.twin));
      section.answer(answerOf(code, chosen, state, now, app.whyNoShift(state)));
    };
  },
};

// The next position at which the sine has the same height, and the cosine the opposite sign; null where it touches its top
// or bottom, and for a pair that never turns.
export function twinOf(ladder, chosen, position) {
  const rate = ladder.rates[chosen];
  if (rate === 0) return null;
  const by = Math.PI - 2 * phaseAt(ladder, chosen, position), ahead = by - TURN * Math.floor(by / TURN);
  return ahead < 1e-9 || TURN - ahead < 1e-9 ? null : position + ahead / rate;
}

// A number with a fixed count of digits and a true minus sign.
export function decimal(value, digits = 6) {
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

// Where the twin of a position stands, between two tokens; far out, how much further it is.
function twinPlace(twin, position) {
  return position < FAR_OUT ? number(Number(twin.toFixed(2)), 12) : `${number(position)} + ${number(twin - position, 3)}`;
}

// The same at the head of a row: where a position has too many digits, how far it is from here.
function rowName(place, isTwin, position) {
  if (position < FAR_ROWS) return isTwin ? twinPlace(place, position) : number(place);
  return place === position ? "here" : `here ${place < position ? "−" : "+"} ${number(Math.abs(place - position), 3)}`;
}

// The same beside a mark, where there is little room.
function labelOf(place, position) {
  if (position < FAR_OUT) return number(Number(place.toFixed(2)), 12);
  return place === position ? "here" : `+${number(place - position, 3)}`;
}

function answerOf(code, chosen, state, { phase, rate, twin }, without) {
  if (rate === 0) return `Pair ${chosen} never rotates: its two dimensions have the same two values at every position.`;
  const sine = decimal(Math.sin(phase), 3), cosine = Math.cos(phase), here = number(state.position);
  const held = heldWaves(code, chosen);
  if (!held.has("sin")) {
    const back = -2 * phase, again = state.position + (back - TURN * Math.floor(back / TURN)) / rate;
    return `The cosine of pair ${chosen} is ${decimal(cosine, 3)} at position ${here}, and ${decimal(cosine, 3)} again at ${twinPlace(again, state.position)}: ` +
      `the cosine alone cannot distinguish them. The sine could, but this encoding does not have it: ${without}.`;
  }
  const also = without === null || !held.has("cos") ? "" : ` No single rotation is a shift of this encoding: ${without}.`;
  if (twin === null) return `At position ${here} the sine of pair ${chosen} is at its ${phase > 0 ? "top" : "bottom"}, ${sine}, which occurs once per rotation; any other position needs sine and cosine.${also}`;
  return `The sine of pair ${chosen} is ${sine} at position ${here}, and ${sine} again at ${twinPlace(twin, state.position)}: the sine alone cannot distinguish them. ` +
    (held.has("cos") ? `The cosine can: ${decimal(cosine, 3)} at the first, ${decimal(-cosine, 3)} at the second.${also}` : `The cosine could, but this encoding does not have it: ${without}.`);
}

function factsOf(code, chosen, state) {
  const rate = code.ladder.rates[chosen], waveOf = { sin: "sine", cos: "cosine", "-sin": "−sine" };
  const channels = [code.channels[2 * chosen], code.channels[2 * chosen + 1]].filter((channel) => channel >= 0);
  const told = (unit, value) => `${value}\u202f${unit}`;
  return [
    ["dimensions", channels.map((channel) => `${channel} (${waveOf[code.waveOf(channel)] ?? code.waveOf(channel)})`).join(", ")],
    ["frequency", told("rad/token", number(rate, 6))],
    ["divisor", rate === 0 ? "none" : number(1 / rate, 6)],
    ["wavelength", rate === 0 ? "none" : told("tokens", number(wavelength(rate), 6))],
    ["speed", told("rotations in 1\u202f000 tokens", number((1000 * rate) / TURN, 4))],
    [`in ${number(state.length)} tokens`, told("rotations", number((state.length * rate) / TURN, 4))],
  ];
}

function rowsOf(ladder, chosen, state, twin) {
  const from = Math.min(Math.max(0, state.position - 2), Number.MAX_SAFE_INTEGER - 4);
  const places = Array.from({ length: 5 }, (_, row) => from + row);
  if (twin !== null) places.push(twin);
  return places.map((place, row) => {
    const phase = phaseAt(ladder, chosen, place), sine = Math.sin(phase), cosine = Math.cos(phase);
    const kind = row === 5 ? "twin" : place === state.position ? "here" : null;
    return html("tr", { class: kind }, html("th", { scope: "row" }, rowName(place, row === 5, state.position)),
      html("td", {}, decimal(sine)), html("td", {}, decimal(cosine)), html("td", {}, number(sine ** 2 + cosine ** 2, 12)));
  });
}

function drawWaves(plot, now, state) {
  const { left, right, top, bottom } = plot.inner, { ladder, chosen, rate, phase, twin } = now;
  const length = rate === 0 ? state.length : wavelength(rate);
  // From where the last turn began, so that the curves stand still while the position moves on.
  const begun = rate === 0 ? 0 : state.position - (phase - TURN * Math.floor(phase / TURN)) / rate;
  const from = Math.abs(begun) < 1e-9 * length ? 0 : begun, to = from + (rate === 0 ? 1 : 2) * length;
  const across = d3.scaleLinear([from, to], [left, right]), up = d3.scaleLinear([-1, 1], [bottom, top]);
  now.across = across;
  const add = (...marks) => plot.ink.append(...marks);
  if (state.length < to && state.length > from) {
    const end = across(state.length);
    add(svg("rect", { class: "beyond", x: end, y: top, width: right - end, height: bottom - top }), svg("line", { class: "edge", x1: end, x2: end, y1: top, y2: bottom }));
  }
  // Far out, places have more digits than the axis has room for: how much further they are has few.
  const here = state.position < FAR_OUT ? 0 : state.position, counted = d3.scaleLinear([from - here, to - here], [left, right]);
  plot.axes(counted, up, here ? "further than the position (token)" : "position (token)", "", { yTicks: 3, xTicks: Math.max(2, Math.floor(plot.width / (50 + 9 * number(Math.round(to - here)).length))) });
  add(svg("text", { class: "name", x: 0, y: 14 }, "height (radius 1)"), svg("line", { class: "zero", x1: left, x2: right, y1: up(0), y2: up(0) }));
  const start = rate === 0 ? phase : 0;
  for (const [wave, kind] of [[Math.cos, "cosine"], [Math.sin, "sine"]]) {
    // Two turns look alike for every pair and from everywhere.
    const turned = (part) => start + (rate === 0 ? 0 : part * 2 * TURN);
    const curve = unlessKept([kind, start, rate === 0, left, right, bottom].join(), () => {
      const points = Array.from({ length: SAMPLES + 1 }, (_, step) => [left + ((right - left) * step) / SAMPLES, up(wave(turned(step / SAMPLES)))]);
      return line(points, { class: `wave ${kind}` });
    });
    add(curve, svg("text", { class: `end ${kind}`, x: right + 6, y: up(wave(turned(1))) + 4 }, kind));
    if (to - from <= MOST_DOTS) {
      // Counted from the first: beyond 2^53 a double and one more is the same double.
      const first = Math.ceil(from), count = Math.floor(to) - first;
      for (let step = 0; step <= count; step++) add(svg("circle", { class: `token ${kind}`, cx: across(first + step), cy: up(wave(phaseAt(ladder, chosen, first + step))), r: 2 }));
    }
  }
  const sine = Math.sin(phase), cosine = Math.cos(phase), x = across(state.position);
  const places = [[x, cosine, state.position, "here"]];
  if (twin !== null) {
    add(svg("line", { class: "level", x1: x, x2: across(twin), y1: up(sine), y2: up(sine) }));
    places.push([across(twin), -cosine, twin, "twin"]);
  }
  if (state.length < to && state.length > from) {
    const end = across(state.length), late = end > (left + right) / 2;
    add(svg("text", { class: "told", x: late ? end - 5 : end + 5, y: bottom - 6, "text-anchor": late ? "end" : "start" }, `trained to ${number(state.length)}`));
  }
  const close = twin !== null && across(twin) - x < 90;
  for (const [place, height, at, kind] of places) {
    add(svg("line", { class: "drop", x1: place, x2: place, y1: top - 8, y2: bottom }),
      svg("text", { class: "where", x: close ? place + (kind === "here" ? -4 : 4) : place, y: top - 12, "text-anchor": close || place > right - 20 ? (kind === "here" ? "end" : "start") : place < left + 20 ? "start" : "middle" }, labelOf(at, state.position)),
      svg("circle", { class: "at sine", cx: place, cy: up(sine), r: 5 }),
      svg("rect", { class: "at cosine", x: place - 4.5, y: up(height) - 4.5, width: 9, height: 9 }));
  }
}

function drawCircle(plot, now, state) {
  const { width, height } = plot, radius = Math.min(width - 128, height - 96) / 2, x = width / 2, y = height / 2 + 6;
  const { phase, twin } = now, add = (...marks) => plot.ink.append(...marks);
  now.centre = [x, y];
  const cosine = radius * Math.cos(phase), sine = radius * Math.sin(phase);
  add(svg("circle", { class: "face", cx: x, cy: y, r: radius }),
    svg("line", { class: "zero", x1: x - radius - 8, x2: x + radius + 8, y1: y, y2: y }), svg("line", { class: "zero", x1: x, x2: x, y1: y - radius - 8, y2: y + radius + 8 }),
    svg("text", { class: "end cosine", x: x + radius + 12, y: y + (sine >= 0 ? 16 : -8) }, "cosine"), svg("text", { class: "end sine", x, y: y - radius - 26, "text-anchor": "middle" }, "sine"));
  if (twin !== null) {
    add(svg("line", { class: "level", x1: x - cosine, x2: x + cosine, y1: y - sine, y2: y - sine }),
      svg("line", { class: "arm second", x1: x, y1: y, x2: x - cosine, y2: y - sine }), svg("circle", { class: "tip second", cx: x - cosine, cy: y - sine, r: 5 }),
      label(x - cosine, y - sine, -cosine, sine, labelOf(twin, state.position)));
  }
  add(svg("line", { class: "cosine", x1: x, y1: y, x2: x + cosine, y2: y }), svg("line", { class: "sine", x1: x + cosine, y1: y, x2: x + cosine, y2: y - sine }),
    svg("line", { class: "arm", x1: x, y1: y, x2: x + cosine, y2: y - sine }), svg("circle", { class: "tip", cx: x + cosine, cy: y - sine, r: 6 }),
    label(x + cosine, y - sine, cosine, sine, labelOf(state.position, state.position)));

  // Beside a point of the circle, outside of it where there is room.
  function label(left, top, across, up, text) {
    const wide = 8 * text.length, at = across >= 0 ? Math.min(left + 10, width - wide) : Math.max(left - 10, wide);
    return svg("text", { class: "where", x: at, y: top - (up >= 0 ? 9 : -19), "text-anchor": across >= 0 ? "start" : "end" }, text);
  }
}
