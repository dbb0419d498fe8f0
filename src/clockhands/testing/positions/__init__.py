"""The checks of functions that number tokens, and of a batch that has its positions."""

from clockhands.testing.positions._batch_check import check_batch, taken
from clockhands.testing.positions._position_calls import numbers_tokens
from clockhands.testing.positions._position_check import check_positions

__all__ = ["check_batch", "check_positions", "numbers_tokens", "taken"]
