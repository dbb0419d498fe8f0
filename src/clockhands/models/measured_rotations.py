"""The rotation that a part of a loaded model computes, compared with the declared one.

A copy of the part is called once for positions that tell encodings apart: some parts change what they hold when called
(dynamic and LongRoPE scalings), and the model itself is never run. The audit of a loaded model, the measurement of a
running one, and `clockhands.transformers.swap` compare cosines and sines here. A difference without a known cause is
analysed by `clockhands.identify`, and so is a part that rotates its input itself.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.configs.expected_rates import Expected
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Dynamic, LongRope
from clockhands.encodings.specs import describe
from clockhands.errors import ClockhandsError
from clockhands.models.held_tensors import numbers_of, parameters_of
from clockhands.recognition import Match, identify
from clockhands.recognition.diagnosis import Cosines, Verdict, of_table, one_of_each
from clockhands.recognition.probe_positions import probe_positions

ROWS = 512
"""Positions for which a part is called."""

_LENGTH = 8192  # if no context is declared
_AT = ("positions", "input_pos", "token_positions", "pos")

# A part that cannot be called in a known way may raise any exception.
_FAILS = (Exception,)


@dataclass(frozen=True, eq=False)
class RotaryPart:
    """A part that returns cosines and sines for positions.

    Attributes:
        owner: The module; only copies of it are called.
        layer_type: The kind of layer that is asked for, where the part serves several.
        by_place: Whether a part without an argument ``position_ids`` gets the positions as its second argument.
    """

    owner: Any
    layer_type: str | None = None
    by_place: bool = False

    def output(self, ids: Tensor, pairs: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...] | None:
        """What it returns for positions [batch, seq] or [axes, batch, seq]; None if it takes none, raises, or differs.

        Args:
            ids: The positions.
            pairs: Dimension pairs of the tokens that it gets beside them.
            dtype: The dtype of these tokens.

        Returns:
            One or two tensors, of at least two axes.
        """
        if "position_ids" not in parameters_of(self.owner):
            kind = () if self.layer_type is None else (self.layer_type,)
            return self._called(lambda part, x, at: part(x, at, *kind), ids, pairs, dtype) if self.by_place else None
        more = {} if self.layer_type is None else {"layer_type": self.layer_type}
        return self._called(lambda part, x, at: part(x, position_ids=at, **more), ids, pairs, dtype)

    def rows(self, positions: np.ndarray, pairs: int, dtype: torch.dtype) -> tuple[Tensor, ...] | None:
        """What it returns for these positions, [positions, channels] each; for coordinates if it takes them."""
        ids = torch.from_numpy(positions.astype(np.int64))[None]
        for given in (ids, ids.expand(3, 1, -1)):
            parts = self.output(given, pairs, dtype)
            if parts is not None and all(part.shape[-2] == len(positions) for part in parts):
                return tuple(part.reshape(-1, *part.shape[-2:])[0] for part in parts)
        return None

    def cosines(self, positions: np.ndarray, pairs: int, dtype: str = "float32") -> Cosines | None:
        """The cosines and sines that it returns for these positions, one of each pair; None if it returns others.

        Of a part that takes a number of positions (``seq_len``) the consecutive ones at the beginning are compared.
        """
        kind = getattr(torch, dtype)
        parts = self.rows(positions, pairs, kind)
        if parts is None and {"seq_len", "position_ids"} & parameters_of(self.owner) == {"seq_len"}:
            apart = np.flatnonzero(np.diff(positions) != 1)
            positions = positions[: int(apart[0]) + 1 if len(apart) else len(positions)]
            ids = torch.from_numpy(positions)[None]
            parts = self._called(lambda part, x, _: part(x, seq_len=len(positions)), ids, pairs, kind)
            parts = None if parts is None else tuple(part.reshape(-1, *part.shape[-2:])[0] for part in parts)
        return None if parts is None else cosines_in(parts, positions, pairs)

    def _called(
        self, call: Callable[..., Any], ids: Tensor, pairs: int, dtype: torch.dtype
    ) -> tuple[Tensor, ...] | None:
        part = copied(self.owner)
        device = next((tensor.device for tensor in (*part.buffers(), *part.parameters())), torch.device("cpu"))
        x = torch.zeros(1, ids.shape[-1], 2 * pairs, dtype=dtype, device=device)
        try:
            with torch.no_grad():
                answer = call(part, x, ids.to(device))
        except _FAILS:
            return None
        parts = tuple(answer) if isinstance(answer, tuple | list) else (answer,)
        fits = 1 <= len(parts) <= 2 and all(isinstance(part, Tensor) and part.ndim > 1 for part in parts)
        return parts if fits else None


def copied(owner: Any) -> Any:
    """A copy of a part with its own numbers, whatever it shares with the model otherwise (mainly its config)."""
    memo = {id(value): value for name, value in vars(owner).items() if name == "config"}
    return copy.deepcopy(owner, memo)


def without_numbers(owner: Any) -> bool:
    """Whether a part has tensors without values."""
    return any(tensor.is_meta for tensor in (*owner.parameters(), *owner.buffers()))


def cosines_in(parts: tuple[Tensor, ...], positions: np.ndarray, pairs: int) -> Cosines | None:
    """Returned rows as cosines and sines of pairs: complex numbers, or two arrays of pairs or of channels."""
    dtype = str(parts[0].dtype).removeprefix("torch.")
    rows = [array for part in parts if (array := numbers_of(part)) is not None]
    if len(rows) == 1 and np.iscomplexobj(rows[0]):
        rows, dtype = [np.real(rows[0]), np.imag(rows[0])], "float32"
    if len(rows) != 2 or any(len(row) != len(positions) for row in rows):
        return None
    width = rows[0].shape[1]
    if width != pairs:
        if width < 2 * pairs or width % 2:
            return None
        rows = [one_of_each(row, width // 2) for row in rows]
    start = np.flatnonzero(positions == 0)
    if len(start) and not rows[0][start].any() and rows[1][start].all():
        rows.reverse()  # GPT-J of Transformers 5.24 returns the sines first, and its attention takes them so
    return Cosines(positions.astype(np.float64), rows[0], rows[1], dtype)


def padded(rates: np.ndarray, pairs: int) -> np.ndarray:
    """Frequencies of so many pairs: those behind the declared ones never rotate."""
    return np.concatenate([rates, np.zeros(max(0, pairs - len(rates)))])


def compared(waves: Cosines, expected: Expected, rates: np.ndarray, factor: float | None = None) -> Verdict:
    """Measured cosines and sines beside those of the declared frequencies at a length in use.

    Args:
        waves: What was measured.
        expected: What is declared.
        rates: Its frequencies at that length.
        factor: The factor on cosines and sines; that of the code unless given.
    """
    factor = expected.factor_on_cosines if factor is None else factor
    return of_table(waves, expected, factor, padded(rates, waves.pairs))


def error_bound(phases: Any, slack: float, rounding: float) -> Any:
    """How far cosines and sines may be from exact ones: frequencies and float32 phases are rounded, then the result.

    Args:
        phases: Position times frequency, rad.
        slack: The relative error of the frequencies; phases have that of float32 beside it.
        rounding: What the result is rounded by.
    """
    return rounding + phases * (slack + 2.0**-23)


def lengths_in_use(specs: Iterable[object], whole: int) -> list[int]:
    """The lengths at which rotations are compared: one, or two where frequencies depend on the length in use."""
    scalings = [getattr(spec, "scaling", None) for spec in specs]
    dynamic = [each.original for each in scalings if isinstance(each, Dynamic)]
    long = [each.original for each in scalings if isinstance(each, LongRope)]
    if dynamic:
        # One less: at exactly the original length, classes keep the state that a longer text has left.
        return [max(min([*dynamic, whole]) - 1, 1)]
    return [min(long), whole] if long and whole > min(long) else [whole]


def rates_at(expected: Expected, length: int) -> np.ndarray:
    """The declared frequencies at a length in use."""
    ladders = list(expected.ladders.values())
    scaling = getattr(expected.code.spec, "scaling", None)
    longer = isinstance(scaling, LongRope) and length > scaling.original
    return ladders[1] if longer and len(ladders) > 1 else ladders[0]


def rotation_of(part: RotaryPart, expected: Expected, context: int | None, dtype: str) -> Verdict | None:
    """The rotation of a part beside a declared one; None if it cannot be called.

    Args:
        part: The part.
        expected: What is declared.
        context: Usable positions; None if they are not known.
        dtype: The dtype of the model's tokens.
    """
    found: Verdict | None = None
    for length in lengths_in_use([expected.code.spec], context or _LENGTH):
        rates = rates_at(expected, length)
        waves = part.cosines(probe_positions(length, ROWS), len(rates), dtype)
        if waves is None:
            continue
        verdict = compared(waves, expected, rates)
        if verdict.code is not None:
            return verdict if verdict.evidence.get("behaves as") else _recognised(verdict, part, waves.pairs)
        found = found or verdict
    return found or _of_input(part.owner, expected)


def _recognised(verdict: Verdict, part: RotaryPart, pairs: int) -> Verdict:
    """The evidence extended by what `identify` recognises in the part."""

    def rotated(x: Any, positions: Any) -> Any:
        waves = part.cosines(np.asarray(positions), pairs)
        if waves is None:
            raise ClockhandsError("The module returned no cosines and sines.", "")
        cosine, sine = (torch.from_numpy(np.tile(each, 2)).to(x.dtype) for _, each in waves.parts)
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    match = recognised_in(rotated, 2 * pairs)
    if match is None:
        return verdict
    return replace(verdict, evidence={**verdict.evidence, "behaves as": describe(match.spec)})


# Parts that rotate their input themselves


def _of_input(owner: Any, expected: Expected) -> Verdict | None:
    """What `identify` recognises in a part that rotates its input itself, compared with what is declared."""
    function = input_rotation(owner, expected.code.rotated or 2 * len(expected.rates))
    match = None if function is None else recognised_in(function, expected.code.rotated or 2 * len(expected.rates))
    if match is None or not isinstance(match.spec, Rotary):
        return None
    seen = dict(match.evidence)
    rates, bounds = np.array(seen["rates"]), np.array(seen["bounds"])
    if len(rates) == len(expected.rates) and (np.abs(rates - expected.rates) <= bounds + expected.slack).all():
        return Verdict(None, {})
    pair = int(np.argmax(np.abs(rates - expected.rates))) if len(rates) == len(expected.rates) else 0
    evidence = {"pair": pair, "stored": float(rates[pair]), "declared": float(expected.rates[pair])}
    return Verdict("buffer-differs", evidence | {"behaves as": describe(match.spec)})


def input_rotation(owner: Any, width: int) -> Callable[[Any, Any], Any] | None:
    """A part that takes rows and positions, as function(x [seq, width], positions [seq]); None for other parts."""
    names = parameters_of(owner)
    at = next((name for name in _AT if name in names), None)
    if at is None:
        return None
    part = copied(owner)
    for before, after in (((), ()), ((1,), ()), ((1,), (1,))):

        def rotated(x: Any, positions: Any, shape: Any = (before, after)) -> Any:
            rows = x.reshape(*shape[0], x.shape[0], *shape[1], x.shape[1])
            places = positions.reshape(*shape[0], -1)
            return part(rows, **{at: places}).reshape(x.shape)

        try:
            x = torch.ones(3, width)
            if rotated(x, torch.tensor([0, 1, 2])).shape == x.shape:
                return rotated
        except _FAILS:
            continue
    return None


def recognised_in(function: Callable[[Any, Any], Any], width: int) -> Match | None:
    """The best match of a function of rows and positions; None if nothing is recognised in it."""
    try:
        return next(iter(identify(function, width=width, backend="torch", longest=4096)), None)
    except ClockhandsError:
        return None
