// The table: what does the model get?

import { additiveCode } from "../codes.js";
import { colourTable, css, diverging, theme } from "../colours.js";
import { choice, slider } from "../controls.js";
import { html, number, refill, say, svg } from "../draw.js";
import { Heatmap } from "../heatmap.js";
import { completes, paceOf, wavelength } from "../ladders.js";
import { lightOn } from "./attention.js";
import { decimal } from "./pair.js";

const ROWS = [16, 64, 256, 1024, 2048], COLUMNS = [16, 64, 256];
const SMALL = { rows: 16, columns: 10 }; // of the table that is written in numbers
const WAVES = { sin: "sine", cos: "cosine", "-sin": "−sine", value: "value", zero: "always 0" };

export const table = {
  id: "table",
  question: "What does the model get?",
  mount(section, app) {
    const { store } = app;
    const position = slider(app, "position", "Position", { min: 0, max: store.state.length - 1, unit: "token" });
    const channel = slider(app, "channel", "Dimension", { min: 0, max: store.state.width - 1 });
    const firstRow = slider(app, "firstRow", "From position", { min: 0, max: store.state.length - 1 });
    const firstColumn = slider(app, "firstColumn", "From dimension", { min: 0, max: store.state.width - 1 });
    section.controls.append(position.element, channel.element,
      choice(app, "rowsShown", "Positions in view", ROWS.map((rows) => [rows, number(rows)]), number).element,
      choice(app, "columnsShown", "Dimensions in view", [[0, "all"], ...COLUMNS.map((columns) => [columns, String(columns)])], String).element,
      firstRow.element, firstColumn.element);
    const small = new SmallTable(section.figure, store);
    const readout = html("p", { class: "readout" });
    let before = null; // what was pointed at before the pointer came
    let told = {}, painted = {}; // what is counted of a code at a length, and the legend's colours and largest number
    const point = (row, column) => store.set({ position: row, channel: column });
    const heatmap = new Heatmap(section.figure, {
      height: 300,
      label: "The table, positions down and dimensions across: arrow keys move the cell, with shift by ten",
      on: {
        point(row, column) {
          before ??= { position: store.state.position, channel: store.state.channel, pair: store.state.pair };
          point(row, column);
        },
        leave() {
          if (before) store.set(before);
          before = null;
        },
        pick(row, column) {
          before = null;
          point(row, column);
        },
        move: (row, column) => store.set({ firstRow: within(row, 0, lastFirst(store.state)[0]), firstColumn: within(column, 0, lastFirst(store.state)[1]) }),
        step(rows, columns) {
          before = null;
          const { state } = store;
          point(within(state.position + rows, 0, state.length - 1), within(state.channel + columns, 0, state.width - 1));
        },
      },
    });
    const note = html("p", { class: "note" });
    const legend = svg("svg", { class: "legend", width: 190, height: 34, role: "img", "aria-label": "The values of the colours" });
    heatmap.element.append(legend);
    section.figure.append(readout, note);

    return (state, changed) => {
      const code = app.additive(state);
      if (changed.has("length")) position.limits(0, Math.max(state.length - 1, 1));
      if (changed.has("width")) channel.limits(0, code.width - 1);
      const [lastRow, lastColumn] = lastFirst(state), shown = shownOf(state);
      firstRow.limits(0, Math.max(lastRow, 1));
      firstColumn.limits(0, Math.max(lastColumn, 1));
      firstRow.element.hidden = lastRow === 0;
      firstColumn.element.hidden = lastColumn === 0;
      // The window follows a position or a channel that was moved out of it, and stays where it was dragged to.
      const row = changed.has("position") || changed.has("rowsShown") ? followed(state.firstRow, shown[0], state.position, lastRow) : within(state.firstRow, 0, lastRow);
      const column = changed.has("channel") || changed.has("columnsShown") ? followed(state.firstColumn, shown[1], state.channel, lastColumn) : within(state.firstColumn, 0, lastColumn);
      if (row !== state.firstRow || column !== state.firstColumn) store.set({ firstRow: row, firstColumn: column });

      if (told.code !== code || told.length !== state.length) {
        const never = code.ladder.rates.filter((rate) => !completes(rate, state.length)).length;
        told = { code, length: state.length, bands: bandsOf(code, state.length), never };
      }
      const { bands, never } = told;
      const colours = colourTable("diverging");
      small.show(smallOf(app, state), state);
      if (changed.size === Object.keys(state).length) {
        heatmap.measure();
      }
      heatmap.draw({
        key: code, first: [row, column], shown, colours, range: [-code.largest, code.largest], names: ["position (token)", "dimension"],
        window: (...cells) => code.window(...cells),
        means: (...cells) => code.means?.(...cells) ?? null,
        marked: [state.position, state.channel], bands, band: never ? `incomplete rotation in ${number(state.length)} tokens` : "",
      });
      if (painted.colours !== colours || painted.largest !== code.largest) drawLegend(legend, painted = { colours, largest: code.largest });
      const pair = code.pairOf(state.channel), value = code.cell(state.position, state.channel);
      refill(readout, [html("span", {}, `position ${number(state.position)}, dimension ${state.channel}`), html("strong", {}, decimal(value, 10)),
        html("span", {}, `${WAVES[code.waveOf(state.channel)]}${pair < 0 ? "" : ` of pair ${pair}`}, in float32 ${decimal(Math.fround(value), 10)}`)]);
      say(note, `${grainOf(heatmap.grain)}Point to read, press to keep, drag to move.`);
      section.answer(answerFor(code, state, never, app.code(state).kind === "rotary"));
    };
  },
};

