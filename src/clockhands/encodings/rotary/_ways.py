"""Select the rotation for an array's library: the plain formula, or a faster implementation of it.

`clockhands.rotary.formula.plain` is the definition. A library with a faster implementation has a row in `WAYS`.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clockhands.encodings.rotary._cosines import CosSin
from clockhands.encodings.rotary._spec import Rotary
from clockhands.encodings.rotary.formula import plain
from clockhands.encodings.traces import device_of, is_traced, library, library_of, stay


def rotated_by_library(x: Any, cosine: Any, sine: Any, spec: Rotary) -> Any:
    """``x`` rotated by the implementation for its library.

    ``cosine`` and ``sine`` broadcast to its pairs. They are NumPy arrays, or arrays of the library where traced.
    """
    way = WAYS.get(library_of(x))
    if way is not None:
        return way()(x, cosine, sine, spec)
    xp = library(x)
    if isinstance(cosine, np.ndarray):
        cosine, sine = (xp.asarray(part, device=device_of(x)) for part in (cosine, sine))
    return plain(x, cosine, sine, spec, xp)


def in_one_kernel(spec: Rotary, by: Any, heads: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...] | None:
    """One or two arrays of heads rotated in one kernel on their device; None where that is not possible.

    ``by`` is positions on that device, or a tuple of cosine and sine. Positions on the CPU and traced ones are not
    supported; their cosine and sine are computed separately.
    """
    if (
        library_of(heads[0]) != "torch"
        or heads[0].device.type == "cpu"
        or is_traced(by)
        or not (isinstance(by, tuple) or stay(by))
    ):
        return None
    from clockhands.encodings.rotary._torch_way import in_one_kernel as of_torch

    return of_torch(spec, by, heads, axes)


def phases_in_one_kernel(spec: Rotary, positions: Any) -> tuple[Any, Any] | None:
    """Cosine and sine at positions on a GPU, computed there in one kernel; None where that is not possible."""
    if is_traced(positions) or not stay(positions):
        return None
    from clockhands.encodings.rotary._torch_way import phases_in_one_kernel as of_torch

    return of_torch(spec, positions)


def step(  # noqa: PLR0917 - what `rotate` was called with
    spec: Rotary,
    heads: tuple[Any, ...],
    positions: Any,
    seq_axis: int,
    roles: tuple[str | None, ...],
    pairs: tuple[CosSin | None, ...],
) -> list[Any] | None:
    """Heads rotated without checks if heads of the same shapes were rotated before; else None."""
    steps = _steps(heads[0])
    return None if steps is None else steps.step(spec, heads, positions, seq_axis, roles, pairs)


def first_step(  # noqa: PLR0917 - what `rotate` was called with
    spec: Rotary, x: Any, positions: Any, seq_axis: int, role: str | None, pair: CosSin | None, turns: tuple[Any, Any]
) -> Any:
    """Heads rotated by cosine and sine that broadcast to their pairs, cached for `step`; or None."""
    steps = _steps(x)
    return None if steps is None else steps.first_step(spec, x, positions, seq_axis, role, pair, turns)


def _steps(x: Any) -> Any:
    """The module that caches steps of heads like ``x``; None where there is none."""
    torch = sys.modules.get("torch")
    if torch is None or type(x) is not torch.Tensor or torch.compiler.is_compiling():
        return None
    from clockhands.encodings.rotary import _torch_steps

    return _torch_steps


def placed(part: Any, like: Any) -> Any:
    """Cosines or sines as an array that the caller may keep, in the library and on the device of ``like``.

    The spec caches the NumPy arrays, so NumPy callers get them read-only, and PyTorch and JAX get copies.
    """
    theirs = library_of(like)
    if not isinstance(part, np.ndarray):  # traced: PyTorch's and JAX's own
        return part.to(like.device) if theirs == "torch" else part
    if theirs == "numpy":
        view = part.view()
        view.flags.writeable = False
        return view
    if theirs == "torch":
        from clockhands.encodings.rotary._torch_way import copied

        return copied(part, like)
    if theirs == "jax":
        from clockhands.encodings.rotary._jax_way import copied

        return copied(part, like)
    return library(like).asarray(part, device=device_of(like), copy=True)


def converted(part: Any, like: Any, work: str) -> Any:
    """A copy of an array of the library of ``like``, in this dtype and on the device of ``like``, without gradients."""
    if library_of(like) == "torch":
        import torch

        return part.detach().to(like.device, getattr(torch, work), copy=True)
    xp = library(like)
    made = xp.astype(part, getattr(xp, work), copy=True)
    return made if is_traced(made) or is_traced(like) else xp.asarray(made, device=device_of(like))


def _numpy_way() -> Callable[..., Any]:
    from clockhands.encodings.rotary._numpy_way import rotated_by_library

    return rotated_by_library


def _torch_way() -> Callable[..., Any]:
    from clockhands.encodings.rotary._torch_way import rotated_by_library

    return rotated_by_library


def _jax_way() -> Callable[..., Any]:
    from clockhands.encodings.rotary._jax_way import rotated_by_library

    return rotated_by_library


# Library -> a function that imports its faster implementation; other libraries use `plain`. PyTorch's compiler can
# trace an import statement, but not `import_module`.
WAYS = {"numpy": _numpy_way, "torch": _torch_way, "jax": _jax_way}
