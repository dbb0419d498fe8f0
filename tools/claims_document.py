"""Write docs/claims.md: what is said about position codes, from the claims themselves.

Run it after a claim has changed; a test holds the document to it. The numbers are those that are stated; that they are
still computed so is the test of each claim.
"""

import textwrap
from pathlib import Path

from clockhands.claims import CLAIMS, SUBJECTS, Claim, Stated
from clockhands.show.claims import measured_in_words, name_in_words, stated_in_words, waits_in_words

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "claims.md"

BEGIN = """# What is said about position codes, and what of it is true

Articles, courses and papers say a good deal about positional encodings: that every position has a code of its own, that
dot products decay with the distance, that it all works for any length. Some of it is true, some is true under a
condition that got lost, and some is false. Here are {number} such sentences, each with a verdict, the reason, and the
numbers that show it.

`clockhands claims` computes all numbers again, in a few seconds, and ends with exit code 1 if one is no longer what is
written here. Formulas are computed by the functions of the library. What only training can decide is computed from the
stored results of the lab's studies, which come with the package; [studies.md](studies.md) has all of them.

```sh
clockhands claims                          # all of them
clockhands claims monotone-decay           # one, by its ID
clockhands claims --json                   # for programs
```

**How to read it.** A verdict is *true*, *false*, or *only if*, and then the condition is told. Numbers are meant to
the digits that are written: 3.714 is anything from 3.7135 to 3.7145. "At most" is zero but for rounding, and the bound
follows from the accuracy that the library promises. A measured number is a mean over seeds; *least* and *most* are the
ends of its 95 % interval, which for 3 seeds is their range. The trained models are small, about 0.1 million parameters,
and a verdict from them reaches no further. Where a small model cannot settle a claim, or nothing was measured, the
claim names the measurement that would.

**The words.** A code is made of *pairs* of channels. Each pair is a hand of a clock: it turns by its *rate*, in
radians, for each token, and comes round after its *wavelength*, 2π / rate, in tokens. The *base*, usually 10,000, says
how far apart the fastest and the slowest rate are; the *width* d is the number of channels, twice the number of pairs.
A *row* is the code of one position, and the *offset* of two positions is how many tokens they are apart. Unless
something else is said, the code is that of Vaswani et al. 2017: pair i turns by 10000^(−2i/d) per token.

"""


def document() -> str:
    """The whole document."""
    return BEGIN.format(number=len(CLAIMS)) + overview() + "".join(map(subject, SUBJECTS))


def overview() -> str:
    """Every sentence with its verdict, as links to what is said of it."""
    parts = ["## In short\n"]
    for title, claims in SUBJECTS.items():
        if claims:
            parts.append(f"\n{title}:\n\n")
            parts += [f"- **{each.verdict}**: [{escaped(each.statement)}](#{anchor(each.id)})\n" for each in claims]
    return "".join(parts)


def subject(title: str) -> str:
    """The claims of one subject."""
    claims = SUBJECTS[title]
    return f"\n## {title}\n" + "".join(map(section, claims)) if claims else ""


def section(told: Claim) -> str:
    """One claim."""
    condition = f" {told.condition}" if told.condition else "."
    parts = [
        f"\n### {told.id}\n",
        wrapped(f"“{escaped(told.statement)}”"),
        wrapped(f"**{told.verdict.capitalize()}**{escaped(condition)} {escaped(told.argument)}"),
        "| what | value |\n|---|---:|\n" + "".join(row(*each) for each in told.numbers.items()),
    ]
    for study, sentence in zip(told.measured, measured_in_words(told), strict=True):
        parts.append(wrapped(f"{sentence} [All numbers of this study](studies.md#{study})."))
    if told.waits_for:
        parts.append(wrapped(escaped(waits_in_words(told))))
    parts.append(wrapped(f"Source: {escaped(told.source)}."))
    return "\n".join(parts)


def wrapped(text: str) -> str:
    """A paragraph in lines that are no longer than those of the other documents."""
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)) + "\n"


def row(name: str, stated: Stated) -> str:
    """One number."""
    limit = "at most " if stated.limit else ""
    return f"| {escaped(name_in_words(name))} | {limit}{stated_in_words(stated)} |\n"


def anchor(heading: str) -> str:
    """What a heading is linked by: its letters, digits and hyphens."""
    return "".join(char for char in heading.lower() if char.isalnum() or char in "-_")


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    for mark in ("*", "_", "|", "<"):
        text = text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
