// A step of the lesson: a heading, a few words, one picture, and a question whose answer is shown once it is guessed.

import { button } from "../controls.js";
import { Plot, html } from "../draw.js";

let stepsMade = 0, rangesMade = 0;

// `options` are what can be guessed, `right` the place of the true one; `answer()` gives the sentence that is then shown,
// and `shown` is called once it is. `plot` are the settings of its picture, which the step's `paint` fills; `controls` is a
// place for sliders.
export function lessonStep({ id, title, words, question, options, right, answer, plot, shown = () => {} }) {
  const told = html("p", { class: "told", role: "status" });
  const step = { guessed: null };
  const tell = () => {
    if (step.guessed === null) return;
    const verdict = step.guessed === right ? "Right. " : "Not so. ";
    if (told.textContent !== verdict + answer()) told.textContent = verdict + answer();
  };
  const buttons = options.map((text, place) => button(text, () => {
    step.guessed = place;
    buttons.forEach((each, at) => {
      each.setAttribute("aria-pressed", at === place);
      each.classList.toggle("true", at === right);
    });
    element.classList.add("answered");
    shown();
    tell();
  }, { "aria-pressed": "false" }));
  const picture = html("div", { class: "picture" }), controls = html("div", { class: "lesson-controls" });
  const element = html("section", { id: `lesson-${id}`, class: "step", "aria-labelledby": `lesson-${id}-title` },
    html("div", { class: "said" },
      html("h2", { id: `lesson-${id}-title` }, html("span", { class: "count", "aria-hidden": "true" }, `${++stepsMade}`), title),
      html("p", {}, words),
      html("p", { class: "asked" }, question),
      html("div", { class: "guesses", role: "group", "aria-label": question }, buttons),
      told),
    html("div", { class: "shown" }, picture, controls));
  step.plot = new Plot(picture, plot);
  // As far as the width is the same; `paint` is the step's own.
  step.draw = () => {
    step.paint();
    step.plot.settle();
    tell();
  };
  step.redraw = () => {
    step.plot.measure();
    step.draw();
  };
  return Object.assign(step, { element, controls });
}

// Call `moved` with the angle of the pointer about a centre, from 0 to 2 pi, from where it is pressed until it is let go.
export function draggedAngle(element, centre, moved) {
  const angle = (event) => {
    const box = element.getBoundingClientRect(), [x, y] = centre();
    return (Math.atan2(box.top + y - event.clientY, event.clientX - box.left - x) + 2 * Math.PI) % (2 * Math.PI);
  };
  element.classList.add("dragged");
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    moved(angle(event), true);
  });
  element.addEventListener("pointermove", (event) => { if (element.hasPointerCapture(event.pointerId)) moved(angle(event), false); });
}

// A slider with its value in words; `moved` is called with each new number.
export function lessonSlider(label, { min, max, value, step = 1, log = false, words = String }, moved) {
  const id = `lesson-range-${++rangesMade}`, out = html("output", { for: id });
  const fromRange = (at) => (log ? Math.round(Math.exp(at)) : at), toRange = (at) => (log ? Math.log(at) : at);
  const range = html("input", { type: "range", id, min: toRange(min), max: toRange(max), step: log ? "any" : step, oninput: () => take(fromRange(Number(range.value))) });
  const show = (at) => {
    out.textContent = words(at);
    range.setAttribute("aria-valuetext", words(at));
  };
  const take = (at) => { show(at); moved(at); };
  const place = (at) => { range.value = toRange(at); show(at); };
  place(value);
  return { element: html("div", { class: "lesson-slider" }, html("label", { for: id }, label), range, out), place };
}
