"""Position codes as PyTorch modules, one class per family of specs: parameters for learned numbers, and no buffers.

Numbers that follow from a spec are computed from it when needed. There is no buffer that a cast could round, that
``to_empty`` or a loader on the meta device could leave uninitialised, that copies could share, or that a state dict
could carry into a model of another length. A forward pass changes no state, so the order of calls does not matter.

Modules with equal specs are compiled once, even if each layer was given a separate spec: ``module.spec`` is the same
object in all modules with equal specs, because the compiler compares objects by identity.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from clockhands.encodings import additive, biases, rotary, traces
from clockhands.encodings.biases.scoring import beside, positions_beside
from clockhands.encodings.biases.values import values_of, values_of_heads
from clockhands.encodings.dtypes import NAMES
from clockhands.errors import ClockhandsError, InvalidType
from clockhands.phrases import shown
from clockhands.torch._flex import ScoreMod, score_mod
from clockhands.torch._interface import PositionModule, Prepared, PreparedRotary, check_prepare, prepared_rotary
from clockhands.torch._remembering import remembered
from clockhands.torch._state_dicts import judged


class _Code(PositionModule):
    """The common part of the modules: a spec, its representation, and loading state dicts of other libraries."""

    def __init__(self, spec: Any, kind: type, example: str) -> None:
        super().__init__()
        if isinstance(spec, type) or not isinstance(spec, kind):
            raise InvalidType(
                f"`spec` must be {_KINDS[kind]}, got {type(spec).__name__} {shown(spec)}.",
                f"Write {example}; clockhands.torch.module(spec) makes the module of any spec.",
            )
        self.spec = spec

    def extra_repr(self) -> str:
        """The spec, where PyTorch prints the module."""
        return repr(self.spec)

    def _loaded_as(self, tensor: Any) -> Any:
        """The spec that a tensor of a state dict is compared with."""
        return self.spec

    def _taken(self, name: str, given: Any) -> Any:
        """The part of a state dict's tensor that a parameter loads."""
        return given

    def _load_from_state_dict(  # noqa: PLR0917 - torch's own arguments
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load learned numbers; compare computed ones with the spec and leave them out (see `_state_dicts`)."""
        own = {name for name, _ in self.named_parameters(recurse=False)}
        for name in own & {key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)}:
            state_dict[prefix + name] = self._taken(name, state_dict[prefix + name])
        for key in [key for key in state_dict if key.startswith(prefix) and key.removeprefix(prefix) not in own]:
            try:
                known = judged(self._loaded_as(state_dict[key]), key, state_dict[key])
            except ClockhandsError as wrong:
                error_msgs.append(str(wrong))
                known = True
            if known:
                del state_dict[key]
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class Rotary(_Code):
    """A rotary code as a module: queries and keys in, rotated queries and keys out.

    ``module(x, positions)`` is ``clockhands.rotary.rotate(x, spec, positions)``, with its shapes, its accuracy and
    its errors. Nothing is learned or stored: the state dict is empty.

    Under ``torch.compile(fullgraph=True)`` all positions, including default ones, are integer tensors of the graph,
    with cosine and sine within 2**-22 at every int64 position.

    Without compilation, positions on the CPU are processed exactly there. Integers on a GPU stay there: phases are
    computed in integer arithmetic within 2**-22 without a synchronisation, and a CUDA graph can capture it after a
    first call. With Triton, one kernel reads and writes queries and keys once. Real positions on a GPU, and all
    positions of float64 heads, are copied to the CPU, which synchronises.

    Attributes:
        spec: The rotary code.

    Raises:
        InvalidType: ``spec`` is not a rotary code.

    >>> import clockhands as ch
    >>> rotary = Rotary(ch.Rotary(head_width=64))
    >>> queries, keys = torch.zeros(1, 8, 5, 64), torch.zeros(1, 2, 5, 64)
    >>> [turned.shape for turned in rotary.both(queries, keys)]
    [torch.Size([1, 8, 5, 64]), torch.Size([1, 2, 5, 64])]
    """

    spec: rotary.Rotary

    def __init__(self, spec: rotary.Rotary) -> None:
        super().__init__(spec, rotary.Rotary, "Rotary(clockhands.Rotary(head_width=64))")

    def cos_sin(self, positions: Any, like: torch.Tensor, *, role: str | None = None) -> rotary.CosSin:
        """Cosine and sine of these positions, computed once per step and used in every layer.

        Pass them as ``cos_sin`` to this module, to `both`, or to another module with an equal spec; see
        `clockhands.rotary.cos_sin`.
        """
        return rotary.cos_sin(self.spec, positions, like, role=role)

    def forward(
        self,
        x: torch.Tensor,
        positions: Any = None,
        seq_axis: int = -2,
        *,
        role: str | None = None,
        cos_sin: rotary.CosSin | None = None,
    ) -> torch.Tensor:
        """``x`` [..., seq, head_width] rotated by its positions; see `clockhands.rotary.rotate`."""
        return rotary.rotate(x, self.spec, positions, seq_axis, role=role, cos_sin=cos_sin)

    def both(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        positions: Any = None,
        seq_axis: int = -2,
        *,
        cos_sin: rotary.CosSin | tuple[rotary.CosSin, rotary.CosSin] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys at the same positions, both rotated (with xPos, each in its role).

        They may have different numbers of heads. If their positions differ, as in attention to another sequence, rotate
        each separately.
        """
        return rotary.rotate_both(queries, keys, self.spec, positions, seq_axis, cos_sin=cos_sin)

    def prepare(self, queries: Any, keys: Any = None, *, like: torch.Tensor, causal: bool = True) -> PreparedRotary:
        """Cosine and sine of a forward pass, made once; see `clockhands.torch.PositionModule.prepare`."""
        return prepared_rotary(self.spec, queries, keys, like, causal=causal)


class Additive(_Code):
    """An additive code as a module: tokens in, tokens plus the code of their positions out.

    ``module(x, positions)`` is ``clockhands.add(x, spec, positions)``. A learned table, or the rates of Fourier
    features, is the parameter ``weight``, named as in `torch.nn.Embedding` so that a published table loads into it. A
    learned scale is ``scale``. A computed code has an empty state dict.

    Attributes:
        spec: The additive code.

    Args:
        spec: An additive code.
        values: Initial values of the parameter. By default a table is normal with standard deviation 0.02 (as in BERT
            and GPT-2), rates are normal with standard deviation 1, and a scale is 1. Freeze rates that are drawn once
            and never trained (SAM) with ``module.requires_grad_(False)``.
        device, dtype: Device and dtype of the parameter.

    Raises:
        InvalidType: ``spec`` is not an additive code.
        InvalidValue: ``values`` have another shape, or the code has no learned numbers.

    >>> import clockhands as ch
    >>> Additive(ch.Learned(width=4, rows=8))(torch.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 4])
    """

    spec: additive.AdditiveCode

    def __init__(
        self,
        spec: additive.AdditiveCode,
        values: Any = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(spec, additive.AdditiveCode, "Additive(clockhands.Sinusoidal(width=512))")
        given = None if values is None else _parameter(values, device, dtype)
        if given is not None or not spec.learned:
            spec.check_values(None if given is None else tuple(given.shape))
        if not spec.learned:
            return
        shape = spec.values_shape
        assert shape is not None
        self.register_parameter(self._name, _empty(shape, device, dtype) if given is None else given)
        if given is None:
            self.reset_parameters()

    @property
    def _name(self) -> str:
        return "weight" if self.spec.values_shape else "scale"

    @property
    def values(self) -> torch.Tensor | None:
        """The learned numbers, or None."""
        # Not get_parameter: `torch.func.functional_call` puts plain tensors there.
        return getattr(self, self._name) if self.spec.learned else None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise the learned numbers again; call it after ``to_empty`` if nothing is loaded."""
        if self.spec.values_shape:
            self.get_parameter("weight").normal_(std=0.02 if isinstance(self.spec, additive.Learned) else 1.0)
        elif self.spec.learned:
            self.get_parameter("scale").fill_(1)

    def forward(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """``x`` [..., seq, width] plus the code of its positions; see `clockhands.add`."""
        return additive.add(x, self.spec, positions, values=self.values)

    def embed(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """``x`` [..., seq, width] plus the code of its positions; the same as calling the module."""
        return self(x, positions)


class Bias(_Code):
    """A bias as a module: scores in, scores with the bias out.

    ``module(scores)`` adds ``clockhands.bias(spec, queries, keys)`` to the scores before the softmax; `matrix` is that
    bias alone, `score_mod` the same for FlexAttention. The learned numbers are parameters by the names that the spec
    gives them (``table``, ``p``, ``a``, …). KERPLE's parameters are clipped to their valid range before each use, as in
    its code.

    Under ``torch.compile(fullgraph=True)`` all positions, including default ones, are integer tensors of the graph.
    Their distances are exact, and computed biases are within a relative 2**-22.

    Under tensor parallelism each rank makes ``Bias(spec, heads=range(4, 8))`` with the spec of the whole model. Its
    parameters and state dict hold only these heads; from a state dict of the whole model it loads only these heads.

    Attributes:
        spec: The bias, of all heads.
        heads: The heads that this module has, a range.

    Args:
        spec: A bias.
        values: Initial values of the parameters: an array, or a dict of arrays by name, for these heads. By default
            they are initialised as in published training code; see `reset_parameters`.
        device, dtype: Device and dtype of the parameters.
        heads: The heads that this module has, as for `clockhands.bias`; all by default.

    Raises:
        InvalidType: ``spec`` is not a bias.
        InvalidValue: ``values`` do not fit the spec.

    >>> import clockhands as ch
    >>> Bias(ch.Alibi(heads=2))(torch.zeros(2, 1, 4))[0].tolist()
    [[-0.1875, -0.125, -0.0625, 0.0]]
    """

    spec: biases.BiasCode

    def __init__(
        self,
        spec: biases.BiasCode,
        values: Any = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: range | None = None,
    ) -> None:
        super().__init__(spec, biases.BiasCode, "Bias(clockhands.Alibi(heads=8))")
        self._own = own = biases.some_heads(self.spec, heads)
        self.heads: range = range(spec.heads) if heads is None else heads
        if values is not None or not spec.learned:
            values_of(type(spec).__name__, values, own.shapes)
            if not isinstance(values, Mapping):
                values = dict.fromkeys(own.shapes, values)
        for name, shape in own.shapes.items():
            made = _empty(shape, device, dtype) if values is None else _parameter(values[name], device, dtype)
            self.register_parameter(name, made)
        if values is None:
            self.reset_parameters()

    def extra_repr(self) -> str:
        """The spec, and the heads where they are not all."""
        return repr(self.spec) + ("" if self._own is self.spec else f", heads={self.heads}")

    def _loaded_as(self, tensor: Any) -> Any:
        """The bias of these heads if the tensor has one number per head of them; else that of all heads."""
        return self._own if np.shape(tensor)[:1] == (len(self.heads),) else self.spec

    def _taken(self, name: str, given: Any) -> Any:
        """The numbers of these heads from those of all heads."""
        return values_of_heads({name: given}, self.spec.shapes, self._own.shapes, self.heads)[name]

    @property
    def values(self) -> dict[str, torch.Tensor] | None:
        """The learned numbers by name, as they are used; or None."""
        if not self._own.learned:
            return None
        # Not the parameters: with pruning or weight_norm the attribute is the computed tensor that is used.
        used: dict[str, torch.Tensor] = {name: getattr(self, name) for name in self._own.shapes}
        if isinstance(self._own, biases.Kerple):
            most = 2.0 if self._own.kernel == "power" else None
            used = {name: number.clamp(0.01, most if name == "p" else None) for name, number in used.items()}
        return used

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise the learned numbers again.

        Tables are normal with standard deviation 0.02 (in T5 and Swin only the standard deviation differs); KERPLE's
        ``p`` and ``a`` are uniform up to 2 and 1; FIRE's rate is 0.1 and its threshold 512; networks are initialised
        like `torch.nn.Linear`.
        """
        for name in self._own.shapes:
            number = self.get_parameter(name)
            if name in ("c", "threshold"):
                number.fill_(0.1 if name == "c" else 512.0)
            elif name in ("p", "a"):
                number.uniform_(0.01, 2.0 if name == "p" else 1.0)
            elif name[0] in "wb" and name[1:].isdecimal():
                bound = 1 / math.sqrt(self._own.shapes[f"w{name[1:]}"][1])
                number.uniform_(-bound, bound)
            else:
                number.normal_(std=0.02)

    def matrix(
        self,
        queries: Any,
        keys: Any,
        *,
        causal: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """The bias itself, [heads, queries, keys] (and a batch axis before, where positions have one).

        Args:
            queries: Positions, or a count, which means the positions of the last keys; as for `clockhands.bias`.
            keys: Positions, or a count.
            causal: Whether keys after the query get minus infinity.
            device: The device of a computed bias; a learned one is on the device of its parameters.
            dtype: The dtype of the result.
        """
        if torch.compiler.is_compiling():
            keys = traces.as_tensor(keys, device)
            queries = queries if isinstance(queries, int) else traces.as_tensor(queries, device)
        made = biases.bias(
            self._own, queries, keys, values=self.values, dtype=_NAMES.get(dtype, str(dtype)), causal=causal
        )
        return _tensor(made).to(device) if isinstance(made, np.ndarray) else made

    def forward(
        self, scores: torch.Tensor, queries: Any = None, keys: Any = None, *, causal: bool = False
    ) -> torch.Tensor:
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
        traces.refuse_recording(scores)
        queries, keys = positions_beside(scores, self._own, queries, keys)
        work = torch.promote_types(scores.dtype, torch.float32)
        bias = self.matrix(queries, keys, causal=causal, device=scores.device, dtype=work)
        return (scores.to(work) + beside(scores, bias)).to(scores.dtype)

    def prepare(self, queries: Any, keys: Any = None, *, like: torch.Tensor, causal: bool = True) -> Prepared:
        """The bias as ``attn_mask``, computed once; see `clockhands.torch.PositionModule.prepare`."""
        check_prepare(like, causal)
        keys = queries if keys is None else keys
        counts = type(queries) is type(keys) is int and not self._own.learned and queries > 1

        def make() -> torch.Tensor:
            mask = self.matrix(queries, keys, causal=causal, device=like.device, dtype=like.dtype)
            return mask if mask.dim() == 4 else mask[None]

        if not counts or torch.compiler.is_compiling():
            return Prepared(make())
        return Prepared(remembered(self._own, (queries, keys, causal, like.device, like.dtype), make))

    def score_mod(self, queries: Any, keys: Any, *, device: torch.device | str | None = None) -> ScoreMod:
        """The bias for FlexAttention; see `clockhands.torch.score_mod`."""
        return score_mod(self._own, queries, keys, values=self.values, device=device)


_KINDS = {
    rotary.Rotary: "RoPE",
    additive.AdditiveCode: "an additive encoding",
    biases.BiasCode: "a bias",
}


_NAMES = {getattr(torch, name): name for name in NAMES}


def _empty(shape: tuple[int, ...], device: torch.device | str | None, dtype: torch.dtype | None) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))


def _parameter(values: Any, device: torch.device | str | None, dtype: torch.dtype | None) -> torch.nn.Parameter:
    """A parameter initialised with a copy of these numbers, in their float dtype unless ``dtype`` is given."""
    if isinstance(values, Mapping):
        raise InvalidType(f"`values` must be an array here, got {type(values).__name__}.", "Pass the rows themselves.")
    given = values.detach() if isinstance(values, torch.Tensor) else _tensor(np.asarray(values))
    if dtype is None and (not given.dtype.is_floating_point or isinstance(values, float | int)):
        dtype = torch.get_default_dtype()
    return torch.nn.Parameter(torch.clone(given).to(device=device, dtype=dtype))


def _tensor(array: np.ndarray) -> torch.Tensor:
    """A NumPy array as a tensor; bfloat16, which PyTorch does not accept from NumPy, is passed as its bits."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
