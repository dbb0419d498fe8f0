"""The check of models that keep a cache."""

from clockhands.testing.generation._checking import check_generation

__all__ = ["check_generation"]
