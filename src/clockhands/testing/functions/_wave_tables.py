"""Cosines and sines as functions take and return them: in which arrays they are written, made and read."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.encodings.rotary.formula import plain
from clockhands.encodings.scaling import Linear
from clockhands.recognition.calling import Refused, kind_of
from clockhands.recognition.suspects import StagedRotary
from clockhands.testing.functions._argument_names import KNOWN

WAVES, SINES_FIRST = "cos, sin", "sin, cos"


class TableLayout(NamedTuple):
    """How cosines and sines are laid out.

    Attributes:
        axes: The axes before the last one, such as ``"batch seq"``; of one sequence of positions, the batch is 1.
        order: The last axis: ``"halves"`` (the numbers of all pairs, twice), ``"interleaved"`` (each number twice),
            or ``"pairs"`` (one number for each pair).
        whole: Whether it has a row for each position from 0 on, of which the function takes those that it needs.
        apart: What is added to the angle of the second dimension of each pair; 0 in a rotation.
    """

    axes: str
    order: str
    whole: bool = False
    apart: float = 0.0

    def text(self, width: int) -> str:
        """The layout, for messages."""
        words = {
            "halves": f"{width}, both halves equal",
            "interleaved": f"{width}, neighbours equal",
            "pairs": f"{width // 2}, one for each pair",
        }
        whole = " of all positions" if self.whole else ""
        return f"[{self.axes.replace(' ', ', ')}, {words[self.order]}]{whole}"


_Made = Callable[[np.ndarray, float], Any]
_Read = Callable[..., tuple[np.ndarray, np.ndarray]]

_MADE: Mapping[str, _Made] = {
    "cos": lambda phases, factor: factor * np.cos(phases),
    "sin": lambda phases, factor: factor * np.sin(phases),
    "waves": lambda phases, factor: (factor * np.cos(phases), factor * np.sin(phases)),
    "freqs": lambda phases, _: phases,
    "freqs_cis": lambda phases, factor: factor * np.exp(1j * phases),
    "wave_pairs": lambda phases, factor: factor * np.stack([np.cos(phases), np.sin(phases)], -1),
    "sin_cos": lambda phases, factor: factor * np.concatenate([np.sin(phases), np.cos(phases)], -1),
    "cos_sin": lambda phases, factor: factor * np.concatenate([np.cos(phases), np.sin(phases)], -1),
    "matrices": lambda phases, factor: factor * _matrices(np.cos(phases), np.sin(phases)),
}
"""Each table of `_argument_names.TABLES`, made of phases [..., n] and the attention factor."""

OTHER_FORMS: Mapping[str, tuple[str, ...]] = {
    "freqs": ("freqs", "freqs_cis", "waves", "wave_pairs", "matrices"),
    "freqs_cis": ("freqs_cis", "waves", "wave_pairs", "matrices", "freqs"),
}
"""What parameters of these names hold: angles, complex numbers, or a tuple or one array of cosines and sines."""

ONE_FOR_EACH_PAIR = frozenset({"freqs_cis", "wave_pairs", "matrices"})
"""The forms that never repeat a number for the second dimension of a pair."""

RETURNED: Mapping[str, _Read] = {
    WAVES: lambda cosine, sine: (cosine, sine),
    SINES_FIRST: lambda sine, cosine: (cosine, sine),
    "freqs_cis": lambda table: (table.real, table.imag),
    "wave_pairs": lambda table: (table[..., 0], table[..., 1]),
    "matrices": lambda table: (table[..., 0, 0], table[..., 1, 0]),
    "freqs": lambda table: (np.cos(table), np.sin(table)),
    "cos_sin": lambda table: tuple(np.split(table, 2, -1)),  # type: ignore[return-value]
}
"""How the cosines and sines are read that a function returns."""

_LAST: Mapping[str, tuple[int, ...]] = {"wave_pairs": (2,), "matrices": (2, 2)}


def _matrices(cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    return np.stack([np.stack([cosine, -sine], -1), np.stack([sine, cosine], -1)], -2)


def table_of(word: str, layout: TableLayout, spec: Rotary, at: np.ndarray) -> Any:
    """Cosines, sines, both, angles or complex numbers at positions [seq] or [batch, seq], in a layout.

    Raises:
        Refused: The layout has no axis for the sequences of a batch.
    """
    several = spec.axes is not None
    if spec.xpos is not None:
        raise Refused("xPos has no cosines and sines that hold for queries and keys")
    if at.ndim > 1 + several and "batch" not in layout.axes:
        raise Refused("it takes cosines and sines of one sequence")
    right = StagedRotary(spec)
    phases = _repeated(np.abs(right.phases(np.asarray(at, np.float64))), layout)
    sizes = {"batch": len(phases) if phases.ndim > 2 else 1, "seq": phases.shape[-2], "1": 1}
    if layout.axes == "seq batch" and phases.ndim > 2:
        phases = np.swapaxes(phases, 0, 1)
    shape = [sizes[axis] for axis in layout.axes.split()]
    return _MADE[word](phases.reshape(*shape, phases.shape[-1]), right.factor)


def setting_of(word: str, spec: Rotary) -> Any:
    """A single value of the spec, by its word in `_argument_names.SETTINGS`; raises `Refused` if it has none."""
    scaled = {Linear: lambda: 1 / spec.scaling.factor, type(None): lambda: 1.0}  # type: ignore[union-attr]
    made: Mapping[str, Callable[[], Any]] = {
        "dim": lambda: spec.rotated,
        "head_size": lambda: spec.head_width,
        "theta": lambda: spec.base,
        "interleaved": lambda: spec.layout == "interleaved",
        "halves": lambda: spec.layout == "halves",
        "mscale": lambda: spec.attention_factor,
        "scale": scaled.get(type(spec.scaling), lambda: None),
    }
    value = made[word]()
    if value is None:
        raise Refused(f"there is no {word} for this RoPE")
    return value


def _repeated(numbers: np.ndarray, layout: TableLayout) -> np.ndarray:
    if layout.order == "pairs":
        return numbers
    both = (numbers, numbers + layout.apart)
    return np.concatenate(both, -1) if layout.order == "halves" else np.stack(both, -1).reshape(*numbers.shape[:-1], -1)


def parts_of(answer: Any, words: str) -> tuple[Any, ...]:
    """The values that an answer holds for these words, such as ``"q, k"``: of a tuple, a list or a dictionary.

    Raises:
        Refused: It holds another number of values.
    """
    wanted = words.split(", ")
    if isinstance(answer, Mapping):
        held = {KNOWN.get(name, name): value for name, value in answer.items()}
        answer = [held[word] for word in wanted if word in held] if len(held) > 1 else list(held.values())
    if len(wanted) == 1 and not isinstance(answer, tuple | list):
        return (answer,)
    if not isinstance(answer, tuple | list) or len(answer) != len(wanted):
        raise Refused(f"it returned {kind_of(answer)}, not {_WORDS.get(words, words)}")
    return tuple(answer)


_WORDS = {WAVES: "cosines and sines", SINES_FIRST: "cosines and sines", "q, k": "queries and keys", "x": "an array"}


def waves_in(tables: list[np.ndarray], returns: str) -> tuple[np.ndarray, np.ndarray]:
    """The cosines and sines that a function returned, as `RETURNED` reads them."""
    last = _LAST.get(returns, ())
    if np.iscomplexobj(tables[0]) != (returns == "freqs_cis"):
        raise Refused(f"it returned {'complex' if returns != 'freqs_cis' else 'real'} numbers")
    if last and tables[0].shape[-len(last) :] != last:
        raise Refused(f"it returned shape {list(tables[0].shape)}, which does not end with {list(last)}")
    if returns == "cos_sin" and tables[0].shape[-1] % 2:
        raise Refused(f"it returned an odd number of columns: {tables[0].shape[-1]}")
    return RETURNED[returns](*tables)


def rotated_by(x: np.ndarray, waves: tuple[np.ndarray, np.ndarray], spec: Rotary) -> np.ndarray:
    """Tokens [batch, heads, seq, width] rotated by a function's cosines and sines.

    They are [seq, n] or [batch, seq, n], with one number for each pair, or one for each dimension that rotates: equal
    halves or, for interleaved pairs, equal neighbours. Where the dimensions of a pair have two numbers, each keeps its.
    """
    cosine, sine = (_rows(wave, x) for wave in waves)
    sine = -sine if spec.direction == "backward" else sine
    number = cosine.shape[-1]
    if number not in {spec.rotated, spec.rotated // 2} and (number % 2 or number > spec.head_width):
        raise Refused(f"it returned {number} cosines for {spec.rotated} dimensions that rotate")
    if number == spec.rotated // 2:
        return plain(x, cosine, sine, spec, np)
    half = number // 2
    neighbours = all(np.array_equal(wave[..., ::2], wave[..., 1::2], equal_nan=True) for wave in (cosine, sine))
    halves = all(np.array_equal(wave[..., :half], wave[..., half:], equal_nan=True) for wave in (cosine, sine))
    own = spec
    if number != spec.rotated:
        own = Rotary(spec.head_width, spec.layout, rotated=number, part=spec.part)
    if halves or (neighbours and spec.layout == "interleaved"):
        each = slice(half) if halves else slice(None, None, 2)
        return plain(x, cosine[..., each], sine[..., each], own, np)
    y, (one, other) = np.array(x), own.channels.T
    first, second = one - own.start, other - own.start
    y[..., one] = x[..., one] * cosine[..., first] - x[..., other] * sine[..., first]
    y[..., other] = x[..., other] * cosine[..., second] + x[..., one] * sine[..., second]
    return y


def _rows(wave: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Cosines or sines as [batch, 1, seq, n] or [seq, n]."""
    batch, seq = len(x), x.shape[-2]
    sizes = [size for size in wave.shape[:-1] if size > 1]
    if math.prod(sizes) == seq and len(sizes) < 2:
        return wave.reshape(seq, -1)
    if sizes == [size for size in (batch, seq) if size > 1]:
        return wave.reshape(batch, 1, seq, -1)
    raise Refused(f"it returned cosines of shape {list(wave.shape)} for {seq} positions")
