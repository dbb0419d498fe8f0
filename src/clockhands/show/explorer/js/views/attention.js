// Attention: can it see order?

import { commutingForm, drawnWeights, formScores, offsetShare, projectionForm, scoreTerms, sentenceAttention, wordVectors } from "../attention.js";
import { additiveCode, sinusoidalSpec } from "../codes.js";
import { css, diverging, theme } from "../colours.js";
import { choice, slider } from "../controls.js";
import { html, number, refill, say, svg } from "../draw.js";
import { whenIdle } from "../idle.js";
import { seededDraw } from "../seeds.js";

const DOG = ["dog", "bites", "man"], MAN = ["man", "bites", "dog"];
const LONGER = ["the", "dog", "saw", "the", "man", "and", "the", "man", "saw", "the", "dog", "run"];
const CODES = [["sinusoidal", "sinusoidal, added to the tokens"], ["rotary", "RoPE, rotating queries and keys"], ["alibi", "ALiBi, added to the scores"]];
const CODE_WORDS = { sinusoidal: "the sinusoidal encoding", rotary: "RoPE", alibi: "ALiBi" };
const MOST_WIDTH = 32; // channels of the drawn model
const FORM_ROWS = 24; // positions whose form is drawn
const SAME_SUM = 1e-12; // two sums of a few dozen numbers of size 1 that differ by less are the same sum
const SHADES = 24; // on either side of zero
const DEPENDS = ["base", "width", "layout", "span", "order", "seed", "code_in_attention"];

export const attention = {
  id: "attention",
  question: "Can it see order?",
  mount(section, app) {
    section.controls.append(
      choice(app, "code_in_attention", "With", CODES).element,
      slider(app, "seed", "Drawn weights, number", { min: 0, max: 999 }).element);
    const [plain, told] = [html("div", { class: "pictures" }), html("div", { class: "pictures" })];
    const terms = html("div", { class: "pictures" }), forms = html("div", { class: "pictures" });
    const [ofTerms, ofForms] = [html("p", { class: "says" }), html("p", { class: "says" })];
    section.figure.append(
      html("p", { class: "says" }, "Rows are queries, columns are keys, numbers are attention weights. Words have the same order in all four."),
      plain, told,
      html("h3", { class: "chapter" }, "What is a score made of?"), ofTerms, terms,
      html("h3", { class: "chapter" }, "What is left of the distance after projections?"), ofForms, forms);

    let blind = { key: null }, room = 0; // asked for only where it may have changed, since that costs a layout
    const widthOf = (state) => Math.min(MOST_WIDTH, Math.max(8, 4 * Math.floor(state.width / 4)));
    const chapters = function* (state) {
      const width = widthOf(state), code = additiveCode(sinusoidalSpec(width, { base: state.base, layout: state.layout, order: state.order, span: state.span }));
      const weights = drawnWeights(state.seed, { heads: 2, width });
      const found = scoreTerms(wordVectors(LONGER, { width, seed: state.seed }), LONGER.map((_, position) => code.row(position)), weights.query[0], weights.key[0]);
      refill(terms, termPictures(found, room < 400 ? 10 : 11));
      const percent = (share) => `${number(100 * share, 2)}\u2009%`;
      say(ofTerms, "With an added encoding a score is a sum of four terms: word-word, word-position, position-word and position-position. " +
        `In this drawn head, over the ${LONGER.length} words “${LONGER.join(" ")}”, they make ${percent(found.shares.contentContent)}, ${percent(found.shares.contentPosition)}, ` +
        `${percent(found.shares.positionContent)} and ${percent(found.shares.positionPosition)} of the variance.`);
      yield;

      const shares = formPictures(forms, code, weights, state.seed);
      say(ofForms, "The product of two rows of the table depends on their distance alone: every diagonal has one colour. A head sees them through its projections, " +
        `and with random ones the distance explains ${percent(shares[1])} of the variance; the rest depends on both positions. ` +
        `Blocks that commute with every shift keep ${percent(shares[2])}: a head can learn them, and nothing makes it.`);
    };
    // The sentences follow at once, the two chapters below them when there is time.
    const follow = whenIdle(() => chapters(app.store.state), section.element);
    return (state, changed) => {
      if (!DEPENDS.some((name) => changed.has(name))) return;
      const width = widthOf(state), whole = changed.size === Object.keys(state).length;
      if (room === 0 || whole) room = section.figure.clientWidth || 320;
      // What has no code changes with the weights alone, and need not be drawn again while a code is.
      const key = [state.seed, width, room, theme()].join();
      if (blind.key !== key) {
        blind = { key, found: bothOrders("none", state, width) };
        refill(plain, orderPictures(blind.found, "no encoding", room));
      }
      const coded = bothOrders(state.code_in_attention, state, width), words = CODE_WORDS[state.code_in_attention];
      refill(told, orderPictures(coded, room < 400 ? "with encoding" : `with ${words.replace("the ", "")}`, room));
      section.answer(inOrder(blind.found, coded, words, state));
      if (whole) follow.now();
      else follow();
    };
  },
};

