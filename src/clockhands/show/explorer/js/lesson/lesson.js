// The guided lesson: the reader's sentence under running clocks, then one step after another, each with one picture.

import { button } from "../controls.js";
import { html } from "../draw.js";
import { countStep, shuffleStep } from "./beginnings.js";
import { rowStep, speedsStep, waveStep } from "./clocks.js";
import { baseStep, beyondStep, slowerStep } from "./limits.js";
import { moveStep, productStep } from "./moves.js";
import { curveStep, ropeStep } from "./rotations.js";
import { sentenceOpening } from "./sentence.js";

export function lessonOf(app) {
  const opened = sentenceOpening(() => { for (const step of [shuffle, count]) step.draw(); });
  const shuffle = shuffleStep(opened.words), count = countStep(opened.words);
  const steps = [shuffle, count, waveStep(), speedsStep(), rowStep(), moveStep(), productStep(), ropeStep(), curveStep(), beyondStep(), slowerStep(), baseStep()];
  const element = html("div", { class: "lesson" }, opened.element, steps.map((step) => step.element), ownModel(app));
  const redraw = () => { for (const each of [opened, ...steps]) each.redraw(); };
  return { element, redraw, run: opened.run };
}

// What the lesson ends with: the reader's model.
function ownModel(app) {
  return html("section", { id: "lesson-model", class: "step last", "aria-labelledby": "lesson-model-title" },
    html("div", { class: "said" },
      html("h2", { id: "lesson-model-title" }, "And your model?"),
      html("p", {}, "Does every program read your files as they were trained? This command checks; drop its JSON on this page to see the model’s clocks."),
      html("pre", {}, html("code", {}, "clockhands audit MODEL --json > model.json")),
      html("p", {}, button("Open the audit of a model", () => app.scrollTo("model")))));
}
