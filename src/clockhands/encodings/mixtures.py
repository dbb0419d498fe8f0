"""Models whose layers have different encodings: RoPE in some and none in others, or alternating RoPE bases."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from clockhands.arguments import count, set_fields
from clockhands.encodings.additive import AdditiveCode
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.spec_fields import KnowsItsNames
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

# None is a layer without a position encoding.
LayerCode = AdditiveCode | Rotary | BiasCode | None


@dataclass(frozen=True)
class LayerMixture(KnowsItsNames):
    """Which layer has which position encoding.

    Layer ``i`` has ``codes[pattern[i mod len(pattern)]]``; a pattern as long as the model sets each layer.

    Attributes:
        codes: The encodings; None for layers that have none.
        pattern: The index of each layer's code in ``codes``; repeated over the layers.

    Raises:
        InvalidValue, InvalidType: A code is not a position encoding, or the pattern does not fit ``codes``.

    Source: Yang et al. 2025, arXiv:2501.18795 (rotary and none in turns); Gemma 3, arXiv:2503.19786, section 2.

    >>> mixture = LayerMixture((Rotary(8), None), pattern=(0, 0, 0, 1))
    >>> mixture.layer(2).head_width, mixture.layer(3)
    (8, None)
    """

    codes: tuple[LayerCode, ...]
    pattern: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the values."""
        codes, pattern = _items("codes", self.codes), _items("pattern", self.pattern)
        for code in codes:
            if code is not None and not isinstance(code, AdditiveCode | Rotary | BiasCode):
                raise InvalidType(
                    f"`codes` must hold position encodings, got {shown(code)}.",
                    "Write None for layers without a position encoding.",
                )
        pattern = tuple(count("pattern", code, least=0) for code in pattern)
        wrong = set(pattern) ^ set(range(len(codes)))
        if wrong or not codes:
            raise InvalidValue(
                f"`pattern` must name each of the {len(codes)} codes, got the codes {sorted(set(pattern))}.",
                "Name a code by its number in the list `codes`, counted from 0.",
            )
        set_fields(self, codes=codes, pattern=pattern)

    def __copy__(self) -> Self:
        """The same object: it is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """The same object: it is immutable, and PyTorch's compiler recognises a spec by object identity only."""
        return self

    def layer(self, index: int) -> LayerCode:
        """The code of a layer, counted from 0."""
        return self.codes[self.pattern[count("index", index, least=0) % len(self.pattern)]]

    def layers(self, code: int) -> tuple[int, ...]:
        """The layers of one period that have this code."""
        return tuple(layer for layer, number in enumerate(self.pattern) if number == code)


def _items(name: str, value: object) -> tuple:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidType(f"`{name}` must be a sequence, got {shown(value)}.", "Give a tuple.")
    return tuple(value)
