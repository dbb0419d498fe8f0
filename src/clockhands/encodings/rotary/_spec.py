"""`Rotary`, the spec of a rotary code: ladder, pairs, axes, direction, decay."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, Self, get_args
from weakref import WeakValueDictionary

import numpy as np

from clockhands.arguments import count, one_of, positive, real, set_fields, truth
from clockhands.encodings.clocks import Clock
from clockhands.encodings.constants import Source
from clockhands.encodings.ladders import Geometric, Joined, Ladder, Spacing, spacing_of
from clockhands.encodings.layouts import Layout, layout_of, pair_channels
from clockhands.encodings.scaling import SCALINGS, Scaling
from clockhands.encodings.spec_fields import KnowsItsNames, OneLine, refuse_unknown
from clockhands.encodings.traces import made_outside
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

Place = Literal["first", "last"]
Direction = Literal["forward", "backward"]
# Short for a spacing of a code of several axes: one ladder through the pairs of all axes, or one for each axis.
AxesLadder = Literal["through-axes", "per-axis"]


@dataclass(frozen=True)
class XPos(KnowsItsNames):
    """xPos: queries grow and keys shrink with their position, so that scores decay with distance.

    Pair ``j`` of ``n`` is multiplied by ``zeta_j ** ((p - centre) / scale)`` in a query and divided by it in a
    key, with ``zeta_j = (j / n + smoothing) / (1 + smoothing)``. The centre cancels in every score; it only keeps
    the numbers small. It is a fixed number here: code that derives it from the current length (half of the sequence)
    makes keys that are already cached inconsistent with new queries.

    Numbers stay in the range of float32 up to ``85 scale / ln(1 / zeta_0)`` tokens away from the centre (34,000 with
    the published values). For float16 it is 10.1 instead of 85 (4,100), if no pair of a head has a norm above 2.7.
    Known positions further away are refused. Traced positions cannot be checked; they give infinities and zeros.

    Attributes:
        scale: Number of tokens over which a pair decays by its ``zeta``.
        smoothing: Keeps ``zeta`` away from 0.
        centre: Position at which the factor is 1.

    Raises:
        InvalidValue: A value is not finite, or the scale or smoothing is not positive.

    Source: Sun et al. 2022, arXiv:2212.10554, section 3.2; torchscale 0.3.0, ``XPOS``.
    """

    scale: float = 512.0
    smoothing: float = 0.4
    centre: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            scale=positive("scale", self.scale),
            smoothing=positive("smoothing", self.smoothing),
            centre=real("centre", self.centre),
        )
        if not math.isfinite(self.centre):
            raise InvalidValue(f"`centre` must be finite, got {shown(self.centre)}.", "Leave it out for 0.")

    def logarithms(self, pairs: int) -> np.ndarray:
        """``ln(zeta_j) / scale``, per token, float64 [pairs]."""
        return np.log((np.arange(pairs) / pairs + self.smoothing) / (1 + self.smoothing)) / self.scale


class _Latest(dict[tuple[str, str | None], tuple[tuple[object, ...], Any]]):
    """The cached cosines and sines of the last positions used, shared by equal specs."""


# Keyed by the fields of the specs; entries live as long as one of these specs exists.
_LATEST: WeakValueDictionary[tuple[object, ...], _Latest] = WeakValueDictionary()


@dataclass(frozen=True, init=False)
class Rotary(OneLine, Source):
    """A rotary code: pair ``i`` of a query or key at position ``p`` is rotated by ``p rate_i`` radians.

    ``(x, y) -> f (x cos - y sin, x sin + y cos)`` with ``f`` the scaling's attention factor.

    Attributes:
        head_width: Channels of a head.
        layout: Which two channels form a pair: ``"halves"`` (i, i + d/2), as in GPT-NeoX and
            Transformers' Llama, or ``"interleaved"`` (2i, 2i + 1), as in GPT-J and Meta's Llama.
        spacing: The spacing of the rates; ``base`` is short for ``Geometric(base)``. The exponent runs over the RoPE
            dimensions; ``Geometric(base, span=head_width / 2)`` runs it over the whole head.
        rotated: Number of RoPE dimensions; all channels of the head by default.
        part: Whether those are the ``"first"`` or the ``"last"`` channels of the head (DeepSeek).
        axes: For several axes, the axis of each pair; see `chunked`, `interleaved`, `alternating`. One ladder runs
            through the pairs of all axes by default (Qwen2-VL), which ``spacing="through-axes"`` says too; with
            ``spacing="per-axis"`` each axis has the whole ladder in its own pairs (Flux, most image models).
        blocks: Numbers of pairs of blocks in which the layout applies separately (Gemma 4's vision: half-split
            within each axis).
        direction: ``"backward"`` rotates by ``-p rate_i``: the same scores, different keys (nanochat).
        reordered: Whether interleaved input pairs are returned half-split (DeepSeek-V3 in Transformers).
        xpos: A decay of the scores with distance, or None.
        scaling: A RoPE scaling, or None.
        length: Current context length, for scalings that depend on it (dynamic NTK, LongRoPE). None means their
            original length: `rotate` then refuses positions beyond it, and those that are not known, as inside a trace.

    Raises:
        InvalidValue: A width is not a positive even number, ``rotated`` is above ``head_width``, a field does not
            fit another, or the ladder does not exist.

    Source: Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2.

    >>> Rotary(head_width=4, base=100.0).rates
    (1.0, 0.1)
    """

    head_width: int
    layout: Layout
    spacing: Spacing
    rotated: int
    part: Place
    axes: tuple[int, ...] | None
    blocks: tuple[int, ...]
    direction: Direction
    reordered: bool
    xpos: XPos | None
    scaling: Scaling | None
    length: int | None

    def __new__(cls, *_given: Any, **named: Any) -> Self:
        """Make a new code outside of a graph that PyTorch compiles."""
        made_outside("Rotary")
        refuse_unknown(cls, named)
        return super().__new__(cls)

    def __init__(
        self,
        head_width: int,
        layout: Layout = "halves",
        base: float | None = None,
        *,
        spacing: Spacing | AxesLadder | None = None,
        rotated: int | None = None,
        part: Place = "first",
        axes: tuple[int, ...] | None = None,
        blocks: tuple[int, ...] = (),
        direction: Direction = "forward",
        reordered: bool = False,
        xpos: XPos | None = None,
        scaling: Scaling | None = None,
        length: int | None = None,
    ) -> None:
        """Check the values and make the ladder once, so that an invalid one is refused here."""
        head_width = count("head_width", head_width)
        turning = _rotated(head_width, rotated)
        if scaling is not None and (isinstance(scaling, type) or not isinstance(scaling, Scaling)):
            raise InvalidType(
                f"`scaling` must be a function ladder -> ladder, got {shown(scaling)}.",
                "Use one of clockhands.scaling, such as Linear(factor=4).",
            )
        if xpos is not None and not isinstance(xpos, XPos):
            raise InvalidType(f"`xpos` must be an XPos or None, got {shown(xpos)}.", "Write xpos=XPos(scale=512).")
        truth("reordered", reordered, "Leave it out for False.")
        if xpos is not None and axes is not None:
            raise InvalidValue(
                "`xpos` is a decay along one axis, but `axes` makes positions of several axes.",
                "Leave one of them out.",
            )
        layout = layout_of(layout)
        owners = None if axes is None else _axes(axes, turning // 2)
        if reordered and (layout != "interleaved" or blocks):
            raise InvalidValue(
                "`reordered` returns interleaved pairs in half-split order, but the layout is "
                f"{'that of blocks' if blocks else 'halves'}.",
                'Use layout="interleaved" without blocks.',
            )
        set_fields(
            self,
            head_width=head_width,
            layout=layout,
            spacing=_spacing(base, spacing, owners),
            rotated=turning,
            part=one_of("part", part, get_args(Place), "Leave it out for the first."),
            axes=owners,
            blocks=_blocks(blocks, turning // 2),
            direction=one_of("direction", direction, get_args(Direction), "Leave it out for the first."),
            reordered=reordered,
            xpos=xpos,
            scaling=scaling,
            length=None if length is None else count("length", length),
        )
        _ = self.ladder

    @cached_property
    def ladder(self) -> Ladder:
        """The ladder in effect: that of the spacing, scaled for `length`."""
        # A user's scaling may change between two specs, so its ladder is made for each.
        kept = self.rotated <= _KEPT_WIDTH and (self.scaling is None or type(self.scaling) in SCALINGS)
        make = _ladder if kept else _ladder.__wrapped__
        return make(self.spacing, self.rotated, self.scaling, self.length)

    @property
    def base(self) -> float | None:
        """The base of a geometric ladder before scaling, else None."""
        return self.spacing.base if isinstance(self.spacing, Geometric) else None

    @property
    def rates(self) -> tuple[float, ...]:
        """The rate of each pair in radians per token, nearest float64."""
        return self.ladder.rates

    @property
    def untold(self) -> int | None:
        """The original length of a scaling that depends on the length, where none is given; else None."""
        by_length = self.length is None and getattr(self.scaling, "BY_LENGTH", False)
        return self.scaling.original if by_length else None  # type: ignore[union-attr]

    @cached_property
    def at_original(self) -> "Rotary":
        """This code with the original length of its scaling, where it has none: the same ladder at every position."""
        return self if self.untold is None else dataclasses.replace(self, length=self.untold)

    @property
    def attention_factor(self) -> float:
        """The factor on cosine and sine."""
        return self.ladder.attention_factor

    @cached_property
    def ladders(self) -> tuple[Ladder, ...]:
        """The ladder of each axis, with its pairs in their order."""
        if self.axes is None:
            return (self.ladder,)
        owned = [
            [rate for rate, owner in zip(self.ladder.exact, self.axes, strict=True) if owner == axis]
            for axis in range(self.number_of_axes)
        ]
        return tuple(Ladder(tuple(rates), origin=f"axis {axis}") for axis, rates in enumerate(owned))

    @property
    def owners(self) -> tuple[int, ...]:
        """The pair of each RoPE dimension, in the order of the channels."""
        return tuple((np.argsort(self.channels.ravel(), kind="stable") // 2).tolist())

    @property
    def number_of_axes(self) -> int:
        """Number of coordinates of a position: 1 unless `axes` is given."""
        return 1 if self.axes is None else max(self.axes) + 1

    @property
    def start(self) -> int:
        """The first RoPE dimension of the head."""
        return self.head_width - self.rotated if self.part == "last" else 0

    @cached_property
    def _first_rows(self) -> dict[tuple[str, str | None], tuple[np.ndarray, np.ndarray]]:
        """Cached cosine and sine of the first positions, by dtype and role."""
        return {}

    @cached_property
    def _latest(self) -> _Latest:
        """Cached cosine and sine of the last few positions used, by dtype and role, with these positions.

        Equal specs share them, because each layer of a model may have a separate, equal spec.
        """
        try:
            # Keyed by the ladder too: a scaling defined by a user may change between two specs.
            return _LATEST.setdefault((*self.__getstate__().values(), self.ladder), _Latest())
        except TypeError:  # a user's scaling that cannot be hashed
            return _Latest()

    @cached_property
    def in_order(self) -> "Rotary":
        """This code with ``reordered=False``."""
        return dataclasses.replace(self, reordered=False)

    @cached_property
    def channels(self) -> np.ndarray:
        """The two channels of each pair in the head, int64 [pairs, 2], read-only."""
        blocks = self.blocks or (self.rotated // 2,)
        found, first = [], 0
        for pairs in blocks:
            if pairs:
                found.append(2 * first + pair_channels(pairs, self.layout))
            first += pairs
        channels = self.start + np.concatenate(found)
        channels.flags.writeable = False
        return channels

    def clock(self) -> Clock:
        """The clock of the RoPE dimensions; rotating by position p is `shift(spec, p)`.

        Raises:
            InvalidValue: The code has several axes or a decay, so no single rotation shifts it.
        """
        if self.axes is not None or self.xpos is not None or self.reordered:
            why = (
                "several axes" if self.axes is not None else "a decay" if self.xpos is not None else "reordered output"
            )
            raise InvalidValue(
                f"This encoding has {why}, so a shift is not a single rotation.",
                "Use the encoding without it: clockhands.specs.with_fields(spec, axes=None, xpos=None, "
                "reordered=False).",
            )
        order = "cos-sin" if self.direction == "forward" else "sin-cos"
        return Clock(self.ladder, self.layout, order, self.rotated, self.channels)

    def __copy__(self) -> "Rotary":
        """The same object: it is immutable, and PyTorch's compiler recognises a spec by object identity only."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "Rotary":
        """The same object, as in `__copy__`."""
        return self

    def __getstate__(self) -> dict[str, object]:
        """The state for pickling and copying: the fields without the values cached from them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


_KEPT_WIDTH = 256  # the ladders that are kept take at most 20 MB


@lru_cache(maxsize=512)
def _ladder(spacing: Spacing, width: int, scaling: Scaling | None, length: int | None) -> Ladder:
    """The ladder of a spacing after a scaling, which may be a user's function."""
    ladder = spacing.ladder(width // 2, width)
    if scaling is None:
        return ladder
    try:
        scaled = scaling(ladder, length)
    except TypeError as error:
        raise InvalidType(
            f"`scaling` must accept scaling(ladder, length), but {shown(scaling)} fails: {error}.",
            "Write a function scaling(ladder, length) that returns a ladder of the same length.",
        ) from error
    if not isinstance(scaled, Ladder) or scaled.pairs != ladder.pairs:
        pairs = f" of {scaled.pairs} pairs" if isinstance(scaled, Ladder) else f" {shown(scaled)}"
        raise InvalidType(
            f"`scaling` must return a ladder of {ladder.pairs} pairs, got {type(scaled).__name__}{pairs}.",
            "Use one of clockhands.scaling, or a function ladder, length -> ladder.",
        )
    return scaled


def _rotated(head_width: int, rotated: int | None) -> int:
    turning = head_width if rotated is None else count("rotated", rotated)
    if turning > head_width:
        raise InvalidValue(
            f"`rotated` must be at most the head's width {head_width}, got {turning}.",
            "It is the number of RoPE dimensions per head.",
        )
    if turning % 2:
        name = "head_width" if rotated is None else "rotated"
        raise InvalidValue(
            f"`{name}` must be even, because dimensions rotate in pairs, got {turning}.",
            "Pass an even number of RoPE dimensions as rotated=.",
        )
    return turning


def _axes(axes: tuple[int, ...], pairs: int) -> tuple[int, ...]:
    if isinstance(axes, str) or not hasattr(axes, "__iter__"):
        raise InvalidType(
            f"`axes` must be a list with the axis of each pair, got {shown(axes)}.",
            "Write axes=chunked([16, 24, 24]), for example.",
        )
    given = tuple(count("axes", axis, least=0) for axis in axes)
    if len(given) != pairs:
        raise InvalidValue(
            f"`axes` has {len(given)} entries, one for each pair, but {pairs} pairs are rotated.",
            "The sections must add up to half of the RoPE dimensions.",
        )
    missing = sorted(set(range(max(given))) - set(given))
    if missing:
        raise InvalidValue(
            f"`axes` names axis {max(given)}, but gives no pair to axis {missing[0]}.",
            "Number the axes 0, 1, 2 and so on, without gaps.",
        )
    return given


def _spacing(base: float | None, spacing: Any, axes: tuple[int, ...] | None) -> Spacing:
    """The spacing of all pairs, also from a short name, in the order of the pairs."""
    if not isinstance(spacing, str):
        return spacing_of(base, spacing)
    one_of("spacing", spacing, get_args(AxesLadder), "Or give one of clockhands.ladders, such as Geometric(base).")
    each = spacing_of(base, None)
    if axes is None:
        raise InvalidValue(
            f"`spacing` is {spacing!r}, but this code has one axis.", "Give axes=…, or leave `spacing` out."
        )
    if spacing == "through-axes" or len(set(axes)) == 1:
        return each
    lengths = [(axis, len(list(run))) for axis, run in itertools.groupby(axes)]
    number = max(axes) + 1
    if len(lengths) == number:
        return Joined(tuple((pairs, each) for _, pairs in lengths))  # type: ignore[misc] # spacing_of made a Geometric
    if axes == axes[:number] * (len(axes) // number):
        return Joined(((len(axes) // number, each),) * number, in_turns=True)  # type: ignore[arg-type]
    raise InvalidValue(
        '`spacing` can be "per-axis" for axes one after another, or alternating with equal numbers of pairs; these are '
        f"neither: {shown(axes)}.",
        "Give the frequency of each pair: Explicit(…) of clockhands.ladders.",
    )


def _blocks(blocks: tuple[int, ...], pairs: int) -> tuple[int, ...]:
    if isinstance(blocks, str) or not hasattr(blocks, "__iter__"):
        raise InvalidType(
            f"`blocks` must be a list with the number of pairs of each block, got {shown(blocks)}.",
            "Write blocks=(16, 16).",
        )
    given = tuple(count("blocks", size, least=0) for size in blocks)
    if given and sum(given) != pairs:
        raise InvalidValue(
            f"`blocks` holds {sum(given)} pairs, but {pairs} pairs are rotated.",
            "The pairs of all blocks must add up to half of the RoPE dimensions.",
        )
    return given