// Both sentences through one layer, and what differs between them.
function bothOrders(code, state, width) {
  const options = { code, seed: state.seed, width, base: state.base };
  const [first, second] = [sentenceAttention(DOG, options), sentenceAttention(MAN, options)];
  const order = DOG.map((word) => MAN.indexOf(word));
  const weights = [first.weights[0].map((row) => Array.from(row)), order.map((query) => order.map((key) => second.weights[0][query][key]))];
  const difference = Array.from(first.mean, (each, channel) => each - second.mean[channel]);
  const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return {
    weights, means: [first.mean, second.mean], difference, apart: largest(difference),
    moved: largest(weights[0].flatMap((row, query) => row.map((each, key) => each - weights[1][query][key]))),
  };
}

function inOrder(without, coded, words, state) {
  const same = without.apart === 0 ? "are the same to the last bit" : `differ by ${number(without.apart, 2)}, which is rounding`;
  const blind = `Without an encoding it cannot: both orders give the words the same weights, and the mean outputs ${same}. `;
  if (coded.apart > SAME_SUM) {
    return `${blind}With ${words} it can: a weight moves by up to ${number(coded.moved, 2)}, and the means are ${number(coded.apart, 2)} apart.`;
  }
  const mirrored = state.code_in_attention === "alibi" ? " One sentence is the other reversed, and without a mask ALiBi shows the distance of a word, not its side." : "";
  return `${blind}With ${words} it cannot either: the means differ by ${number(coded.apart, 2)}.${mirrored}`;
}

// Two matrices of weights and the means of the outputs.
function orderPictures(found, title, room) {
  const size = room < 400 ? 34 : 44, beside = room - 2 * (3 * size + 70) - 2;
  return [
    weightPicture(found.weights[0], "dog bites man", title, size),
    weightPicture(found.weights[1], "man bites dog", title, size),
    meansPicture(found, title, Math.min(beside > 200 ? beside : room, 400)),
  ];
}

function pictureTitle(first, second) {
  return [svg("text", { class: "title", x: 0, y: 12 }, first), svg("text", { x: 0, y: 28 }, second)];
}

function weightPicture(weights, sentence, title, size) {
  const left = 44, top = 54, side = size * DOG.length;
  const picture = svg("svg", {
    class: "picture", width: left + side + 2, height: top + side + 2, role: "img",
    "aria-label": `${sentence}, ${title}: ${DOG.map((word, row) => `${word} looks at ${DOG.map((other, column) => `${other} ${weights[row][column].toFixed(2)}`).join(", ")}`).join("; ")}`,
  }, pictureTitle(sentence, title));
  DOG.forEach((word, place) => picture.append(
    svg("text", { x: left - 6, y: top + (place + 0.5) * size + 4, "text-anchor": "end" }, word),
    svg("text", { x: left + (place + 0.5) * size, y: top - 6, "text-anchor": "middle" }, word)));
  weights.forEach((row, query) => row.forEach((weight, key) => {
    const colour = diverging(weight);
    picture.append(
      svg("rect", { class: "cell", x: left + key * size, y: top + query * size, width: size - 1, height: size - 1, fill: css(colour) }),
      svg("text", { class: lightOn(colour) ? "on-light" : "on-dark", x: left + (key + 0.5) * size, y: top + (query + 0.5) * size + 4, "text-anchor": "middle" }, weight.toFixed(2)));
  }));
  return picture;
}

