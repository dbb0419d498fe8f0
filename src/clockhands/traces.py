"""Cosine and sine of positions inside a trace: ``jit``, ``vmap`` and ``torch.compile``.

There a position is a placeholder, so NumPy cannot make the phase, and frameworks have no 128-bit integers, JAX by
default not even 64-bit ones. ``position.astype(float32) * rate`` is off by 0.03 rad at 500,000 already. So the fraction
of a turn is made in 32-bit words, by products of 16-bit halves, as `clockhands.phases` does it in 64-bit ones.

Let ``F`` be a rate's turns per token as a fraction of 128 bits, in words ``F3 F2 F1 F0``, and ``|p| = s1 2**32 + s0``.
In units of 2**-32 turns, modulo 2**32, the phase is ``s0 F3 + high(s0 F2) + s1 F2 + high(s1 F1)``; what is cut off is
less than 3 units, together with the rest of ``F`` less than 4: 2 pi x 4 x 2**-32 < 2**-27 rad. It is reduced
to quarter turns and a rest of at most an eighth, exactly. The rest becomes an angle as ``rh C1 + (rh C2 + rl C1)``,
with ``rh`` its upper 23 bits and ``C1 + C2`` the radians of a unit in two float32: two roundings, at most
``2 x pi/4 x 2**-24``. A float32 sine or cosine within 2 ulp (2**-23) there adds ``2 x 2**-24``. Together less than
``1.58 + 2 + 0.13`` units of 2**-24: below ``BOUND = 2**-22``.

All integers that the traced dtype holds are reduced exactly: int32 up to 2**31 - 1, and int64 where there is one.

Positions on an accelerator take the same way outside of a trace too: their numbers are there, and asking for them would
copy them to the CPU and wait.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from clockhands.errors import InvalidType, InvalidValue
from clockhands.grids import at_origin
from clockhands.ladders import Ladder
from clockhands.positions import HasPositions

BOUND = 2.0**-22

_WORD, _HALF = 0xFFFFFFFF, 0xFFFF
UNIT_HIGH = float(np.float32(2 * np.pi / 2**32))
UNIT_LOW = float(np.float32(2 * np.pi / 2**32 - UNIT_HIGH))


def is_traced(positions: Any) -> bool:
    """Whether these are an array whose numbers cannot be known now."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(positions, jax.core.Tracer):
        return True
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(positions, torch.Tensor):
        return False
    if torch.compiler.is_compiling() or positions.device.type == "meta":
        return True
    # There is no public way to ask. Fake tensors are what shapes are tried out with, proxies what `make_fx` follows.
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:  # noqa: SLF001
        return True
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(positions)  # noqa: SLF001
    return wrapped or isinstance(positions, torch._subclasses.FakeTensor)  # noqa: SLF001


def stay(positions: Any) -> bool:
    """Whether the phases of these positions are made where the positions are: in a trace, or on an accelerator.

    On an accelerator that holds for whole numbers. Fractions are made exact on the CPU.
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
    """Refuse what records one call of PyTorch for all later ones: these positions would be constants, silently.

    Raises:
        InvalidValue: One of these is inside ``torch.jit.trace`` or ``torch.fx.symbolic_trace``.
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
    """Whether PyTorch's compiler is at work."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def made_outside(kind: str) -> None:
    """End PyTorch's graph where a spec is made inside it: its numbers must be known while the graph is made."""
    if is_compiling():
        from clockhands.compiling import leave

        leave(f"{kind} is a value, not a computation: make it once, outside of the compiled function.")


def known_numbers(spec: Any, name: str) -> Any:
    """Numbers that follow from a spec, a property or a method of it: a tuple, an array, or a list while compiling."""
    if is_compiling():
        from clockhands.compiling import numbers_of

        return numbers_of(spec, name)
    known = getattr(spec, name)
    return known() if callable(known) else known


def known_array(make: Callable[..., np.ndarray], *known: Any) -> Any:
    """The array that a function makes of values known before the trace, as a tensor, where PyTorch compiles."""
    from clockhands.compiling import made

    return made(make, *known)


def _coordinates(described: HasPositions) -> np.ndarray:
    """Positions as one array, rows that stand nowhere at 0: int64 where that holds them, else float64."""
    at = at_origin(described)
    sizes = at.sizes(0, at.size)
    if sizes.part is not None or (sizes.whole >= np.uint64(2**63)).any():
        return at.as_float64().reshape(at.shape)
    numbers = sizes.whole.astype(np.int64)
    return (numbers if sizes.negative is None else np.where(sizes.negative, -numbers, numbers)).reshape(at.shape)


def constant(numbers: np.ndarray, beside: Any) -> Any:
    """Numbers that are known before the trace, in the library and on the device of an array in it."""
    xp = library(beside)
    if "torch" not in xp.__name__:
        return xp.asarray(numbers)
    if is_traced(beside):
        return xp.asarray(numbers).to(beside.device)
    from clockhands.compiling import kept

    return kept(numbers.tobytes(), numbers.dtype.name, numbers.shape, beside.device)


def prepare(spec: Any) -> None:
    """Have the spec remember its numbers, where PyTorch's compiler is at work: it cannot follow how they are made."""
    if is_compiling():
        from clockhands.compiling import remember

        remember(spec)


