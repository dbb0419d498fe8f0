"""Exact positions inside Transformers models: read a spec from a config, swap exact code in, restore the original."""

from clockhands.transformers._reading import spec_of
from clockhands.transformers._registering import register
from clockhands.transformers._rotary_embedding import RotaryEmbedding
from clockhands.transformers._swapping import restore, swap

__all__ = ["RotaryEmbedding", "register", "restore", "spec_of", "swap"]
