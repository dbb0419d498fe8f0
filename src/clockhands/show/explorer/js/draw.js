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

// What listens by itself, and what is only made where its place does not hold it yet.
const listening = new WeakSet(), promised = new WeakMap(), keyOfElement = new WeakMap();
const GIVEN = Symbol("attributes"); // those that an element was made with: reading them from it costs more than making it

function filled(element, attributes, children) {
  // Axes are D3's to fill.
  if (attributes.class !== "axis") element[GIVEN] = attributes;
  for (const name in attributes) {
    const value = attributes[name];
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
      listening.add(element);
    } else if (isSet(value)) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function isSet(value) {
  return value !== null && value !== undefined && value !== false;
}

// An SVG element that `make` makes; where the one of the same key stands already, it stays and nothing is made.
export function unlessKept(key, make) {
  const place = document.createElementNS(SVG, "g");
  promised.set(place, { key, make });
  return place;
}

// New contents for a place. Elements that stand there already become what they should be, so that a frame styles, lays
// out and paints only what has changed; `fresh` is a fragment or a list of nodes, which are used up.
export function refill(place, fresh) {
  let old = place.firstChild;
  for (const next of Array.isArray(fresh) ? fresh : childrenOf(fresh)) {
    const after = old?.nextSibling ?? null, wanted = promised.get(next);
    if (wanted === undefined || old === null || keyOfElement.get(old) !== wanted.key) {
      const made = wanted ? wanted.make() : next;
      const kept = old !== null && becomes(old, made) ? old : made;
      if (old === null) place.append(made);
      else if (kept === made) place.replaceChild(made, old);
      if (wanted) keyOfElement.set(kept, wanted.key);
      else keyOfElement.delete(kept);
    }
    old = after;
  }
  while (old !== null) {
    const after = old.nextSibling;
    old.remove();
    old = after;
  }
}

// Make a node what another one is, unless it is of another kind or one of them listens.
function becomes(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) return false;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return true;
  }
  if (listening.has(old) || listening.has(made)) return false;
  if (old[GIVEN] && made[GIVEN]) takeGiven(old, made);
  else takeAttributes(old, made);
  const first = made.firstChild, own = old.firstChild;
  if (first === null) {
    if (own !== null) old.replaceChildren();
  } else if (own === null) old.append(...childrenOf(made));
  else refill(old, made);
  return true;
}

// D3 makes elements too, and says nowhere what it gave them.
function takeAttributes(old, made) {
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of old.getAttributeNames()) if (!made.hasAttribute(name)) old.removeAttribute(name);
  old[GIVEN] = made[GIVEN];
}

function takeGiven(old, made) {
  const had = old[GIVEN], gets = made[GIVEN];
  for (const name in gets) {
    const value = gets[name];
    if (had[name] === value) continue;
    if (isSet(value)) old.setAttribute(name, value === true ? "" : value);
    else old.removeAttribute(name);
  }
  for (const name in had) if (!(name in gets)) old.removeAttribute(name);
  old[GIVEN] = gets;
}

function childrenOf(place) {
  const found = [];
  for (let child = place.firstChild; child !== null; child = child.nextSibling) found.push(child);
  return found;
}

// A plot: an SVG with room for axes, which has the width of its place. `draw(width, height, inner)` fills it.
export class Plot {
  constructor(place, { height = 260, margin = { top: 12, right: 16, bottom: 40, left: 56 }, label }) {
    this.height = height;
    this.margin = margin;
    this.element = svg("svg", { class: "plot", role: "img", "aria-label": label, height });
    place.append(this.element);
    this.ink = this.element;
    this.width = 0;
  }

  // The width of the place in CSS pixels; kept until the window changes, since asking for it costs a layout.
  measure() {
    this.width = Math.max(280, Math.floor(this.element.parentElement.getBoundingClientRect().width));
    this.element.setAttribute("width", this.width);
    return this.resize(this.height);
  }

  // Another height in CSS pixels, where that depends on the width.
  resize(height) {
    this.height = height;
    this.element.setAttribute("height", height);
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    return this;
  }

  get inner() {
    const { top, right, bottom, left } = this.margin;
    return { left, top, right: this.width - right, bottom: this.height - bottom };
  }

  // Begin anew: what is appended to `ink` from here on takes the place of what is drawn once the caller has ended, or at
  // `settle`.
  clear() {
    if (this.ink === this.element) queueMicrotask(() => this.settle());
    this.ink = document.createDocumentFragment();
    return this;
  }

  settle() {
    if (this.ink === this.element) return this;
    refill(this.element, this.ink);
    this.ink = this.element;
    return this;
  }

  // Both axes with their names and units.
  axes(x, y, xName, yName, { xTicks = 6, yTicks = 5, xFormat = null, yFormat = null, yValues = null } = {}) {
    const { left, top, right, bottom } = this.inner;
    const sides = [["across", x, d3.axisBottom, `translate(0,${bottom})`, xTicks, xFormat, null], ["up", y, d3.axisLeft, `translate(${left},0)`, yTicks, yFormat, yValues]];
    const [across, up] = sides.map(([side, scale, make, transform, ticks, format, values]) => {
      const key = [side, scale.domain(), scale.range(), transform, ticks, format, values, scale.tickFormat].join(";");
      return unlessKept(key, () => {
        const axis = svg("g", { class: "axis", transform });
        make(scale).ticks(ticks, format).tickValues(values).tickSizeOuter(0)(d3.select(axis));
        return axis;
      });
    });
    this.ink.append(
      across, up,
      svg("text", { class: "name", x: right, y: bottom + 34, "text-anchor": "end" }, xName),
      svg("text", { class: "name", x: 0, y: top - 2 + 4, "text-anchor": "start" }, yName),
    );
  }
}

// The path through points [x, y], to a thousandth of a pixel; null where there are none, and a dot where there is one.
export function pathThrough(points) {
  if (points.length === 0) return null;
  const written = points.map((point) => point.map((each) => Math.round(1000 * each) / 1000).join()).join("L");
  return `M${written}${points.length === 1 ? "Z" : ""}`;
}

export function line(points, attributes) {
  return svg("path", { fill: "none", d: pathThrough(points), ...attributes });
}

// Attributes of an element that stays: what has not changed costs nothing.
export function put(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

// Its text likewise.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
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

// A path through first, least, largest and last of each pixel's values, from a place on: nothing that stands out is lost.
export function pathOfColumns(values, x, y, from = 0) {
  const path = [], wanted = new Set();
  for (let k = from; k < values.length;) {
    const next = Math.min(Math.max(Math.ceil(x.invert(Math.floor(x(k)) + 1)), k + 1), values.length);
    let least = k, most = k;
    for (let at = k; at < next; at++) {
      if (values[at] < values[least]) least = at;
      if (values[at] > values[most]) most = at;
    }
    wanted.clear();
    for (const at of least < most ? [k, least, most, next - 1] : [k, most, least, next - 1]) wanted.add(at);
    for (const at of wanted) path.push(`${x(at).toFixed(1)},${y(values[at]).toFixed(1)}`);
    k = next;
  }
  return `M${path.join("L")}`;
}
