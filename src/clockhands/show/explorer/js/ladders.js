// Frequency ladders: how fast each pair turns, in radians per token, in double precision.
//
// A rate is within 2 ulp of the real number, so a phase at position p is off by at most p * rate * 2^-51: 4.7e-10 at
// 2^20, and untrue as a picture from about 2^40 on, where the page says so.

export const LAST_TRUE_POSITION = 2 ** 40;

// rate_i = multiplier * base^(-i / den), den = channels / 2 (open) or channels / 2 - 1 (closed), or a number.
export function geometric(pairs, channels, base, span = "open", multiplier = 1) {
  const den = span === "open" ? channels / 2 : span === "closed" ? channels / 2 - 1 : span;
  return Float64Array.from({ length: pairs }, (_, pair) => multiplier * Math.pow(base, -pair / den));
}

// rate_i = first + i (last - first) / (pairs - 1).
export function evenSteps(pairs, first, last) {
  return Float64Array.from({ length: pairs }, (_, pair) => first + (pair * (last - first)) / Math.max(pairs - 1, 1));
}

export function wavelength(rate) {
  return rate === 0 ? Infinity : (2 * Math.PI) / rate;
}
