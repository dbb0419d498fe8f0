"""The frequencies of a model against its lengths: which pairs complete a rotation, before and after scaling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clockhands.auditing._audits import Audit
from clockhands.auditing.layer_words import LISTED, title_of
from clockhands.configs.resolved import LayerEncoding
from clockhands.encodings.rotary import Rotary
from clockhands.errors import ClockhandsError
from clockhands.measures import completes, turned_beyond
from clockhands.phrases import spoken


@dataclass(frozen=True)
class Band:
    """One ladder.

    Attributes:
        title: The layers that have it.
        before: Its frequencies before scaling; None if there is no scaling, or they are not known.
        rates: Its frequencies in use.
        trained: The trained length in tokens; None if none is declared.
        served: The length for all figures of the report; None if none is declared.
        window: Whether the lengths are those of a window, beyond which no query of these layers sees.
    """

    title: str
    before: tuple[float, ...] | None
    rates: tuple[float, ...]
    trained: int | None
    served: int | None
    window: bool = False

    @property
    def beyond(self) -> tuple[bool, ...]:
        """For each pair: did it complete no rotation in training, and does it rotate further in use?"""
        if self.trained is None or self.served is None:
            return (False,) * len(self.rates)
        return turned_beyond(self.before or self.rates, self.rates, self.trained, self.served)

    @property
    def marks(self) -> tuple[str, ...]:
        """The mark of each pair in use: ``beyond``, else ``turning`` or ``never``, by its frequency.

        ``turning`` and ``never`` are decided at the served length, so the pairs beyond the line of that length on the
        axis complete no rotation there.
        """
        return tuple(
            "beyond" if far else "turning" if self.served is None or completes(rate, self.served) else "never"
            for rate, far in zip(self.rates, self.beyond, strict=True)
        )

    @property
    def marks_before(self) -> tuple[str, ...]:
        """The same for the frequencies before scaling, at the trained length."""
        return tuple(
            "turning" if self.trained is None or completes(rate, self.trained) else "never"
            for rate in self.before or ()
        )

    @property
    def says(self) -> str:
        """The content of the picture, in a sentence."""
        pairs = len(self.rates)
        if self.served is None or self.trained is None:
            return f"{self.title}: {pairs} pairs; no length is declared that they could be held against."
        count = _never(self.rates, self.served)
        within = f"{'the window of ' if self.window else ''}{spoken(self.served)} tokens"
        scaled = "" if self.before is None else " with the scaling"
        says = f"{self.title}: {count or 'none'} of {pairs} pairs never complete{'s' if count < 2 else ''} a rotation"
        says += f" within {within}{scaled}"
        if self.before is not None:
            says += f"; without it {_never(self.before, self.trained) or 'none'} within {spoken(self.trained)}"
        if self.served > self.trained:
            further = sum(self.beyond)
            rotate = f"{further or 'none'} rotate{'s' if further < 2 else ''}"
            says += f"; {rotate} further than within {spoken(self.trained)}"
        return f"{says}."


def _never(rates: Sequence[float], length: int) -> int:
    return sum(not completes(rate, length) for rate in rates)


def bands_of(audit: Audit) -> tuple[Band, ...]:
    """The ladders of an audit, one for each group of layers with frequencies; a shared ladder is shown once."""
    found: dict[tuple[object, ...], Band] = {}
    for code in audit.layers:
        if not code.rates or not all(math.isfinite(rate) and rate >= 0 for rate in code.rates):
            continue
        served, original = code.length, (code.scaling or {}).get("original")
        trained = original if isinstance(original, int) and original > 0 else code.usable_length or served
        window = code.window is not None and served == code.window
        if window:
            # No query of these layers sees further back.
            trained = min(trained or math.inf, code.window or math.inf)
        title = title_of(code, LISTED)
        where = title.rpartition(": ")[0] or title
        rates = code.rates if served is None else code.rates_at(served)
        band = Band(where, _before(code, rates), rates, None if trained is None else int(trained), served, window)
        key = (band.before, band.rates, band.trained, band.served)
        if key in found:
            band = replace(found[key], title=f"{found[key].title}; {band.title}")
        found[key] = band
    return tuple(found.values())


def _before(code: LayerEncoding, in_use: Sequence[float]) -> tuple[float, ...] | None:
    """The frequencies before the scaling that a code declares; None if they equal those in use."""
    if not code.scaling or code.kind != "rotary":
        return None
    spec = code.spec
    try:
        if isinstance(spec, Rotary):
            rates = replace(spec, scaling=None, length=None).rates
        elif code.base is not None and code.rotated:
            rates = Rotary(code.rotated, base=code.base, layout=code.layout or "halves").rates  # pyright: ignore[reportArgumentType]
        else:
            return None
    except ClockhandsError:
        return None
    before = tuple(rates)
    return before if len(before) == len(in_use) and before != tuple(in_use) else None
