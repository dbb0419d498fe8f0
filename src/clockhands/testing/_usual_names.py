"""Usual names of what functions and models are given, and which argument each of them means."""

from collections.abc import Mapping, Sequence

OF_POSITIONS = ("position_ids", "pos", "pos_ids", "input_pos", "token_positions", "segment_pos")
"""Other names of positions."""

OF_FIRST_POSITION = ("start_pos", "start_position", "position_offset", "past_length")
"""Names of the position of the first token of a call, besides ``offset``."""

OF_EARLIER_TOKENS = (
    *OF_FIRST_POSITION, "offset", "cache_offset", "past_len", "past_key_values_length", "past_seen_tokens",
)  # fmt: skip
"""Names of the number of tokens before a call, which is the position of its first."""


def meanings(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The argument that each name means: the key of a table of usual names, for itself and its names.

    >>> meanings({"q": ("query", "xq")})
    {'q': 'q', 'query': 'q', 'xq': 'q'}
    """
    return {name: meant for meant, others in names.items() for name in (meant, *others)}
