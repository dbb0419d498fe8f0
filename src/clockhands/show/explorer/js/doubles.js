// Numbers of twice the digits: each is [high, low], the sum of two doubles, good to about 2^-100 of it.
//
// A rate as one double is off by up to 2^-53 of it, which at position 2^40 is a ten-thousandth of a radian, and all of
// a turn at 2^53. With twice the digits a phase is right at every position that a double can say.
//
// A sum of two doubles is split into what is kept and what is lost (Knuth), a product likewise (Dekker 1971,
// Numerische Mathematik 18, 224-242). Each operation below is within 2^-100 of its result, for numbers between 1e-200 and 1e200.

export const TWO_PI_TWICE = [6.283185307179586, 2.4492935982947064e-16];
const LN_2_TWICE = [0.6931471805599453, 2.3190468138462996e-17];
const SPLITTER = 2 ** 27 + 1;
const HALVINGS = 10; // of an exponent before its series, which then needs few terms

// What the product of two doubles loses when it is rounded, exactly.
export function productRest(a, b, product) {
  const scaledA = a * SPLITTER, scaledB = b * SPLITTER;
  const highA = scaledA - (scaledA - a), highB = scaledB - (scaledB - b);
  const lowA = a - highA, lowB = b - highB;
  return lowA * lowB - (product - highA * highB - lowA * highB - highA * lowB);
}

function twice(high, low) {
  const sum = high + low;
  return [sum, low - (sum - high)];
}

export function addTwice(a, b) {
  const sum = a[0] + b[0], part = sum - a[0];
  const rest = a[0] - (sum - part) + (b[0] - part) + a[1] + b[1];
  return twice(sum, rest);
}

export function minusTwice(a) {
  return [-a[0], -a[1]];
}

export function timesTwice(a, b) {
  const product = a[0] * b[0];
  return twice(product, productRest(a[0], b[0], product) + (a[0] * b[1] + a[1] * b[0]));
}

export function overTwice(a, b) {
  const first = a[0] / b[0];
  const left = addTwice(a, minusTwice(timesTwice(b, [first, 0])));
  const second = left[0] / b[0];
  const still = addTwice(left, minusTwice(timesTwice(b, [second, 0])));
  return addTwice(twice(first, second), [still[0] / b[0], 0]);
}

// Negative, 0 or positive, as a is below, at or above b.
export function compareTwice(a, b) {
  return a[0] - b[0] || a[1] - b[1];
}

export function expTwice(x) {
  const doublings = Math.round(x[0] / LN_2_TWICE[0]);
  const rest = addTwice(x, minusTwice(timesTwice(LN_2_TWICE, [doublings, 0])));
  const small = [rest[0] / 2 ** HALVINGS, rest[1] / 2 ** HALVINGS];
  // exp(small) - 1 = small (1 + small / 2 (1 + small / 3 (…)))
  let series = [1, 0];
  for (let term = 10; term >= 2; term--) series = addTwice([1, 0], timesTwice(overTwice(small, [term, 0]), series));
  let less = timesTwice(small, series);
  // exp(2 y) - 1 = (exp(y) - 1) (exp(y) + 1)
  for (let step = 0; step < HALVINGS; step++) less = timesTwice(less, addTwice(less, [2, 0]));
  const scale = 2 ** doublings, found = addTwice(less, [1, 0]);
  return [found[0] * scale, found[1] * scale];
}

// By one step of Newton from the double: its error of 2^-52 becomes one of its cube.
export function logTwice(x) {
  const near = Math.log(x[0]);
  const off = addTwice(timesTwice(x, expTwice([-near, 0])), [-1, 0]);
  return addTwice([near, 0], addTwice(off, minusTwice(timesTwice(timesTwice(off, off), [0.5, 0]))));
}
