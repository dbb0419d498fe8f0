"""Published conventions, to give a description the name that it has."""

from collections.abc import Iterator
from typing import TypeVar

from clockhands.additive import Sinusoidal
from clockhands.presets import presets

Kind = TypeVar("Kind")

# Of the presets that are one and the same code, the ones that most readers know.
KNOWN = ("vaswani2017", "tensor2tensor", "marian", "dit", "musicgen")


def of_kind(kind: type[Kind]) -> Iterator[tuple[str, Kind]]:
    """The presets of one class: their names and specs."""
    for known in presets():
        if type(known.spec) is kind:
            yield known.name, known.spec


def ranked(names: list[str], known: tuple[str, ...] = KNOWN) -> list[str]:
    """Names, the well-known first and the rest as they come in the alphabet."""
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))


def alike(spec: Sinusoidal) -> list[tuple[str, Sinusoidal]]:
    """Presets with this ladder, order, layout and rule for odd widths; those without padding first."""
    found = {}
    for name, own in of_kind(Sinusoidal):
        if (own.spacing, own.layout, own.order) != (spec.spacing, spec.layout, spec.order):
            continue
        if (own.standardised is None) != (spec.standardised is None) or (spec.width % 2 and own.odd != spec.odd):
            continue
        found[name] = own
    names = sorted(ranked(list(found)), key=lambda name: bool(found[name].zero_rows))
    return [(name, found[name]) for name in names]
