"""Measures the rotation in effect in every layer of a running model, and compares it with the declared one.

In a text of a single token, that token attends to itself alone, so its hidden states are the same at every position. A
batch of such texts at positions 0, 1, 2, ... therefore shows each layer's rotation: a query at position p is the query
at position 0, rotated by p. For each pair of channels a 2 x 2 matrix is fitted by least squares over heads and tokens.
The residual shows whether these two channels are a pair; cosine and sine are entries of the matrix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.expected_rates import Expected, expected_of
from clockhands.configs.resolved import TEXT, LayerEncoding, layer_numbers
from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Dynamic, LongRope
from clockhands.models.attention_inputs import Attended, attended, roundoff
from clockhands.models.fitted_rotations import fitted, growth
from clockhands.models.layer_inputs import held_inputs
from clockhands.models.measured_rotations import compared, padded, rates_at
from clockhands.models.running_models import runner
from clockhands.recognition.diagnosis import Cosines

TOKENS = 6
"""Different tokens at most, as many as a layer with one head of keys needs."""
ROWS = 8
"""Keys of one position to which a rotation is fitted: four numbers of a pair of channels, from sixteen."""
POSITIONS = 64
ROUNDINGS = 4
"""Of a rotated number: its cosine or sine, two products and their sum."""
_BATCH = 512  # texts of one token in one pass
_LEAST = 2.0**-12  # share of a query's size: the residual if products are summed in another order


@dataclass(frozen=True, eq=False)
class DeclaredLayer:
    """What a config declares for one layer: a rotation, or that there is none.

    Attributes:
        code: The code; its kind is ``rotary`` or ``none``.
        expected: Its frequencies; None without a rotation.
        layout: The arrangement of the channels that attention receives.
        leading: Whether the rotated channels come first, whatever the code says.
    """

    code: LayerEncoding
    expected: Expected | None
    layout: Layout | None
    leading: bool = False

    @property
    def rotated(self) -> int:
        """Rotated channels of a head."""
        assert self.expected is not None
        return max(self.code.rotated or 0, 2 * len(self.expected.rates))

    def channels(self, width: int) -> slice:
        """The places of the rotated channels among the channels of a head."""
        last = isinstance(self.code.spec, Rotary) and self.code.spec.part == "last"
        last = last or (self.code.width is not None and self.code.width < width)  # multi-head latent attention
        return slice(width - self.rotated, width) if last and not self.leading else slice(0, self.rotated)

    @property
    def sign(self) -> int:
        """-1 where the code rotates backward."""
        return -1 if isinstance(self.code.spec, Rotary) and self.code.spec.direction == "backward" else 1


@dataclass(frozen=True)
class LayerRotation:
    """How queries or keys of one layer are rotated, if that differs from the declaration.

    Attributes:
        layer: Its number.
        path: The path of its attention.
        of: ``queries`` or ``keys``.
        fault: The matching fault of `clockhands.recognition.faults`; None if no known one fits.
        evidence: As the finding ``rotation-differs`` takes it.
    """

    layer: int
    path: str
    of: str
    fault: str | None
    evidence: dict[str, Any]


def declared_layers(
    codes: Sequence[LayerEncoding], layers: Sequence[int], *, reordered: bool = False
) -> dict[int, DeclaredLayer]:
    """The declaration of each layer, if it is certain and is a rotation or none.

    Args:
        codes: As an audit has them.
        layers: The numbers of the layers.
        reordered: Whether interleaved pairs come out of the rotation as halves (``rope_interleave`` of DeepSeek-V3).
    """
    found: dict[int, DeclaredLayer] = {}
    codes = [code for code in codes if code.part in TEXT and code.layers != "input"]
    for layer in layers:
        own = [code for code in codes if code.layers is None or layer in layer_numbers(code.layers)]
        if len(own) != 1 or own[0].kind not in ("rotary", "none"):
            continue
        (code,) = own
        expected = expected_of(code, code.layers) if code.kind == "rotary" else None
        if code.kind == "rotary" and (expected is None or not expected.sure or _hard(code.spec)):
            continue
        spec = code.spec
        as_halves = reordered or (isinstance(spec, Rotary) and spec.reordered)
        layout: Any = "halves" if as_halves else code.layout
        found[layer] = DeclaredLayer(code, expected, layout)
    return found


def _hard(spec: object) -> bool:
    """Whether a rotation is not one of pairs of a single block, or changes sizes as well."""
    return isinstance(spec, Rotary) and (bool(spec.xpos) or len(spec.blocks) > 1)


def changes_with_length(declared: Sequence[DeclaredLayer]) -> bool:
    """Whether frequencies depend on the length in use."""
    return any(isinstance(getattr(each.code.spec, "scaling", None), Dynamic | LongRope) for each in declared)


def single_tokens(
    module: nn.Module, tokens: Tensor, positions: np.ndarray, known: Sequence[Attended]
) -> list[Attended]:
    """Each layer's queries and keys of texts of one token, [positions x tokens, heads, 1, channels]; ``known``: a pass.

    Where layers without attention depend on the position, the layers behind them have their input at the first one.
    """
    ids = tokens.repeat(len(positions))[:, None]
    places = torch.from_numpy(positions).to(tokens.device).repeat_interleave(len(tokens))[:, None]
    passes: list[list[Attended]] = []
    first: dict[str, Tensor] = {}
    step = max(1, _BATCH // len(tokens)) * len(tokens)

    def at_first(path: str, hidden: Tensor) -> Tensor:
        return first.setdefault(path, hidden[: len(tokens)]).repeat(len(hidden) // len(tokens), 1, 1)

    with held_inputs(module, known, at_first, tolerance(known[0].queries.dtype)) as held:
        for start in range(0, len(ids), step):
            part = slice(start, start + step)
            with attended(module) as seen, torch.no_grad():
                runner(module)(ids[part], position_ids=places[part], attention_mask=torch.ones_like(ids[part]))
            passes.append(seen)
    return [
        Attended(
            same[0].layer,
            same[0].path,
            torch.cat([each.queries for each in same]),
            torch.cat([each.keys for each in same]),
            None,
            same[0].product,
            same[0].layer in held,
            same[0].summed,
        )
        for same in zip(*passes, strict=True)
    ]


def by_position(heads: Tensor) -> Tensor:
    """[texts, heads, tokens, channels] reshaped to texts of one token, by position."""
    return heads.permute(2, 0, 1, 3).flatten(0, 1)[:, :, None]


def repeated_tokens(
    module: nn.Module, tokens: Tensor, length: int, known: Sequence[Attended], **how: Any
) -> list[Attended]:
    """Each layer's queries and keys in texts of one repeated token, as `single_tokens` gives them.

    All values are equal there, so hidden states are too, at every position, or are held behind layers with a state.
    """

    def at_first(_: str, hidden: Tensor) -> Tensor:
        return hidden[:, :1].expand_as(hidden)

    held_at_first = held_inputs(module, known, at_first, tolerance(known[0].queries.dtype))
    with held_at_first as held, attended(module) as given, torch.no_grad():
        runner(module)(tokens[:, None].repeat(1, length), **how)
    return [
        replace(each, queries=by_position(each.queries), keys=by_position(each.keys), held=each.layer in held)
        for each in given
        if each.keys.shape[-2] == length
    ]


def rows_of(heads: Tensor, positions: int) -> np.ndarray:
    """Queries or keys as [positions, tokens x heads, channels], float64."""
    return heads.double().cpu().numpy().reshape(positions, -1, heads.shape[-1])


def moved(rows: np.ndarray) -> float:
    """How far rows differ from those at the first position, as a share of their size."""
    return float(np.abs(rows - rows[:1]).max() / max(np.abs(rows[0]).max(), 1e-30))


def tolerance(dtype: torch.dtype) -> float:
    """The largest accepted residual of a query, as a share of its size."""
    return max(16 * roundoff(dtype), _LEAST)


def differing(
    seen: Sequence[Attended], declared: dict[int, DeclaredLayer], positions: np.ndarray, length: int
) -> Iterator[LayerRotation]:
    """Every layer whose queries or keys are not rotated as declared."""
    known: set[tuple[int, str]] = set()
    for each in seen:
        want = declared.get(each.layer)
        if want is None:
            continue
        for of, heads in (("queries", each.queries), ("keys", each.keys)):
            if (each.layer, of) in known:
                continue
            known.add((each.layer, of))
            rows = rows_of(heads, len(positions))
            rows = rows / growth(rows, tolerance(heads.dtype))[:, None, None]
            found = _of_heads(rows, want, positions, length, heads.dtype)
            if found is not None:
                yield LayerRotation(each.layer, each.path, of, *found)


def _of_other_ladder(table: Cosines, expected: Expected, ladder: np.ndarray, length: int) -> str:
    """The rotation with frequencies that are declared for other lengths, in words; empty where it is another."""
    right = next(name for name, each in expected.ladders.items() if each is ladder)
    for name, each in expected.ladders.items():
        rates = padded(each, table.pairs)
        if each is not ladder and compared(table, expected, rates, 1.0).code is None:
            of_text = f"where those {right} are declared for a text of {length:,} tokens"
            return f"one with the frequencies of another length: those {name}, {of_text}"
    return ""


def _of_heads(
    rows: np.ndarray, want: DeclaredLayer, positions: np.ndarray, length: int, dtype: torch.dtype
) -> tuple[str | None, dict[str, Any]] | None:
    """What is wrong with the rotation of some heads: the fault and the evidence."""
    allowed = tolerance(dtype)
    if want.expected is None:
        far = moved(rows)
        if far <= allowed:
            return None
        return None, {"moved": far, "behaves as": "one that rotates, where the config declares no rotation"}
    ladder = rates_at(want.expected, length)
    place = want.channels(rows.shape[-1])
    inside = rows[..., place]
    beside = np.delete(rows, np.r_[place], axis=-1)
    assert want.layout is not None
    cosine, sine, left = fitted(inside, pair_channels(want.rotated // 2, want.layout))
    sine = want.sign * sine
    table = Cosines(positions.astype(np.float64), cosine, sine, "float16")
    rates = padded(ladder, cosine.shape[1])
    if left <= allowed:
        verdict = compared(table, want.expected, rates, 1.0)
        if verdict.code is None or _rounded_only(table, rates, want.expected.slack, dtype):
            if beside.size and moved(beside) > allowed:
                return "unrotated-channels-turned", {
                    "moved": moved(beside), "behaves as": "one that also rotates channels that should stay",
                }  # fmt: skip
            return None
        fault = _FAULTS.get(verdict.code)
        if moved(inside) <= allowed:
            fault = "no-rotation"
        elif _half_unrotated(table, rates):
            says = f"one that rotates {want.rotated // 2} channels of a head, where {want.rotated} are declared"
            return "other-rotated-width", _clean({**verdict.evidence, "behaves as": says})
        if says := _of_other_ladder(table, want.expected, ladder, length):
            return fault, _clean({**verdict.evidence, "behaves as": says})
        return fault, _clean(verdict.evidence)
    evidence = _worst(table, rates)
    other: Layout = "interleaved" if want.layout == "halves" else "halves"
    names = {"halves": "channels i and i + half of a head", "interleaved": "neighbouring channels"}
    if fitted(inside, pair_channels(want.rotated // 2, other))[2] <= allowed:
        says = f"one that pairs {names[other]} (layout {other}), where {names[want.layout]} are declared"
        return "other-layout", evidence | {"behaves as": says}
    for width in (want.rotated // 2, want.rotated // 4, 2 * want.rotated, rows.shape[-1]):
        head = inside if width < want.rotated else rows
        if width % 2 or not 2 <= width <= head.shape[-1] or width == want.rotated:
            continue
        for layout in (want.layout, other):
            if fitted(head[..., :width], pair_channels(width // 2, layout))[2] <= allowed and (
                width == head.shape[-1] or moved(head[..., width:]) <= allowed
            ):
                says = (
                    f"one that rotates {width} channels of a head (layout {layout}), where {want.rotated} are declared"
                )
                return "other-rotated-width", evidence | {"behaves as": says}
    return None, evidence


def _rounded_only(table: Cosines, rates: np.ndarray, slack: float, dtype: torch.dtype) -> bool:
    """Whether rounding to a narrow dtype explains the difference: of cosine or sine, two products and their sum."""
    assert table.cos is not None
    assert table.sin is not None
    phases = table.positions[:, None] * rates
    bound = ROUNDINGS * roundoff(dtype) + phases * slack
    return bool((np.maximum(np.abs(table.cos - np.cos(phases)), np.abs(table.sin - np.sin(phases))) <= bound).all())


_FAULTS = {
    "buffer-of-another-base": "another-base",
    "buffer-unscaled": "scaling-dropped",
    "buffer-scaled-twice": "scaling-twice",
    "buffer-of-another-factor": "another-factor",
    "buffer-of-another-scaling": "another-scaling",
    "buffer-rounded": "rates-rounded",
    "buffer-zero": "no-rotation",
    "attention-factor-differs": "attention-factor",
}
"""What the diagnosis of numbers calls a fault, and what `clockhands.recognition.faults` calls it of a rotation."""


def _half_unrotated(table: Cosines, rates: np.ndarray) -> bool:
    """Whether the second half of the pairs does not rotate, although it should like the first half."""
    assert table.cos is not None
    assert table.sin is not None
    half = len(rates) // 2
    away = np.hypot(table.cos - 1, table.sin).max(axis=0)
    should = np.abs(2 * np.sin(table.positions[:, None] * rates / 2)).max(axis=0)
    return bool(half and (away[half:] < 1e-3).all() and (should[half:] > 1e-2).any() and (away[:half] > 1e-2).all())


def _clean(evidence: Any) -> dict[str, Any]:
    return {name: value for name, value in evidence.items() if name not in ("of", "error")}


def _worst(table: Cosines, rates: np.ndarray) -> dict[str, Any]:
    assert table.cos is not None
    exact = np.cos(table.positions[:, None] * rates)
    row, pair = (int(at) for at in np.unravel_index(int(np.abs(table.cos - exact).argmax()), exact.shape))
    return {
        "pair": pair, "position": int(table.positions[row]), "wave": "cosine", "stored": float(table.cos[row, pair]),
        "declared": float(exact[row, pair]),
    }  # fmt: skip
