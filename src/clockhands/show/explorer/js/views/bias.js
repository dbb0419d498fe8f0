// How far does each head look? What is added to a score by distance: ALiBi's lines, and the steps of T5's buckets.

import { titleOfModel } from "../audits.js";
import { alibiSpec, biasCode, bucketsSpec, drawnBuckets } from "../biases.js";
import { slider } from "../controls.js";
import { html, number, pathThrough, Plot, svg } from "../draw.js";
import { logAxis, sized, wholly } from "./ladder.js";

const HALF_WEIGHT = Math.log(2), HUNDREDTH_WEIGHT = Math.log(100); // a key's weight against one at distance 0 with the same score
const DEEPEST_BIAS = 7; // of ALiBi's biases that are drawn; e^-7 is a thousandth
const NAMES_APART = 17; // px between two heads' numbers
const HEADS_DRAWN = 32; // of T5's curves: more would only cover each other
const BIAS_NEEDS = ["heads", "head", "length", "seed", "biasOf"];
const MOST_HEADS = 128; // of a model's bias that is drawn

// Tokens until a head of ALiBi gives a key so small a share of its weight.
export function reachOf(slope, loss) {
  return loss / slope;
}

// The corners of a table's curve for one head: [distance, bias], a step for each bucket.
export function bucketSteps(code, head, last) {
  const starts = [0, ...code.boundaries.filter((start) => start <= last)];
  return starts.map((start, place) => ({ from: start, to: (starts[place + 1] ?? last + 1) - 1, bias: code.at(head, start, 0) }));
}

// Whose numbers are written: the chosen head's, and of the others as many as stand apart.
function namedHeads(places, chosen, apart = NAMES_APART) {
  const named = [chosen];
  const order = Array.from(places, (_, head) => head).sort((one, other) => places[one] - places[other]);
  for (const head of [order[0], order.at(-1), ...order]) {
    if (named.every((each) => each !== head && Math.abs(places[each] - places[head]) >= apart)) named.push(head);
  }
  return named;
}

// The biases of the page's models that can be drawn, each with its place in the list of all.
function ownBiases(app) {
  const held = app.data.biases ?? [];
  return held.filter(({ spec }) => spec.heads <= MOST_HEADS).map((each) => {
    const { audit } = app.models[each.model];
    const where = each.layers === null ? each.part : `${each.part}, layers ${each.layers}`;
    return { ...each, says: `${titleOfModel(audit)} (${where})` };
  });
}

// Whose biases are shown: a model's, or the published forms.
function biasChoice(app, own) {
  const list = html("select", { id: "control-biasOf", "data-name": "biasOf", onchange: () => app.store.set({ biasOf: Number(list.value) }) },
    html("option", { value: -1 }, "the published forms"), own.map(({ says }, place) => html("option", { value: place }, says)));
  const element = html("div", { class: "control" }, html("label", { for: "control-biasOf" }, "Biases of"), list);
  element.hidden = own.length === 0;
  return { element, show: (place) => { list.value = place; } };
}

