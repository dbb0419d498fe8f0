// A table of numbers as one canvas: only what is in view is computed and drawn, with axes and marks above it.
//
// Where a dot of the screen stands for several cells it has their mean, and `grain` says of how many. The wheel stays
// the page's: the table is moved by dragging, by keys and by the fields beside it.

import { html, number, put, refill, svg, unlessKept } from "./draw.js";

const FAR = 5; // CSS pixels that a pointer moves before it drags
const WIDEST = 736; // CSS pixels: wider ones cost frames on a screen of two dots a pixel

export class Heatmap {
  // `on` has point(row, column), leave(), pick(row, column), move(firstRow, firstColumn), step(rows, columns, far);
  // each may be missing.
  constructor(place, { label, height = 340, margin = { top: 34, right: 12, bottom: 58, left: 58 }, on = {} }) {
    Object.assign(this, { height, margin, on, view: null, width: 0 });
    this.canvas = html("canvas", { class: "cells", tabindex: 0, role: "application", "aria-roledescription": "table of numbers", "aria-label": label });
    this.marks = svg("svg", { class: "over", "aria-hidden": "true" });
    this.element = html("div", { class: "heatmap" }, this.canvas, this.marks);
    place.append(this.element);
    this.listen();
  }

  // The width of its place; kept until `measure` is called again, since asking for it costs a layout.
  measure() {
    this.width = Math.min(Math.max(280, Math.floor(this.element.parentElement.getBoundingClientRect().width)), WIDEST);
    return this;
  }

  get inner() {
    const { top, right, bottom, left } = this.margin;
    return { left, top, width: this.width - left - right, height: this.height - top - bottom };
  }

  // `view`: { key: what the cells depend on beside where the view begins (cells of the same key are not drawn again), first: [row, column], shown: [rows, columns], window(from, rows, firstColumn, columns, out) and means(from, rows, tall, …), which may be missing or give null, colours,
  // range: [least, largest], names: [rows, columns], marked: [row, column] or null, bands: [[from, to]] of columns, band: words }.
  draw(view) {
    this.view = view;
    // The largest position has all its digits beside the table.
    this.margin.left = Math.max(58, 16 + 7 * number(view.first[0] + view.shown[0]).length);
    if (!this.width) this.measure();
    this.paint(view);
    this.mark(view);
    return this;
  }

  paint({ key, first, shown, window: fill, means, colours, range }) {
    const { left, top, width, height } = this.inner;
    const painted = [key, ...first, ...shown, width, height, globalThis.devicePixelRatio, colours];
    if (key !== undefined && this.painted?.every((part, place) => part === painted[place])) return;
    this.painted = painted;
    const scale = Math.min(globalThis.devicePixelRatio || 1, 2);
    const [rows, columns] = shown;
    // As many cells to a dot as it takes for all to have a dot; the browser draws the dots as large as they are seen.
    const grain = [Math.max(1, Math.ceil(rows / (height * scale))), Math.max(1, Math.ceil(columns / (width * scale)))];
    const down = Math.ceil(rows / grain[0]), across = Math.ceil(columns / grain[1]), canvas = this.canvas;
    if (canvas.width !== across || canvas.height !== down) {
      [canvas.width, canvas.height] = [across, down];
      this.image = null;
    }
    // The last dot may stand for fewer cells than the others, and reaches beyond the table by what it lacks.
    const size = { left, top, width: (width * across * grain[1]) / columns, height: (height * down * grain[0]) / rows };
    for (const [name, value] of Object.entries(size)) canvas.style.setProperty(name, `${value}px`);
    canvas.classList.toggle("large", width / across >= 3 || height / down >= 3);
    this.element.style.setProperty("height", `${this.height}px`);
    if (!this.cells || this.cells.length < rows * columns) this.cells = new Float32Array(rows * columns);
    const context = canvas.getContext("2d");
    this.image ??= context.createImageData(across, down);
    const dots = new Uint32Array(this.image.data.buffer);
    if (grain[0] > 1 && means?.(first[0], rows, grain[0], first[1], columns, this.cells)) {
      dotsOf(this.cells, down, columns, dots, [1, grain[1]], colours, range);
    } else {
      fill(first[0], rows, first[1], columns, this.cells);
      dotsOf(this.cells, rows, columns, dots, grain, colours, range);
    }
    context.putImageData(this.image, 0, 0);
    // Rows and columns that one dot stands for.
    this.grain = grain;
  }

