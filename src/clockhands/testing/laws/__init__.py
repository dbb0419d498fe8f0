"""The laws of position encodings: properties that can be tested on any implementation.

A law is written once and holds for every encoding of its kind, except for encodings that are declared as exceptions.

>>> from clockhands.encodings.additive import Sinusoidal, add
>>> spec = Sinusoidal(width=8)
>>> subject = Subject(spec, lambda x, positions: add(x, spec, positions))
>>> [law.name for law in laws_for(spec) if broken(law, subject)]
[]
"""

from clockhands.testing.laws import _additive as additive
from clockhands.testing.laws import _biases as biases
from clockhands.testing.laws import _everywhere as everywhere
from clockhands.testing.laws import _rotary as rotary
from clockhands.testing.laws._biases import BiasSubject
from clockhands.testing.laws._subjects import ADDITIVE, BIAS, EVERY_KIND, ROTARY, Law, LawBroken, Subject, kind_of

LAWS = (*everywhere.LAWS, *additive.LAWS, *rotary.LAWS, *biases.LAWS)

__all__ = [
    "ADDITIVE",
    "BIAS",
    "EVERY_KIND",
    "LAWS",
    "ROTARY",
    "BiasSubject",
    "Law",
    "LawBroken",
    "Subject",
    "broken",
    "kind_of",
    "laws_for",
]


def laws_for(spec: object) -> tuple[Law, ...]:
    """The laws for the kind of this spec."""
    return tuple(law for law in LAWS if kind_of(spec) in law.kinds)


def broken(law: Law, subject: Subject | BiasSubject) -> str | None:
    """How the subject breaks the law, as a message; None if the law holds."""
    try:
        law.check(subject)
    except LawBroken as error:
        return str(error)
    return None