export const bias = {
  id: "bias",
  question: "What do encodings without hands do?",
  mount(section, app) {
    const head = slider(app, "head", "Head", { min: 0, max: Math.max(app.store.state.heads - 1, 1) });
    const heads = slider(app, "heads", "Heads", { min: 1, max: 128 }), seed = slider(app, "seed", "Random T5 table, number", { min: 0, max: 99 });
    const own = ownBiases(app), whose = biasChoice(app, own);
    section.controls.append(whose.element, heads.element, head.element, seed.element);
    const [left, right] = ["ALiBi: a slope for each head", "T5: a step for each bucket"].map((words) => {
      const place = html("div", { class: "half" }, html("h3", {}, words));
      return place;
    });
    section.figure.append(html("div", { class: "halves" }, left, right));
    const lines = new Plot(left, { height: 300, margin: { top: 44, right: 16, bottom: 42, left: 40 }, label: "ALiBi's bias against distance, one line for each head" });
    const steps = new Plot(right, { height: 300, margin: { top: 44, right: 76, bottom: 42, left: 40 }, label: "T5's bias against distance, one curve for each head, and the edges of its buckets" });
    const lineWords = html("p", { class: "note" }), stepWords = html("p", { class: "note" });
    left.append(lineWords);
    right.append(stepWords);
    let places = null;

    lines.element.addEventListener("click", (event) => {
      if (!places) return;
      const at = event.clientX - lines.element.getBoundingClientRect().left;
      app.store.set({ head: d3.minIndex(places, (place) => Math.abs(place - at)) });
    });

    return (state, changed) => {
      if (!BIAS_NEEDS.some((name) => changed.has(name))) return;
      const model = own[state.biasOf] ?? null, count = model ? model.spec.heads : state.heads;
      if (changed.has("heads") || changed.has("biasOf")) {
        head.limits(0, Math.max(count - 1, 1));
        whose.show(model ? state.biasOf : -1);
        heads.element.hidden = model !== null;
        seed.element.hidden = model !== null && model.values !== null;
      }
      const chosen = Math.min(state.head, count - 1), last = Math.max(state.length - 1, 2);
      const ofLines = model?.spec.type === "Alibi" ? model : null, ofSteps = model?.spec.type === "Buckets" ? model : null;
      const alibi = biasCode(ofLines?.spec ?? alibiSpec(count));
      places = drawLines(lines, alibi, chosen, last, wholly(state, changed));
      const spec = ofSteps?.spec ?? bucketsSpec(count), t5 = biasCode(spec, ofSteps?.values ?? drawnBuckets(spec, state.seed));
      drawSteps(steps, t5, chosen, last, wholly(state, changed));
      const [nearest, furthest] = [Math.max(...alibi.slopes), Math.min(...alibi.slopes)];
      const whole = (tokens) => number(tokens, 3);
      lineWords.textContent = `${ofLines ? `Of ${ofLines.says}. ` : ""}Head ${chosen}: slope ${number(alibi.slopes[chosen], 4)} a token, half the weight at distance ${whole(reachOf(alibi.slopes[chosen], HALF_WEIGHT))}, a hundredth at ${whole(reachOf(alibi.slopes[chosen], HUNDREDTH_WEIGHT))}.`;
      const edge = t5.boundaries.at(-1);
      stepWords.textContent = `${numbersWords(ofSteps, state)} ${spec.buckets} buckets, ${spec.bidirectional ? "half" : "all"} of them for keys before the query, max_distance ${spec.max_distance}.`;
      const told = bucketSteps(t5, 0, state.length - 1).length;
      const [linesOf, stepsOf] = [ofLines ? `In ${ofLines.says}, which has` : "With", ofSteps ? `the buckets of ${ofSteps.says}` : "T5's buckets"];
      const start = stepsOf[0].toUpperCase() + stepsOf.slice(1);
      const distances = state.length > 1 + edge ? `To ${stepsOf} all distances from ${edge} on share one value: of ${number(state.length)} distances they distinguish ${told}.` : `${start} distinguish ${told} of ${number(state.length)} distances.`;
      const reach = `${linesOf} ALiBi on ${count} ${count === 1 ? "head" : "heads"}, a key's weight is halved after ${whole(reachOf(nearest, HALF_WEIGHT))} tokens in the head that looks nearest` +
        (count === 1 ? "." : ` and after ${whole(reachOf(furthest, HALF_WEIGHT))} in the one that looks furthest.`);
      const what = "They add a number to each score. A model attends several times side by side; each time is a head. ALiBi (Press et al. 2022) lowers it by the distance times a slope; T5 (Raffel et al. 2020) adds a trained number, one for each range of distances, a bucket.";
      section.answer(`${what} ${ofSteps ? `${distances} ${reach}` : `${reach} ${distances}`}`);
    };
  },
};

// Whose numbers the steps have.
function numbersWords(model, state) {
  if (model?.values) return `The trained numbers of ${model.says}:`;
  const drawn = `drawn at random (draw ${state.seed}).`;
  return model ? `The numbers of ${model.says} are not in what was read; here they are ${drawn} Its edges:` : `Numbers ${drawn} The edges are T5's:`;
}

// Bias upwards, distance across; the axis' name, and zero as a line.
function biasFrame(plot, x, y, words) {
  const { left, right } = plot.inner, up = svg("g", { class: "axis", transform: `translate(${left},0)` });
  d3.axisLeft(y).ticks(6).tickSizeOuter(0)(d3.select(up));
  plot.ink.append(up, svg("text", { class: "name", x: 0, y: 13 }, words), svg("line", { class: "zero", x1: left, x2: right, y1: y(0), y2: y(0) }));
  logAxis(plot, x, "distance (tokens), log", 6);
}

