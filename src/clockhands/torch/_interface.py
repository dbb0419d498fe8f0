"""The common interface of all position modules, so that one model implementation works with any encoding."""

import copy
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import torch

from clockhands.arguments import count, truth
from clockhands.encodings import rotary, traces
from clockhands.encodings.grids import at_origin
from clockhands.errors import InvalidType, InvalidValue
from clockhands.torch._attending import attention
from clockhands.torch._remembering import shared


class Prepared:
    """What attention needs from a position code, computed once per forward pass for all layers that share the code.

    Attention is the same for every code::

        ready = prepared.layer(i)
        queries, keys = ready.turn(queries, keys)
        out = ready.attend(queries, keys, values)

    Attributes:
        mask: ``attn_mask`` of `torch.nn.functional.scaled_dot_product_attention`. For a bias: its numbers, [1, heads,
            queries, keys], or [batch, heads, queries, keys] if positions have a batch, with minus infinity for keys
            after the query if ``causal`` is True. (PyTorch's CPU attention is 2 to 3 times slower with a mask of three
            axes.) Do not change it in place. For other codes: None, or bool [queries, keys] (True where a query sees
            the key) for causal attention of several queries but fewer than keys, which ``is_causal`` cannot express.
        is_causal: ``is_causal`` of the same function: True if ``causal`` was True, queries and keys are equally many,
            and there is no mask.
    """

    def __init__(self, mask: torch.Tensor | None = None, *, is_causal: bool = False) -> None:
        self.mask = mask
        self.is_causal = is_causal

    def layer(self, index: int) -> "Prepared":
        """The `Prepared` of layer ``index``, counted from 0: this object, unless the code is a mixture."""
        count("index", index, least=0)
        return self

    def turn(
        self, queries: torch.Tensor, keys: torch.Tensor, seq_axis: int = -2, *, x: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys [..., seq, head_width], rotated if the code is rotary, else unchanged.

        ``x`` [batch, seq, width] are the states that they were made of; only an encoding of one's own may need them.
        """
        return queries, keys

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *,
        dropout_p: float = 0.0,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """Attention with this mask: ``scaled_dot_product_attention(…, attn_mask=mask, is_causal=is_causal)``.

        A learned bias on the CPU, in float32 or float64 and without dropout, uses a separate backward, about twice as
        fast as PyTorch's and without stored weights; everything else is PyTorch's function. Heads are not rotated here:
        call `turn` before.

        Args:
            queries: [batch, heads, queries, head_width].
            keys: [batch, heads, keys, head_width].
            values: [batch, heads, keys, channels].
            dropout_p: As in PyTorch: 0 in evaluation.
            scale: Factor on the scores; ``head_width ** -0.5`` by default.
            enable_gqa: Whether keys and values have fewer heads.

        Accuracy: that of PyTorch's function; gradients differ by rounding only.
        """
        more = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
        return attention(queries, keys, values, self.mask, is_causal=self.is_causal, **more)


class PreparedRotary(Prepared):
    """`Prepared` of a rotary code, with cosine and sine."""

    def __init__(
        self, spec: rotary.Rotary, queries: Any, keys: Any, like: torch.Tensor, *, same: bool, **attention: Any
    ) -> None:
        super().__init__(**attention)
        self.spec = spec
        self._places, self._like, self._same = (queries, keys), like.new_empty(0), same
        roles = (None, None) if spec.xpos is None else ("query", "key")
        self._query = rotary.cos_sin(spec, queries, like, role=roles[0])
        self._new_key = self._query if roles[1] is None else rotary.cos_sin(spec, queries, like, role=roles[1])
        self._key = self._new_key if same else None
        self._role = roles[1]

    def turn(
        self, queries: torch.Tensor, keys: torch.Tensor, seq_axis: int = -2, *, x: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys [..., seq, head_width], each rotated by its positions.

        If fewer queries than keys were prepared and as many keys as queries are passed, they are the new keys of a
        decoding step and have the positions of the queries; the cache holds rotated keys. If as many keys are passed as
        were prepared, each is rotated by its own position.
        """
        pair = self._new_key
        if not self._same and keys.shape[seq_axis] != self._query.cosine.shape[-2]:
            if self._key is None:
                self._key = rotary.cos_sin(self.spec, self._places[1], self._like, role=self._role)
            pair = self._key
        return rotary.rotate_both(queries, keys, self.spec, seq_axis=seq_axis, cos_sin=(self._query, pair))


class PreparedMixture:
    """`Prepared` of a mixture; `layer` gives that of a layer."""

    def __init__(self, parts: "Sequence[Prepared | PreparedLayers]", pattern: tuple[int, ...]) -> None:
        self._parts, self._pattern = parts, pattern

    def layer(self, index: int) -> Prepared:
        """The `Prepared` of layer ``index``, counted from 0.

        A part whose layers differ, an encoding of one's own, gives its next layer to each layer that has it.
        """
        number = self._pattern[count("index", index, least=0) % len(self._pattern)]
        earlier = sum(self._pattern[layer % len(self._pattern)] == number for layer in range(index))
        return self._parts[number].layer(earlier)


class PreparedLayers(Protocol):
    """`Prepared` of layers that differ."""

    def layer(self, index: int) -> Prepared:
        """The `Prepared` of layer ``index``, counted from 0."""
        ...


# Where a module keeps its spec, and that of the heads that it has.
_SPECS = ("spec", "_own")


class PositionModule(torch.nn.Module):
    """A position code as a module: the interface that `clockhands.torch.module` gives to every code.

    A model adds ``x = code.embed(x)`` before its first layer, calls ``prepared = code.prepare(seq, like=x)`` once, and
    uses ``prepared.layer(i)`` in the attention of layer i; see `Prepared`.

    Attributes:
        spec: The position code.
    """

    spec: Any

    def __setattr__(self, name: str, value: Any) -> None:
        """As in PyTorch, but a spec is replaced by an equal one that other modules already hold."""
        super().__setattr__(name, shared(value) if name in _SPECS else value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As in PyTorch, for unpickled and copied modules, with the spec object that equal modules share."""
        super().__setstate__({name: shared(value) if name in _SPECS else value for name, value in state.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        for name in _SPECS:
            held = getattr(self, name, None)
            memo[id(held)] = held  # frozen, and the compiler knows it again
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__dict__, memo))
        return copied

    def __prepare_scriptable__(self) -> Self:
        """Raise an error: TorchScript supports neither specs nor the exact arithmetic.

        Raises:
            InvalidType: Always; ``torch.jit.script`` calls it for a module and for its parts.
        """
        raise InvalidType(
            f"torch.jit.script cannot compile {type(self).__name__} of clockhands.torch, which computes from a spec.",
            "Use torch.compile or torch.export, which accept new positions.",
        )

    def layer(self, index: int) -> "PositionModule":
        """The module of layer ``index``, counted from 0: this module, unless the code is a mixture."""
        count("index", index, least=0)
        return self

    def embed(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """``x`` [..., seq, width] plus the code of its positions for an additive code; ``x`` itself for the others."""
        return x

    def prepare(
        self, queries: Any, keys: Any = None, *, like: torch.Tensor, causal: bool = True
    ) -> "Prepared | PreparedLayers":
        """What attention needs, computed once per forward pass for all layers that share the code.

        Args:
            queries: Positions, [queries] or [batch, queries], or a count, which means the positions of the last keys;
                as for `clockhands.bias`.
            keys: Positions or a count, likewise; None if keys and queries have the same positions.
            like: A float tensor, such as the tokens: a mask has its dtype and device.
            causal: Whether later keys are masked. A bias compares positions; other codes compare token order, with the
                last query at the last key.

        Raises:
            InvalidType: ``like`` is not a float tensor, or a position has a type that cannot be used.
            InvalidValue: There are more queries than keys, or the code cannot be used at these positions.
        """
        check_prepare(like, causal)
        mask, is_causal = _order(*_sizes(queries, keys, self._axes), causal, like)
        return Prepared(mask, is_causal=is_causal)

    @property
    def _axes(self) -> int:
        """Number of coordinates of a position."""
        return getattr(self.spec, "number_of_axes", 1)


def prepared_rotary(
    spec: rotary.Rotary, queries: Any, keys: Any, like: torch.Tensor, *, causal: bool
) -> PreparedRotary:
    """`Prepared` of a rotary code; see `PositionModule.prepare`."""
    check_prepare(like, causal)
    several = spec.axes is not None
    many, most = _sizes(queries, keys, 2 if several else 1)
    keys = queries if keys is None else keys
    # PyTorch 2.5 cannot compile ``is`` of symbolic counts.
    same = many == most if isinstance(queries, int) else queries is keys
    if isinstance(queries, int):
        queries = keys if same else _last(keys, most - many, like, axis=-2 if several else -1)
    mask, is_causal = _order(many, most, causal, like)
    return PreparedRotary(spec, queries, keys, like, same=same, mask=mask, is_causal=is_causal)


def check_prepare(like: Any, causal: Any) -> None:
    """Check the arguments of `PositionModule.prepare`.

    Raises:
        InvalidType: ``like`` is not a float tensor, or ``causal`` is not a bool.
    """
    if not isinstance(like, torch.Tensor) or not like.is_floating_point():
        raise InvalidType(
            f"`like` must be a tensor of floats, got {type(like).__name__}"
            + (f" of {like.dtype}." if isinstance(like, torch.Tensor) else "."),
            "Give the tokens of this forward pass.",
        )
    truth("causal", causal, "It says whether keys are masked.")


def _sizes(queries: Any, keys: Any, axes: int) -> tuple[int, int]:
    """The number of queries and of keys."""
    many = _size(queries, axes, "queries")
    most = many if keys is None else _size(keys, axes, "keys")
    if isinstance(queries, int) and many > most:
        raise InvalidValue(
            f"A count of `queries` means the last key positions, so it must be 0 to {most}; got {many}.",
            "Give the positions of the queries as a range or an array.",
        )
    return many, most


def _size(given: Any, axes: int, name: str) -> int:
    if isinstance(given, int):
        return count(name, given, least=0) if not torch.compiler.is_compiling() else given
    shape = tuple(at_origin(given).shape if hasattr(given, "as_positions") else np.shape(given))
    coordinates = int(axes > 1)
    if len(shape) - coordinates not in (1, 2):
        raise InvalidValue(
            f"`{name}` must be a count or positions, [{name}] or [batch, {name}]"
            f"{' with an axis of coordinates' if coordinates else ''}, got shape {list(shape)}.",
            "Give a position for each token.",
        )
    return shape[-1 - coordinates]


def _last(keys: Any, first: int, like: torch.Tensor, axis: int) -> Any:
    """The positions from key ``first`` on."""
    if isinstance(keys, int):
        return traces.counted(first, keys - first, like)
    if isinstance(keys, range) or (isinstance(keys, list | tuple) and not np.shape(keys)[1:]):
        return keys[first:]
    if isinstance(keys, list | tuple):
        keys = np.asarray(keys)
    if not hasattr(keys, "dtype"):
        raise InvalidType(
            f"If `queries` is a count, `keys` must be a count, a range, a list or an array, got {type(keys).__name__}.",
            "Give the positions of the queries too.",
        )
    return keys[..., first:] if axis == -1 else keys[..., first:, :]


def _order(queries: int, keys: int, causal: bool, like: torch.Tensor) -> tuple[torch.Tensor | None, bool]:
    """``attn_mask`` and ``is_causal`` of a code other than a bias; ``is_causal`` needs as many queries as keys."""
    if not causal or queries == 1:
        return None, False
    if queries == keys:
        return None, True
    whole = torch.ones(queries, keys, dtype=torch.bool, device=like.device)
    return whole.tril(keys - queries), False
