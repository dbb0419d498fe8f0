"""Fields of specs by name: words of other libraries are answered with the word here; a spec is shown in one line."""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Self

from clockhands.errors import InvalidType
from clockhands.phrases import did_you_mean, shown

# The words of other libraries for a field, by the word here; a class has at most one of those for the same word.
_ELSEWHERE = {
    "head_width": "dim head_dim d_head head_size dim_head size_per_head width",
    "width": "dim d_model embed_dim embedding_dim hidden_size n_embd channels num_pos_feats",
    "rotated": "rotary_dim rope_dim rotary_ndims n_rot rotary_pct partial_rotary_factor rotary_percentage",
    "base": "theta rope_theta rotary_emb_base rope_base rope_freq_base temperature max_wavelength",
    "spacing": "inv_freq freqs frequencies",
    "layout": "interleaved is_neox_style is_neox neox traditional pairing",
    "scaling": "rope_scaling rope_parameters",
    "axes": "sections mrope_section axes_dim axes_dims",
    "length": "seq_len max_seq_len max_position_embeddings max_positions n_ctx context_length",
    "rows": "num_embeddings max_len max_seq_len max_position_embeddings n_positions num_positions",
    "heads": "num_heads n_heads n_head num_attention_heads nhead",
    "buckets": "num_buckets n_buckets relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance furthest",
    "original": "original_max_position_embeddings original_context_length n_ctx_orig",
}
# What the word means, where another library's has other values.
_MEANT = {
    "rotated": ", a number of channels",
    "spacing": ": Explicit(…) of clockhands.ladders takes one for each pair",
    "layout": ': "halves" as in GPT-NeoX, or "interleaved" as in GPT-J',
    "scaling": ", one of clockhands.scaling",
    "axes": ", the axis of each pair, such as rotary.chunked(sections)",
}


def no_field(kind: type, name: str, known: Iterable[str]) -> tuple[str, str]:
    """A message and a hint for a field that a class does not have: with the word that is meant, if it is another's."""
    known = sorted(known)
    here = next((word for word, theirs in _ELSEWHERE.items() if word in known and name in theirs.split()), None)
    hint = did_you_mean(name, known, f"Its fields are {', '.join(known)}.")
    if here is not None:
        hint = f"It is called {here!r} here{_MEANT.get(here, '')}."
    return f"{kind.__name__} has no field {shown(name)}.", hint


def refuse_unknown(kind: type, named: Mapping[str, Any]) -> None:
    """Refuse arguments of a class by names that it does not know.

    Raises:
        InvalidType: There is such a name; the hint says which is meant.
    """
    known = _parameters(kind)
    for name in named:
        if known is not None and name not in known:
            raise InvalidType(*no_field(kind, name, known))


@lru_cache(maxsize=256)
def _parameters(kind: type) -> tuple[str, ...] | None:
    """The names that a class can be called with; None where it takes any."""
    found = [one for one in inspect.signature(kind.__init__).parameters.values() if one.name != "self"]
    if any(one.kind is one.VAR_KEYWORD for one in found):
        return None
    return tuple(one.name for one in found)


_ROOM = 120  # columns of a line


class OneLine:
    """A dataclass that is shown in one line: the fields that differ from what a new one has, long values cut.

    `clockhands.to_json` writes all of it.
    """

    def __init_subclass__(cls, **named: Any) -> None:
        """Keep this representation: a dataclass makes one of all fields where its class has none of its own."""
        super().__init_subclass__(**named)
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = OneLine.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """The call that makes it, as far as a line has room."""
        usual = _usual(self)
        told = {
            field.name: _short(getattr(self, field.name))
            for field in dataclasses.fields(self)  # type: ignore[arg-type] # a dataclass
            if field.init and (field.name not in usual or getattr(self, field.name) != usual[field.name])
        }
        room = _ROOM - len(type(self).__name__) - 2 - sum(len(name) + 3 for name in told)
        for name in sorted(told, key=lambda name: -len(told[name])):
            over = sum(map(len, told.values())) - room
            if over > 0 and len(told[name]) > 20:
                told[name] = told[name][: max(17, len(told[name]) - over - 3)] + "..."
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in told.items())})"


def _short(value: object) -> str:
    """A value in a line: the first few of many numbers."""
    if isinstance(value, tuple) and len(value) > 8 and not any(isinstance(one, tuple) for one in value):
        return f"({', '.join(map(repr, value[:4]))}, ... {len(value)} in all)"
    return repr(value)


def _usual(spec: object) -> dict[str, Any]:
    """The optional fields of an object of this class that was made with the required ones only."""
    parameters = list(inspect.signature(type(spec).__init__).parameters.values())[1:]
    needed = {one.name: getattr(spec, one.name, None) for one in parameters if one.default is one.empty}
    usual = {one.name: one.default for one in parameters if one.name not in needed}
    with suppress(Exception):  # a class may refuse these values together
        made = vars(_new(type(spec), tuple(needed.items())))
        usual |= {name: value for name, value in made.items() if name not in needed}
    return usual


@lru_cache(maxsize=256)
def _new(kind: type, fields: tuple[tuple[str, Any], ...]) -> Any:
    return kind(**dict(fields))


class KnowsItsNames(OneLine):
    """A class that says which word is meant when it is called with a name that it does not have."""

    def __new__(cls, *_given: Any, **named: Any) -> Self:
        """Make a new object, whose names are known."""
        refuse_unknown(cls, named)
        return super().__new__(cls)
