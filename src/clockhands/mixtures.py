"""Models whose layers have different encodings: RoPE in some and none in others, or two bases in turn."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from clockhands.additive import AdditiveCode
from clockhands.arguments import count, settle, shown
from clockhands.biases import BiasCode
from clockhands.errors import InvalidType, InvalidValue
from clockhands.rotary import Rotary

# None is a layer without any code of positions.
LayerCode = AdditiveCode | Rotary | BiasCode | None


@dataclass(frozen=True)
class LayerMixture:
    """Which layer has which code.

    Layer ``i`` has the code ``codes[pattern[i mod len(pattern)]]``; a pattern as long as the model names each layer.

    Attributes:
        codes: The codes; None for layers that have none.
        pattern: The number of a layer's code, over and over.

    Raises:
        InvalidValue, InvalidType: Something is not a code, or the pattern names one too many or too few.

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
        settle(self, codes=codes, pattern=pattern)

    def __copy__(self) -> Self:
        """Itself: it never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Itself: it never changes, and PyTorch's compiler recognises a spec only as the object that it is."""
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
