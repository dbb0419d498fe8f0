"""Position codes as pytrees: what is learned are leaves, the spec is part of the tree's structure.

So they pass through ``jit``, ``grad``, ``vmap`` and ``scan`` as arguments like any parameters, and ``jit`` compiles
once for equal specs, since the spec compares and hashes by its value. Equally well a spec is a static argument of one's
own function around ``clockhands.rotate``, ``clockhands.add`` or ``clockhands.bias``, which these classes call.

In flax's nnx, ``self.code = nnx.data(jax.tree.map(nnx.Param, code))`` makes what a code learns into parameters that
train.

Positions that are known before tracing (NumPy values, lists, ranges, or none at all) are made exact in NumPy and never
reach JAX as integers: without 64-bit mode it would wrap them, silently. Those that exist only inside a trace are
reduced exactly there, see `clockhands.traces`: with them cosine and sine are within 2**-22 up to 2**31 - 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clockhands import additive, biases, rotary
from clockhands.arguments import settle, shown
from clockhands.biases.scoring import beside, positions_beside
from clockhands.errors import InvalidType

# Two of these are equal as trees are: arrays have no one answer to that, nor a hash, and `jit` asks for one.
_computed = partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["spec"])
_learned = partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["spec"])


@_computed
@dataclass(frozen=True)
class Rotary:
    """A rotary code as a pytree without leaves: queries and keys in, turned queries and keys out.

    ``code(x, positions)`` is ``clockhands.rotary.rotate(x, spec, positions)``, with its shapes, accuracy and errors.

    Attributes:
        spec: The rotary code.

    Raises:
        InvalidType: ``spec`` is not a rotary code.

    >>> import clockhands as ch
    >>> step = jax.jit(lambda code, x, position: code(x, position[None]))
    >>> step(Rotary(ch.Rotary(head_width=64)), jnp.ones((1, 64)), jnp.int32(2**31 - 1)).shape
    (1, 64)
    """

    spec: rotary.Rotary

    def __post_init__(self) -> None:
        """Check the spec."""
        _check(self.spec, rotary.Rotary, "RoPE", "Rotary(clockhands.Rotary(head_width=64))")

    def __call__(self, x: Any, positions: Any = None, seq_axis: int = -2, *, role: str | None = None) -> jax.Array:
        """``x`` [..., seq, head_width] turned by its positions; see `clockhands.rotary.rotate`."""
        return rotary.rotate(x, self.spec, positions, seq_axis, role=role)

    def both(self, queries: Any, keys: Any, positions: Any = None, seq_axis: int = -2) -> tuple[jax.Array, jax.Array]:
        """Queries and keys that stand at the same positions; see `clockhands.rotary.rotate_both`."""
        return rotary.rotate_both(queries, keys, self.spec, positions, seq_axis)


@_learned
@dataclass(frozen=True, eq=False)
class Additive:
    """An additive code as a pytree: tokens in, tokens with their positions out.

    ``code(x, positions)`` is ``clockhands.add(x, spec, positions, values=values)``.

    Attributes:
        spec: The additive code.
        values: What is learned: the rows of a table [rows, width], the rates of Fourier features, or a scale; None for
            a computed code.

    Raises:
        InvalidType: ``spec`` is not an additive code.
        InvalidValue: Called with ``values`` of another shape, or without those that the code needs.

    >>> import clockhands as ch
    >>> Additive(ch.Sinusoidal(width=4))(jnp.zeros((2, 4))).shape
    (2, 4)
    """

    spec: additive.AdditiveCode
    values: Any = None

    def __post_init__(self) -> None:
        """Check the spec; values are checked where they are used, since JAX puts more than arrays into its trees."""
        _check(self.spec, additive.AdditiveCode, "an additive encoding", "Additive(clockhands.Sinusoidal(width=512))")

    @classmethod
    def drawn(cls, spec: additive.AdditiveCode, key: jax.Array, dtype: Any = jnp.float32) -> "Additive":
        """With a table from a normal distribution of deviation 0.02 (as BERT's and GPT-2's), rates, or a scale of 1.

        Rates are from one of deviation 1.

        Raises:
            InvalidType: ``spec`` is not an additive code.
        """
        code = cls(spec)
        if spec.values_shape is None:
            return code
        if not spec.values_shape:
            return cls(spec, jnp.ones((), dtype))
        deviation = 0.02 if isinstance(spec, additive.Learned) else 1.0
        return cls(spec, deviation * jax.random.normal(key, spec.values_shape, dtype))

    def __call__(self, x: Any, positions: Any = None) -> jax.Array:
        """``x`` [..., seq, width] plus the code of its positions; see `clockhands.add`."""
        return additive.add(x, self.spec, positions, values=self.values)


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["spec", "heads"])
@dataclass(frozen=True, eq=False)
class Bias:
    """A bias as a pytree: scores in, scores with the bias out.

    ``code(scores)`` adds ``clockhands.bias(spec, queries, keys, values=values)`` to the scores before the softmax;
    `matrix` is that bias alone. KERPLE's numbers are kept where it is a kernel before each use, as its code does.
    Positions may exist only inside a trace, as in a step of decoding: then distances are exact up to 2**31 - 1.

    Attributes:
        spec: The bias, of all heads.
        values: The learned numbers by name; None for a computed bias.
        heads: The heads that are wanted, as for `clockhands.bias`, such as those of one device; ``values`` are theirs.

    Raises:
        InvalidType: ``spec`` is not a bias.
        InvalidValue: Called with ``values`` that are not those of the spec.

    >>> import clockhands as ch
    >>> Bias(ch.Alibi(heads=2))(jnp.zeros((2, 1, 4)))[0].tolist()
    [[-0.1875, -0.125, -0.0625, 0.0]]
    """

    spec: biases.BiasCode
    values: dict[str, Any] | None = field(default=None)
    heads: range | None = None

    def __post_init__(self) -> None:
        """Check the spec."""
        _check(self.spec, biases.BiasCode, "a bias", "Bias(clockhands.Alibi(heads=8))")
        biases.some_heads(self.spec, self.heads)
        if len(self.spec.shapes) == 1 and self.values is not None and not isinstance(self.values, Mapping):
            settle(self, values={next(iter(self.spec.shapes)): self.values})

    @classmethod
    def drawn(
        cls, spec: biases.BiasCode, key: jax.Array, dtype: Any = jnp.float32, *, heads: range | None = None
    ) -> "Bias":
        """With learned numbers as the codes draw them that train such a bias.

        Tables from a normal distribution of deviation 0.02 (T5 and Swin do so up to the deviation); KERPLE's ``p`` and
        ``a`` evenly up to 2 and 1; FIRE's rate 0.1 and threshold 512; networks evenly up to the inverse root of what
        goes into them.

        Raises:
            InvalidType: ``spec`` is not a bias.
        """
        code = cls(spec, heads=heads)
        if not spec.learned:
            return code
        shapes = biases.some_heads(spec, heads).shapes
        keys = jax.random.split(key, len(shapes))
        drawn = {}
        for (name, shape), each in zip(shapes.items(), keys, strict=True):
            if name in ("c", "threshold"):
                drawn[name] = jnp.asarray(0.1 if name == "c" else 512.0, dtype)
            elif name in ("p", "a"):
                drawn[name] = jax.random.uniform(each, shape, dtype, 0.01, 2.0 if name == "p" else 1.0)
            elif name[0] in "wb" and name[1:].isdecimal():
                bound = 1 / math.sqrt(shapes[f"w{name[1:]}"][1])
                drawn[name] = jax.random.uniform(each, shape, dtype, -bound, bound)
            else:
                drawn[name] = 0.02 * jax.random.normal(each, shape, dtype)
        return cls(spec, drawn, heads)

    def matrix(self, queries: Any, keys: Any, *, causal: bool = False, dtype: Any = jnp.float32) -> jax.Array:
        """The bias itself, [heads, queries, keys] (and a batch axis before, where positions have one).

        Args:
            queries: Positions, or a count, which stands at the last of the keys; as for `clockhands.bias`.
            keys: Positions, or a count.
            causal: Whether keys after the query get minus infinity.
            dtype: Of the result.
        """
        values = self.values
        if values is not None and isinstance(self.spec, biases.Kerple):
            most = 2.0 if self.spec.kernel == "power" else None
            values = {name: jnp.clip(number, 0.01, most if name == "p" else None) for name, number in values.items()}
        name = np.dtype(dtype).name
        made = biases.bias(self.spec, queries, keys, values=values, dtype=name, causal=causal, heads=self.heads)
        return jnp.asarray(made)

    def __call__(self, scores: Any, queries: Any = None, keys: Any = None, *, causal: bool = False) -> jax.Array:
        """Scores [..., heads, queries, keys] plus the bias, made in float32 at least and rounded once.

        Args:
            scores: What the softmax is about to be taken of.
            queries: Positions [queries], or [batch, queries] where ``batch`` is axis 0 of the scores (or 1); unless
                given, the last ones of the keys', one for each row.
            keys: Positions, likewise; unless given, 0, 1, 2, …, one for each column.
            causal: Whether keys after the query get minus infinity.

        Raises:
            InvalidValue, InvalidType: Scores and positions are not of these shapes, or scores no floats.
        """
        queries, keys = positions_beside(scores, biases.some_heads(self.spec, self.heads), queries, keys)
        work = jnp.promote_types(scores.dtype, jnp.float32)
        bias = self.matrix(queries, keys, causal=causal, dtype=work)
        return (scores.astype(work) + beside(scores, bias)).astype(scores.dtype)


def _check(spec: Any, kind: type, what: str, example: str) -> None:
    if isinstance(spec, type) or not isinstance(spec, kind):
        raise InvalidType(f"`spec` must be {what}, got {type(spec).__name__} {shown(spec)}.", f"Write {example}.")
