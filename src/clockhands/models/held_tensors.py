"""Collects the position data of a loaded module: frequencies, cosine and sine tables, position numbers, row tables.

The module is walked and never run. PyTorch is not imported here, because a caller with a module has loaded it. A tensor
is found by its name, as libraries give it, whether it is a buffer, a parameter or a plain attribute.
"""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.configs.resolved import layer_ranges
from clockhands.configs.weights import TABLE

# Names under which libraries keep what they compute; a kind of layer (Transformers 5) may precede them, and which of
# several ladders it is.
_RATES = re.compile(r"^_?(?:(?P<kind>\w+?)_)??(?P<which>original_|long_|short_)?(?:inv_freqs?|inverse_frequency)$")
_WAVES = re.compile(
    r"^_?(?:cos|sin)(?:_k)?_?(?:cached|cache|table|embeddings?)?$|^cos_sin_cache$|^freqs_(?:cis|complex|cos|sin)$"
)
# Like `TABLE`, with words before: `decoder_pos_embed`.
_ROWS = re.compile(r"(^|[._])pos(ition(al)?)?_(embed(ding)?s?|enc(oding)?s?)(\.weight)?$")
_NUMBERS = re.compile(r"^position_ids$")
_SLOPES = re.compile(r"^(?:alibi_)?slopes$")
_BIASES = re.compile(r"(^|\.)relative_attention_bias\.weight$")
_LAYER = re.compile(r"(?:^|\.)(?:\w*layers?|h|\w*blocks?)\.(\d+)(?:\.|$)")
_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")

WHERE = "model"
"""What stands before the colon in the place of a tensor, where files have their name."""


