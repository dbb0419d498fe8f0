"""Checks of single arguments, each with a message that names the argument and a hint.

They take the value apart from how it was spelled: NumPy scalars pass as the Python numbers they
hold, booleans and strings never pass as numbers.
"""

import difflib
import inspect
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Self

from clockhands.errors import InvalidType, InvalidValue

# Above this nothing that is counted (channels, rows, tokens) can be; it is also where positions end.
MOST = 2**63


# The words of other libraries for a field, by the word here; a class has at most one of those for the same word.
_ELSEWHERE = {
    "head_width": "dim head_dim d_head head_size dim_head size_per_head width",
    "width": "dim d_model embed_dim embedding_dim hidden_size n_embd channels num_pos_feats",
    "rotated": "rotary_dim rope_dim rotary_ndims n_rot rotary_pct partial_rotary_factor rotary_percentage",
    "base": "theta rope_theta rotary_emb_base rope_base rope_freq_base temperature max_wavelength",
    "spacing": "inv_freq freqs frequencies rates",
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
    "spacing": ": ladders.Explicit(rates) takes one for each pair",
    "layout": ': "halves" as in GPT-NeoX, or "interleaved" as in GPT-J',
    "scaling": ", one of clockhands.scaling",
    "axes": ", the axis of each pair, such as rotary.chunked(sections)",
}


def no_field(kind: type, name: str, known: Iterable[str]) -> tuple[str, str]:
    """A message and a hint for a field that a class does not have: with the word that is meant, if it is another's."""
    known = sorted(known)
    here = next((word for word, theirs in _ELSEWHERE.items() if word in known and name in theirs.split()), None)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Its fields are {', '.join(known)}."
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


class KnowsItsNames:
    """A class that says which word is meant when it is called with a name that it does not have."""

    def __new__(cls, *_given: Any, **named: Any) -> Self:
        """Make a new object, whose names are known."""
        refuse_unknown(cls, named)
        return super().__new__(cls)


def shown(value: object) -> str:
    """A value as an error message shows it: short, whatever it is."""
    try:
        text = f"{value:g}" if isinstance(value, float) else repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits, or a nest without end
        text = f"{type(value).__name__} too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def real(name: str, value: object) -> float:
    """``value`` as a float, if it is a real number; NaN and infinities pass."""
    if _is_boolean(value) or not hasattr(value, "__float__") or isinstance(value, str | bytes):
        raise InvalidType(f"`{name}` must be a number, got {shown(value)}.", f"Give `{name}` as an int or a float.")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(
            f"`{name}` must be a number that fits a float64, got {shown(value)}.",
            f"Give `{name}` as an int or a float.",
        ) from None


def positive(name: str, value: object) -> float:
    """``value`` as a float, if it is a finite number above 0."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise InvalidValue(
            f"`{name}` must be finite and positive, got {shown(value)}.", f"Give `{name}` as a number above 0."
        )
    return number


def not_negative(name: str, value: object) -> float:
    """``value`` as a float, if it is a finite number of at least 0."""
    number = real(name, value)
    if not 0 <= number < math.inf:
        raise InvalidValue(
            f"`{name}` must be finite and not negative, got {shown(value)}.",
            f"Give `{name}` as a number of at least 0.",
        )
    return number


def count(name: str, value: object, least: int = 1) -> int:
    """``value`` as an int, if it is a whole number from ``least`` to 2**63."""
    number = None
    if not _is_boolean(value) and hasattr(value, "__index__"):
        with suppress(TypeError):  # arrays have the method, and few of them an answer
            number = value.__index__()  # type: ignore[attr-defined]
    if number is None:
        raise InvalidType(
            f"`{name}` must be a whole number, got {shown(value)}.", f"Give `{name}` as an int of at least {least}."
        )
    if not least <= number <= MOST:
        limit = f"at least {least}" if number < least else "at most 2**63"
        raise InvalidValue(
            f"`{name}` must be {limit}, got {shown(number)}.", f"Give `{name}` as an int of at least {least}."
        )
    return number


def one_of(name: str, value: object, allowed: Iterable[str], hint: str) -> Any:
    """``value``, if it is one of some words."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        mark = '"' * any("," in word for word in words)
        listed = ", ".join(f"{mark}{word}{mark}" for word in words)
        raise InvalidValue(f"`{name}` must be one of {listed}, got {shown(value)}.", hint)
    return value


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def settle(spec: object, **values: object) -> None:
    """Write checked values into the fields of a frozen dataclass, from its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)
