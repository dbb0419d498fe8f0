// The clock: where are we?

import { button, slider } from "../controls.js";
import { Plot, html, number, svg } from "../draw.js";
import { wavelength } from "../ladders.js";

const SHOWN = 12; // hands that are drawn, evenly over the ladder

export const clock = {
  id: "clock",
  question: "Where are we?",
  mount(section, app) {
    const position = slider(app, "position", "Position", { min: 0, max: app.store.state.length - 1, unit: "token" });
    let playing = null;
    const step = (by) => app.store.set({ position: Math.max(0, app.store.state.position + by) });
    const play = button("Play", () => {
      if (playing) { clearInterval(playing); playing = null; } else { playing = setInterval(() => step(1), 120); }
      play.textContent = playing ? "Pause" : "Play";
      play.setAttribute("aria-pressed", String(Boolean(playing)));
    }, { "aria-pressed": "false" });
    section.controls.append(position.element, html("div", { class: "control" }, button("Back", () => step(-1)), play, button("Forward", () => step(1))));
    const plot = new Plot(section.figure, { height: 250, label: "The hands of the clock at this position" });
    const digits = html("p", { class: "binary", "aria-label": "The same position as a binary counter" });
    section.figure.append(digits);

    return (state, changed) => {
      if (changed.has("length")) position.limits(0, Math.max(state.length - 1, 1));
      const rates = app.rates(state);
      const every = [...new Set(Array.from({ length: Math.min(SHOWN, rates.length) }, (_, place) =>
        Math.round((place * (rates.length - 1)) / Math.max(Math.min(SHOWN, rates.length) - 1, 1))))];
      plot.measure().clear();
      const columns = Math.max(3, Math.min(every.length, Math.floor(plot.width / 90)));
      const size = Math.min(86, plot.width / columns), rows = Math.ceil(every.length / columns);
      plot.height = rows * (size + 26) + 8;
      plot.element.setAttribute("height", plot.height);
      plot.element.setAttribute("viewBox", `0 0 ${plot.width} ${plot.height}`);
      every.forEach((pair, place) => {
        const x = (place % columns + 0.5) * (plot.width / columns), y = Math.floor(place / columns) * (size + 26) + size / 2 + 4;
        const phase = state.position * rates[pair], radius = size / 2 - 8;
        const tip = [x + radius * Math.cos(phase), y - radius * Math.sin(phase)];
        plot.element.append(svg("g", { class: pair === state.pair ? "hand chosen" : "hand", "data-pair": pair, tabindex: 0, role: "button",
          "aria-label": `Pair ${pair}, ${number(wavelength(rates[pair]))} tokens a turn`,
          onclick: () => app.store.set({ pair }), onkeydown: (event) => (event.key === "Enter" || event.key === " ") && app.store.set({ pair }) },
        svg("circle", { cx: x, cy: y, r: radius, class: "face" }),
        svg("line", { x1: x, y1: y, x2: tip[0], y2: y, class: "cosine" }),
        svg("line", { x1: tip[0], y1: y, x2: tip[0], y2: tip[1], class: "sine" }),
        svg("line", { x1: x, y1: y, x2: tip[0], y2: tip[1], class: "arm" }),
        svg("circle", { cx: tip[0], cy: tip[1], r: 3, class: "tip" }),
        svg("text", { x, y: y + size / 2 + 12, "text-anchor": "middle" }, `pair ${pair}`)));
      });
      const bits = Math.max(8, Math.ceil(Math.log2(state.length)));
      digits.textContent = `binary counter: ${state.position.toString(2).padStart(bits, "0")}`;
      section.answer(`At position ${number(state.position)} pair 0 has turned ${number((state.position * rates[0]) / (2 * Math.PI))} times, ` +
        `pair ${rates.length - 1} ${number((state.position * rates.at(-1)) / (2 * Math.PI), 3)} times. All hands together tell the position.`);
    };
  },
};
