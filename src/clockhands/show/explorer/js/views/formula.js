// The formula: what is computed for one position and one pair, with every number on the way.

import { slider } from "../controls.js";
import { overTwice, timesTwice } from "../doubles.js";
import { Plot, html, line, number, put, refill, say, svg } from "../draw.js";
import { LAST_TRUE_POSITION, TURN, exactRate, phaseAt, wavelength } from "../ladders.js";
import { decades, powerWords } from "./ladder.js";
import { decimal } from "./pair.js";

const DIGITS = 8; // after the point, of angles and of what is computed from them
const STEP_DIGITS = 12; // of a frequency, an exponent and a divisor
const FUNCTIONS = { sin: ["", "sin"], cos: ["", "cos"], "-sin": ["−", "sin"], "-cos": ["−", "cos"] };

// How a spec makes its frequencies: multiplier / base^(top / under) with i for the pair, or `base` null where it is no
// such formula. `d` is what the exponent divides by.
export function ruleOf(spec) {
  const { spacing = { type: "none" }, scaling = null } = spec, { width, odd, rotated } = spec;
  const d = rotated ?? (odd === "zero" ? width - (width % 2) : odd === "cut" ? 2 * Math.ceil(width / 2) : width);
  if (spacing.type !== "Geometric" || scaling !== null) return { d, base: null, scaled: scaling !== null, type: spacing.type, spacing };
  const { base, span, multiplier } = spacing, given = { d, base, multiplier, span };
  if (span === "open") return { ...given, times: 2, under: d };
  return { ...given, times: 1, under: span === "closed" ? Math.floor(d / 2) - 1 : span };
}

// The numbers on the way from a position and a pair to its sine and cosine; the angle with twice the digits.
export function stepsOf(rule, ladder, pair, position) {
  const rate = exactRate(ladder, pair), phase = phaseAt(ladder, pair, position), rest = phase < 0 ? phase + TURN : phase;
  const angle = timesTwice([position, 0], rate);
  return {
    exponent: rule.base === null ? null : (rule.times * pair) / rule.under,
    divisor: rule.base === null ? null : overTwice([rule.multiplier, 0], rate)[0],
    angle, rest, rotations: Math.round((angle[0] - rest) / TURN), sine: Math.sin(phase), cosine: Math.cos(phase),
  };
}

// A number of twice the digits, at least 0, with so many digits after the point, every one of them right.
export function exactDecimal([high, low], digits = DIGITS) {
  const floor = Math.floor(high), part = high - floor + low, scale = 10 ** digits;
  const whole = BigInt(floor) + BigInt(Math.floor(part)), units = Math.round((part - Math.floor(part)) * scale);
  const [front, back] = units === scale ? [whole + 1n, 0] : [whole, units];
  return `${String(front).replace(/\B(?=(\d{3})+$)/g, "\u202f")}.${String(back).padStart(digits, "0")}`;
}

// A sine or cosine: small ones keep six digits where a double has as many.
function heightWords(value, position) {
  return value !== 0 && Math.abs(value) < 1e-3 && position <= LAST_TRUE_POSITION ? number(value, 6) : decimal(value, DIGITS);
}

