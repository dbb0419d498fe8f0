import { strict as assert } from "node:assert";
import { test } from "node:test";

import { geometricLadder, givenLadder, phaseAt } from "../../src/clockhands/show/explorer/js/ladders.js";
import { nearestPair, readBack } from "../../src/clockhands/show/explorer/js/views/clock.js";
import { decimal, nearestSine, twinOf } from "../../src/clockhands/show/explorer/js/views/pair.js";

// What a reader has: the angles of float32 sines and cosines.
const seen = (ladder, position) =>
  [...ladder.rates.keys()].map((pair) => Math.atan2(Math.fround(Math.sin(phaseAt(ladder, pair, position))), Math.fround(Math.cos(phaseAt(ladder, pair, position)))));

for (const [pairs, base] of [[256, 1e4], [4, 1e4], [32, 5e5], [64, 100]]) {
  test(`${pairs} hands of base ${base} tell every position that was asked`, () => {
    const ladder = geometricLadder(pairs, 2 * pairs, base);
    for (const position of [0, 1, 2, 3, 6, 100, 2047, 8191, 31415, 62831, 62832, 131071]) {
      assert.equal(readBack(ladder.rates, seen(ladder, position), 131072), position);
    }
  });
}

test("hands in the wrong order tell another position, and hands that never turn tell none", () => {
  const ladder = geometricLadder(16, 32, 1e4);
  assert.notEqual(readBack(ladder.rates, seen(ladder, 1000).reverse(), 8192), 1000);
  assert.equal(readBack(Float64Array.of(0, 0), [0, 0], 100), null);
});

test("two positions on one height: the sine is the same, the cosine opposite, and none between them has both", () => {
  const ladder = geometricLadder(256, 512, 1e4);
  for (const pair of [0, 4, 100, 255]) {
    for (const position of [0, 1, 7, 100, 2047]) {
      const twin = twinOf(ladder, pair, position), rate = ladder.rates[pair];
      assert.ok(Math.abs(Math.sin(twin * rate) - Math.sin(position * rate)) < 1e-9);
      assert.ok(Math.abs(Math.cos(twin * rate) + Math.cos(position * rate)) < 1e-9);
      assert.ok(twin > position && (twin - position) * rate < 2 * Math.PI);
    }
  }
});

test("between two tokens a position has a twin as well", () => {
  const ladder = geometricLadder(1, 2, 1e4);
  // sin 0.52 = sin(pi - 0.52), and pi - 0.52 = 2.6216.
  assert.ok(Math.abs(twinOf(ladder, 0, 0, 0.52) - (Math.PI - 0.52)) < 1e-12);
});

test("of the tokens on the other side of the wave the one with the nearest sine is found, as by trying each", () => {
  const ladder = geometricLadder(256, 512, 1e4), pair = 4, rate = ladder.rates[pair];
  for (const [position, fraction] of [[100, 0], [0, 0.52], [7, 0]]) {
    const sine = Math.sin((position + fraction) * rate), off = (token) => Math.abs(Math.sin(token * rate) - sine);
    const cosine = Math.cos((position + fraction) * rate);
    const others = Array.from({ length: 2048 }, (_, token) => token).filter((token) => Math.cos(token * rate) * cosine < 0);
    const wanted = others.reduce((best, token) => (off(token) < off(best) ? token : best));
    const found = nearestSine(ladder, pair, { position, fraction, length: 2048 });
    assert.equal(found.token, wanted);
    assert.ok(Math.abs(found.off - off(wanted)) < 1e-12);
    assert.ok(Math.abs(found.apart - Math.abs(Math.cos(wanted * rate) - cosine)) < 1e-12);
  }
  // In so few tokens the wave does not come to its other side.
  assert.equal(nearestSine(ladder, pair, { position: 0, fraction: 0, length: 2 }), null);
});

test("at its top a wave meets its height once a turn, and a hand that never turns has no twin", () => {
  const ladder = givenLadder(Float64Array.of(Math.PI / 2, 0));
  assert.equal(twinOf(ladder, 0, 1), null);
  assert.equal(twinOf(ladder, 0, 3), null);
  assert.ok(Math.abs(twinOf(ladder, 0, 0) - 2) < 1e-12);
  assert.equal(twinOf(ladder, 1, 5), null);
});

test("a bit has the hand whose wavelength is nearest in ratio, and none where all are far", () => {
  const { rates } = geometricLadder(256, 512, 1e4);
  const pair = nearestPair(rates, 64);
  // 2 pi 10000^(i / 256) = 64 at i = 64.5.
  assert.ok(pair === 64 || pair === 65);
  assert.equal(nearestPair(rates, 2), null);
  assert.equal(nearestPair(rates, 2 ** 20), null);
});

test("numbers keep their digits and a true minus sign, and what rounds to zero has none", () => {
  assert.equal(decimal(-0.5), "−0.500000");
  assert.equal(decimal(0.9795398107, 3), "0.980");
  assert.equal(decimal(-1e-9), "0.000000");
});
