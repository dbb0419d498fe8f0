// The clock: where are we?

import { heldWaves } from "../codes.js";
import { colourTable } from "../colours.js";
import { button, choice, slider } from "../controls.js";
import { Plot, html, line, number, put, raised, say, svg, unlessKept } from "../draw.js";
import { TURN, completes, paceOf, pairsToDraw, phaseAt, wavelength } from "../ladders.js";

const HANDS = 12; // hands that are drawn, evenly over the ladder
const FAR_TURNS = 40000; // readings of a hand that reading back may take
const WAVES_OVER = 128; // tokens of the waves, which begin at a multiple of it
const FAR_WAVES = 1e6; // the position from which on their axis counts from its beginning
const OPENING = 900; // ms in which the hands arrive

export const clock = {
  id: "clock",
  question: "Where are we?",
  mount(section, app) {
    const { store } = app;
    const position = slider(app, "position", "Position", { min: 0, max: store.state.length - 1, unit: "token" });
    const most = () => Math.max(store.state.length - 1, store.state.position);
    const step = (by) => store.set({ position: Math.min(Math.max(0, store.state.position + by), most() + Math.max(by, 0)) });
    const play = button("Play", () => (motion ? stop() : start()), { "aria-pressed": "false" });
    section.controls.append(position.element,
      html("div", { class: "control" }, button("Back", () => step(-1)), play, button("Forward", () => step(1))),
      choice(app, "speed", "Speed", [2, 8, 64, 512].map((speed) => [speed, perSecond(speed)]), perSecond).element);
    const plot = new Plot(section.figure, { height: 250, label: "The hands of the clock; drag a hand or use the keys to rotate it" });
    plot.element.setAttribute("role", "group");
    const strip = html("canvas", { class: "strip", role: "img", height: 1 });
    const choose = (event) => {
      const box = strip.getBoundingClientRect();
      store.set({ pair: Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * strip.width), 0), strip.width - 1) });
    };
    strip.addEventListener("pointerdown", (event) => { strip.setPointerCapture(event.pointerId); choose(event); });
    strip.addEventListener("pointermove", (event) => { if (strip.hasPointerCapture(event.pointerId)) choose(event); });
    const note = html("p", { class: "note" });
    const counter = new Plot(section.figure, { height: 90, label: "The same position as a binary counter" });
    counter.element.before(strip, note);
    const three = new Plot(section.figure, { height: 190, margin: { top: 20, right: 28, bottom: 40, left: 28 }, label: "The sine of a fast, a middle and a slow pair by position" });

    let faces = null, motion = null, code = null;
    // Draw the hands at a position, which may lie between two tokens while they turn.
    const turn = (at) => {
      for (const face of faces.drawn) face.turn(phaseAt(code.ladder, face.pair, at));
      drawStrip(strip, code.ladder, at);
    };

    function start() {
      motion = { from: store.state.position, since: performance.now(), last: store.state.position };
      shown();
      requestAnimationFrame(onward);
    }
    function stop() {
      motion = null;
      shown();
      if (faces) turn(store.state.position);
    }
    function shown() {
      play.textContent = motion ? "Pause" : "Play";
      play.setAttribute("aria-pressed", String(Boolean(motion)));
    }
    function onward(now) {
      if (!motion || !plot.element.isConnected) return;
      const { state } = store;
      // Somebody moved the position or the speed meanwhile: go on from there.
      if (state.position !== motion.last || state.speed !== motion.speed) Object.assign(motion, { from: state.position, since: now, last: state.position, speed: state.speed });
      const exact = motion.from + ((now - motion.since) / 1000) * state.speed;
      const next = exact >= state.length ? 0 : Math.floor(exact);
      if (next !== state.position) {
        motion.last = next;
        if (next === 0) Object.assign(motion, { from: 0, since: now });
        store.set({ position: next });
      }
      if (!still() && faces) turn(exact >= state.length ? 0 : exact);
      requestAnimationFrame(onward);
    }

    // On opening, the hands arrive at the position once; the state does not move.
    let opening = still() ? null : performance.now();
    function arrive(now) {
      if (opening === null || motion || !faces) return ended();
      const part = Math.min((now - opening) / OPENING, 1), to = store.state.position;
      turn(to - Math.min(12, to) * (1 - part) ** 3);
      if (part === 1) return ended();
      requestAnimationFrame(arrive);
    }
    function ended() {
      opening = null;
      plot.element.removeAttribute("data-moving");
    }
    store.subscribe((state, changed) => { if (opening !== null && changed.has("position")) ended(); });
    if (opening !== null) {
      plot.element.setAttribute("data-moving", "");
      requestAnimationFrame(arrive);
    }

    return (state, changed) => {
      if (changed.has("length")) position.limits(0, Math.max(state.length - 1, 1));
      code = app.additive(state);
      const { ladder } = code;
      if (changed.size === Object.keys(state).length) {
        plot.measure();
        counter.measure();
        three.measure();
      }
      const pairs = pairsToDraw(code.pairs, state.pair, HANDS);
      const focused = plot.element.contains(document.activeElement) ? document.activeElement.getAttribute("data-pair") : null;
      if (faces === null || faces.width !== plot.width || faces.drawn.length !== pairs.length) {
        faces = { width: plot.width, drawn: makeFaces(plot, pairs.length, app, () => code.ladder) };
      }
      // A chosen pair takes the seat of its neighbour, so that a hand that is held stays where it is.
      const pace = paceOf(ladder.rates);
      faces.drawn.forEach((face, seat) => face.show(pairs[seat], state, pace));
      const now = document.activeElement?.getAttribute("data-pair");
      if (focused !== null && focused !== now) plot.element.querySelector(`[data-pair="${focused}"]`)?.focus();
      if (!motion || still()) turn(state.position);
      drawCounter(counter, ladder, state);
      drawThree(three, ladder, state, pace);
      const phases = Array.from({ length: code.pairs }, (_, pair) => {
        const phase = phaseAt(ladder, pair, state.position);
        return Math.atan2(Math.fround(Math.sin(phase)), Math.fround(Math.cos(phase)));
      });
      const often = pace.slow === null ? 0 : (state.position * ladder.rates[pace.slow]) / TURN;
      const read = often > mostRounds(code.pairs) ? null : readBack(ladder.rates, phases, Math.max(state.length, state.served, state.position));
      const never = pairs.some((pair) => !completes(ladder.rates[pair], state.length));
      const run = { falling: "from fast to slow", rising: "from slow to fast", mixed: "in the order of their pairs" }[pace.order];
      put(strip, { "aria-label": `All ${code.pairs} hands ${run}, each coloured by its angle` });
      say(note, `The strip: ${code.pairs === 1 ? "the one hand" : `all ${number(code.pairs)} hands ${run}`}, coloured by angle.${never ? ` Dashed: never completes a rotation in ${number(state.length)} tokens.` : ""} ` +
        "Below: each binary digit, under the hand that repeats about as often.");
      section.answer(saidOfClock(code, app.code(state).kind === "rotary", state, pace, often > mostRounds(code.pairs) ? "often" : read, app.whyNoShift(state)));
    };
  },
};

