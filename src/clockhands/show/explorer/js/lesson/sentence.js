// The opening of the page: a sentence that the reader types, and above each word the clocks of its position, which run there.

import { button } from "../controls.js";
import { Plot, html, svg } from "../draw.js";
import { geometricLadder, phaseAt } from "../ladders.js";
import { dial } from "./dial.js";

export const FIRST_SENTENCE = "the dog bites the man today";
const MOST_WORDS = 12;
const SHOWN_CLOCKS = 4, FASTEST_FIRST = geometricLadder(SHOWN_CLOCKS, 2 * SHOWN_CLOCKS, 100);
const NAMED_ROWS = 62, NARROW_LINE = 640, WIDEST_WORD = 240; // px: the names at the left, a line for small letters, and of a word
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
    html("p", { class: "lead" }, "Attention compares words, and cannot see their order. So each position gets a set of clocks, each with its own speed."),
    html("div", { class: "typed" }, html("label", { for: "lesson-sentence" }, "Your sentence"), field),
    place,
    button("Shuffle it: what does attention see? ↓", () => document.getElementById("lesson-order").scrollIntoView(), { class: "onward" }));
  const plot = new Plot(place, { height: 200, margin: { top: 0, right: 0, bottom: 0, left: 0 }, label: "The words of the sentence, each below the four clocks of its position, from fast to slow" });
  let words = wordsOfSentence(FIRST_SENTENCE), moment = Infinity;
  const draw = () => {
    if (!plot.width) plot.measure();
    const { radius, columns, across, step } = layout(plot.width, words), tall = SHOWN_CLOCKS * step + 64, lines = Math.max(1, Math.ceil(words.length / columns));
    plot.resize(tall * lines);
    plot.clear().ink.append(...Array.from({ length: lines }, (_, at) => [["fast", radius + 9], ["slow", (SHOWN_CLOCKS - 1) * step + radius + 9], ["position", tall - 18]].map(([name, y]) => svg("text", { x: 0, y: at * tall + y }, name))).flat(),
      ...words.map((word, position) => {
        const x = NAMED_ROWS + (position % columns + 0.5) * across, y = Math.floor(position / columns) * tall, at = Math.min(position, moment);
        return svg("g", { class: at < position ? "waiting" : "arrived" },
          Array.from({ length: SHOWN_CLOCKS }, (_, pair) => dial(x, y + radius + 5 + pair * step, radius, phaseAt(FASTEST_FIRST, pair, at))),
          svg("text", { class: "word", x, y: y + tall - 38, "text-anchor": "middle" }, word),
          svg("text", { x, y: y + tall - 18, "text-anchor": "middle" }, position));
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

// As many words in a line as have room, and as many in each as in the next: each above its position, below its clocks.
function layout(width, words) {
  const room = width - NAMED_ROWS, longest = Math.max(3, ...words.map((word) => [...word].length)), fit = Math.max(1, Math.floor(room / (longest * (width < NARROW_LINE ? 8.2 : 12) + 6)));
  const lines = Math.max(1, Math.ceil(words.length / fit)), columns = Math.max(1, Math.ceil(words.length / lines)), across = Math.min(room / columns, WIDEST_WORD);
  const radius = Math.min(across / 2 - 5, lines > 1 ? 16 : 34);
  return { radius, columns, across, step: 2 * radius + (width < NARROW_LINE ? 7 : 10) };
}
