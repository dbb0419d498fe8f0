"""The checks of functions that number tokens, and of a batch that has its positions."""

from clockhands.testing.positions._batch_check import check_batch, taken
from clockhands.testing.positions._decoding_windows import check_windows, windows_taken
from clockhands.testing.positions._patch_positions import check_patches, patches_taken
from clockhands.testing.positions._position_calls import is_processor, numbers_tokens
from clockhands.testing.positions._position_check import check_positions, refuse_processor

BY_NAMES = ((windows_taken, check_windows), (patches_taken, check_patches))
"""The checks that need no family: what tells by the names of parameters that one fits, and the check."""

__all__ = ["BY_NAMES", "check_batch", "check_positions", "is_processor", "numbers_tokens", "refuse_processor", "taken"]
