"""What readers multiply cosine and sine by under YaRN and LongRoPE."""

from collections.abc import Mapping
from typing import Any

from clockhands.scaling import longrope_magnitude, yarn_magnitude

# Beyond this a number of a file is no magnitude of anything.
_LARGEST = 1e6


def ratio(factor: float, block: Mapping[str, Any]) -> float:
    """DeepSeek's ``g(mscale) / g(mscale_all_dim)``, which take 1 and 0 where they are absent."""
    return yarn_magnitude(factor, _number(block, "mscale", 1.0)) / yarn_magnitude(
        factor, _number(block, "mscale_all_dim", 0.0)
    )


def longrope(context: float, original: float) -> float:
    """LongRoPE's factor of the declared over the original length."""
    return longrope_magnitude(context / original, original)


def _number(block: Mapping[str, Any], key: str, default: float) -> float:
    value = block.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return default
    return float(value)
