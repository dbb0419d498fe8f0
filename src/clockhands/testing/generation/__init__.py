"""The check of models with a KV cache."""

from clockhands.testing.generation._generation_check import check_generation

__all__ = ["check_generation"]
