// Frequency ladders: how fast each pair turns, in radians per token.
//
// A rate in one double is within an ulp or two of the real number, so position x rate is off by up to p rate 2^-51:
// 4.7e-10 at position 2^20, and untrue as a picture from about 2^40 on. A ladder therefore holds each rate with twice
// the digits (doubles.js), to 2^-93 of it for up to 1,024 pairs. Whole turns are taken off before anything is rounded: for
// rates of at most 1, `phaseAt` is within 5e-16 rad up to position 2^40 and within 1e-12 rad up to 2^53, where doubles
// cease to hold every whole number. Faster hands have as many times the second error.

import { TWO_PI_TWICE, addTwice, expTwice, logTwice, minusTwice, overTwice, productRest, timesTwice } from "./doubles.js";

// Up to here a plain product of a position and a rate is worth drawing.
export const LAST_TRUE_POSITION = 2 ** 40;

// A ladder of rates of twice the digits: each rate is rates[i] + lows[i] radians, turns[i] + turnLows[i] turns per token;
// `log` is the logarithm of the ratio of neighbours where they are a geometric progression, else null.
export function ladderFrom(exact, { attentionFactor = 1, log = null } = {}) {
  const pairs = exact.length, made = { pairs, attentionFactor, log };
  for (const name of ["rates", "lows", "turns", "turnLows"]) made[name] = new Float64Array(pairs);
  exact.forEach((rate, pair) => {
    [made.rates[pair], made.lows[pair]] = rate;
    [made.turns[pair], made.turnLows[pair]] = overTwice(rate, TWO_PI_TWICE);
  });
  return made;
}

export function exactRate(ladder, pair) {
  return [ladder.rates[pair], ladder.lows[pair]];
}

function denominatorOf(span, channels) {
  if (span === "open") return channels / 2;
  if (span === "closed") {
    const steps = Math.floor(channels / 2) - 1;
    if (steps < 1) throw new RangeError("a closed span divides by d/2 - 1 and needs at least 4 dimensions");
    return steps;
  }
  return span;
}

// rate_i = multiplier * base^(-i / den), den = channels / 2 (open) or floor(channels / 2) - 1 (closed), or a number.
export function geometricLadder(pairs, channels, base, span = "open", multiplier = 1) {
  const log = overTwice(minusTwice(logTwice([base, 0])), [denominatorOf(span, channels), 0]);
  const ratio = expTwice(log), exact = [];
  let rate = [multiplier, 0];
  for (let pair = 0; pair < pairs; pair++) {
    exact.push(rate);
    rate = timesTwice(rate, ratio);
  }
  return ladderFrom(exact, { log });
}

// rate_i = multiplier * (first + i (last - first) / (pairs - 1)).
export function evenLadder(pairs, first, last, multiplier = 1) {
  const steps = Math.max(pairs - 1, 1);
  return ladderFrom(Array.from({ length: pairs }, (_, pair) => {
    const sum = addTwice(timesTwice([first, 0], [steps - pair, 0]), timesTwice([last, 0], [pair, 0]));
    return overTwice(timesTwice([multiplier, 0], sum), [steps, 0]);
  }));
}

// The rates that are given, each the real number that its double holds.
export function givenLadder(rates) {
  return ladderFrom(Array.from(rates, (rate) => [rate, 0]));
}

// The ladder of a spacing as Python writes it down: Geometric, EvenSteps, Explicit, Joined or Repeated.
export function ladderOf(spacing, pairs, channels) {
  if (spacing.type === "Geometric") return geometricLadder(pairs, channels, spacing.base, spacing.span, spacing.multiplier);
  if (spacing.type === "EvenSteps") return evenLadder(pairs, spacing.first, spacing.last, spacing.multiplier);
  if (spacing.type === "Explicit") return givenLadder(spacing.rates);
  if (spacing.type === "Repeated") {
    const single = ladderOf(spacing.spacing, pairs / spacing.times, channels / spacing.times);
    return ladderFrom(Array.from({ length: pairs }, (_, pair) => exactRate(single, Math.floor(pair / spacing.times))));
  }
  if (spacing.type === "Joined") {
    const parts = spacing.parts.map(([own, each]) => ladderOf(each, own, 2 * own));
    const exact = spacing.in_turns
      ? Array.from({ length: pairs }, (_, pair) => exactRate(parts[pair % parts.length], Math.floor(pair / parts.length)))
      : parts.flatMap((part) => Array.from(part.rates, (_, pair) => exactRate(part, pair)));
    return ladderFrom(exact);
  }
  throw new RangeError(`no spacing ${spacing.type}`);
}

// A whole turn, in radians.
export const TURN = 2 * Math.PI;

// Tokens that a turn takes; Infinity for a pair that stands still.
export function wavelength(rate) {
  return TURN / rate;
}

// position x rate less whole turns, from -pi to pi: turns are taken off before anything is rounded.
export function phaseAt(ladder, pair, position) {
  const rate = ladder.turns[pair];
  const head = position * rate;
  const tail = productRest(position, rate, head) + position * ladder.turnLows[pair];
  const turned = head - Math.round(head) + (tail - Math.round(tail));
  return (turned - Math.round(turned)) * TWO_PI_TWICE[0];
}

// A pair whose wavelength equals the length completes its turn there: rounding must not say otherwise.
const NEARLY_A_TURN = TURN * (1 - 1e-12);

// Whether a pair of this rate completes a turn within a length.
export function completes(rate, length) {
  return rate * length >= NEARLY_A_TURN;
}

// The fastest and the slowest of the pairs that turn, null where none does; how their rates run from pair 0 on: falling,
// rising or mixed; and how many pairs stand still.
export function paceOf(rates) {
  const moving = Array.from(rates.keys()).filter((pair) => rates[pair] > 0), steps = moving.slice(1).map((pair, at) => rates[pair] - rates[moving[at]]);
  let fast = moving[0] ?? null, slow = fast;
  for (const pair of moving) {
    if (rates[pair] > rates[fast]) fast = pair;
    if (rates[pair] <= rates[slow]) slow = pair;
  }
  const order = steps.every((step) => step <= 0) ? "falling" : steps.every((step) => step >= 0) ? "rising" : "mixed";
  return { fast, slow, order, still: rates.length - moving.length };
}

// How many turns each pair makes in so many tokens; whole ones are left in.
export function turnsWithin(ladder, length) {
  return ladder.turns.map((rate) => rate * length);
}

// The first pair that does not come round once in so many tokens, or null.
export function firstNeverTurning(ladder, length) {
  const found = ladder.rates.findIndex((rate) => !completes(rate, length));
  return found < 0 ? null : found;
}

// So many pairs at the most, evenly over a ladder; the chosen one takes the place of the nearest, and the ends stay.
export function pairsToDraw(pairs, chosen, most) {
  const count = Math.min(most, pairs);
  const drawn = Array.from({ length: count }, (_, place) => Math.round((place * (pairs - 1)) / Math.max(count - 1, 1)));
  if (!drawn.includes(chosen) && chosen < pairs) {
    let nearest = 0;
    drawn.forEach((pair, place) => { if (Math.abs(pair - chosen) < Math.abs(drawn[nearest] - chosen)) nearest = place; });
    drawn[Math.min(Math.max(nearest, 1), count - 2)] = chosen;
  }
  return drawn.sort((a, b) => a - b);
}
