// What is wrong with the models of the page, before all else: the worst finding of each with its fix, or one line.

import { problemsOf, spaced, titleOfModel, verdictOf } from "./audits.js";
import { button } from "./controls.js";
import { html } from "./draw.js";

// A banner that follows the models that are shown; empty while the page has none.
export function bannerOf(app) {
  const place = html("div", { class: "banners" });
  const show = (state) => {
    const one = app.models[state.model] ?? app.models[0] ?? null, other = app.models[state.beside] ?? null;
    place.replaceChildren(...[one, other === one ? null : other].filter(Boolean).map(({ audit }) => bannerOfModel(audit, app)));
  };
  app.onModels(() => show(app.store.state));
  app.store.subscribe((state, changed) => { if (changed.has("model") || changed.has("beside")) show(state); });
  show(app.store.state);
  return place;
}

function bannerOfModel(audit, app) {
  const [worst, ...others] = problemsOf(audit), title = html("strong", {}, `${titleOfModel(audit)}: `);
  if (worst === undefined) {
    const correct = verdictOf(audit).startsWith("The position settings look correct");
    return html("p", { class: `banner ${correct ? "sound" : "note"}`, role: "status" }, title, verdictOf(audit));
  }
  const more = others.length ? button("See all problems", () => app.scrollTo("model")) : null;
  return html("div", { class: `banner ${worst.severity}`, role: "status" },
    html("p", {}, title, verdictOf(audit)),
    html("p", {}, html("strong", {}, `${worst.severity} ${worst.code}`), ` ${spaced(worst.message)}`),
    html("p", {}, html("strong", {}, "Fix: "), worst.edit || spaced(worst.hint)),
    worst.lines.length ? changeOf(worst) : null, more);
}

// The lines of a file that a fix removes and adds.
function changeOf({ file, lines }) {
  return html("figure", { class: "change" }, file ? html("figcaption", {}, `The change of ${file}`) : null,
    html("pre", {}, lines.join("\n")));
}