// The answer: where the fastest and the slowest hand stand, and what position all of them tell.
function saidOfClock(code, rotary, { position }, { fast, slow, still: idle }, read, without) {
  const { rates } = code.ladder, all = code.pairs === 1 ? "the one hand" : `all ${number(code.pairs)} hands`, both = heldWaves(code, fast ?? 0).size === 2;
  const said = [rotary ? "Each pair of dimensions of a query or key is rotated like a clock hand." : `Each ${both ? "pair" : "frequency"} is a clock hand.`];
  if (fast === null) return `${said[0]} Position ${number(position)} is the same as every other: ${all} of this encoding never rotate${code.pairs === 1 ? "s" : ""}.`;
  said.push(`At position ${number(position)} the fast hand (pair ${fast}, ${perTurn(rates[fast])}) has completed ${number((position * rates[fast]) / TURN)} rotations` +
    `${slow === fast ? "" : `, the slow one (pair ${slow}, ${perTurn(rates[slow])}) ${number((position * rates[slow]) / TURN, 3)}`}.`);
  if (idle) said.push(`${number(idle)} of ${number(code.pairs)} hands never rotate${idle === 1 ? "s" : ""}.`);
  if (read === "often") said.push("That is more often than this page searches to read the position back.");
  else if (read === position) said.push(`The float32 sines and cosines of ${all} ${both ? "" : "would "}give the position back: ${number(read)}.`);
  else said.push(`Read back from the float32 sines and cosines, the position is ${read === null ? "lost" : `taken for ${number(read)}`}.`);
  if (without !== null) said.push(`${both ? "In this encoding no rotation equals a shift" : "This encoding does not have both"}: ${without}.`);
  return said.join(" ");
}

function still() {
  return globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
}

