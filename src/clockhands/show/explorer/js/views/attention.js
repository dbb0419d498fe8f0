// Attention: can it see order?

import { sentenceAttention } from "../attention.js";
import { css, diverging, theme } from "../colours.js";
import { choice, slider } from "../controls.js";
import { html, number, refill, svg } from "../draw.js";

const DOG = ["dog", "bites", "man"], MAN = ["man", "bites", "dog"];
const CODES = [["sinusoidal", "sines and cosines, added to the words"], ["rotary", "RoPE, explained further down"], ["alibi", "ALiBi, explained further down"]];
const CODE_WORDS = { sinusoidal: "sines and cosines of the position added to each word", rotary: "RoPE, which most of today’s models use", alibi: "ALiBi" };
const SHORT_CODES = { sinusoidal: "with sines, cosines", rotary: "with RoPE", alibi: "with ALiBi" };
const MOST_WIDTH = 32; // channels of the drawn model
const SAME_SUM = 1e-12; // two sums of a few dozen numbers of size 1 that differ by less are the same sum
const SHADES = 24; // on either side of zero
const DEPENDS = ["base", "width", "seed", "code_in_attention"];

// The width of the drawn model: a small one shows the same.
export function drawnWidth({ width }) {
  return Math.min(MOST_WIDTH, Math.max(8, 4 * Math.floor(width / 4)));
}

export const attention = {
  id: "attention",
  question: "Can attention see the order of words?",
  mount(section, app) {
    section.controls.append(
      choice(app, "code_in_attention", "Below, with", CODES).element,
      slider(app, "seed", "Random model, number", { min: 0, max: 999 }).element);
    const [plain, told] = [html("div", { class: "pictures" }), html("div", { class: "pictures" })];
    section.figure.append(
      html("p", { class: "says" }, "Each line is a word that looks, each column one that it looks at: the better the numbers of two words fit (their score), the larger the weight."),
      plain, told);
    let blind = { key: null }, room = 0; // asked for only where it may have changed, since that costs a layout
    return (state, changed) => {
      if (!DEPENDS.some((name) => changed.has(name))) return;
      const width = drawnWidth(state);
      if (room === 0 || changed.size === Object.keys(state).length) room = section.figure.clientWidth || 320;
      // What has no code changes with the weights alone, and need not be drawn again while a code is.
      const key = [state.seed, width, room, theme()].join();
      if (blind.key !== key) {
        blind = { key, found: bothOrders("none", state, width) };
        refill(plain, orderPictures(blind.found, "words alone", room));
      }
      const coded = bothOrders(state.code_in_attention, state, width);
      refill(told, orderPictures(coded, SHORT_CODES[state.code_in_attention], room));
      section.answer(inOrder(blind.found, coded, state.code_in_attention));
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
    weights, apart: largest(difference),
    moved: largest(weights[0].flatMap((row, query) => row.map((each, key) => each - weights[1][query][key]))),
  };
}

function inOrder(without, coded, name) {
  const same = without.apart === 0 ? "are the same to the last bit" : `differ by ${number(without.apart, 2)}, which is rounding`;
  const blind = `By itself it cannot. How much one word looks at another, a weight, follows from the words, not from their places: in “dog bites man” and “man bites dog” all weights are the same, and the means of the outputs ${same}. ` +
    "Something must say where each word stands: a positional encoding. ", words = CODE_WORDS[name];
  if (coded.apart > SAME_SUM) {
    return `${blind}With ${words} it can: a weight moves by up to ${number(coded.moved, 2)}, and the means are ${number(coded.apart, 2)} apart.`;
  }
  const mirrored = name === "alibi" ? " One sentence is the other reversed, and ALiBi, which says how far away a word is, does not say on which side." : "";
  return `${blind}With ${words} it cannot tell these two either: the means differ by ${number(coded.apart, 2)}.${mirrored}`;
}

// Two matrices of weights.
function orderPictures(found, title, room) {
  const size = room < 400 ? 34 : 44;
  return [
    weightPicture(found.weights[0], "dog bites man", title, size),
    weightPicture(found.weights[1], "man bites dog", title, size),
  ];
}

export function pictureTitle(first, second) {
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

// Cells in their colours: one path for each shade, a thick stroke for each cell, since a mark for each would cost a frame.
export function shadedCells(values, columns, { x, y, across, down, most }) {
  const paths = new Map();
  values.forEach((value, place) => {
    const shade = most === 0 ? 0 : Math.round((SHADES * value) / most);
    const cell = `M${x + (place % columns) * across},${y + (Math.floor(place / columns) + 0.5) * down}h${across}`;
    paths.set(shade, (paths.get(shade) ?? "") + cell);
  });
  const lights = theme();
  return [...paths].map(([shade, d]) => svg("path", { d, stroke: css(diverging(shade / SHADES, lights)), "stroke-width": down, "shape-rendering": "crispEdges" }));
}
