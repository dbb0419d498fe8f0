"""The biases of the models on a page: what each head adds to a score, by trained numbers where a file holds them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.auditing import Audit
from clockhands.auditing.target_properties import held_codes
from clockhands.biases import Alibi, Buckets
from clockhands.errors import ClockhandsError
from clockhands.sources import open_target
from clockhands.specs import to_dict

MOST_NUMBERS = 2**15
"""Of one table that goes into a page; T5's have at most 32 x 128."""


def model_biases(audits: Sequence[Audit]) -> list[dict[str, Any]]:
    """ALiBi's slopes and T5's buckets of each model, plain JSON values.

    Args:
        audits: What was found in each target. A table's trained numbers are read from the target once more, where it
            is a file or a folder.

    Returns:
        For each bias the ``model`` by its place, the ``part`` and ``layers`` that it belongs to, its ``spec`` as
        `clockhands.specs.to_dict` gives it, and its ``values``: ``{"table": rows}``, a number for each head in each
        row; None where it is computed, or the numbers cannot be read.
    """
    found: list[dict[str, Any]] = []
    for number, audit in enumerate(audits):
        own = [(code, code.spec) for code in audit.layers if isinstance(code.spec, Alibi | Buckets)]
        trained = _tables(audit.target) if any(spec.learned for _, spec in own) else {}
        for code, spec in own:
            table = trained.get((code.part, code.layers))
            found.append(
                {
                    "model": number,
                    "part": code.part,
                    "layers": code.layers,
                    "spec": to_dict(spec),
                    "values": None if table is None else {"table": table.tolist()},
                }
            )
    return found


def _tables(target: str) -> dict[tuple[str, str | None], np.ndarray]:
    """The trained tables of a target by part and layers; those that cannot be read are not among them."""
    if not Path(target).exists():  # a preset, standard input, or a module that was loaded
        return {}
    try:
        held = list(held_codes(open_target(target)))
    except ClockhandsError:
        return {}
    return {
        (code.part, code.layers): np.asarray(one.values, dtype=np.float64)
        for code, one in held
        if one.values is not None and np.size(one.values) <= MOST_NUMBERS and np.ndim(one.values) == 2
    }
