"""What the class of a config in the installed Transformers does with positions, read in a separate process.

The process builds the class without memory for its weights, and nothing is downloaded. Code beside a model, which
``auto_map`` names, is not loaded. Its time and its memory are limited, so that no config can take the machine.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from clockhands.errors import Unreadable

SECONDS = 60
"""The time that the process may take."""

LAYER_KINDS: dict[str, str] = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "none",
    "conv": "none",
    "mamba": "none",
    "hybrid": "full",
    "attention": "full",
    "indexed_attention": "full",
    "heavily_compressed_attention": "full",
    "compressed_sparse_attention": "full",
    "main": "sliding",
    "compress": "full",
}
"""What the library calls kinds of layers, and what they see: ``none`` for layers without attention.

The last two name the frequencies of DeepSeek-V4's kinds of layers.
"""

SCORED = tuple(sorted({0, *(2**power - 1 for power in range(1, 19)), *(2**power for power in range(1, 18))}))
"""The positions of queries for which the factors of scores are read: where the steps of usual lengths are."""

# The process lives for seconds: searching for cycles among the objects of the libraries is an eighth of its time.
_CODE = "import gc; gc.disable(); from clockhands.models.built_classes import answer; answer()"
# Nothing is fetched, no device is used, and nothing is told but the answer.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True)
class ClassLadder:
    """RoPE frequencies that a module holds.

    Attributes:
        rates: In radians per token.
        factor: What the module multiplies cosine and sine by (the attention factor).
        layer_type: The kind of layers that use them, as the library names it; ``""`` for all layers.
        module: The name of the module's class.
        layout: ``halves`` or ``interleaved``, measured on marked channels; None if it was not measured.
        direction: ``forward`` or ``backward``, measured on the same function; None if it was not measured.
        axes: Of an image, for each rotated channel: 0 if its angle follows the row and 1 for the column, and the angle
            of one step; None if it was not measured.
    """

    rates: tuple[float, ...]
    factor: float
    layer_type: str = ""
    module: str = ""
    layout: str | None = None
    direction: str | None = None
    axes: tuple[tuple[int, float], ...] | None = None

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> Self:
        """The frequencies that `dataclasses.asdict` wrote."""
        axes = held["axes"] and tuple(map(tuple, held["axes"]))
        return cls(**{**held, "rates": tuple(held["rates"]), "axes": axes})


@dataclass(frozen=True)
class LayerAttention:
    """What the attention of one layer does.

    Attributes:
        rotates: Whether it uses the cosines that it is given; None if it could not be called with some.
        factors: What its scores are multiplied by besides 1 / sqrt(width of a head): one number, or one for each
            position of `SCORED`; None if that could not be read.
    """

    rotates: bool | None = None
    factors: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ClassPart:
    """What the class of one part of a model does with positions.

    Attributes:
        path: Where the part's object is in the config, such as ``text_config``; ``""`` for the config itself.
        model_type: Its type.
        name: The name of its class.
        inputs: ``text``, ``vision`` or ``audio``, by what the class calls its input.
        layers: How many layers were built; None if no key of the config counts them.
        ladders: The frequencies of its rotary modules.
        layer_types: The kind of each layer, if its config has them.
        windows: The window of each layer, in tokens: None for a layer without one. None if it was not read.
        tables: Tables of positions: the path of each, its rows and its width.
        relative: Relative terms, in words.
        buckets: Of relative terms, each number of buckets with the distance from which on all share the last one.
        attention: What the attention of each layer does, as far as it could be called.
        areas: Height and width of the window of an image that each layer sees, in patches: None for all of it. None if
            no module keeps it.
        unread: What could not be read, in clauses.
    """

    path: str
    model_type: str
    name: str
    inputs: str = "text"
    layers: int | None = None
    ladders: tuple[ClassLadder, ...] = ()
    layer_types: tuple[str, ...] | None = None
    windows: tuple[int | None, ...] | None = None
    tables: tuple[tuple[str, int, int], ...] = ()
    relative: tuple[str, ...] = ()
    buckets: tuple[tuple[int, int], ...] = ()
    attention: tuple[LayerAttention, ...] = ()
    areas: tuple[tuple[int, int] | None, ...] | None = None
    unread: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> Self:
        """The part that `dataclasses.asdict` wrote."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in held.items()
        }
        values["ladders"] = tuple(map(ClassLadder.from_json, held["ladders"]))
        values["attention"] = tuple(
            LayerAttention(each["rotates"], each["factors"] and tuple(each["factors"])) for each in held["attention"]
        )
        for name in ("tables", "buckets"):
            values[name] = tuple(map(tuple, held[name]))
        values["areas"] = held["areas"] and tuple(each and tuple(each) for each in held["areas"])
        return cls(**values)


@dataclass(frozen=True)
class ClassReading:
    """What the class of a config does with positions.

    Attributes:
        library: The library and its release.
        name: The name of the class.
        parts: Its parts, the whole first.
        built: How many layers were built of each part that has more, by the path of the part, and how many it has.
    """

    library: str
    name: str
    parts: tuple[ClassPart, ...]
    built: Mapping[str, tuple[int, int]]

    @property
    def source(self) -> str:
        """The source of its values."""
        return f"read from the class {self.name} in {self.library}"


def class_reading(config: Mapping[str, Any], seconds: float = SECONDS) -> ClassReading:
    """What the class of a config in the installed Transformers does with positions.

    Args:
        config: The contents of config.json.
        seconds: The time limit.

    Raises:
        Unreadable: Transformers or PyTorch is not installed, it does not know the type, its class does not take the
            config, or the process took too long or too much memory.
    """
    # The folder in which the command runs may be that of a model: nothing in it is imported.
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-P", "-W", "ignore", "-c", _CODE]
    try:
        ended = subprocess.run(
            command,
            input=json.dumps(config),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired:
        raise Unreadable(f"Building the class took longer than {seconds:g} seconds.", _HINT) from None
    answer: Any = json.loads(ended.stdout) if ended.returncode == 0 else {"refused": _last_line(ended.stderr)}
    if "refused" in answer:
        raise Unreadable(answer["refused"], answer.get("hint", _HINT))
    parts = tuple(map(ClassPart.from_json, answer["parts"]))
    return ClassReading(answer["library"], answer["name"], parts, {k: (a, b) for k, (a, b) in answer["built"].items()})


_HINT = "Audit it without the class; the sizes in the config may be wrong."


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return f"The class could not be built: {lines[-1][:200]}" if lines else "The process that built the class ended."
