"""What the code of a release reads: for a model type its class, with file and line, and position keys of a config.

``released_code.json`` is written by tools/released_code.py from the releases that it names. Only this data can show
that code does not read a key: a key counts as read wherever the code of the class and what it uses mentions it.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ReleasedClass:
    """The class of a model type in a release.

    Attributes:
        release: The program with its release, such as ``transformers 5.23.0``.
        name: The class.
        place: Its file in the release, with its line.
        mentions: The position keys that its code, or code that it uses, mentions.
        known: The position keys that were looked for.
    """

    release: str
    name: str
    place: str
    mentions: frozenset[str]
    known: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name} in {self.release}, {self.place}"

    def lacks(self, key: str) -> bool:
        """Whether its code is known not to read a key at the top level of a config.

        >>> gpt2 = class_in("transformers 5.23.0", "gpt2")
        >>> gpt2.lacks("rope_theta"), gpt2.lacks("n_positions"), gpt2.lacks("a_key_of_no_table")
        (True, False, False)
        """
        return key in self.known and key not in self.mentions


def class_in(release: str, model_type: str) -> ReleasedClass | None:
    """The class of a model type in a release; None if the release or the type in it was not read.

    >>> print(class_in("transformers 5.23.0", "gpt2"))
    GPT2Model in transformers 5.23.0, transformers/models/gpt2/modeling_gpt2.py:484
    """
    held = _held()["releases"].get(release)
    if held is None or model_type not in held["types"]:
        return None
    owner, keys = held["types"][model_type]
    name, place = owner.split(" ")
    mentions = frozenset([*held["sets"][keys], *held["shared"]])
    return ReleasedClass(release, name, place, mentions, frozenset(_held()["keys"]))


def line_of(release: str, key: str, within: str = "block") -> str:
    """The file and line where a release takes a key from a RoPE block, or (``config``) from every config.

    >>> line_of("transformers 5.23.0", "truncate")
    'transformers/modeling_rope_utils.py:475'
    """
    return _held()["releases"][release][within][key]


@cache
def _held() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("released_code.json").read_text(encoding="utf-8"))
