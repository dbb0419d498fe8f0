// Added to a token: does the row of the table drown the token vector?

import { innerProduct } from "../attention.js";
import { slider } from "../controls.js";
import { Plot, html, line, number, say, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { seededDraw } from "../seeds.js";

const TOKENS = 64; // token vectors that are drawn
const ROWS_ADDED = 32; // positions at which each of them is looked for
const MOST_DEVIATION = 1.5; // on the slider and the axis
const SUM_REDRAWS = ["code", "width", "base", "span", "layout", "order", "kind", "length", "position", "seed"];
const SAME_LENGTH = 1e-9; // relative

// Normal vectors of variance 1, one after another, the same in every browser.
export function drawnTokens(seed, width, count = TOKENS) {
  const draw = seededDraw(seed);
  return Array.from({ length: count }, () => Float64Array.from({ length: width }, () => draw.normal()));
}

// From which deviation s on each token is found at each of some rows: s t + p is nearer to s t than to any other s u where
// s |t - u|^2 > 2 p.(u - t). Part by part, sorted.
export function* leastDeviations(tokens, rows) {
  const lengths = tokens.map((token) => innerProduct(token, token)), apart = [];
  for (const [place, token] of tokens.entries()) {
    apart.push(tokens.map((other, at) => lengths[place] + lengths[at] - 2 * innerProduct(token, other)));
    yield;
  }
  const found = [];
  for (const row of rows) {
    const along = tokens.map((token) => innerProduct(token, row));
    for (let token = 0; token < tokens.length; token++) {
      let least = -Infinity;
      for (let other = 0; other < tokens.length; other++) if (other !== token) least = Math.max(least, (2 * (along[other] - along[token])) / apart[token][other]);
      found.push(least);
    }
    yield;
  }
  return Float64Array.from(found).sort();
}

// The share of tokens that are found at a deviation; vectors of deviation 0 are all alike.
export function shareFound(least, deviation) {
  if (deviation <= 0) return 0;
  let [from, to] = [0, least.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (least[middle] < deviation) from = middle + 1;
    else to = middle;
  }
  return from / least.length;
}

// Positions evenly over a length, the first and the last among them.
export function rowsOver(length, most = ROWS_ADDED) {
  const count = Math.min(most, length);
  return Array.from({ length: count }, (_, place) => Math.round((place * (length - 1)) / Math.max(count - 1, 1)));
}

export const added = {
  id: "added",
  question: "What happens when the row is added to a token?",
  mount(section, app) {
    const position = slider(app, "position", "Position", { min: 0, max: app.store.state.length - 1, unit: "token" });
    section.controls.append(
      slider(app, "deviation", "Token deviation", { min: 0, max: MOST_DEVIATION, step: 0.05 }).element, position.element,
      slider(app, "seed", "Random tokens, number", { min: 0, max: 999 }).element);
    const [triangle, shares] = ["angle", "share"].map(() => html("div", { class: "waves" }));
    const sum = new Plot(triangle, { height: 230, margin: { top: 30, right: 16, bottom: 16, left: 16 }, label: "A token vector, the row of this position, and their sum, in the plane of both" });
    const found = new Plot(shares, { height: 230, margin: { top: 34, right: 24, bottom: 42, left: 50 }, label: "Tokens that are found again after the row is added, in per cent, against their deviation; drag to choose one" });
    found.element.classList.add("draggable");
    const note = html("p", { class: "note" });
    section.figure.append(html("div", { class: "beside" }, triangle, shares), note);
    const across = () => d3.scaleLinear([0, MOST_DEVIATION], [found.inner.left, found.inner.right]);
    const take = (event) => {
      if (made && event.buttons & 1) app.store.set({ deviation: across().invert(event.clientX - found.element.getBoundingClientRect().left) });
    };
    found.element.addEventListener("pointerdown", (event) => { found.element.setPointerCapture(event.pointerId); take(event); });
    found.element.addEventListener("pointermove", take);

    let made = null;
    // What is on the page stays whole until all of the next is there.
    const draw = function* (state) {
      const code = app.additive(state), rotary = app.given(state).type === "Rotary", key = `${state.seed} ${code.width}`;
      const next = { key, code, rotary, length: state.length, tokens: made?.key === key ? made.tokens : drawnTokens(state.seed, code.width) };
      yield;
      if (rotary) next.turned = turnedQuery(app.head(state), state);
      else if (made?.key === key && made.code === code && made.length === state.length && made.least) Object.assign(next, { least: made.least, norms: made.norms });
      else {
        const rows = rowsOver(state.length).map((position) => code.row(position));
        next.norms = rows.map((row) => Math.sqrt(innerProduct(row, row)));
        next.least = yield* leastDeviations(next.tokens, rows);
      }
      made = next;
      show(app.store.state);
    };
    const show = (state) => {
      shares.hidden = made.rotary;
      const lengths = made.rotary ? made.turned : sumOf(made, state);
      drawSum(sum, lengths, made.rotary);
      if (!made.rotary) drawFound(found, made, state, across());
      section.answer(made.rotary ? saidOfTurned(lengths, state) : saidOfSum(made, lengths, state));
      say(note, made.rotary ? "" : noteOfSum(made));
    };
    const follow = whenIdle(() => draw(app.store.state), section.element);
    return (state, changed) => {
      if (changed.has("length")) position.limits(0, Math.max(state.length - 1, 1));
      if (changed.size === Object.keys(state).length) {
        shares.hidden = false;
        for (const plot of [sum, found]) plot.measure();
        follow.now();
      } else if (SUM_REDRAWS.some((name) => changed.has(name))) follow();
      else if (changed.has("deviation") && made) show(state);
    };
  },
};

// The first token of the draw and the row of the position: three lengths and two cosines.
function sumOf({ code, tokens }, { deviation, position }) {
  const token = tokens[0].map((value) => value * deviation), row = code.row(position), whole = token.map((value, at) => value + row[at]);
  const [first, second, third] = [token, row, whole].map((vector) => Math.sqrt(innerProduct(vector, vector)));
  return { token: first, row: second, sum: third, cosine: first && second ? innerProduct(token, row) / (first * second) : null, kept: first && third ? innerProduct(token, whole) / (first * third) : null };
}

// A drawn query before and after its rotation.
function turnedQuery(head, { seed, position }) {
  const [query] = drawnTokens(seed, head.spec.head_width, 1), after = head.turn(query, position), [first, second] = [query, after].map((vector) => Math.sqrt(innerProduct(vector, vector)));
  return { token: first, sum: second, kept: innerProduct(query, after) / (first * second), factor: head.ladder.attentionFactor, grows: head.spec.xpos !== null };
}

// Two or three arrows in one plane, all to one scale and at their true angles.
function drawSum(plot, lengths, rotary) {
  plot.clear();
  const { left, top, right, bottom } = plot.inner, tilt = rotary ? Math.acos(Math.min(Math.max(lengths.kept, -1), 1)) : lengths.cosine === null ? Math.PI / 2 : Math.acos(lengths.cosine);
  const tip = [lengths.token, 0], end = rotary ? [lengths.sum * Math.cos(tilt), lengths.sum * Math.sin(tilt)] : [tip[0] + lengths.row * Math.cos(tilt), lengths.row * Math.sin(tilt)];
  const points = [[0, 0], tip, end], [least, most] = d3.extent(points, (point) => point[0]), high = d3.max(points, (point) => point[1]);
  const scale = Math.min((right - left - 150) / Math.max(most - least, 1e-9), (bottom - top - 24) / Math.max(high, 1e-9));
  const from = left + 4 + (least < 0 ? -least * scale : 0), place = ([x, y]) => [from + x * scale, bottom - 18 - y * scale];
  const arrow = (a, b, kind) => {
    const [[x1, y1], [x2, y2]] = [place(a), place(b)], angle = (Math.atan2(y2 - y1, x2 - x1) * 180) / Math.PI;
    plot.ink.append(svg("line", { class: `sum-arrow ${kind}`, x1, y1, x2, y2 }));
    if (Math.hypot(x2 - x1, y2 - y1) > 10) plot.ink.append(svg("path", { class: `sum-head ${kind}`, d: "M0,0L-9,-4V4Z", transform: `translate(${x2},${y2}) rotate(${angle})` }));
  };
  const label = (words, [x, y], anchor, kind) => plot.ink.append(svg("text", { class: `halo ${kind}`, x, y, "text-anchor": anchor }, words));
  plot.ink.append(svg("text", { class: "name", x: 0, y: 14 }, rotary ? "a query before and after its rotation" : "lengths to one scale, at their true angles"));
  arrow([0, 0], tip, "of-token");
  if (!rotary) arrow(tip, end, "of-row");
  arrow([0, 0], end, "of-sum");
  const [tx] = place([tip[0] / 2, 0]), [ex, ey] = place(end), beyond = Math.max(ex, place(tip)[0]) + 10;
  label(`${rotary ? "before" : "token"} ${number(lengths.token, 4)}`, [Math.max(tx, left + 45), bottom], "middle", "strong");
  if (!rotary) label(`row ${number(lengths.row, 4)}`, [beyond, (ey + bottom - 18) / 2 + 4], "start", "");
  label(`${rotary ? "after" : "sum"} ${number(lengths.sum, 4)}`, [rotary ? beyond : Math.max((from + ex) / 2 - 8, left + 4), rotary ? Math.min(ey + 4, bottom - 22) : Math.max(ey - 6, top + 4)], "start", "strong");
}

function drawFound(plot, { least }, { deviation }, x) {
  plot.clear();
  const { left, right, top, bottom } = plot.inner, y = d3.scaleLinear([0, 100], [bottom, top]), steps = Math.max(2, Math.floor((right - left) / 2));
  plot.axes(x, y, "token deviation in each dimension", "", { xTicks: 6 });
  plot.ink.append(svg("text", { class: "name", x: 0, y: 14 }, "tokens found again (%)"),
    line(Array.from({ length: steps }, (_, step) => (MOST_DEVIATION * (step + 1)) / steps).map((each) => [x(each), y(100 * shareFound(least, each))]), { class: "likeness" }));
  const share = shareFound(least, deviation), late = deviation > MOST_DEVIATION / 2, [cx, cy] = [x(deviation), y(100 * share)];
  plot.ink.append(svg("line", { class: "shift-before", x1: cx, x2: cx, y1: bottom, y2: cy }), svg("circle", { class: "tip", cx, cy, r: 5, "data-share": share }),
    svg("text", { class: "halo strong", x: cx + (late ? -9 : 9), y: Math.min(cy + 20, bottom - 6), "text-anchor": late ? "end" : "start" }, `${percentOf(share)} at ${number(deviation)}`));
}

// Only all of them are 100 %.
function percentOf(share) {
  const percent = 100 * share;
  return `${percent > 99.9 && percent < 100 ? "over 99.9" : number(percent, 3)}\u2009%`;
}

function saidOfTurned({ token, sum, kept, factor, grows }, { position }) {
  const length = Math.abs(sum - token) <= SAME_LENGTH * token ? `its length stays ${number(token, 5)}`
    : `its length was ${number(token, 5)} and is ${number(sum, 5)}, because this encoding also ${grows ? "scales it with the position" : `multiplies by ${number(factor, 5)}`}`;
  return `Nothing is added: RoPE leaves the token vectors as they are, and rotates queries and keys inside each attention layer. A query of random values at position ${number(position)} changes its direction (cosine ${number(kept, 3)} with itself before), and ${length}.`;
}

function saidOfSum({ code, least, norms }, { row, token, sum, cosine }, { deviation, position }) {
  const share = shareFound(least, deviation), [shortest, longest] = d3.extent(norms), same = longest - shortest <= SAME_LENGTH * longest && Math.abs(row - longest) <= SAME_LENGTH * longest;
  const root = same && Math.abs(row - Math.sqrt(code.width / 2)) <= SAME_LENGTH * row ? `√(${number(code.width)}/2) = ` : "";
  const verdict = deviation === 0 ? "With deviation 0 there is no token to find" : share === 1 ? "The token is not lost" : share > 0.5 ? "Most tokens are not lost" : "Most tokens are lost";
  const rows = same ? `Every row is ${root}${number(row, 4)} long` : `The row of position ${number(position)} is ${number(row, 4)} long (others ${number(shortest, 3)} to ${number(longest, 3)})`;
  const across = cosine === null ? "" : `${Math.abs(cosine) < 0.2 ? " Row and token are nearly perpendicular"
    : " Row and token are not perpendicular"} (the cosine of their angle is ${number(cosine, 3)}; 0 is perpendicular).`;
  return `${verdict}. ${rows}; a token vector with deviation ${number(deviation)} in each of ${number(code.width)} dimensions is ${number(token, 4)} long, and their sum ${number(sum, 4)}.${across} ` +
    `Of ${TOKENS} random tokens at ${rowsWords(norms.length)}, ${percentOf(share)} are still nearest to their own vector after the row is added.`;
}

function rowsWords(count) {
  return count === 1 ? "one position" : `${number(count)} positions of the text`;
}

function noteOfSum({ code, least }) {
  const enough = least.at(-1), all = enough >= MOST_DEVIATION ? `Even at ${MOST_DEVIATION} not all tokens are found.` : `From a deviation of ${number(Math.max(enough, 0), 3)} on every token is found.`;
  return `The cosine of a random token with a row has a standard deviation of 1/√${number(code.width)} = ${number(1 / Math.sqrt(code.width), 3)}. ` +
    all;
}
