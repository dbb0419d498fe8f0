"""Cosine and sine at positions inside a trace (``jit``, ``vmap``, ``torch.compile``) or on an accelerator.

In a trace a position is a placeholder, so NumPy cannot compute the phase. Frameworks have no 128-bit integers, and JAX
by default not even 64-bit ones. ``position.astype(float32) * rate`` is already off by 0.03 rad at 500,000. So the
fraction of a full rotation (a turn) is computed in 32-bit words, from products of 16-bit halves, by the method that
`clockhands.encodings.phases` uses with 64-bit words.

Let ``F`` be a rate's turns per token as a fraction of 128 bits, in words ``F3 F2 F1 F0``, and ``|p| = s1 2**32 + s0``.
In units of 2**-32 turns, modulo 2**32, the phase is ``s0 F3 + high(s0 F2) + s1 F2 + high(s1 F1)``. The truncation is
less than 3 units, with the rest of ``F`` less than 4: 2 pi x 4 x 2**-32 < 2**-27 rad. The phase is reduced exactly to
quarter turns and a rest of at most an eighth. The rest becomes an angle as ``rh C1 + (rh C2 + rl C1)``, with ``rh`` its
upper 23 bits and ``C1 + C2`` the radians of a unit in two float32: two roundings, at most ``2 x pi/4 x 2**-24``. A
float32 sine or cosine within 2 ulp (2**-23) there adds ``2 x 2**-24``. Together less than ``1.58 + 2 + 0.13`` units of
2**-24: below ``BOUND = 2**-22``.

All integers of the traced dtype are reduced exactly: int32 up to 2**31 - 1, and int64 where the library has it.

Positions on an accelerator are computed in the same way outside of a trace too: reading their values would copy them to
the CPU and synchronise.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

from clockhands.encodings.constants import Source
from clockhands.encodings.grids import at_origin
from clockhands.encodings.ladders import Ladder
from clockhands.errors import InvalidType, InvalidValue

BOUND = 2.0**-22

# What has no library of its own; a tuple, because torch.compile cannot build a union of types.
_NOT_BESIDE = (np.ndarray, np.generic, range)
_WORD, _HALF = 0xFFFFFFFF, 0xFFFF
UNIT_HIGH = float(np.float32(2 * np.pi / 2**32))
UNIT_LOW = float(np.float32(2 * np.pi / 2**32 - UNIT_HIGH))


def is_traced(positions: Any) -> bool:
    """Whether these are an array whose values are not known yet (a tracer, a fake tensor or a proxy)."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(positions, jax.core.Tracer):
        return True
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(positions, torch.Tensor):
        return False
    if torch.compiler.is_compiling() or positions.device.type == "meta":
        return True
    return _placeholder_test()(positions)


@cache
def _placeholder_test() -> Callable[[Any], bool]:
    """PyTorch's test, imported once: an import statement in each call costs as much as the test."""
    from clockhands.encodings.compiling import is_placeholder

    return is_placeholder


def stay(positions: Any) -> bool:
    """Whether the phases of these positions are computed where the positions are: in a trace, or on an accelerator.

    On an accelerator this applies to integers only; real positions are computed exactly on the CPU.
    """
    if is_traced(positions):
        return True
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and isinstance(positions, torch.Tensor)
        and positions.device.type != "cpu"
        and not (positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool)
    )


def refuse_recording(*arrays: Any) -> None:
    """Refuse PyTorch's recording tracers, which would silently turn these positions into constants.

    Raises:
        InvalidValue: An array is inside ``torch.jit.trace`` or ``torch.fx.symbolic_trace``.
    """
    torch = sys.modules.get("torch")
    if torch is None or torch.compiler.is_compiling():
        return
    if any(isinstance(array, torch.fx.Proxy) for array in arrays):
        raise InvalidValue(
            "torch.fx.symbolic_trace cannot record positions: it knows neither their numbers nor a shape.",
            "Use torch.compile or torch.export; or make the module a leaf, by is_leaf_module of a torch.fx.Tracer.",
        )
    if torch.jit.is_tracing() and any(isinstance(array, torch.Tensor) for array in arrays):
        raise InvalidValue(
            "torch.jit.trace would keep these positions and this length for all later calls.",
            "Use torch.compile or torch.export, which accept new positions.",
        )