export const formula = {
  id: "formula",
  question: "What is the formula?",
  mount(section, app) {
    const { store } = app;
    const position = slider(app, "position", "Position p", { min: 0, max: store.state.length - 1, unit: "token" });
    const which = slider(app, "pair", "Pair i", { min: 0, max: Math.max(store.state.width / 2 - 1, 1) });
    section.controls.append(position.element, which.element);
    const general = html("div", { class: "typeset" }), filled = html("table", { class: "numbers worked" }), symbols = html("dl", { class: "symbols" });
    const note = html("p", { class: "note" });
    const plot = new Plot(section.figure, { height: 190, margin: { top: 34, right: 24, bottom: 42, left: 58 }, label: "The wavelength of every pair; arrow keys choose a pair" });
    for (const [name, value] of [["role", "slider"], ["tabindex", 0], ["aria-valuemin", 0]]) plot.element.setAttribute(name, value);
    plot.element.classList.add("turned");
    plot.element.before(html("div", { class: "beside" }, html("div", { class: "steps" }, general, filled), symbols), note);

    // What is pointed at, and the line that explains it.
    const marked = (event) => {
      const name = event.type === "pointerleave" || event.type === "focusout" ? null : event.target.closest("[data-symbol]")?.dataset.symbol ?? null;
      for (const each of section.figure.querySelectorAll("[data-symbol]")) each.classList.toggle("marked", each.dataset.symbol === name);
    };
    for (const kind of ["pointerover", "focusin", "focusout", "pointerleave"]) section.figure.addEventListener(kind, marked);

    let across = null;
    const choose = (pair) => store.set({ pair: Math.min(Math.max(pair, 0), store.state.width / 2 - 1) });
    const take = (event) => {
      if (across && event.buttons & 1) choose(Math.round(across.invert(event.clientX - plot.element.getBoundingClientRect().left)));
    };
    plot.element.addEventListener("pointerdown", (event) => { plot.element.setPointerCapture(event.pointerId); take(event); });
    plot.element.addEventListener("pointermove", take);
    plot.element.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (way === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      choose(store.state.pair + way * (event.shiftKey ? 10 : 1));
    });

    return (state, changed) => {
      if (changed.has("length")) position.limits(0, Math.max(state.length - 1, 1));
      const made = workOf(app, state);
      which.limits(0, Math.max(made.ladder.pairs - 1, 1));
      if (changed.size === Object.keys(state).length) plot.measure();
      const words = explained(made);
      refill(general, linesOf(made, words));
      refill(filled, [html("caption", {}, "With the numbers of this page"), html("tbody", {}, rowsOfWork(made).map(([name, sum, value]) =>
        html("tr", {}, html("th", { scope: "row" }, name), html("td", { class: "sum" }, sum), html("td", { class: "value" }, value))))]);
      refill(symbols, words.flatMap(([name, signs, text]) => [html("dt", { "data-symbol": name }, signs), html("dd", { "data-symbol": name }, text)]));
      say(note, noteOfFormula(made));
      across = drawWavelengths(plot, made);
      put(plot.element, { "aria-valuemax": made.ladder.pairs - 1, "aria-valuenow": made.pair, "aria-valuetext": `pair ${made.pair}, ${made.rate ? `${number(wavelength(made.rate))} tokens per rotation` : "never rotates"}` });
      section.answer(answerOfFormula(made));
    };
  },
};

// All that this view says of a state.
function workOf(app, state) {
  const spec = app.given(state), ladder = app.ladder(state), code = app.additive(state), pair = Math.min(state.pair, ladder.pairs - 1), rotary = spec.type === "Rotary";
  const rule = ruleOf(spec), head = rotary ? app.head(state) : null, { position } = state;
  const channels = Array.from((rotary ? head : code).channels.subarray(2 * pair, 2 * pair + 2)), apart = spec.layout === "halves" && !(spec.blocks?.length > 0);
  return { rule, ladder, code, head, pair, position, rotary, channels, apart, rate: ladder.rates[pair], plain: app.plain(state), steps: stepsOf(rule, ladder, pair, position) };
}

// The two dimensions of a pair by their formula; where a layout has blocks only the numbers are known.
function dimensionSigns({ apart, rotary, head }) {
  if (rotary && (head.spec.blocks.length || head.spec.part === "last")) return ["a", "b"];
  return apart ? ["i", "i + d/2"] : ["2i", "2i + 1"];
}

// A sign of the formula; one that keys reach has its explanation, not by an id, which would stand twice where a notebook
// shows two pages.
function symbol(name, text, reached = null) {
  return html("i", { "data-symbol": name, ...(reached ? { tabindex: 0, "aria-description": reached.find(([each]) => each === name)[2].split(/[.;] /)[0], class: "reached" } : { class: "sign" }) }, text);
}

