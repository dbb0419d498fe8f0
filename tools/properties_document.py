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
from clockhands.encodings.additive import (
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    WarpedPosition,
)
from clockhands.encodings.biases import Decay, Fire, Kerple, Slopes
from clockhands.encodings.ladders import geometric
from clockhands.encodings.rotary import Rotary, XPos
from clockhands.encodings.scaling import Dynamic, Linear, LongRope, Ntk, Proportional, Yarn
from clockhands.measures import QUESTIONS, Properties
from clockhands.measures import _measuring as measuring
from clockhands.measures.claims import CLAIMS
from clockhands.measures.ladders.precision import WAYS, precision_table
from clockhands.show.terminal import SHORT

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "properties.md"

LENGTH, DTYPE, SEED = 2_048, "float32", 15
WIDTH, HEAD_WIDTH, HEADS = 512, 128, 8

HEAD = """# Properties of position encodings

`clockhands properties TARGET` measures every property below for the encodings of a model, with the learned values in
its files; `ch.properties(spec, length, dtype)` measures a spec:

```sh (not run: the first file is yours)
clockhands properties model.gguf                      # every group of layers, over the context length
clockhands properties vaswani2017 --length 512        # a preset
clockhands properties table.npy --dtype bfloat16      # a table without a model, rounded to bfloat16
```

```python
import clockhands as ch

report = ch.properties(ch.Rotary(head_width=64, base=100_000.0), 8192)  # the frequencies of SmolLM2
print(report.turning.brief)  # 12 of 32 pairs
print(report.base_bound.holds, report.base_bound.numbers["first_failing_distance"])  # False 3616
print(ch.properties(ch.Alibi(heads=8), 8192).unique.state)  # not applicable
```

A property is *measured*, *not computed* (values are missing, or it would take too long) or *not applicable* to the
encoding, with the reason. The numbers are in `numbers` and in `--json` ([JSON output](json.md)). This file is made by
`tools/properties_document.py`.

"""

MEANS = {
    "bounded": (
        "If an added encoding grows with the position, the encoding dominates the token and overflows in float16 above "
        "65,504. A rotation keeps the length of queries and keys. A bias that grows with the distance suppresses "
        "distant tokens."
    ),
    "unique": (
        "Two positions whose values are equal to the last bit of the dtype cannot be distinguished. The report names "
        "the first two equal positions; if no positions are equal, it names the two nearest positions and their "
        "distance. Rounding the positions themselves is a separate and worse problem: bfloat16 has 769 of the integers "
        "below 4,096."
    ),
    "smooth": (
        "The step is the distance between the rows of neighbouring positions. The step should be small compared with "
        "the distance of two random positions, because otherwise near and far positions look the same. The step should "
        "also be the same everywhere, because otherwise neighbours differ more in one place than in another."
    ),
    "longer_texts": (
        "A model that is trained at a length has met the values within it. In longer texts, a dimension pair that "
        "completes a rotation within the length repeats its angles, and any other pair reaches new angles. T5's "
        "buckets repeat if the length reaches the last of them; ALiBi's biases are all new; a learned table has no "
        "rows left. The answer is yes if the encoding is defined past the length and no part of it is new there. The "
        "combination of all parts is still new at every unique position, so the answer yes does not say that a model "
        "works there, and the answer no does not say that it fails: that has to be measured (see below)."
    ),
    "shift": (
        'If a shift by k tokens is one fixed rotation, the same at every position, attention can learn "k tokens back" '
        "once and use it everywhere. If a shift is no fixed rotation, the best linear map is fitted to some rows and "
        "tested on others. What the best map *leaves* is the share of variance that the map does not explain: 0 % for "
        "a perfect map, 100 % for a useless one."
    ),
    "kernel": (
        "The similarity of two positions is the sum of cos(frequency x distance) over all dimension pairs, divided by "
        "the sum at distance 0. The similarity falls at first and then oscillates. The report gives the distance up to "
        "which the similarity falls, how often it rises, and where it is first negative. If the similarity depends on "
        "more than the distance, the report says how much of the similarity the distance explains."
    ),
    "turning": (
        "Each dimension pair rotates at its own frequency. A pair that does not complete a rotation within the "
        "length reaches angles in longer texts that never occurred in training."
    ),
    "cover": (
        "A dimension pair resolves distances that are neither far below its wavelength (the pair hardly rotates) nor "
        "above its wavelength (the angles repeat). The report gives the distances within the length that no pair "
        "resolves, and how many distances would be unresolved with other bases."
    ),
    "base_bound": (
        "A head that gives every dimension pair equal weight scores a token matching its query in proportion to the "
        "sum of cos(frequency x distance) over all pairs, in the mean. If this sum is negative at a distance, a random "
        "token scores higher in the mean. Single tokens may score otherwise, and so may heads that weight the pairs "
        "differently, as trained ones do. The base must be large enough for the length, but a larger base is not "
        "always enough: some ranges above the smallest valid base fail again."
    ),
    "critical_dimension": (
        "The critical dimension is the number of dimensions whose pair completes at least one rotation within the "
        "training length. The angles of the other dimensions were only partly covered in training, so these other "
        "dimensions fail first beyond the training length."
    ),
    "spectrum": (
        "The rows of a position table need not use all dimensions. If a few directions hold 99 % of the variance of "
        "the rows, the other directions are left to the tokens."
    ),
    "precision": (
        "An angle is position x frequency. If an angle is computed in float32, or in 16 bits, its error grows with the "
        "position. For a bias, the value of the bias itself is rounded."
    ),
    "adding": (
        "Adding an encoding changes the token. A token is *still found* if, after the encoding is added, it is nearer "
        "to itself than to any other of 50,000 random tokens. How many tokens are still found depends on the size of "
        "the tokens. Tokens with a standard deviation of 1 per dimension are still found. Tokens with a standard "
        "deviation of 1/sqrt(width), without the factor sqrt(width) of Vaswani et al. 2017, are often not found."
    ),
    "reach": (
        "The reach of a head is the distance at which a key's weight falls to a hundredth of the weight of the query's "
        "own position, with only the bias between the two keys. The report gives the reach of the head with the "
        "shortest reach and of the head with the longest."
    ),
    "edges": (
        "Some biases group distances in buckets and learn one value for each bucket. A head cannot distinguish two "
        "distances in one bucket. The report gives where each bucket begins, and from which distance on all distances "
        "share one bucket."
    ),
    "told_apart": (
        "Two distances with the same value are the same to a head, whether the two distances share a bucket or are "
        "equal after rounding. The report names the first two distances with the same value."
    ),
}
"""What each property means, for a reader who has not seen the code."""