function perTurn(rate) {
  return rate === 0 ? "which never rotates" : `${number(wavelength(rate))} tokens per rotation`;
}

function perSecond(speed) {
  return `${speed} tokens/s`;
}

// The same where there is room for a dozen letters.
function shortTurn(rate) {
  const tokens = wavelength(rate);
  if (rate === 0) return "never";
  if (tokens < 1e6) return `${number(tokens, 3)} tokens`;
  return tokens < 1e9 ? `${number(tokens / 1e6, 3)} million` : number(Number(tokens.toPrecision(3)), 3);
}

// Faces in their seats; which pair each shows, and on which ladder, is told afterwards.
function makeFaces(plot, count, app, ladder) {
  plot.element.replaceChildren();
  const columns = Math.max(1, Math.min(count, Math.floor(plot.width / 104)));
  // Full rows look better than a rest.
  const even = Math.ceil(count / Math.ceil(count / columns));
  const wide = Math.min(plot.width / even, 130), size = Math.min(78, wide - 6), tall = size + 40;
  plot.height = Math.ceil(count / even) * tall + 4;
  plot.element.setAttribute("height", plot.height);
  plot.element.setAttribute("viewBox", `0 0 ${plot.width} ${plot.height}`);
  return Array.from({ length: count }, (_, place) => {
    const x = ((place % even) + 0.5) * wide, y = Math.floor(place / even) * tall + size / 2 + 4, radius = size / 2 - 5;
    const circle = svg("circle", { cx: x, cy: y, r: radius });
    const cosine = svg("line", { x1: x, y1: y, y2: y, class: "cosine" }), sine = svg("line", { y1: y, class: "sine" });
    const arm = svg("line", { x1: x, y1: y, class: "arm" }), tip = svg("circle", { r: 4, class: "tip" });
    const name = svg("text", { x, y: y + size / 2 + 13, "text-anchor": "middle" }), time = svg("text", { x, y: y + size / 2 + 29, "text-anchor": "middle" });
    const hand = svg("g", { class: "hand", tabindex: 0, role: "slider", "aria-valuemin": -180, "aria-valuemax": 180 }, circle, cosine, sine, arm, tip, name, time);
    plot.element.append(hand);
    const face = {
      pair: null,
      show(pair, state, { fast, slow }) {
        const rate = ladder().rates[pair], end = fast === slow ? "" : pair === fast ? "fast: " : pair === slow ? "slow: " : "";
        face.pair = pair;
        put(hand, { "data-pair": pair, "aria-label": `Hand of pair ${pair}, ${perTurn(rate)}` });
        put(circle, { class: completes(rate, state.length) ? "face" : "face never" });
        say(name, `${end}pair ${pair}`);
        say(time, shortTurn(rate));
        hand.classList.toggle("chosen", pair === state.pair);
      },
      turn(phase) {
        const across = x + radius * Math.cos(phase), up = y - radius * Math.sin(phase);
        cosine.setAttribute("x2", across);
        for (const [end, value] of [["x1", across], ["x2", across], ["y2", up]]) sine.setAttribute(end, value);
        arm.setAttribute("x2", across);
        arm.setAttribute("y2", up);
        tip.setAttribute("cx", across);
        tip.setAttribute("cy", up);
        const degrees = (phase * 180) / Math.PI;
        hand.setAttribute("aria-valuenow", degrees.toFixed(1));
        hand.setAttribute("aria-valuetext", `${degrees.toFixed(1)} degrees at position ${app.store.state.position}`);
      },
    };
    turnable(hand, { app, pair: () => face.pair, ladder, centre: () => [x, y], svgElement: plot.element });
    return face;
  });
}

// Every hand as one dot: the lightest points right, and the colour goes once around with each turn.
function drawStrip(strip, ladder, at) {
  const pairs = ladder.rates.length, colours = colourTable("cyclic"), context = strip.getContext("2d");
  if (strip.width !== pairs) strip.width = pairs;
  const image = context.createImageData(pairs, 1), dots = new Uint32Array(image.data.buffer);
  for (let pair = 0; pair < pairs; pair++) {
    const part = phaseAt(ladder, pair, at) / TURN;
    dots[pair] = colours[Math.round((part - Math.floor(part)) * (colours.length - 1))];
  }
  context.putImageData(image, 0, 0);
}