function fraction(top, bottom) {
  return html("span", { class: "fraction" }, html("span", {}, top), html("span", {}, bottom));
}

// The exponent with its symbols.
function exponentSigns({ span, d }, reached) {
  if (span === "open") return [symbol("two", "2"), symbol("i", "i", reached), "/", symbol("d", "d", reached)];
  return [symbol("i", "i", reached), "/", ...(span === "closed" ? ["(", symbol("d", d % 2 ? "(d − 1)" : "d", reached), "/2 − 1)"] : [number(span)])];
}

// What sine and cosine are taken of.
function angleSigns({ rule }, reached) {
  if (rule.base === null) return [symbol("p", "p", reached), " · ", symbol("frequency", "ω", reached), html("sub", {}, symbol("i", "i", reached))];
  const top = [symbol("p", "p", reached), ...(rule.multiplier === 1 ? [] : [` · ${number(rule.multiplier, 10)}`])];
  return [fraction(top, [symbol("base", "base", reached), html("sup", {}, exponentSigns(rule, reached))])];
}

function linesOf(made, words) {
  const signs = dimensionSigns(made), written = (parts) => html("p", {}, parts);
  if (made.rotary) {
    const [x, y] = signs.map((sign) => ["q(", symbol("two", sign), ")"]), minus = made.head.way > 0;
    const cosine = () => [" cos ", symbol("angle", "θ")], sine = () => [" sin ", symbol("angle", "θ")];
    const [a, b] = signs.map((sign) => ["q(", symbol("two", sign), ")"]);
    return [written([symbol("angle", "θ"), " = ", ...angleSigns(made, words)]),
      written(["q′(", symbol("two", signs[0]), ") = ", ...x, ...cosine(), minus ? " − " : " + ", ...y, ...sine()]),
      written(["q′(", symbol("two", signs[1]), ") = ", minus ? "" : "−", ...a, ...sine(), " + ", ...b, ...cosine()])];
  }
  return made.channels.flatMap((channel, place) => {
    if (channel < 0) return [];
    const [sign, wave] = FUNCTIONS[made.code.waveOf(channel)];
    return [written(["PE(", symbol("p", "p"), ", ", symbol("two", signs[place]), ") = ", `${sign}${wave}(`, ...angleSigns(made, place === 0 ? words : null), ")"])];
  });
}

// Each step: its name, the sum with numbers, its value.
function rowsOfWork(made) {
  const { rule, pair, position, steps, channels, code, rotary, rate } = made, p = number(position), rows = [];
  const theta = steps.angle[0] !== 0 && steps.angle[0] < 1e-3 ? number(steps.angle[0], 8) : exactDecimal(steps.angle), rad = (text) => `${text} rad`;
  if (rule.base === null) rows.push(["angle θ", `${p} · ${number(rate, STEP_DIGITS)}`, rad(theta)]);
  else {
    const sum = rule.times === 2 ? `2 · ${pair} / ${number(rule.under)}` : `${pair} / ${number(rule.under, STEP_DIGITS)}`;
    rows.push(["exponent", sum, number(steps.exponent, STEP_DIGITS)],
      ["divisor", html("span", {}, number(rule.base, STEP_DIGITS), html("sup", {}, number(steps.exponent, STEP_DIGITS))), number(steps.divisor, STEP_DIGITS)],
      ["angle θ", rule.multiplier === 1 ? `${p} / ${number(steps.divisor, STEP_DIGITS)}` : `${p} · ${number(rule.multiplier, STEP_DIGITS)} / ${number(steps.divisor, STEP_DIGITS)}`, rad(theta)]);
  }
  if (steps.rotations > 0) rows.push(["less whole rotations", `θ − ${number(steps.rotations)} · 2π`, rad(steps.rest.toFixed(DIGITS))]);
  rows.push(["sine", "sin θ", heightWords(steps.sine, position)], ["cosine", "cos θ", heightWords(steps.cosine, position)]);
  if (rotary) {
    const [c, s] = [steps.cosine, steps.sine * made.head.way].map((value) => decimal(value, 4)), signs = (value) => (value.startsWith("−") ? [value.slice(1), "−", "+"] : [value, "+", "−"]);
    const [size, plus, minus] = signs(s);
    rows.push([`q′(${channels[0]})`, "", `${c} q(${channels[0]}) ${minus} ${size} q(${channels[1]})`], [`q′(${channels[1]})`, "", `${plus === "−" ? "−" : ""}${size} q(${channels[0]}) ${c.startsWith("−") ? `− ${c.slice(1)}` : `+ ${c}`} q(${channels[1]})`]);
    return rows;
  }
  for (const channel of channels.filter((each) => each >= 0)) {
    rows.push([`PE(${p}, ${channel})`, code.waveOf(channel).replace("-", "−") + " θ" + (changesValues(made) ? ", then as below" : ""), heightWords(code.cell(position, channel), position)]);
  }
  return rows;
}

