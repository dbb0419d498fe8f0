import { strict as assert } from "node:assert";
import { test } from "node:test";

import { colourTable, css, cyclic, diverging } from "../../src/clockhands/show/explorer/js/colours.js";

const THEMES = ["light", "dark"];
const VALUES = Array.from({ length: 101 }, (_, step) => step / 100);

// OKLab's lightness of an sRGB colour, by the matrices of its definition.
function lightness(colour) {
  const [red, green, blue] = colour.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  const l = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const m = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const s = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return 0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s;
}

for (const lights of THEMES) {
  test(`${lights}: zero has no hue, and a value is as far from it as its opposite`, () => {
    const [red, green, blue] = diverging(0, lights);
    assert.ok(Math.max(red, green, blue) - Math.min(red, green, blue) < 0.5);
    for (const value of VALUES) {
      const [below, above] = [lightness(diverging(-value, lights)), lightness(diverging(value, lights))];
      assert.ok(Math.abs(below - above) < 5e-3, `${value}: ${below} ${above}`);
    }
    assert.ok(diverging(-1, lights)[0] > diverging(1, lights)[0] + 50, "the two sides differ in hue");
  });

  test(`${lights}: equal steps of a value are equal steps of lightness`, () => {
    const steps = VALUES.slice(1).map((value, place) => lightness(diverging(value, lights)) - lightness(diverging(VALUES[place], lights)));
    assert.ok(Math.max(...steps) - Math.min(...steps) < 2e-3);
  });

  test(`${lights}: the cyclic map closes without a step, and grey tells 0 from pi`, () => {
    cyclic(0, lights).forEach((part, place) => assert.ok(Math.abs(part - cyclic(2 * Math.PI, lights)[place]) < 1e-9));
    const table = new Uint8Array(colourTable("cyclic", lights).buffer);
    const last = table.length - 4;
    assert.deepEqual([...table.slice(0, 4)], [...table.slice(last)]);
    assert.ok(lightness(cyclic(0, lights)) - lightness(cyclic(Math.PI, lights)) > 0.3);
  });

  test(`${lights}: every colour of both maps is one that a screen has, within the rounding of a part`, () => {
    for (const value of VALUES) {
      for (const colour of [diverging(value, lights), diverging(-value, lights), cyclic(2 * Math.PI * value, lights)]) {
        assert.ok(colour.every((part) => part > -4 && part < 256), `${value}: ${colour}`);
      }
    }
  });

  test(`${lights}: a table of pixels begins with the least value's colour, ends with the largest's and is opaque`, () => {
    const pixels = colourTable("diverging", lights), bytes = new Uint8Array(pixels.buffer);
    const named = (place) => css([...bytes.slice(4 * place, 4 * place + 3)]);
    assert.equal(named(0), css(diverging(-1, lights)));
    assert.equal(named((pixels.length - 1) / 2), css(diverging(0, lights)));
    assert.equal(named(pixels.length - 1), css(diverging(1, lights)));
    assert.ok(pixels.every((_, place) => bytes[4 * place + 3] === 255));
  });
}

test("the two themes are two sets of colours", () => {
  assert.ok(lightness(diverging(0, "light")) > 0.9 && lightness(diverging(0, "dark")) < 0.3);
});
