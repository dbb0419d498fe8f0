// One pair: why two waves? The position may lie between two tokens here.

import { heldWaves } from "../codes.js";
import { slider } from "../controls.js";
import { Plot, html, line, number, put, refill, say, svg, unlessKept } from "../draw.js";
import { TURN, phaseAt, wavelength } from "../ladders.js";
import { stepKeys } from "./clock.js";

const SAMPLES = 240; // points of a curve
const FAR_OUT = 1e6; // the position from which on labels say only how much further
const FAR_ROWS = 1e9; // and those of the table
const MOST_DOTS = 64; // tokens that are dots of their own
const REAL_WAVES = 100; // tokens of a rotation, up to which a drag stops between tokens
const LOOKED_FOR = 32768; // tokens among which one with nearly the same sine is looked for
const CIRCLE_WORDS = "At each token the hand rotates by its frequency, an angle in radians (rad): a rotation is 2π rad, and takes one wavelength.";
const ONE_HEIGHT = 1e-9, NEARLY = 0.1; // differences of two heights that are none, and that are small

export const pair = {
  id: "pair",
  question: "Why sine and cosine?",
  mount(section, app) {
    const { store } = app;
    const which = slider(app, "pair", "Pair", { min: 0, max: Math.max(store.state.width / 2 - 1, 1) });
    const position = slider(app, "position", "Position", { min: 0, max: store.state.length - 1, unit: "token" });
    const real = html("input", { type: "number", id: "control-fraction", "data-name": "fraction", min: 0, step: 0.01, onchange: () => {
      // What is no number is empty here, and changes nothing.
      if (real.value !== "") moveTo(Number(real.value), Number(real.max));
      real.value = exactPlace(store.state);
    } });
    // To a hundredth of a token.
    const moveTo = (at, most) => {
      const rounded = Number(Math.min(Math.max(at, 0), most).toFixed(2)), whole = Math.floor(rounded);
      store.set({ position: whole, fraction: Number((rounded - whole).toFixed(2)) });
    };
    section.controls.append(which.element, position.element,
      html("div", { class: "control" }, html("label", { for: "control-fraction" }, "Also between tokens"), real));

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
    const farthest = () => Math.max(store.state.length - 1, store.state.position);
    let dragged = null; // the position that is dragged, without rounding
    const toAngle = (event) => {
      const box = circle.element.getBoundingClientRect(), [x, y] = now.centre, right = event.clientX - box.left - x, up = box.top + y - event.clientY;
      // At the pivot every angle is as good as another.
      if (now.rate === 0 || Math.hypot(right, up) < 6) return;
      const behind = Math.atan2(up, right) - phaseOf(now.ladder, now.chosen, { position: 0, fraction: dragged });
      dragged = Math.min(Math.max(dragged + (behind - TURN * Math.round(behind / TURN)) / now.rate, 0), farthest());
      moveTo(wavelength(now.rate) > REAL_WAVES ? Math.round(dragged) : dragged, farthest());
    };
    circle.element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !now) return;
      dragged = store.state.position + store.state.fraction;
      circle.element.setPointerCapture(event.pointerId);
    });
    circle.element.addEventListener("pointermove", (event) => { if (dragged !== null) toAngle(event); });
    for (const end of ["pointerup", "pointercancel"]) circle.element.addEventListener(end, () => { dragged = null; });
    circle.element.addEventListener("keydown", (event) => stepKeys(event, app, now.rate));
    let onWaves = false;
    const toPointer = (event) => {
      const { left } = waves.element.getBoundingClientRect(), { length, position: here } = store.state;
      const at = Math.round(now.across.invert(event.clientX - left));
      store.set({ position: Math.min(Math.max(at, 0), Math.max(length - 1, here)) });
    };
    waves.element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !now) return;
      onWaves = true;
      waves.element.setPointerCapture(event.pointerId);
      toPointer(event);
    });
    waves.element.addEventListener("pointermove", (event) => { if (onWaves) toPointer(event); });
    for (const end of ["pointerup", "pointercancel"]) waves.element.addEventListener(end, () => { onWaves = false; });
    waves.element.addEventListener("keydown", (event) => stepKeys(event, app, now.rate));

    return (state, changed) => {
      const code = app.additive(state);
      which.limits(0, Math.max(code.pairs - 1, 1));
      if (changed.has("length")) {
        position.limits(0, Math.max(state.length - 1, 1));
        real.max = Math.max(state.length - 1, 1);
      }
      if (document.activeElement !== real) real.value = exactPlace(state);
      const chosen = Math.min(state.pair, code.pairs - 1), rate = code.ladder.rates[chosen];
      const phase = phaseOf(code.ladder, chosen, state);
      now = { ladder: code.ladder, rate, phase, twin: twinOf(code.ladder, chosen, state.position, state.fraction), chosen };
      const all = changed.size === Object.keys(state).length;
      for (const plot of [waves, circle]) {
        if (all) plot.measure();
        put(plot.element, {
          "aria-valuemax": Math.max(state.length - 1, state.position), "aria-valuenow": exactPlace(state),
          "aria-valuetext": `position ${exactPlace(state)}, sine ${decimal(Math.sin(phase), 3)}, cosine ${decimal(Math.cos(phase), 3)}`,
        });
      }
      drawWaves(waves.clear(), now, state);
      drawCircle(circle.clear(), now, state);
      const held = heldWaves(code, chosen);
      say(sum, `${CIRCLE_WORDS}${held.has("sin") && rate > 0 ? nearestWords(nearestSine(code.ladder, chosen, state), held.has("cos")) : ""}`);
      refill(facts, factsOf(code, chosen, state, phase).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
      refill(rows, rowsOf(code.ladder, chosen, state, now.twin));
      section.answer(answerOf(code, chosen, state, now, app.whyNoShift(state), app.code(state).kind === "rotary"));
    };
  },
};

