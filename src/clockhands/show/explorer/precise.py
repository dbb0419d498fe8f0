"""What Python puts into the page where the page's own double precision ends: where hands stand at far positions.

A browser has one kind of number, the double, and `position * rate` is worth nothing once its last digit is a turn.
The positions here lie beyond that, and the angles come from `clockhands.phases`, which multiplies in integers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from clockhands.ladders import Ladder
from clockhands.phases import units
from clockhands.positions import positions_of

# From where position * rate is no longer to be drawn, up to the last whole number that every double below it reaches.
POSITIONS = (2**40, 10**13, 10**14, 10**15, 2**53 - 1)
HANDS = 6  # of each ladder, evenly from the fastest to the slowest


def precise(ladders: Mapping[str, Ladder]) -> dict[str, Any]:
    """Angles of some hands of each ladder at positions that a page cannot compute by itself, plain JSON values.

    Args:
        ladders: By the names that the page has for their codes.

    Returns:
        ``positions``, and for each ladder under ``codes`` its ``pairs`` and ``angles``, a list for each position of
        one angle in rad for each of these pairs, from -pi to pi.

    Accuracy: an angle is within ``2**-50`` rad of the real one.

    >>> from clockhands import preset
    >>> found = precise({"vaswani2017": preset("vaswani2017").ladder})["codes"]["vaswani2017"]
    >>> found["pairs"], round(found["angles"][0][0], 6)
    ([0, 51, 102, 153, 204, 255], -2.723843)
    """
    return {"positions": list(POSITIONS), "codes": {name: _of(ladder) for name, ladder in ladders.items()}}


def _of(ladder: Ladder) -> dict[str, Any]:
    last = ladder.pairs - 1
    pairs = sorted({round(last * step / (HANDS - 1)) for step in range(HANDS)})
    some = Ladder(tuple(ladder.exact[pair] for pair in pairs))
    return {"pairs": pairs, "angles": np.angle(units(some, positions_of(list(POSITIONS)))).tolist()}
