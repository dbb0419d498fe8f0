"""Properties of an encoding as numbers, and differences between two encodings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.measures._differences import LadderDifference, difference, distances
    from clockhands.measures._measuring import Properties, properties
    from clockhands.measures.adding._recoverable import (
        cosine_below,
        cosine_deviation,
        cosine_quantile,
        deviation_needed,
        expected_share,
        pair_error,
    )
    from clockhands.measures.adding._score_terms import (
        commuting_form,
        drawn_projections,
        expected_offset_share,
        expected_terms,
        four_terms,
        offset_share,
    )
    from clockhands.measures.biases.apart import told_apart
    from clockhands.measures.biases.edges import edges
    from clockhands.measures.biases.reach import reach
    from clockhands.measures.ladders._angle_errors import phase_error, phase_errors
    from clockhands.measures.ladders.base_bound import (
        base_bound,
        critical_dimension,
        farthest_looked_at,
        first_failing_distance,
    )
    from clockhands.measures.ladders.cover import cover
    from clockhands.measures.ladders.sound_bases import smallest_sound_base
    from clockhands.measures.ladders.turning import completes, turned_beyond, turned_through, turning
    from clockhands.measures.property import QUESTIONS, SHORT, Property, measured, not_computed
    from clockhands.measures.shifts._kernels import (
        dot_products_by_distance,
        first_negative,
        first_rise,
        kernel_bound,
        kernel_by_distance,
        out_of_order,
    )
    from clockhands.measures.shifts._linear_maps import best_linear_map, judged
    from clockhands.measures.subject import MeasuredCode, subject_of
    from clockhands.measures.tokens.bounded import bounded
    from clockhands.measures.tokens.longer_texts import longer_texts
    from clockhands.measures.tokens.smooth import smooth

# An audit measures a few of them, so these modules are imported in turn until one has the name that is used.
_MODULES = (
    "property",
    "subject",
    "ladders.turning",
    "_differences",
    "ladders.base_bound",
    "ladders.cover",
    "ladders._angle_errors",
    "ladders.sound_bases",
    "biases.apart",
    "biases.edges",
    "biases.reach",
    "tokens.bounded",
    "tokens.smooth",
    "tokens.longer_texts",
    "shifts._kernels",
    "shifts._linear_maps",
    "adding._recoverable",
    "adding._score_terms",
    "_measuring",
)

__all__ = [
    "QUESTIONS",
    "SHORT",
    "LadderDifference",
    "MeasuredCode",
    "Properties",
    "Property",
    "base_bound",
    "best_linear_map",
    "bounded",
    "commuting_form",
    "completes",
    "cosine_below",
    "cosine_deviation",
    "cosine_quantile",
    "cover",
    "critical_dimension",
    "deviation_needed",
    "difference",
    "distances",
    "dot_products_by_distance",
    "drawn_projections",
    "edges",
    "expected_offset_share",
    "expected_share",
    "expected_terms",
    "farthest_looked_at",
    "first_failing_distance",
    "first_negative",
    "first_rise",
    "four_terms",
    "judged",
    "kernel_bound",
    "kernel_by_distance",
    "longer_texts",
    "measured",
    "not_computed",
    "offset_share",
    "out_of_order",
    "pair_error",
    "phase_error",
    "phase_errors",
    "properties",
    "reach",
    "smallest_sound_base",
    "smooth",
    "subject_of",
    "told_apart",
    "turned_beyond",
    "turned_through",
    "turning",
]


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        names = vars(import_module(f"clockhands.measures.{module}"))
        if name in names:
            return names[name]
    raise AttributeError(f"module 'clockhands.measures' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