// The phase at a position that may lie between two tokens, from -pi to pi.
function phaseOf(ladder, chosen, { position, fraction }) {
  const phase = phaseAt(ladder, chosen, position) + phaseAt(ladder, chosen, fraction);
  return fraction === 0 ? phase : phase - TURN * Math.round(phase / TURN);
}

// The next position at which the sine has the same height, and the cosine the opposite sign; null where it touches its top
// or bottom, and for a pair that never turns.
export function twinOf(ladder, chosen, position, fraction = 0) {
  const rate = ladder.rates[chosen];
  if (rate === 0) return null;
  const by = Math.PI - 2 * phaseOf(ladder, chosen, { position, fraction }), ahead = by - TURN * Math.floor(by / TURN);
  return ahead < 1e-9 || TURN - ahead < 1e-9 ? null : position + fraction + ahead / rate;
}

// The sines and cosines of all tokens of the last pair, which do not change as the position moves.
let wavesKept = { ladder: null };

// Of the tokens 0 to length - 1 on the other side of the wave, where the cosine has the other sign, the one whose sine is
// nearest to that of the position, and by how much its sine and its cosine differ; null where there is none.
export function nearestSine(ladder, chosen, { position, fraction, length }) {
  const phase = phaseOf(ladder, chosen, { position, fraction }), sine = Math.sin(phase), cosine = Math.cos(phase), count = Math.min(length, LOOKED_FOR);
  if (wavesKept.ladder !== ladder || wavesKept.chosen !== chosen || wavesKept.sines.length !== count) {
    const [sines, cosines] = [Math.sin, Math.cos].map((wave) => Float64Array.from({ length: count }, (_, token) => wave(phaseAt(ladder, chosen, token))));
    wavesKept = { ladder, chosen, sines, cosines };
  }
  let nearest = null, least = Infinity;
  for (let token = 0; token < count; token++) {
    const off = Math.abs(wavesKept.sines[token] - sine);
    if (off < least && wavesKept.cosines[token] * cosine < 0) [nearest, least] = [token, off];
  }
  return nearest === null ? null : { token: nearest, off: least, apart: Math.abs(wavesKept.cosines[nearest] - cosine) };
}

