"""The laws of an encoding without a reference: what any encoding keeps, and what one of its kind usually keeps.

A law of *use* holds for every encoding that a model can be trained and run with: a sequence gets the same numbers
alone, in a batch, in pieces. A law of *kind* (`distance only`, `norms`) is a property that many encodings have and
others do not by their nature; it is broken where it holds for some tokens and not for others, or where nothing in the
encoding explains that it does not hold.

Allowed errors, for float32: numbers that are computed from the same tokens and positions in another way may differ by
``2^-18`` of the largest one (32 roundings). Where positions move by up to P tokens, a phase in float32 may be off by
``P 2^-23`` rad on either side, so scores may differ by ``(2^-18 + P 2^-22)`` of the largest.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from clockhands.phrases import listed, number_of, percent, said
from clockhands.recognition.calling import Refused
from clockhands.testing.encodings._encoding_calls import DrawnTokens, EncodingCalls, drawn_tokens

State = Literal["holds", "broken by nature", "broken", "not applicable"]

SAME = 2.0**-18
LENGTH = 24
SHIFTS = (1, 100, 1_000, 3_000)
DTYPES = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class LawResult:
    """What was found of one law.

    Attributes:
        law: The law's name.
        asks: The law in one sentence.
        state: Whether it holds, is broken by the encoding's nature, is broken, or does not apply.
        says: What was found, with its numbers, or the reason.
        numbers: The same numbers by name.
    """

    law: str
    asks: str
    state: State
    says: str
    numbers: Mapping[str, Any] = field(default_factory=dict, hash=False)


class _Found(Exception):
    """The result of a law, raised where it is known."""

    def __init__(self, state: State, says: str, **numbers: Any) -> None:
        super().__init__(says)
        self.state: State = state
        self.says, self.numbers = says, numbers


class EncodingSubject:
    """An encoding under test, with the tokens and outputs that several laws need."""

    def __init__(self, calls: EncodingCalls, length: int) -> None:
        self.calls: EncodingCalls = calls
        self.length: int = length
        self.tokens: DrawnTokens = drawn_tokens(calls.sizes, range(length))

    def outputs(self, tokens: DrawnTokens, dtype: str = "float32") -> dict[str, np.ndarray]:
        """The numbers of these tokens: ``tokens`` [batch, seq, width] and ``scores`` [batch, heads, queries, keys].

        Scores of keys after the query are left out (NaN) of an encoding that is causal: it may hold anything there.
        """
        found = {}
        if self.calls.adds:
            found["tokens"] = self.calls.added(tokens, dtype)
        if self.calls.scored:
            found["scores"] = self.seen(self.calls.scores(tokens, dtype))
        return found

    def seen(self, scores: np.ndarray) -> np.ndarray:
        """These scores, NaN at keys after the query if the encoding is causal: it may hold anything there."""
        if not self.calls.causal:
            return scores
        later = np.triu(np.ones(scores.shape[-2:], bool), 1)
        return np.where(later, np.nan, scores)

    @cached_property
    def whole(self) -> dict[str, np.ndarray]:
        """The numbers of all tokens in one call."""
        return self.outputs(self.tokens)

    @cached_property
    def repeats(self) -> bool:
        """Whether the same call gives the same numbers at once again."""
        again = self.outputs(self.tokens)
        return not any(differs(again[name], one, 0.0) for name, one in self.whole.items())

    @cached_property
    def depends_on_tokens(self) -> str:
        """What shows that its positions act through the tokens; "" where they do not."""
        other = drawn_tokens(self.calls.sizes, range(self.length), seed=1)
        if "bias" in self.calls.methods:
            one, two = self.calls.biased(self.tokens), self.calls.biased(other)
            if differs(self.seen(one), self.seen(two), SAME):
                return "its bias is another one for other tokens"
        if "rotate" in self.calls.methods:
            same_heads = DrawnTokens(other.x, self.tokens.q, self.tokens.k, self.tokens.positions)
            one, two = self.calls.rotated(self.tokens), self.calls.rotated(same_heads)
            if any(differs(a, b, SAME) for a, b in zip(one, two, strict=True)):
                return "it rotates by other numbers where the states of the tokens are other ones"
            doubled = DrawnTokens(self.tokens.x, 2 * self.tokens.q, 2 * self.tokens.k, self.tokens.positions)
            if any(differs(2 * a, b, SAME) for a, b in zip(one, self.calls.rotated(doubled), strict=True)):
                return "it is not linear in queries and keys"
        if self.calls.methods == ("scores",):
            same_heads = DrawnTokens(other.x, self.tokens.q, self.tokens.k, self.tokens.positions)
            if differs(self.whole["scores"], self.seen(self.calls.scores(same_heads)), SAME):
                return "its scores are other ones where the states of the tokens are"
        if self.calls.adds:
            one, two = self.calls.added(self.tokens) - self.tokens.x, self.calls.added(other) - other.x
            if differs(one, two, 8 * SAME):
                return "what it adds depends on the token"
        return ""

    @cached_property
    def counts_by_itself(self) -> bool:
        """Whether tokens that are all alike get other numbers at other places, though all have one position."""
        one = drawn_tokens(self.calls.sizes, [0], seed=6)
        alike = DrawnTokens(
            np.repeat(one.x, self.length, axis=1),
            np.repeat(one.q, self.length, axis=2),
            np.repeat(one.k, self.length, axis=2),
            np.zeros(self.length, np.int64),
        )
        found = self.outputs(alike)
        by_place = [each[0, :, -1].T if name == "scores" else each[0] for name, each in found.items()]
        return any(float(np.ptp(each, axis=0).max()) > SAME for each in by_place)


def differs(got: np.ndarray, wanted: np.ndarray, allowed: float) -> bool:
    """Whether numbers differ by more than this share of the largest one."""
    return bool(wrong_places(got, wanted, allowed).any())


def wrong_places(got: np.ndarray, wanted: np.ndarray, allowed: float) -> np.ndarray:
    """Where numbers differ by more than this share of the largest finite one; NaN in both is left out."""
    if got.shape != wanted.shape:
        return np.ones((1,), bool)
    there = ~(np.isnan(got) & np.isnan(wanted))
    sizes = np.abs(wanted[np.isfinite(wanted)])
    return there & ~(_apart(got, wanted) <= allowed * max(1.0, float(sizes.max(initial=0))))


def _apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far numbers differ; 0 where both are the same infinity, as of keys that are not seen."""
    with np.errstate(invalid="ignore"):
        return np.where(one == other, 0.0, np.abs(one - other))


