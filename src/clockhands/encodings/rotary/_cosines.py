"""`CosSin`: cosine and sine that are computed once per step and used in every layer, and the checks of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from clockhands.arguments import set_fields
from clockhands.encodings import traces
from clockhands.encodings.dtypes import name_of
from clockhands.encodings.positions import refuse_not_dense
from clockhands.encodings.rotary._spec import Rotary
from clockhands.errors import InvalidType, InvalidValue

_MAKE = "Make it with clockhands.rotary.cos_sin(spec, positions, like=x)"
_OWN = "; a table of your own is as_cos_sin(spec, cosine, sine, like=x)"


@dataclass(frozen=True, eq=False)
class CosSin:
    """Cosine and sine of every dimension pair at the positions of one step; made by `clockhands.rotary.cos_sin`.

    A table of your own becomes one by `clockhands.rotary.as_cos_sin`. It is immutable: NumPy's arrays are read-only,
    and a tensor that was changed in place is refused at its next use, because some layers may have used it before.
    The sine is negative where the code rotates backward, and both are multiplied by the code's attention factor.
    ``cosine, sine = pair`` unpacks them. In JAX it is a pytree with two leaves.

    Attributes:
        cosine, sine: [seq, pairs] or [batch, seq, pairs], float32, or float64 for float64 heads.
        spec: The code that they were computed for; `clockhands.rotate` refuses them for another one.
        role: ``"query"`` or ``"key"`` for a code with xPos, else None.
        dtype: The name of the dtype of the heads that they were made for.
    """

    cosine: Any
    sine: Any
    spec: Rotary
    role: str | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Remember the state of the tensors, to notice a change in place."""
        if not traces.is_compiling():
            set_fields(self, _made=self._state)

    @property
    def _state(self) -> tuple[int | None, int | None]:
        """How often PyTorch's tensors were changed in place; None for arrays that do not count it."""
        return _changes(self.cosine), _changes(self.sine)

    @property
    def changed(self) -> bool:
        """Whether cosine or sine was changed in place after it was made."""
        return self.__dict__.get("_made", self._state) != self._state

    @cached_property
    def _steps(self) -> dict[tuple[Any, ...], Callable[[Any], Any]]:
        """The rotation function for heads of a given shape, dtype, axis and role that have been checked before."""
        return {}

    def repeated(self) -> tuple[Any, Any]:
        """Cosine and sine of every RoPE dimension, [*positions, rotated] each, in the form of other libraries.

        Each channel has the numbers of its pair: half-split ``(c0, c1, …, c0, c1, …)``, as in Transformers' Llama;
        interleaved ``(c0, c0, c1, c1, …)``, as in its GLM. flash-attention takes ``cosine`` and ``sine`` unrepeated,
        and vLLM's ``cos_sin_cache`` is ``concat((cosine, sine), axis=-1)``.

        >>> from clockhands.encodings.rotary import Rotary, cos_sin
        >>> import numpy as np
        >>> cosine, sine = cos_sin(Rotary(head_width=4, base=100.0), [1], like=np.zeros(1)).repeated()
        >>> cosine.round(4).tolist(), sine.round(4).tolist()
        ([[0.5403, 0.995, 0.5403, 0.995]], [[0.8415, 0.0998, 0.8415, 0.0998]])
        """
        owners = np.array(traces.known_numbers(self.spec, "owners"), np.int64)
        xp, index = traces.library(self.cosine), traces.constant(owners, self.cosine)
        return xp.take(self.cosine, index, axis=-1), xp.take(self.sine, index, axis=-1)

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickling and copying: the fields without the cached rotation functions."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __iter__(self) -> Iterator[Any]:
        """Cosine, then sine."""
        return iter((self.cosine, self.sine))


def _changes(part: Any) -> int | None:
    try:
        return getattr(part, "_version", None)
    except RuntimeError:  # a tensor of torch.inference_mode
        return None


