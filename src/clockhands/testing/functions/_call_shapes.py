"""Shapes of calls: which arguments a function takes, in which layout, and what it returns.

A shape is written as the call is: ``"x, positions"``, ``"q, k, cos, sin"``, ``"positions -> cos, sin"``. Where it is
not given, it is read from the names of the parameters, and what names do not say (the axes of tokens, how wide cosines
are) is tried in the layouts that are usual.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from clockhands.arguments import one_of
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.phrases import shown
from clockhands.testing.functions._argument_names import (
    KNOWN,
    POSITIONS,
    QUANTITIES,
    SETTINGS,
    TABLES,
    arguments_of,
    takes_tokens_alone,
)
from clockhands.testing.functions._wave_tables import (
    ONE_FOR_EACH_PAIR,
    OTHER_FORMS,
    RETURNED,
    SINES_FIRST,
    TableLayout,
)

AXES = ("batch", "heads", "seq", "width")
PLACES = ("seq", "batch seq", "seq axes", "batch seq axes", "axes seq", "axes batch seq")

PAIRS = "q, k, positions"
CALLS = (
    "x, positions",
    "x",
    "x, offset",
    PAIRS,
    "positions",
    "q, k",
    "q, k, cos, sin",
    "x, cos, sin",
    "q, k, freqs_cis",
    "x, freqs_cis",
    "positions -> cos, sin",
    "x, positions -> cos, sin",
    "dim, end, theta -> freqs_cis",
)
"""Usual arguments of a function of tokens, and what it returns if not tokens."""

_PLAIN = (("x", "positions"), ("x",), ("x", "offset"), ("q", "k", "positions"), ("positions",))
_USUAL_AXES = (
    "batch heads seq width",
    "batch seq heads width",
    "seq heads*width",
    "seq batch heads width",
    "seq heads width",
    "heads seq width",
    "batch seq width",
    "seq width",
)
_USUAL_TABLES = ("batch seq", "batch 1 seq", "batch seq 1", "seq batch", "seq", "seq 1", "seq 1 1")


@dataclass(frozen=True)
class CallShape:
    """The shape of a call.

    Attributes:
        takes: The arguments, in order, quantities of `_argument_names`.
        returns: What it returns in place of tokens: ``"cos, sin"``, ``"sin, cos"`` or ``"freqs_cis"``; else empty.
        axes: The axes of its tokens, in its order.
        flat: Whether heads and width are one axis.
        places: The axes of its positions.
        table: The layout of the cosines and sines that it takes, or None.
        compared: Whether this is one of several layouts, of which the one that fits is looked for.
        partly: Whether it gets those dimensions of tokens alone that rotate.
        by_name: The parameters of the last arguments, which are passed by name.
        guessed: Whether parameters have names that do not say what they are: only right numbers show that it fits.
    """

    takes: tuple[str, ...]
    returns: str = ""
    axes: tuple[str, ...] = ("seq", "width")
    flat: bool = False
    places: tuple[str, ...] = ("seq",)
    table: TableLayout | None = None
    compared: bool = False
    partly: bool = False
    by_name: tuple[str, ...] = ()
    guessed: bool = False

    @property
    def call(self) -> str:
        """The arguments, and what is returned if not tokens."""
        return ", ".join(self.takes) + (f" -> {self.returns}" if self.returns else "")

    @property
    def is_plain(self) -> bool:
        """Whether this is one of the shapes that are taken as they are, without comparing layouts."""
        return self.takes in _PLAIN and not self.returns and not self.compared

    @property
    def axes_text(self) -> str:
        """The axes of its tokens, as ``axes=`` takes them."""
        return " ".join(self.axes).replace("heads width", "heads*width") if self.flat else " ".join(self.axes)

    @property
    def pairs(self) -> bool:
        """Whether it takes, and returns, queries and keys."""
        return "q" in self.takes

    @property
    def has_tokens(self) -> bool:
        """Whether it takes tokens."""
        return self.pairs or "x" in self.takes

    @property
    def is_table(self) -> bool:
        """Whether it returns rows, and takes no tokens to which they could be added."""
        return self.takes == ("positions",) and not self.returns

    @property
    def counts(self) -> bool:
        """Whether it counts its rows itself."""
        return self.has_tokens and {*self.takes} - SETTINGS in ({"x"}, {"q", "k"}, {"q", "k", "end"})

    @property
    def computes(self) -> bool:
        """Whether positions or frequencies are its own business: it is given no cosines, sines or angles."""
        return not set(self.takes) & set(TABLES)

    @property
    def other_reading(self) -> "CallShape | None":
        """The same call with the other meaning of a table beside packed documents, a row for each token or position."""
        if self.table is None or "cu_seqlens" not in self.takes:
            return None
        return replace(self, table=self.table._replace(whole=not self.table.whole))

    def text(self, sizes: Mapping[str, Any], rotated: int) -> str:
        """The call with its shapes, for messages."""
        sizes = {**sizes, "width": rotated} if self.partly else sizes
        held = [str(sizes[word]) for word in self.axes]
        if self.flat:
            held[-2:] = [str(sizes["heads"] * sizes["width"]) if isinstance(sizes["width"], int) else "heads*width"]
        x, places = f"[{', '.join(held)}]", f"[{', '.join(self.places)}]"
        named = {word: f"{word} {x}" for word in ("x", "q", "k")}
        named |= {word: f"{word} {places}" for word in POSITIONS}
        if self.table is not None:
            named |= {word: f"{word} {self.table.text(rotated)}" for word in TABLES}
        return ", ".join(named.get(word, word) for word in self.takes)


def spaced(call: Any) -> Any:
    """Comma-separated words, with one space after each comma and around an arrow."""
    if not isinstance(call, str):
        return call
    return " -> ".join(", ".join(word.strip() for word in part.split(",")) for part in call.split("->"))


def axes_of(text: Any) -> tuple[str, ...]:
    """The axes of tokens, in a function's order; raises `InvalidValue` for other words."""
    words = tuple(text.replace(",", " ").replace("*", " ").split()) if isinstance(text, str) else ()
    flat = isinstance(text, str) and "*" in text
    if (
        not set(words) <= set(AXES)
        or len(set(words)) < len(words)
        or not {"seq", "width"} <= set(words)
        or (flat and not text.endswith("heads*width"))
    ):
        raise InvalidValue(
            f"`axes` must list the axes of x in order, using batch, heads, seq and width, got {shown(text)}.",
            'Write for example axes="batch heads seq width"; seq and width are required.',
        )
    return words