HOW = (
    f"The tables below are measured over {LENGTH:,} tokens in {DTYPE}. Encodings have {WIDTH} dimensions unless the "
    f"name gives another number, RoPE heads have {HEAD_WIDTH} dimensions, and biases have {HEADS} heads. Random values "
    "replace trained values; the random values are normal and always the same. Rows of tables have a standard "
    "deviation of 0.02, as before training, frequencies have 0.1, biases have 1, and the weights of Fire and "
    "LogWindow have 0.1. `ch.properties` gives the same answers as sentences, with the reason if a property is *not "
    "applicable* or was *not computed*."
)

POSITIONS = (100, 1_000, 4_096, 32_768, 131_072, 1_000_000)
SPREAD = 97  # positions that are looked at in the last tenth before each
BASES = (10_000, 500_000, 1_000_000)
ANGLES = (
    f"The tables below give the largest error of an angle over the {HEAD_WIDTH // 2} pairs of a head of {HEAD_WIDTH} "
    f"dimensions, in radians. The error is measured at {SPREAD} positions in the last tenth before each position "
    "named. An error of 3.14 is half a rotation: the angle is then lost. The first three rows of a dtype round one "
    "step of the computation and compute the rest exactly. The fourth row computes all steps in that dtype, and the "
    "last two rows also compute the frequencies in that dtype, in the two usual ways. A single position can be "
    "misleading, above all a power of two. Float16 cannot represent 500,000, so frequencies computed from the base "
    "500,000 in float16 are 0. The float32 cosines and sines of this library are within 2^-25 at every position up to "
    "2^63, because this library rounds none of these steps."
)

FIGURES = (
    "This section lists the names in `numbers` and in `--json`. The accuracy of each number is documented, and where "
    "possible derived, in the modules of `clockhands.measures`. Distances and wavelengths are in tokens, angles in "
    "radians; `n` is the length, `w` a frequency, `g` the sum of the cosines of all pairs. The value None is `null` "
    "in JSON."
)
ALSO = {
    "clockhands.measures.biases.bounded": ["bounded, of biases"],
    "clockhands.measures.biases._diagonals": ["shift, of biases"],
}
BULLET = re.compile(r"^\* .*(?:\n  .*)*", re.MULTILINE)
UNBROKEN: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}

