"""Write docs/properties.md: what each property means, and every encoding with all its properties.

Run it after a measure or its words have changed; a test holds the document to it.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import clockhands as ch
from clockhands.additive import (
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    WarpedPosition,
)
from clockhands.biases import Decay, Fire, Kerple
from clockhands.ladders import geometric
from clockhands.measures import QUESTIONS, Properties
from clockhands.measures import _measuring as measuring
from clockhands.measures.ladders.precision import WAYS, precision_table
from clockhands.rotary import Rotary, XPos
from clockhands.scaling import Dynamic, Linear, LongRope, Ntk, Proportional, Yarn
from clockhands.show.terminal import SHORT

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "properties.md"

LENGTH, DTYPE, SEED = 2_048, "float32", 15
WIDTH, HEAD_WIDTH, HEADS = 512, 128, 8

HEAD = """# What a position code can and cannot do

`clockhands properties TARGET` asks every question below of the codes of a model, with the learned numbers that its
files hold, and `ch.properties(spec, length, dtype)` of a spec:

```sh (not run: the first file is yours)
clockhands properties model.gguf                      # every group of layers, over the context
clockhands properties vaswani2017 --length 512        # a published convention
clockhands properties table.npy --dtype bfloat16      # a bare table, rounded to what serves it
```

```python
import clockhands as ch

report = ch.properties(ch.Rotary(head_width=64, base=100_000.0), 8192)  # the ladder of SmolLM2
print(report.turning.brief)  # 12 of 32 pairs
print(report.base_bound.holds, report.base_bound.numbers["first_failing_distance"])  # False 3616
print(ch.properties(ch.Alibi(heads=8), 8192).unique.state)  # not applicable
```

A property is *measured*; or *not computed*, where numbers are missing or it would take too long; or it *makes no sense*
for a code, which is then said with the reason. The figures are in `numbers` and in `--json`
([what programs read](json.md)). This file is made by `tools/properties_document.py`.