// The position with its hundredths, for a field and for people.
function exactPlace({ position, fraction }) {
  return `${position}${fraction === 0 ? "" : fraction.toFixed(2).slice(1)}`;
}

function exactWords({ position, fraction }) {
  return `${number(position)}${fraction === 0 ? "" : fraction.toFixed(2).slice(1)}`;
}

// The two tokens that a place lies between, if it is no token.
function betweenWords(place) {
  const nearest = Math.round(place);
  if (place < FAR_OUT && Math.abs(place - nearest) < ONE_HEIGHT * Math.max(1, place)) return "";
  return place < FAR_OUT ? `, between the tokens ${number(Math.floor(place))} and ${number(Math.floor(place) + 1)}` : ", which need not be a token";
}

// A number with a fixed count of digits and a true minus sign.
export function decimal(value, digits = 6) {
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

// Where the twin of a position stands, between two tokens; far out, how much further it is.
function twinPlace(twin, position) {
  return position < FAR_OUT ? number(Number(twin.toFixed(Math.abs(twin - Math.round(twin)) < 0.005 ? 6 : 2)), 12) : `${number(position)} + ${number(twin - position, 3)}`;
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

// That of the position itself.
function placeLabel(state) {
  return state.fraction !== 0 && state.position < FAR_OUT ? exactWords(state) : labelOf(state.position, state.position);
}

function answerOf(code, chosen, state, { phase, rate, twin }, without, rotary) {
  if (rate === 0) return `Pair ${chosen} never rotates: its two dimensions have the same two values at every position.`;
  const sine = decimal(Math.sin(phase), 3), cosine = Math.cos(phase), here = exactWords(state), held = heldWaves(code, chosen);
  if (!held.has("sin")) {
    const back = -2 * phase, again = state.position + state.fraction + (back - TURN * Math.floor(back / TURN)) / rate;
    return `The cosine of pair ${chosen} is ${decimal(cosine, 3)} at position ${here}, and ${decimal(cosine, 3)} again at ${twinPlace(again, state.position)}${betweenWords(again)}; ` +
      `the cosine alone cannot distinguish them. The sine could, but this encoding does not have it: ${without}.`;
  }
  const pairs = held.has("cos") ? `A pair is two dimensions${rotary ? " that are rotated by one angle; its sine and its cosine have" : ": a sine and a cosine of"} one frequency. ` : "";
  const also = without === null || !held.has("cos") ? "" : ` No single rotation is a shift of this encoding: ${without}.`;
  if (twin === null) return `${pairs}At position ${here} the sine of pair ${chosen} is at its ${phase > 0 ? "top" : "bottom"}, ${sine}, which occurs once per rotation; any other position needs sine and cosine.${also}`;
  return `${pairs}A wave passes every height twice: the sine of pair ${chosen} is ${sine} at position ${here}, and ${sine} again at ${twinPlace(twin, state.position)}${betweenWords(twin)}. ` +
    (held.has("cos") ? `The cosine distinguishes the two: it is ${decimal(cosine, 3)} at the first, ${decimal(-cosine, 3)} at the second.${also}` : `The cosine could distinguish the two, but this encoding does not have it: ${without}.`);
}

// Which token the sine alone nearly confuses with the position, and that the cosine helps.
function nearestWords(found, both) {
  if (found === null) return "";
  if (found.off > NEARLY) return ` No token on the other side of the wave has nearly the same sine; the nearest, that of ${number(found.token)}, differs by ${number(found.off, 2)}.`;
  return ` Of all tokens on the other side of the wave the nearest is ${number(found.token)}: its sine ${found.off < ONE_HEIGHT ? "is the same" : `differs by ${number(found.off, 2)} only`}${both ? `, its cosine by ${number(found.apart, 2)}` : ""}.`;
}

function factsOf(code, chosen, state, phase) {
  const rate = code.ladder.rates[chosen], waveOf = { sin: "sine", cos: "cosine", "-sin": "−sine" };
  const channels = [code.channels[2 * chosen], code.channels[2 * chosen + 1]].filter((channel) => channel >= 0);
  const told = (unit, value) => `${value}\u202f${unit}`;
  return [
    ["dimensions", channels.map((channel) => `${channel} (${waveOf[code.waveOf(channel)] ?? code.waveOf(channel)})`).join(", ")],
    ["angle here", `${decimal(phase < 0 ? phase + TURN : phase, 4)}\u202frad = ${decimal(((phase < 0 ? phase + TURN : phase) * 180) / Math.PI, 2)}°`],
    ["frequency", told("rad/token", number(rate, 6))],
    ["wavelength", rate === 0 ? "none" : told("tokens", number(wavelength(rate), 6))],
    [`in ${number(state.length)} tokens`, told("rotations", number((state.length * rate) / TURN, 4))],
  ];
}

function rowsOf(ladder, chosen, state, twin) {
  const from = Math.min(Math.max(0, state.position - 2), Number.MAX_SAFE_INTEGER - 4);
  const places = Array.from({ length: 5 }, (_, row) => [from + row, 0, state.fraction === 0 && from + row === state.position ? "here" : null, rowName(from + row, false, state.position)]);
  if (state.fraction !== 0) places.splice(state.position - from + 1, 0, [state.position, state.fraction, "here", state.position < FAR_ROWS ? exactWords(state) : "here"]);
  if (twin !== null) places.push([twin, 0, "twin", rowName(twin, true, state.position)]);
  return places.map(([place, fraction, kind, name]) => {
    const phase = phaseOf(ladder, chosen, { position: place, fraction }), sine = Math.sin(phase), cosine = Math.cos(phase);
    return html("tr", { class: kind }, html("th", { scope: "row" }, name),
      html("td", {}, decimal(sine)), html("td", {}, decimal(cosine)), html("td", {}, number(sine ** 2 + cosine ** 2, 12)));
  });
}

function drawWaves(plot, now, state) {
  const { left, right, top, bottom } = plot.inner, { ladder, chosen, rate, phase, twin } = now;
  const length = rate === 0 ? state.length : wavelength(rate);
  // From where the last turn began, so that the curves stand still while the position moves on.
  const begun = rate === 0 ? 0 : state.position + state.fraction - (phase - TURN * Math.floor(phase / TURN)) / rate;
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
  const sine = Math.sin(phase), cosine = Math.cos(phase), x = across(state.position + state.fraction);
  const places = [[x, cosine, placeLabel(state), "here"]];
  if (twin !== null) {
    add(svg("line", { class: "level", x1: x, x2: across(twin), y1: up(sine), y2: up(sine) }));
    places.push([across(twin), -cosine, labelOf(twin, state.position), "twin"]);
  }
  if (state.length < to && state.length > from) {
    const end = across(state.length), late = end > (left + right) / 2;
    add(svg("text", { class: "told", x: late ? end - 5 : end + 5, y: bottom - 6, "text-anchor": late ? "end" : "start" }, `trained to ${number(state.length)}`));
  }
  const close = twin !== null && across(twin) - x < 90;
  for (const [place, height, at, kind] of places) {
    add(svg("line", { class: "drop", x1: place, x2: place, y1: top - 8, y2: bottom }),
      svg("text", { class: "where", x: close ? place + (kind === "here" ? -4 : 4) : place, y: top - 12, "text-anchor": close || place > right - 20 ? (kind === "here" ? "end" : "start") : place < left + 20 ? "start" : "middle" }, at),
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
    label(x + cosine, y - sine, cosine, sine, placeLabel(state)));

  // Beside a point of the circle, outside of it where there is room.
  function label(left, top, across, up, text) {
    const wide = 8 * text.length, at = across >= 0 ? Math.min(left + 10, width - wide) : Math.max(left - 10, wide);
    return svg("text", { class: "where", x: at, y: top - (up >= 0 ? 9 : -19), "text-anchor": across >= 0 ? "start" : "end" }, text);
  }
}
