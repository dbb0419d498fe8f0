"""Arguments of functions of tokens: their usual names, and what the parameters of a function are given."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clockhands.testing._usual_names import meanings

QUANTITIES = (
    "x", "q", "k", "positions", "q_positions", "k_positions", "offset", "cos", "sin", "sin_cos", "cos_sin", "waves",
    "wave_pairs", "matrices", "freqs", "freqs_cis", "dim", "head_size", "end", "theta", "interleaved", "halves",
    "mscale", "scale", "cu_seqlens", "rank", "ranks",
)  # fmt: skip
"""What a function of tokens may be given."""

KNOWN: Mapping[str, str] = meanings(*QUANTITIES)
"""The quantity that each usual name means."""

POSITIONS = ("positions", "q_positions", "k_positions")

TABLES = ("cos", "sin", "sin_cos", "cos_sin", "waves", "wave_pairs", "matrices", "freqs", "freqs_cis")
"""Arguments that the check makes from the spec."""

SETTINGS = frozenset({"dim", "head_size", "theta", "interleaved", "halves", "mscale", "scale"})
"""Single values of the spec."""

# What says where tokens are: beside one of these, the defaults of the others stay.
_PLACES = (POSITIONS, TABLES, ("offset",), ("end",))


class Arguments(NamedTuple):
    """The arguments of a call.

    Attributes:
        words: What is passed, quantities, in order.
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
    passed: frozenset[str] = frozenset({"k", "rank", "ranks"}),
) -> list[Arguments]:
    """What the parameters of a function can be given: with those of known names that have a default, then without.

    It is empty if no check can make the call.

    Args:
        function: The function.
        usual: The arguments of usual calls, one of which is meant by parameters of other names.
        can_be_made: Whether a check can make a call with these arguments.
        known: The words for the names of parameters.
        passed: What is passed although it has a default, as models do.
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
        more = tuple(word for word in _passed(words, list(others), passed) if word not in words)
        for some in dict.fromkeys((more, ())):
            made = Arguments(words + some, by_name + tuple(others[word] for word in some), words != named)
            if can_be_made(made.words):
                found.append(made)
    return found


def takes_tokens_alone(function: Callable[..., Any]) -> bool:
    """Whether a function takes one argument, which may be tokens, and beside it at most what cannot be positions."""
    try:
        first, *others = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):
        return False
    return (
        first.kind not in _VARIABLE
        and KNOWN.get(first.name, "x") in {"x", "q"}
        and all(one.default is not one.empty and _is_no_place(one) for one in others)
    )


def _is_no_place(one: inspect.Parameter) -> bool:
    """Whether an argument that may be left out is a mask or a setting, and so no positions."""
    setting = isinstance(one.default, bool | float | str) or one.name in {"dtype", "device", "out"}
    return setting or "mask" in one.name or ("dim" in one.name and one.name not in KNOWN)


_VARIABLE = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def _meanings(named: tuple[str, ...], usual: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The words for needed parameters; where names are not known, those of usual calls that agree with the others."""
    if "" not in named:
        yield named
        return
    for words in usual:
        if len(words) == len(named) and all(name in {"", word} for name, word in zip(named, words, strict=True)):
            yield words


def _passed(needed: tuple[str, ...], others: Sequence[str], passed: frozenset[str]) -> Iterator[str]:
    """Of parameters with a default, those that are passed beside the needed ones."""
    there = [kind for kind in _PLACES if {*kind} & {*needed}] or [kind for kind in _PLACES if {*kind} & {*others}]
    if there[:1] == [("end",)] and {"x", "q"} & {*needed} and "offset" in others:
        there.insert(0, ("offset",))
    # Of a function of tokens and positions alone the default base and layout count: it is what its callers rely on.
    settings = SETTINGS if {*TABLES, "dim", "end"} & {*needed} or there[:1] == [("end",)] else frozenset()
    for word in others:
        if word in (passed | settings) - {"dim", "scale"} or (there and word in there[0]):
            yield word
