// Scalings: how a trained ladder is slowed down to serve longer contexts. Each takes a ladder and gives a ladder.
//
// w_j is the rate of pair j of n, f the factor, L0 the length that the model was trained on, t_j = L0 w_j / (2 pi) the
// turns that a pair makes in it. All is computed with twice the digits, like the ladders.

import { TWO_PI_TWICE, addTwice, compareTwice, expTwice, logTwice, minusTwice, overTwice, timesTwice } from "./doubles.js";
import { exactRate, ladderFrom } from "./ladders.js";

export const SCALINGS = ["none", "linear", "ntk", "dynamic", "yarn", "llama3"];

// A scaling by its name, with the values of its publication, as Python writes it down; null is none.
export function scalingOf(name, factor, original) {
  if (name === "linear") return { type: "Linear", factor };
  if (name === "ntk") return { type: "Ntk", factor };
  if (name === "dynamic") return { type: "Dynamic", factor, original };
  if (name === "yarn") {
    return { type: "Yarn", factor, original, beta_fast: 32, beta_slow: 1, truncate: true, mscale: null, mscale_all_dim: null, attention_factor: null, ramp: "index" };
  }
  if (name === "llama3") return { type: "Llama3", factor, original, low_freq_factor: 1, high_freq_factor: 4 };
  return null;
}

// The ladder in use at `length` tokens, of which only Dynamic and LongRope want to know.
export function scaledLadder(scaling, ladder, length = null) {
  if (scaling === null || scaling === undefined) return ladder;
  const change = CHANGES[scaling.type];
  if (change === undefined) throw new RangeError(`no scaling ${scaling.type}`);
  return change(scaling, ladder, length);
}

const CHANGES = { Linear: linearScaled, Ntk: ntkScaled, Dynamic: dynamicScaled, Yarn: yarnScaled, Llama3: llamaScaled, LongRope: longScaled, Proportional: proportionalScaled, MixedNtk: mixedNtkScaled };

function mappedLadder(ladder, change, attentionFactor = 1) {
  const exact = Array.from(ladder.rates, (_, pair) => change(exactRate(ladder, pair), pair));
  return ladderFrom(exact, { attentionFactor: ladder.attentionFactor * attentionFactor });
}

// w_j / f.
function linearScaled({ factor }, ladder) {
  return mappedLadder(ladder, (rate) => overTwice(rate, [factor, 0]));
}

// w_j f^(-j / (n - 1)): the fastest keeps its rate, the slowest is slowed f times.
function ntkScaled({ factor }, ladder) {
  return ntkBy([factor, 0], ladder);
}

function ntkBy(factor, ladder) {
  if (ladder.pairs < 2) throw new RangeError("NTK-aware scaling spreads its factor over the pairs, and there is only one");
  const step = expTwice(overTwice(minusTwice(logTwice(factor)), [ladder.pairs - 1, 0]));
  let share = [1, 0];
  return mappedLadder(ladder, (rate) => {
    const scaled = timesTwice(rate, share);
    share = timesTwice(share, step);
    return scaled;
  });
}

// NTK-aware by f L / L0 - (f - 1) from the original length on.
function dynamicScaled({ factor, original }, ladder, length) {
  const reach = Math.max(length ?? original, original);
  const stretched = overTwice(timesTwice([factor, 0], [reach, 0]), [original, 0]);
  return ntkBy(addTwice(stretched, addTwice([1, 0], [-factor, 0])), ladder);
}

// w_j f^(-((j + 1) / n)^b): the slowest is slowed f times, the fastest least.
function mixedNtkScaled({ factor, exponent }, ladder) {
  const fall = minusTwice(logTwice([factor, 0]));
  return mappedLadder(ladder, (rate, pair) => {
    const part = overTwice([pair + 1, 0], [ladder.pairs, 0]);
    const power = exponent === 1 ? part : expTwice(timesTwice([exponent, 0], logTwice(part)));
    return timesTwice(rate, expTwice(timesTwice(fall, power)));
  });
}

function turnsTwice(rate, original) {
  return overTwice(timesTwice([original, 0], rate), TWO_PI_TWICE);
}

function mixedRates(rate, factor, slowed) {
  const kept = addTwice([1, 0], minusTwice(slowed));
  return addTwice(timesTwice(overTwice(rate, [factor, 0]), slowed), timesTwice(rate, kept));
}