function drawLines(plot, code, chosen, last, whole) {
  sized(plot, plot.height, whole);
  const { left, right, top, bottom } = plot.inner;
  const x = d3.scaleLog([1, last], [left, right]), y = d3.scaleLinear([-DEEPEST_BIAS, 0], [bottom, top]);
  biasFrame(plot, x, y, "added to the score");
  const told = []; // over the lines
  for (const [loss, words] of [[HALF_WEIGHT, "half the weight"], [HUNDREDTH_WEIGHT, "a hundredth"]]) {
    plot.ink.append(svg("line", { class: "level", x1: left, x2: right, y1: y(-loss), y2: y(-loss) }));
    told.push(svg("text", { class: "level-words", x: right - 2, y: y(-loss) + 14, "text-anchor": "end" }, words));
  }
  const ends = [], drawn = [];
  for (let head = 0; head < code.heads; head++) {
    // As far as it is drawn: to the bottom, or to the end of the text.
    const end = Math.max(Math.min(reachOf(code.slopes[head], DEEPEST_BIAS), last), 1), far = Math.log(end), endX = x(end), steps = head === chosen ? 60 : 30;
    const heightAt = (step) => y(Math.max(-code.slopes[head] * Math.exp((far * step) / steps), -DEEPEST_BIAS));
    const points = Array.from({ length: steps + 1 }, (_, step) => `${(left + ((endX - left) * step) / steps).toFixed(1)},${heightAt(step).toFixed(1)}`);
    ends.push([endX, heightAt(steps)]);
    drawn.push(svg("path", { class: head === chosen ? "head-line chosen-head" : "head-line", "data-head": head, d: `M${points.join("L")}` }));
  }
  plot.ink.append(...drawn.filter((_, head) => head !== chosen), drawn[chosen], ...told);
  // At the line's end, the chosen one's above the row of the others: below it where it leaves at the bottom, beside it where the text ends first.
  const across = ends.map(([at]) => at), fallen = ends.map(([, at]) => at >= bottom - 1);
  const marks = across.map((at, head) => (fallen[head] ? at : right + (ends[head][1] - bottom)));
  for (const head of namedHeads(marks, chosen)) {
    const [endX, endY] = ends[head];
    plot.ink.append(svg("text", { class: head === chosen ? "head-name chosen-head" : "head-name", "data-head": head,
      ...(fallen[head] ? { x: endX - 3, y: bottom - (head === chosen ? 19 : 4), "text-anchor": "end" } : { x: right - 3, y: endY - 5, "text-anchor": "end" }) }, head === chosen ? `head ${head}` : head));
  }
  return across;
}

function drawSteps(plot, code, chosen, last, whole) {
  sized(plot, plot.height, whole);
  const { left, right, top, bottom } = plot.inner;
  const stride = Math.max(1, Math.ceil(code.heads / HEADS_DRAWN));
  const heads = d3.range(code.heads).filter((head) => head % stride === 0 || head === chosen);
  const curves = heads.map((head) => ({ head, steps: bucketSteps(code, head, last) }));
  const least = d3.min(curves, (curve) => d3.min(curve.steps, (step) => step.bias)), most = d3.max(curves, (curve) => d3.max(curve.steps, (step) => step.bias));
  // Distance 0 has a bucket of its own and no place on a logarithmic axis: it stands at a half.
  const x = d3.scaleLog([0.5, last], [left, right]), y = d3.scaleLinear([Math.min(least, 0), Math.max(most, 0)], [bottom, top]).nice();
  biasFrame(plot, x, y, "added to the score");
  const edges = code.boundaries.filter((start) => start <= last);
  plot.ink.append(svg("path", { class: "bucket-edges", d: edges.map((start) => `M${x(start - 0.5).toFixed(1)},${top - 6}V${bottom}`).join("") }),
    svg("text", { x: right, y: top - 12, "text-anchor": "end" }, `edges of ${edges.length + 1} buckets`));
  const paths = curves.map(({ head, steps }) => {
    const corners = steps.flatMap(({ from, to, bias: value }) => [[x(Math.max(from - 0.5, 0.5)), y(value)], [Math.min(x(to + 0.5), right), y(value)]]);
    return svg("path", { class: head === chosen ? "head-line chosen-head" : "head-line faint", "data-head": head, d: pathThrough(corners) });
  });
  plot.ink.append(...paths.filter((_, place) => heads[place] !== chosen), paths[heads.indexOf(chosen)]);
  const ends = [];
  for (const { head, steps } of curves) ends[head] = y(steps.at(-1).bias);
  for (const head of namedHeads(heads.map((each) => ends[each]), heads.indexOf(chosen), 14).map((place) => heads[place])) {
    plot.ink.append(svg("text", { class: head === chosen ? "head-name chosen-head" : "head-name", "data-head": head, x: right + 5, y: ends[head] + 4 }, head === chosen ? `head ${head}` : head));
  }
}