def is_compiling() -> bool:
    """Whether torch.compile is compiling now."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def made_outside(kind: str) -> None:
    """Break PyTorch's graph where a spec is constructed inside it: its numbers must be known at compile time."""
    if is_compiling():
        from clockhands.encodings.compiling import leave

        leave(f"{kind} is a value, not a computation: make it once, outside of the compiled function.")


def known_numbers(spec: Any, name: str) -> Any:
    """Numbers derived from a spec by a property or a method: a tuple, an array, or a list while compiling."""
    if is_compiling():
        from clockhands.encodings.compiling import numbers_of

        return numbers_of(spec, name)
    known = getattr(spec, name)
    return known() if callable(known) else known


def known_array(make: Callable[..., np.ndarray], *sources: Source, known: tuple[Any, ...] = ()) -> Any:
    """The tensor that a function computes from objects, and plain values, known before PyTorch's compiler runs."""
    from clockhands.encodings.compiling import made

    return made(make, sources, known)


def _coordinates(described: Any) -> np.ndarray:
    """Positions as one array, with 0 for rows without a position: int64 where it represents them, else float64."""
    at = at_origin(described)
    sizes = at.sizes(0, at.size)
    if sizes.part is not None or (sizes.whole >= np.uint64(2**63)).any():
        return at.as_float64().reshape(at.shape)
    numbers = sizes.whole.astype(np.int64)
    return (numbers if sizes.negative is None else np.where(sizes.negative, -numbers, numbers)).reshape(at.shape)


def constant(numbers: np.ndarray, beside: Any) -> Any:
    """Numbers known before the trace, in the library and on the device of the array ``beside``."""
    xp = library(beside)
    if "torch" not in xp.__name__:
        return xp.asarray(numbers)
    if is_traced(beside):
        return xp.asarray(numbers).to(beside.device)
    from clockhands.encodings.compiling import kept

    return kept(numbers.tobytes(), numbers.dtype.name, numbers.shape, beside.device)


def prepare(spec: Any) -> None:
    """Make the spec cache its numbers while torch.compile runs, which cannot trace how they are computed."""
    if is_compiling():
        from clockhands.encodings.compiling import remember

        remember(spec)


def in_full(array: Any) -> AbstractContextManager[Any]:
    """A context in which matrix products keep the precision of this array: PyTorch's autocast is off."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or array.device.type == "meta":
        return nullcontext()
    return torch.autocast(array.device.type, enabled=False)


def library(array: Any) -> Any:
    """The array API namespace of the array's library.

    PyTorch's is returned without a look-up, because its compiler cannot trace one.

    Raises:
        InvalidType: The library has no such namespace.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        from array_api_compat import torch as xp

        return xp
    from array_api_compat import array_namespace

    try:
        return array_namespace(array)
    except TypeError:
        raise _unsupported(array, "array API") from None