def _demand(got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], allowed: float, what: str) -> None:
    """Raise `_Found` where outputs differ."""
    for name, one in wanted.items():
        wrong = wrong_places(got[name], one, allowed)
        if wrong.any():
            worst = float(np.nanmax(np.where(wrong, _apart(got[name], one), np.nan)))
            raise _Found(
                "broken",
                f"{what}: {percent(wrong.mean())} of the {name} differ, by up to {said(worst)}.",
                share=float(wrong.mean()),
                largest=worst,
            )


def order(it: EncodingSubject) -> str:
    """Each token gets the numbers of its own position, in any order, and other positions give other numbers."""
    perm = np.random.default_rng(3).permutation(it.length)
    if it.depends_on_tokens and it.calls.causal:
        told = "tokens were not put in another order: what it gives depends on the tokens before"
    else:
        got = it.outputs(it.tokens.only(perm))
        whole = {"tokens": it.whole["tokens"][:, perm]} if "tokens" in it.whole else {}
        if "scores" in it.whole:
            full = it.calls.scores(it.tokens)[:, :, perm][:, :, :, perm]
            earlier = it.tokens.positions[perm][:, None] >= it.tokens.positions[perm]
            kept = earlier & ~np.triu(np.ones_like(earlier), 1) if it.calls.causal else np.ones_like(earlier)
            whole["scores"] = np.where(kept, full, np.nan)
            got["scores"] = np.where(kept, it.calls.scores(it.tokens.only(perm)), np.nan)
        _demand(got, whole, SAME, "tokens in another order, each with its own position, get other numbers")
        told = ""
    apart = np.cumsum(np.random.default_rng(4).integers(1, 4, it.length))
    moved = it.outputs(it.tokens.at(apart))
    if not any(differs(moved[name], one, SAME) for name, one in it.whole.items()):
        if not it.counts_by_itself:
            raise _Found("broken by nature", "other positions give the same numbers: it says nothing of order.")
        return "it does not use the positions that it is given: it counts tokens by itself"
    if not it.calls.adds or it.depends_on_tokens:
        return told or "a token's numbers go with its position"
    rows = _rows(it)
    number = len(rows)
    grid = np.round(rows / (SAME * max(1.0, float(np.abs(rows).max()))))
    _, first, times = np.unique(grid, axis=0, return_index=True, return_counts=True)
    if (times > 1).any():
        raise _Found(
            "broken",
            f"of positions 0 to {number - 1:,} only {len(first):,} have a row of their own; the row of "
            f"{int(first[times > 1].min()):,} comes again.",
            rows=len(first),
        )
    return f"positions 0 to {number - 1:,} have a row each"


