// A shift is a rotation: k tokens further every hand has turned by its own angle k x rate, wherever it stood.
//
// Of p squared, log p or 1/p in place of p that is not so: the angle depends on where one starts, and `bestShift` tells
// what the best single angle leaves.

import { warpPosition } from "./codes.js";
import { phaseAt } from "./ladders.js";

// Which way a pair turns on the plane of its first and second channel.
const TURNS_OF_WAVES = { "sin cos": 1, "cos -sin": 1, "cos sin": -1, "-sin cos": -1 };

// Why no one rotation moves a code from any position to another, so that it has no kernel either; null where one does.
export function whyNoShift(code) {
  if (code.channels === null) return "its numbers are of the position itself, which a step adds to or jumps over";
  if (code.spec.type === "Rotary") {
    if (code.spec.xpos !== null) return "the rotated values also grow or shrink with the position";
    return code.spec.reordered ? "the rotated values are written to other dimensions than they were read from" : null;
  }
  if (code.warp !== "none") return "a step rotates its pairs by an angle that depends on the position";
  if (code.mean !== 0) return "the mean of the table is subtracted from every value, and no matrix subtracts a constant";
  if (code.channels.includes(-1)) return "a pair has no second dimension, but a shift needs the sine and the cosine";
  return turnOfWaves(code) === undefined ? "both dimensions of a pair hold the same function, but a shift needs the sine and the cosine" : null;
}

function turnOfWaves(code) {
  if (code.spec.type === "Rotary") return -code.way;
  return TURNS_OF_WAVES[`${code.waveOf(code.channels[0])} ${code.waveOf(code.channels[1])}`];
}

// What R_k is on the two channels of a pair, [[a, b], [c, d]]: the code k tokens later is this times the code. Channels that
// are in no pair stay as they are. The code must have a shift.
export function shiftBlock(code, pair, k) {
  const phase = phaseAt(code.ladder, pair, k), cosine = Math.cos(phase), sine = turnOfWaves(code) * Math.sin(phase);
  return [[cosine, sine], [-sine, cosine]];
}

// By how much R_k of the row at a position misses the row that stands k tokens later, on the channel where it is worst. The
// code must have a shift; rows that it holds at zero are missed.
export function missOfShift(code, from, k) {
  const here = code.row(from), there = code.row(from + k);
  let most = 0;
  for (let pair = 0; pair < code.pairs; pair++) {
    const channels = [code.channels[2 * pair], code.channels[2 * pair + 1]];
    shiftBlock(code, pair, k).forEach(([a, b], row) => {
      most = Math.max(most, Math.abs(a * here[channels[0]] + b * here[channels[1]] - there[channels[row]]));
    });
  }
  return most;
}

// By how many radians a hand turns from one position to k tokens further; whole turns are left in.
export function warpedStep(ladder, pair, warp, from, k) {
  return ladder.rates[pair] * warpedDistance(warp, from, k);
}

// g(p + k) - g(p), without the loss of a difference of two large or close numbers.
function warpedDistance(warp, from, k) {
  if (!Number.isFinite(warpPosition(warp, from)) || !Number.isFinite(warpPosition(warp, from + k))) return NaN;
  if (warp === "square") return k * (2 * from + k);
  if (warp === "log") return Math.log1p(k / from);
  if (warp === "reciprocal") return -k / (from * (from + k));
  return k;
}

// The direction of the sum of unit vectors at these angles, in rad.
export function meanAngle(phases) {
  const along = phases.reduce((sum, phase) => sum + Math.cos(phase), 0), across = phases.reduce((sum, phase) => sum + Math.sin(phase), 0);
  return Math.atan2(across, along);
}

// The one angle that comes nearest to what a hand does from all starts, and what it leaves: distances on the circle of
// radius 1, at most 2. Starts where there is no number are left out.
export function bestShift(ladder, pair, warp, k, from, to) {
  const starts = [];
  for (let start = from; start <= to; start++) if (Number.isFinite(warpedDistance(warp, start, k))) starts.push(start);
  const phases = starts.map((start) => phaseAt(ladder, pair, warpedDistance(warp, start, k)));
  // The mean of the squared distances |e^(i a) - e^(i b)|^2 is least where b is the angle of the mean.
  const angle = meanAngle(phases);
  const left = phases.map((phase) => 2 * Math.abs(Math.sin((phase - angle) / 2)));
  const rms = Math.sqrt(left.reduce((sum, each) => sum + each * each, 0) / Math.max(left.length, 1));
  return { angle, largest: left.reduce((most, each) => Math.max(most, each), 0), rms };
}