def _parsed(call: Any) -> CallShape:
    """The shape that ``call`` names; raises `InvalidValue` for a call that no check makes."""
    takes, _, returns = (spaced(call) if isinstance(call, str) else "").partition(" -> ")
    words = tuple(KNOWN.get(word, word) for word in takes.split(", "))
    if returns not in {"", *RETURNED} or not _can_be_made(words, returns):
        one_of("call", call, CALLS, "It names the arguments of the function.")
    return CallShape(words, returns)


def _can_be_made(words: tuple[str, ...], returns: str = "") -> bool:
    """Whether a check can make this call, and use what it returns."""
    given, settings = {*words}, {*words} & SETTINGS
    tokens, others = given & {"x", "q", "k"}, given - settings
    if len(given) < len(words) or not given <= {*QUANTITIES}:
        return False
    if tokens not in (set(), {"x"}, {"q", "k"}):
        return False
    if "end" in given:  # then it returns the rows from position 0 on, or it is told how many tokens it gets
        return others <= {"end", "x"} or others in _COUNTED
    if returns or not tokens:
        return others - tokens == {"positions"}
    return True


_COUNTED = ({"q", "k", "end"}, {"q", "k", "end", "offset"}, {"x", "end", "offset"})


def shapes(
    function: Callable[..., Any],
    call: "str | CallShape | None",
    axes: str | None,
    places: str | None,
    spec: Rotary | None,
    *,
    counted: bool = False,
) -> list[CallShape]:
    """The shapes in which a function may be called, the likely ones first; what is given is not tried otherwise.

    Args:
        function: The function.
        call: Its arguments, or the whole shape; None reads them from the names of its parameters, or else is
            ``"x, positions"``.
        axes: The axes of its tokens; None tries the usual ones.
        places: The axes of its positions; None tries the usual ones, likewise.
        spec: The spec from which cosines and sines are made; None for codes without.
        counted: Whether it has a rank's part of the tokens, and finds out their positions.
    """
    if isinstance(call, CallShape):
        return [call]
    if axes is not None:
        axes_of(axes)
    if places is not None:
        one_of("positions", places, PLACES, "It names the axes of the positions that the function takes.")
    if call is not None:
        return _layouts(_parsed(call), axes, places, spec)
    own = {"x", "offset", "positions", "cu_seqlens"}
    usual = [words for words in map(_words_of, CALLS) if words != ("x",) and "end" not in words]
    named = [
        CallShape(one.words, compared="q" in one.words or counted or one.guessed, **one.passing)
        for one in arguments_of(function, usual, _can_be_made)
        if (counted or {*one.words} - SETTINGS != {"x"}) and (spec is not None or {*one.words} <= own)
    ]
    if counted:  # what has positions is told so if it cannot be called without
        named = [one for one in named if not {*one.takes} & {*POSITIONS, "offset"}] or named
    if takes_tokens_alone(function) and not counted:
        named = [*(one for one in named if one.takes == ("positions",)), CallShape(("x",))]
    elif not named or named[0].guessed:
        plain = CallShape(_PLAIN[1] if counted else _PLAIN[0], compared=counted, guessed=not counted)
        named = [plain, *(one for one in named if one.takes != plain.takes)]
    return [shape for one in named for shape in _layouts(one, axes, places, spec)]


