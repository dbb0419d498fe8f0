"""Write docs/claims.md and the pages of docs/claims/: statements about positional encodings, from the claims.

Run it after a claim has changed; a test holds the pages to it. The numbers are those that are stated; that they are
still computed so is the test of each claim.
"""

import textwrap
from pathlib import Path

from clockhands.measures.claims import CLAIMS, SUBJECTS, Claim, Stated
from clockhands.measures.claims.sentences import measured_in_words, name_in_words, stated_in_words, waits_in_words

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "claims.md"
FOLDER = DOCUMENT.with_suffix("")

BEGIN = """# Claims about positional encodings, checked

Articles, courses and papers make many statements about positional encodings: every position has a unique encoding, dot
products decay with the distance, an encoding works for any length. Some of these statements are true, some are true
only under a condition, and some are false. {number} statements are checked here; each statement leads to its verdict,
the reason and the numbers that show the verdict.

`clockhands claims` computes all numbers again, in a few seconds, and ends with exit code 1 if one differs from these
pages. Formulas are computed by the library. Claims that only training can decide use the stored results of the lab's
studies, which come with the package; [studies.md](studies.md) has all of them.

```sh
clockhands claims                          # all of them
clockhands claims monotone-decay           # one, by its ID
clockhands claims 9956                     # those that name a number
clockhands claims --json                   # for programs
```

**How to read it.** A verdict is *true*, *false*, *only if*, followed by the condition, or *not known*. Numbers are
meant to the digits written: 3.714 is anything from 3.7135 to 3.7145. "At most" is zero except for rounding; the bound
follows from the accuracy of the library. A measured number is a mean over seeds; *least* and *most* are the ends of
the range of the seeds. The range of 3 seeds holds the median of such models in 75 % of cases, so it is no 95 %
interval. The trained models are small, about 0.1 million parameters, and their verdicts hold for that size. If a small
model cannot settle a claim, or nothing was measured, the claim names what is missing.

**Terms.** An encoding consists of dimension *pairs*. Each pair rotates by its *frequency*, in radians per token, and
completes a rotation after its *wavelength*, 2π / frequency, in tokens. The *base*, usually 10,000, is about the ratio
of the highest to the lowest frequency; the *width* d is twice the number of pairs. A *row* is the encoding of one
position, and the *offset* of two positions is their distance in tokens. Unless stated otherwise, the encoding is that
of Vaswani et al. 2017: pair i rotates by 10000^(−2i/d) per token.

"""


def documents() -> dict[Path, str]:
    """Every page: the index, and one for each subject."""
    pages = {FOLDER / f"{anchor(title)}.md": subject(title) for title, claims in SUBJECTS.items() if claims}
    return {DOCUMENT: BEGIN.format(number=len(CLAIMS)) + overview(), **pages}


def overview() -> str:
    """Every sentence with its verdict, as links to what is said of it; a line is linked to by the ID of its claim."""
    parts = []
    for title, claims in SUBJECTS.items():
        if claims:
            parts.append(f"\n## {title}\n\n| verdict | statement |\n|---|---|\n")
            parts += [
                f'| <a id="{anchor(each.id)}"></a>{each.verdict} '
                f"| [{escaped(each.statement)}](claims/{anchor(title)}.md#{anchor(each.id)}) |\n"
                for each in claims
            ]
    return "".join(parts).lstrip("\n")


def subject(title: str) -> str:
    """The page of one subject."""
    head = f"# Claims: {title}\n\n[All claims](../claims.md), and how to read them.\n"
    return head + "".join(map(section, SUBJECTS[title]))


def section(told: Claim) -> str:
    """One claim."""
    condition = f" {told.condition}" if told.condition else "."
    parts = [
        f"\n## {told.id}\n",
        wrapped(f"“{escaped(told.statement)}”"),
        wrapped(f"**{told.verdict.capitalize()}**{escaped(condition)} {escaped(told.argument)}"),
        "| what | value |\n|---|---:|\n" + "".join(row(*each) for each in told.numbers.items()),
    ]
    for study, sentence in zip(told.measured, measured_in_words(told), strict=True):
        parts.append(wrapped(f"{sentence} [All numbers of this study](../studies/{study}.md)."))
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
    """What a heading is linked by: its letters, digits and hyphens, spaces as hyphens."""
    return "".join(char for char in heading.lower().replace(" ", "-") if char.isalnum() or char in "-_")


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    for mark in ("*", "_", "|", "<"):
        text = text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
