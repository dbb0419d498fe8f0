"""What is observed on a model: the audit's code for it and its evidence, before it is judged."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Observation(NamedTuple):
    """Something that is not as declared.

    Attributes:
        code: The finding that it is.
        evidence: Its numbers, in the order in which they are shown.
        layers: The layers that it concerns; None for the whole model.
    """

    code: str
    evidence: Mapping[str, Any]
    layers: str | None = None
