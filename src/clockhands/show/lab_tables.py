"""The numbers of a study as one table in Markdown, CSV or LaTeX: a mean over seeds in each row."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clockhands.errors import InvalidValue
from clockhands.lab.results import Results
from clockhands.lab.store import KEPT_MODEL

HEADS = ("task", "arm", "variant", "protocol", "length", "step", "measure", "seeds", "mean", "low", "high", "brackets")
"""``low`` and ``high`` are the ends of ``brackets``: a 95 % interval by Student's t, or the range of the seeds.

A kept model has its ``step``; all others are those of the end of the training.
"""


def table_of(results: Results, file: Path) -> str:
    """The table in the form that the name of the file ends in: ``.md``, ``.csv`` or ``.tex``.

    Raises:
        InvalidValue: It ends otherwise.
    """
    if file.suffix not in FORMS:
        raise InvalidValue(f"The table {file} has no known form.", f"End its name in one of: {', '.join(FORMS)}.")
    rows = [
        _row(task, own)
        for task, stated in results.to_dict()["tasks"].items()
        for own in [*stated["cells"], *(_OF_KEPT_MODELS | each for each in stated["kept_models"])]
    ]
    return FORMS[file.suffix](rows)


_OF_KEPT_MODELS = {"variant": KEPT_MODEL, "protocol": ""}


def _row(task: str, own: Mapping[str, Any]) -> list[str]:
    low, high = own["interval"] or (own["low"], own["high"])
    brackets = "95 % interval" if own["interval"] else "" if low is None else "range"
    numbers = ("" if each is None else f"{each:.6g}" for each in (own["mean"], low, high))
    where = (own["arm"], own["variant"], own["protocol"], str(own["length"]), str(own.get("step", "")), own["measure"])
    return [task, *where, str(len(own["seeds"])), *numbers, brackets]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return "".join(f"| {line} |\n" for line in (" | ".join(HEADS), " | ".join("---" for _ in HEADS), *lines))


def _csv(rows: Sequence[Sequence[str]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([HEADS, *rows])
    return written.getvalue()


_LATEX = str.maketrans(
    {each: f"\\{each}" for each in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def _latex(rows: Sequence[Sequence[str]]) -> str:
    lines = (f"{' & '.join(cell.translate(_LATEX) for cell in row)} \\\\\n" for row in (HEADS, *rows))
    return f"\\begin{{tabular}}{{{'l' * len(HEADS)}}}\n{''.join(lines)}\\end{{tabular}}\n"


FORMS: Mapping[str, Callable[[Sequence[Sequence[str]]], str]] = {".md": _markdown, ".csv": _csv, ".tex": _latex}
