"""Write docs/claims.md: statements about positional encodings, from the claims themselves.

Run it after a claim has changed; a test holds the document to it. The numbers are those that are stated; that they are
still computed so is the test of each claim.
"""

import textwrap
from pathlib import Path

from clockhands.claims import CLAIMS, SUBJECTS, Claim, Stated
from clockhands.show.claims import measured_in_words, name_in_words, stated_in_words, waits_in_words

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "claims.md"

BEGIN = """# Claims about positional encodings, checked

Articles, courses and papers make many statements about positional encodings: every position has a unique encoding, dot
products decay with the distance, an encoding works for any length. Some of these statements are true, some are true
only under a condition, and some are false. This page checks {number} statements; each statement has a verdict, the
reason and the numbers that show the verdict.

`clockhands claims` computes all numbers again, in a few seconds, and ends with exit code 1 if one differs from this
page. Formulas are computed by the library. Claims that only training can decide use the stored results of the lab's
studies, which come with the package; [studies.md](studies.md) has all of them.

```sh
clockhands claims                          # all of them
clockhands claims monotone-decay           # one, by its ID
clockhands claims 9956                     # those that name a number
clockhands claims --json                   # for programs
```

**How to read it.** A verdict is *true*, *false*, or *only if*, followed by the condition. Numbers are meant to the
digits written: 3.714 is anything from 3.7135 to 3.7145. "At most" is zero except for rounding; the bound follows from
the accuracy of the library. A measured number is a mean over seeds; *least* and *most* are the ends of its 95 %
interval, which for 3 seeds is their range. The trained models are small, about 0.1 million parameters, and their
verdicts hold for that size. If a small model cannot settle a claim, or nothing was measured, the claim names the
missing measurement.

**Terms.** An encoding consists of dimension *pairs*. Each pair rotates by its *frequency*, in radians per token, and
completes a rotation after its *wavelength*, 2π / frequency, in tokens. The *base*, usually 10,000, is about the ratio
of the highest to the lowest frequency; the *width* d is twice the number of pairs. A *row* is the encoding of one
position, and the *offset* of two positions is their distance in tokens. Unless stated otherwise, the encoding is that
of Vaswani et al. 2017: pair i rotates by 10000^(−2i/d) per token.

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
