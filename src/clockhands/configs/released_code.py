"""What the code of a release reads: for a model type its class, with file and line, and position keys of a config.

``released_code.json`` is written by tools/released_code.py from the releases that it names. Only this data can show
that code does not read a key: a key counts as read wherever the code of the class and what it uses mentions it.
"""

from dataclasses import dataclass

from clockhands.packaged import packaged


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
        """Whether its code is known not to read a key.

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
    return _row(release, "types", model_type)


def definition_in(release: str, name: str) -> ReleasedClass | None:
    """A function or a class that a statement names with its module; None if the release or the definition was not read.

    Its own text was searched for keys of any level of a config; code that it calls was not.

    >>> get_rope = definition_in("vllm 0.29.0", "vllm.model_executor.layers.rotary_embedding.get_rope")
    >>> get_rope.lacks("attention_factor"), get_rope.lacks("beta_fast")
    (True, False)
    """
    return _row(release, "definitions", name)


def _row(release: str, kind: str, key: str) -> ReleasedClass | None:
    data = packaged(__file__, "released_code.json")
    held = data["releases"].get(release, {})
    if key not in held.get(kind, {}):
        return None
    owner, keys = held[kind][key]
    name, place = owner.split(" ")
    of_all = held["shared"] if kind == "types" else ()
    known = frozenset([*data["keys"], *(data["more_keys"] if kind == "definitions" else ())])
    return ReleasedClass(release, name, place, frozenset([*held["sets"][keys], *of_all]), known)


def line_of(release: str, key: str, within: str = "block") -> str:
    """Where a release takes a key: from a RoPE block, every config (``config``), or for all models (``shared``).

    >>> line_of("transformers 5.23.0", "truncate")
    'transformers/modeling_rope_utils.py:475'
    """
    return packaged(__file__, "released_code.json")["releases"][release][within][key]
