// Scores: what is one made of, where an encoding is added?

import { commutingForm, drawnWeights, formScores, offsetShare, projectionForm, scoreTerms, wordVectors } from "../attention.js";
import { additiveCode, sinusoidalSpec } from "../codes.js";
import { slider } from "../controls.js";
import { html, number, refill, say, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { seededDraw } from "../seeds.js";
import { drawnWidth, pictureTitle, shadedCells } from "./attention.js";

const LONGER = ["the", "dog", "saw", "the", "man", "and", "the", "man", "saw", "the", "dog", "run"];
const FORM_ROWS = 24; // positions whose form is drawn, where there are as many
const FORM_SIDE = 192; // CSS pixels
const SCORES_NEED = ["base", "width", "layout", "span", "order", "seed", "length"];

export const scores = {
  id: "scores",
  question: "Does a score see only the distance?",
  mount(section, app) {
    section.controls.append(slider(app, "seed", "Random model, number", { min: 0, max: 999 }).element);
    const forms = html("div", { class: "pictures" }), terms = html("div", { class: "pictures" });
    const [ofForms, ofTerms] = [html("p", { class: "says" }), html("p", { class: "says" })];
    section.figure.append(
      html("h3", { class: "chapter" }, "The position alone"), ofForms, forms,
      html("h3", { class: "chapter" }, "Word and position together"), ofTerms, terms);
    let room = 0;
    const draw = function* (state) {
      const width = drawnWidth(state), code = additiveCode(sinusoidalSpec(width, { base: state.base, layout: state.layout, order: state.order, span: state.span }));
      const weights = drawnWeights(state.seed, { heads: 2, width }), rows = Math.min(FORM_ROWS, state.length), words = LONGER.slice(0, state.length);
      const shares = formPictures(forms, code, weights, state.seed, rows);
      section.answer(saidOfProjections(shares));
      say(ofForms, `Scores of ${rows} queries with ${rows} keys that have nothing but their row of sines and cosines, at width ${width}. Where the distance alone decides, every diagonal has one colour. ` +
        "Left: the dot product of the rows as they are. Middle: query and key each multiplied by a matrix of random numbers first, as in a model that has not been trained. " +
        "Right: by matrices that rotate and stretch each pair as a whole.");
      yield;

      const found = scoreTerms(wordVectors(words, { width, seed: state.seed }), words.map((_, position) => code.row(position)), weights.query[0], weights.key[0]);
      refill(terms, termPictures(found, words.length, Math.floor((room < 400 ? 120 : 132) / words.length)));
      say(ofTerms, "A token is the sum of its word’s numbers and its position’s, so a score is a sum of four: word with word, word with position, position with word, and position with position. " +
        `With random projections, over “${words.join(" ")}”, they make ${percent(found.shares.contentContent)}, ${percent(found.shares.contentPosition)}, ` +
        `${percent(found.shares.positionContent)} and ${percent(found.shares.positionPosition)} of the variance.`);
    };
    const follow = whenIdle(() => draw(app.store.state), section.element);
    return (state, changed) => {
      if (!SCORES_NEED.some((name) => changed.has(name))) return;
      const whole = changed.size === Object.keys(state).length;
      if (room === 0 || whole) room = section.figure.clientWidth || 320;
      if (whole) follow.now();
      else follow();
    };
  },
};

function percent(share) {
  return `${number(100 * share, 2)}\u2009%`;
}

function saidOfProjections([, drawn, commuting]) {
  return `The product of two rows does, but where rows are added, a score need not. A model makes queries and keys by multiplying tokens with matrices, its projections, and a score is the dot product of a query and a key. ` +
    `With random ones the distance explains ${percent(drawn)} of the variance of the scores (how much they differ); the rest depends on both positions. ` +
    `With projections that rotate and stretch each pair as a whole it explains ${percent(commuting)}: a model can learn such ones, but nothing forces it to. ` +
    "RoPE (rotary position embedding), which most of today’s models use, forces it: nothing is added, and the query and the key of a token are rotated, pair by pair, by the hands of its position. Of two rotations only their difference counts, so a score depends on the two vectors and their distance alone: what a model learns of two tokens 3 apart holds wherever in a text they stand.";
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
    svg("text", { x: left + side / 2, y: top + side + 15, "text-anchor": "middle" }, "key (token)"),
    svg("text", { x: 12, y: top + side / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${top + side / 2})` }, "query (token)"));
}

function termPictures(found, count, size) {
  const titles = { contentContent: "word to word", contentPosition: "word to position", positionContent: "position to word", positionPosition: "position to position" };
  const most = Math.max(...Object.keys(titles).flatMap((name) => Array.from(found[name], Math.abs)));
  return Object.entries(titles).map(([name, title]) => squarePicture(found[name], count, {
    title, says: `${number(100 * found.shares[name], 2)}\u2009% of the variance`, most, size, label: "One colour scale for all four terms.",
  }));
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
