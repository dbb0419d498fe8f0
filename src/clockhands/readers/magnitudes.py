"""What readers multiply cosine and sine by under YaRN and LongRoPE."""

import math
from collections.abc import Mapping
from typing import Any

# Beyond this a number of a file is no magnitude of anything.
_LARGEST = 1e6


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """YaRN's ``g(m) = 0.1 m ln f + 1``, and 1 for a factor of at most 1."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def ratio(factor: float, block: Mapping[str, Any]) -> float:
    """DeepSeek's ``g(mscale) / g(mscale_all_dim)``, which take 1 and 0 where they are absent."""
    return magnitude(factor, _number(block, "mscale", 1.0)) / magnitude(factor, _number(block, "mscale_all_dim", 0.0))


def longrope(context: float, original: float) -> float:
    """LongRoPE's ``sqrt(1 + ln(L / L0) / ln L0)`` of the declared over the original length, at least 1."""
    stretched = context / original
    return 1.0 if stretched <= 1 or original <= 1 else math.sqrt(1 + math.log(stretched) / math.log(original))


def _number(block: Mapping[str, Any], key: str, default: float) -> float:
    value = block.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return default
    return float(value)
