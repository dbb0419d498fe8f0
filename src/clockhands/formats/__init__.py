"""Files and their contents, opened as data: arrays, headers, documents, archives, and the hub."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.formats import checkpoints, gguf, onnx, safetensors, yaml_documents

__all__ = ["checkpoints", "gguf", "onnx", "safetensors", "yaml_documents"]


# Each kind of file has a module, and most targets are one file: `formats.gguf` imports that module on first use.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'clockhands.formats' has no attribute {name!r}")
    return import_module(f"clockhands.formats.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