def device_of(array: Any) -> Any:
    """The device of an array, as its library names it.

    Raises:
        InvalidType: Its library does not follow the array API standard, whose arrays have one: MLX.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.device
    from array_api_compat import device

    try:
        return device(array)
    except AttributeError:
        raise _unsupported(array, "device") from None


def _unsupported(array: Any, lacks: str) -> InvalidType:
    return InvalidType(
        f"Arrays of {library_of(array)} are not supported: {type(array).__module__}.{type(array).__name__} has no "
        f"{lacks}, which the array API standard asks for.",
        "Convert it to NumPy in float32, and convert the result back.",
    )


def unwrapped(values: Any) -> Any:
    """The JAX array inside a variable of a neural network library, such as flax's ``nnx.Param``; else as given.

    JAX recognises them by ``__jax_array__``. Array libraries treat them as arrays, which they are not under ``grad``.
    """
    jax = sys.modules.get("jax")
    if jax is None or isinstance(values, jax.Array) or not hasattr(values, "__jax_array__"):
        return values
    return values.__jax_array__()


def library_of(array: Any) -> str:
    """The name of the library that an array belongs to; a class derived from PyTorch's tensor is PyTorch's."""
    for name, kind in (("torch", "Tensor"), ("jax", "Array")):
        module = sys.modules.get(name)
        if module is not None and isinstance(array, getattr(module, kind)):
            return name
    return type(array).__module__.partition(".")[0]


def refuse_meta(positions: Any, x: Any, name: str) -> None:
    """Refuse positions without data where ``x`` has data.

    Raises:
        InvalidValue: The positions are on PyTorch's meta device, and ``x`` is not.
    """
    if library_of(positions) == "torch" and positions.device.type == "meta" != x.device.type:
        raise InvalidValue(
            f"`{name}` are on the meta device and have no numbers.",
            f"Create them on {x.device}, or as NumPy values.",
        )


def counted(first: int, number: int, x: Any) -> Any:
    """The positions ``first``, ``first + 1``, … of ``number`` tokens: a range, or a tensor where ``x`` is compiled.

    While compiling, the number may be symbolic; a Python range would fix it and compile one graph per length.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and torch.compiler.is_compiling():
        return torch.arange(first, first + number, device=x.device)
    jax = sys.modules.get("jax")
    if (
        jax is not None and not isinstance(number, int) and isinstance(x, jax.Array)
    ):  # a size that is dynamic in an export
        return jax.numpy.arange(first, first + number, dtype=jax.numpy.int32)
    return range(first, first + number)


