"""The answer to a length beyond the context, before all details: one scaling, and how each runtime takes it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.auditing._length_sentences import said
from clockhands.auditing.findings import as_json
from clockhands.configs.resolved import LayerEncoding
from clockhands.configs.rope_blocks import NEW, OLD
from clockhands.runtimes.releases import RuntimeRelease

CONFIG = "config"
"""Stands for the runtimes that read the config itself."""

OPTIONS: Mapping[str, str] = {CONFIG: "in the file", "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp"}
"""Where a setting is written, and its name for people."""

_OF_FILES = ("transformers", "mlx-lm")  # they have no option for it
_OLD_ALONE = (
    ("transformers-4",),
    ("vllm-0.11",),
)  # readers of the old shape; vLLM 0.11 reads configs with Transformers 4
_LOWEST_IN_STUDY = "yarn"  # the claim yarn-without-training
_PREFERRED = (_LOWEST_IN_STUDY, "dynamic", "linear")


@dataclass(frozen=True)
class RuntimeSetting:
    """How a scaling is set for one runtime.

    Attributes:
        runtime: A key of `OPTIONS`.
        lines: The lines of the file, or the options of the command; a sentence if there is no option.
    """

    runtime: str
    lines: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The setting as JSON values."""
        return as_json(self, "runtime", "lines")


@dataclass(frozen=True)
class LengthAnswer:
    """What to set for a length, and what is known of it.

    Attributes:
        scaling: The name of the scaling in configs, one of those of `Extension.ways`.
        why: Why it is this one.
        settings: How each runtime takes it.
        untrained: What the model was trained for.
        published: What is published of the quality of this scaling, each with its source.
    """

    scaling: str
    why: str
    settings: tuple[RuntimeSetting, ...]
    untrained: str
    published: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return as_json(self, "scaling", "why", "settings", "untrained", "published")


def chosen(scalings: Mapping[str, Any], held: str | None, release: tuple[str, int] | None) -> tuple[str, str]:
    """The scaling to begin with, and why.

    Args:
        scalings: Those for which a block can be written.
        held: The scaling that the files have already.
        release: The published model of this size whose publisher documents a YaRN extension, and the original length
            of that extension.
    """
    if held is not None and held in scalings:
        return held, said("of-file")
    if release is not None and "yarn" in scalings:
        return "yarn", said("of-release", release=release[0], trained=release[1])
    name = next((each for each in _PREFERRED if each in scalings), next(iter(scalings)))
    return name, said("of-study" if name == _LOWEST_IN_STUDY else "of-class")


def settings(
    scaling: str,
    values: Mapping[str, Mapping[str, Any]],
    after: LayerEncoding,
    length: int,
    runtime: RuntimeRelease | None,
) -> Iterator[RuntimeSetting]:
    """How each runtime takes a scaling; only the named one, if the caller named one.

    Args:
        scaling: Its name in configs.
        values: For each shape the keys to set, as in `Way.values`.
        after: The encoding with it.
        length: The length.
        runtime: The runtime that the caller named, or None.
    """
    name = None if runtime is None else runtime.name
    shape = next(shape for shape in (OLD, NEW, *values) if shape in values)
    if runtime is not None and shape == NEW and runtime.readers in _OLD_ALONE:
        yield RuntimeSetting(runtime.name if runtime.name in OPTIONS else CONFIG, (said("no-old-shape"),))
        return
    if name in (None, *_OF_FILES):
        yield RuntimeSetting(CONFIG, tuple(lines_of_change(shape, values[shape])))
    old = runtime is not None and runtime.readers == ("vllm-0.11",)
    block = values.get(OLD if old else NEW) or values.get(OLD)
    if block is not None and name in (None, "vllm"):
        yield RuntimeSetting("vllm", (f"--hf-overrides '{json.dumps(_nested(block))}' --max-model-len {length}",))
    if block is not None and name in (None, "sglang"):
        yield RuntimeSetting("sglang", (_option_of_sglang(block, length),))
    if name in (None, "llama.cpp"):
        yield RuntimeSetting("llama.cpp", (_option_of_llama_cpp(scaling, after, length),))


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with dots as objects; what a change takes away is left out."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        *outer, key = path.split(".")
        holder = found
        for name in outer:
            holder = holder.setdefault(name, {})
        if value is not None:
            holder[key] = value
    return found


def _option_of_sglang(values: Mapping[str, Any], length: int) -> str:
    part = next((key.split(".")[0] for key in values if "." in key), None)
    if part is not None:  # `config.update` of its get_config sets whole values of the outermost object
        return said("replaces-part", part=part)
    return f"--json-model-override-args '{json.dumps(_nested(values))}' --context-length {length}"


def _option_of_llama_cpp(scaling: str, after: LayerEncoding, length: int) -> str:
    factor, original = ((after.scaling or {}).get(name) for name in ("factor", "original"))
    if scaling not in ("linear", "yarn") or not isinstance(factor, int | float):
        return said("convert-again", scaling=scaling)
    origin = f" --yarn-orig-ctx {original}" if scaling == "yarn" and original else ""
    return f"--rope-scaling {scaling} --rope-scale {factor:g}{origin} --ctx-size {length}"


def lines_of_change(shape: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A change, one key a line, as JSON; a key to take away is said to be so.

    Args:
        shape: `OLD` or `NEW` for a config, whose keys with dots are written as nested objects; another for keys that
            have dots themselves, as those of a GGUF file.
        values: The keys to set, as in `Way.values`.

    >>> list(lines_of_change("rope_scaling", {"text_config.max_position_embeddings": 8192, "rope_parameters": None}))
    ['"text_config": {"max_position_embeddings": 8192}', 'without "rope_parameters"']
    """
    nested = shape in (OLD, NEW)
    held = {key: value for key, value in values.items() if value is not None}
    for key, value in (_nested(held) if nested else held).items():
        yield f"{json.dumps(key)}: {json.dumps(value)}"
    for path in (key for key in values if key not in held):
        part, _, key = path.rpartition(".") if nested else ("", "", path)
        yield f"without {json.dumps(key)}" + (f" in {json.dumps(part)}" if part else "")
