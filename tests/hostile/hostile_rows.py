"""What rows of hostile files are made with: repeated text, nests, and the table itself."""

import json
from collections.abc import Callable

MiB = 2**20
# Sound parts, so that a reader goes on to what is hostile.
LLAMA = '"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2'
HEADS = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def many(text: str, size: int, joint: str = "", start: str = "", end: str = "") -> bytes:
    """A text with a number for each ``#``, as often as goes into ``size`` bytes."""
    made, left = [], size - len(start) - len(end)
    while left > 0:
        made.append(text.replace("#", str(len(made))))
        left -= len(made[-1]) + len(joint)
    return (start + joint.join(made[:-1]) + end).encode()


def nested(start: str, middle: str, end: str, levels: int) -> bytes:
    return (start * levels + middle + end * levels).encode()


def folder_of(config: dict, **others: bytes) -> Callable[[], dict[str, bytes]]:
    return lambda: {"config.json": json.dumps(config).encode(), **others}


FILES: dict[str, Callable[[], dict[str, bytes]]] = {}
"""The name of each, and what makes the files of a folder."""


def one(kind: str, ending: str, make: Callable[[], bytes]) -> None:
    """One row: a file by itself."""
    name = ending if ending in ("Modelfile", "config.json") or "/" in ending else f"x.{ending}"
    FILES[kind] = lambda: {name: make()}