// Arrow keys step the position, with shift by ten; page up and down turn a hand by an eighth.
export function stepKeys(event, app, rate = 0) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const times = event.shiftKey ? 10 : 1, eighth = rate > 0 ? Math.max(1, Math.round(TURN / 8 / rate)) : 10;
  const by = { ArrowLeft: -times, ArrowDown: -times, ArrowRight: times, ArrowUp: times, PageDown: -eighth, PageUp: eighth }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  const { position, length } = app.store.state;
  app.store.set({ position: Math.min(Math.max(0, position + by), Math.max(length - 1, position)) });
}

// Sine against position for the fastest and the slowest pair and one between them, around the position; gives how many.
function drawThree(plot, ladder, { position, length, pair }, { fast, slow }) {
  plot.clear();
  const { rates } = ladder, { left, right, top, bottom } = plot.inner, wide = Math.min(WAVES_OVER, Math.max(length, 2)), from = Math.floor(position / wide) * wide;
  const x = d3.scaleLinear([0, wide], [left, right]), begun = from < FAR_WAVES ? from : 0, moving = [...rates.keys()].filter((each) => rates[each] > 0).sort((a, b) => rates[b] - rates[a]);
  const near = nearestPair(rates, wide / 2), middle = near === null || near === fast || near === slow ? moving[moving.length >> 1] : near, rows = [...new Set([fast, middle, slow])].filter((each) => each !== null && each !== undefined);
  const axis = svg("g", { class: "axis", transform: `translate(0,${bottom})` });
  d3.axisBottom(d3.scaleLinear([begun, begun + wide], [left, right])).ticks(plot.width > 500 ? 8 : 4).tickSizeOuter(0)(d3.select(axis));
  plot.ink.append(axis, svg("text", { class: "name", x: right, y: bottom + 34, "text-anchor": "end" }, begun === from ? "position (token)" : `position after ${number(from)} (token)`));
  const tall = (bottom - top) / Math.max(rows.length, 1), at = x(position - from);
  plot.ink.append(svg("line", { class: "drop", x1: at, x2: at, y1: top - 4, y2: bottom }));
  rows.forEach((each, row) => {
    const y = d3.scaleLinear([-1, 1], [top + (row + 1) * tall - 5, top + row * tall + 17]), began = phaseAt(ladder, each, from);
    const height = (token) => y(Math.sin(began + rates[each] * token));
    const step = Math.min(1, TURN / rates[each] / 12), count = Math.min(Math.ceil(wide / step), 2 * Math.ceil(right - left));
    const name = rows.length === 1 ? "" : each === fast ? "fast: " : each === slow ? "slow: " : "middle: ";
    plot.ink.append(svg("line", { class: "zero", x1: left, x2: right, y1: y(0), y2: y(0) }),
      unlessKept([each, rates[each], began, wide, left, right, y.range()].join(), () =>
        line(Array.from({ length: count + 1 }, (_, part) => [x((part * wide) / count), height((part * wide) / count)]), { class: "sine wave", "data-pair": each })),
      svg("circle", { class: "at sine", cx: at, cy: height(position - from), r: 5 }),
      svg("text", { class: each === pair ? "halo strong" : "halo", x: left, y: top + row * tall + 10 }, `${name}sine of pair ${each}`));
  });
}

// A hand that follows the pointer to the position at which it stands there; a press alone chooses its pair.
function turnable(hand, { app, pair, ladder, centre, svgElement }) {
  let held = null;
  const angleOf = (event) => {
    const box = svgElement.getBoundingClientRect(), [x, y] = centre();
    return [Math.atan2(box.top + y - event.clientY, event.clientX - box.left - x), Math.hypot(box.top + y - event.clientY, event.clientX - box.left - x)];
  };
  hand.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { at: app.store.state.position, x: event.clientX, y: event.clientY, moved: false };
    hand.setPointerCapture(event.pointerId);
    app.store.set({ pair: pair() });
  });
  hand.addEventListener("pointermove", (event) => {
    if (!held || (!held.moved && Math.hypot(event.clientX - held.x, event.clientY - held.y) < 3)) return;
    held.moved = true;
    const rate = ladder().rates[pair()], [angle, far] = angleOf(event);
    // At the pivot every angle is as good as another.
    if (rate === 0 || far < 6) return;
    const behind = angle - phaseAt(ladder(), pair(), held.at);
    const { length, position } = app.store.state;
    held.at = Math.min(Math.max(held.at + (behind - TURN * Math.round(behind / TURN)) / rate, 0), Math.max(length - 1, position));
    app.store.set({ position: Math.round(held.at) });
  });
  const release = () => { held = null; };
  hand.addEventListener("pointerup", release);
  hand.addEventListener("pointercancel", release);
  hand.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      app.store.set({ pair: pair() });
    } else stepKeys(event, app, ladder().rates[pair()]);
  });
}