def _rows(it: EncodingSubject) -> np.ndarray:
    """What is added at the first positions, [positions, width]: at 1,024, or fewer where it has fewer."""
    for number in (1_024, 256, 64):
        tokens = drawn_tokens(it.calls.sizes, range(number), batch=1)
        with suppress(Refused):
            return (it.calls.added(tokens) - tokens.x)[0]
    return (it.whole["tokens"] - it.tokens.x)[0]


def distance_only(it: EncodingSubject) -> str:
    """The scores of a query and a key, or the products of two rows, depend on their distance only."""
    if it.depends_on_tokens:
        raise _Found("broken by nature", f"{it.depends_on_tokens}.")
    tokens, base = it.tokens, None
    with suppress(Refused):  # of a table that ends before, neighbours alone
        base = _products(it, tokens.at(_spread(it.length)))
        tokens = tokens.at(_spread(it.length))
    base, shares, refused = _products(it, tokens) if base is None else base, {}, ""
    for shift in SHIFTS:
        try:
            moved = _products(it, tokens.at(tokens.positions + shift))
        except Refused:
            refused = f"; it refuses positions up to {int(tokens.positions[-1]) + shift:,}"
            break
        wrong = wrong_places(moved, base, SAME + (shift + int(tokens.positions[-1])) * 2.0**-22)
        shares[shift] = float(wrong.sum() / max(1, (~np.isnan(base)).sum()))
    if not shares:
        raise _Found("not applicable", f"no token could be moved{refused}.")
    moved_by = ", ".join(f"{shift:,}" for shift in shares)
    failing = {shift: share for shift, share in shares.items() if share}
    if not failing:
        return f"moved by {moved_by} tokens, {_what(it)} stay{refused}"
    shift, share = next(iter(failing.items()))
    says = f"moved by {number_of(shift, 'token')}, {percent(share)} of {_what(it)} change"
    if len(failing) < len(shares):
        held = ", ".join(f"{one:,}" for one in shares if one not in failing)
        raise _Found("broken", f"{says}; moved by {held} tokens they stay.", **_by_shift(shares))
    if "rotate" in it.calls.methods:
        raise _Found("broken", f"{says}.", **_by_shift(shares))
    if _rounded(it, tokens, base, max(shares)):
        near = f"neighbours at positions 0 to {it.length:,} keep the law, and further on numbers jump"
        raise _Found("broken", f"{says}; {near}.", **_by_shift(shares))
    raise _Found("broken by nature", f"{says}.", **_by_shift(shares))


def _rounded(it: EncodingSubject, tokens: DrawnTokens, base: np.ndarray, shift: int) -> bool:
    """Whether the law holds at small positions, and further on numbers jump: so it is where positions are rounded.

    A dependence on the position by nature is seen at small positions too, or it is smooth: from one position to the
    next it changes less than over many.
    """
    small = _products(it, it.tokens)
    if differs(_products(it, it.tokens.at(it.tokens.positions + 1)), small, SAME):
        return False
    far = _products(it, tokens.at(tokens.positions + shift))
    near = [_products(it, tokens.at(tokens.positions + shift - back)) for back in range(1, 9)]
    return bool(max(np.nanmax(_apart(each, far)) for each in near) > 0.5 * np.nanmax(_apart(far, base)))


def _first_taken(it: EncodingSubject, call: Callable[[DrawnTokens], Any]) -> Any:
    """What a call gives for tokens that lie apart, or of a table that ends before for neighbours."""
    with suppress(Refused):
        return call(it.tokens.at(_spread(it.length)))
    return call(it.tokens)


