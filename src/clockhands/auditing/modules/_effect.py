"""Finds the rotation that a part of a loaded model applies, by calling a copy of it for a few near and far positions.

The part is copied because some parts change what they hold when called (dynamic and LongRoPE scalings); the model
itself is never run. The result is compared with the declared code. A difference without a known cause is analysed by
`clockhands.identify`, and so is a part that rotates its input itself.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.auditing._held_numbers import Expected
from clockhands.auditing.findings import Case, case_of
from clockhands.auditing.modules._held import HeldTensor, Walked, layers_in, numbers_of, parameters_of
from clockhands.auditing.modules._serving import DeclaredCodes, joined
from clockhands.configs.resolved import layer_ranges
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Dynamic, LongRope
from clockhands.encodings.specs import describe
from clockhands.errors import ClockhandsError
from clockhands.recognition import Match, identify
from clockhands.recognition.diagnosis import Cosines, Verdict, of_table, one_of_each

_CONSECUTIVE = 512
_FAR = (777, 1023, 1024, 1025, 2049, 4097, 8191, 16385, 32769, 65537, 131071)
_LENGTH = 8192  # if no context is declared
_AT = ("positions", "input_pos", "token_positions", "pos")

# A part that cannot be called in a known way may raise any exception.
_FAILS = (Exception,)


def effect_cases(walked: Walked, declared: DeclaredCodes, wrong: frozenset[int]) -> Iterator[Case]:
    """Every part whose rotation is not the declared one; ``wrong`` are parts known to hold wrong numbers."""
    alike: dict[Any, list[tuple[dict[str, Any], str | None]]] = {}
    for path, owner in walked.turning.items():
        if id(owner) in wrong or without_numbers(owner):
            continue
        own = [held for held in walked.of("rates") if held.owner is owner and held.which is None]
        for held in own or [None]:
            found = _of_part(path, owner, held, declared, walked)
            if found is not None:
                # One case is reported for all parts that behave the same, with the layers of all.
                evidence = {name: value for name, value in found[0].items() if name != "module"}
                alike.setdefault(str(evidence), []).append(found)
    for group in alike.values():
        evidence, _ = group[0]
        yield case_of("rotation-differs", {**evidence, "parts": len(group)}, joined(layers for _, layers in group))


def _of_part(
    path: str, owner: Any, held: HeldTensor | None, declared: DeclaredCodes, walked: Walked
) -> tuple[dict[str, Any], str | None] | None:
    layers = held.layers if held is not None else layers_in((path,))
    layer_type = None if held is None else held.layer_type
    expected = [one for one in declared.serving(owner, (path,), layers, layer_type) if one.sure]
    verdicts = [
        verdict
        for one in expected
        if (verdict := _verdict(owner, layer_type, one, declared.resolved.context, walked.dtype)) is not None
    ]
    if not verdicts or any(one.code is None for one in verdicts):
        return None
    told = layer_ranges(layers) if layers else (expected[0].layers if len(expected) == 1 else None)
    evidence = {name: value for name, value in verdicts[0].evidence.items() if name not in ("of", "error")}
    name = f"{path or type(owner).__name__} ({layer_type})" if layer_type else path or type(owner).__name__
    return {"module": name, **evidence}, told


def without_numbers(owner: Any) -> bool:
    """Whether a part has tensors without values."""
    return any(tensor.is_meta for tensor in (*owner.parameters(), *owner.buffers()))


def _verdict(
    owner: Any, layer_type: str | None, expected: Expected, context: int | None, dtype: str | None
) -> Verdict | None:
    """The rotation of a part compared with one code; None if it cannot be called."""
    found: Verdict | None = None
    for length, ladder in _lengths(expected, context):
        waves = _asked(owner, layer_type, _positions(length), dtype or "float32", len(ladder))
        if waves is None:
            continue
        more = waves.pairs - len(ladder)
        rates = np.concatenate([ladder, np.zeros(more)]) if more > 0 else ladder
        verdict = of_table(waves, expected, expected.factor_on_cosines, rates)
        if verdict.code is not None:
            return verdict if verdict.evidence.get("behaves as") else _read(verdict, owner, layer_type, rates)
        found = found or verdict
    return found or _by_itself(owner, expected)


def _lengths(expected: Expected, context: int | None) -> Iterator[tuple[int, np.ndarray]]:
    """Lengths to call the part with, each with the frequencies that hold there."""
    ladders = list(expected.ladders.values())
    scaling = expected.code.spec.scaling if isinstance(expected.code.spec, Rotary) else None
    if isinstance(scaling, Dynamic):
        # One less: at exactly the original length, classes keep the state that a longer text has left.
        yield max(scaling.original - 1, 1), ladders[0]
    elif isinstance(scaling, LongRope):
        yield scaling.original, ladders[0]
        if context is not None and context > scaling.original and len(ladders) > 1:
            yield context, ladders[1]
    else:
        yield context or _LENGTH, ladders[0]


def _positions(length: int) -> np.ndarray:
    near = np.arange(min(_CONSECUTIVE, length))
    far = [place for place in (*_FAR, length - 1) if _CONSECUTIVE <= place < length]
    return np.unique(np.concatenate([near, np.array(far, np.int64)]))


def _asked(owner: Any, layer_type: str | None, positions: np.ndarray, dtype: str, pairs: int) -> Cosines | None:
    """The cosines and sines that a part returns for these positions; None if it returns something else."""
    names = parameters_of(owner)
    import torch

    part = copied(owner)
    device = next((tensor.device for tensor in (*part.buffers(), *part.parameters())), torch.device("cpu"))
    x = torch.zeros(1, len(positions), 2 * pairs, dtype=getattr(torch, dtype), device=device)
    ids = torch.from_numpy(positions.astype(np.int64)).to(device)[None]
    more = {"layer_type": layer_type} if layer_type is not None and "layer_type" in names else {}
    with torch.no_grad():
        if "position_ids" in names:
            for given in (ids, ids.expand(3, 1, -1)):
                try:
                    answer = part(x, position_ids=given, **more)
                except _FAILS:
                    continue
                waves = _waves(answer, positions, pairs)
                if waves is not None:
                    return waves
        elif "seq_len" in names:
            count = int(np.argmax(np.diff(positions) != 1)) + 1 if (np.diff(positions) != 1).any() else len(positions)
            try:
                return _waves(part(x, seq_len=count), positions[:count], pairs)
            except _FAILS:
                return None
    return None


def copied(owner: Any) -> Any:
    """A copy of a part with its own numbers, whatever it shares with the model otherwise (mainly its config)."""
    memo = {id(value): value for name, value in vars(owner).items() if name == "config"}
    return copy.deepcopy(owner, memo)


def _waves(answer: Any, positions: np.ndarray, pairs: int) -> Cosines | None:
    """What a part returned, as cosines and sines of pairs: from complex numbers, or two arrays of pairs or channels."""
    import torch

    parts = answer if isinstance(answer, tuple | list) else (answer,)
    if not 1 <= len(parts) <= 2 or not all(isinstance(part, torch.Tensor) for part in parts):
        return None
    dtype = str(parts[0].dtype).removeprefix("torch.")
    arrays = [numbers_of(part) for part in parts]
    if any(array is None or array.ndim < 2 for array in arrays):
        return None
    rows = [array.reshape(-1, *array.shape[-2:])[0] for array in arrays if array is not None]
    if len(rows) == 1:
        if not np.iscomplexobj(rows[0]):
            return None
        rows, dtype = [rows[0].real, rows[0].imag], "float32"
    if any(len(row) != len(positions) for row in rows):
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


def _read(verdict: Verdict, owner: Any, layer_type: str | None, rates: np.ndarray) -> Verdict:
    """The evidence extended by what `identify` recognises in the part."""

    def turned(x: Any, positions: Any) -> Any:
        import torch

        waves = _asked(owner, layer_type, np.asarray(positions), "float32", len(rates))
        if waves is None or waves.cos is None or waves.sin is None:
            raise ClockhandsError("The module returned no cosines and sines.", "")
        cos, sin = (torch.from_numpy(part).to(x.dtype) for part in (waves.cos, waves.sin))
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    match = recognised_in(turned, 2 * len(rates))
    return (
        verdict
        if match is None
        else replace(verdict, evidence={**verdict.evidence, "behaves as": describe(match.spec)})
    )


def recognised_in(function: Callable[[Any, Any], Any], width: int) -> Match | None:
    """The best match of a function of rows and positions; None if nothing is recognised in it."""
    try:
        return next(iter(identify(function, width=width, backend="torch", longest=4096)), None)
    except ClockhandsError:
        return None


def _by_itself(owner: Any, expected: Expected) -> Verdict | None:
    """A part that rotates its input itself: what `identify` recognises in it, compared with what is declared."""
    width = expected.code.rotated or 2 * len(expected.rates)
    function = turning_function(owner, width)
    match = None if function is None else recognised_in(function, width)
    if match is None or not isinstance(match.spec, Rotary):
        return None
    seen = dict(match.evidence)
    rates, bounds = np.array(seen["rates"]), np.array(seen["bounds"])
    if len(rates) == len(expected.rates) and (np.abs(rates - expected.rates) <= bounds + expected.slack).all():
        return Verdict(None, {})
    pair = int(np.argmax(np.abs(rates - expected.rates))) if len(rates) == len(expected.rates) else 0
    evidence = {"pair": pair, "stored": float(rates[pair]), "declared": float(expected.rates[pair])}
    return Verdict("buffer-differs", evidence | {"behaves as": describe(match.spec)})


def turning_function(owner: Any, width: int) -> Callable[[Any, Any], Any] | None:
    """A part that takes rows and positions, as function(x [seq, width], positions [seq]); None for other parts."""
    names = parameters_of(owner)
    at = next((name for name in _AT if name in names), None)
    if at is None:
        return None
    import torch

    part = copied(owner)
    for before, after in (((), ()), ((1,), ()), ((1,), (1,))):

        def turned(x: Any, positions: Any, shape: Any = (before, after)) -> Any:
            rows = x.reshape(*shape[0], x.shape[0], *shape[1], x.shape[1])
            places = positions.reshape(*shape[0], -1)
            return part(rows, **{at: places}).reshape(x.shape)

        try:
            x = torch.ones(3, width)
            if turned(x, torch.tensor([0, 1, 2])).shape == x.shape:
                return turned
        except _FAILS:
            continue
    return None
