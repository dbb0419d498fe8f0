// What the page says before anything else: the problem, the classic answer, and what can be done here.

import { html } from "./draw.js";

const OPENING_SENTENCES = [
  "Attention compares the tokens of a text (words or parts of words), and does not see their order.",
  "The classic answer (Vaswani et al. 2017) gives each position a row of numbers: sines and cosines of waves of different speeds. " +
    "A sine and a cosine of one speed are a pair, drawn here as the hand of a clock.",
];

// What the controls above all views set, in the order in which they stand there.
const SETTINGS = "Width: numbers in a row, each a dimension. Base: how slow the slow waves are. " +
  "Length: tokens of the texts in training. Layout: which two dimensions are a pair.";

export function opening() {
  return html("div", { class: "opening" }, OPENING_SENTENCES.map((text) => html("p", {}, text)));
}

export function settingsWords() {
  return html("p", { class: "says" }, SETTINGS);
}
