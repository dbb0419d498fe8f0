"""One example of every kind of position code, with what it tells attention about a token, for `clockhands order`."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings import additive, biases
from clockhands.encodings.additive import AdditiveCode, WarpedPosition, add
from clockhands.encodings.biases import BiasCode, bias
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.rotary import Rotary, XPos, chunked, rotate
from clockhands.encodings.scaling import Llama3
from clockhands.encodings.specs import Spec
from clockhands.measures.order.attention import UNIT, Layer, Role, Rounded, attend


@dataclass(frozen=True)
class Member:
    """An example code of one kind.

    Attributes:
        name: Its name in reports.
        spec: The code.
        tells: What it tells attention about a token, in one sentence.
    """

    name: str
    spec: Spec
    tells: str


def members(width: int, heads: int, tokens: int) -> tuple[Member, ...]:
    """One example of every kind, for this width, this many heads and sentences of at most this many tokens."""
    head_width = width // heads
    halves = (head_width // 2 - head_width // 4, head_width // 4)
    own = "Every position has a separate row, which is added to the token at that position."
    turned = (
        "Queries and keys are rotated by their positions, so a score depends on the key's distance and on its side, "
        "before or after the query: equal vectors score the same on both sides (not with xPos), different ones do not."
    )
    column = "Like the other RoPE encodings, with the words along the second axis, which has the low frequencies."
    later = (
        "The later a key, the larger its bias, in the same steps for all queries: the biases of two queries differ "
        "only by a constant, which softmax ignores."
    )
    one_side = "The bias depends on the distance of earlier keys; all later keys get the bias of distance 0."
    both = "The bias depends on the key's distance, but not on whether the key is before or after the query."
    signed = "Each distance has one learned value for keys before the query and another for keys after it."
    return (
        Member("none", additive.NoPosition(width), "Nothing."),
        Member("sinusoidal", additive.Sinusoidal(width), own),
        Member("sinusoidal two axes", additive.AxialSinusoidal(width, (1, 1)), own),
        Member("Fourier features", additive.FourierFeatures(width, 1, 1.0), own),
        Member("learned table", additive.Learned(width, tokens), own),
        Member("counter", additive.Counter(width), own),
        Member("counter over length", additive.NormalizedCounter(width, tokens), own),
        Member("binary digits", additive.Binary(width), own),
        Member("sine only", additive.SineOnly(width), own),
        Member("one frequency", additive.SingleFrequency(width), own),
        Member("evenly spaced", additive.EvenlySpaced(width), own),
        Member("sinusoid of p squared", WarpedPosition(width, "square"), own),
        Member("sinusoid of log p", WarpedPosition(width, "log"), own),
        Member("sinusoid of 1/p", WarpedPosition(width, "reciprocal"), own),
        Member("rotary halves", Rotary(head_width), turned),
        Member("rotary interleaved", Rotary(head_width, "interleaved"), turned),
        Member("rotary Llama 3 scaling", Rotary(head_width, scaling=Llama3(8.0, 8192)), turned),
        Member("rotary xPos", Rotary(head_width, "interleaved", xpos=XPos()), turned),
        Member("rotary two axes", Rotary(head_width, axes=chunked(halves)), column),
        Member("ALiBi distance", biases.Alibi(heads), later),
        Member("ALiBi key", biases.Alibi(heads, "key"), later),
        Member("ALiBi last key", biases.Alibi(heads, "last-key"), later),
        Member("ALiBi past", biases.Alibi(heads, "past"), one_side),
        Member("ALiBi symmetric", biases.Alibi(heads, "symmetric"), both),
        Member("retention's decay", biases.Decay(heads), later),
        Member("slopes of one's own", biases.Slopes((0.5,) * heads), later),
        Member("T5 buckets two-way", biases.Buckets(heads), signed),
        Member("T5 buckets one-way", biases.Buckets(heads, bidirectional=False), one_side),
        Member("DeBERTa buckets", biases.CeilingBuckets(heads), signed),
        Member("clipped distances", biases.Clipped(heads), signed),
        Member("KERPLE log", biases.Kerple(heads), one_side),
        Member("KERPLE power symmetric", biases.Kerple(heads, "power", symmetric=True), both),
        Member("FIRE", biases.Fire(heads), one_side),
        Member("window", biases.Window(heads, 1, tokens), signed),
        Member("window logarithmic", biases.LogWindow(heads, 1, tokens), signed),
        Member("rotary every other layer", LayerMixture((Rotary(head_width), None), (0, 1)), turned),
    )


def values_for(member: Member, draws: int, seed: int) -> list[Any]:
    """Random numbers in place of learned ones, one set for each network; None if the code learns nothing.

    Standard normal, with variance 1 / inputs for second layers of small networks; uniform between 0.1 and 1 where
    values must be positive; FIRE's threshold is 2 tokens. They depend only on the seed, the code's name and the number
    of the network, so that adding a code does not change the numbers of another.
    """
    spec: Any = member.spec
    named: dict[str, tuple[int, ...]] = {}
    if isinstance(spec, BiasCode):
        named = spec.shapes
    elif isinstance(spec, AdditiveCode) and spec.learned:
        named = {"": spec.values_shape or ()}
    if not named:
        return [None] * draws
    found = []
    for number in range(draws):
        draw = np.random.default_rng([seed, number, zlib.crc32(member.name.encode())])
        made = {name: _drawn(draw, name, shape) for name, shape in named.items()}
        found.append(made.get("", made))
    return found


def _drawn(draw: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name in {"p", "a", "c"}:
        return draw.uniform(0.1, 1.0, shape)
    if name == "threshold":
        return np.full(shape, 2.0)
    return draw.standard_normal(shape) / (np.sqrt(shape[-1]) if name == "w2" else 1)


def through(
    spec: Spec | None, values: list[Any], layers: tuple[Layer, ...], x: np.ndarray, *, causal: bool = False
) -> Rounded:
    """Apply layers of attention to tokens with a position code, by `clockhands.add`, `rotate` and `bias`.

    Args:
        spec: The code; None for none.
        values: Random or learned numbers of each network; None if the code has none.
        layers: The weights, [networks, 1, …], one after another.
        x: Tokens, [networks, sentences, tokens, width]; the first is at the code's first position.
        causal: Whether a token sees only itself and those before it.
    """
    y = Rounded(x, np.zeros(x.shape[:-1]))
    for number, layer in enumerate(layers):
        code = spec.layer(number) if isinstance(spec, LayerMixture) else spec
        if isinstance(code, AdditiveCode) and (number == 0 or isinstance(spec, LayerMixture)):
            y = _added(code, values, y)
        rotation = _rotate(code, x.shape[-2]) if isinstance(code, Rotary) else None
        added = _biases(code, values, x.shape[-2]) if isinstance(code, BiasCode) else None
        y = attend(y, layer, causal=causal, bias=added, rotation=rotation)
    return y


def _places(spec: Any, tokens: int) -> Any:
    """The positions of the tokens of one line: from the first position on, along the last of several axes."""
    # Neither the logarithm nor 1/p is defined at 0.
    first = 1 if isinstance(spec, WarpedPosition) and spec.warp != "square" else getattr(spec, "first", 0)
    places = np.arange(first, first + tokens)
    if isinstance(spec, BiasCode) or spec.number_of_axes == 1:
        return places
    return np.stack([*[np.zeros_like(places)] * (spec.number_of_axes - 1), places], axis=-1)


def _added(code: AdditiveCode, values: list[Any], x: Rounded) -> Rounded:
    places = _places(code, x.numbers.shape[-2])
    if code.learned:
        total = np.stack([add(each, code, places, values=own) for each, own in zip(x.numbers, values, strict=True)])
    else:
        total = add(x.numbers, code, places)
    return Rounded(total, x.error + UNIT * np.linalg.norm(total, axis=-1))


def _rotate(code: Rotary, tokens: int) -> Callable[[np.ndarray, Role], np.ndarray]:
    places = _places(code, tokens)

    def rotation(x: np.ndarray, role: Role) -> np.ndarray:
        return rotate(x, code, places, role=role if code.xpos is not None else None)

    return rotation


def _biases(code: BiasCode, values: list[Any], tokens: int) -> np.ndarray:
    places = _places(code, tokens)
    if not code.learned:
        return bias(code, places, places, dtype="float64")
    return np.stack([bias(code, places, places, values=each, dtype="float64") for each in values])[:, None]
