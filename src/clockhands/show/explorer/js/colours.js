// Colour as a measure: signed values on a diverging map, phases on a cyclic one, for paper and for the dark.
//
// Both are made in OKLab, where equal steps look equally large (Björn Ottosson, "A perceptual color space for image
// processing", 2020). Each theme has its own end points; neither is the other turned over.

// [lightness of the middle, lightness of both ends, chroma, hue of -1, hue of +1] in degrees.
const SIGNED = { light: [0.965, 0.44, 0.11, 325, 155], dark: [0.24, 0.84, 0.12, 325, 155] };
// [middle lightness, how far it swings, chroma]: a phase of 0 is the lightest, pi the darkest, so that grey tells cos.
const ROUND_MAP = { light: [0.66, 0.18, 0.075], dark: [0.66, 0.18, 0.075] };
const STEPS = 512;
// What the page of a notebook says of its theme, in Jupyter and in VS Code; high contrast on light has both of its words.
const LIGHT_NOTEBOOK = '[data-jp-theme-light="true"], .vscode-light, .vscode-high-contrast-light';
const DARK_NOTEBOOK = '[data-jp-theme-light="false"], .vscode-dark, .vscode-high-contrast';

const colourTables = new Map();

// The theme in use: what the reader chose on the page, or the notebook's own, or else the system's. The widget's style says the same.
export function theme() {
  return chosenTheme() ?? (globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function chosenTheme() {
  const page = globalThis.document;
  if (!page?.body) return null;
  const { theme: chosen } = page.documentElement.dataset;
  if (chosen === "light" || chosen === "dark") return chosen;
  if (page.body.matches(LIGHT_NOTEBOOK)) return "light";
  return page.body.matches(DARK_NOTEBOOK) ? "dark" : null;
}

// Calls when the theme is another one; gives a function that ends it.
export function onTheme(call) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let last = theme();
  const look = () => {
    if (theme() === last) return;
    last = theme();
    call();
  };
  const watcher = new MutationObserver(look);
  for (const element of [document.documentElement, document.body]) watcher.observe(element, { attributes: true });
  system.addEventListener("change", look);
  return () => {
    watcher.disconnect();
    system.removeEventListener("change", look);
  };
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
