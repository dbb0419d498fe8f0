"""Position codes as JAX pytrees: learned numbers are leaves, the spec is part of the tree structure.

They pass through ``jit``, ``grad``, ``vmap`` and ``scan`` as arguments like any parameters, and ``jit`` compiles once
for equal specs, because specs compare and hash by value. A spec can also be a static argument of your own function that
calls ``clockhands.rotate``, ``clockhands.add`` or ``clockhands.bias``, as these classes do.

In flax's nnx (0.12 or newer) ``self.code = Bias.drawn(spec, rngs)`` has trainable parameters, and so has
``self.code = jax.tree.map(nnx.Param, code)`` of a code with given numbers. Plain arrays are not trained there, as in
nnx.Linear.

Positions known before tracing (NumPy values, lists, ranges, or None) are processed exactly in NumPy and never reach JAX
as integers, which would silently overflow there without 64-bit mode. Traced positions are reduced exactly inside the
trace, see `clockhands.encodings.traces`: cosine and sine are within 2**-22 up to position 2**31 - 1.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clockhands.arguments import set_fields
from clockhands.encodings import additive, biases, rotary
from clockhands.encodings.biases.scoring import beside, positions_beside
from clockhands.errors import InvalidType
from clockhands.phrases import shown

# No field-wise equality or hash: arrays have neither a single truth value nor a hash, and `jit` needs one.
_computed = partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["spec"])
_learned = partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["spec"])


@_computed
@dataclass(frozen=True)
class Rotary:
    """A rotary code as a pytree without leaves: queries and keys in, rotated queries and keys out.

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
        """``x`` [..., seq, head_width] rotated by its positions; see `clockhands.rotary.rotate`."""
        return rotary.rotate(x, self.spec, positions, seq_axis, role=role)

    def both(self, queries: Any, keys: Any, positions: Any = None, seq_axis: int = -2) -> tuple[jax.Array, jax.Array]:
        """Queries and keys at the same positions, both rotated; see `clockhands.rotary.rotate_both`."""
        return rotary.rotate_both(queries, keys, self.spec, positions, seq_axis)


