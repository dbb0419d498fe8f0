// Colour as a measure: signed values on a diverging map, phases on a cyclic one, for paper and for the dark.
//
// Both are made in OKLab, where equal steps look equally large (Björn Ottosson, "A perceptual color space for image
// processing", 2020). Each theme has its own end points; neither is the other turned over.

// [lightness of the middle, lightness of both ends, chroma, hue of -1, hue of +1] in degrees.
const SIGNED = { light: [0.965, 0.44, 0.11, 325, 155], dark: [0.24, 0.84, 0.12, 325, 155] };
// [middle lightness, how far it swings, chroma]: a phase of 0 is the lightest, pi the darkest, so that grey tells cos.
const ROUND_MAP = { light: [0.66, 0.18, 0.075], dark: [0.66, 0.18, 0.075] };
const STEPS = 512;

const colourTables = new Map();

// The theme in use: what the reader chose on the page, or else the system's.
export function theme() {
  const chosen = globalThis.document?.documentElement.dataset.theme;
  return chosen ?? (globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

// sRGB, each 0 to 255 and not yet rounded or clipped, of a colour in OKLCH; hue in rad.
export function fromOklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue), b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((linear) => 255 * (linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055));
}

// The colour of a value from -1 to 1, as [red, green, blue]: neutral at 0, as far from it on one side as on the other.
export function diverging(value, lights = theme()) {
  const [middle, end, chroma, below, above] = SIGNED[lights];
  const size = Math.min(Math.abs(value), 1);
  return fromOklch(middle + (end - middle) * size, chroma * size, ((value < 0 ? below : above) * Math.PI) / 180);
}

// The colour of a phase in rad; the same at 0 and at 2 pi.
export function cyclic(phase, lights = theme()) {
  const [middle, swing, chroma] = ROUND_MAP[lights];
  return fromOklch(middle + swing * Math.cos(phase), chroma, phase + 1.2);
}

export function css([red, green, blue]) {
  return `rgb(${[red, green, blue].map((part) => Math.min(Math.max(Math.round(part), 0), 255)).join(", ")})`;
}

// All colours of a map as pixels: entry 0 for the least value, entry length - 1 for the largest.
export function colourTable(name, lights = theme()) {
  const key = `${name} ${lights}`;
  if (!colourTables.has(key)) {
    const bytes = new Uint8ClampedArray(4 * (STEPS + 1));
    for (let step = 0; step <= STEPS; step++) {
      const place = step / STEPS;
      bytes.set([...(name === "cyclic" ? cyclic(2 * Math.PI * place, lights) : diverging(2 * place - 1, lights)), 255], 4 * step);
    }
    colourTables.set(key, new Uint32Array(bytes.buffer));
  }
  return colourTables.get(key);
}
