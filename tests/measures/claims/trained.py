"""What was measured of trained models, from the seeds of the stored results: of 3 the interval is their range."""

import json
from pathlib import Path
from statistics import fmean

import clockhands.measures.claims

RESULTS = Path(clockhands.measures.claims.__file__).with_name("results")
STUDIES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}


def seeds(study, *path):
    """The number of each seed, as it is stored: task, arm, [variant, protocol,] measure and length."""
    task, arm, *path = path
    *where, measure, length = path
    if not where:
        where = ["as trained", "whole"]
    found = STUDIES[study]["tasks"][task]["cells"][arm]
    for step in (*where, measure, str(length)):
        found = found[step]
    return found[3:]


def of_training(study, task, arm, measure):
    """The number of each seed, of a measure without a length."""
    return STUDIES[study]["tasks"][task]["training"][arm][measure][3:]


def less(one, other):
    """Differences seed by seed."""
    return [a - b for a, b in zip(one, other, strict=True)]


def over(one, other):
    """Ratios seed by seed."""
    return [a / b for a, b in zip(one, other, strict=True)]


def ratio(arm, length, protocol="whole"):
    """Losses over those at 64 tokens, in the study `extrapolation`."""
    own, trained = (seeds("extrapolation", "language", arm, "as trained", protocol, "loss", n) for n in (length, 64))
    return over(own, trained)


def text(study, arm, length=64, variant="as trained"):
    """Losses of text."""
    return seeds(study, "language", arm, variant, "whole", "loss", length)


def t5(arm, length, protocol="whole"):
    """Losses of text, in the study `t5-distance`."""
    return seeds("t5-distance", "language", arm, "as trained", protocol, "loss", length)


def right(study, task, arm, length=64):
    """The mean share of right answers."""
    return fmean(seeds(study, task, arm, "accuracy", length))


def that_recall(*bases):
    """How many seeds recall at least 0.9 of the keys, by base."""
    return {
        f"seeds_of_3_that_learn_to_recall_with_base_{base}": len(
            [share for share in seeds("base-bound", "recall", f"base_{base}", "accuracy", 64) if share >= 0.9]
        )
        for base in bases
    }


def untrained_rows_cost(length):
    """Losses with untrained rows of a learned table, less those of sinusoids."""
    return less(text("extrapolation", "learned_long", length), text("extrapolation", "sinusoidal", length))


def of_other_slopes():
    """Losses at 256 tokens over those at 64, of each model whose slopes are not ALiBi's own."""
    return [
        ratio for arm in ("doubled", "halved", "drawn") for ratio in over(text("slopes", arm, 256), text("slopes", arm))
    ]


def of_removed(control):
    """Losses without the encoding, less those of the same model with it, or of one that never had one."""
    return [
        rise
        for arm in ("learned", "sinusoidal", "rotary", "alibi")
        for rise in less(
            text("ablation", arm, variant="removed"), text("ablation", arm if control == "removed" else control)
        )
    ]


def cell(task, arm, times=1, variant="as trained", protocol="whole"):
    """Losses of text at a number of trained lengths, in a cell of the study `conclusions`."""
    length = times * STUDIES["conclusions"]["tasks"][task]["length"]
    return seeds("conclusions", task, arm, variant, protocol, "loss", length)


def cells(numbers):
    """What is computed of each cell that was run, together."""
    return [each for task in STUDIES["conclusions"]["tasks"] for each in numbers(task)]


def removed(task, arm):
    """Losses without the code that a model was trained with, above those of models that never had one."""
    return less(cell(task, arm, variant="removed"), cell(task, "none"))
