"""An opened target: the contents of its headers, and methods to read single tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.configs.model_code import CodeFiles
from clockhands.errors import Unreadable
from clockhands.formats import arrays
from clockhands.formats.arrays import TensorInfo
from clockhands.phrases import nearest, shown

READ = "a model folder, config.json, .yaml, .gguf, .safetensors or .bin (or its index), .pt, .onnx, .npy, .npz"
"""What can be a target, in words."""


@dataclass(frozen=True)
class Opened:
    """A target with its headers read.

    Attributes:
        target: As the caller wrote it.
        form: "preset" (or the file of a spec), "config", "dialect" (the config of another program), "gguf",
            "safetensors", "pytorch", "onnx", "npz" (weights with a config beside them) or "array" (a .npy, or one
            tensor of a file).
        path: The file or folder on disk; None for a preset and for standard input.
        config: The parsed config.json, or the keys of a GGUF file; None if there is none.
        config_name: The file that ``source`` names: that of ``config``, "<stdin>" for standard input, or the array's.
        tensors: Every tensor by name, headers only.
        spec: The spec of a preset, or of a file that `clockhands.to_json` wrote.
        notes: Remarks for the user on how the target was read.
        duplicates: Keys that the config gives more than once; the last value counts.
        added: Tensors that the graph of an ONNX model adds, or gathers rows of.
        overridden: The source of each full key in ``config`` that the caller or another file has set.
        lost: Values in the file, by place, that are lost because the caller set a whole block without them.
        beside: The other documents of a model folder, by file name (``tokenizer_config.json`` and so on), where the
            folder itself is the target; those that cannot be read are in ``notes`` instead.
        length: The length in tokens at which the target says the model is used (training, or ``num_ctx``); else None.
        length_place: The source of that length, as ``file:key``.
        layouts: What each shard of the weights says of its layout, empty if it says nothing; only where they contradict
            each other.
        code: The Python files beside the config, parsed and never run, where the model has code of its own; else None.
        hub: The command that downloads the model, if it was fetched from a hub: then only headers of its weights are
            here.
    """

    target: str
    form: str
    path: Path | None = None
    config: dict[str, Any] | None = None
    config_name: str | None = None
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    spec: object | None = None
    notes: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    added: frozenset[str] = frozenset()
    overridden: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    length: int | None = None
    length_place: str | None = None
    layouts: Mapping[str, str] = field(default_factory=dict)
    code: CodeFiles | None = None
    hub: str | None = None

    def array(self, name: str) -> np.ndarray:
        """Read one tensor and no other.

        Raises:
            Unreadable: There is no such tensor, it is quantised, or the file ends inside it.
            TooLarge: It takes more than 4 GiB.
        """
        return arrays.read(self.tensor(name))

    def tensor(self, name: str) -> TensorInfo:
        """The place of one tensor.

        Raises:
            Unreadable: There is no such tensor.
        """
        if name not in self.tensors:
            raise Unreadable(f"{self.target} has no tensor {shown(name)}.", _nearest(name, tuple(self.tensors)))
        return self.tensors[name]


def _nearest(name: str, names: tuple[str, ...]) -> str:
    """A hint for a name that does not exist: the most similar one, or some of the existing ones."""
    # Comparing with each takes about 20 microseconds.
    near = nearest(name, names, 0.7) if len(names) <= 10_000 else None
    return arrays.listed("It holds", names) if near is None else f"Did you mean {shown(near)[1:-1]}?"