@_learned
@dataclass(frozen=True, eq=False)
class Additive:
    """An additive code as a pytree: tokens in, tokens plus the code of their positions out.

    ``code(x, positions)`` is ``clockhands.add(x, spec, positions, values=values)``.

    Attributes:
        spec: The additive code.
        values: The learned numbers: the rows of a table [rows, width], the rates of Fourier features, or a scale; None
            for a computed code.

    Raises:
        InvalidType: ``spec`` is not an additive code.
        InvalidValue: When called: ``values`` have the wrong shape, or are missing.

    >>> import clockhands as ch
    >>> Additive(ch.Sinusoidal(width=4))(jnp.zeros((2, 4))).shape
    (2, 4)
    """

    spec: additive.AdditiveCode
    values: Any = None

    def __post_init__(self) -> None:
        """Check the spec; values are checked when used, because JAX also puts other objects into its trees."""
        _tell_nnx(type(self))
        _check(self.spec, additive.AdditiveCode, "an additive encoding", "Additive(clockhands.Sinusoidal(width=512))")

    @classmethod
    def drawn(cls, spec: additive.AdditiveCode, key: Any, dtype: Any = jnp.float32) -> "Additive":
        """The code with random initial values: a table, rates of Fourier features, or a scale of 1.

        Tables are normal with standard deviation 0.02 (as in BERT and GPT-2), rates normal with standard deviation 1.
        ``key`` is a key of ``jax.random``, or an ``nnx.Rngs`` of flax: then the values are ``nnx.Param``.

        Raises:
            InvalidType: ``spec`` is not an additive code.
        """
        if _is_rngs(key):
            return _of_parameters(cls.drawn(spec, key.params(), dtype))
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
    `matrix` is that bias alone. KERPLE's parameters are clipped to their valid range before each use, as in its code.
    Positions may be traced, as in a decoding step: then distances are exact up to 2**31 - 1.

    Attributes:
        spec: The bias, of all heads.
        values: The learned numbers by name; None for a computed bias.
        heads: A range of heads, as for `clockhands.bias`, such as those of one device; ``values`` are for these heads.

    Raises:
        InvalidType: ``spec`` is not a bias.
        InvalidValue: When called: ``values`` do not fit the spec.

    >>> import clockhands as ch
    >>> Bias(ch.Alibi(heads=2))(jnp.zeros((2, 1, 4)))[0].tolist()
    [[-0.1875, -0.125, -0.0625, 0.0]]
    """

    spec: biases.BiasCode
    values: dict[str, Any] | None = field(default=None)
    heads: range | None = None

    def __post_init__(self) -> None:
        """Check the spec."""
        _tell_nnx(type(self))
        _check(self.spec, biases.BiasCode, "a bias", "Bias(clockhands.Alibi(heads=8))")
        biases.some_heads(self.spec, self.heads)
        if len(self.spec.shapes) == 1 and self.values is not None and not isinstance(self.values, Mapping):
            set_fields(self, values={next(iter(self.spec.shapes)): self.values})

    @classmethod
    def drawn(cls, spec: biases.BiasCode, key: Any, dtype: Any = jnp.float32, *, heads: range | None = None) -> "Bias":
        """The bias with random initial values, as in published training code.

        Tables are normal with standard deviation 0.02 (in T5 and Swin only the standard deviation differs); KERPLE's
        ``p`` and ``a`` are uniform up to 2 and 1; FIRE's rate is 0.1 and its threshold 512; weights of networks are
        uniform up to the inverse square root of the number of inputs. ``key`` is as for `Additive.drawn`.

        Raises:
            InvalidType: ``spec`` is not a bias.
        """
        if _is_rngs(key):
            return _of_parameters(cls.drawn(spec, key.params(), dtype, heads=heads))
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
            queries: Positions, or a count of queries at the positions of the last keys; as for `clockhands.bias`.
            keys: Positions, or a count.
            causal: Whether keys after the query get minus infinity.
            dtype: The dtype of the result.
        """
        values = self.values
        if values is not None and isinstance(self.spec, biases.Kerple):
            most = 2.0 if self.spec.kernel == "power" else None
            values = {name: jnp.clip(number, 0.01, most if name == "p" else None) for name, number in values.items()}
        name = np.dtype(dtype).name
        made = biases.bias(self.spec, queries, keys, values=values, dtype=name, causal=causal, heads=self.heads)
        return jnp.asarray(made)

    def __call__(self, scores: Any, queries: Any = None, keys: Any = None, *, causal: bool = False) -> jax.Array:
        """Scores [..., heads, queries, keys] plus the bias, computed in float32 or wider and rounded once.

        Args:
            scores: The attention scores before the softmax.
            queries: Positions [queries], or [batch, queries] where ``batch`` is axis 0 of the scores (or 1); by
                default the positions of the last keys, one for each row.
            keys: Positions, likewise; by default 0, 1, 2, …, one for each column.
            causal: Whether keys after the query get minus infinity.

        Raises:
            InvalidValue, InvalidType: Scores or positions have other shapes, or the scores are not floats.
        """
        queries, keys = positions_beside(scores, biases.some_heads(self.spec, self.heads), queries, keys)
        work = jnp.promote_types(scores.dtype, jnp.float32)
        bias = self.matrix(queries, keys, causal=causal, dtype=work)
        return (scores.astype(work) + beside(scores, bias)).astype(scores.dtype)


def _tell_nnx(kind: type) -> None:
    """Let flax's nnx, where it is used, take objects of this class as data of a module: else it refuses them."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and hasattr(nnx, "register_data_type"):
        nnx.register_data_type(kind)


def _is_rngs(key: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(key, nnx.Rngs)


def _of_parameters(code: Any) -> Any:
    """The code with its numbers as parameters of nnx."""
    return jax.tree.map(sys.modules["flax.nnx"].Param, code)


def _check(spec: Any, kind: type, what: str, example: str) -> None:
    if isinstance(spec, type) or not isinstance(spec, kind):
        raise InvalidType(f"`spec` must be {what}, got {type(spec).__name__} {shown(spec)}.", f"Write {example}.")