function changesValues({ code, position }) {
  return code.factor !== 1 || code.mean !== 0 || code.zeroRows.has(position);
}

// Each symbol: its name, what it looks like, and a line about it with the numbers of this page.
function explained(made) {
  const { rule, ladder, pair, position, rotary, channels, rate } = made, last = ladder.pairs - 1, held = channels.filter((each) => each >= 0);
  const waves = rate === 0 ? "it never rotates" : `${number(wavelength(rate), 6)} tokens`;
  const lines = [
    ["p", "p", `The position. Here ${number(position)}.`],
    ["i", "i", `The pair, 0 to ${last}. Here ${pair}.`],
    ["two", dimensionSigns(made).join(", "), `The dimensions of pair i. Here ${held.join(" and ")}.`],
    ["d", "d", `${rotary ? "The dimensions of a head that RoPE rotates" : "The width"}. Here ${number(rule.d)}, that is ${number(ladder.pairs)} ${ladder.pairs === 1 ? "pair" : "pairs"}.`],
  ];
  if (rule.base === null) lines.push(["frequency", "ω", `The frequency of pair i, in radians per token. Here ${number(rate, 8)}; ${whereFrom(made)}.`]);
  else {
    lines.push(["base", "base", `A constant. Here ${number(rule.base, 12)}.`],
      ["frequency", "ω", `The frequency, ${rule.multiplier === 1 ? "1" : number(rule.multiplier, 10)} / divisor: radians per token. Here ${number(rate, 8)}.`]);
  }
  lines.push(["wavelength", "2π / ω", `The wavelength: tokens until both are the same again. Here ${waves}.`],
    ["angle", "θ", "The angle p · ω, in radians."]);
  return lines;
}

// Why no base makes these frequencies.
function whereFrom({ rule, plain, pair, rate }) {
  const before = plain.rates[pair];
  if (before !== rate) return `without the scaling it would be ${number(before, 8)}`;
  if (rule.scaled) return "the scaling leaves that of this pair as it is";
  if (rule.type === "EvenSteps") return `the frequencies are evenly spaced from ${number(rule.spacing.first * rule.spacing.multiplier, 6)} to ${number(rule.spacing.last * rule.spacing.multiplier, 6)}`;
  return rule.type === "Explicit" ? "each frequency is listed by itself" : "it is made in another way";
}

