// What happens past the trained length? Wavelengths before and after a scaling, and what a dot product makes of them.

import { choice, slider } from "../controls.js";
import { html, number, pathThrough, Plot, raised, svg, unlessKept } from "../draw.js";
import { whenIdle } from "../idle.js";
import { kernelAt, kernelByDistance } from "../kernels.js";
import { completes, firstNeverTurning, turnsWithin, wavelength } from "../ladders.js";
import { SCALINGS, scaledLadder, scalingOf } from "../scalings.js";

const SCALING_WORDS = { none: "none", linear: "linear", ntk: "NTK-aware", dynamic: "dynamic NTK", yarn: "YaRN", llama3: "Llama 3" };
const SHORT_WORDS = { ...SCALING_WORDS, ntk: "NTK", dynamic: "dynamic" }; // where it stands beside numbers
const LADDER_NEEDS = ["code", "width", "base", "span", "length", "served", "scaling", "factor"];
const LADDER_BAND = { words: 18, row: 9, gap: 24, below: 10 }; // px
const MARKS_APART = 3.5; // px
const LINES_ABOVE = 36; // px for the names of the two lengths
const NEAR_RATE = 1e-9; // relative: rates nearer than this are one, so that a slowing by f undoes f times the length
const KERNEL_WORK = 4e6; // pairs x distances that are computed one and all; beyond, some of each pixel
const KERNEL_SAMPLES = 4e5; // pairs x distances, where only some are

// What a scaling makes of a ladder, counted: pairs that never turn in training, those that point where it never did, and
// those that never turn when it is served. And of each pair how it is marked: before by its rate in training, after by its
// own rate at the served length, so that what stands beyond one of the two lines never completes a turn there.
export function fitness(before, after, length, served) {
  const beyond = [], never = [], still = [], marks = { before: [], after: [] };
  let kept = 0;
  for (let pair = 0; pair < before.pairs; pair++) {
    const old = before.rates[pair], rate = after.rates[pair], turned = completes(old, length), turns = completes(rate, served);
    const further = !turned && rate * served > old * length * (1 + NEAR_RATE);
    if (!turned) never.push(pair);
    if (further) beyond.push(pair);
    if (!turns) still.push(pair);
    if (sameRate(rate, old)) kept += 1;
    marks.before.push(turned ? "turning" : "never");
    marks.after.push(further ? "beyond" : turns ? "turning" : "never");
  }
  return { never, beyond, still, kept, marks };
}

function sameRate(one, other) {
  return Math.abs(one - other) <= NEAR_RATE * other;
}

const kernelsDrawn = new WeakMap();

// The columns of a ladder's kernel, kept as long as nothing of them changes.
function columnsOf(ladder, last, columns) {
  const kept = kernelsDrawn.get(ladder);
  if (kept && kept.last === last && kept.columns === columns) return kept.found;
  const found = kernelColumns(ladder, last, columns);
  kernelsDrawn.set(ladder, { last, columns, found });
  return found;
}

// Whether all is to be drawn anew, as after the place has changed its width.
export function wholly(state, changed) {
  return Object.keys(state).every((name) => changed.has(name));
}

// A plot's size: its place is asked for its width only where that may have changed, since it costs a layout of the page.
export function sized(plot, height, whole) {
  plot.height = height;
  if (whole || !plot.width) plot.measure();
  plot.element.setAttribute("height", height);
  plot.element.setAttribute("viewBox", `0 0 ${plot.width} ${height}`);
  return plot.clear();
}

