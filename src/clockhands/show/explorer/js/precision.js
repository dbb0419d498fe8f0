// Numbers as shorter dtypes hold them, and angles as code computes them: each step rounded, held against the real angle.
//
// A real angle is the product of a position and a rate of twice the digits (ladders.js), kept as a sum of two doubles;
// computed angles are doubles close to it, so that their difference is exact or as good as that. An angle is not reduced
// to one turn: an error of 2 pi is a hand that went round once too often.

import { expTwice, productRest } from "./doubles.js";

export const WAYS = {
  positions: "positions rounded to the dtype, everything else exact",
  rates: "frequencies rounded to the dtype, everything else exact",
  phases: "the exact angle, rounded to the dtype",
  throughout: "exact frequencies rounded to the dtype, positions too, and their product",
  power: "frequencies as 1 / base^(2i/d), all in the dtype",
  exponential: "frequencies as exp(2i (-log(base)/d)), all in the dtype",
};

// Bits after the leading one, the smallest exponent of a number with all of them, and the largest number.
const FORMATS = {
  float64: { bits: 52, least: -1022, largest: Number.MAX_VALUE },
  float32: { bits: 23, least: -126, largest: (2 - 2 ** -23) * 2 ** 127 },
  bfloat16: { bits: 7, least: -126, largest: (2 - 2 ** -7) * 2 ** 127 },
  float16: { bits: 10, least: -14, largest: 65504 },
};

const REAL = new Float64Array(1);
const WORDS = new Uint32Array(REAL.buffer); // low word, high word on all machines that run browsers
const EVEN = 1.5 * 2 ** 52; // a number of up to 51 bits added to it is rounded to a whole one, ties to even

// The nearest number of a dtype, ties to even; infinite beyond its range.
export function roundTo(dtype, value) {
  if (dtype === "float64") return value;
  if (dtype === "float32") return Math.fround(value);
  if (value === 0 || !Number.isFinite(value)) return value;
  const { bits, least, largest } = FORMATS[dtype];
  // The distance between neighbours here; a number divided by it is as exact as before.
  const unit = powerOfTwo(Math.max(exponentOf(value), least) - bits);
  const rounded = (value / unit + EVEN - EVEN) * unit;
  if (Math.abs(rounded) > largest) return value > 0 ? Infinity : -Infinity;
  return rounded === 0 && value < 0 ? -0 : rounded;
}

// The exponent of a double's leading bit; below its normal numbers -1023, which no shorter dtype asks for.
function exponentOf(value) {
  REAL[0] = value;
  return ((WORDS[1] >>> 20) & 0x7ff) - 1023;
}

function powerOfTwo(exponent) {
  WORDS[0] = 0;
  WORDS[1] = (exponent + 1023) << 20;
  return REAL[0];
}

// head + tail, not negative and known to twice the digits, rounded once. Rounded to odd in between: of the two doubles
// about the sum, the odd one lies on no midpoint of a shorter dtype.
function roundSum(dtype, head, tail) {
  const total = head + tail;
  if (dtype === "float64" || !Number.isFinite(total)) return total;
  const lost = tail - (total - head);
  REAL[0] = total;
  if ((WORDS[0] & 1) === 0 && lost !== 0) {
    if (lost > 0) {
      WORDS[0] += 1;
    } else {
      if (WORDS[0] === 0) WORDS[1] -= 1;
      WORDS[0] -= 1;
    }
  }
  return roundTo(dtype, REAL[0]);
}

// One way of computing the angles of a ladder in a dtype. `base` is only for "power" and "exponential": the one whose
// last pair would stand one step short of 1 / base unless said.
export function computedAngles(ladder, dtype, way, base = null) {
  if (!Object.hasOwn(WAYS, way)) throw new RangeError(`no way ${way} of computing angles`);
  return new ComputedAngles(ladder, dtype, way, base);
}

class ComputedAngles {
  constructor(ladder, dtype, way, base) {
    this.ladder = ladder;
    this.dtype = dtype;
    this.exactRates = way === "positions" || way === "phases";
    this.roundsPositions = way !== "rates" && way !== "phases";
    this.roundsProducts = way !== "rates" && way !== "positions";
    if (way === "power" || way === "exponential") this.rates = ratesFromBase(ladder, dtype, way, base);
    else if (this.exactRates) this.rates = ladder.rates;
    else this.rates = ladder.rates.map((rate, pair) => roundSum(dtype, rate, ladder.lows[pair]));
  }

  // Computed angle less real angle, in radians; infinite or NaN where a number exceeds the dtype.
  error(position, pair) {
    const used = this.roundsPositions ? roundTo(this.dtype, position) : position;
    const high = this.ladder.rates[pair], low = this.ladder.lows[pair], rate = this.rates[pair];
    if (!this.roundsProducts) return this.exactRates ? (used - position) * high : position * (rate - high - low);
    const head = position * high, tail = productRest(position, high, head) + position * low;
    const angle = this.exactRates ? roundSum(this.dtype, head, tail) : roundTo(this.dtype, used * rate);
    return angle - head - tail;
  }

  errors(position, out = new Float64Array(this.ladder.pairs)) {
    for (let pair = 0; pair < this.ladder.pairs; pair++) out[pair] = this.error(position, pair);
    return out;
  }

  // The largest size of an error of any pair.
  largest(position) {
    let most = 0;
    for (let pair = 0; pair < this.ladder.pairs; pair++) {
      const size = Math.abs(this.error(position, pair));
      if (!Number.isFinite(size)) return Infinity;
      if (size > most) most = size;
    }
    return most;
  }
}

// The rates as code computes them in a dtype, each step rounded. The factor of the exponent is worked out in double
// precision and kept in float32 at least.
function ratesFromBase(ladder, dtype, way, base) {
  if (ladder.log === null) throw new RangeError("frequencies can be computed from a base only if they are a geometric progression");
  const round = (value) => roundTo(dtype, value), log = ladder.log[0];
  const spans = base ?? expTwice([-ladder.log[0] * ladder.pairs, -ladder.log[1] * ladder.pairs])[0];
  const channels = (-2 * Math.log(spans)) / log, first = round(ladder.rates[0]);
  const made = Float64Array.from({ length: ladder.pairs }, (_, pair) => {
    const index = round(2 * pair);
    if (way === "power") return round(1 / round(round(spans) ** round(index / round(channels))));
    const factor = roundTo(dtype === "float64" ? dtype : "float32", -Math.log(spans) / channels);
    return round(Math.exp(round(index * factor)));
  });
  return made.map((rate) => round(rate * first));
}

// The first whole position that a dtype does not hold.
export function firstPositionOff(dtype) {
  return 2 ** (FORMATS[dtype].bits + 1) + 1;
}