function heldToOne(share) {
  if (compareTwice(share, [0, 0]) < 0) return [0, 0];
  return compareTwice(share, [1, 0]) > 0 ? [1, 0] : share;
}

// w_j (g_j / f + 1 - g_j): a ramp g from the hands that make beta_fast turns to those that make beta_slow.
function yarnScaled(scaling, ladder) {
  const share = scaling.ramp === "turns" ? yarnByTurns(scaling) : yarnByIndex(scaling, ladder);
  const change = (rate, pair) => mixedRates(rate, scaling.factor, heldToOne(share(rate, pair)));
  return mappedLadder(ladder, change, yarnAttention(scaling));
}

function yarnByTurns({ original, beta_fast, beta_slow }) {
  if (beta_fast === beta_slow) return (rate) => (compareTwice(turnsTwice(rate, original), [beta_fast, 0]) < 0 ? [1, 0] : [0, 0]);
  const wide = addTwice([beta_fast, 0], [-beta_slow, 0]);
  return (rate) => overTwice(addTwice([beta_fast, 0], minusTwice(turnsTwice(rate, original))), wide);
}

function yarnByIndex({ original, beta_fast, beta_slow, truncate }, ladder) {
  if (ladder.log === null) throw new RangeError("YaRN's ramp needs geometric frequencies");
  const fall = minusTwice(ladder.log), first = turnsTwice(exactRate(ladder, 0), original);
  const pairThatMakes = (turns) => overTwice(logTwice(overTwice(first, [turns, 0])), fall);
  let begin = pairThatMakes(beta_fast), end = pairThatMakes(beta_slow);
  if (truncate) {
    // Neither is whole: pi is in one logarithm and not in the other.
    begin = [Math.floor(begin[0]), 0];
    end = [Math.ceil(end[0]), 0];
  }
  if (compareTwice(begin, [0, 0]) < 0) begin = [0, 0];
  // A channel's number, by the original's slip.
  if (compareTwice(end, [2 * ladder.pairs - 1, 0]) > 0) end = [2 * ladder.pairs - 1, 0];
  if (compareTwice(begin, end) === 0) end = addTwice(end, overTwice([1, 0], [1000, 0]));
  const wide = addTwice(end, minusTwice(begin));
  return (_, pair) => overTwice(addTwice([pair, 0], minusTwice(begin)), wide);
}

function yarnAttention({ factor, mscale, mscale_all_dim, attention_factor }) {
  if (attention_factor !== null) return attention_factor;
  const magnitude = (scale) => 1 + 0.1 * scale * Math.log(factor);
  return mscale && mscale_all_dim ? magnitude(mscale) / magnitude(mscale_all_dim) : magnitude(1);
}

// Fewer than `low` turns: slowed f times; more than `high`: kept; a blend between.
function llamaScaled({ factor, original, low_freq_factor, high_freq_factor }, ladder) {
  const low = [low_freq_factor, 0], high = [high_freq_factor, 0], wide = addTwice(high, minusTwice(low));
  return mappedLadder(ladder, (rate) => {
    const turns = turnsTwice(rate, original);
    if (compareTwice(turns, high) >= 0) return rate;
    if (compareTwice(turns, low) <= 0) return overTwice(rate, [factor, 0]);
    const kept = overTwice(addTwice(turns, minusTwice(low)), wide);
    return mixedRates(rate, factor, addTwice([1, 0], minusTwice(kept)));
  });
}

// Each hand slowed by a number of its own: one list up to the original length, another beyond.
function longScaled(scaling, ladder, length) {
  const beyond = (length ?? scaling.original) > scaling.original;
  const divisors = beyond ? scaling.long : scaling.short;
  const ofRegime = beyond ? scaling.long_mscale : scaling.short_mscale;
  const follows = Math.sqrt(1 + Math.log(scaling.factor) / Math.log(scaling.original));
  return mappedLadder(ladder, (rate, pair) => overTwice(rate, [divisors[pair], 0]), ofRegime ?? scaling.attention_factor ?? follows);
}

// The first pairs keep the whole head's rates, the rest stand still.
function proportionalScaled({ fraction, factor }, ladder) {
  const turning = Math.trunc(fraction * ladder.pairs);
  return mappedLadder(ladder, (rate, pair) => (pair < turning ? overTwice(rate, [factor, 0]) : [0, 0]));
}
