"""A bound on positions that raises: RoPE itself has a rotation for every position, also far beyond the trained ones."""

import sys
from typing import Any

from clockhands import traces
from clockhands.arguments import count
from clockhands.errors import InvalidType, InvalidValue
from clockhands.grids import at_origin
from clockhands.positions import Positions


def within(positions: Any, limit: int, name: str = "positions") -> Any:
    """The same positions, if all of them are below ``limit``; call it once a step, before the positions are used.

    Negative positions, such as those of left padding, are allowed.

    What happens at a position of ``limit`` or more depends on where the numbers are:

    * known ones (a count, a range, a list, NumPy, PyTorch on the CPU, JAX outside of a trace): `InvalidValue`;
    * PyTorch on a GPU: nothing is copied or waited for; CUDA reports a device-side assert at the next call that waits;
    * in a graph of ``torch.compile`` or ``torch.export``: RuntimeError whenever the graph runs (on a GPU as above);
    * in a trace of JAX: a check of ``jax.experimental.checkify``. Wrap the traced function in ``checkify.checkify``;
      otherwise JAX refuses to trace it.

    Args:
        positions: As in `clockhands.rotate`: an array, a list, a range, or a count.
        limit: The number of positions allowed, such as the trained context: 0 to ``limit - 1``.
        name: What the caller names the positions.

    Raises:
        InvalidValue: A known position is ``limit`` or more.
        InvalidType: They are no positions, or exist only inside a ``vmap`` of PyTorch, which has no such check.

    >>> within([0, 1, 2], 4096)
    [0, 1, 2]
    """
    limit = count("limit", limit)
    if traces.is_traced(positions) or traces.stay(positions):
        _check_inside(positions, limit, name)
        return positions
    if traces.is_compiling():  # a count that may be open, or a list: their exact numbers cannot be computed in a graph
        _check_inside(traces.as_tensor(positions, "cpu"), limit, name)
        return positions
    at = at_origin(positions, name)
    beyond = _first_beyond(at, limit)
    if beyond is not None:
        raise InvalidValue(
            f"`{name}` must be below the limit of {limit:,}, got {beyond:,}.",
            "Shorten the text, or use a model or a RoPE scaling made for this length.",
        )
    return positions


def _first_beyond(at: Positions, limit: int) -> int | float | None:
    """The first position of ``limit`` or more."""
    if at.progression:
        ends = [at.element(index) for index in (0, at.size - 1)] if at.size else []
        return next((end for end in ends if end >= limit), None)
    sizes = at.sizes(0, at.size)
    beyond = sizes.whole >= limit
    if sizes.negative is not None:
        beyond &= ~sizes.negative
    return at.element(int(beyond.argmax())) if beyond.any() else None


def _check_inside(positions: Any, limit: int, name: str) -> None:
    """Leave a check where the numbers will be."""
    says = f"`{name}` must be below the limit of {limit:,}."
    if traces.library_of(positions) == "jax":
        from jax.experimental import checkify

        checkify.check((positions < limit).all(), says + " Got {most}.", most=positions.max(initial=0))
        return
    torch = sys.modules["torch"]
    if not traces.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(positions):  # noqa: SLF001
        raise InvalidType(
            f"`{name}` are inside a transform of torch.func, where a limit cannot be checked.",
            "Call within(…) before the transform.",
        )
    torch._assert_async((positions < limit).all(), says)  # noqa: SLF001 - PyTorch has no public one that does not wait
