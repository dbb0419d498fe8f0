// Labels of a plot that keep off each other and, where there is room, off its lines.

export const LETTER = 7; // px, about the mean width of a letter of the small size
const ABOVE_BASE = 11, BELOW_BASE = 4; // px that a line of text takes

// `lines`: for each line [least, most], its lowest and highest place (px) in each column of pixels from `left` on.
export class Labels {
  constructor({ left, top, right, bottom }, lines) {
    Object.assign(this, { left, top, right, bottom, lines, taken: [] });
  }

  // The first of some seats { x, y, anchor, pole } that is free of labels and lines, or else of labels, or else the first;
  // a seat with a `pole` ([x, from, to]) needs it free of labels as well. `keep`: whether it is taken from then on.
  seat(text, seats, keep = true) {
    const tried = seats.map((seat) => ({ seat, boxes: boxesOf(text, seat) }));
    const inside = tried.filter(({ boxes: [box] }) => box.left >= this.left && box.right <= this.right + 1 && box.top >= this.top - 2 && box.bottom <= this.bottom + 1);
    const free = inside.filter(({ boxes }) => !boxes.some((box) => this.taken.some((other) => overlap(box, other))));
    const found = free.find(({ boxes: [box] }) => !this.crossed(box)) ?? free[0] ?? inside[0] ?? tried[0];
    if (keep) this.taken.push(...found.boxes);
    return found.seat;
  }

  crossed(box) {
    const from = Math.max(0, Math.floor(box.left - this.left)), to = Math.ceil(box.right - this.left);
    return this.lines.some(([least, most]) => {
      for (let column = from; column <= to && column < least.length; column++) {
        if (least[column] > box.top && most[column] < box.bottom) return true;
      }
      return false;
    });
  }
}

function boxesOf(text, { x, y, anchor, pole }) {
  const wide = LETTER * text.length, left = anchor === "end" ? x - wide : x;
  const box = { left, right: left + wide, top: y - ABOVE_BASE, bottom: y + BELOW_BASE };
  return pole ? [box, { left: pole[0] - 1, right: pole[0] + 1, top: Math.min(pole[1], pole[2]), bottom: Math.max(pole[1], pole[2]) }] : [box];
}

function overlap(one, other) {
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
}