def in_full(array: Any) -> AbstractContextManager[Any]:
    """Where products of matrices keep the precision of this array: PyTorch's autocast is off."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or array.device.type == "meta":
        return nullcontext()
    return torch.autocast(array.device.type, enabled=False)


def library(array: Any) -> Any:
    """The array API of the array's library.

    PyTorch's without asking: its compiler does not follow the question.

    Raises:
        InvalidType: The library has none.
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
    """The array of JAX that a variable of a neural network library holds, such as flax's ``nnx.Param``; else as given.

    JAX knows them by ``__jax_array__``. Array libraries take them for arrays, which they are not under ``grad``.
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
    """Refuse positions without numbers where ``x`` has some.

    Raises:
        InvalidValue: They are on PyTorch's meta device, and ``x`` is not.
    """
    if library_of(positions) == "torch" and positions.device.type == "meta" != x.device.type:
        raise InvalidValue(
            f"`{name}` are on the meta device and have no numbers.",
            f"Create them on {x.device}, or as NumPy values.",
        )


def counted(first: int, number: int, x: Any) -> Any:
    """The positions ``first``, ``first + 1``, … of ``number`` tokens: a range, or a tensor where ``x`` is compiled.

    There the number may be one that is not known yet, and a range of it would make it known: one graph a length.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and torch.compiler.is_compiling():
        return torch.arange(first, first + number, device=x.device)
    jax = sys.modules.get("jax")
    if (
        jax is not None and not isinstance(number, int) and isinstance(x, jax.Array)
    ):  # a size that an export leaves open
        return jax.numpy.arange(first, first + number, dtype=jax.numpy.int32)
    return range(first, first + number)


def as_traced(positions: Any, x: Any) -> Any:
    """Known positions as a tensor where PyTorch compiles what is done with ``x``: it cannot trace how they are made.

    Everywhere else, and traced positions, as they are.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor) or not torch.compiler.is_compiling():
        return positions
    return as_tensor(positions, x.device)


def as_tensor(positions: Any, device: Any) -> Any:
    """Positions, or a count of them, as a tensor of the graph that PyTorch's compiler makes."""
    torch = sys.modules["torch"]
    if isinstance(positions, int):  # one that is not known yet, too: a range of it would make it known
        return torch.arange(positions, device=device)
    if isinstance(positions, range):
        return torch.arange(positions.start, positions.stop, positions.step, device=device)
    if isinstance(positions, HasPositions):
        return known_array(_coordinates, positions).to(device)
    return torch.as_tensor(positions, device=device)


def cosine_sine(ladder: Ladder, positions: Any, xp: Any) -> tuple[Any, Any]:
    """Cosine and sine of every pair at traced integer positions, float32 [*positions, pairs].

    Accuracy: each within `BOUND`, 2**-22; see the module.

    Raises:
        InvalidType: The positions are not integers.
    """
    dtype = str(positions.dtype).removeprefix("torch.")
    if not dtype.startswith(("int", "uint")):
        raise InvalidType(
            f"Positions inside a trace must be integers, got {dtype}.",
            "A trace has too few bits for fractional positions: give them as NumPy values, outside of the trace.",
        )
    words = _Words(xp, positions)
    third, second, first = words.limbs(ladder)
    low, high, negative = words.size(positions[..., None], dtype)
    fraction = words.low(low * third) + _upper(low, second)
    if high is not None:
        fraction = fraction + words.low(high * second) + _upper(high, first)
    fraction = xp.where(negative, words.low(-fraction), words.low(fraction))
    return _circle(fraction, words)


class _Words:
    """Unsigned 32-bit words: JAX's own, or the lower half of PyTorch's int64, which has few operations on uint32."""

    def __init__(self, xp: Any, beside: Any) -> None:
        self.xp, self.beside = xp, beside
        self.wide = "torch" in xp.__name__

    def limbs(self, ladder: Ladder) -> list[Any]:
        """The upper three words of the turns per token, highest first, beside the positions."""
        if self.wide:
            from clockhands.compiling import kept_limbs, limbs

            if is_traced(self.beside):
                device, dtype = self.beside.device, self.xp.int64
                return [self.xp.asarray(limb, dtype=dtype, device=device) for limb in limbs(ladder)]
            return kept_limbs(ladder, self.beside.device)
        high, low = ladder.turns.high, ladder.turns.low
        # JAX without 64-bit mode must never see a 64-bit number.
        return [self.xp.asarray(limb.astype(np.uint32)) for limb in (high >> 32, high & _WORD, low >> 32)]

    def low(self, word: Any) -> Any:
        """The lower 32 bits."""
        return word & _WORD if self.wide else word

    def size(self, positions: Any, dtype: str) -> tuple[Any, Any, Any]:
        """The lower and upper word of each size, the upper None for narrow integers, and the sign."""
        xp = self.xp
        if self.wide:
            # The size of the lowest int8 is one that no int8 holds; a uint64 from 2**63 on keeps its words.
            positions = xp.astype(positions, xp.int64)
        negative = xp.zeros_like(positions, dtype=xp.bool) if dtype.startswith("uint") else positions < 0
        if not self.wide and dtype not in ("int64", "uint64"):
            # Two's complement first: the size of the lowest int32 is 2**31, which no int32 holds.
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
    # Python numbers that float32 holds exactly: they take the dtype of the array beside them.
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