// The position's bits, the slowest left as numbers are written, each under the hand nearest to its period.
function drawCounter(plot, ladder, state) {
  plot.clear();
  const digits = state.position.toString(2).padStart(Math.max(8, Math.ceil(Math.log2(Math.max(state.length, 2)))), "0");
  const left = 52, wide = 33, each = Math.max(4, Math.floor((plot.width - left) / wide)), tall = 80;
  const rows = Math.ceil(digits.length / each);
  plot.height = rows * tall;
  plot.element.setAttribute("height", plot.height);
  plot.element.setAttribute("viewBox", `0 0 ${plot.width} ${plot.height}`);
  for (let row = 0; row < rows; row++) {
    const top = row * tall;
    plot.ink.append(svg("text", { x: 0, y: top + 20 }, "hand"), svg("text", { x: 0, y: top + 50 }, "bit"), svg("text", { x: 0, y: top + 74 }, "period"));
  }
  [...digits].forEach((digit, place) => {
    // The first row holds what is left over, at its right end, so that columns stay one below the other.
    const seat = place + (each * rows - digits.length);
    const x = left + ((rows === 1 ? place : seat % each) + 0.5) * wide, top = (rows === 1 ? 0 : Math.floor(seat / each)) * tall;
    const bit = digits.length - 1 - place, period = 2 ** (bit + 1), pair = nearestPair(ladder.rates, period);
    const parts = [
      svg("rect", { x: x - 11, y: top + 34, width: 22, height: 22, class: digit === "1" ? "bit on" : "bit" }),
      svg("text", { x, y: top + 50, "text-anchor": "middle", class: digit === "1" ? "digit on" : "digit" }, digit),
      svg("text", { x, y: top + 74, "text-anchor": "middle" }, bit < 6 ? String(period) : `2${raised(bit + 1)}`)];
    if (pair !== null) {
      const phase = phaseAt(ladder, pair, state.position), radius = 12;
      parts.push(svg("circle", { cx: x, cy: top + 16, r: radius, class: pair === state.pair ? "face lit" : "face" }),
        svg("line", { x1: x, y1: top + 16, x2: x + radius * Math.cos(phase), y2: top + 16 - radius * Math.sin(phase), class: "arm" }));
    }
    plot.ink.append(svg("g", {}, svg("title", {}, pair === null ? `no hand rotates about once in ${number(period)} tokens` : `pair ${pair} rotates once in ${number(wavelength(ladder.rates[pair]))} tokens, bit ${bit} once in ${number(period)}`), parts));
  });
}

// The pair whose wavelength is nearest to a period in ratio; null where none is within a factor of 1.5.
export function nearestPair(rates, period) {
  let nearest = null, least = 1.5;
  for (let pair = 0; pair < rates.length; pair++) {
    const ratio = (TURN / rates[pair]) / period, far = ratio < 1 ? 1 / ratio : ratio;
    if (far < least) [nearest, least] = [pair, far];
  }
  return nearest;
}

// Turns of the slowest hand that are tried.
function mostRounds(pairs) {
  return Math.max(2, Math.floor(FAR_TURNS / pairs));
}

// The whole position from 0 to `most` that the hands' phases tell, or null. The slowest hand says roughly where, each
// faster one says it finer; where the slowest has turned more than once, the turn that all hands agree with best wins.
export function readBack(rates, phases, most) {
  const order = [...rates.keys()].filter((pair) => rates[pair] > 0).sort((a, b) => rates[a] - rates[b]);
  if (!order.length) return null;
  const rounds = Math.min(Math.ceil((most * rates[order[0]]) / TURN) + 1, mostRounds(order.length));
  let best = null, least = Infinity;
  for (let round = 0; round <= rounds; round++) {
    let at = (phases[order[0]] + TURN * round) / rates[order[0]];
    for (const pair of order) at = (phases[pair] + TURN * Math.round((at * rates[pair] - phases[pair]) / TURN)) / rates[pair];
    const whole = Math.round(at);
    if (whole < 0 || whole > most) continue;
    let apart = 0;
    for (const pair of order) {
      const off = (whole * rates[pair] - phases[pair]) / TURN;
      apart += Math.abs(off - Math.round(off));
    }
    if (apart < least) [best, least] = [Object.is(whole, -0) ? 0 : whole, apart];
  }
  return best;
}
