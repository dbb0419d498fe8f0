import { strict as assert } from "node:assert";
import { test } from "node:test";

import { alibiSlopes, alibiSpec, biasCode, bucketBoundaries, bucketsSpec, drawnBuckets } from "../../src/clockhands/show/explorer/js/biases.js";
import { disagreements, golden, held } from "./golden.js";

const CASES = golden("biases");

// Trained numbers that could be: row r and head h hold r - h / 4.
const table = ({ count, spec }) => ({ table: Array.from({ length: count }, (_, row) => Array.from({ length: spec.heads }, (__, head) => row - head / 4)) });

for (const each of CASES) {
  const { name, spec, pairs, heads, slopes, boundaries, rows, numbers, values } = each;
  const code = biasCode(spec, values ?? (rows ? table(each) : null));

  test(`${name}: numbers of queries and keys`, () => {
    held(pairs.map(([query, key]) => heads.map((head) => code.at(head, query, key, key + 3))), numbers, name);
  });

  if (slopes) test(`${name}: slopes`, () => held(code.slopes, slopes, name, 1e-15));
  if (boundaries) test(`${name}: where buckets begin`, () => assert.deepEqual(code.boundaries, boundaries));
  if (rows) {
    test(`${name}: rows of the table`, () => {
      assert.deepEqual(pairs.map(([query, key]) => code.bucket(query, key)), rows);
      assert.equal(code.rows, each.count);
    });
  }
}

test("slopes of whole exponents are powers of two, bit for bit", () => {
  assert.deepEqual(Array.from(alibiSlopes(8)), [1, 2, 3, 4, 5, 6, 7, 8].map((exponent) => 2 ** -exponent));
  assert.deepEqual(Array.from(alibiSlopes(3)), [0.0625, 0.00390625, 0.25]);
});

test("the last distance of a bucket and the first of the next are told apart up to 2^20", () => {
  for (const { name, spec, boundaries } of CASES) {
    if (!boundaries) continue;
    const code = biasCode(spec), at = (distance) => code.bucket(distance, 0);
    for (const boundary of boundaries) {
      // With an epsilon two buckets can begin at one distance, and the first of them is empty.
      const begin = boundaries.filter((each) => each === boundary).length;
      assert.equal(at(boundary) - at(boundary - 1), Math.min(begin, code.rows - 1 - at(boundary - 1)), `${name}: ${boundary}`);
    }
  }
});

test("a wrong form, direction, distance or value is seen", () => {
  const wrong = (name, changed, values) => {
    const each = CASES.find((one) => one.name === name), given = each.values ?? (each.rows ? table(each) : null);
    const found = (spec, with_) => each.pairs.map(([query, key]) => each.heads.map((head) => biasCode(spec, with_).at(head, query, key, key + 3)));
    assert.deepEqual(disagreements(found(each.spec, given), each.numbers), []);
    assert.notDeepEqual(disagreements(found({ ...each.spec, ...changed }, values ?? given), each.numbers), [], name);
  };
  for (const form of ["past", "symmetric", "key", "last-key"]) wrong("alibi", { form });
  wrong("slopes of 20", { series: "plain" });
  wrong("t5", { bidirectional: false });
  wrong("t5", { max_distance: 129 });
  wrong("t5", { scale: 1 + 1e-8 });
  const kerple = CASES.find(({ name }) => name === "kerple-log");
  wrong("kerple-log", {}, { ...kerple.values, a: kerple.values.a.map((each) => each * (1 + 1e-7)) });
  wrong("symmetric kerple", { symmetric: false });
  wrong("fire", { epsilon: 1e-5 });
});

test("specs by hand are those of Python", () => {
  assert.deepEqual(alibiSpec(8), CASES.find(({ name }) => name === "alibi").spec);
  assert.deepEqual(bucketsSpec(12), CASES.find(({ name }) => name === "t5").spec);
  assert.equal(bucketBoundaries(bucketsSpec(1, { bidirectional: false }))[16], 19);
});

test("a drawn table has a row for each bucket and a column for each head", () => {
  const { table: drawn } = drawnBuckets(bucketsSpec(3), 5);
  assert.deepEqual([drawn.length, drawn[0].length], [32, 3]);
  assert.equal(biasCode(bucketsSpec(3), { table: drawn }).at(2, 9, 4), drawn[5][2]);
  assert.ok(Number.isNaN(biasCode(bucketsSpec(3)).at(2, 9, 4)));
  const clipped = CASES.find(({ name }) => name === "clipped").spec;
  assert.deepEqual([drawnBuckets(clipped).table.length, drawnBuckets(clipped).table[0].length], [10, 2]);
  assert.throws(() => biasCode({ type: "Window" }), RangeError);
});

test("another draw is another table in every number, and the same draw the same table", () => {
  const [one, other, again] = [0, 7, 0].map((seed) => drawnBuckets(bucketsSpec(3), seed).table);
  assert.deepEqual(again, one);
  one.forEach((row, place) => row.forEach((number, head) => assert.notEqual(other[place][head], number)));
});
