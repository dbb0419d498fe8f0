// Scores: does the distance alone decide one, where an encoding is added?

import { commutingForm, drawnWeights, formScores, offsetShare, projectionForm } from "../attention.js";
import { additiveCode, sinusoidalSpec } from "../codes.js";
import { slider } from "../controls.js";
import { Plot, html, number, refill, say, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { phaseAt } from "../ladders.js";
import { rotatedArrows } from "../lesson/dial.js";
import { CONTENT } from "../lesson/rotations.js";
import { seededDraw } from "../seeds.js";
import { drawnWidth, pictureTitle, shadedCells } from "./attention.js";

const FORM_ROWS = 24; // positions whose form is drawn, where there are as many
const FORM_SIDE = 192; // CSS pixels
const ARROWS_NEED = ["code", "kind", "base", "width", "layout", "span", "order", "length", "pair", "position", "shift"];
const SCORES_NEED = ["base", "width", "layout", "span", "order", "seed", "length"];

export const scores = {
  id: "scores",
  question: "Does a score see only the distance?",
  mount(section, app) {
    section.controls.append(slider(app, "seed", "Random model, number", { min: 0, max: 999 }).element);
    const forms = html("div", { class: "pictures" }), ofForms = html("p", { class: "says" });
    const key = slider(app, "position", "Key at", { min: 0, max: app.store.state.length - 1 });
    const which = slider(app, "pair", "Pair", { min: 0, max: Math.max(app.store.state.width / 2 - 1, 1) });
    const ofArrows = html("p", { class: "says" }), place = html("div", { class: "rotated" });
    const arrows = new Plot(place, { height: 320, label: "A query and a key of one pair as arrows, rotated by their positions" });
    const moved = html("div", { class: "controls" }, key.element, slider(app, "shift", "Query ahead by", { min: -4096, max: 4096 }).element, which.element);
    section.figure.append(ofForms, forms, ofArrows, moved, place);
    const turn = (state) => {
      const head = app.head(state), pair = Math.min(state.pair, head.pairs - 1);
      which.limits(0, Math.max(head.pairs - 1, 1));
      drawArrows(arrows, head, pair, state);
      say(ofArrows, `RoPE on pair ${pair}, thin before, thick after. Move the key: the query follows, the angle stays.`);
    };
    const draw = (state) => {
      const width = drawnWidth(state), code = additiveCode(sinusoidalSpec(width, { base: state.base, layout: state.layout, order: state.order, span: state.span }));
      const weights = drawnWeights(state.seed, { heads: 2, width }), rows = Math.min(FORM_ROWS, state.length);
      section.answer(saidOfProjections(formPictures(forms, code, weights, state.seed, rows)));
      say(ofForms, `Scores of ${rows} queries with ${rows} keys at width ${width}. Where the distance alone decides, every diagonal has one colour.`);
    };
    const follow = whenIdle(() => draw(app.store.state), section.element);
    return (state, changed) => {
      const all = changed.size === Object.keys(state).length;
      if (changed.has("length")) key.limits(0, Math.max(state.length - 1, 1));
      if (all) arrows.measure();
      if (ARROWS_NEED.some((name) => changed.has(name))) turn(state);
      if (!SCORES_NEED.some((name) => changed.has(name))) return;
      if (all) follow.now();
      else follow();
    };
  },
};

// One pair of a query and of a key behind it, both of length 1 before the head rotates them.
function drawArrows(plot, head, pair, { position, shift }) {
  const at = { query: position + shift, key: position }, after = {}, vectors = {};
  for (const role of ["query", "key"]) {
    after[role] = CONTENT[role] + head.way * phaseAt(head.ladder, pair, at[role]);
    vectors[role] = new Float64Array(head.spec.head_width);
    [Math.cos, Math.sin].forEach((wave, place) => { vectors[role][head.channels[2 * pair + place]] = wave(CONTENT[role]); });
  }
  rotatedArrows(plot, { at, before: CONTENT, after, product: head.score(vectors.query, vectors.key, shift) });
}

function percent(share) {
  return `${number(100 * share, 2)}\u2009%`;
}

function saidOfProjections([, drawn, commuting]) {
  return `The product of two rows does; a score need not. A model makes queries and keys by multiplying tokens with matrices, its projections: ` +
    `with random ones the distance explains ${percent(drawn)} of the variance of the scores (how much they differ), with ones that rotate and stretch each pair ${percent(commuting)}. ` +
    "RoPE (rotary position embedding), of most models today, adds nothing: it rotates query and key by their positions, and of these the distance alone is left.";
}

// A square of numbers over pairs of positions, with its axes named.
function squarePicture(values, count, { title, says, most, size, label }) {
  const left = 26, top = 40, side = count * size;
  return svg("svg", { class: "picture", width: Math.max(left + side + 4, 150), height: top + side + 36, role: "img", "aria-label": `${title}: ${says}. ${label}` },
    pictureTitle(title, says),
    shadedCells(Array.from(values), count, { x: left, y: top, across: size, down: size, most }),
    svg("rect", { class: "frame", x: left + 0.5, y: top + 0.5, width: side - 1, height: side - 1 }),
    svg("text", { x: left - 5, y: top + 11, "text-anchor": "end" }, 0), svg("text", { x: left - 5, y: top + side, "text-anchor": "end" }, count - 1),
    svg("text", { x: left, y: top + side + 15 }, 0), svg("text", { x: left + side, y: top + side + 15, "text-anchor": "end" }, count - 1),
    svg("text", { x: left + side / 2, y: top + side + 15, "text-anchor": "middle" }, "key"),
    svg("text", { x: 12, y: top + side / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${top + side / 2})` }, "query"));
}

// The form as it is, through drawn projections, and through blocks that commute; gives how much the distance explains in each.
function formPictures(place, code, weights, seed, count) {
  const { width, pairs } = code, rows = Array.from({ length: count }, (_, position) => code.row(position));
  const draw = seededDraw(seed + 1), drawn = () => Float64Array.from({ length: pairs }, () => draw.normal());
  const plain = Float64Array.from({ length: width * width }, (_, at) => (Math.floor(at / width) === at % width ? 1 : 0));
  const forms = [
    ["rows as they are", plain],
    ["through random projections", projectionForm(weights.query[0], weights.key[0], width)],
    ["through projections of pairs", commutingForm(pairs, code.spec.layout, drawn(), drawn())],
  ];
  const shares = [];
  refill(place, forms.map(([title, form]) => {
    const values = formScores(form, rows), share = offsetShare(values, count);
    shares.push(share);
    return squarePicture(values, count, {
      title, says: `${number(100 * share, 2)}\u2009% is the distance's`, most: values.reduce((most, value) => Math.max(most, Math.abs(value)), 0), size: Math.floor(FORM_SIDE / count), label: "Each has a separate scale.",
    });
  }));
  return shares;
}
