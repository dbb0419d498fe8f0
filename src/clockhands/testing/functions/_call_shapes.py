"""Shapes of calls: which arguments a function takes, in which layout, and what it returns.

A shape is written as the call is: ``"x, positions"``, ``"q, k, cos, sin"``, ``"positions -> cos, sin"``. Where it is
not given, it is read from the names of the parameters, and what names do not say (the axes of tokens, how wide cosines
are) is tried in the layouts that are usual.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product, takewhile
from typing import Any, NamedTuple

import numpy as np

from clockhands.arguments import one_of
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.rotary.formula import plain
from clockhands.errors import InvalidValue
from clockhands.phrases import shown
from clockhands.recognition.calling import Refused, kind_of
from clockhands.recognition.suspects import StagedRotary

NAMES: Mapping[str, tuple[str, ...]] = {
    "x": ("t", "tensor", "hidden_states", "inputs", "input"),
    "q": ("xq", "query", "queries", "query_states", "query_layer", "q_embed"),
    "k": ("xk", "key", "keys", "key_states", "key_layer", "k_embed"),
    "positions": ("position_ids", "pos", "pos_ids", "input_pos", "token_positions"),
    "q_positions": ("query_positions", "q_pos", "q_position_ids"),
    "k_positions": ("key_positions", "k_pos", "k_position_ids"),
    "offset": (),
    "cos": ("cos_emb", "cos_pos", "cosine", "cosines", "freqs_cos", "cos_cached"),
    "sin": ("sin_emb", "sin_pos", "sine", "sines", "freqs_sin", "sin_cached"),
    "sin_cos": ("emb", "rot_pos_emb"),
    "freqs": ("angles", "rotary_pos_emb"),
    "freqs_cis": ("freqs_complex", "pos_cis", "rope_cache"),
    "dim": ("head_dim", "rotary_dim"),
    "end": ("seq_len", "max_seq_len", "max_position_embeddings"),
    "theta": ("base", "rope_theta"),
    "cu_seqlens": ("cu_seq_lens", "cu_seqlen"),
    "table": ("posemb", "pos_embed", "pos_embedding", "position_embedding", "position_embeddings", "abs_pos"),
    "size": ("new_size", "gs_new", "grid_size", "target_size", "new_grid_size"),
    "old_size": ("gs_old", "orig_size", "old_grid_size"),
    "height": ("h", "new_height"),
    "width": ("w", "new_width"),
    "prefix": ("num_prefix_tokens", "num_extra_tokens", "num_tokens"),
}
"""What a function of tokens may be given, by the names that are usual for it."""

KNOWN: Mapping[str, str] = {name: word for word, names in NAMES.items() for name in (word, *names)}
"""The word of `NAMES` for each of its names."""

AXES = ("batch", "heads", "seq", "width")
PLACES = ("seq", "batch seq", "seq axes", "batch seq axes", "axes seq", "axes batch seq")

RESIZING = frozenset({"table", "size", "old_size", "height", "width", "prefix"})
"""What a function is given that resizes a learned table."""

TABLES = ("cos", "sin", "sin_cos", "freqs", "freqs_cis")
"""Arguments that the check makes from the spec."""

PAIRS = "q, k, positions"
WAVES = "cos, sin"
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
_SIZED_DEFAULTS = {"theta", "old_size", "prefix"}  # passed although they have a default, which may be another model's
_POSITIONS = ("positions", "q_positions", "k_positions")
_GIVEN_DEFAULTS = {"k", "end", *_POSITIONS, *TABLES}  # passed too, as models do
_USUAL_TABLES = ("batch seq", "seq", "batch 1 seq", "batch seq 1", "seq 1", "seq 1 1")


class TableLayout(NamedTuple):
    """How cosines and sines are laid out.

    Attributes:
        axes: The axes before the last one, such as ``"batch seq"``; of one sequence of positions, the batch is 1.
        order: The last axis: ``"halves"`` (the numbers of all pairs, twice), ``"interleaved"`` (each number twice),
            or ``"pairs"`` (one number for each pair).
    """

    axes: str
    order: str

    def text(self, width: int) -> str:
        """The layout, for messages."""
        words = {
            "halves": f"{width}, both halves equal",
            "interleaved": f"{width}, neighbours equal",
            "pairs": f"{width // 2}, one for each pair",
            "rows": "height, width" if self.axes == "batch width" else "width",
        }
        return f"[{self.axes.replace(' ', ', ')}, {words[self.order]}]"


@dataclass(frozen=True)
class CallShape:
    """The shape of a call.

    Attributes:
        takes: The arguments, in order, as words of `NAMES`.
        returns: What it returns in place of tokens: ``"cos, sin"``, ``"sin, cos"`` or ``"freqs_cis"``; else empty.
        axes: The axes of its tokens, in its order.
        flat: Whether heads and width are one axis.
        places: The axes of its positions.
        table: The layout of the cosines and sines that it takes, or None.
        compared: Whether this is one of several layouts, of which the one that fits is looked for.
        partly: Whether it gets those dimensions of tokens alone that rotate.
    """

    takes: tuple[str, ...]
    returns: str = ""
    axes: tuple[str, ...] = ("seq", "width")
    flat: bool = False
    places: tuple[str, ...] = ("seq",)
    table: TableLayout | None = None
    compared: bool = False
    partly: bool = False

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
        return (self.takes == ("positions",) and not self.returns) or "table" in self.takes

    @property
    def counts(self) -> bool:
        """Whether it counts its rows itself."""
        return self.takes in {("x",), ("q", "k")}

    @property
    def computes(self) -> bool:
        """Whether positions or frequencies are its own business: it is given no cosines, sines or angles."""
        return not set(self.takes) & set(TABLES)

    def text(self, sizes: Mapping[str, Any], rotated: int) -> str:
        """The call with its shapes, for messages."""
        sizes = {**sizes, "width": rotated} if self.partly else sizes
        held = [str(sizes[word]) for word in self.axes]
        if self.flat:
            held[-2:] = [str(sizes["heads"] * sizes["width"]) if isinstance(sizes["width"], int) else "heads*width"]
        x, places = f"[{', '.join(held)}]", f"[{', '.join(self.places)}]"
        named = {word: f"{word} {x}" for word in ("x", "q", "k")}
        named |= {word: f"{word} {places}" for word in ("positions", "q_positions", "k_positions")}
        if self.table is not None:
            named |= {word: f"{word} {self.table.text(rotated)}" for word in (*TABLES, "table")}
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
    returns = returns or _returned(words)
    if not _can_be_made(words, returns):
        one_of("call", call, CALLS, "It names the arguments of the function.")
    return CallShape(words, returns)


def _can_be_made(words: tuple[str, ...], returns: str) -> bool:
    """Whether a check can make this call, and use what it returns."""
    given = {*words}
    tokens, sizes = given & {"x", "q", "k"}, given & {"dim", "end", "theta"}
    if len(given) < len(words) or not given <= {*NAMES} or returns not in {"", WAVES, "sin, cos", "freqs_cis"}:
        return False
    if given & RESIZING:
        return "table" in given and given <= RESIZING and not returns
    if tokens not in (set(), {"x"}, {"q", "k"}):
        return False
    if sizes:  # then it returns the rows from position 0 on
        return "end" in sizes and bool(returns) and given - sizes <= {"x"}
    return "positions" in given if returns else bool(tokens) or words == ("positions",)


def named_arguments(function: Callable[..., Any]) -> list[tuple[str, ...]]:
    """The words for the parameters of a function: with those of known names that have a default, then without.

    It is empty if no check can make the call. Positions and cosines say the same: beside the one, a default stays for
    the other.
    """
    try:
        parameters = list(inspect.signature(getattr(function, "forward", function)).parameters.values())
    except (TypeError, ValueError):
        return []
    placed = [one for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
    words = tuple(KNOWN.get(one.name, "") for one in placed)
    number = sum(one.default is one.empty for one in placed)
    needed = words[:number]
    others = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if "" in needed or others:
        return []
    usual = _SIZED_DEFAULTS if {"dim", "table"} & {*needed} else _GIVEN_DEFAULTS
    for one, other in ((_POSITIONS, TABLES), (TABLES, _POSITIONS)):
        usual = usual.difference(other if {*needed} & {*one} else ())
    more = tuple(takewhile(usual.__contains__, words[number:]))
    calls = [needed + more[:end] for end in range(len(more), -1, -1)]
    made = [one for one in calls if _can_be_made(one, _returned(one))]
    return [one for one in made if one in {made[0], needed}]


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
        axes: The axes of its tokens; None tries the usual ones, unless it takes ``"x, positions"``.
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
    own = {"x", "positions", "cu_seqlens", *RESIZING}
    named = [
        CallShape(words, _returned(words))
        for words in named_arguments(function)[-1 if counted else 0 :]
        if (counted or words != ("x",)) and (spec is not None or {*words} <= own)
    ]
    found: list[CallShape] = []
    for one in named or [CallShape(_PLAIN[1] if counted else _PLAIN[0])]:
        found += _layouts(replace(one, compared=one.pairs or counted), axes, places, spec)
        if spec is not None and one.takes in {("x", "positions"), ("positions",)}:
            found += _usual(replace(one, returns=WAVES), axes, places, spec)
    return found


def _layouts(one: CallShape, axes: str | None, places: str | None, spec: Rotary | None) -> list[CallShape]:
    """The shape in the layout that plain calls have, or in all usual ones."""
    if one.is_plain:
        return [_laid_out(one, axes or "seq width", places or "seq")]
    return list(_usual(one, axes, places, spec))


def _returned(words: tuple[str, ...]) -> str:
    """What a function that is given sizes returns, as a call names it; of others it shows when they are called."""
    return "freqs_cis" if "dim" in words else WAVES if "end" in words else ""


def _laid_out(one: CallShape, axes: str, places: str, table: TableLayout | None = None) -> CallShape:
    return replace(one, axes=axes_of(axes), flat="*" in axes, places=tuple(places.split()), table=table)


def _usual(one: CallShape, axes: str | None, places: str | None, spec: Rotary | None) -> Iterator[CallShape]:
    """The shape in all usual layouts of what was not given."""
    each = (axes,) if axes is not None else _USUAL_AXES[:1] if one.returns else _USUAL_AXES
    usual = (
        ("axes batch seq", "batch seq", "seq") if spec is not None and spec.number_of_axes > 1 else ("batch seq", "seq")
    )
    positions = (places,) if places is not None else usual if "positions" in one.takes else ("seq",)
    if one.is_table and not one.is_plain:
        for rows in ("batch seq", "seq", "batch width"):
            yield replace(one, table=TableLayout(rows, "rows"))
        return
    if one.computes:
        for words, at in product(each, positions):
            yield _laid_out(one, words, at)
        return
    own = "halves" if spec is None or spec.layout == "halves" else "interleaved"
    complex_alone = {*one.takes} & {*TABLES} == {"freqs_cis"}
    orders = ("pairs",) if complex_alone else tuple(dict.fromkeys((own, "halves", "interleaved", "pairs")))
    # Of a head of which a part rotates, that part may be cut out before the call.
    parts = (False, True) if spec is not None and spec.rotated < spec.head_width else (False,)
    for words, partly, order, rows, at in product(each, parts, orders, _USUAL_TABLES, positions):
        if not (partly and "*" in words):
            shape = replace(_laid_out(one, words, at, TableLayout(rows, order)), partly=partly)
            yield shape
            if order == "pairs" and "freqs" in one.takes:  # complex numbers have that name too
                yield replace(shape, takes=tuple("freqs_cis" if word == "freqs" else word for word in one.takes))


def table_of(word: str, layout: TableLayout, spec: Rotary, at: np.ndarray) -> np.ndarray:
    """Cosines, sines, both, angles or complex numbers at positions [seq] or [batch, seq], in a layout.

    Raises:
        Refused: The layout has no axis for the sequences of a batch.
    """
    several = spec.axes is not None
    if spec.xpos is not None:
        raise Refused("xPos has no cosines and sines that hold for queries and keys")
    if at.ndim > 1 + several and "batch" not in layout.axes:
        raise Refused("it takes cosines and sines of one sequence")
    right = StagedRotary(spec)
    phases = np.abs(right.phases(np.asarray(at, np.float64)))
    made = {
        "cos": lambda: _repeated(right.factor * np.cos(phases), layout.order),
        "sin": lambda: _repeated(right.factor * np.sin(phases), layout.order),
        "freqs": lambda: _repeated(phases, layout.order),
        "freqs_cis": lambda: right.factor * np.exp(1j * phases),
        "sin_cos": lambda: np.concatenate(
            [_repeated(right.factor * wave(phases), layout.order) for wave in (np.sin, np.cos)], axis=-1
        ),
    }[word]()
    batch = len(made) if made.ndim > 2 else 1
    sizes = {"batch": batch, "seq": made.shape[-2], "1": 1}
    return made.reshape(*(sizes[word] for word in layout.axes.split()), made.shape[-1])


def _repeated(numbers: np.ndarray, order: str) -> np.ndarray:
    if order == "pairs":
        return numbers
    return np.concatenate([numbers, numbers], -1) if order == "halves" else np.repeat(numbers, 2, -1)


def waves_in(answer: Any, returns: str) -> tuple[Any, ...]:
    """The arrays of an answer that should be cosines and sines, or complex numbers."""
    if returns == "freqs_cis" and hasattr(answer, "shape"):
        return (answer,)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Refused(f"it returned {kind_of(answer)}, not cosines and sines")
    return tuple(answer) if returns != "sin, cos" else tuple(answer[::-1])


def rotated_by(x: np.ndarray, waves: tuple[np.ndarray, np.ndarray], spec: Rotary) -> np.ndarray:
    """Tokens [batch, heads, seq, width] rotated by a function's cosines and sines.

    They are [seq, n] or [batch, seq, n], with one number for each pair, or one for each dimension that rotates: equal
    halves or, for interleaved pairs, equal neighbours. Where the dimensions of a pair have two numbers, each keeps its.
    """
    cosine, sine = (_rows(wave, x) for wave in waves)
    sine = -sine if spec.direction == "backward" else sine
    number = cosine.shape[-1]
    if number not in {spec.rotated, spec.rotated // 2} and (number % 2 or number > spec.head_width):
        raise Refused(f"it returned {number} cosines for {spec.rotated} dimensions that rotate")
    if number == spec.rotated // 2:
        return plain(x, cosine, sine, spec, np)
    half = number // 2
    neighbours = all(np.array_equal(wave[..., ::2], wave[..., 1::2], equal_nan=True) for wave in (cosine, sine))
    halves = all(np.array_equal(wave[..., :half], wave[..., half:], equal_nan=True) for wave in (cosine, sine))
    own = spec
    if number != spec.rotated:
        own = Rotary(spec.head_width, spec.layout, rotated=number, part=spec.part)
    if halves or (neighbours and spec.layout == "interleaved"):
        each = slice(half) if halves else slice(None, None, 2)
        return plain(x, cosine[..., each], sine[..., each], own, np)
    y, (one, other) = np.array(x), own.channels.T
    first, second = one - own.start, other - own.start
    y[..., one] = x[..., one] * cosine[..., first] - x[..., other] * sine[..., first]
    y[..., other] = x[..., other] * cosine[..., second] + x[..., one] * sine[..., second]
    return y


def _rows(wave: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Cosines or sines as [batch, 1, seq, n] or [seq, n]."""
    batch, seq = len(x), x.shape[-2]
    sizes = [size for size in wave.shape[:-1] if size > 1]
    if math.prod(sizes) == seq and len(sizes) < 2:
        return wave.reshape(seq, -1)
    if sizes == [size for size in (batch, seq) if size > 1]:
        return wave.reshape(batch, 1, seq, -1)
    raise Refused(f"it returned cosines of shape {list(wave.shape)} for {seq} positions")
