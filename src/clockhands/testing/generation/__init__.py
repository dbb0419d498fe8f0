"""The check of models with a KV cache."""

from clockhands.testing.generation._generation_check import check_generation
from clockhands.testing.generation._last_token_models import is_engine
from clockhands.testing.generation._prompt_drivers import generates_text, own_program

__all__ = ["check_generation", "generates_text", "is_engine", "own_program"]
