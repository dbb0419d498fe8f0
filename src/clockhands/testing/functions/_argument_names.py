"""Arguments of functions of tokens: their usual names, and what the parameters of a function are given."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clockhands.testing._usual_names import OF_FIRST_POSITION, OF_POSITIONS, meanings

NAMES: Mapping[str, tuple[str, ...]] = {
    "x": ("t", "tensor", "hidden_states", "inputs", "input"),
    "q": ("xq", "query", "queries", "query_states", "query_layer", "q_embed"),
    "k": ("xk", "key", "keys", "key_states", "key_layer", "k_embed"),
    "positions": OF_POSITIONS,
    "q_positions": ("query_positions", "q_pos", "q_position_ids"),
    "k_positions": ("key_positions", "k_pos", "k_position_ids"),
    "offset": (*OF_FIRST_POSITION, "seqlen_offset", "seqlen_offsets"),
    "cos": ("cos_emb", "cos_pos", "cosine", "cosines", "freqs_cos", "cos_cached"),
    "sin": ("sin_emb", "sin_pos", "sine", "sines", "freqs_sin", "sin_cached"),
    "sin_cos": ("emb", "rot_pos_emb"),
    "cos_sin": ("cos_sin_cache",),
    "waves": (),
    "wave_pairs": (),
    "matrices": (),
    "freqs": ("angles", "rotary_pos_emb"),
    "freqs_cis": ("freqs_complex", "pos_cis", "rope_cache", "image_rotary_emb", "pe"),
    "dim": ("head_dim", "rotary_dim", "dims", "n_elem"),
    "head_size": ("head_width",),
    "end": ("seq_len", "max_seq_len", "max_position_embeddings"),
    "theta": ("base", "rope_theta", "rope_base", "base_frequency", "max_wavelength"),
    "interleaved": ("rotary_interleaved", "is_interleaved", "traditional"),
    "halves": ("is_neox_style", "is_neox"),
    "mscale": ("attention_factor", "attention_scaling"),
    "scale": (),
    "cu_seqlens": ("cu_seq_lens", "cu_seqlen"),
    "rank": ("cp_rank", "sp_rank"),
    "ranks": ("cp_size", "sp_size"),
    "table": ("posemb", "pos_embed", "pos_embedding", "position_embedding", "position_embeddings", "abs_pos"),
    "size": ("new_size", "gs_new", "grid_size", "target_size", "new_grid_size"),
    "old_size": ("gs_old", "orig_size", "old_grid_size"),
    "height": ("h", "new_height"),
    "width": ("w", "new_width"),
    "prefix": ("num_prefix_tokens", "num_extra_tokens", "num_tokens"),
}
"""What a function of tokens may be given, by the names that are usual for it."""

KNOWN: Mapping[str, str] = meanings(NAMES)
"""The word of `NAMES` for each of its names."""

RESIZING = frozenset({"table", "size", "old_size", "height", "width", "prefix"})
"""What a function is given that resizes a learned table."""

POSITIONS = ("positions", "q_positions", "k_positions")

TABLES = ("cos", "sin", "sin_cos", "cos_sin", "waves", "wave_pairs", "matrices", "freqs", "freqs_cis")
"""Arguments that the check makes from the spec."""

SETTINGS = frozenset({"dim", "head_size", "theta", "interleaved", "halves", "mscale", "scale"})
"""Single values of the spec."""

# What says where tokens are: beside one of these, the defaults of the others stay.
_PLACES = (POSITIONS, TABLES, ("offset",), ("end",))
# Passed although they have a default, as models do.
_PASSED = frozenset({"k", "rank", "ranks", "old_size", "prefix", "heads", "number of keys", "earlier keys"})


class Arguments(NamedTuple):
    """The arguments of a call.

    Attributes:
        words: What is passed, as words of `NAMES`, in order.
        by_name: The parameters of the last ones, which are passed by name.
        guessed: Whether the name of a parameter did not say what it is.
    """

    words: tuple[str, ...]
    by_name: tuple[str, ...] = ()
    guessed: bool = False

    @property
    def passing(self) -> dict[str, Any]:
        """How they are passed, as fields of a `CallShape`."""
        return {"by_name": self.by_name, "guessed": self.guessed}


def arguments_of(
    function: Callable[..., Any],
    usual: Sequence[tuple[str, ...]],
    can_be_made: Callable[[tuple[str, ...]], bool],
    known: Mapping[str, str] = KNOWN,
) -> list[Arguments]:
    """What the parameters of a function can be given: with those of known names that have a default, then without.

    It is empty if no check can make the call.

    Args:
        function: The function.
        usual: The arguments of usual calls, one of which is meant by parameters of other names.
        can_be_made: Whether a check can make a call with these arguments.
        known: The words for the names of parameters.
    """
    try:
        parameters = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):
        return []
    needed = [one for one in parameters if one.default is one.empty and one.kind not in _VARIABLE]
    by_name = tuple(one.name for one in needed if one.kind is one.KEYWORD_ONLY)
    others = {
        known[one.name]: one.name
        for one in parameters
        if one.name in known and one.default is not one.empty and one.kind is not one.POSITIONAL_ONLY
    }
    named = tuple(known.get(one.name, "") for one in needed)
    found = []
    for words in _meanings(named, usual):
        more = tuple(word for word in _passed(words, list(others)) if word not in words)
        for some in dict.fromkeys((more, ())):
            made = Arguments(words + some, by_name + tuple(others[word] for word in some), words != named)
            if can_be_made(made.words):
                found.append(made)
    return found


_VARIABLE = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def _meanings(named: tuple[str, ...], usual: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The words for needed parameters; where names are not known, those of usual calls that agree with the others."""
    if "" not in named:
        yield named
        return
    for words in usual:
        if len(words) == len(named) and all(name in {"", word} for name, word in zip(named, words, strict=True)):
            yield words


def _passed(needed: tuple[str, ...], others: Sequence[str]) -> Iterator[str]:
    """Of parameters with a default, those that are passed beside the needed ones."""
    there = [kind for kind in _PLACES if {*kind} & {*needed}] or [kind for kind in _PLACES if {*kind} & {*others}]
    # Of a function of tokens and positions alone the default base and layout count: it is what its callers rely on.
    settings = SETTINGS if {*TABLES, "dim", "end"} & {*needed} or there[:1] == [("end",)] else frozenset()
    for word in others:
        if word in (_PASSED | settings) - {"dim", "scale"} or (there and word in there[0]):
            yield word
