"""Opens a target (config, checkpoint, GGUF, preset, ...) and reads what it declares about positions.

``open_target`` finds and opens it: a preset, a config, a GGUF or safetensors file, an array, a model folder. Only
headers and the few tensors that are needed are read. The position settings are read by ``clockhands.configs.resolve``,
which is not imported here, because many callers only open targets.
"""

from clockhands.configs.opened import Opened
from clockhands.configs.resolved import COMPUTED, Fact, LayerEncoding, Resolved, layer_numbers, layer_ranges
from clockhands.configs.targets import is_function, open_target, path_of
from clockhands.formats.arrays import TensorInfo

__all__ = [
    "COMPUTED",
    "Fact",
    "LayerEncoding",
    "Opened",
    "Resolved",
    "TensorInfo",
    "is_function",
    "layer_numbers",
    "layer_ranges",
    "open_target",
    "path_of",
]  # fmt: skip
