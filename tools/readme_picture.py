"""Write docs/pictures/clocks.svg, the moving picture of the README: a sentence with clocks over each word.

All hands of a row turn at one speed, that of a frequency of the sinusoidal encoding, and each stops when its word's
position is reached. For readers who ask for less motion, and where no animation runs, the hands are where they stop. A
test holds the file to this tool.
"""

import math
from pathlib import Path

import clockhands as ch

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "clocks.svg"
WORDS = ("The", "dog", "bites", "the", "man", "and", "runs", "away")
# Four frequencies of which even the slowest visibly turns within eight words.
CODE = ch.Sinusoidal(width=8, base=100)
RADIUS, COLUMN, ROW, LEFT, TOP = 22, 88, 58, 118, 44
SECONDS, TURNING = 9, 55  # of one round, and the share of it, in percent, until the last word is reached

STYLE = """
    text { font: 15px system-ui, sans-serif; fill: #24292f; text-anchor: middle; }
    .name { text-anchor: end; }
    .small, .name { font-size: 12px; fill: #57606a; }
    circle { fill: none; stroke: #8c959f; }
    line { stroke: #0969da; stroke-width: 2.5; stroke-linecap: round; transform: rotate(var(--angle)); }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; } .small, .name { fill: #9198a1; } circle { stroke: #656c76; } line { stroke: #58a6ff; }
    }
"""


def picture() -> str:
    """The whole file."""
    rates = CODE.rates
    last = len(WORDS) - 1
    moves = "".join(
        f"    @keyframes to-{position} {{ 0% {{ transform: rotate(0rad); }} "
        f"{TURNING * position / last:.4g}%, 100% {{ transform: rotate(var(--angle)); }} }}\n"
        for position in range(1, len(WORDS))
    )
    runs = "".join(
        f"      .to-{position} {{ animation: to-{position} {SECONDS}s linear infinite; }}\n"
        for position in range(1, len(WORDS))
    )
    rows = "".join(clocks(row, rate) for row, rate in enumerate(rates))
    below = TOP + ROW * len(rates) + 6
    words = "".join(
        f'  <text x="{x(position)}" y="{below}">{word}</text>\n'
        f'  <text class="small" x="{x(position)}" y="{below + 20}">{position}</text>\n'
        for position, word in enumerate(WORDS)
    )
    wide, tall = LEFT + COLUMN * len(WORDS), below + 34
    size = f'viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
  <title>Eight words, each below four clocks: their hands turn at four speeds and stop at the word's position.</title>
  <style>{STYLE}{moves}    @media (prefers-reduced-motion: no-preference) {{
{runs}    }}
  </style>
  <text class="name" x="{LEFT - 24}" y="{TOP - 26}">wavelength</text>
{rows}{words}  <text class="name" x="{LEFT - 24}" y="{below + 20}">position</text>
</svg>
"""


def clocks(row: int, rate: float) -> str:
    """One row: a clock over each word, its hand at the angle position times frequency, clockwise from the top."""
    y = TOP + ROW * row
    wavelength = f"{2 * math.pi / rate:.3g}"
    hands = (
        f'  <g transform="translate({x(position)} {y})"><circle r="{RADIUS}"/>'
        f'<line class="to-{position}" style="--angle: {position * rate:.6g}rad" y2="{4 - RADIUS}"/></g>\n'
        for position in range(len(WORDS))
    )
    return f'  <text class="name" x="{LEFT - 24}" y="{y + 4}">{wavelength} tokens</text>\n' + "".join(hands)


def x(position: int) -> int:
    """The middle of the column of a word."""
    return LEFT + COLUMN * position + COLUMN // 4


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