// What is written in numbers: the encoding itself where it is narrow, else one of its formula that is, else its first
// dimensions; and the words for it.
function smallOf(app, state) {
  const code = app.additive(state), spec = app.spec(state), { base, span } = spec.spacing ?? {}, all = number(code.width);
  if (code.width <= SMALL.columns) return { code, own: true, key: code, words: `All ${all} dimensions of this encoding` };
  if (spec.type !== "Sinusoidal" || spec.spacing.type !== "Geometric" || typeof span !== "string") return { code, own: true, key: code, words: `The first ${SMALL.columns} of the ${all} dimensions of this encoding` };
  const narrow = { ...spec, width: SMALL.columns };
  // The same at every width: it is written again only where its formula changes.
  return { spec: narrow, own: false, key: JSON.stringify(narrow), words: `The same formula with base ${number(base, 10)} and width ${SMALL.columns}` };
}

// A table of few positions and dimensions whose numbers are read; arrow keys move from cell to cell.
class SmallTable {
  constructor(place, store) {
    Object.assign(this, { store, key: null, at: [0, 0] });
    [this.words, this.says] = ["", ""].map(() => html("p", { class: "note" }));
    this.table = html("table", { class: "numbers cells-of-numbers", role: "grid", onkeydown: (event) => this.move(event), onclick: (event) => this.take(event.target.closest("td")), onfocusin: (event) => this.read(event.target.closest("td")) });
    place.append(this.words, html("div", { class: "scrolled" }, this.table), this.says);
  }

  show({ code, spec, own, key, words }, state) {
    const rows = Math.min(SMALL.rows, state.length), now = [key, rows, theme()];
    if (this.key === null || now.some((part, place) => part !== this.key[place])) {
      this.key = now;
      this.code = code ?? additiveCode(spec);
      this.fill(rows);
    }
    this.own = own;
    say(this.words, `${words}.`);
    if (this.table.getAttribute("aria-label") !== words) this.table.setAttribute("aria-label", words);
    Array.from(this.table.tBodies[0].rows).forEach((row, position) => row.classList.toggle("here", position === state.position));
  }

  fill(rows) {
    const { code } = this, columns = Array.from({ length: Math.min(SMALL.columns, code.width) }, (_, channel) => channel), had = this.table.contains(document.activeElement);
    const head = (name, text) => html("tr", {}, html("th", { scope: "row" }, name), columns.map((channel) => html("th", { scope: "col" }, text(channel))));
    this.at = [Math.min(this.at[0], rows - 1), Math.min(this.at[1], columns.length - 1)];
    const cell = (row, channel) => {
      const value = code.cell(row, channel), colour = diverging(value / code.largest), made = html("td", { role: "gridcell", tabindex: row === this.at[0] && channel === this.at[1] ? 0 : -1, class: lightOn(colour) ? "on-light" : "on-dark" }, decimal(value, 3));
      made.style.backgroundColor = css(colour);
      return made;
    };
    this.table.replaceChildren(
      html("thead", {}, head("dimension", String), head("pair", (channel) => (code.pairOf(channel) < 0 ? "–" : String(code.pairOf(channel)))), head("", (channel) => ({ sin: "sin", cos: "cos", "-sin": "−sin" })[code.waveOf(channel)] ?? "0")),
      html("tbody", {}, Array.from({ length: rows }, (_, row) => html("tr", {}, html("th", { scope: "row" }, `p = ${row}`), columns.map((channel) => cell(row, channel))))));
    this.cell().tabIndex = 0;
    this.read(this.cell());
    if (had) this.cell().focus();
  }

  cell() {
    return this.table.tBodies[0].rows[this.at[0]].cells[this.at[1] + 1];
  }

