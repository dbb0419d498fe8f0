"""What each channel of a sinusoidal code holds: a sine or a cosine, of which axis, at which rate; or something else."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.additive import (
    AdditiveCode,
    AxialSinusoidal,
    EvenlySpaced,
    FourierFeatures,
    SineOnly,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
)
from clockhands.encodings.layouts import pair_channels

# Phase shifts of the channels of a pair, in quarters of a rotation from a sine.
_QUARTERS = {
    "sin-cos": (0, 1),
    "cos-sin": (1, 0),
    "sin-sin": (0, 0),
    "cos-cos": (1, 1),
    "-sin-cos": (2, 1),
    "cos--sin": (1, 2),
    "sin": (0,),
    "cos": (1,),
}


@dataclass(frozen=True, eq=False)
class ChannelWaves:
    """The content of each channel: ``sin(sum_a p_a rates[a, c] + offsets[c] + quarters[c] pi / 2)``.

    Attributes:
        rates: Radians per token, [axes, width].
        offsets: Radians at the origin, [width].
        quarters: Quarters of a rotation, [width]: 0 is a sine, 1 a cosine; -1 is a column of zeros, or a coordinate.
        raw: The axis whose raw coordinate is in this channel, [width]; -1 for none.
        axes: The axis whose sine or cosine is in this channel, [width]; the last one if it depends on several.
        pairs: The channels of a sine and of its cosine, [pairs, 2].
    """

    rates: np.ndarray
    offsets: np.ndarray
    quarters: np.ndarray
    raw: np.ndarray
    axes: np.ndarray
    pairs: np.ndarray

    def columns(self, which: np.ndarray) -> "ChannelWaves":
        """Some columns of the table."""
        names = ("rates", "offsets", "quarters", "raw", "axes")
        return replace(self, **{name: getattr(self, name)[..., which] for name in names})

    def waves(self, phases: np.ndarray) -> np.ndarray:
        """The waves at phases [..., width], between -1 and 1."""
        with np.errstate(invalid="ignore"):  # outside the positions of a warped code, a phase may be infinite
            out = np.where(self.quarters % 2 == 0, np.sin(phases), np.cos(phases))
        return np.where(self.quarters < 0, 0.0, np.where(self.quarters >= 2, -out, out))


def sinusoid_channels(spec: AdditiveCode, values: Any = None) -> ChannelWaves | None:
    """The channels of a sinusoidal code; None for other codes."""
    if isinstance(spec, AxialSinusoidal):
        return _axial(spec)
    if isinstance(spec, FourierFeatures):
        return _fourier(spec, values)
    if isinstance(spec, SineOnly):
        return _of_pairs(spec.width, [(0, np.array(spec.ladder.rates), np.arange(spec.width)[:, None])], "sin")
    if isinstance(spec, Sinusoidal | SingleFrequency | EvenlySpaced | WarpedPosition):
        channels = pair_channels(spec.ladder.pairs, spec.layout)
        return _of_pairs(spec.width, [(0, np.array(spec.ladder.rates), channels)], spec.order)
    return None


def _axial(spec: AxialSinusoidal) -> ChannelWaves:
    channels, coordinates = spec.places
    parts = [
        (axis, np.array(rates), places) for axis, (rates, places) in enumerate(zip(spec.rates, channels, strict=True))
    ]
    hands = _of_pairs(spec.width, parts, spec.order, spec.number_of_axes)
    if spec.raw is not None:
        hands.raw[coordinates] = np.arange(spec.number_of_axes)
    return hands


def _of_pairs(
    width: int, parts: Sequence[tuple[int, np.ndarray, np.ndarray]], order: str, axes: int = 1
) -> ChannelWaves:
    """The waves of parts with an axis, rates [pairs] and the channels of each pair; the last pair may lack one."""
    rates, quarters, axis_of = np.zeros((axes, width)), np.full(width, -1), np.zeros(width, int)
    whole: list[np.ndarray] = []
    for axis, ladder, channels in parts:
        for wave, quarter in enumerate(_QUARTERS[order]):
            at = channels[:, wave]
            there = at < width
            rates[axis, at[there]] = ladder[there]
            quarters[at[there]] = quarter
            axis_of[at[there]] = axis
        kept = channels[(channels < width).all(axis=1)]
        whole.append(kept[:, ::-1] if order.startswith("cos") else kept)
    known = order in {"sin-cos", "cos-sin"}
    pairs = np.concatenate(whole) if known else np.empty((0, 2), int)
    return ChannelWaves(rates, np.zeros(width), quarters, np.full(width, -1), axis_of, pairs)


def _fourier(spec: FourierFeatures, values: Any) -> ChannelWaves:
    numbers = np.asarray(values, np.float64).reshape(-1, spec.pairs) * spec.multiplier
    waves = len(_QUARTERS[spec.order])
    lead = spec.axes if spec.raw == "before" else 0
    channels = lead + (pair_channels(spec.pairs, spec.layout) if waves > 1 else np.arange(spec.pairs)[:, None])
    hands = _of_pairs(spec.width, [(axis, numbers[axis], channels) for axis in range(spec.axes)], spec.order, spec.axes)
    if spec.offsets:
        hands.offsets[channels] = numbers[spec.axes][:, None]
    if spec.raw is not None:
        hands.raw[np.arange(spec.axes) + (0 if spec.raw == "before" else waves * spec.pairs)] = np.arange(spec.axes)
    return replace(hands, pairs=np.empty((0, 2), int))