// The mean of cos(rate x distance) over the pairs, by column of a logarithmic axis: [distance, least, most, mean].
export function kernelColumns(ladder, last, columns) {
  const size = ladder.attentionFactor ** 2 / ladder.pairs, steps = Math.log(last);
  const all = ladder.pairs * last <= KERNEL_WORK ? kernelByDistance(ladder, last + 1) : null;
  const most = all ? Infinity : Math.max(1, Math.floor(KERNEL_SAMPLES / (ladder.pairs * columns)));
  const found = [];
  for (let column = 0, from = 1; column < columns && from <= last; column++) {
    const to = column === columns - 1 ? last + 1 : Math.ceil(Math.exp((steps * (column + 1)) / columns));
    if (to <= from) continue;
    const stride = Math.max(1, (to - from) / most);
    let least = Infinity, largest = -Infinity, sum = 0, count = 0;
    for (let at = from; at < to; at += stride) {
      const distance = Math.floor(at);
      const value = (all ? all[distance] : kernelAt(ladder, distance)) * size;
      if (value < least) least = value;
      if (value > largest) largest = value;
      sum += value;
      count += 1;
    }
    found.push([Math.sqrt(from * (to - 1)), least, largest, sum / count]);
    from = to;
  }
  return found;
}

const scaledKept = new Map();

// A scaled ladder, or the sentence that says why there is none.
function scaledOrNot(name, ladder, own, state) {
  if (name === "none") return { ladder: own, why: null };
  const scaling = scalingOf(name, state.factor, state.length), served = name === "dynamic" ? state.served : null;
  const key = JSON.stringify([scaling, served]), kept = scaledKept.get(name);
  if (kept && kept.key === key && kept.from === ladder) return kept;
  const made = { ...scaledNow(scaling, ladder, served), key, from: ladder };
  scaledKept.set(name, made);
  return made;
}

function scaledNow(scaling, ladder, served) {
  try {
    return { ladder: scaledLadder(scaling, ladder, served), why: null };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { ladder: null, why: error.message };
  }
}

// Powers of ten in a range, at most so many of them.
export function decades([from, to], most) {
  const first = Math.ceil(Math.log10(from) - 1e-9), last = Math.floor(Math.log10(to) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most)), found = [];
  for (let power = first; power <= last; power += step) found.push(Number(`1e${power}`));
  return found;
}

// A power of ten in as few signs as it takes: 1, 10, 1 000, 10⁶; `always`: as a power in any case.
export function powerWords(value, always = false) {
  const power = Math.round(Math.log10(value));
  if (!always && power >= 0 && power <= 4) return number(10 ** power);
  return `10${raised(power)}`;
}

// The axis at the bottom of a plot in powers of ten, with its name.
export function logAxis(plot, x, name, most = 8) {
  const { right, bottom } = plot.inner, transform = `translate(0,${bottom})`;
  const axis = unlessKept([x.domain(), x.range(), transform, most].join(";"), () => {
    const made = svg("g", { class: "axis", transform });
    d3.axisBottom(x).tickValues(decades(x.domain(), most)).tickFormat((value) => powerWords(value)).tickSizeOuter(0)(d3.select(made));
    return made;
  });
  plot.ink.append(axis, svg("text", { class: "name", x: right, y: bottom + 34, "text-anchor": "end" }, name));
}

// The path of an upright line that leaves out what lies between `gaps`, [from, to] in px.
export function uprightPath(at, from, to, gaps = []) {
  const ends = [from, ...gaps.flat(), to], parts = [];
  for (let part = 0; part < ends.length; part += 2) parts.push(`M${at},${ends[part]}V${ends[part + 1]}`);
  return parts.join("");
}

// A line across a plot at a value of its horizontal axis, named above, where it has room; it leaves out what lies between
// `gaps`, [from, to] in px. `before`: the name stands rather on the left.
export function namedUpright(plot, at, words, { top, attributes, level = 0, gaps = [], before = false }) {
  const { left, right, bottom } = plot.inner, wide = 6.6 * words.length + 8;
  const after = before ? at - wide < left : at + wide < right;
  plot.ink.append(
    svg("path", { d: uprightPath(at, top - 10 - 14 * level, bottom, gaps), fill: "none", ...attributes }),
    svg("text", { x: at + (after ? 4 : -4), y: top - 2 - 14 * level, "text-anchor": after ? "start" : "end" }, words));
}