@dataclass(frozen=True, eq=False)
class HeldTensor:
    """One tensor of a module.

    Attributes:
        paths: Every path under which the module that holds it is found; the first one is reported.
        name: Its name in that module.
        kind: ``rates``, ``waves`` (cosines and sines), ``numbers`` of positions, ``rows``, ``slopes``, or ``biases`` of
            distances.
        owner: The module that holds it.
        tensor: The tensor.
        persistent: Whether it is written with the weights; None for a plain attribute.
        layer_type: The kind of layer that its name says it is for, where the name says one.
        which: ``original``, ``long`` or ``short`` if its name says which of several ladders it is.
    """

    paths: tuple[str, ...]
    name: str
    kind: str
    owner: Any
    tensor: Any
    persistent: bool | None = None
    layer_type: str | None = None
    which: str | None = None

    @property
    def full_name(self) -> str:
        """The path from the audited module."""
        return f"{self.paths[0]}.{self.name}" if self.paths[0] else self.name

    @property
    def place(self) -> str:
        """The name that evidence uses."""
        return f"{WHERE}:{self.full_name}"

    @property
    def dtype(self) -> str:
        """The name of its type."""
        return str(self.tensor.dtype).removeprefix("torch.")

    @property
    def on_meta(self) -> bool:
        """Whether it has a shape but no values (meta device)."""
        return bool(getattr(self.tensor, "is_meta", False))

    @property
    def learned(self) -> bool:
        """Whether it is trained rather than computed."""
        return bool(getattr(self.tensor, "requires_grad", False))

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers that hold it; empty if the whole model shares it."""
        return layers_in(self.paths)

    @property
    def in_layers(self) -> str | None:
        """These layers as text; None if the whole model shares it."""
        return layer_ranges(self.layers) if self.layers else None

    @property
    def says(self) -> str:
        """Its size and its type, as evidence."""
        size = list(self.tensor.shape) if self.kind == "waves" else f"{self.tensor.numel()} numbers"
        return f"{size} in {self.dtype}"

    def numbers(self) -> np.ndarray | None:
        """Its values in double precision; None if they are not available (on the meta device, or distributed)."""
        return numbers_of(self.tensor)


@dataclass(frozen=True, eq=False)
class Walked:
    """The result of walking a module.

    Attributes:
        held: The position data that it holds.
        only_meta: Whether it has tensors, and all of them are on the meta device.
        floats: How many parameter values have each floating-point dtype.
        turning: Modules that hold frequencies or cosines, or have the name of a rotary module; path to module.
    """

    held: tuple[HeldTensor, ...]
    only_meta: bool
    floats: Mapping[str, int] = field(default_factory=dict)
    turning: Mapping[str, Any] = field(default_factory=dict)

    def of(self, kind: str) -> tuple[HeldTensor, ...]:
        """What is held of one kind."""
        return tuple(one for one in self.held if one.kind == kind)

    @property
    def dtype(self) -> str | None:
        """The dtype of most parameter values."""
        return max(self.floats, key=lambda name: self.floats[name]) if self.floats else None


def is_module(target: object) -> bool:
    """Whether an object is a ``torch.nn.Module``, without importing PyTorch."""
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", None)
    return isinstance(module, type) and isinstance(target, module)


def module_of(target: object) -> Any:
    """The audited module: the target itself, or the model of a pipeline; None for other targets."""
    return next((each for each in (target, getattr(target, "model", None)) if is_module(each)), None)


def layers_in(paths: Iterable[str]) -> tuple[int, ...]:
    """The numbers of the layers that paths lead into.

    >>> layers_in(["model.layers.2.rotary_emb", "model.layers.10.rotary_emb"]), layers_in(["rotary_emb"])
    ((2, 10), ())
    """
    found = (_LAYER.search(path) or _NUMBER.search(path) for path in paths)
    return tuple(sorted({int(match[1]) for match in found if match is not None}))


def walked(module: Any) -> Walked:
    """All position data of a module and its submodules."""
    paths: dict[int, tuple[Any, list[str]]] = {}
    for path, one in module.named_modules(remove_duplicate=False):
        paths.setdefault(id(one), (one, []))[1].append(path)
    held: list[HeldTensor] = []
    turning: dict[str, Any] = {}
    for owner, known in paths.values():
        own = [_held(tuple(known), owner, *each) for each in tensors_of(owner)]
        found = [one for one in own if one is not None]
        held += found
        if any(one.kind in ("rates", "waves") for one in found) or _may_rotate(known[0], owner):
            turning[known[0]] = owner
    tensors = [*module.parameters(), *module.buffers()]
    floats: dict[str, int] = {}
    for tensor in module.parameters():
        if tensor.is_floating_point():
            name = str(tensor.dtype).removeprefix("torch.")
            floats[name] = floats.get(name, 0) + tensor.numel()
    return Walked(tuple(held), bool(tensors) and all(tensor.is_meta for tensor in tensors), floats, turning)


def tensors_of(owner: Any) -> Iterator[tuple[str, Any, bool | None]]:
    """Name, tensor and whether it is written with the weights (None: an attribute), of what a module itself keeps."""
    hidden = owner._non_persistent_buffers_set  # noqa: SLF001 - PyTorch has no public word for it
    for name, tensor in owner.named_buffers(recurse=False):
        yield name, tensor, name not in hidden
    for name, tensor in owner.named_parameters(recurse=False):
        yield name, tensor, True
    tensor_type = sys.modules["torch"].Tensor
    for name, value in vars(owner).items():
        if isinstance(value, tensor_type):
            yield name, value, None


def _held(paths: tuple[str, ...], owner: Any, name: str, tensor: Any, persistent: bool | None) -> HeldTensor | None:
    # Ambiguous names count as frequencies, or as tables made from them, inside a part with a rotary name.
    if _may_rotate(paths[0], owner) and tensor.ndim == 1 and name in ("theta", "freqs"):
        return HeldTensor(paths, name, "rates", owner, tensor, persistent)
    if _may_rotate(paths[0], owner) and tensor.ndim == 3 and name == "cache":
        return HeldTensor(paths, name, "waves", owner, tensor, persistent)
    rates = _RATES.fullmatch(name)
    if rates is not None:
        which = (rates["which"] or "").rstrip("_") or None
        return HeldTensor(paths, name, "rates", owner, tensor, persistent, rates["kind"], which)
    kind = next((kind for kind, names in _BY_NAME if names.fullmatch(name)), None)
    full = f"{paths[0]}.{name}" if paths[0] else name
    if kind is None and name == "embed_positions" and persistent is not True:
        kind = "waves"  # GPT-J uses a name for sines and cosines that other models use for rows
    if kind is None and _BIASES.search(full):
        kind = "biases"
    named = TABLE.search(full) or _ROWS.search(full) or (name == "weights" and TABLE.search(paths[0]))
    if kind is None and named and tensor.ndim > 1:
        kind = "rows"
    return None if kind is None else HeldTensor(paths, name, kind, owner, tensor, persistent)


_BY_NAME = (("waves", _WAVES), ("numbers", _NUMBERS), ("slopes", _SLOPES))


def _may_rotate(path: str, owner: Any) -> bool:
    """Whether a part without submodules has the name of a rotary module, or is the only module that was given."""
    called = re.search(r"rotary|rope", f"{path.rpartition('.')[2]} {type(owner).__name__}", re.IGNORECASE)
    return bool(called or not path) and next(owner.children(), None) is None


def parameters_of(owner: Any) -> frozenset[str]:
    """The names of the arguments of a module's forward; empty if they cannot be determined."""
    try:
        return frozenset(inspect.signature(owner.forward).parameters)
    except (TypeError, ValueError, AttributeError):
        return frozenset()


def numbers_of(tensor: Any) -> np.ndarray | None:
    """The values of a tensor in double precision (complex ones too); None if they are not available."""
    if getattr(tensor, "is_meta", False):
        return None
    try:
        here = tensor.detach().cpu()
        name = str(here.dtype)
        wide = here.to(sys.modules["torch"].complex128 if "complex" in name else sys.modules["torch"].float64)
        return np.array(wide.numpy())
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None  # a tensor that is distributed over devices, quantised, or not a real tensor


def slopes_of(held: HeldTensor) -> np.ndarray | None:
    """Slopes as they are published: positive, one for each head."""
    numbers = held.numbers()
    if numbers is None or np.iscomplexobj(numbers) or numbers.size != max(numbers.shape, default=0) or not numbers.size:
        return None
    flat = numbers.ravel()
    return -flat if np.isfinite(flat).all() and (flat <= 0).all() else flat
