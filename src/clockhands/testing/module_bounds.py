r"""How far a module may be from what it answered before.

With ``u`` half the distance of neighbouring numbers of the dtype of the answer (the coarser one of both answers):

**The same arithmetic.** A treatment that leaves the numbers alone leaves cosine, sine, products and sum to be rounded
to the dtype of the tokens: ``4 u`` of a pair's length, as in `clockhands.testing.bounds`. Tokens are +1 and -1, so a
pair of them is ``sqrt(2)`` long, and no turned one is longer than ``sqrt(2)`` times the largest number that came back;
a code that is added is rounded twice, which is less. A bias is rounded three times at most (the slope, the distance,
their product), relative to itself: ``4 u |bias|``. Its parameters are those of the question that it is compared with.

Cast to a coarser dtype and back, computed numbers may stay rounded to it once, as the learned ones beside them do:
``u`` is then that of the coarser dtype. Rates that stay rounded are off by that much of a phase, which grows with the
position and is not allowed.

**Other arithmetic.** What was compiled, cast to float64 or computed anew may have made its rates and phases by other
operations, as right as the first. A phase ``p r`` made in float32 is off by ``2**-24 p r (3 |ln r| + 5)``, which for
rates up to 1 is largest at ``r = 1``, where it is ``5 x 2**-24 p``; twice that lies between two right ones, and as much
again passes through a scaling. It is ``20 x 2**-24 p`` times the fastest rate, where that is above 1. Biases, likewise,
may be off by 20 roundings in float32.
"""

from typing import TYPE_CHECKING

import numpy as np

from clockhands.testing.bounds import TINY, UNIT

if TYPE_CHECKING:  # it imports PyTorch, and the bounds need none
    from clockhands.testing.module_asking import Asking, Heard

_OTHER = 20 * 2.0**-24


def allowed(asking: "Asking", wanted: "Heard", dtype: str, another: bool, fastest: float) -> np.ndarray:
    """How far each number of an answer may be off.

    Args:
        asking: What was asked.
        wanted: The answer that it is compared with.
        dtype: Of the answer.
        another: Whether other arithmetic may have made it.
        fastest: The largest rate, if above 1 rad/token.
    """
    unit, tiny = (max(kind[dtype], kind[wanted.dtype]) for kind in (UNIT, TINY))
    if asking.kind == "bias":
        size = np.where(np.isfinite(wanted.rows), np.abs(wanted.rows), 0.0)
        return 1.01 * size * (4 * unit + (_OTHER if another else 0.0)) + 4 * tiny
    size = np.sqrt(2) * max(1.0, wanted.size)
    moved = np.minimum(_OTHER * np.abs(wanted.positions) * fastest, 2.0) if another else 0.0 * wanted.positions
    return np.broadcast_to((1.01 * size * (4 * unit + moved) + 4 * tiny)[:, None], wanted.rows.shape)
