// A clock with one hand: the height of its tip is the sine of its angle, how far right it is the cosine.

import { number, svg } from "../draw.js";

// `past` is how much of a turn, in radians from 0 on, the hand has seen; where it is given the rest of the face is unseen.
export function dial(x, y, radius, phase, { past = null, state = "", label = null } = {}) {
  const tip = [x + radius * Math.cos(phase), y - radius * Math.sin(phase)];
  return svg("g", { class: `dial ${state}`.trim() },
    svg("circle", { class: "face", cx: x, cy: y, r: radius }),
    past === null ? null : svg("path", { class: "seen", d: sector(x, y, radius, past) }),
    svg("line", { class: "arm", x1: x, y1: y, x2: tip[0], y2: tip[1] }),
    svg("circle", { class: "tip", cx: tip[0], cy: tip[1], r: Math.min(Math.max(1.5, radius / 7), 7) }),
    label === null ? null : svg("text", { x, y: y + radius + 16, "text-anchor": "middle" }, label));
}

// The part of a disc from angle 0 on, counterclockwise.
export function sector(x, y, radius, angle) {
  if (angle >= 2 * Math.PI) return `M${x - radius},${y}a${radius},${radius} 0 1 0 ${2 * radius},0a${radius},${radius} 0 1 0 ${-2 * radius},0Z`;
  const end = [x + radius * Math.cos(angle), y - radius * Math.sin(angle)];
  return `M${x},${y}L${x + radius},${y}A${radius},${radius} 0 ${angle > Math.PI ? 1 : 0} 0 ${end[0]},${end[1]}Z`;
}

// An arrow from a point at an angle.
export function arrow(x, y, length, angle, attributes) {
  const tip = [x + length * Math.cos(angle), y - length * Math.sin(angle)];
  const wing = (by) => `${tip[0] - 10 * Math.cos(angle + by)},${tip[1] + 10 * Math.sin(angle + by)}`;
  return svg("path", { fill: "none", ...attributes, d: `M${x},${y}L${tip[0]},${tip[1]}M${wing(0.4)}L${tip[0]},${tip[1]}L${wing(-0.4)}` });
}

// A query and a key as arrows on one circle, thin `before` their positions rotate them and thick after, with the angle between
// them in words; `product` is their dot product. Gives the centre.
export function rotatedArrows(plot, { at, before, after, product }) {
  const wide = plot.width > 560, x = Math.min(plot.width / 2, 190), y = 160, length = 130, beside = wide ? [x + 180, 110] : [8, 330];
  const apart = ((after.query - after.key) * 180) / Math.PI, between = ((apart % 360) + 540) % 360 - 180;
  const [low, high] = between > 0 ? [after.key, after.query] : [after.query, after.key];
  const words = [`query at ${number(at.query)}`, `key at ${number(at.key)}`, `angle between: ${number(Math.round(Math.abs(between)))}°`, `dot product: ${number(product, 2)}`];
  plot.resize(wide ? 320 : 420);
  plot.clear().ink.append(
    svg("circle", { class: "face", cx: x, cy: y, r: length }),
    arcBetween(x, y, 46, low, high, { class: "turn" }),
    ...["query", "key"].flatMap((role) => [arrow(x, y, length, before[role], { class: `${role} arrow before` }), arrow(x, y, length, after[role], { class: `${role} arrow` })]),
    ...words.map((text, row) => svg("text", { class: `reading ${["query", "key"][row] ?? ""}`, x: beside[0], y: beside[1] + row * 26 }, text)));
  return [x, y];
}

// The part of a circle between two angles, as a line.
export function arcBetween(x, y, radius, from, to, attributes) {
  const [x1, y1, x2, y2] = [x + radius * Math.cos(from), y - radius * Math.sin(from), x + radius * Math.cos(to), y - radius * Math.sin(to)];
  const turned = (((to - from) % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI);
  return svg("path", { fill: "none", ...attributes, d: `M${x1},${y1}A${radius},${radius} 0 ${turned > Math.PI ? 1 : 0} 0 ${x2},${y2}` });
}
