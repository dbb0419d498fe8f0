"""The main properties of each code of an audited model: those that follow from its spec in a few milliseconds.

An audit opens many files, so nothing is measured here that needs the rows of a table or takes longer with the length;
`clockhands properties` measures all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clockhands.auditing._held_numbers import in_step, spec_of
from clockhands.auditing.findings import as_json
from clockhands.configs.resolved import SECOND, LayerEncoding, Resolved
from clockhands.encodings.additive import WarpedPosition
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.specs import SPECS
from clockhands.errors import ClockhandsError
from clockhands.measures.biases.apart import told_apart
from clockhands.measures.biases.edges import edges
from clockhands.measures.biases.reach import reach
from clockhands.measures.ladders.base_bound import base_bound, critical_dimension
from clockhands.measures.ladders.cover import cover
from clockhands.measures.ladders.precision import phase_error
from clockhands.measures.ladders.turning import turning
from clockhands.measures.property import Property, measured, not_computed
from clockhands.measures.subject import MeasuredCode, subject_of
from clockhands.measures.tokens.bounded import bounded
from clockhands.measures.tokens.smooth import smooth

WITHOUT_CONTEXT = 2_048
"""Tokens that a code is measured over where nothing says how many it serves."""


def _bound_of_its_own(subject: MeasuredCode) -> Property:
    """The base bound of the code's own ladder; the audit has computed it, and other bases take too long here."""
    if subject.axes > 1 or getattr(subject.spec, "xpos", None) is not None:
        return not_computed("Distances of several axes, or of frequencies with a decay, take too long for an audit.")
    return base_bound(subject, search=False)


def _angles_at_the_end(subject: MeasuredCode) -> Property:
    """The angle errors at the last position; searching for the first large error takes too long here."""
    if not subject.ladders or isinstance(subject.spec, WarpedPosition):
        return not_computed("Its angles are not position x frequency.")
    last = subject.first + subject.length - 1
    errors: dict[str, Any] = {
        f"{dtype}_throughout": max(phase_error(ladder, last, dtype, "throughout") for ladder in subject.ladders)
        for dtype in ("float32", "bfloat16")
    }
    in_float32, in_bfloat16 = errors.values()
    return measured(
        f"{in_float32:.2g} rad off at {last:,}",
        "If frequencies, positions and their products are computed in float32, the angle of some pair is off by"
        f" {in_float32:.2g} rad at position {last:,}; in bfloat16 by {in_bfloat16:.2g} rad.",
        position=last,
        **errors,
    )


_MEASURES = {
    "bounded": bounded,
    "smooth": smooth,
    "turning": turning,
    "cover": cover,
    "critical_dimension": critical_dimension,
    "base_bound": _bound_of_its_own,
    "precision": _angles_at_the_end,
}
_OF_BIASES = {"reach": reach, "edges": edges, "told_apart": told_apart}


@dataclass(frozen=True)
class MainProperties:
    """The main properties of one code.

    Attributes:
        part: The part of the model, and ``layers`` its layers, as in the code.
        length: The length in tokens for which they hold: that of the code, or 2,048 if none is declared.
        properties: The measured properties, by name; those that do not apply to the code are left out.
        notes: Remarks on the length.
        component: The object of the config that describes the part, as in the code.
    """

    part: str
    layers: str | None
    length: int
    properties: Mapping[str, Property] = field(hash=False)
    notes: tuple[str, ...] = ()
    component: str | None = None

    @property
    def over(self) -> str:
        """The length as text, with its remarks."""
        return ", ".join((f"over {self.length:,} tokens", *self.notes))

    def to_dict(self) -> dict[str, Any]:
        """One element of ``properties`` in the JSON of an audit."""
        return as_json(self, "part", "layers", "length", "notes", "properties")


def main_properties(resolved: Resolved) -> tuple[MainProperties, ...]:
    """The main properties of all codes with a known spec or known frequencies, each over the length of the code."""
    tokens = (code for code in resolved.codes if code.part not in SECOND and code.coordinates is None)
    found = map(_of_code, tokens)
    return tuple(one for one in found if one is not None and one.properties)


def _of_code(code: LayerEncoding) -> MainProperties | None:
    spec = spec_of(code)
    if not isinstance(spec, SPECS):
        return None
    length, notes = code.length or WITHOUT_CONTEXT, []
    if isinstance(spec, Rotary) and code.by_length and spec.scaling is not None:
        spec = replace(spec, length=length)
        notes.append("with the frequencies of that length")
    if code.length is None and code.part not in ("text", "other"):
        notes.append("as no length is declared")
    if code.sections is not None and not code.counts_apart:
        notes.append("all sections advancing together")
    try:
        subject = subject_of(in_step(code, spec), length, "float32", None)
    except ClockhandsError:
        return None  # a table shorter than the requested length: a finding reports it
    measures = _MEASURES | (_OF_BIASES if subject.kind == "bias" else {})
    found = {name: measure(subject) for name, measure in measures.items()}
    measured_ones = {name: one for name, one in found.items() if one.state == "measured"}
    return MainProperties(code.part, code.layers, length, measured_ones, tuple(notes), code.component)
