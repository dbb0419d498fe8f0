"""Published models by their shape, to hold a model of the same shape against: data, read once, when it is needed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

# Tokens that derivatives of a model add to its vocabulary, at most.
_ADDED_TOKENS = 512


@dataclass(frozen=True)
class Shape:
    """What tells models of one type apart.

    Attributes:
        type: The model type, of the text where there are several parts.
        hidden: Channels of the model.
        layers: Its layers.
        heads: Its query heads.
        vocabulary: Its tokens; None where the file does not say.
    """

    type: str
    hidden: int
    layers: int
    heads: int
    vocabulary: int | None

    def __str__(self) -> str:
        """The shape in words."""
        words = f"{self.type}, width {self.hidden:,}, {self.layers} layers, {self.heads} heads"
        return words if self.vocabulary is None else f"{words}, {self.vocabulary:,} tokens"

    def fits(self, other: "Shape") -> bool:
        """Whether a model of this shape may have been made from one of the other: tokens may have been added."""
        alike = (family(self.type), self.hidden, self.layers, self.heads)
        if alike != (family(other.type), other.hidden, other.layers, other.heads):
            return False
        if self.vocabulary is None or other.vocabulary is None:
            return True
        return 0 <= self.vocabulary - other.vocabulary <= _ADDED_TOKENS


@dataclass(frozen=True)
class Release:
    """One published model.

    Attributes:
        name: What it is called.
        shape: Its shape.
        base: The base of its ladder; of the layers that see all, where kinds of layers differ.
        scaling: Its scaling block, without lists; None without a scaling.
        sections: How many pairs turn by time, rows and columns; None where tokens have one position.
        context: Positions that it was published with; None where that is not known.
        source: The copy of its config that this was read from.
    """

    name: str
    shape: Shape
    base: float
    scaling: Mapping[str, Any] | None
    sections: tuple[int, ...] | None
    context: int | None
    source: str


@cache
def releases() -> tuple[Release, ...]:
    """All of them."""
    data = json.loads(resources.files("clockhands.auditing").joinpath("releases.json").read_text(encoding="utf-8"))
    return tuple(
        Release(
            row["name"],
            Shape(row["type"], row["hidden"], row["layers"], row["heads"], row["vocabulary"]),
            row["base"],
            row["scaling"],
            tuple(row["sections"]) if "sections" in row else None,
            row["context"],
            row["source"],
        )
        for row in data["releases"]
    )


def of_shape(shape: Shape) -> tuple[Release, ...]:
    """The releases that a model of this shape may be or come from: where some have its vocabulary, only those."""
    known = tuple(release for release in releases() if shape.fits(release.shape))
    own = tuple(release for release in known if shape.vocabulary in (None, release.shape.vocabulary))
    return own or known


def of_type(model_type: str) -> tuple[Release, ...]:
    """The releases of a model type, whatever their shape."""
    return tuple(release for release in releases() if family(release.shape.type) == family(model_type))


def reach_of(model_type: str, base: float) -> int | None:
    """The longest context that releases of a type reach with a base alone, before any scaling."""
    alike = [each for each in of_type(model_type) if each.base == base]
    reached = [(each.scaling or {}).get("original_max_position_embeddings", each.context) for each in alike]
    return max((length for length in reached if length), default=None)


def family(model_type: str) -> str:
    """The type of the whole for that of its text part.

    >>> family("gemma3_text"), family("mllama_text_model"), family("llama")
    ('gemma3', 'mllama', 'llama')
    """
    return model_type.removesuffix("_model").removesuffix("_text")
