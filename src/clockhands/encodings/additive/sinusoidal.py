"""The sinusoidal position encoding of the original transformer, and its variants in published models."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from clockhands.arguments import count, one_of, positive, set_fields, truth
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.additive.waves import Waves, check_fits, clock_order, into_waves, sine_first, waves_of
from clockhands.encodings.clocks import Clock
from clockhands.encodings.dtypes import before_rounding
from clockhands.encodings.ladders import Geometric, Ladder, Spacing, spacing_of
from clockhands.encodings.layouts import Layout, as_complex_pairs, layout_of, place
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.phases import fill
from clockhands.encodings.positions import Positions, positions_of
from clockhands.encodings.traces import device_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

Odd = Literal["refuse", "zero", "extra", "cut"]


@dataclass(frozen=True, init=False)
class Sinusoidal(AdditiveCode):
    """Sine and cosine of position x rate: ``PE(p)[2i] = sin(p rate_i)``, ``PE(p)[2i + 1] = cos(p rate_i)``.

    This is the paper's channel order (``layout="interleaved"``, ``order="sin-cos"``); the other three are in use too.

    Attributes:
        width: Channels of a token.
        spacing: The spacing of the rates; ``base`` is short for ``Geometric(base)``, 10,000 by default.
        layout: ``"interleaved"`` (2i, 2i + 1) or ``"halves"`` (i, i + d/2).
        order: The two channels of a pair: ``"sin-cos"`` or ``"cos-sin"``; Funnel's factorised tables also have
            ``"sin-sin"``, ``"cos-cos"`` and ``"-sin-cos"``.
        odd: The treatment of an odd width: ``"refuse"``; ``"zero"``, a last column of zeros (tensor2tensor, fairseq,
            DDPM); ``"extra"``, a last pair without its second channel, on the ladder of the odd width (DistilBERT,
            Transformers' Marian); ``"cut"``, the table of the next even width without its last column.
        first: Position of a sequence's first token when `add` is given no positions (fairseq: padding + 1).
        zero_rows: Positions whose row is zero (fairseq: that of padding).
        scale: A factor on all numbers.
        scaled: Whether there is also one trained factor on all numbers, passed as ``values`` (initialised to
            ``width ** -0.5`` in x-transformers and to 1 in SpeechT5). A factor on the token embeddings, such as
            sqrt(width), belongs to the model. `kernel` includes neither factor.
        standardised: If given, the mean of the rows of positions 0 to ``standardised - 1`` is subtracted from all
            numbers, which are then divided by the standard deviation of these rows (with n - 1), before they are
            scaled. With ``scale=0.1`` this is PatchTST, whose rows depend on the length of the table.

    Shapes: a table is [positions, width]. Accuracy: see `clockhands.encodings.phases`, times the scale.

    Raises:
        InvalidValue: The width is not positive, or odd with ``odd="refuse"``; a value is not allowed; the
            ladder does not exist for the width.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    >>> Sinusoidal(width=4).rates
    (1.0, 0.01)
    """

    width: int
    spacing: Spacing
    layout: Layout
    order: Waves
    odd: Odd
    first: int
    zero_rows: tuple[int, ...]
    scale: float
    scaled: bool
    standardised: int | None

    def __init__(
        self,
        width: int,
        base: float | None = None,
        *,
        spacing: Spacing | None = None,
        layout: Layout = "interleaved",
        order: Waves = "sin-cos",
        odd: Odd = "refuse",
        first: int = 0,
        zero_rows: tuple[int, ...] = (),
        scale: float = 1.0,
        scaled: bool = False,
        standardised: int | None = None,
    ) -> None:
        """Check the values and make the ladder once, so that an invalid one is refused here."""
        width = count("width", width)
        one_of("odd", odd, get_args(Odd), "It is the rule for odd widths.")
        if width % 2 and odd == "refuse":
            raise InvalidValue(
                f"`width` must be even unless `odd` says what to do, got {width}.",
                'Use an even width, or set odd="zero", "extra" or "cut".',
            )
        if isinstance(zero_rows, str | bytes) or not isinstance(zero_rows, Iterable):
            raise InvalidType(
                f"`zero_rows` must be a list of positions, got {shown(zero_rows)}.", "Write (1,) for the position 1."
            )
        truth("scaled", scaled, "If it is True, pass the scale itself as values=.")
        if standardised is not None:
            standardised = count("standardised", standardised)
            if zero_rows or (odd == "zero" and width % 2):
                raise InvalidValue(
                    "A standardised encoding cannot have zero rows or a zero column: its mean is subtracted from all "
                    "numbers.",
                    "Leave out `standardised`; or leave out `zero_rows` and use an even width.",
                )
        if width == 1 and odd == "zero":
            raise InvalidValue("`width` must be at least 2, got 1.", "One dimension is not a pair.")
        set_fields(
            self,
            width=width,
            spacing=spacing_of(base, spacing),
            layout=layout_of(layout),
            order=waves_of(order),
            odd=odd,
            first=count("first", first, least=0),
            zero_rows=tuple(sorted({count("zero_rows", row, least=0) for row in zero_rows})),
            scale=positive("scale", scale),
            scaled=scaled,
            standardised=standardised,
        )
        _ = self.ladder

    @cached_property
    def ladder(self) -> Ladder:
        """The ladder of the rates."""
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
        """The rate of each pair in radians per token, nearest float64."""
        return self.ladder.rates

    @property
    def values_shape(self) -> tuple[int, ...] | None:
        """The shape of a single number if there is a trained scale, else None."""
        return () if self.scaled else None

    @cached_property
    def affine(self) -> tuple[float, float]:
        """The mean subtracted from every number, and the factor applied afterwards."""
        if self.standardised is None:
            return 0.0, self.scale
        refuse_larger((self.standardised, self.width), 8, "The table to standardise by", "Use a smaller length.")
        plain = dataclasses.replace(self, standardised=None, scale=1.0)
        rows = np.empty((self.standardised, self.width))
        plain.write(rows, positions_of(self.standardised))
        spread = rows.std(ddof=1) if rows.size > 1 else 0.0
        if not spread:
            raise InvalidValue(
                f"The rows of {self.standardised} positions do not differ, so their standard deviation is 0 and "
                "cannot divide them.",
                "Standardise over more positions.",
            )
        return float(rows.mean()), self.scale / float(spread)

    @property
    def padding_position(self) -> int | None:
        """The position before the first one if its row is zero: there padding is not counted (fairseq). Else None."""
        return self.first - 1 if self.first - 1 in self.zero_rows else None

    def check_values(self, shape: tuple[int, ...] | None) -> None:
        """Raise InvalidValue unless a scaled code gets one number and another code gets none."""
        if not self.scaled:
            super().check_values(shape)
        elif shape is None:
            raise InvalidValue(
                "This Sinusoidal has a trained scale, but no scale was given.",
                "Pass the scale as values=, one number such as 1.0.",
            )
        elif shape not in ((), (1,)):
            raise InvalidValue(
                f"`values` must be one number, got an array of shape {list(shape)}.", "The number is the trained scale."
            )

    def from_values(self, values: Any, positions: Positions, xp: Any, work: Any) -> Any:
        """The table times the scale, [*positions, width]."""
        # In float64 the product is rounded only once at the end; other libraries multiply float32 tables.
        rows = np.empty((positions.size, self.width), np.float64 if work == xp.float64 else np.float32)
        self.write(rows, positions)
        table = xp.asarray(rows.reshape(*positions.shape, self.width), device=device_of(values))
        return table * xp.astype(xp.reshape(values, ()), work)

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the numbers at these (flattened) positions into ``out`` [rows, width], before any trained scale."""
        hands = min(self.width, 2 * self.ladder.pairs)
        out[:, hands:] = 0
        mean, factor = self.affine
        check_fits(factor * (1 + abs(mean)), out.dtype)

        def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
            into_waves(block, self.order)
            if mean:
                block -= complex(mean, mean)
            if factor != 1:
                block *= factor
            place(out[rows, :hands], before_rounding(block, out.dtype), pairs, self.layout)

        as_computed = self.order in ("sin-cos", "cos-sin") and not mean and factor == 1
        fill(
            write,
            self.ladder,
            positions,
            swapped=sine_first(self.order),
            fine=out.dtype == np.float64,
            threads=threads,
            into=as_complex_pairs(out[:, :hands], self.layout) if as_computed else None,
        )
        for row in self.zero_rows:
            out[positions.where(row)] = 0

    def clock(self) -> Clock:
        """The clock that defines the code.

        Raises:
            InvalidValue: The last pair has no second channel, its two waves are the same, or the mean is subtracted.
        """
        order = clock_order(self.order)
        if order is None or self.width < 2 * self.ladder.pairs or self.standardised is not None:
            return super().clock()
        return Clock(self.ladder, self.layout, order, 2 * self.ladder.pairs)

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        if self.standardised is not None:
            return "the mean of the table is subtracted from every value, and no matrix subtracts a constant"
        if clock_order(self.order) is None:
            return "both dimensions of a pair hold the same function, but a shift needs the sine and the cosine"
        return "the odd width removes the second dimension of its last pair"

    def __getstate__(self) -> dict[str, object]:
        """The state for pickling and copying: the fields without the values cached from them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
