// A trained decoder in plain numbers: RMSNorm, rotated queries and keys, SwiGLU, tied embeddings, all in double precision.
//
// A worker is made of the text of these two functions, so each needs nothing from outside itself.

// A decoder of sizes and float16 weights as Python puts them into the page, for texts of at most so many tokens. `reader()`
// gives one that reads texts: `turnBy` says how it rotates, and `read` gives the natural logarithm of 1 / probability of each
// token but the first and the logits of the next one. What a text shares with the last one is not computed again.
export function decoderOf(sizes, most) {
  const { layers, width, heads, kvHeads, feedForward, epsilon } = sizes, head = width / heads, kvWidth = kvHeads * head, vocabulary = sizes.tokens.length;
  const weights = weightsOf();

  function weightsOf() {
    const bytes = atob(sizes.weights), units = Float64Array.from({ length: 32 }, (_, exponent) => 2 ** (Math.max(exponent, 1) - 25)), found = {};
    let at = 0;
    for (const [name, size] of Object.entries(sizes.parameters)) {
      const numbers = found[name] = new Float64Array(size);
      for (let place = 0; place < size; place++, at += 2) {
        const bits = bytes.charCodeAt(at) | (bytes.charCodeAt(at + 1) << 8), exponent = (bits >> 10) & 31;
        numbers[place] = ((bits & 1023) + (exponent ? 1024 : 0)) * units[exponent] * (bits & 0x8000 ? -1 : 1);
      }
    }
    return found;
  }

  // Adds to `out` the rows of x times the rows of a matrix. Four rows by two are summed at once, so that a number that is
  // read serves several sums.
  function addProduct(out, x, rows, inputs, matrix, outputs) {
    const four = new Float64Array(4 * inputs), sums = new Float64Array(8);
    for (let row = 0; row < rows; row += 4) {
      const some = Math.min(4, rows - row);
      four.fill(0);
      for (let each = 0; each < some; each++) {
        for (let input = 0, at = (row + each) * inputs; input < inputs; input++) four[4 * input + each] = x[at + input];
      }
      for (let output = 0; output < outputs; output += 2) {
        const both = output + 1 < outputs, first = output * inputs, second = both ? first + inputs : first;
        let a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
        for (let input = 0, at = 0; input < inputs; input++, at += 4) {
          const one = matrix[first + input], other = matrix[second + input], p = four[at], q = four[at + 1], r = four[at + 2], s = four[at + 3];
          a += one * p; b += one * q; c += one * r; d += one * s;
          e += other * p; f += other * q; g += other * r; h += other * s;
        }
        sums[0] = a; sums[1] = b; sums[2] = c; sums[3] = d; sums[4] = e; sums[5] = f; sums[6] = g; sums[7] = h;
        for (let each = 0, to = row * outputs + output; each < some; each++, to += outputs) {
          out[to] += sums[each];
          if (both) out[to + 1] += sums[4 + each];
        }
      }
    }
    return out;
  }

  function product(x, rows, inputs, matrix, outputs) {
    return addProduct(new Float64Array(rows * outputs), x, rows, inputs, matrix, outputs);
  }

  function normed(x, rows, gains) {
    const out = new Float64Array(rows * width);
    for (let from = 0; from < rows * width; from += width) {
      let squares = 0;
      for (let place = from; place < from + width; place++) squares += x[place] * x[place];
      const scale = 1 / Math.sqrt(squares / width + epsilon);
      for (let channel = 0; channel < width; channel++) out[from + channel] = x[from + channel] * scale * gains[channel];
    }
    return out;
  }

  // Rotates the heads of rows [rows, wide], the first of which is at position `first`.
  function turn(x, rows, wide, first, { channels, cosines, sines }) {
    const pairs = channels.length / 2;
    for (let row = 0; row < rows; row++) {
      for (let start = row * wide; start < (row + 1) * wide; start += head) {
        for (let pair = 0, at = (first + row) * pairs; pair < pairs; pair++, at++) {
          const i = start + channels[2 * pair], j = start + channels[2 * pair + 1], one = x[i], other = x[j];
          x[i] = one * cosines[at] - other * sines[at];
          x[j] = one * sines[at] + other * cosines[at];
        }
      }
    }
  }

  // What queries [rows, width], the first of which is at position `first`, see of all tokens up to their own; two keys at once.
  // The one behind the last token counts for nothing.
  function attended(queries, rows, first, { keys, values }) {
    const out = new Float64Array(rows * width), shares = new Float64Array(first + rows + 1), scale = 1 / Math.sqrt(head), group = heads / kvHeads;
    for (let row = 0; row < rows; row++) {
      const seen = first + row + 1;
      for (let each = 0; each < heads; each++) {
        const from = row * width + each * head, own = Math.floor(each / group) * head;
        for (let key = 0; key < seen; key += 2) {
          let a = 0, b = 0, c = 0, d = 0; // sums of which none waits for another
          for (let channel = from, at = key * kvWidth + own, next = at + kvWidth; channel < from + head; channel += 2, at += 2, next += 2) {
            const one = queries[channel], other = queries[channel + 1];
            a += one * keys[at]; b += other * keys[at + 1];
            c += one * keys[next]; d += other * keys[next + 1];
          }
          shares[key] = (a + b) * scale;
          shares[key + 1] = (c + d) * scale;
        }
        let largest = -Infinity, sum = 0;
        for (let key = 0; key < seen; key++) if (shares[key] > largest) largest = shares[key];
        for (let key = 0; key < seen; key++) sum += shares[key] = Math.exp(shares[key] - largest);
        shares[seen] = 0;
        for (let key = 0; key < seen; key += 2) {
          const one = shares[key] / sum, other = shares[key + 1] / sum;
          for (let channel = from, at = key * kvWidth + own, next = at + kvWidth; channel < from + head; channel++, at++, next++) out[channel] += one * values[at] + other * values[next];
        }
      }
    }
    return out;
  }

  // SwiGLU: x / (1 + e^-x) of the first half of each row times the second half.
  function gated(inside, rows) {
    const out = new Float64Array(rows * feedForward);
    for (let row = 0, place = 0; row < rows; row++) {
      for (let unit = 0, at = 2 * row * feedForward; unit < feedForward; unit++, at++, place++) {
        out[place] = (inside[at] / (1 + Math.exp(-inside[at]))) * inside[at + feedForward];
      }
    }
    return out;
  }

  function columns(x, rows, wide, from, count) {
    const out = new Float64Array(rows * count);
    for (let row = 0; row < rows; row++) out.set(x.subarray(row * wide + from, row * wide + from + count), row * count);
    return out;
  }

  function reader() {
    const kept = Array.from({ length: layers }, () => ({ keys: new Float64Array((most + 1) * kvWidth), values: new Float64Array((most + 1) * kvWidth) }));
    const logits = new Float64Array(most * vocabulary), totals = new Float64Array(most); // of each token, and the logarithm of the sum of their exponentials
    let rotation = null, ids = [];

    // Compute the tokens that follow the first ones.
    function onward(added, first) {
      const rows = added.length, x = new Float64Array(rows * width), wide = width + 2 * kvWidth;
      added.forEach((id, row) => x.set(weights["embedding.weight"].subarray(id * width, (id + 1) * width), row * width));
      for (let layer = 0; layer < layers; layer++) {
        const of = (name) => weights[`blocks.${layer}.${name}.weight`];
        const made = product(normed(x, rows, of("attention_norm")), rows, width, of("attention.into"), wide);
        const queries = columns(made, rows, wide, 0, width), keys = columns(made, rows, wide, width, kvWidth);
        turn(queries, rows, width, first, rotation.queries);
        turn(keys, rows, kvWidth, first, rotation.keys);
        kept[layer].keys.set(keys, first * kvWidth);
        kept[layer].values.set(columns(made, rows, wide, width + kvWidth, kvWidth), first * kvWidth);
        addProduct(x, attended(queries, rows, first, kept[layer]), rows, width, of("attention.out"), width);
        const inside = product(normed(x, rows, of("feed_forward_norm")), rows, width, of("feed_forward.into"), 2 * feedForward);
        addProduct(x, gated(inside, rows), rows, feedForward, of("feed_forward.out"), width);
      }
      logits.set(product(normed(x, rows, weights["norm.weight"]), rows, width, weights["embedding.weight"], vocabulary), first * vocabulary);
      for (let row = first; row < first + rows; row++) {
        let largest = -Infinity, sum = 0;
        for (let at = row * vocabulary; at < (row + 1) * vocabulary; at++) if (logits[at] > largest) largest = logits[at];
        for (let at = row * vocabulary; at < (row + 1) * vocabulary; at++) sum += Math.exp(logits[at] - largest);
        totals[row] = largest + Math.log(sum);
      }
    }

    return {
      turnBy(other) {
        rotation = other;
        ids = [];
      },
      read(text) {
        let same = 0;
        while (same < ids.length && same < text.length && ids[same] === text[same]) same++;
        onward(text.slice(same), same);
        ids = text;
        return {
          losses: Float64Array.from(text.slice(1), (id, row) => totals[row] - logits[row * vocabulary + id]),
          logits: logits.slice((text.length - 1) * vocabulary, text.length * vocabulary),
        };
      },
    };
  }

  return { reader };
}

// A worker's part: it keeps a reader for each name, and answers each text with what each of them reads.
export function serve(decoder) {
  const readers = new Map();
  let model = null;
  onmessage = ({ data }) => {
    if (data.sizes) model = decoder(data.sizes, data.most);
    for (const [name, rotation] of Object.entries(data.rotations ?? {})) {
      if (!readers.has(name)) readers.set(name, model.reader());
      readers.get(name).turnBy(rotation);
    }
    if (data.ids) postMessage({ of: data.of, read: Object.fromEntries(data.names.map((name) => [name, readers.get(name).read(data.ids)])) });
  };
}
