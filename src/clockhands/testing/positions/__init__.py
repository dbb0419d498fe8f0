"""The check of functions that number tokens."""

from clockhands.testing.positions._position_check import check_positions

__all__ = ["check_positions"]
