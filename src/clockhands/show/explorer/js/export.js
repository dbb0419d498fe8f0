// A figure as a file: one SVG with every style written into it, or the same as PNG.

import { html, svg } from "./draw.js";

// What a mark's look consists of; the page's style sheet does not travel with the file.
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
  "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "dominant-baseline", "visibility", "paint-order"];
const ROOM = 12; // CSS pixels around the figure

// All charts of a figure in one SVG element, each where it stands; canvases become images inside it.
export function figureAsSvg(figure, title = "", text = "") {
  const charts = [...figure.querySelectorAll("svg:not(.swatch), canvas")].filter((chart) => !chart.parentElement.closest("svg")).map((chart) => [chart, chart.getBoundingClientRect()])
    .filter(([, box]) => box.width > 0 && box.height > 0);
  const left = Math.min(...charts.map(([, box]) => box.left)), top = Math.min(...charts.map(([, box]) => box.top));
  const right = Math.max(...charts.map(([, box]) => box.right)), bottom = Math.max(...charts.map(([, box]) => box.bottom));
  const head = title ? 28 : 0;
  const width = Math.ceil(right - left) + 2 * ROOM, height = Math.ceil(bottom - top) + 2 * ROOM + head;
  const look = getComputedStyle(figure);
  const paper = papered(figure);
  const whole = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    svg("title", {}, title), svg("desc", {}, text),
    svg("rect", { width, height, fill: paper }),
    title ? svg("text", { x: ROOM, y: ROOM + 16, fill: look.color, "font-family": look.fontFamily, "font-size": 16, "font-weight": 600 }, title) : null);
  for (const [chart, box] of charts) {
    const place = { x: box.left - left + ROOM, y: box.top - top + ROOM + head, width: box.width, height: box.height };
    if (chart.localName === "canvas") {
      whole.append(svg("image", { ...place, href: chart.toDataURL("image/png"), preserveAspectRatio: "none" }));
    } else {
      const copy = dressed(chart);
      for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
      whole.append(copy);
    }
  }
  return whole;
}

// A copy of a chart that looks the same without the page: attributes in place of classes, nothing that acts.
function dressed(chart) {
  const copy = chart.cloneNode(true);
  const from = [chart, ...chart.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((mark, place) => {
    const look = getComputedStyle(mark), twin = to[place];
    for (const name of LOOKS) {
      const value = look.getPropertyValue(name);
      if (value) twin.setAttribute(name, value);
    }
    for (const { name } of [...twin.attributes]) {
      if (name === "class" || name === "style" || name === "tabindex" || name === "role" || name.startsWith("aria-") || name.startsWith("data-")) twin.removeAttribute(name);
    }
  });
  return copy;
}

// The colour that shows behind an element.
function papered(element) {
  for (let behind = element; behind; behind = behind.parentElement) {
    const colour = getComputedStyle(behind).backgroundColor;
    if (colour && colour !== "transparent" && !/, 0\)$/.test(colour)) return colour;
  }
  return "#ffffff";
}

export function svgText(whole) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(whole)}\n`;
}

// The SVG drawn at twice its size, as a PNG file.
export async function svgAsPng(whole, scale = 2) {
  const address = URL.createObjectURL(new Blob([svgText(whole)], { type: "image/svg+xml" }));
  try {
    const picture = new Image();
    picture.src = address;
    await picture.decode();
    const canvas = html("canvas", { width: scale * whole.getAttribute("width"), height: scale * whole.getAttribute("height") });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

function saved(blob, name) {
  const address = URL.createObjectURL(blob);
  html("a", { href: address, download: name }).click();
  // The browser has taken the file by then.
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// A small “Save” of a section, which opens on the two forms; a figure without charts, such as an empty state, has nothing to
// save.
export function exportButtons(section, name) {
  const question = () => section.element.querySelector("h2").textContent;
  const said = () => section.element.querySelector(".answer").textContent;
  const drawn = () => figureAsSvg(section.figure, question(), said());
  const press = (kind, make) => html("button", {
    type: "button", "aria-label": `Save “${question()}” as ${kind}`,
    onclick: async () => { if (section.figure.querySelector("svg, canvas")) saved(await make(), `clockhands-${name}.${kind.toLowerCase()}`); },
  }, kind);
  section.element.append(html("details", { class: "save" }, html("summary", { title: "Save this figure as a file" }, "Save"),
    press("SVG", () => new Blob([svgText(drawn())], { type: "image/svg+xml" })), press("PNG", () => svgAsPng(drawn()))));
}