  read(cell) {
    if (!cell) return;
    const { code } = this, row = cell.parentElement.sectionRowIndex, channel = cell.cellIndex - 1, pair = code.pairOf(channel);
    this.cell().tabIndex = -1;
    this.at = [row, channel];
    cell.tabIndex = 0;
    const wave = WAVES[code.waveOf(channel)];
    say(this.says, `Position ${row}, dimension ${channel}: ${pair < 0 ? wave : `the ${wave} of pair ${pair}, ${code.ladder.rates[pair] === 0 ? "which never rotates" : `of wavelength ${number(wavelength(code.ladder.rates[pair]), 5)} tokens`}`}, is ${decimal(code.cell(row, channel), 6)}.`);
  }

  take(cell) {
    if (!cell) return;
    cell.focus();
    this.store.set(this.own ? { position: this.at[0], channel: this.at[1] } : { position: this.at[0] });
  }

  move(event) {
    const [down, along] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -SMALL.columns], End: [0, SMALL.columns] }[event.key] ?? [];
    if (down === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const { rows } = this.table.tBodies[0], row = rows[within(this.at[0] + down, 0, rows.length - 1)];
    this.take(row.cells[within(this.at[1] + along, 0, row.cells.length - 2) + 1]);
  }
}

function within(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

// [rows, columns] that are in view.
function shownOf({ length, width, rowsShown, columnsShown }) {
  return [Math.min(rowsShown, length), columnsShown === 0 ? width : Math.min(columnsShown, width)];
}

// The last first row and column: the window ends with the table.
function lastFirst(state) {
  const [rows, columns] = shownOf(state);
  return [Math.max(state.length - rows, 0), state.width - columns];
}

// Where a window must begin to hold a place, moved as little as it can be.
export function followed(first, count, place, last) {
  return within(place < first ? place : place >= first + count ? place - count + 1 : first, 0, last);
}

// [from, to) of the channels whose pair turns less than once within the length, neighbours joined.
export function bandsOf(code, length) {
  const bands = [];
  for (let channel = 0; channel < code.width; channel++) {
    const pair = code.pairOf(channel);
    if (pair < 0 || completes(code.ladder.rates[pair], length)) continue;
    if (bands.length && bands.at(-1)[1] === channel) bands.at(-1)[1] = channel + 1;
    else bands.push([channel, channel + 1]);
  }
  return bands;
}

function grainOf([rows, columns]) {
  if (rows === 1 && columns === 1) return "";
  const parts = [rows > 1 ? `${rows} positions` : "", columns > 1 ? `${columns} dimensions` : ""].filter(Boolean);
  return `Each dot is the mean of ${parts.join(" by ")}. `;
}

function answerFor(code, state, never, turns) {
  const { rates } = code.ladder, { fast, slow, order, still } = paceOf(rates), half = state.layout === "halves" ? " of each half" : "";
  // A rotary code adds nothing to tokens.
  const given = turns ? `Nothing is added to a token: queries and keys are rotated by ${number(code.width)} sines and cosines per position` : `${number(code.width)} numbers a position`;
  if (fast === null) return `${given}, the same at every position: no pair rotates.`;
  const [short, long] = [fast, slow].map((pair) => number(wavelength(rates[pair])));
  const waves = short === long ? `one wavelength, ${short} tokens` : order === "falling" ? `high frequencies left${half} (${short} tokens), low ones right (${long})`
    : order === "rising" ? `low frequencies left${half} (${long} tokens), high ones right (${short})` : `wavelengths of ${short} to ${long} tokens, unordered`;
  return `${given}: ${waves}. ` + (still ? `${number(still)} of ${number(code.pairs)} pairs never rotate${still === 1 ? "s" : ""}. ` : "") +
    (never === 0 ? `Every pair rotates at least once in ${number(state.length)} tokens.`
      : `${number(never)} of ${number(code.pairs)} pairs (${Math.round((100 * never) / code.pairs)}\u2009%) never ${never === 1 ? "completes" : "complete"} a rotation in ${number(state.length)} tokens.`);
}

function drawLegend(legend, { colours, largest }) {
  const parts = 38, wide = 150 / parts;
  legend.replaceChildren(
    ...Array.from({ length: parts }, (_, part) => {
      const colour = colours[Math.round((part / (parts - 1)) * (colours.length - 1))];
      return svg("rect", { x: 20 + part * wide, y: 2, width: wide + 0.3, height: 12, fill: `rgb(${colour & 255}, ${(colour >> 8) & 255}, ${(colour >> 16) & 255})` });
    }),
    svg("text", { x: 20, y: 29, "text-anchor": "middle" }, number(-largest, 3)), svg("text", { x: 95, y: 29, "text-anchor": "middle" }, "0"), svg("text", { x: 170, y: 29, "text-anchor": "middle" }, number(largest, 3)));
}