export const ladder = {
  id: "ladder",
  question: "What happens past the trained length?",
  mount(section, app) {
    const pairs = slider(app, "pair", "Pair", { min: 0, max: Math.max(app.store.state.width / 2 - 1, 1) });
    section.controls.append(
      choice(app, "scaling", "Scaling", SCALINGS.map((name) => [name, SCALING_WORDS[name]])).element,
      slider(app, "factor", "Factor", { min: 1, max: 64, scale: "log" }).element,
      slider(app, "served", "Served length", { min: 2, max: 2 ** 20, scale: "log", unit: "tokens" }).element,
      pairs.element);
    const bandPlace = html("div", { class: "ladder-bands" });
    section.figure.append(bandPlace, marksKey(), html("p", { class: "says" }, "Each band is a scaling: a way to slow hands down for texts longer by a factor. Linear slows all alike; NTK spares the fastest, YaRN and Llama 3 all fast ones. Upper marks: before; lower marks: after. Press a band to choose it."));
    const bands = new Plot(bandPlace, { height: 400, margin: { top: LINES_ABOVE, right: 10, bottom: 40, left: 10 }, label: "The wavelength of every pair, before and after each scaling" });
    const readout = html("p", { class: "note", "aria-live": "polite" });
    const curves = html("div", {});
    const said = html("p", { class: "note" });
    section.figure.append(readout, curves, said);
    const kernel = new Plot(curves, { height: 230, margin: { top: 34, right: 62, bottom: 40, left: 44 }, label: "q·k against distance, before and after the scaling" });
    let found = null;
    const followed = whenIdle(() => drawKernel(kernel, found, found.state, said, false), curves);

    // What is pointed at: the band, and in it the pair whose wavelength before scaling is nearest.
    const pointed = (event) => {
      if (!found) return;
      const box = bands.element.getBoundingClientRect(), aim = event.clientX - box.left;
      const band = found.bands.findLast((each) => each.top <= event.clientY - box.top);
      const places = found.before.rates.map((rate) => (rate ? Math.abs(found.x(wavelength(rate)) - aim) : Infinity));
      const patch = { pair: d3.minIndex(places) };
      if (event.type === "click" && band) patch.scaling = band.name;
      app.store.set(patch);
    };
    bands.element.addEventListener("click", pointed);
    bands.element.addEventListener("pointermove", (event) => event.buttons && pointed(event));

    return (state, changed) => {
      const whole = wholly(state, changed);
      if (changed.has("width") || changed.has("code")) pairs.limits(0, Math.max(app.plain(state).pairs - 1, 1));
      if (LADDER_NEEDS.some((name) => changed.has(name))) {
        found = laddersOf(app, state);
        if (whole) drawKernel(kernel, found, state, said, whole);
        else followed();
        section.answer(fitWords(found, state));
      }
      if (found && (changed.has("pair") || LADDER_NEEDS.some((name) => changed.has(name)))) {
        drawBands(bands, found, state, whole);
        readout.textContent = pairWords(found, state);
      }
    };
  },
};

// The key: what the three kinds of mark stand for.
function marksKey() {
  const sample = (kind, words) => html("span", {},
    svg("svg", { width: 14, height: 18, "aria-hidden": "true" }, rungMark(kind, [7], 9)), words);
  return html("p", { class: "key" },
    sample("turning", "completes a rotation within its length"),
    sample("never", "never does"),
    sample("beyond", "beyond: reaches angles that training did not have"));
}

// Marks of one kind at places of a row: hue and shape differ, since hue alone is lost in grey.
function rungMark(kind, places, y) {
  const drawn = {
    turning: (x) => `M${x},${y - 4}v8`,
    never: (x) => `M${x},${y - 7}v14`,
    beyond: (x) => `M${x},${y - 3}v10m-2.5,-4l2.5,4l2.5,-4`,
  }[kind];
  return svg("path", { class: `rung ${kind}`, d: places.map((x) => drawn(x.toFixed ? Number(x.toFixed(1)) : x)).join("") });
}

