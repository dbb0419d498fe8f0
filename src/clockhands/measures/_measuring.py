"""All properties of a position code in one report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.specs import Spec, describe, to_dict
from clockhands.errors import InvalidValue
from clockhands.measures.adding._adding import adding
from clockhands.measures.biases.apart import told_apart
from clockhands.measures.biases.edges import edges
from clockhands.measures.biases.reach import reach
from clockhands.measures.ladders.base_bound import base_bound, critical_dimension
from clockhands.measures.ladders.cover import cover
from clockhands.measures.ladders.precision import precision
from clockhands.measures.ladders.turning import turning
from clockhands.measures.property import QUESTIONS, Property
from clockhands.measures.shifts._kernels import kernel
from clockhands.measures.shifts._rotations import shift
from clockhands.measures.subject import MeasuredCode, subject_of
from clockhands.measures.tokens._spectrum import spectrum
from clockhands.measures.tokens._unique import unique
from clockhands.measures.tokens.bounded import bounded
from clockhands.measures.tokens.longer_texts import longer_texts
from clockhands.measures.tokens.smooth import smooth

_ALL: tuple[Callable[[MeasuredCode], Property], ...] = (
    bounded, unique, smooth, longer_texts, shift, kernel, turning, cover, base_bound, critical_dimension, spectrum,
    precision, adding, reach, edges, told_apart,
)  # fmt: skip
MEASURES = MappingProxyType(dict(zip(QUESTIONS, _ALL, strict=True)))
"""The function that measures each property, by name."""


@dataclass(frozen=True)
class Properties:
    """What a position code can and cannot do, at a length and in a dtype.

    Attributes:
        spec: The code.
        length: Tokens, from the first on.
        dtype: What its numbers are rounded to.
        bounded, unique, smooth, longer_texts, shift, kernel, turning, cover, base_bound, critical_dimension, spectrum,
            precision, adding, reach, edges, told_apart: The properties; `QUESTIONS` says what each answers.
        codes: Of layers that differ, the properties of each code, by its layers in words; else empty.
    """

    spec: Spec
    length: int
    dtype: str
    bounded: Property
    unique: Property
    smooth: Property
    longer_texts: Property
    shift: Property
    kernel: Property
    turning: Property
    cover: Property
    base_bound: Property
    critical_dimension: Property
    spectrum: Property
    precision: Property
    adding: Property
    reach: Property
    edges: Property
    told_apart: Property
    codes: "tuple[tuple[str, Properties | None], ...]" = ()

    def __iter__(self) -> Iterator[tuple[str, Property]]:
        """Each property with its name, in the order of reports."""
        return ((name, getattr(self, name)) for name in QUESTIONS)

    def __str__(self) -> str:
        """The code, and one line for each property.

        >>> from clockhands.encodings.additive import NoPosition
        >>> print(str(properties(NoPosition(width=8), 16)).splitlines()[0])
        NoPosition, width 8, over 16 tokens in float32
        """
        lines = [f"{describe(self.spec)}, over {self.length:,} tokens in {self.dtype}"]
        return "\n".join([*lines, *(f"{name}: {each.says}" for name, each in self)])

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        told: dict[str, Any] = {
            "spec": to_dict(self.spec),
            "says": describe(self.spec),
            "length": self.length,
            "dtype": self.dtype,
            "properties": {name: each.to_dict() for name, each in self},
        }
        if self.codes:
            told["codes"] = [
                {"layers": layers, **({"spec": None} if each is None else each.to_dict())}
                for layers, each in self.codes
            ]
        return told


def properties(spec: Spec, length: int, dtype: object = "float32", *, values: Any = None) -> Properties:
    """What a position code can and cannot do: bounded, unique, smooth, a rotation under shifts, and so on.

    Args:
        spec: The code.
        length: Tokens, from the first on; along each axis where positions have several coordinates.
        dtype: What its numbers are rounded to: float64, float32, float16 or bfloat16.
        values: Learned numbers, as `table` and `bias` take them; what depends on them is not computed without.

    Accuracy: each measure says its own, in its module.

    Raises:
        InvalidValue: The length is below 1 or beyond a learned table, the dtype does not exist, or the values are of
            another shape, NaN or infinite.
        InvalidType: ``spec`` is not a position code.

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> report = properties(Sinusoidal(width=64), 2048)
    >>> report.bounded.holds, report.unique.holds
    (True, True)
    """
    if isinstance(spec, LayerMixture):
        return _of_mixture(spec, length, dtype, values)
    subject = subject_of(spec, length, dtype, values)
    found: dict[str, Any] = {name: each(subject) for name, each in MEASURES.items()}
    return Properties(spec, subject.length, subject.dtype.name, **found)


def _of_mixture(spec: LayerMixture, length: int, dtype: object, values: Any) -> Properties:
    """A report of layers that differ: of each code by itself, and of all together."""
    if values is not None:
        raise InvalidValue(
            "`values` cannot be passed for a mixture of layers.",
            "Measure each encoding in spec.codes separately, with its own values.",
        )
    each: list[tuple[str, Properties | None]] = []
    for number, code in enumerate(spec.codes):
        layers = f"{', '.join(map(str, spec.layers(number)))} of every {len(spec.pattern)} layers"
        each.append((layers, None if code is None else properties(code, length, dtype)))
    subject = subject_of(spec, length, dtype, None)
    told = {name: _together(name, each) for name in QUESTIONS}
    return Properties(spec, subject.length, subject.dtype.name, **told, codes=tuple(each))


def _together(name: str, codes: list[tuple[str, Properties | None]]) -> Property:
    """One property of several codes: it holds where it holds for each that it makes sense for."""
    known = [(layers, getattr(found, name)) for layers, found in codes if found is not None]
    states = {one.state for _, one in known}
    answers = [one.holds for _, one in known if one.state != "not applicable"]
    holds = None if not answers or None in answers else all(answers)
    return Property(
        "measured" if "measured" in states else "not computed" if "not computed" in states else "not applicable",
        holds,
        "; ".join(dict.fromkeys(one.brief for _, one in known)),
        " ".join(f"Layer{'s' * (',' in layers)} {layers}: {one.says}" for layers, one in known),
        {layers: dict(one.numbers) for layers, one in known},
    )
