"""Tests whether attention can distinguish two orders of the same words: without a position code, and with each kind.

Attention without a mask treats its tokens as a set. Let ``P`` permute the rows of ``x``. Projections act on each row,
so queries, keys and values of ``P x`` are those of ``x`` permuted; scores become ``P S P^T``; the softmax of a row does
not depend on the order of its columns; and ``(P A P^T)(P V) = P A V``. So a layer gives ``P f(x)`` for ``P x``, and so
do several layers: the outputs are permuted as the words are. The mean of the outputs is then the same for every order,
and so is the output of a word that stays in its place.

With a causal mask, the last token of one layer still sees a set: the words before it, whose queries it does not use. In
a second layer it sees the outputs of the first, and these depend on which words came before which. If all words are the
same, each output is a mean of the same values, at every depth; a different first word changes that, because it is one
of 2, 3, 4, … words that later tokens see.

With a code that depends on the distance of two tokens but not on its sign, a sentence and its mirror image are the
same: ``b(|q - k|)`` does not change when every position ``p`` becomes ``n - 1 - p``.

A code that acts on the attention weights only, as rotary codes and biases do, does not change the values: if all words
are the same, every weighted mean is the same, at every position and every depth. Only a code that is added makes such
words differ.

Networks have random weights. What is equal for all weights of a continuous distribution is equal for any weights, so
what no random network distinguishes cannot be learned either; what random networks distinguish, a trained one may use
or not.

Differences are given as shares: the norm of the difference over the norm of the first result. Each comes with the share
that rounding can explain, as `clockhands.measures.order.attention` derives it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.specs import to_dict
from clockhands.errors import InvalidType, InvalidValue
from clockhands.measures.order._members import Member, members, through, values_for
from clockhands.measures.order.attention import Layer, Rounded, drawn_layers, mean
from clockhands.phrases import listed, shown

WIDTH, HEADS, HIDDEN, LAYERS = 32, 4, 64, 3
PERMUTED = 16  # tokens that are permuted, and that are alike
MOST_WORDS = 32
NOTHING = 1e-3  # two results are only called equal if rounding explains at most this share


@dataclass(frozen=True)
class Difference:
    """The difference of two results, as a share of the norm of the first, over several random networks.

    Attributes:
        median, smallest, largest: Over the networks.
        rounding: The largest share that rounding can explain: a derived bound, not the actual rounding error.
        apart: True if in every network the share is larger than rounding explains; False if in none it is, and rounding
            explains at most a thousandth; else None: not decided.
    """

    median: float
    smallest: float
    largest: float
    rounding: float
    apart: bool | None

    def __str__(self) -> str:
        """Rounding only, or how large the difference is.

        >>> print(Difference(2e-16, 1e-16, 3e-16, 1e-12, False))
        the same: 2e-16 is rounding
        >>> print(Difference(0.351, 0.151, 0.58, 1e-9, True))
        0.35 apart (0.15 to 0.58)
        """
        if self.apart is False:
            return f"the same: {self.median:.2g} is rounding"
        if self.apart is None:
            return f"unclear: {self.median:.2g}, rounding {self.rounding:.2g}"
        return f"{self.median:.2g} apart ({self.smallest:.2g} to {self.largest:.2g})"

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class CodeOrder:
    """What attention can distinguish with one position code.

    Attributes:
        member: The code, and what it tells attention about a token.
        swapped: The means of all outputs of the two sentences, three layers, no mask.
        another: The same for a third order that is not the mirror image of the first; None if the words have none.
        causal_last: One layer with a causal mask: the output of a full stop after either sentence.
        alike: One repeated word, three layers, no mask: each output compared with the first.
    """

    member: Member
    swapped: Difference
    another: Difference | None
    causal_last: Difference
    alike: Difference

    @property
    def mirror_blind(self) -> bool:
        """Whether the two sentences are the same to attention, and a third order is not."""
        return self.swapped.apart is False and self.another is not None and self.another.apart is True

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return {
            "name": self.member.name,
            "spec": to_dict(self.member.spec),
            "tells": self.member.tells,
            "swapped": self.swapped.to_dict(),
            "another": None if self.another is None else self.another.to_dict(),
            "causal_last": self.causal_last.to_dict(),
            "alike": self.alike.to_dict(),
            "mirror_blind": self.mirror_blind,
        }


@dataclass(frozen=True)
class OrderMatters:
    """How attention treats two orders of the same words.

    Attributes:
        words: The first sentence.
        other: The same words in another order.
        another: A third order, which is neither and not the mirror image of the first; None where there is none.
        mirrored: Whether ``other`` is ``words`` in reverse.
        seed: The random seed.
        networks: Number of random networks.
        without: Figures of attention without a position code, by name.
        codes: Figures of every kind of code.
    """

    words: tuple[str, ...]
    other: tuple[str, ...]
    another: tuple[str, ...] | None
    mirrored: bool
    seed: int
    networks: int
    without: dict[str, Difference]
    codes: tuple[CodeOrder, ...]

    @property
    def verdict(self) -> str:
        """The result in two or three sentences."""
        real = [code for code in self.codes if code.member.name != "none"]
        told, none = sum(bool(code.swapped.apart) for code in real), self.without["pooled"]
        says = (
            "The same words in two orders. Without a position encoding and without a mask attention "
            f"{'cannot distinguish them' if none.apart is False else 'distinguishes them'}; with {told} of "
            f"{len(real)} encodings it can."
        )
        unsure = [code.member.name for code in real if code.swapped.apart is None]
        if unsure:
            says += f" For {listed(unsure)} the result is unclear: rounding could explain the whole difference."
        blind = [code.member.name for code in real if code.mirror_blind]
        if blind and self.mirrored:
            those = "they encode" if len(blind) > 1 else "it encodes"
            says += (
                f" {listed(blind)} cannot: one sentence is the other reversed, and {those} the distance, not the side."
            )
        return says

    def to_dict(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "text": " ".join(self.words),
            "other": " ".join(self.other),
            "another": None if self.another is None else " ".join(self.another),
            "mirrored": self.mirrored,
            "seed": self.seed,
            "networks": self.networks,
            "network": {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "hidden": HIDDEN, "dtype": "float64"},
            "without": {name: figure.to_dict() for name, figure in self.without.items()},
            "codes": [code.to_dict() for code in self.codes],
        }


FIGURES = {
    "permuted_one_layer": f"{PERMUTED} tokens permuted, no mask, 1 layer: outputs against the permuted outputs",
    "permuted": f"the same, {LAYERS} layers",
    "pooled": f"the two sentences, no mask, {LAYERS} layers: the mean of the outputs",
    "last": f"the two sentences, each with a full stop, no mask, {LAYERS} layers: the output of the full stop",
    "causal_permuted_one_layer": f"{PERMUTED} tokens permuted, causal mask, 1 layer: outputs against permuted outputs",
    "causal_pooled_one_layer": "the two sentences, causal mask, 1 layer: the mean of the outputs",
    "causal_last_one_layer": "the two sentences, causal mask, 1 layer: the output of the full stop",
    "causal_last_two_layers": "the two sentences, causal mask, 2 layers: the output of the full stop",
    "causal_last_two_layers_even": "the same, with scores of 0: every token averages all that it sees",
    "causal_last_two_layers_sharp": "the same, with scores 4 times as large",
    "causal_constant": f"one word {PERMUTED} times, causal mask, {LAYERS} layers: each output against the first",
    "causal_constant_after_another_one_layer": "one word after another one, causal mask, 1 layer: outputs of that word",
    "causal_constant_after_another": f"the same, {LAYERS} layers",
}
"""What each figure without a code is."""


def order(text: str = "dog bites man", other: str | None = None, *, seed: int = 0, networks: int = 9) -> OrderMatters:
    """Compare how attention treats two orders of the same words: without a position code, and with each kind.

    Networks have three layers, four heads and 32 channels, with weights from a normal distribution of variance 1 /
    inputs; words are random vectors of unit variance. The size of a difference depends on them; whether there is one
    does not. Without a code and with a causal mask, figures for scores of 0 and of four times the size show how it
    depends on the scores.

    Args:
        text: At least 2 words, separated by spaces.
        other: The same words in another order; None for the reverse order.
        seed: The random seed.
        networks: Number of random networks; figures are their median and range.

    Shapes: sentences are [networks, sentences, words, 32].

    Accuracy: each difference comes with a bound on its rounding error, derived in the module.

    Raises:
        InvalidValue, InvalidType: The texts are not the same words in two orders; a number is not allowed.

    Source: Kazemnejad et al. 2023, arXiv:2305.19466; Barbero et al. 2024, arXiv:2410.06205, section 5.

    >>> found = order("dog bites man", networks=2)
    >>> found.without["pooled"].apart, found.without["causal_last_two_layers"].apart
    (False, True)
    >>> [each.member.name for each in found.codes if each.mirror_blind]
    ['ALiBi symmetric', 'KERPLE power symmetric']
    """
    words = _words("text", text)
    if other is None and words == words[::-1]:
        raise InvalidValue(
            f"{shown(' '.join(words))} is the same in reverse order.", "Give `other`: the same words in another order."
        )
    others = words[::-1] if other is None else _words("other", other)
    _refuse_other_words(words, others)
    seed, networks = count("seed", seed, least=0), count("networks", networks)
    third = _third(words, others)
    orders = [words, others, *([] if third is None else [third])]
    layers = _networks(seed, networks)
    plain, stopped = _sentences(orders, seed, networks)

    word = _vectors(seed, networks, (1, 1, WIDTH), 5).repeat(PERMUTED, axis=2)

    def compared(member: Member, longer: Member) -> CodeOrder:
        values = values_for(member, networks, seed)
        means = mean(through(member.spec, values, layers, plain))
        stops = _last(through(member.spec, values, layers[:1], stopped[:, :2], causal=True))
        return CodeOrder(
            member,
            _apart(means, 0, 1),
            None if third is None else _apart(means, 0, 2),
            _apart(stops, 0, 1),
            _spread(through(longer.spec, values_for(longer, networks, seed), layers, word)),
        )

    codes = zip(members(WIDTH, HEADS, len(words) + 1), members(WIDTH, HEADS, PERMUTED), strict=True)
    without = {**_permuted(layers, seed), **_ordered(layers, plain, stopped), **_alike(layers, seed)}
    return OrderMatters(
        words,
        others,
        third,
        others == words[::-1],
        seed,
        networks,
        {name: without[name] for name in FIGURES},
        tuple(compared(*both) for both in codes),
    )


def _words(name: str, text: object) -> tuple[str, ...]:
    if not isinstance(text, str):
        raise InvalidType(f"`{name}` must be a string, got {type(text).__name__}.", 'Write "dog bites man".')
    words = tuple(text.split())
    if not 2 <= len(words) <= MOST_WORDS:
        raise InvalidValue(
            f"`{name}` must have 2 to {MOST_WORDS} words, got {len(words)}.", "Put spaces between the words."
        )
    return words


def _refuse_other_words(words: tuple[str, ...], others: tuple[str, ...]) -> None:
    counted, other = Counter(words), Counter(others)
    if counted != other:
        alone = sorted(counted.keys() ^ other.keys())
        more = sorted(((counted - other) + (other - counted)).keys())
        which, how = (alone, "in only one of them") if alone else (more, "more often in one of them")
        verb = "is" if len(which) == 1 else "are"
        raise InvalidValue(
            f"The two texts must have the same words, each the same number of times: "
            f"{', '.join(which[:5])} {verb} {how}.",
            'Give one text in two orders, such as "dog bites man" and "man bites dog".',
        )
    if words == others:
        raise InvalidValue(
            f"Both texts have the words in the same order: {shown(' '.join(words))}.", "Give `other` in another order."
        )


def _third(words: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...] | None:
    """The first order with two neighbours exchanged that is neither of the two nor the mirror image of the first."""
    for place in range(len(words) - 1):
        order = [*words[:place], words[place + 1], words[place], *words[place + 2 :]]
        if tuple(order) not in (words, others, words[::-1]):
            return tuple(order)
    return None


def _networks(seed: int, networks: int) -> tuple[Layer, ...]:
    """The layers of all networks, [networks, 1, …]; drawing more networks does not change the first ones."""
    drawn = [
        drawn_layers(np.random.default_rng([seed, number, 0]), LAYERS, WIDTH, HEADS, HIDDEN)
        for number in range(networks)
    ]

    def together(parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(parts)[:, None]

    return tuple(
        Layer(*(together([getattr(network[index], name) for network in drawn]) for name in Layer.__annotations__))
        for index in range(LAYERS)
    )


def _vectors(seed: int, networks: int, shape: tuple[int, ...], stream: int) -> np.ndarray:
    """Random vectors of unit variance for each network, [networks, *shape]."""
    return np.stack(
        [np.random.default_rng([seed, number, stream]).standard_normal(shape) for number in range(networks)]
    )


def _sentences(orders: list[tuple[str, ...]], seed: int, networks: int) -> tuple[np.ndarray, np.ndarray]:
    """The sentences as vectors, [networks, orders, words, WIDTH], and the same with a full stop after each."""
    known = list(dict.fromkeys(orders[0]))
    vectors = _vectors(seed, networks, (1 + len(known), WIDTH), 1)
    rows = np.array([[1 + known.index(word) for word in order] for order in orders])
    stopped = np.concatenate([rows, np.zeros((len(orders), 1), int)], axis=1)
    return vectors[:, rows], vectors[:, stopped]


def _last(x: Rounded) -> Rounded:
    return Rounded(x.numbers[..., -1:, :], x.error[..., -1:])


def _picked(x: Rounded, pick: Callable[[np.ndarray], np.ndarray]) -> Rounded:
    return Rounded(pick(x.numbers), pick(x.error))


def _apart(x: Rounded, one: int, other: int) -> Difference:
    """The difference of two of the sentences."""
    return _difference(_picked(x, lambda each: each[:, one]), _picked(x, lambda each: each[:, other]))


def _difference(a: Rounded, b: Rounded) -> Difference:
    """Results of each network, [networks, tokens, width]: shares, their bounds, and whether they differ."""
    length = np.sqrt((a.numbers**2).sum(axis=(-2, -1)))
    shares = np.sqrt(((a.numbers - b.numbers) ** 2).sum(axis=(-2, -1))) / length
    rounding = np.sqrt(((a.error + b.error) ** 2).sum(axis=-1)) / length
    above, same = shares > rounding, (shares <= rounding) & (rounding <= NOTHING)
    return Difference(
        float(np.median(shares)),
        float(shares.min()),
        float(shares.max()),
        float(rounding.max()),
        True if above.all() else False if same.all() else None,
    )


def _permuted(layers: tuple[Layer, ...], seed: int) -> dict[str, Difference]:
    """Permuted tokens: whether the outputs are permuted in the same way."""
    networks = len(layers[0].query)
    tokens = _vectors(seed, networks, (PERMUTED, WIDTH), 2)
    places = np.random.default_rng([seed, 3]).permutation(PERMUTED)
    both = np.stack([tokens, tokens[:, places]], axis=1)

    def moved(depth: int, causal: bool) -> Difference:
        y = through(None, [], layers[:depth], both, causal=causal)
        before = _picked(y, lambda each: each[:, 0][:, places])
        return _difference(before, _picked(y, lambda each: each[:, 1]))

    return {
        "permuted_one_layer": moved(1, causal=False),
        "permuted": moved(LAYERS, causal=False),
        "causal_permuted_one_layer": moved(1, causal=True),
    }


def _ordered(layers: tuple[Layer, ...], plain: np.ndarray, stopped: np.ndarray) -> dict[str, Difference]:
    """The two sentences without a code."""

    def pooled(depth: int, causal: bool) -> Difference:
        return _apart(mean(through(None, [], layers[:depth], plain, causal=causal)), 0, 1)

    def last(depth: int, causal: bool, sharper: float = 1.0) -> Difference:
        scaled = tuple(replace(layer, query=layer.query * sharper) for layer in layers[:depth])
        return _apart(_last(through(None, [], scaled, stopped, causal=causal)), 0, 1)

    return {
        "pooled": pooled(LAYERS, causal=False),
        "last": last(LAYERS, causal=False),
        "causal_pooled_one_layer": pooled(1, causal=True),
        "causal_last_one_layer": last(1, causal=True),
        "causal_last_two_layers": last(2, causal=True),
        "causal_last_two_layers_even": last(2, causal=True, sharper=0.0),
        "causal_last_two_layers_sharp": last(2, causal=True, sharper=4.0),
    }


def _spread(x: Rounded) -> Difference:
    """Outputs of one repeated word, the last of [networks, 1, tokens, width]: each compared with the first."""
    y = _picked(x, lambda each: each[:, 0, -PERMUTED:])
    return _difference(_picked(y, lambda each: np.repeat(each[:, :1], PERMUTED, axis=1)), y)


def _alike(layers: tuple[Layer, ...], seed: int) -> dict[str, Difference]:
    """One repeated word, alone and after another word."""
    networks = len(layers[0].query)
    first, word = np.moveaxis(_vectors(seed, networks, (2, 1, WIDTH), 4), 1, 0)
    constant = np.repeat(word, PERMUTED, axis=1)[:, None]
    after = np.concatenate([first[:, None], constant], axis=2)

    def spread(x: np.ndarray, depth: int) -> Difference:
        return _spread(through(None, [], layers[:depth], x, causal=True))

    return {
        "causal_constant": spread(constant, LAYERS),
        "causal_constant_after_another_one_layer": spread(after, 1),
        "causal_constant_after_another": spread(after, LAYERS),
    }
