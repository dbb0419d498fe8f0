// A small attention with drawn weights: what it can tell of the order of words, and what a score is made of.
//
// y_i = x_i + sum over heads of softmax_j(q_i . k_j / sqrt(head width) + bias_ij) v_j W_O; queries, keys and values are
// projections of the tokens. Weights are normal with variance 1 / inputs, as models start out.

import { additiveCode, channelsOf, sinusoidalSpec } from "./codes.js";
import { alibiSpec, biasCode } from "./biases.js";
import { rotaryCode, rotarySpec } from "./rotary.js";
import { seededDraw } from "./seeds.js";

// Weights of one layer: for each head query, key and value [width, head width] and output [head width, width], row by row.
// The last ones are kept: both sentences, with a code and without, go through the same.
let lastDrawn = { key: null };

export function drawnWeights(seed, { heads = 2, width = 32 } = {}) {
  const key = [seed, heads, width].join();
  if (lastDrawn.key !== key) lastDrawn = { key, weights: newWeights(seed, heads, width) };
  return lastDrawn.weights;
}

function newWeights(seed, heads, width) {
  const draw = seededDraw(seed), headWidth = width / heads, size = width * headWidth;
  const drawn = () => Array.from({ length: heads }, () => Float64Array.from({ length: size }, () => draw.normal() / Math.sqrt(width)));
  return { heads, width, headWidth, query: drawn(), key: drawn(), value: drawn(), output: drawn() };
}

// A vector of normal numbers for each word; the same word has the same vector wherever it stands.
export function wordVectors(words, { width = 32, seed = 0 } = {}) {
  return words.map((word) => {
    let number = seed;
    for (const letter of word) number = (number * 31 + letter.codePointAt(0)) % (2 ** 31 - 2);
    const draw = seededDraw(number);
    return Float64Array.from({ length: width }, () => draw.normal());
  });
}

// vector [rows] times a matrix [rows, columns], row by row.
function projectedBy(vector, matrix, columns) {
  const out = new Float64Array(columns);
  for (let row = 0, place = 0; row < vector.length; row++) {
    for (let column = 0; column < columns; column++) out[column] += vector[row] * matrix[place++];
  }
  return out;
}

export function innerProduct(a, b) {
  let sum = 0;
  for (let place = 0; place < a.length; place++) sum += a[place] * b[place];
  return sum;
}

export function softmaxOf(scores) {
  const most = Math.max(...scores), raised = scores.map((score) => Math.exp(score - most));
  const sum = raised.reduce((total, each) => total + each, 0);
  return raised.map((each) => each / sum);
}

// What a layer makes of tokens. `turn(vector, position, role)` is what a rotary code does to queries and keys,
// `bias(head, query, key)` what is added to the scores.
export function attentionOf(tokens, weights, { turn = null, bias = null, causal = false } = {}) {
  const { heads, width, headWidth } = weights, count = tokens.length;
  const found = { scores: [], weights: [], outputs: tokens.map((token) => Float64Array.from(token)) };
  for (let head = 0; head < heads; head++) {
    const made = (matrix, role) => tokens.map((token, position) => {
      const vector = projectedBy(token, matrix[head], headWidth);
      return turn === null || role === "value" ? vector : turn(vector, position, role);
    });
    const queries = made(weights.query, "query"), keys = made(weights.key, "key"), values = made(weights.value, "value");
    const scores = queries.map((query, at) => Float64Array.from(keys, (key, other) => {
      if (causal && other > at) return -Infinity;
      return innerProduct(query, key) / Math.sqrt(headWidth) + (bias === null ? 0 : bias(head, at, other));
    }));
    const taken = scores.map(softmaxOf);
    taken.forEach((shares, at) => {
      const sum = new Float64Array(headWidth);
      for (let other = 0; other < count; other++) {
        for (let channel = 0; channel < headWidth; channel++) sum[channel] += shares[other] * values[other][channel];
      }
      projectedBy(sum, weights.output[head], width).forEach((each, channel) => { found.outputs[at][channel] += each; });
    });
    found.scores.push(scores);
    found.weights.push(taken);
  }
  found.mean = Float64Array.from({ length: width }, (_, channel) => found.outputs.reduce((sum, token) => sum + token[channel], 0) / count);
  return found;
}

// A sentence through one layer, with a code or without: "none", "sinusoidal", "rotary" or "alibi".
export function sentenceAttention(words, { code = "none", seed = 0, heads = 2, width = 32, base = 10000 } = {}) {
  const weights = drawnWeights(seed, { heads, width });
  const plain = wordVectors(words, { width, seed }), options = {};
  const added = code === "sinusoidal" ? additiveCode(sinusoidalSpec(width, { base })) : null;
  const rows = plain.map((_, position) => (added === null ? new Float64Array(width) : added.row(position)));
  if (code === "rotary") {
    const rotary = rotaryCode(rotarySpec(weights.headWidth, { base }));
    options.turn = (vector, position, role) => rotary.turn(vector, position, role);
  }
  if (code === "alibi") options.bias = biasCode(alibiSpec(heads, "symmetric")).at;
  const tokens = plain.map((token, position) => token.map((each, channel) => each + rows[position][channel]));
  return { ...attentionOf(tokens, weights, options), words, tokens, rows };
}

function squaresAbout(numbers) {
  const mean = numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
  return numbers.reduce((sum, each) => sum + (each - mean) ** 2, 0);
}

// The mean of each diagonal of scores [n, n], from the offset 1 - n (key minus query) to n - 1.
export function offsetMeans(scores, count) {
  const means = new Float64Array(2 * count - 1);
  for (let place = 0; place < count * count; place++) {
    const offset = (place % count) - Math.floor(place / count);
    means[offset + count - 1] += scores[place] / (count - Math.abs(offset));
  }
  return means;
}

// What share of the variance of scores [n, n] the best function of the offset explains; 1 where all are alike, because a
// constant is a function of the offset.
export function offsetShare(scores, count) {
  const about = squaresAbout(scores), means = offsetMeans(scores, count);
  const size = scores.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
  if (about <= (count * size * 2 ** -40) ** 2) return 1;
  let left = 0;
  for (let place = 0; place < count * count; place++) left += (scores[place] - means[(place % count) - Math.floor(place / count) + count - 1]) ** 2;
  return 1 - left / about;
}

// W_Q W_K^T of one head, [width, width].
export function projectionForm(query, key, width) {
  const headWidth = query.length / width, form = new Float64Array(width * width);
  for (let row = 0; row < width; row++) {
    for (let column = 0; column < width; column++) {
      form[row * width + column] = innerProduct(query.subarray(row * headWidth, (row + 1) * headWidth), key.subarray(column * headWidth, (column + 1) * headWidth));
    }
  }
  return form;
}

// The matrix of blocks [[a, b], [-b, a]] on the pairs, which commutes with every rotation of them.
export function commutingForm(pairs, layout, a, b) {
  const width = 2 * pairs, form = new Float64Array(width * width);
  for (let pair = 0; pair < pairs; pair++) {
    const [first, second] = channelsOf(pair, pairs, layout);
    form[first * width + first] = form[second * width + second] = a[pair];
    form[first * width + second] = b[pair];
    form[second * width + first] = -b[pair];
  }
  return form;
}

// p_i M p_j of all rows, [n, n].
export function formScores(form, rows) {
  const width = rows[0].length, left = rows.map((row) => projectedBy(row, form, width));
  return Float64Array.from({ length: rows.length ** 2 }, (_, place) => innerProduct(left[Math.floor(place / rows.length)], rows[place % rows.length]));
}