function noteOfFormula(made) {
  const { rule, code, head, rotary, position, channels, steps } = made, said = [], off = (steps.angle[0] * 10 ** (1 - STEP_DIGITS)) / 2;
  if (off > 10 ** -DIGITS) said.push(`The page computes with more digits than it shows: by the ${STEP_DIGITS} digits above the angle is right within ${number(off, 1)} rad.`);
  if (rule.base !== null && rule.span !== "open") said.push(`The exponent divides by ${number(rule.under)}${rule.span === "closed" ? " (d/2 − 1), so that the last pair has exactly the base as its divisor" : ""}; the paper's formula divides 2i by d.`);
  if (rotary) {
    said.push("A key is rotated in the same way, by its own position.");
    if (head.ladder.attentionFactor !== 1) said.push(`This encoding also multiplies q′ by ${number(head.ladder.attentionFactor, 6)}.`);
    if (head.spec.xpos !== null) said.push("This encoding also scales q′ with the position.");
    if (head.spec.reordered) said.push("It writes q′ to other dimensions than it reads q from.");
  } else {
    if (code.mean !== 0) said.push(`This encoding subtracts the mean ${number(code.mean, 6)} from every value.`);
    if (code.factor !== 1) said.push(`It multiplies every value by ${number(code.factor, 6)}.`);
    if (code.zeroRows.has(position)) said.push(`It has zeros at position ${number(position)} in place of the formula.`);
    if (channels.includes(-1)) said.push("This pair has one dimension only.");
  }
  return said.join(" ");
}

function answerOfFormula(made) {
  const { rule, steps, pair, position, channels, rotary, rate, code } = made, p = number(position), held = channels.filter((each) => each >= 0);
  const angle = `${steps.angle[0] !== 0 && steps.angle[0] < 0.1 ? number(steps.angle[0], 4) : exactDecimal(steps.angle, 4)} rad`;
  const how = rule.base === null ? `These frequencies do not follow the formula with a base: here the angle is the position times the listed frequency of the pair. For position ${p} and pair ${pair} it is ${p} · ${number(rate, 6)} = ${angle}`
    : `Divide the position by a power of the base: that is an angle. For position ${p} and pair ${pair} it is ${p}${rule.multiplier === 1 ? "" : ` · ${number(rule.multiplier, 6)}`} / ${number(steps.divisor, 6)} = ${angle}`;
  if (rotary) return `${how}, and dimensions ${held.join(" and ")} of query and key are rotated by it. Nothing is added.`;
  const values = held.map((channel) => `${decimal(code.cell(position, channel), 4)} in dimension ${channel}`).join(" and ");
  return `${how}. Its ${held.map((channel) => ({ sin: "sine", cos: "cosine", "-sin": "negative sine", "-cos": "negative cosine" })[code.waveOf(channel)]).join(" and ")} ${held.length === 1 ? "is" : "are"} the encoding${changesValues(made) ? ", changed as noted below" : ""}: ${values}.`;
}

// The wavelength of every pair; gives the scale across.
function drawWavelengths(plot, { ladder, pair, rate }) {
  plot.clear();
  const { left, top, right, bottom } = plot.inner, last = Math.max(ladder.pairs - 1, 1), moving = Array.from(ladder.rates.keys()).filter((each) => ladder.rates[each] > 0);
  const waves = moving.map((each) => wavelength(ladder.rates[each])), x = d3.scaleLinear([0, last], [left, right]);
  const y = d3.scaleLog([(d3.min(waves) ?? 1) / 1.5, (d3.max(waves) ?? 10) * 1.5], [bottom, top]);
  plot.axes(x, y, "pair i", "", { xTicks: Math.min(last, plot.width > 560 ? 8 : 5), yValues: decades(y.domain(), 5), yFormat: powerWords });
  plot.ink.append(svg("text", { class: "name", x: 0, y: 14 }, "wavelength (tokens), log"));
  if (moving.length > 1) plot.ink.append(line(moving.map((each, place) => [x(each), y(waves[place])]), { class: "likeness" }));
  if (rate > 0) {
    const [cx, cy] = [x(pair), y(wavelength(rate))], late = cx > (left + right) / 2;
    plot.ink.append(svg("circle", { class: "tip", cx, cy, r: 5, "data-wavelength": wavelength(rate) }),
      svg("text", { class: "halo strong", x: cx + (late ? -9 : 9), y: cy + (late ? -7 : -11), "text-anchor": late ? "end" : "start" }, `pair ${pair}: ${number(wavelength(rate))}`));
  }
  return x;
}