// Whether dark letters are better to read on a colour, by its luminance.
export function lightOn(colour) {
  const [red, green, blue] = colour.map((part) => (Math.min(Math.max(part, 0), 255) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
}

function meansPicture({ means, difference, apart }, title, width) {
  const channels = difference.length, top = 40, row = 44, cell = Math.floor((width - 2) / channels);
  const most = Math.max(...means.flatMap((each) => Array.from(each, Math.abs)));
  const told = apart > SAME_SUM ? `the difference: ${number(apart, 2)} at most` : `the difference: ${number(apart, 2)}, rounding`;
  const strips = [["dog bites man", means[0]], ["man bites dog", means[1]], [told, difference]];
  return svg("svg", { class: "picture", width, height: top + strips.length * row, role: "img", "aria-label": `Means of the outputs ${title}; ${told}` },
    pictureTitle(`mean of the outputs, ${channels} dimensions`, title),
    strips.flatMap(([says, values], place) => [
      svg("text", { x: 0, y: top + place * row + 12 }, says),
      ...shadedCells(values, channels, { x: 0, y: top + place * row + 17, across: cell, down: 18, most }),
      svg("rect", { class: "frame", x: 0.5, y: top + place * row + 17.5, width: channels * cell - 1, height: 17 }),
    ]));
}

// Cells in their colours: one path for each shade, a thick stroke for each cell, since a mark for each would cost a frame.
function shadedCells(values, columns, { x, y, across, down, most }) {
  const paths = new Map();
  values.forEach((value, place) => {
    const shade = most === 0 ? 0 : Math.round((SHADES * value) / most);
    const cell = `M${x + (place % columns) * across},${y + (Math.floor(place / columns) + 0.5) * down}h${across}`;
    paths.set(shade, (paths.get(shade) ?? "") + cell);
  });
  const lights = theme();
  return [...paths].map(([shade, d]) => svg("path", { d, stroke: css(diverging(shade / SHADES, lights)), "stroke-width": down, "shape-rendering": "crispEdges" }));
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

function termPictures(found, size) {
  const titles = { contentContent: "word to word", contentPosition: "word to place", positionContent: "place to word", positionPosition: "place to place" };
  const most = Math.max(...Object.keys(titles).flatMap((name) => Array.from(found[name], Math.abs)));
  return Object.entries(titles).map(([name, title]) => squarePicture(found[name], LONGER.length, {
    title, says: `${number(100 * found.shares[name], 2)}\u2009% of the variance`, most, size, label: "One colour scale for all four terms.",
  }));
}

// The form as it is, through drawn projections, and through blocks that commute; gives how much the distance explains in each.
function formPictures(place, code, weights, seed) {
  const { width, pairs } = code, rows = Array.from({ length: FORM_ROWS }, (_, position) => code.row(position));
  const draw = seededDraw(seed + 1), drawn = () => Float64Array.from({ length: pairs }, () => draw.normal());
  const plain = Float64Array.from({ length: width * width }, (_, at) => (Math.floor(at / width) === at % width ? 1 : 0));
  const forms = [
    ["the table's rows as they are", plain],
    ["through drawn projections", projectionForm(weights.query[0], weights.key[0], width)],
    ["through blocks that commute", commutingForm(pairs, code.spec.layout, drawn(), drawn())],
  ];
  const shares = [];
  refill(place, forms.map(([title, form]) => {
    const values = formScores(form, rows), share = offsetShare(values, FORM_ROWS);
    shares.push(share);
    return squarePicture(values, FORM_ROWS, {
      title, says: `${number(100 * share, 2)}\u2009% is the distance's`, most: values.reduce((most, value) => Math.max(most, Math.abs(value)), 0), size: 8, label: "Each has a separate scale.",
    });
  }));
  return shares;
}