  mark({ first, shown, names, marked, bands = [], band = "" }) {
    const { left, top, width, height } = this.inner, right = left + width, bottom = top + height;
    const across = d3.scaleLinear([first[1], first[1] + shown[1]], [left, right]);
    const down = d3.scaleLinear([first[0], first[0] + shown[0]], [top, bottom]);
    const parts = [];
    for (const [from, to] of bands) {
      const start = Math.max(across(from), left), end = Math.min(across(to), right);
      if (end <= start) continue;
      parts.push(svg("path", { class: "bracket", d: `M${start + 0.5},${top - 3}v-6H${end - 0.5}v6` }));
      if (from > first[1]) {
        parts.push(svg("line", { class: "halo", x1: start, x2: start, y1: top, y2: bottom }), svg("line", { class: "edge", x1: start, x2: start, y1: top, y2: bottom }));
      }
    }
    const last = bands.filter(([from, to]) => Math.min(across(to), right) > Math.max(across(from), left)).at(-1);
    if (last && band) parts.push(svg("text", { x: Math.min(across(last[1]), right), y: top - 14, "text-anchor": "end" }, band));
    if (marked) {
      const [row, column] = marked;
      const x = across(column), y = down(row), wide = Math.max(across(column + 1) - x, 2), tall = Math.max(down(row + 1) - y, 2);
      const inRows = row >= first[0] && row < first[0] + shown[0], inColumns = column >= first[1] && column < first[1] + shown[1];
      for (const kind of ["halo", "lit"]) {
        if (inRows) parts.push(svg("rect", { class: kind, x: left, y, width, height: tall }));
        if (inColumns) parts.push(svg("rect", { class: kind, x, y: top, width: wide, height }));
      }
      if (inRows) parts.push(svg("path", { class: "pointer", d: `M${left - 1},${y + tall / 2}l-6,-4v8z` }));
      if (inColumns) parts.push(svg("path", { class: "pointer", d: `M${x + wide / 2},${bottom + 1}l-4,6h8z` }));
    }
    const whole = (scale, count) => scale.ticks(count).filter((tick) => Number.isInteger(tick));
    // A tick stands in the middle of its cell.
    const middle = (scale) => scale.copy().range(scale.range().map((end) => end + (scale(1) - scale(0)) / 2));
    const sides = [[d3.axisBottom, across, Math.min(8, width / 55), `translate(0,${bottom})`, first[1] + shown[1]], [d3.axisLeft, down, 5, `translate(${left},0)`, first[0] + shown[0]]];
    const axes = sides.map(([make, scale, count, transform, end]) => unlessKept([scale.domain(), scale.range(), count, transform].join(";"), () => {
      const axis = svg("g", { class: "axis", transform });
      make(middle(scale)).tickValues(whole(scale, count).filter((tick) => tick < end)).tickFormat((tick) => number(tick)).tickSizeOuter(0)(d3.select(axis));
      // The table's own edges are the lines of the axes.
      axis.querySelector(".domain").remove();
      return axis;
    }));
    put(this.marks, { width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}` });
    refill(this.marks, [...axes,
      svg("text", { class: "name", x: right, y: bottom + 38, "text-anchor": "end" }, names[1]),
      svg("text", { class: "name", x: 0, y: 12 }, names[0]), ...parts]);
  }

  // [row, column] under the pointer.
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const { first, shown } = this.view, { width, height } = this.inner;
    const place = [(event.clientY - box.top) / height, (event.clientX - box.left) / width];
    return place.map((part, axis) => first[axis] + Math.min(Math.max(Math.floor(part * shown[axis]), 0), shown[axis] - 1));
  }

  listen() {
    const { canvas, on } = this;
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.view) return;
      held = { x: event.clientX, y: event.clientY, first: this.view.first, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.view) return;
      if (!held) {
        if (event.pointerType === "mouse" && event.buttons === 0) on.point?.(...this.at(event));
        return;
      }
      const byX = event.clientX - held.x, byY = event.clientY - held.y;
      if (!held.moved && Math.hypot(byX, byY) < FAR) return;
      held.moved = true;
      const { width, height } = this.inner, { shown } = this.view;
      on.move?.(held.first[0] - Math.round((byY / height) * shown[0]), held.first[1] - Math.round((byX / width) * shown[1]));
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held && !held.moved) on.pick?.(...this.at(event));
      held = null;
    });
    canvas.addEventListener("pointercancel", () => { held = null; });
    canvas.addEventListener("pointerleave", () => { if (!held) on.leave?.(); });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.view) return;
      const times = event.shiftKey ? 10 : 1, page = this.view.shown[0];
      const step = {
        ArrowUp: [-times, 0], ArrowDown: [times, 0], ArrowLeft: [0, -times], ArrowRight: [0, times],
        PageUp: [-page, 0], PageDown: [page, 0], Home: [0, -Infinity], End: [0, Infinity],
      }[event.key];
      if (!step) return;
      event.preventDefault();
      on.step?.(...step);
    });
  }
}

// Colour the dots of `rows` x `columns` cells; a dot has the mean of the rows x columns of `grain` that it stands for.
export function dotsOf(cells, rows, columns, dots, [tall, wide], colours, [least, largest]) {
  const top = colours.length - 1, scale = top / (largest - least), across = Math.ceil(columns / wide);
  const sums = new Float64Array(across);
  for (let start = 0, at = 0; start < rows; start += tall) {
    const end = Math.min(start + tall, rows);
    sums.fill(0);
    for (let row = start; row < end; row++) {
      if (wide === 1) {
        for (let dot = 0, cell = row * columns; dot < across; dot++, cell++) sums[dot] += cells[cell];
        continue;
      }
      for (let dot = 0, cell = row * columns; dot < across; dot++) {
        const stop = Math.min((dot + 1) * wide, columns) + row * columns;
        for (; cell < stop; cell++) sums[dot] += cells[cell];
      }
    }
    for (let dot = 0; dot < across; dot++) {
      const mean = sums[dot] / ((end - start) * (Math.min((dot + 1) * wide, columns) - dot * wide));
      const step = Math.round((mean - least) * scale);
      dots[at++] = colours[step < 0 ? 0 : step > top ? top : step];
    }
  }
  return dots;
}