def as_traced(positions: Any, x: Any) -> Any:
    """Known positions as a tensor while PyTorch compiles code on ``x``, because it cannot trace their construction.

    Otherwise, and for traced positions, the positions are returned unchanged.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor) or not torch.compiler.is_compiling():
        return positions
    return as_tensor(positions, x.device)


def as_tensor(positions: Any, device: Any) -> Any:
    """Positions, or a count of them, as a tensor of the graph that PyTorch compiles."""
    torch = sys.modules["torch"]
    if isinstance(positions, int):  # also a symbolic one: a Python range would fix its value
        return torch.arange(positions, device=device)
    if isinstance(positions, range):
        return torch.arange(positions.start, positions.stop, positions.step, device=device)
    if isinstance(positions, Source):
        return known_array(_coordinates, positions).to(device)
    return torch.as_tensor(positions, device=device)


def beside(positions: Any, array: Any, name: str, other: str) -> Any:
    """Positions that may be used with an array; a tensor of the graph while PyTorch compiles.

    Raises:
        InvalidType: They are an array of another library.
        InvalidValue: They are on PyTorch's meta device, and the array is not.
    """
    # In this order: PyTorch 2.5 cannot compile `hasattr` of the others.
    if not isinstance(positions, _NOT_BESIDE) and hasattr(positions, "dtype"):
        theirs, ours = library_of(positions), library_of(array)
        if theirs != ours:
            raise InvalidType(
                f"`{name}` are an array of {theirs}, but `{other}` is an array of {ours}.",
                f"Give positions as NumPy values, as a list, or in the library of {other}.",
            )
        refuse_meta(positions, array, name)
    return as_traced(positions, array)


_FEW_BITS = "A trace has too few bits for fractional positions: give them as NumPy values, outside of the trace."


def integer_of(positions: Any, hint: str = _FEW_BITS) -> str:
    """The name of the dtype of traced positions.

    Raises:
        InvalidType: They are not integers.
    """
    dtype = str(positions.dtype).removeprefix("torch.")
    if not dtype.startswith(("int", "uint")):
        raise InvalidType(f"Positions inside a trace must be integers, got {dtype}.", hint)
    return dtype


def cosine_sine(ladder: Ladder, positions: Any, xp: Any) -> tuple[Any, Any]:
    """Cosine and sine of every pair at traced integer positions, float32 [*positions, pairs].

    Accuracy: each within `BOUND`, 2**-22; see the module.

    Raises:
        InvalidType: The positions are not integers.
    """
    dtype = integer_of(positions)
    words = _Words(xp, positions)
    third, second, first = words.limbs(ladder)
    low, high, negative = words.size(positions[..., None], dtype)
    fraction = words.low(low * third) + _upper(low, second)
    if high is not None:
        fraction = fraction + words.low(high * second) + _upper(high, first)
    fraction = xp.where(negative, words.low(-fraction), words.low(fraction))
    return _circle(fraction, words)


class _Words:
    """Unsigned 32-bit words: uint32 in JAX; in PyTorch, with few uint32 operations, the lower half of an int64."""

    def __init__(self, xp: Any, beside: Any) -> None:
        self.xp, self.beside = xp, beside
        self.wide = "torch" in xp.__name__

    def limbs(self, ladder: Ladder) -> list[Any]:
        """The upper three words of the turns per token, highest first, on the device of the positions."""
        if self.wide:
            from clockhands.encodings.compiling import kept_limbs, limbs

            if is_traced(self.beside):
                device, dtype = self.beside.device, self.xp.int64
                return [self.xp.asarray(limb, dtype=dtype, device=device) for limb in limbs(ladder)]
            return kept_limbs(ladder, self.beside.device)
        high, low = ladder.turns.high, ladder.turns.low
        # JAX without 64-bit mode must never be given a 64-bit number.
        return [self.xp.asarray(limb.astype(np.uint32)) for limb in (high >> 32, high & _WORD, low >> 32)]

    def low(self, word: Any) -> Any:
        """The lower 32 bits."""
        return word & _WORD if self.wide else word

    def size(self, positions: Any, dtype: str) -> tuple[Any, Any, Any]:
        """The lower and upper word of each size, the upper None for narrow integers, and the sign."""
        xp = self.xp
        if self.wide:
            # The size of the lowest int8 does not fit an int8; a uint64 of 2**63 or more keeps its words.
            positions = xp.astype(positions, xp.int64)
        negative = xp.zeros_like(positions, dtype=xp.bool) if dtype.startswith("uint") else positions < 0
        if not self.wide and dtype not in ("int64", "uint64"):
            # Two's complement first: the size of the lowest int32 is 2**31, which does not fit an int32.
            bits = xp.astype(positions, xp.uint32 if dtype == "uint32" else xp.int32).astype(xp.uint32)
            return xp.where(negative, -bits, bits), None, negative
        size = xp.astype(xp.where(negative, -positions, positions) if dtype[0] == "i" else positions, xp.int64)
        if self.wide:
            return size & _WORD, ((size >> 32) & _WORD) if dtype in ("int64", "uint64") else None, negative
        return xp.astype(size, xp.uint32), xp.astype(size >> 32, xp.uint32), negative


def _circle(fraction: Any, words: _Words) -> tuple[Any, Any]:
    xp = words.xp
    shifted = words.low(fraction + (1 << 29))
    quarter = shifted >> 30
    rest = xp.astype(shifted & ((1 << 30) - 1), xp.int32) - (1 << 29)
    tail = rest & 63
    head = xp.astype(rest - tail, xp.float32)
    # Python numbers that float32 represents exactly: they take the dtype of the other operand.
    angle = head * UNIT_HIGH + (head * UNIT_LOW + xp.astype(tail, xp.float32) * UNIT_HIGH)
    cosine, sine = xp.cos(angle), xp.sin(angle)
    swap, back, down = (quarter & 1) == 1, (quarter == 1) | (quarter == 2), quarter >= 2
    along, up = xp.where(swap, sine, cosine), xp.where(swap, cosine, sine)
    return xp.where(back, -along, along), xp.where(down, -up, up)


def _upper(a: Any, b: Any) -> Any:
    """The upper 32 bits of the product of two words, exactly."""
    a1, a0, b1, b0 = a >> 16, a & _HALF, b >> 16, b & _HALF
    cross = a1 * b0 + ((a0 * b0) >> 16)
    other = a0 * b1 + (cross & _HALF)
    return a1 * b1 + (cross >> 16) + (other >> 16)