// The ladder before any scaling, what each scaling makes of it, and first what the code itself makes of it.
function laddersOf(app, state) {
  const before = app.plain(state), own = app.ladder(state), scales = own.rates.some((rate, pair) => !sameRate(rate, before.rates[pair]));
  const bands = SCALINGS.map((name) => {
    const { ladder: scaled, why } = scaledOrNot(name, before, own, state), asItIs = name === "none";
    const words = asItIs ? (scales ? "own scaling" : "as it is") : `${SHORT_WORDS[name]}, ${number(state.factor, 3)}`;
    return { name, ladder: scaled, why, words, plain: asItIs && !scales, counts: scaled && fitness(before, scaled, state.length, state.served) };
  });
  return { state, before, bands, chosen: bands.find((band) => band.name === state.scaling) ?? bands[0], first: firstNeverTurning(before, state.length) };
}

function drawBands(plot, found, state, whole) {
  const { before } = found, finite = (each) => Array.from(each.rates).filter((rate) => rate > 0).map(wavelength);
  const every = found.bands.flatMap((band) => (band.ladder ? finite(band.ladder) : []));
  const tall = (band) => LADDER_BAND.words + 2 * LADDER_BAND.row + (band.plain || !band.ladder ? 0 : LADDER_BAND.gap) + LADDER_BAND.below;
  sized(plot, plot.margin.top + d3.sum(found.bands, tall) + plot.margin.bottom, whole);
  const { left, right, top } = plot.inner;
  // Where no pair turns, the two lengths are all that stands on the axis.
  const waves = [...every, state.length, state.served];
  const x = found.x = d3.scaleLog([Math.min(d3.min(every) ?? Infinity, state.length, state.served) / 1.15, d3.max(waves) * 1.15], [left, right]);
  const places = (each, pairs) => pairs.filter((pair) => each.rates[pair] > 0).map((pair) => x(wavelength(each.rates[pair])));
  let y = top;
  for (const band of found.bands) {
    band.top = y;
    if (band.name === found.chosen.name) plot.ink.append(svg("rect", { class: "band-chosen", x: 0, y: y + 1, width: plot.width, height: tall(band) - 2 }));
    y += tall(band);
  }
  logAxis(plot, x, "wavelength (tokens), log", plot.width < 500 ? 6 : 10);
  const gaps = found.bands.map((band) => [band.top, band.top + LADDER_BAND.words]);
  namedUpright(plot, x(state.length), `trained ${number(state.length)}`, { top: top - 2, gaps, before: state.length < state.served, attributes: { class: "trained" } });
  namedUpright(plot, x(state.served), `served ${number(state.served)}`, { top: top - 2, gaps, level: 1, before: state.served < state.length, attributes: { class: "served" } });
  const lit = Math.min(state.pair, before.pairs - 1);
  const all = drawnPairs(before, x, [found.first, lit]);
  for (const band of found.bands) {
    const group = svg("g", { class: band.name === found.chosen.name ? "band chosen-band" : "band", "data-scaling": band.name });
    group.append(svg("text", { class: "band-words", x: left, y: band.top + 14 }, bandWords(band, before.pairs)));
    plot.ink.append(group);
    if (!band.ladder) continue;
    const { marks } = band.counts, marked = (each, kinds, y) => group.append(...["turning", "never", "beyond"].map((kind) =>
      rungMark(kind, places(each, all.filter((pair) => kinds[pair] === kind)), y)));
    const upper = band.top + LADDER_BAND.words + LADDER_BAND.row, lower = upper + LADDER_BAND.gap;
    if (!band.plain) {
      const joined = all.filter((pair) => before.rates[pair] > 0 && band.ladder.rates[pair] > 0).map((pair) =>
        `M${x(wavelength(before.rates[pair])).toFixed(1)},${upper + 6}L${x(wavelength(band.ladder.rates[pair])).toFixed(1)},${lower - 6}`);
      group.append(svg("path", { class: "joined", d: joined.join("") }));
      marked(before, marks.before, upper);
    }
    const row = band.plain ? upper : lower;
    marked(band.ladder, marks.after, row);
    const [from, to] = [before, band.ladder].map((each) => places(each, [lit])[0]);
    if (from !== undefined && to !== undefined) {
      group.append(svg("path", { class: "joined chosen-pair", d: band.plain ? `M${from},${row - 9}v18` : `M${from},${upper - 8}v6L${to},${lower + 2}v6` }));
    }
  }
}

