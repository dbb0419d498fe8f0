"""The RoPE blocks of a config: under the old key or the new one, for all layers or for each kind of layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clockhands.configs.fields import shown
from clockhands.configs.model_types import CodeOfType, layer_labels, table

OLD, NEW = "rope_scaling", "rope_parameters"
"""The block of Transformers 4 and that of Transformers 5, in the order in which Transformers 5 looks for them."""


@dataclass(frozen=True)
class RopeBlock:
    """One block: the object under a key of the config, or one for a kind of layer inside it.

    Attributes:
        key: The key of the config.
        label: The name inside it, as the file spells it; empty for a block of all layers.
        values: A copy of its contents.
        kind: The kind of layer that the name stands for, such as ``sliding``; None for a block of all layers, and for
            a name that is not known.
        around: What stands before its path in the names of sources, such as ``config.json:text_config.``.
    """

    key: str
    label: str
    values: dict[str, Any]
    kind: str | None = None
    around: str = ""

    @property
    def path(self) -> str:
        """Its place in the object that holds it, such as ``rope_parameters.full_attention``."""
        return f"{self.key}.{self.label}" if self.label else self.key

    @property
    def place(self) -> str:
        """Its source."""
        return f"{self.around}{self.path}"

    @property
    def scaling(self) -> str | None:
        """The name of its scaling, in lower case; None if there is none, or it is not text."""
        name = scaling_name(self.values)
        return None if name is None else name.strip().lower()

    @property
    def scales(self) -> bool:
        """Whether it declares a scaling that changes frequencies."""
        return self.scaling not in (None, "default") and self.values.get("factor") != 1

    def said(self, *names: str) -> dict[str, Any]:
        """The values of some keys by their sources, for those that exist."""
        held = {name: self.values[name] for name in names if self.values.get(name) is not None}
        return {f"{self.place}.{name}": shown(value) for name, value in held.items()}


def rope_blocks(
    values: Mapping[str, Any], around: str = "", keys: Sequence[str] = (OLD, NEW), row: CodeOfType | None = None
) -> Iterator[RopeBlock]:
    """The blocks of one part of a config: those for each kind of layer where there are any, else the flat ones.

    Args:
        values: The object that describes the part.
        around: What stands before a key of it in the names of sources.
        keys: The keys that may hold blocks.
        row: The type's rotary code, which may have names of its own for kinds of layers.
    """
    for key in keys:
        block = values.get(key)
        if isinstance(block, Mapping):
            inner = layer_blocks(block)
            for label, held in inner.items():
                yield RopeBlock(key, label, dict(held), _kind(label, row), around)
            if not inner:
                yield RopeBlock(key, "", dict(block), None, around)


def layer_blocks(block: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The objects inside a block, one for each kind of layer, by the names that the file gives them."""
    return {label: held for label, held in block.items() if isinstance(held, Mapping)}


def _kind(label: str, row: CodeOfType | None) -> str | None:
    """The kind of layer that a name stands for; None where it is not known."""
    known = (layer_labels(row), layer_labels())
    return next((kind for held in known for kind, labels in held.items() if label in labels), None)


def scaling_name(block: Mapping[str, Any], *, old_first: bool = False) -> str | None:
    """The scaling that a block names, as it is written; None if there is none, or it is not text.

    Args:
        block: The contents of the block.
        old_first: Whether the key ``type`` is looked up before ``rope_type``, as some runtimes do.
    """
    keys = table()["spellings"]["block"]["type"]
    found = next((block[key] for key in (reversed(keys) if old_first else keys) if block.get(key) is not None), None)
    return found if isinstance(found, str) else None