def _words_of(call: str) -> tuple[str, ...]:
    return tuple(call.split(" -> ", maxsplit=1)[0].split(", "))


def _layouts(one: CallShape, axes: str | None, places: str | None, spec: Rotary | None) -> list[CallShape]:
    """The shape in the layout that plain calls have, and in all usual ones of what was not given."""
    found = []
    if one.is_plain and (spec is None or one.takes != ("positions",)):  # what rotates tokens is no table of rows
        found = [_laid_out(replace(one, guessed=False), axes or "seq width", places or "seq")]
    if found and axes is not None and places is not None:
        return found
    for returns in _returned(one, spec):
        found += _usual(replace(one, returns=returns, compared=True), axes, places, spec)
    return found


def _returned(one: CallShape, spec: Rotary | None) -> Iterator[str]:
    """What a function may return: tokens, or, without tokens or of positions, cosines and sines."""
    given = {*one.takes}
    if one.returns or spec is None:
        yield one.returns
        return
    if one.has_tokens and ("end" not in given or given & {"q", "offset"}):
        yield ""
    if given - SETTINGS - {"x"} in ({"positions"}, {"end"}):
        yield from (form for form in RETURNED if form != SINES_FIRST)
    if given - SETTINGS == {"end"}:  # tables of a length are returned in both orders, as in GPT-J
        yield SINES_FIRST


def _laid_out(one: CallShape, axes: str, places: str, table: TableLayout | None = None) -> CallShape:
    return replace(one, axes=axes_of(axes), flat="*" in axes, places=tuple(places.split()), table=table)


def _usual(one: CallShape, axes: str | None, places: str | None, spec: Rotary | None) -> Iterator[CallShape]:
    """The shape in all usual layouts of what was not given."""
    each = (axes,) if axes is not None else _USUAL_AXES[:1] if one.returns else _USUAL_AXES
    usual = (
        ("axes batch seq", "axes seq", "batch seq", "seq")
        if spec is not None and spec.number_of_axes > 1
        else ("batch seq", "seq")
    )
    positions = (places,) if places is not None else usual if "positions" in one.takes else ("seq",)
    if one.computes:
        for words, at in product(each, positions):
            yield _laid_out(one, words, at)
        return
    # Of a head of which a part rotates, that part may be cut out before the call.
    parts = (False, True) if spec is not None and spec.rotated < spec.head_width else (False,)
    # A table of packed documents has a row for each token, or one for each position.
    wholes = (True,) if "positions" in one.takes else (False, True) if "cu_seqlens" in one.takes else (False,)
    for takes, whole, words, partly in product(_forms(one.takes), wholes, each, parts):
        for order, rows, at in product(_orders(takes, spec), _USUAL_TABLES, positions):
            if not (partly and "*" in words):
                yield replace(_laid_out(one, words, at, TableLayout(rows, order, whole)), takes=takes, partly=partly)


def _forms(takes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The arguments, with each form of cosines and sines that their names may mean."""
    yield from product(*(OTHER_FORMS.get(word, (word,)) for word in takes))


def _orders(takes: tuple[str, ...], spec: Rotary | None) -> tuple[str, ...]:
    """How cosines may be repeated for the dimensions of a pair, the usual way for the layout of the spec first."""
    if {*takes} & ONE_FOR_EACH_PAIR:
        return ("pairs",)
    own = "halves" if spec is None or spec.layout == "halves" else "interleaved"
    return tuple(dict.fromkeys((own, "halves", "interleaved", "pairs")))
