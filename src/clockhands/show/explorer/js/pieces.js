// The tokens of a text, by pairs of characters that are joined in the order in which training found them.

export const UNKNOWN = "<unk>";
const SPACE = "▁";
const CHUNKS = /\n|▁*[^▁\n]+|▁+/gu; // what no pair crosses

// A tokenizer of the tokens and merges that Python puts into the page; it gives the number of each token of a text.
export function tokenizerOf({ tokens, merges }) {
  const numbers = new Map(tokens.map((token, number) => [token, number])), ranks = new Map(merges.map((pair, rank) => [pair, rank])), known = new Map();
  const ofChunk = (chunk) => {
    let symbols = Array.from(chunk);
    for (;;) {
      let best = Infinity;
      for (let at = 1; at < symbols.length; at++) best = Math.min(best, ranks.get(`${symbols[at - 1]} ${symbols[at]}`) ?? Infinity);
      if (best === Infinity) return symbols.map((symbol) => numbers.get(symbol) ?? numbers.get(UNKNOWN));
      const joined = [];
      for (let at = 0; at < symbols.length; at++) {
        if (ranks.get(`${symbols[at]} ${symbols[at + 1]}`) === best) joined.push(symbols[at] + symbols[++at]);
        else joined.push(symbols[at]);
      }
      symbols = joined;
    }
  };
  return (text) => (text.normalize("NFC").replaceAll(" ", SPACE).match(CHUNKS) ?? []).flatMap((chunk) => {
    if (!known.has(chunk)) known.set(chunk, ofChunk(chunk));
    return known.get(chunk);
  });
}