// The pairs that are drawn: so many that their marks stand apart, with the ends and those that matter.
function drawnPairs(ladder, x, also) {
  const moving = Array.from(ladder.rates, (_, pair) => pair).filter((pair) => ladder.rates[pair] > 0);
  const [from, to] = d3.extent(moving, (pair) => x(wavelength(ladder.rates[pair])));
  const stride = Math.max(1, Math.ceil((MARKS_APART * moving.length) / Math.max(to - from, 1)));
  const wanted = new Set([moving[0], moving.at(-1), ...also]);
  return moving.filter((pair, place) => place % stride === 0 || wanted.has(pair));
}

function bandWords(band, pairs) {
  if (!band.ladder) return `${band.words}: not for these frequencies`;
  const { beyond, kept } = band.counts, words = `${band.words}: ${beyond.length ? number(beyond.length) : "none"}`;
  if (band.plain) return `${words} of ${number(pairs)} beyond`;
  return `${words} beyond, ${number(kept)} of ${number(pairs)} kept`;
}

export function tokenWords(count) {
  return `${number(count)} ${count === 1 ? "token" : "tokens"}`;
}

// Which pairs never complete a turn in training.
function neverWords({ before, first }, never, length) {
  const pairs = before.pairs, within = `a rotation within the trained ${tokenWords(length)}.`;
  if (never.length === 0) return pairs === 1 ? `Its one pair completes ${within}` : `All ${number(pairs)} pairs complete ${within}`;
  if (never.length === pairs) return pairs === 1 ? `Its one pair never completes ${within}` : `None of the ${number(pairs)} pairs completes ${within}`;
  if (never.length === 1) return `Of ${number(pairs)} pairs one, pair ${first}, never completes ${within}`;
  const since = never.length === pairs - first ? `, from pair ${first} on,` : "";
  return `Of ${number(pairs)} pairs ${number(never.length)}${since} never complete ${within}`;
}

// The answer: yes or no, and by which numbers.
function fitWords(found, state) {
  const { before, chosen } = found;
  if (!chosen.ladder) return `${SCALING_WORDS[chosen.name]} cannot be applied here: ${chosen.why}.`;
  const { never, beyond, kept } = chosen.counts, one = never.length === 1, sentences = [];
  const how = chosen.plain ? "As it is" : chosen.name === "none" ? "With its own scaling" : `With ${SCALING_WORDS[chosen.name]} by ${number(state.factor, 3)}`;
  sentences.push(beyond.length ? `${how}, some hands go beyond the angles of training.` : `${how}, nothing new, as far as angles go.`, neverWords(found, never, state.length));
  const still = before.rates.filter((rate) => rate === 0).length;
  if (still) sentences.push(`${number(still)} of them never rotate${still === 1 ? "s" : ""}.`);
  if (never.length) {
    const who = beyond.length === 0 ? (one ? "this hand does not reach" : "none of these hands reaches")
      : beyond.length === never.length ? (one ? "this hand reaches" : "all of these hands reach") : `${number(beyond.length)} of these hands reach${beyond.length === 1 ? "es" : ""}`;
    sentences.push(`In texts of ${tokenWords(state.served)} ${who} angles that training did not have.`);
  }
  if (chosen.plain) return sentences.join(" ");
  const [was, is] = [before.rates[0], chosen.ladder.rates[0]];
  sentences.push(`${number(kept)} of ${number(before.pairs)} pairs keep${kept === 1 ? "s" : ""} ${kept === 1 ? "its" : "their"} frequency; between neighbours pair 0 rotates ` +
    (sameRate(is, was) ? `${number(is, 4)} rad, as before.` : `${number(is, 4)} rad in place of ${number(was, 4)}.`));
  if (chosen.ladder.attentionFactor !== 1) sentences.push(`Cosine and sine are multiplied by ${number(chosen.ladder.attentionFactor, 5)}.`);
  return sentences.join(" ");
}

