// Faults of positions that a trained model is given: as settings, under the names that `clockhands probe` has for them, and as
// the rotation that follows from the settings.

import { phaseAt } from "./ladders.js";
import { computedAngles } from "./precision.js";
import { rotaryCode } from "./rotary.js";
import { scalingOf } from "./scalings.js";

const OTHER_BASES = [10000, 500000]; // the first, or where that is the model's own the second

// The settings that a model was trained with; the factor counts only where something is scaled.
export function trainedSettings({ spec }) {
  return { usedBase: spec.spacing.base, usedLayout: spec.layout, usedScaling: "none", usedShift: 0, usedLate: 0, usedRounding: "none", usedRotation: "forward" };
}

// [name, settings] of each.
export function faultsOf(model) {
  const trained = trainedSettings(model);
  return [
    ["rotation-off", { usedRotation: "off" }],
    ["layout-swapped", { usedLayout: trained.usedLayout === "halves" ? "interleaved" : "halves" }],
    ["another-base", { usedBase: OTHER_BASES.find((base) => base !== trained.usedBase) }],
    ["linear-scaling-2", { usedScaling: "linear", usedFactor: 2 }],
    ["yarn-4", { usedScaling: "yarn", usedFactor: 4 }],
    ["rounded-frequencies", { usedRounding: "bfloat16 rates" }],
    ["rounded-angles", { usedRounding: "bfloat16 phases" }],
    ["positions-shifted", { usedShift: 1000 }],
    ["queries-late", { usedLate: 1 }],
  ].map(([name, changed]) => [name, { ...trained, ...changed }]);
}

// One text for all settings that give the same rotation.
export function settingsKey(settings) {
  if (settings.usedRotation === "off") return "off";
  const names = ["usedBase", "usedLayout", "usedScaling", "usedShift", "usedLate", "usedRounding", "usedRotation"];
  return JSON.stringify([...names.map((name) => settings[name]), settings.usedScaling === "none" ? null : settings.usedFactor]);
}

// What queries and keys at so many positions are rotated by: the channels of each pair of a head, its cosines and its sines.
export function rotationOf(settings, model, positions) {
  const { usedBase: base, usedLayout: layout, usedShift: shift } = settings, off = settings.usedRotation === "off";
  const code = rotaryCode({
    ...model.spec, layout, spacing: { ...model.spec.spacing, base }, direction: settings.usedRotation === "backward" ? "backward" : "forward",
    scaling: scalingOf(settings.usedScaling, settings.usedFactor, model.length),
  });
  const [dtype, way] = settings.usedRounding.split(" "), rounded = way ? computedAngles(code.ladder, dtype, way) : null;
  const wavesFrom = (first) => {
    const made = { channels: code.channels, cosines: new Float64Array(positions * code.pairs), sines: new Float64Array(positions * code.pairs) };
    for (let position = first, at = 0; position < first + positions; position++) {
      for (let pair = 0; pair < code.pairs; pair++, at++) {
        const angle = off ? 0 : code.way * (phaseAt(code.ladder, pair, position) + (rounded?.error(position, pair) ?? 0)), factor = off ? 1 : code.ladder.attentionFactor;
        made.cosines[at] = factor * Math.cos(angle);
        made.sines[at] = factor * Math.sin(angle);
      }
    }
    return made;
  };
  return { queries: wavesFrom(shift + settings.usedLate), keys: wavesFrom(shift) };
}