TABLES = (
    ("The values of a position", ("bounded", "unique", "smooth", "longer_texts", "shift")),
    ("Similarity and frequencies", ("kernel", "turning", "cover", "base_bound", "critical_dimension")),
    ("Directions, precision, and the token", ("spectrum", "precision", "adding")),
)
BIASES = ("bounded", "longer_texts", "shift", "precision", "reach", "edges", "told_apart")


def drawn(*shape: int, spread: float = 1.0) -> np.ndarray:
    """Numbers in place of trained ones: normal, always the same."""
    return np.random.default_rng(SEED).normal(0.0, spread, shape).astype(np.float32)


def added() -> Iterable[tuple[str, Any, Any]]:
    """Codes that are added to the token: name, spec, learned numbers."""
    yield "Sinusoidal, the paper's (base 10,000)", ch.Sinusoidal(WIDTH), None
    yield "Sinusoidal, tensor2tensor's (closed span)", ch.preset("tensor2tensor", width=WIDTH), None
    yield "Sinusoidal, width 64", ch.Sinusoidal(64), None
    yield "AxialSinusoidal, rows and columns (MAE)", ch.preset("mae", width=WIDTH), None
    yield "FourierFeatures, random frequencies", FourierFeatures(WIDTH, 1, 1.0), drawn(WIDTH // 2, spread=0.1)
    yield "Learned, random rows", ch.Learned(WIDTH, LENGTH), drawn(LENGTH, WIDTH, spread=0.02)
    yield "NoPosition", ch.NoPosition(WIDTH), None
    yield "Counter (the number itself)", Counter(WIDTH), None
    yield "NormalizedCounter (number / length)", NormalizedCounter(WIDTH, LENGTH), None
    yield "Binary (the bits of the number)", Binary(WIDTH), None
    yield "SineOnly (no cosines)", SineOnly(WIDTH), None
    yield "SingleFrequency (one frequency for all)", SingleFrequency(WIDTH), None
    yield "EvenlySpaced (frequencies 1 to 0.0001)", EvenlySpaced(WIDTH), None
    for warp, of in (("square", "p^2"), ("log", "log p"), ("reciprocal", "1/p")):
        yield f"WarpedPosition ({of} in place of p)", WarpedPosition(WIDTH, warp), None


def turned() -> Iterable[tuple[str, Any, Any]]:
    """Codes that turn queries and keys."""
    pairs = HEAD_WIDTH // 2

    def rotary(**more: Any) -> Rotary:
        return Rotary(HEAD_WIDTH, **more)

    yield "Rotary, half-split, base 10,000", rotary(), None
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
        ("Slopes, half of ALiBi's", Slopes(tuple(slope / 2 for slope in ch.Alibi(HEADS).slopes))),
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


def longer_texts() -> str:
    """What the properties say about texts past the length, and what they do not; the loss is that of the claim."""
    ratio = CLAIMS["sinusoids-extrapolate"].numbers["measured_loss_ratio_of_128_to_64_tokens"].text
    return (
        'That a model "generalises" past a length is not a property of the encoding alone. Sinusoids and RoPE are '
        "defined at any position, *bounded* at any position, and *shift* by the same rotation everywhere, yet "
        "models with them can fail: small models with sinusoids, trained on 64 tokens, have a loss on texts of 128 "
        f"tokens that is {ratio} times that on texts of 64 (the claim "
        "[sinusoids-extrapolate](claims.md#sinusoids-extrapolate)). Models trained on 1,024 tokens have the following "
        "perplexities at 1,024 and at 16,024 tokens: 19.34 and 453.32 with sinusoids, 19.33 and 106.99 with RoPE, "
        "18.66 and 17.98 with ALiBi (Press et al. 2022, arXiv:2108.12409, table 3). Models trained on 512 tokens have "
        "33 and 30,046 with sinusoids at 512 and at 16,384 tokens, and 23.9 and 22.5 with ALiBi (Chi et al. 2022, "
        "KERPLE, arXiv:2205.09921). So ALiBi works where every bias is new, probably because its biases hide tokens "
        "that are far away (appendix B of its paper), and RoPE fails where only some angles are new."
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
    parts += ["## Longer texts\n\n", prose(longer_texts())]
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
