"""Exact and cheap positions inside models of Transformers: read from a config, put in place, taken out again."""

from clockhands.transformers._reading import spec_of
from clockhands.transformers._registering import register
from clockhands.transformers._rotary_embedding import RotaryEmbedding
from clockhands.transformers._swapping import restore, swap

__all__ = ["RotaryEmbedding", "register", "restore", "spec_of", "swap"]
