"""Rotary position codes: queries and keys turned by the clock (RoPE).

Here is the value that says which rotary code it is; its ladder follows from it.
"""

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from clockhands.arguments import count, settle, shown
from clockhands.clocks import Clock
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import Geometric, Ladder, Spacing, spacing_of
from clockhands.layouts import Layout, layout_of
from clockhands.scaling import Scaling


@dataclass(frozen=True, init=False)
class Rotary:
    """A rotary code: in pair ``i`` a query or key at position ``p`` is turned by ``p rate_i`` radians.

    Attributes:
        head_width: Channels of a head.
        layout: Which two channels form a pair: ``"halves"`` (i, i + d/2), as in GPT-NeoX and
            Transformers' Llama, or ``"interleaved"`` (2i, 2i + 1), as in GPT-J and Meta's Llama.
        spacing: How the rates are spaced; ``base`` is short for ``Geometric(base)``.
        rotated: Channels that turn, the first of the head; all unless said.
        scaling: A scaling of the ladder, or None.
        length: Tokens in use, for scalings that depend on it; None is their original length.

    Raises:
        InvalidValue: A width is not a positive even number, ``rotated`` is above ``head_width``, or the
            ladder does not exist.

    Source: Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2.

    >>> Rotary(head_width=4, base=100.0).rates
    (1.0, 0.1)
    """

    head_width: int
    layout: Layout
    spacing: Spacing
    rotated: int
    scaling: Scaling | None
    length: int | None

    def __init__(
        self,
        head_width: int,
        layout: Layout = "halves",
        base: float | None = None,
        *,
        spacing: Spacing | None = None,
        rotated: int | None = None,
        scaling: Scaling | None = None,
        length: int | None = None,
    ) -> None:
        """Check the values and make the ladder once, so that an impossible one is refused here."""
        head_width = count("head_width", head_width)
        turning = head_width if rotated is None else count("rotated", rotated)
        if turning > head_width:
            raise InvalidValue(
                f"`rotated` must be at most the head's width {head_width}, got {turning}.",
                "It is the number of channels of a head that turn.",
            )
        if turning % 2:
            name = "head_width" if rotated is None else "rotated"
            raise InvalidValue(
                f"`{name}` must be even where its channels turn in pairs, got {turning}.",
                "Give an even number of rotated channels with rotated=.",
            )
        if scaling is not None and not isinstance(scaling, Scaling):
            raise InvalidType(
                f"`scaling` must be a function ladder -> ladder, got {shown(scaling)}.",
                "Use one of clockhands.scaling, such as Linear(factor=4).",
            )
        settle(
            self,
            head_width=head_width,
            layout=layout_of(layout),
            spacing=spacing_of(base, spacing),
            rotated=turning,
            scaling=scaling,
            length=None if length is None else count("length", length),
        )
        _ = self.ladder

    @cached_property
    def ladder(self) -> Ladder:
        """The ladder in use: spaced, then scaled for `length`."""
        ladder = self.spacing.ladder(self.rotated // 2, self.rotated)
        return ladder if self.scaling is None else self.scaling(ladder, self.length)

    @property
    def base(self) -> float | None:
        """The base of a geometric ladder before scaling, else None."""
        return self.spacing.base if isinstance(self.spacing, Geometric) else None

    @property
    def rates(self) -> tuple[float, ...]:
        """The rate of each pair in radians per token, nearest float64."""
        return self.ladder.rates

    @property
    def attention_factor(self) -> float:
        """What cosine and sine are multiplied by."""
        return self.ladder.attention_factor

    def clock(self) -> Clock:
        """The clock that turns the rotated channels; turning by p is `shift(spec, p)`."""
        return Clock(self.ladder, self.layout, "cos-sin", self.rotated)

    def __getstate__(self) -> dict[str, object]:
        """What is pickled and copied: the fields, not the numbers remembered from them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