function pairWords(found, state) {
  const { before, chosen } = found, pair = Math.min(state.pair, before.pairs - 1);
  const turns = turnsWithin(before, state.length)[pair];
  if (before.rates[pair] === 0) return `Pair ${pair} never rotates.`;
  const words = `Pair ${pair}: ${number(wavelength(before.rates[pair]), 4)} tokens per rotation, ${number(turns, 3)} rotations in training`;
  if (!chosen.ladder || chosen.plain) return `${words}, ${number(turnsWithin(before, state.served)[pair], 3)} at the served length.`;
  if (chosen.ladder.rates[pair] === 0) return `${words}; after scaling it never rotates.`;
  return `${words}; after scaling ${number(wavelength(chosen.ladder.rates[pair]), 4)} tokens per rotation, ${number(turnsWithin(chosen.ladder, state.served)[pair], 3)} rotations at the served length.`;
}

function drawKernel(plot, found, state, said, whole) {
  sized(plot, plot.height, whole);
  const { left, right, top, bottom } = plot.inner, last = Math.max(state.served - 1, 2);
  const columns = Math.max(1, Math.floor((right - left) / 1.5));
  const scaled = found.chosen.ladder && !found.chosen.plain;
  const curves = [["before", found.before], ...(scaled ? [["after", found.chosen.ladder]] : [])].map(([name, each]) => ({ name, columns: columnsOf(each, last, columns) }));
  const values = curves.flatMap((curve) => curve.columns);
  const x = d3.scaleLog([1, last], [left, right]);
  const y = d3.scaleLinear([Math.min(0, d3.min(values, (each) => each[1])), Math.max(1, d3.max(values, (each) => each[2]))], [bottom, top]);
  const up = svg("g", { class: "axis", transform: `translate(${left},0)` });
  d3.axisLeft(y).ticks(5).tickSizeOuter(0)(d3.select(up));
  plot.ink.append(up, svg("text", { class: "name", x: 0, y: 13 }, "q·k of equal tokens, mean over pairs"), svg("line", { class: "zero", x1: left, x2: right, y1: y(0), y2: y(0) }));
  logAxis(plot, x, "distance (tokens), log", plot.width < 500 ? 6 : 8);
  if (state.length < last) namedUpright(plot, x(state.length), "trained", { top, attributes: { class: "trained" } });
  const ends = curves.map((curve) => ({ ...curve, at: y(curve.columns.at(-1)[3]) }));
  if (ends.length === 2 && Math.abs(ends[0].at - ends[1].at) < 15) {
    const middle = (ends[0].at + ends[1].at) / 2, up = ends[0].at <= ends[1].at ? 0 : 1;
    ends[up].at = middle - 7.5;
    ends[1 - up].at = middle + 7.5;
  }
  for (const { name, columns: points, at } of ends) {
    const along = (part) => points.map((each) => [x(each[0]), y(each[part])]);
    plot.ink.append(
      svg("path", { class: "spread", d: `${pathThrough([...along(2), ...along(1).reverse()])}Z` }),
      svg("path", { class: `kernel-${name}`, d: pathThrough(along(3)) }),
      svg("text", { class: `end-${name}`, x: right + 6, y: at + 4 }, scaled ? name : "as it is"));
  }
  const near = curves.map(({ name, columns: [[, , value]] }) => `${number(value, 4)}${scaled ? ` ${name}` : ""}`).join(", ");
  said.textContent = `q·k of two equal tokens one apart: ${near}; at the same position 1${scaled && found.chosen.ladder.attentionFactor !== 1 ? ` before, ${number(found.chosen.ladder.attentionFactor ** 2, 4)} after` : ""}.`;
}
