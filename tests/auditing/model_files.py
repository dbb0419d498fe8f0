"""Whole small models on disk: a folder with a config, the documents beside it, a GGUF file, weights."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.auditing import Audit, Finding, audit
from written_files import gguf_bytes, gguf_key, gguf_tensor, safetensors_bytes

GGUF_FLOAT32 = 0


@dataclass(frozen=True)
class Gguf:
    """A GGUF file: its keys, and tensors in float32."""

    keys: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)

    def bytes(self) -> bytes:
        """The file."""
        entries, data = [], b""
        for name, values in self.tensors.items():
            entries.append(gguf_tensor(name, values.shape[::-1], GGUF_FLOAT32, len(data)))
            data += values.astype("<f4").tobytes()
            data += b"\0" * (-len(data) % 32)
        return gguf_bytes([gguf_key(key, _kind(value), value) for key, value in self.keys.items()], entries, data)


Document = Mapping[str, Any]
Weights = Mapping[str, np.ndarray]
"""Tensors by name, for a safetensors file."""

Model = Mapping[str, Any]
"""File name to what it holds: a JSON document, a `Gguf`, or tensors by name."""


def written_model(folder: Path, model: Model) -> Path:
    """Write a model and return what to audit: its folder, or its only file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in model.items():
        if isinstance(content, Gguf):
            (folder / name).write_bytes(content.bytes())
        elif name.endswith(".safetensors"):
            (folder / name).write_bytes(_safetensors(content))
        else:
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder if len(model) > 1 else folder / next(iter(model))


def audited(folder: Path, model: Model, **asked: Any) -> Audit:
    """The audit of a model that is written into a folder first."""
    return audit(written_model(folder, model), **asked)


def audit_of(config: Document, length: int | None = None, overrides: Document | None = None) -> Audit:
    """The audit of a config alone, of standard input; equal ones share one."""
    return _audit_of(json.dumps(config), length, json.dumps(overrides))


@lru_cache(maxsize=256)
def _audit_of(text: str, length: int | None, overrides: str) -> Audit:
    return audit("-", length, stdin=io.BytesIO(text.encode()), overrides=json.loads(overrides))


def findings(config: Document) -> tuple[Finding, ...]:
    """What is found in a config alone."""
    return audit_of(config).findings


def fired(found: Audit) -> list[str]:
    """What fires, in words: the warnings and errors."""
    return [f"{finding.code}: {finding.message}" for finding in found.findings if finding.severity != "note"]


def of_code(found: Audit, *codes: str) -> list[Finding]:
    """The findings of some codes."""
    return [finding for finding in found.findings if finding.code in codes]


def _kind(value: object) -> str:
    if isinstance(value, list):
        return f"array of {_kind(value[0])}"
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string"}
    return kinds[type(value)]


def _safetensors(tensors: Weights) -> bytes:
    names = {"float32": "F32", "float16": "F16", "int64": "I64"}
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.tobytes()
        header[name] = {
            "dtype": names[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return safetensors_bytes(header, data)
