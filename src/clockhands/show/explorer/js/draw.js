// Marks: SVG with named axes by D3's scales and axes, and text that is always text.

const SVG = "http://www.w3.org/2000/svg";

// An SVG element with attributes and children; strings become text nodes, never markup.
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// The same for HTML.
export function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// A plot: an SVG with room for axes, which has the width of its place. `draw(width, height, inner)` fills it.
export class Plot {
  constructor(place, { height = 260, margin = { top: 12, right: 16, bottom: 40, left: 56 }, label }) {
    this.height = height;
    this.margin = margin;
    this.element = svg("svg", { class: "plot", role: "img", "aria-label": label, height });
    place.append(this.element);
    this.width = 0;
  }

  // The width of the place in CSS pixels; kept until the window changes, since asking for it costs a layout.
  measure() {
    this.width = Math.max(280, Math.floor(this.element.parentElement.getBoundingClientRect().width));
    this.element.setAttribute("width", this.width);
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    return this;
  }

  get inner() {
    const { top, right, bottom, left } = this.margin;
    return { left, top, right: this.width - right, bottom: this.height - bottom };
  }

  clear() {
    this.element.replaceChildren();
    return this;
  }

  // Both axes with their names and units.
  axes(x, y, xName, yName, { xTicks = 6, yTicks = 5, xFormat = null, yFormat = null, yValues = null } = {}) {
    const { left, top, right, bottom } = this.inner;
    const across = svg("g", { class: "axis", transform: `translate(0,${bottom})` });
    d3.axisBottom(x).ticks(xTicks, xFormat).tickSizeOuter(0)(d3.select(across));
    const up = svg("g", { class: "axis", transform: `translate(${left},0)` });
    d3.axisLeft(y).ticks(yTicks, yFormat).tickValues(yValues).tickSizeOuter(0)(d3.select(up));
    this.element.append(
      across, up,
      svg("text", { class: "name", x: right, y: bottom + 34, "text-anchor": "end" }, xName),
      svg("text", { class: "name", x: 0, y: top - 2 + 4, "text-anchor": "start" }, yName),
    );
  }
}

export function line(points, attributes) {
  return svg("path", { fill: "none", d: d3.line()(points), ...attributes });
}

// A number as people read it: as many digits as are asked for, but every one before the point; thin spaces that do not
// break between thousands, a true minus sign, and a power of ten where it is very large or small.
export function number(value, digits = 4) {
  if (!Number.isFinite(value)) return value > 0 ? "never" : String(value);
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size !== 0 && (size >= 1e15 || size < 1e-4)) {
    const [front, power] = Number(size.toPrecision(Math.max(digits, 1))).toExponential().split("e");
    return `${sign}${front}·10${raised(Number(power))}`;
  }
  const whole = String(Number.isInteger(size) ? size : size >= 10 ** digits ? Math.round(size) : Number(size.toPrecision(digits)));
  const [front, back] = whole.split(".");
  return sign + front.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f") + (back ? `.${back}` : "");
}

// A whole number as an exponent.
export function raised(power) {
  return String(power).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
}
