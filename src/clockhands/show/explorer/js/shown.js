// What the page shows, in the words that stand under its controls.

import { kindWords, titleOfModel } from "./audits.js";

const NAMED_MODELS = 3; // models that are named one by one

// The code of the state, whose it is, and what of a model it leaves out.
export function saidOfCode(code, state, missing, models) {
  const bare = models.length > 0 && models.every(({ codes }) => codes.every((name) => name === null)) ? `${saidOfModelsWithoutHands(models)} ` : "";
  if (code.own && missing) return `${bare}The address names an encoding that is not on this page, ${missing}: the views show a custom one with the width and base set here.`;
  if (code.own) return bare;
  if (code.model) return `The views show the frequencies of ${code.says}.${code.note ? ` ${code.note}` : ""}`;
  const wider = code.published !== undefined, named = wider ? `${state.code} with width ${state.width}, where it was published with ${code.published}` : state.code;
  return `${bare}${bare ? `The views show ${named}: ` : wider ? `This is ${named}. ` : ""}${code.says}${code.base === null ? " No base alone gives its frequencies: moving the base makes another encoding." : ""}`;
}

function saidOfModelsWithoutHands(models) {
  const names = models.slice(0, NAMED_MODELS).map(({ audit }) => `${titleOfModel(audit)} (${[...new Set(audit.layers.map(kindWords))].join("; ") || "nothing about position"})`);
  const more = models.length - names.length;
  return `No layer of ${names.join(", of ")}${more > 0 ? ` and of ${more} more` : ""} has rotating pairs to show here; the last view shows what ${models.length === 1 ? "it" : "they"} declare${models.length === 1 ? "s" : ""}.`;
}

// What became of files that were dropped or chosen: shown at the top too, where a person looks.
export function saidOfFiles(failed, opened) {
  if (opened.length === 0) return failed;
  const words = opened.length === 1 ? `${titleOfModel(opened[0])} is on the page.` : `${opened.length} models are on the page.`;
  return failed ? `${failed} ${words}` : words;
}
