// The opening of the page: a sentence that the reader types, and over each word the clocks of its position, which run there.

import { button } from "../controls.js";
import { Plot, html, svg } from "../draw.js";
import { geometricLadder, phaseAt } from "../ladders.js";
import { dial } from "./dial.js";

export const FIRST_SENTENCE = "the dog bites the man today";
const MOST_WORDS = 12;
const SHOWN_CLOCKS = 4, FASTEST_FIRST = geometricLadder(SHOWN_CLOCKS, 2 * SHOWN_CLOCKS, 100);
const RUNNING = 2400; // ms until the last word's hands have arrived

export function wordsOfSentence(text) {
  return text.trim().split(/\s+/).filter(Boolean).slice(0, MOST_WORDS);
}

// `changed` is called with the words whenever they are others.
export function sentenceOpening(changed) {
  const field = html("input", { type: "text", id: "lesson-sentence", value: FIRST_SENTENCE, maxlength: 90, autocomplete: "off", spellcheck: "false", oninput: () => {
    words = wordsOfSentence(field.value);
    moment = Infinity;
    draw();
    changed(words);
  } });
  const place = html("div", { class: "picture" });
  const element = html("section", { id: "lesson-opening", class: "lesson-opening", "aria-label": "Your sentence" },
    html("h1", {}, "How transformers know where words are"),
    html("p", { class: "lead" }, "Attention compares words, and cannot see their order. So each position gets a row of clocks, and each clock its own speed."),
    html("div", { class: "typed" }, html("label", { for: "lesson-sentence" }, "Your sentence"), field),
    place,
    button("Shuffle it, and see what attention notices ↓", () => document.getElementById("lesson-order").scrollIntoView(), { class: "onward" }));
  const plot = new Plot(place, { height: 200, margin: { top: 0, right: 0, bottom: 0, left: 0 }, label: "The words of the sentence, each under the four clocks of its position" });
  let words = wordsOfSentence(FIRST_SENTENCE), moment = Infinity;
  const draw = () => {
    const { radius, columns, across, tall } = layout(plot.width, words);
    plot.resize(tall * Math.max(1, Math.ceil(words.length / columns)));
    plot.clear().ink.append(...words.map((word, position) => {
      const x = (position % columns) * across, y = Math.floor(position / columns) * tall + radius + 6, at = Math.min(position, moment);
      const dials = Array.from({ length: SHOWN_CLOCKS }, (_, pair) => dial(x + radius + 4 + pair * (2 * radius + 6), y, radius, phaseAt(FASTEST_FIRST, pair, at)));
      const middle = x + SHOWN_CLOCKS * (radius + 3);
      return svg("g", { class: at < position ? "waiting" : "arrived" }, dials,
        svg("text", { class: "word", x: middle, y: y + radius + 26, "text-anchor": "middle" }, word),
        svg("text", { x: middle, y: y + radius + 44, "text-anchor": "middle" }, `position ${position}`));
    }));
    plot.settle();
  };
  const run = () => {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    let begun = null;
    const frame = (now) => {
      begun ??= now;
      if (moment === Infinity && now > begun + 50) return; // the reader types
      const last = Math.max(words.length - 1, 1), passed = (now - begun) / RUNNING;
      moment = passed >= 1 ? Infinity : passed * last;
      draw();
      if (passed < 1) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  };
  return { element, run, redraw: () => { plot.measure(); draw(); }, words: () => words };
}

// As many words in a line as have room, each with its clocks side by side.
function layout(width, words) {
  const longest = Math.max(3, ...words.map((word) => [...word].length)), room = Math.floor((width / Math.max(words.length, 5) - 18) / SHOWN_CLOCKS - 6) / 2;
  const radius = width < 640 ? 13 : Math.min(Math.max(room, 17), 26), across = Math.max(SHOWN_CLOCKS * (2 * radius + 6) + 18, longest * (width < 640 ? 9.5 : 12) + 14);
  return { radius, across, columns: Math.max(1, Math.floor(width / across)), tall: 2 * radius + 66 };
}
