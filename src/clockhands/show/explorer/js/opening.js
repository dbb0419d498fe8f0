// What the page says before anything else: the problem, the classic answer, and what can be done here.

import { html } from "./draw.js";

const OPENING_SENTENCES = [
  "Attention, the part of a language model in which the tokens of a text (words or parts of words) are compared with one another, " +
    "does not see their order: by itself it takes “dog bites man” and “man bites dog” for the same text.",
  "The classic answer (Vaswani et al. 2017) gives each position in the text a row of numbers: the sines and cosines of waves of different " +
    "speeds. One sine and one cosine of the same speed are a pair, drawn here as the hand of a clock: fast hands tell neighbours apart, slow ones far positions.",
  "On this page you choose such an encoding, move the position, and see what every number does, what a model can read from it and where it fails. " +
    "Read from top to bottom: each part answers the question above it, and uses only words explained before it.",
];

// What the controls above all views set, in the order in which they stand there.
const SETTINGS = "Width: how many numbers the row of a position has; each is a dimension, and two are a pair. " +
  "Base: how slow the slow waves are, the larger the slower. Position: a place in the text, counted from 0. " +
  "Length: how many tokens the texts have that the model was trained on. Layout: which two dimensions of a row are a pair.";

export function opening() {
  return html("div", { class: "opening" }, OPENING_SENTENCES.map((text) => html("p", {}, text)));
}

export function settingsWords() {
  return html("p", { class: "says" }, SETTINGS);
}
