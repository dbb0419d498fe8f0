"""The protocol of position encodings: the methods by which checks, `properties`, the explorer and the lab take one.

An encoding of one's own is any object with at least one of these methods. Positions are whole numbers, [seq]; tokens
are numbered from 0. Arrays are of one library: PyTorch in the lab; elsewhere also NumPy and JAX.

``embed(positions, width)``
    rows [seq, width], which are added to the tokens
``add(x, positions)``
    the tokens x [..., seq, width] with their positions
``rotate(q, k, positions, x=None)``
    queries and keys [batch, heads, seq, head_width], changed so that ``q kᵀ`` holds the positions
``bias(q_positions, k_positions, heads, q=None, k=None, x=None)``
    [heads, queries, keys] or [batch, heads, queries, keys], added to ``q kᵀ / sqrt(head_width)``
``scores(q, k, q_positions, k_positions, x=None)``
    what enters the softmax, [batch, heads, queries, keys], without a causal mask: the exact form, however slow;
    compared with ``rotate`` and ``bias`` where these are there too

``x`` are the states of the tokens, [batch, seq, width], for encodings that depend on them: of the same tokens as ``q``
for ``rotate``, of all keys for ``bias`` and ``scores``. ``q`` and ``k`` of ``bias`` are the queries and keys before any
rotation. Queries are the last of the tokens: all of them, or one in decoding.
Arguments that a method does not name are not passed. Learned numbers are the parameters of a `torch.nn.Module`; of
another library ``parameters`` maps a name to each array. Further attributes, all optional:

``cache``
    what decoding keeps of past tokens: ``"keys"``, as `rotate` returned them (the default), or ``"tokens"``: all past
    tokens are given again at each step
``causal``
    False if a number may depend on later tokens; True by default
``shared``
    False if each layer has an object of its own; True by default: all layers share one
``by_nature``
    the laws of `clockhands.testing.check_encoding` that this encoding does not keep, with the reason of each

>>> class Wave:
...     def embed(self, positions, width):
...         return np.sin(positions[:, None] * 2.0 ** -np.arange(width))
>>> methods_of(Wave())
('embed',)
>>> isinstance(encoding_of(rotary.Rotary(head_width=8)), Rotates)
True
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from clockhands.encodings import additive, biases, rotary
from clockhands.encodings.specs import METHODS
from clockhands.errors import InvalidType
from clockhands.phrases import listed, shown


@runtime_checkable
class Embeds(Protocol):
    """An additive encoding whose rows do not depend on the tokens."""

    def embed(self, positions: Any, width: int) -> Any:
        """Rows [seq, width] of positions [seq]."""
        ...


@runtime_checkable
class Adds(Protocol):
    """An additive encoding."""

    def add(self, x: Any, positions: Any) -> Any:
        """Tokens [..., seq, width] with their positions."""
        ...


@runtime_checkable
class Rotates(Protocol):
    """An encoding that changes queries and keys."""

    def rotate(self, q: Any, k: Any, positions: Any) -> tuple[Any, Any]:
        """Queries and keys [batch, heads, seq, head_width] with their positions."""
        ...


@runtime_checkable
class Biases(Protocol):
    """An encoding that adds a number to each score."""

    def bias(self, q_positions: Any, k_positions: Any, heads: int) -> Any:
        """Numbers [heads, queries, keys], or with a batch axis before."""
        ...


@runtime_checkable
class Scores(Protocol):
    """An encoding in its exact form: the scores themselves."""

    def scores(self, q: Any, k: Any, q_positions: Any, k_positions: Any) -> Any:
        """What enters the softmax, [batch, heads, queries, keys]."""
        ...


Encoding = Embeds | Adds | Rotates | Biases | Scores

CACHES = ("keys", "tokens")
"""What ``cache`` may be."""


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a model, which an encoding's class may take by these names.

    Attributes:
        width: Channels of a token.
        heads: Heads of each layer.
        head_width: Channels of a head.
        layers: Layers.
        length: Tokens of a trained sequence.
    """

    width: int = 64
    heads: int = 4
    head_width: int = 16
    layers: int = 2
    length: int = 256

    def named_in(self, function: Any) -> dict[str, int]:
        """The sizes that a function, or the constructor of a class, has arguments for."""
        try:
            taken = inspect.signature(function).parameters
        except (TypeError, ValueError):  # a class written in C
            return {}
        return {name: size for name, size in vars(self).items() if name in taken}


def methods_of(encoding: object) -> tuple[str, ...]:
    """The methods of the protocol that an object has.

    Raises:
        InvalidType: It has none, or it is a class.
    """
    found = tuple(name for name in METHODS if callable(getattr(encoding, name, None)))
    if not found or isinstance(encoding, type):
        raise InvalidType(
            f"An encoding is an object with a method {listed(METHODS, 'or')}, got {shown(encoding)}.",
            "See clockhands.encodings.protocols for their arguments.",
        )
    return found


def accepted(function: Any, **optional: Any) -> dict[str, Any]:
    """Of these arguments those that a function names, or all if it takes any."""
    taken = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return optional
    return {name: value for name, value in optional.items() if name in taken}


def encoding_of(spec: Any, values: Any = None) -> Any:
    """A spec of this library as an object of the protocol.

    Args:
        spec: An additive encoding, RoPE or a bias.
        values: Learned numbers.

    Raises:
        InvalidType: It is another spec.
    """
    if isinstance(spec, additive.AdditiveCode):
        return _AddedSpec(spec, values)
    if isinstance(spec, rotary.Rotary):
        return _RotarySpec(spec)
    if isinstance(spec, biases.BiasCode):
        return _BiasSpec(spec, values)
    raise InvalidType(f"There is no encoding of {shown(spec)}.", "Give an additive encoding, RoPE or a bias.")


@dataclass(frozen=True)
class _AddedSpec:
    spec: Any
    values: Any

    def add(self, x: Any, positions: Any) -> Any:
        return additive.add(x, self.spec, positions, values=self.values)


@dataclass(frozen=True)
class _RotarySpec:
    spec: rotary.Rotary

    def rotate(self, q: Any, k: Any, positions: Any) -> tuple[Any, Any]:
        return rotary.rotate_both(q, k, self.spec, positions)


@dataclass(frozen=True)
class _BiasSpec:
    spec: biases.BiasCode
    values: Any

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.values or {}

    def bias(self, q_positions: Any, k_positions: Any, heads: int) -> Any:
        return biases.bias(self.spec, np.asarray(q_positions), np.asarray(k_positions), values=self.values)
