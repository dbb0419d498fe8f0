// The numbers of a code at a position: what a model is given.

// The two channels of a pair: interleaved (2i, 2i + 1) or halves (i, i + pairs).
export function channelsOf(pair, pairs, layout) {
  return layout === "interleaved" ? [2 * pair, 2 * pair + 1] : [pair, pair + pairs];
}

// Write sine and cosine of every pair at a position into `out` [width].
export function writeRow(out, rates, position, layout, order) {
  const pairs = rates.length;
  for (let pair = 0; pair < pairs; pair++) {
    const phase = position * rates[pair];
    const sine = Math.sin(phase), cosine = Math.cos(phase);
    const first = layout === "interleaved" ? 2 * pair : pair;
    const second = layout === "interleaved" ? 2 * pair + 1 : pair + pairs;
    out[first] = order === "sin-cos" ? sine : cosine;
    out[second] = order === "sin-cos" ? cosine : sine;
  }
  return out;
}

// sum_i cos(rate_i distance): how alike two positions are.
export function kernel(rates, distance) {
  let sum = 0;
  for (const rate of rates) sum += Math.cos(rate * distance);
  return sum;
}
