"""The sinusoidal code: a clock with d/2 hands, added to the tokens."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from clockhands.additive.codes import AdditiveCode
from clockhands.arguments import count, settle, shown
from clockhands.clocks import Clock, Order, order_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import Geometric, Ladder, Spacing, spacing_of
from clockhands.layouts import Layout, layout_of
from clockhands.positions import Positions

Odd = Literal["refuse", "zero", "extra", "cut"]


@dataclass(frozen=True, init=False)
class Sinusoidal(AdditiveCode):
    """Sine and cosine of position x rate: ``PE(p)[2i] = sin(p rate_i)``, ``PE(p)[2i + 1] = cos(p rate_i)``.

    That is the paper's channel order (``layout="interleaved"``, ``order="sin-cos"``); the other three are in use too.

    Attributes:
        width: Channels of a token.
        spacing: How the rates are spaced; ``base`` is short for ``Geometric(base)``, 10,000 unless said.
        layout: ``"interleaved"`` (2i, 2i + 1) or ``"halves"`` (i, i + d/2).
        order: ``"sin-cos"`` or ``"cos-sin"``.
        odd: What an odd width means: ``"refuse"``; ``"zero"``, a last column of zeros (tensor2tensor, fairseq,
            DDPM); ``"extra"``, a last hand without its second channel, on the ladder of the odd width (Marian,
            DistilBERT); ``"cut"``, the table of the next even width without its last column.
        first: Position of a sequence's first token when `add` is given none (fairseq: padding + 1).
        zero_rows: Positions whose row is zero (fairseq: the padding's).

    Shapes: a table is [positions, width]. Accuracy: see `clockhands.phases`.

    Raises:
        InvalidValue: The width is not positive, or odd where that is refused; a value is not allowed; the
            ladder does not exist for the width.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    >>> Sinusoidal(width=4).rates
    (1.0, 0.01)
    """

    width: int
    spacing: Spacing
    layout: Layout
    order: Order
    odd: Odd
    first: int
    zero_rows: tuple[int, ...]

    def __init__(
        self,
        width: int,
        base: float | None = None,
        *,
        spacing: Spacing | None = None,
        layout: Layout = "interleaved",
        order: Order = "sin-cos",
        odd: Odd = "refuse",
        first: int = 0,
        zero_rows: tuple[int, ...] = (),
    ) -> None:
        """Check the values and make the ladder once, so that an impossible one is refused here."""
        width = count("width", width)
        if odd not in get_args(Odd):
            raise InvalidValue(
                f"`odd` must be one of {', '.join(get_args(Odd))}, got {shown(odd)}.", "It is the rule for odd widths."
            )
        if width % 2 and odd == "refuse":
            raise InvalidValue(
                f"`width` must be even in this convention, got {width}.",
                'Use an even width, or say what an odd one means: odd="zero", "extra" or "cut".',
            )
        if isinstance(zero_rows, str | bytes) or not isinstance(zero_rows, Iterable):
            raise InvalidType(
                f"`zero_rows` must be a list of positions, got {shown(zero_rows)}.", "Write (1,) for the position 1."
            )
        if width == 1 and odd == "zero":
            raise InvalidValue("`width` must be at least 2, got 1.", "One channel holds no pair.")
        settle(
            self,
            width=width,
            spacing=spacing_of(base, spacing),
            layout=layout_of(layout),
            order=order_of(order),
            odd=odd,
            first=count("first", first, least=0),
            zero_rows=tuple(sorted({count("zero_rows", row, least=0) for row in zero_rows})),
        )
        _ = self.ladder

    @cached_property
    def ladder(self) -> Ladder:
        """The rates of the hands."""
        if self.odd == "zero":
            return self.spacing.ladder(self.width // 2, self.width - self.width % 2)
        pairs = -(-self.width // 2)
        return self.spacing.ladder(pairs, 2 * pairs if self.odd == "cut" else self.width)

    @property
    def base(self) -> float | None:
        """The base of a geometric ladder, else None."""
        return self.spacing.base if isinstance(self.spacing, Geometric) else None

    @property
    def rates(self) -> tuple[float, ...]:
        """The rate of each hand in radians per token, nearest float64."""
        return self.ladder.rates

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the numbers at these (flattened) positions into ``out`` [rows, width]."""
        clock = self._written()
        out[:, clock.width :] = 0
        clock.write(out, positions, threads)
        for row in self.zero_rows:
            out[positions.where(row)] = 0

    def _written(self) -> Clock:
        return Clock(self.ladder, self.layout, self.order, min(self.width, 2 * self.ladder.pairs))

    def clock(self) -> Clock:
        """The clock behind the code.

        Raises:
            InvalidValue: The last hand has no second channel.
        """
        return super().clock() if self.width < 2 * self.ladder.pairs else self._written()

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "its last hand has lost its second channel to the odd width"

    def __getstate__(self) -> dict[str, object]:
        """What is pickled and copied: the fields, not the numbers remembered from them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
