"""Open what a person names, and read what it says about positions.

``open_target`` finds and opens it: a preset, a config, a GGUF or safetensors file, an array, a model
folder. Only headers and the few tensors asked for are ever read.
"""

from clockhands.sources.targets import Opened, open_target

__all__ = ["Opened", "open_target"]