"""

MEANS = {
    "bounded": (
        "A code that grows with the position drowns the token that it is added to, and overflows in float16 above"
        " 65,504. A rotation keeps the length of what it turns, and a bias that grows with the distance hides "
        "what is far."
    ),
    "unique": (
        "Two tokens whose numbers are equal to the last bit of the dtype cannot be told apart by their position. "
        "The first two that are equal are named, or the two that come nearest, with their distance. Whether the "
        "positions were rounded is another matter, and worse: of the whole numbers below 4,096, bfloat16 has 769."
    ),
    "smooth": (
        "The step is the distance between the numbers of neighbours. It should be small beside the distance of "
        "two positions picked at random (else near and far look alike), and the same everywhere (else being "
        "neighbours means something else here than there)."
    ),
    "shift": (
        "If k tokens on is one fixed turn of the channels, the same from wherever one starts, attention can learn"
        ' "k tokens back" once and use it everywhere. Where there is no such turn, the best linear map is fitted '
        "to some rows and tried on others; what it *leaves* is the share of their variance that it does not "
        "explain: 0 % of a perfect map, 100 % of a useless one."
    ),
    "kernel": (
        "The likeness of two positions is the sum of cos(rate x distance) over all pairs of channels, divided by "
        "what it is at distance 0. It falls at first and then wavers: told are the distance up to which it falls,"
        " how often it rises, and where it is first negative. Where likeness depends on more than the distance, "
        "told is how much of it the distance explains."
    ),
    "turning": (
        "A pair of channels is the hand of a clock that turns at its own rate. A hand that does not come round "
        "within the length will point, in longer texts, where it has never pointed in training."
    ),
    "cover": (
        "A hand tells distances apart that are neither far shorter than its turn (it hardly moves) nor longer (it"
        " has come round, and points as it did before). Told is which distances within the length have no hand "
        "that suits them, and what other bases would leave without one."
    ),
    "base_bound": (
        "A head that looks for a token like its query scores it in proportion to the likeness above. Where that "
        "is negative, an unrelated token is preferred. A base has to be large enough for the length, and large is"
        " not enough: above the smallest sound base some stretches of bases fail again."
    ),
    "critical_dimension": (
        "The channels whose hand comes round at least once within the training length. The others have been seen "
        "in part only, and are what fails first beyond that length."
    ),
    "spectrum": (
        "The rows of a table need not use all channels: few directions that hold 99 % of their variance leave the"
        " others to the tokens."
    ),
    "precision": (
        "An angle is position x rate. Computed in float32, and more so in 16 bits, it is off by an error that "
        "grows with the position. Of a bias it is the number itself that is rounded."
    ),
    "adding": (
        "A code that is added moves the token. A token is *found again* if, after that, it is still nearer to "
        "itself than to any other of a vocabulary of 50,000 random ones. It depends on how large the tokens are: "
        "with a deviation of 1 in every channel they are found, with 1/sqrt(width), before the paper's factor "
        "sqrt(width), often not."
    ),
    "reach": (
        "How far back a key still weighs a hundredth of what the query's own position does, with nothing but the "
        "bias between them: from the head that looks least far to the one that looks farthest."
    ),
    "edges": (
        "Some biases put distances together in buckets and learn one number for each. Within a bucket distances "
        "are alike; told is where each begins, and from where on all are one."
    ),
    "told_apart": (
        "Two distances with the same number are the same to a head, be it that they share a bucket or that "
        "rounding made them equal. The first two are named."
    ),
}
"""What each property means, for somebody who has not seen the code."""

HOW = (
    f"Over {LENGTH:,} tokens in {DTYPE}; {WIDTH} channels where the name says nothing else, {HEAD_WIDTH} in a rotary"
    f" head, {HEADS} heads in a bias. Trained numbers were drawn instead, normal and always the same: rows with a"
    " standard deviation of 0.02, as before training, rates with 0.1, biases with 1, and the weights of Fire and"
    " LogWindow with 0.1. A cell answers the question of its column; `ch.properties` says the same in sentences, with"
    " the reason where a question *makes no sense* or was *not computed*."
)

POSITIONS = (100, 1_000, 4_096, 32_768, 131_072, 1_000_000)
SPREAD = 97  # positions that are looked at in the last tenth before each
BASES = (10_000, 500_000, 1_000_000)
ANGLES = (
    f"The largest error of an angle over the {HEAD_WIDTH // 2} pairs of a head of {HEAD_WIDTH} channels, in radians, at"
    f" {SPREAD} positions of the last tenth up to each of those named; 3.14 is half a turn, and from there on nothing"
    " is left of the angle. The first three rows of a dtype round one thing and do the rest exactly; the fourth is code"
    " that keeps all in that dtype, and the last two compute the rates there too, in the two usual ways. One position"
    " alone may flatter a dtype, a power of two above all. Float16 has no number for 500,000, so that rates computed"
    " from it are 0. (The float32 cosines and"
    " sines of this library are within 2^-25 at every position up to 2^63: none of these steps is rounded.)"
)

FIGURES = (
    "What stands in `numbers` and in `--json`. Their accuracy is told, and where it is derived, in the modules of"
    " `clockhands.measures`. Distances and wavelengths are in tokens, angles in radians; `n` is the length, `w` a rate,"
    " `g` the sum of the cosines of all pairs. None is `null` in JSON."
)
ALSO = {
    "clockhands.measures.biases.bounded": ["bounded, of biases"],
    "clockhands.measures.biases._diagonals": ["shift, of biases"],
}
BULLET = re.compile(r"^\* .*(?:\n  .*)*", re.MULTILINE)
UNBROKEN: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}

TABLES = (
    ("The numbers of a position", ("bounded", "unique", "smooth", "shift")),
    ("Likeness and hands", ("kernel", "turning", "cover", "base_bound", "critical_dimension")),
    ("Room, precision, and the token", ("spectrum", "precision", "adding")),
)
BIASES = ("bounded", "shift", "precision", "reach", "edges", "told_apart")


def drawn(*shape: int, spread: float = 1.0) -> np.ndarray:
    """Numbers in place of trained ones: normal, always the same."""
    return np.random.default_rng(SEED).normal(0.0, spread, shape).astype(np.float32)


def added() -> Iterable[tuple[str, Any, Any]]:
    """Codes that are added to the token: name, spec, learned numbers."""
    yield "Sinusoidal, the paper's (base 10,000)", ch.Sinusoidal(WIDTH), None
    yield "Sinusoidal, tensor2tensor's (closed span)", ch.preset("tensor2tensor", width=WIDTH), None
    yield "Sinusoidal, width 64", ch.Sinusoidal(64), None
    yield "AxialSinusoidal, rows and columns (MAE)", ch.preset("mae", width=WIDTH), None
    yield "FourierFeatures, rates drawn", FourierFeatures(WIDTH, 1, 1.0), drawn(WIDTH // 2, spread=0.1)
    yield "Learned, rows drawn", ch.Learned(WIDTH, LENGTH), drawn(LENGTH, WIDTH, spread=0.02)
    yield "NoPosition", ch.NoPosition(WIDTH), None
    yield "Counter (the number itself)", Counter(WIDTH), None
    yield "NormalizedCounter (number / length)", NormalizedCounter(WIDTH, LENGTH), None
    yield "Binary (the bits of the number)", Binary(WIDTH), None
    yield "SineOnly (no cosines)", SineOnly(WIDTH), None
    yield "SingleFrequency (one rate for all)", SingleFrequency(WIDTH), None
    yield "EvenlySpaced (rates 1 to 0.0001)", EvenlySpaced(WIDTH), None
    for warp, of in (("square", "p^2"), ("log", "log p"), ("reciprocal", "1/p")):
        yield f"WarpedPosition ({of} in place of p)", WarpedPosition(WIDTH, warp), None


def turned() -> Iterable[tuple[str, Any, Any]]:
    """Codes that turn queries and keys."""
    pairs = HEAD_WIDTH // 2

    def rotary(**more: Any) -> Rotary:
        return Rotary(HEAD_WIDTH, **more)

    yield "Rotary, halves, base 10,000", rotary(), None
    yield "Rotary, interleaved, base 10,000", rotary(layout="interleaved"), None
    yield "Rotary, base 500,000 (Llama 3)", rotary(base=500_000.0), None
    yield "Rotary, a quarter of the head (GPT-NeoX)", rotary(rotated=HEAD_WIDTH // 4), None
    yield "Rotary with xPos", rotary(xpos=XPos()), None
    yield "Rotary, linear scaling by 4", rotary(scaling=Linear(4.0)), None
    yield "Rotary, NTK by 4", rotary(scaling=Ntk(4.0)), None
    yield "Rotary, dynamic, at 2,048 of 512", rotary(scaling=Dynamic(4.0, 512), length=LENGTH), None
    yield "Rotary, YaRN by 4 from 512", rotary(scaling=Yarn(4.0, 512)), None
    divisors = tuple(1.0 + 3.0 * pair / (pairs - 1) for pair in range(pairs))
    yield "Rotary, LongRoPE, divisors 1 to 4", rotary(scaling=LongRope(divisors, divisors, 512, 4.0)), None
    yield "Rotary, Llama-3 scaling by 8", ch.preset("llama3.1"), None
    yield "Rotary, proportional", rotary(scaling=Proportional(0.25)), None
    yield "Rotary, two axes (Qwen2-VL's vision)", ch.preset("qwen2-vl-vision"), None
    yield "Rotary, three axes (Wan)", ch.preset("wan"), None


def biases() -> Iterable[tuple[str, Any, Any]]:
    """Codes that add a number to a score."""

    def table(spec: Any) -> dict[str, np.ndarray]:
        """Learned numbers of some bias: positive where it needs them so."""
        found = {name: np.abs(drawn(*shape)) + 0.1 for name, shape in spec.shapes.items()}
        for name in found.keys() & {"w1", "w2", "table"}:
            found[name] = drawn(*spec.shapes[name], spread=1.0 if name == "table" else 0.1)
        if "threshold" in found:
            found["threshold"] = np.float32(512.0)
        return found

    rows = (
        ("Alibi, by distance", ch.Alibi(HEADS)),
        ("Alibi, symmetric", ch.Alibi(HEADS, "symmetric")),
        ("Alibi, by key (BLOOM)", ch.Alibi(HEADS, "key")),
        ("Decay (RetNet)", Decay(HEADS)),
        ("Buckets, both sides (T5 encoder)", ch.Buckets(HEADS)),
        ("Buckets, one side (T5 decoder)", ch.Buckets(HEADS, bidirectional=False)),
        ("CeilingBuckets (DeBERTa-v2)", ch.preset("deberta-v2", heads=HEADS)),
        ("Clipped (DeBERTa)", ch.preset("deberta", heads=HEADS)),
        ("Kerple, logarithmic", Kerple(HEADS)),
        ("Kerple, power", Kerple(HEADS, "power")),
        ("Fire", Fire(HEADS)),
        ("Window, 7 x 7 (Swin)", ch.preset("swin", heads=HEADS)),
        ("LogWindow, 7 x 7 (Swin v2)", ch.preset("swin-v2", heads=HEADS)),
    )
    for name, spec in rows:
        yield name, spec, table(spec) or None


def measured(rows: Iterable[tuple[str, Any, Any]]) -> list[tuple[str, Properties]]:
    """The report of each row."""
    return [(name, ch.properties(spec, LENGTH, DTYPE, values=values)) for name, spec, values in rows]


def table(rows: Sequence[tuple[str, Properties]], columns: Sequence[str]) -> str:
    """The properties of some codes as a table, a row for each code."""
    lines = [["encoding", *(SHORT[name] for name in columns)], ["---"] * (len(columns) + 1)]
    lines += [[name, *(cell(getattr(found, column).brief) for column in columns)] for name, found in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(text: str) -> str:
    """Text in a cell, in which nothing is markup."""
    return text.replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;").replace("_", r"\_")


def prose(text: str) -> str:
    """A paragraph."""
    return textwrap.fill(text, 120, **UNBROKEN) + "\n\n"


def precision(base: float) -> str:
    """The largest errors of angles of one ladder as a table, a row for each dtype and way of computing them."""
    near = [position - position * step // (10 * SPREAD) for position in POSITIONS for step in range(SPREAD)]
    found = precision_table(geometric(HEAD_WIDTH // 2, base), near)
    lines = [["computed in", "what is rounded", *(f"{position:,}" for position in POSITIONS)]]
    lines.append(["---"] * len(lines[0]))
    for dtype, ways in found.items():
        for way, errors in ways.items():
            groups = [errors[begin : begin + SPREAD] for begin in range(0, len(errors), SPREAD)]
            lines.append([dtype, cell(WAYS[way]), *map(largest, groups)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def largest(errors: list[float | None]) -> str:
    """The largest of some errors in a cell, too large where one of them is."""
    known = [error for error in errors if error is not None]
    return radians(max(known) if len(known) == len(errors) else None)


def radians(error: float | None) -> str:
    """An error in a cell: two digits."""
    if error is None:
        return "too large a number"
    return (
        "0" if error == 0 else f"{error:.1e}" if error < 0.01 else f"{error:,.2g}" if error < 100 else f"{error:,.0f}"
    )


def figures() -> str:
    """The figures of each property by name, as the modules that measure them say."""
    homes: dict[str, list[str]] = {}
    for name in QUESTIONS:
        homes.setdefault(getattr(measuring, name).__module__, []).append(name)
    parts = []
    for home, names in (*homes.items(), *ALSO.items()):
        found = BULLET.findall(import_module(home).__doc__ or "")
        wrapped = (textwrap.fill(figure(bullet), 120, subsequent_indent="  ", **UNBROKEN) for bullet in found)
        parts.append("\n".join([f"### {', '.join(names)}\n", *wrapped, "\n"]))
    return "".join(parts)


def figure(bullet: str) -> str:
    """A bullet of a docstring as one of this page: names in code, nothing else markup."""
    words = " ".join(bullet.removeprefix("* ").split()).replace(" (below)", "").rstrip(";")
    parts = words.replace("``", "`").split("`")
    told = "`".join(part if number % 2 else cell(part) for number, part in enumerate(parts))
    return f"* {told if told.endswith(('.', '.)')) else told + '.'}"


@cache
def reports() -> tuple[list[tuple[str, Properties]], ...]:
    """The reports of all rows: codes that are added, codes that turn, biases."""
    return measured(added()), measured(turned()), measured(biases())


def document() -> str:
    """The whole document."""
    of_tokens, of_turns, of_biases = reports()
    parts = [HEAD, "## What each property means\n\n"]
    parts += [prose(f"**{name}**: {QUESTIONS[name]} {means}") for name, means in MEANS.items()]
    parts += ["## Every encoding\n\n", prose(HOW)]
    for title, columns in TABLES:
        parts.append(f"### {title}\n\n{table([*of_tokens, *of_turns], columns)}\n")
    parts.append(f"### Biases\n\n{table(of_biases, BIASES)}\n")
    parts += ["## How wrong angles are, by dtype, position and base\n\n", prose(ANGLES)]
    parts += [f"### Base {base:,}\n\n{precision(base)}\n" for base in BASES]
    parts += ["## The figures by name\n\n", prose(FIGURES), figures()]
    return "".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
