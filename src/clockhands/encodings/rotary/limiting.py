"""`within`, a check that positions stay below a limit: RoPE itself accepts positions beyond the trained context."""

from typing import Any

from clockhands.arguments import count
from clockhands.encodings import traces
from clockhands.encodings.grids import at_origin
from clockhands.encodings.positions import Positions, refuse_narrow
from clockhands.errors import InvalidType, InvalidValue


def within(positions: Any, limit: int, name: str = "positions") -> Any:
    """Return the positions if all are below ``limit``, else raise; call it once per step, before they are used.

    Negative positions, such as those of left padding, are allowed.

    What happens at a position of ``limit`` or more depends on where the numbers are:

    * known ones (a count, a range, a list, NumPy, PyTorch on the CPU, JAX outside of a trace): `InvalidValue`;
    * PyTorch on a GPU: CUDA reports a device-side assert at the next synchronising call; nothing is copied to the CPU;
    * in a graph of ``torch.compile`` or ``torch.export``: RuntimeError whenever the graph runs (on a GPU as above);
    * in a trace of JAX: a check of ``jax.experimental.checkify``. Wrap the traced function in ``checkify.checkify``;
      otherwise JAX refuses to trace it.

    Args:
        positions: As in `clockhands.rotate`: an array, a list, a range, or a count.
        limit: The number of positions allowed, such as the trained context length: 0 to ``limit - 1``.
        name: The argument's name in error messages.

    Raises:
        InvalidValue: A known position is ``limit`` or more.
        InvalidType: They are not positions, or they are inside a PyTorch ``vmap``, which supports no such check.

    >>> within([0, 1, 2], 4096)
    [0, 1, 2]
    """
    limit = count("limit", limit)
    if traces.is_traced(positions) or traces.stay(positions):
        _check_inside(positions, limit, name)
        return positions
    if traces.is_compiling():  # a count that may be symbolic, or a list: exact positions cannot be computed in a graph
        _check_inside(traces.as_tensor(positions, "cpu"), limit, name)
        return positions
    at = at_origin(positions, name)
    beyond = first_beyond(at, limit)
    if beyond is not None:
        raise InvalidValue(
            f"`{name}` must be below the limit of {limit:,}, got {beyond:,}.",
            "Shorten the text, or use a model or a RoPE scaling made for this length.",
        )
    return positions


def first_beyond(at: Positions, limit: int) -> int | float | None:
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
    """Add a check to the graph, trace or device queue in which the values will be known."""
    refuse_narrow(positions, name)
    says = f"`{name}` must be below the limit of {limit:,}."
    if traces.library_of(positions) == "jax":
        from jax.experimental import checkify

        checkify.check((positions < limit).all(), says + " Got {most}.", most=positions.max(initial=0))
        return
    from clockhands.encodings.compiling import assert_later, is_transformed

    if not traces.is_compiling() and is_transformed(positions):
        raise InvalidType(
            f"`{name}` are inside a transform of torch.func, where a limit cannot be checked.",
            "Call within(…) before the transform.",
        )
    assert_later((positions < limit).all(), says)