def parts_of(  # noqa: PLR0917 - what `rotate` was called with
    pair: Any, x: Any, spec: Rotary, positions: Any, role: str | None, axis: int, name: str = "x"
) -> tuple[Any, Any]:
    """Cosine and sine of a `CosSin`, after checking that it fits these heads.

    Args:
        pair: The caller's ``cos_sin``.
        x: The heads to rotate.
        spec: The rotary code of the heads.
        positions: The caller's positions, which must be None.
        role: The role of the heads.
        axis: The sequence axis of ``x``, counted from 0.
        name: The argument's name in error messages.

    Raises:
        InvalidType: ``pair`` is not a `CosSin`, or is one of another array library.
        InvalidValue: Positions are given too, or ``pair`` is for another code, role, precision or shape.
    """
    if positions is not None:
        raise InvalidValue(
            "`positions` and `cos_sin` are both given, but `cos_sin` already holds the positions.", "Leave one out."
        )
    if not isinstance(pair, CosSin):
        raise InvalidType(f"`cos_sin` must be a CosSin, got {type(pair).__name__}.", f"{_MAKE}{_OWN}.")
    if not traces.is_compiling() and pair.changed:
        raise InvalidValue("`cos_sin` was changed in place after it was made.", f"{_MAKE}, for each step.")
    if pair.spec is not spec and pair.spec != spec:
        raise InvalidValue("`cos_sin` was made for a different spec than `spec`.", f"{_MAKE}, with this spec.")
    if pair.role != role:
        raise InvalidValue(
            f"`cos_sin` was made for the role {pair.role!r}, but these heads have the role {role!r}.",
            "Make one pair for queries, cos_sin(…, role='query'), and one for keys, cos_sin(…, role='key').",
        )
    refuse_not_dense(pair.cosine, "cos_sin")
    theirs, ours = traces.library_of(pair.cosine), traces.library_of(x)
    if theirs != ours:
        raise InvalidType(f"`cos_sin` is of the library {theirs}, but `{name}` is of {ours}.", f"{_MAKE}.")
    kind, made = name_of(x), name_of(pair.cosine)
    work = "float64" if kind == "float64" else "float32"
    if made != work:
        raise InvalidValue(
            f"`cos_sin` is {made}, but {kind} heads are rotated in {work}.",
            f"{_MAKE}, and do not cast it{_OWN}.",
        )
    if spec.xpos is not None and kind == "float16" != pair.dtype:
        raise InvalidValue(
            f"`cos_sin` was computed for {pair.dtype}, but x is float16: xPos factors grow with the position and can"
            " overflow float16.",
            f"{_MAKE}.",
        )
    shape, given = tuple(x.shape), tuple(pair.cosine.shape)
    batched = len(given) == 3 and len(shape) >= 3 and axis != 0 and given[0] in (1, shape[0])
    pairs = spec.rotated // 2
    if given[-2:] != (shape[axis], pairs) or not (len(given) == 2 or batched) or tuple(pair.sine.shape) != given:
        raise InvalidValue(
            f"`cos_sin` must be of shape [{shape[axis]}, {pairs}]"
            + (f" or [{shape[0]}, {shape[axis]}, {pairs}]" if len(shape) >= 3 and axis != 0 else "")
            + f" for `{name}` of shape {list(shape)}, got {list(given)}.",
            "Make it for the positions of these tokens: [seq], or [batch, seq] where batch is axis 0 of x."
            if (other := of_other_axis(shape, axis, given[-2] if len(given) > 1 else 0)) is None
            else f"{other}.",
        )
    return pair.cosine, pair.sine


def of_other_axis(shape: tuple[int, ...], axis: int, tokens: int) -> str | None:
    """A hint where another axis of heads than ``axis`` has one place for each of these tokens, else None."""
    others = [other for other in range(1, len(shape) - 1) if other != axis and shape[other] == tokens]
    if len(shape) < 4 or not others or shape[axis] == tokens:
        return None
    return f"If x is [batch, seq, heads, head_width], pass seq_axis={others[0]}"