def _spread(number: int) -> np.ndarray:
    """Positions of neighbours, then with gaps that double up to 64 tokens: an encoding may treat far keys otherwise."""
    gaps = 2 ** np.clip(np.arange(number) - number // 2, 0, 6)
    return np.cumsum(gaps) - gaps[0]


def _by_shift(shares: Mapping[int, float]) -> dict[str, Any]:
    return {"changed": {str(shift): share for shift, share in shares.items()}}


def _what(it: EncodingSubject) -> str:
    return "scores" if it.calls.scored else "the products of its rows"


def _products(it: EncodingSubject, tokens: DrawnTokens) -> np.ndarray:
    """The scores, or the products of the rows that are added."""
    if it.calls.scored:
        return it.outputs(tokens)["scores"]
    rows = it.calls.added(tokens) - tokens.x
    return rows @ np.swapaxes(rows, -1, -2)


def norms(it: EncodingSubject) -> str:
    """Rotated queries and keys are as long as before; rows that are added are of one length."""
    if "rotate" in it.calls.methods:
        lengths = [np.linalg.norm(each, axis=-1) for each in (it.tokens.q, it.tokens.k)]
        turned = [np.linalg.norm(each, axis=-1) for each in _first_taken(it, it.calls.rotated)]
        ratio = np.stack([new / np.maximum(old, 1e-9) for new, old in zip(turned, lengths, strict=True)])
        wrong = np.abs(ratio - 1) > 8 * SAME
        if not wrong.any():
            return "queries and keys keep their length"
        factor = float(np.median(ratio))
        if not (np.abs(ratio - factor) > 8 * SAME * factor).any():
            raise _Found("broken by nature", f"all are {said(factor)} times as long as before.", factor=factor)
        _some(wrong, "queries and keys change their length")
    if not it.calls.adds:
        raise _Found("not applicable", "it changes no vector.")
    rows = np.linalg.norm(it.calls.added(it.tokens) - it.tokens.x, axis=-1)
    middle = float(np.median(rows))
    wrong = np.abs(rows - middle) > 64 * SAME * max(1.0, middle)
    if wrong.any():
        _some(wrong, f"rows are not {said(middle)} long")
    return f"all rows are {said(middle)} long"


def _some(wrong: np.ndarray, what: str) -> None:
    """Raise `_Found`: by nature where it concerns more than a tenth of the numbers, broken where only few differ."""
    share = float(wrong.mean())
    raise _Found("broken by nature" if share > 0.1 else "broken", f"{percent(share)} of {what}.", share=share)


def position_zero(it: EncodingSubject) -> str:
    """At position 0 all numbers are finite, and a rotation does there to keys what it does to queries: nothing."""
    few = drawn_tokens(it.calls.sizes, np.zeros(3, np.int64))
    for name, one in it.outputs(few).items():
        kept = one[~np.isnan(one)] if name == "scores" and it.calls.causal else one
        if not np.isfinite(kept).all() or not kept.size:
            raise _Found("broken", f"at position 0 {name} are not finite.")
    if it.calls.methods == ("rotate",):
        got = it.calls.rotated(few)
        same = it.calls.rotated(replace(few, k=few.q))
        if not it.depends_on_tokens and differs(same[0], same[1], SAME):
            raise _Found("broken", "at position 0 a vector becomes another one as a key than as a query.")
        if any(differs(new, old, SAME) for new, old in zip(got, (few.q, few.k), strict=True)):
            raise _Found("broken by nature", "position 0 changes queries and keys too.")
        return "position 0 leaves queries and keys as they are"
    return "all numbers at position 0 are finite"


def batches(it: EncodingSubject) -> str:
    """A sequence in a batch gets what it gets alone."""
    for row in range(len(it.tokens.x)):
        alone = it.outputs(it.tokens.sequences(slice(row, row + 1)))
        wanted = {name: one[row : row + 1] for name, one in it.whole.items()}
        _demand(alone, wanted, SAME, f"sequence {row} alone gets other numbers than in a batch of {len(it.tokens.x)}")
    return "each sequence of a batch gets what it gets alone"


def decoding(it: EncodingSubject) -> str:
    """Tokens that come one at a time, with what was kept of the past, get what the full pass gives."""
    first = it.length // 2
    if it.calls.adds:
        alone = np.concatenate([it.calls.added(it.tokens.only(slice(t, t + 1))) for t in range(it.length)], axis=1)
        _demand({"tokens": alone}, {"tokens": it.whole["tokens"]}, SAME, "a single token gets other numbers")
    if it.calls.scored:
        got = it.calls.decoded_scores(it.tokens, first)
        wanted = it.seen(it.calls.scores(it.tokens))[:, :, first:]
        wanted = np.where(np.isnan(got), np.nan, wanted)
        what = f"from token {first} on one at a time, with {it.calls.cache} of the past,"
        _demand({"scores": got}, {"scores": wanted}, SAME, f"{what} scores are other ones")
    return "one token at a time gives what the full pass gives"


def packed(it: EncodingSubject) -> str:
    """Documents in one row, each with positions from 0, get what each gets alone."""
    cut = it.length * 2 // 5
    parts = [np.arange(cut), np.arange(it.length - cut)]
    together = it.outputs(it.tokens.at(np.concatenate(parts)))
    for number, rows in enumerate((slice(cut), slice(cut, None))):
        alone = it.outputs(it.tokens.only(rows).at(parts[number]))
        got = {name: one[:, rows] if name == "tokens" else one[:, :, rows, rows] for name, one in together.items()}
        _demand(got, alone, SAME, f"document {number + 1} of 2 gets other numbers in the row than alone")
    return "each of two documents gets what it gets alone"


def dtypes(it: EncodingSubject) -> str:
    """Tokens in a lower-precision dtype get the same code, rounded, in their dtype; positions are not rounded."""
    tokens, found = it.tokens.at(np.concatenate([np.arange(it.length - 8), 3_000 + np.arange(8)])), []
    try:
        exact = it.outputs(tokens)
    except Refused:  # a table that ends before
        tokens, exact = it.tokens, it.whole
    for dtype, unit in DTYPES.items():
        try:
            coarse = it.outputs(tokens, dtype)
        except Refused:
            continue
        found.append(dtype)
        # A score is a sum of products of rounded numbers: a few units of the largest.
        _demand(coarse, exact, 8 * unit + 2.0**-22 * float(tokens.positions[-1]), f"in {dtype}")
    if it.calls.other_dtypes:
        raise _Found("broken", f"{listed(it.calls.other_dtypes.values())}.")
    if not found:
        raise _Found("not applicable", "it takes float32 only.")
    return f"{' and '.join(found)} tokens get the same numbers, rounded"


def cast(it: EncodingSubject) -> str:
    """Cast to bfloat16 with its model, it gives the same numbers, rounded."""
    held = it.calls.held_numbers()
    if not held:
        raise _Found("not applicable", "it is no PyTorch module that holds numbers.")
    for positions in (128 * np.arange(it.length), np.arange(it.length)):  # of a table that ends before, the first
        tokens = it.tokens.at(positions)
        with suppress(Refused):
            exact = it.outputs(tokens)
            allowed = 8 * DTYPES["bfloat16"] + 2.0**-22 * float(positions[-1])
            break
    else:
        raise _Found("not applicable", "it takes none of the tried positions.")
    tried: tuple[tuple[list[str], State, str], ...] = (
        (
            [name for name, part in held.items() if part == "buffer"],
            "broken",
            "rounded with the model: compute it in float32 in each call",
        ),
        (list(held), "broken by nature", "learned, and rounded with the model"),
    )
    for names, state, because in tried:
        got = EncodingSubject(it.calls.cast(names), it.length).outputs(tokens, "bfloat16") if names else exact
        for name, one in exact.items():
            wrong = wrong_places(got[name], one, allowed)
            if wrong.any():
                raise _Found(state, f"{percent(wrong.mean())} of the {name} differ: {listed(names)} is {because}.")
    return f"rounded with a model, {listed(held)} give the same numbers"


def gradients(it: EncodingSubject) -> str:
    """Gradients of tokens, queries, keys and learned numbers are finite, and those that differences give."""
    if it.calls.library != "torch":
        raise _Found("not applicable", f"gradients are measured in PyTorch, and it takes arrays of {it.calls.library}.")
    from clockhands.testing.encodings._gradients import gradient_errors

    errors = gradient_errors(it.calls, it.tokens.only(slice(8)))
    for name, error in errors.items():
        if error is None:
            raise _Found("broken", f"{name} gets no gradient.")
        if not error <= _GRADIENT:
            raise _Found("broken", f"the gradient of {name} differs from differences by {percent(error)}.", error=error)
    if not errors:
        raise _Found("not applicable", "it has no learned numbers, and tokens pass through unchanged.")
    return f"{', '.join(errors)}: as differences give them"


_GRADIENT = 0.02


def causality(it: EncodingSubject) -> str:
    """A token's numbers do not change with what stands after it."""
    if not it.calls.causal:
        raise _Found("not applicable", "it says `causal = False`.")
    cut = it.length // 2
    other = drawn_tokens(it.calls.sizes, range(it.length), seed=2)
    mixed = DrawnTokens(
        np.concatenate([it.tokens.x[:, :cut], other.x[:, cut:]], axis=1),
        np.concatenate([it.tokens.q[:, :, :cut], other.q[:, :, cut:]], axis=2),
        np.concatenate([it.tokens.k[:, :, :cut], other.k[:, :, cut:]], axis=2),
        it.tokens.positions,
    )
    got = {name: _before(name, one, cut) for name, one in it.outputs(mixed).items()}
    wanted = {name: _before(name, one, cut) for name, one in it.whole.items()}
    _demand(got, wanted, SAME, f"with other tokens from {cut} on, those before get other numbers")
    shorter = it.outputs(it.tokens.only(slice(cut)))
    _demand(shorter, wanted, SAME, f"without the tokens from {cut} on, those before get other numbers")
    return "later tokens change nothing"


def _before(name: str, numbers: np.ndarray, cut: int) -> np.ndarray:
    return numbers[:, :cut] if name == "tokens" else numbers[:, :, :cut, :cut]


def repeatable(it: EncodingSubject) -> str:
    """The same call gives the same numbers, whatever was called before; arguments and answers stay as they are."""
    fresh = it.whole
    it.outputs(drawn_tokens(it.calls.sizes, range(3, it.length - 3), seed=5))
    it.outputs(it.tokens.only(slice(5)))
    with suppress(Refused):  # a table may end before
        it.outputs(drawn_tokens(it.calls.sizes, range(5, it.length + 13), seed=5))
    _demand(it.outputs(it.tokens), fresh, 0.0, "the same call gives other numbers after other calls")
    if it.calls.changed:
        raise _Found("broken", f"it changes {', '.join(sorted(it.calls.changed))} in place.")
    if it.calls.overwrites:
        raise _Found("broken", "a later call changes what an earlier call returned.")
    return "the same call gives the same numbers"


def fast_equals_exact(it: EncodingSubject) -> str:
    """Where it has `scores` beside `rotate` or `bias`, both give the same scores."""
    if "scores" not in it.calls.methods or not {"rotate", "bias"} & set(it.calls.methods):
        raise _Found("not applicable", "it has one form only.")
    exact = it.seen(it.calls.exact_scores(it.tokens))
    _demand(it.whole, {"scores": exact}, 64 * SAME, "the fast form gives other scores than the exact one")
    return "the fast form gives the exact scores"


LAWS: Mapping[str, Callable[[EncodingSubject], str]] = {
    "repeatable": repeatable,
    "order": order,
    "distance only": distance_only,
    "norms": norms,
    "position 0": position_zero,
    "cache": decoding,
    "batches": batches,
    "dtype": dtypes,
    "cast": cast,
    "gradients": gradients,
    "packed": packed,
    "causality": causality,
    "fast equals exact": fast_equals_exact,
}
"""The test of each law, by its name; the first line of its docstring says the law."""


def asks(name: str) -> str:
    """A law in one sentence."""
    return (LAWS[name].__doc__ or "").partition("\n")[0]


def judged(it: EncodingSubject, name: str) -> LawResult:
    """What is found of a law."""
    test = LAWS[name]
    reason = it.calls.by_nature.get(name)
    try:
        found = _Found("holds", f"{test(it)}.")
    except _Found as other:
        found = other
    except Refused as error:
        found = _Found("broken", f"a call was refused: {error}.")
    if reason is not None and found.state == "broken":
        found = _Found("broken by nature", f"{found.says} It says: {reason.rstrip('.')}.", **found.numbers)
    elif reason is not None and found.state == "holds":
        found = _Found("holds", f"{found.says} It says that it does not hold: {reason.rstrip('.')}.")
    return LawResult(name, asks(name), found.state, found.says, found.numbers)
