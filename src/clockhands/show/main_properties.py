"""What the codes of a model can and cannot do, as a short part of a report."""

from itertools import groupby

from clockhands.auditing.main_properties import MainProperties
from clockhands.show.page import Page, broken

SHORT = {
    "bounded": "stays within a bound",
    "unique": "every position its own",
    "smooth": "small, even steps",
    "shift": "a shift is one rotation",
    "kernel": "likeness by distance",
    "turning": "pairs never coming round",
    "cover": "a hand for every distance",
    "base_bound": "a like token scores higher",
    "critical_dimension": "channels coming round",
    "spectrum": "directions filled",
    "precision": "rounding, at its worst",
    "adding": "the token is found again",
    "reach": "how far heads look",
    "edges": "buckets begin at",
    "told_apart": "distances told apart",
}
"""Each property in the few words that fit the head of a column."""

_LABEL = 32


def print_main_properties(page: Page, found: tuple[MainProperties, ...]) -> None:
    """Print the main properties of each group of layers, those that have the same ones together.

    Args:
        page: Where to.
        found: What was measured.
    """
    page.paragraph("what the codes can and cannot do (all of it: clockhands properties)", style="bold")
    beside = page.width >= 2 * _LABEL
    for (length, lines), group in groupby(found, key=lambda one: (one.length, _lines(one))):
        where = "; ".join(filter(None, (_where(one) for one in group)))
        page.paragraph(f"{where}, over {length:,} tokens" if where else f"over {length:,} tokens", indent=2)
        for label, value in lines:
            if not beside:
                page.paragraph(f"{label}: {value}", indent=4)
                continue
            for number, line in enumerate(broken(value, page.width - _LABEL)):
                page.line((f"    {label}" if number == 0 else "").ljust(_LABEL) + line)


def _lines(one: MainProperties) -> tuple[tuple[str, str], ...]:
    """A name and a value for each property."""
    return tuple((SHORT[name], each.brief) for name, each in one.properties.items())


def _where(one: MainProperties) -> str:
    """The layers in words; nothing where they are all that there is."""
    part = "" if one.part in ("text", "other") else one.part
    several = one.layers is not None and ("," in one.layers or "-" in one.layers)
    layers = "" if one.layers in (None, "input") else f"layer{'s' if several else ''} {one.layers}"
    return ", ".join(filter(None, (part, layers.replace(",", ", "))))
