"""Replaces a model's own position code by exact code, and restores the original.

A part is changed through its class: the new class inherits from the part's own class and overrides the one method that
computes positions. Weights, hooks and names stay as they are, so saving, loading, copying and caches keep working.
Before anything is changed, what the new class returns is compared with what the old one returned.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.configs.expected_rates import Expected
from clockhands.configs.resolved import LayerEncoding, layer_numbers
from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.biases import Alibi, Buckets
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidType, InvalidValue
from clockhands.models.declared_parts import DeclaredPart, declared_parts, in_part
from clockhands.models.held_tensors import module_of, walked
from clockhands.models.measured_rotations import error_bound
from clockhands.phrases import shown
from clockhands.transformers._comparing import ROUNDING, certain, differs, of_text, outputs_of
from clockhands.transformers._exact_biases import ExactBloom, ExactBuckets, ExactMpt, buckets_of
from clockhands.transformers._exact_tables import ExactAttentionTable, ExactRows, ExactTable, exact_rows
from clockhands.transformers._rotary_part import ExactRotary, frequencies_of

_KEPT = frozenset({f"clockhands_{name}" for name in ("output", "length", "spec", "rows", "numbers", "own")})


@dataclass(frozen=True, eq=False)
class Change:
    """A planned change of one part; nothing is changed until `make` is called.

    Attributes:
        path: Where the part is in the model.
        owner: The part.
        codes: The declared codes that it serves, with the layers: None for all.
        exact: The class that has the exact methods.
        kept: Attributes that these methods need.
        buffers: Buffers that are changed.
    """

    path: str
    owner: Any
    codes: tuple[tuple[LayerEncoding, str | None], ...]
    exact: type
    kept: Mapping[str, Any] = field(default_factory=dict)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)

    def make(self) -> None:
        """Change the part; after an error it is unchanged, or marked with what `_own_again` needs to restore it."""
        own = {name: getattr(self.owner, name) for name in self.buffers}
        self.owner.__class__ = exact_class(self.exact, type(self.owner))
        self.owner.clockhands_own = own
        for name, value in self.kept.items():
            if isinstance(value, Tensor):
                self.owner.register_buffer(name, value, persistent=False)
            else:
                setattr(self.owner, name, value)
        for name, value in self.buffers.items():
            setattr(self.owner, name, value)


class Swapped:
    """Marks a class that replaces another one."""

    clockhands_classes: tuple[type, type]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by the two classes that it is built from."""
        return _empty, self.clockhands_classes, vars(self)


def _empty(exact: type, own: type) -> Any:
    made: Any = exact_class(exact, own)
    return made.__new__(made)


@cache
def exact_class(exact: type, own: type) -> type:
    """A subclass of ``own`` (the class of a part) with the methods of ``exact``.

    It keeps the name: ``save_pretrained`` writes it into the config, and others look it up.
    """
    # An embedding's lookup is called by its own class, so that class comes first.
    bases = (own, exact, Swapped) if issubclass(exact, nn.Embedding) else (exact, own, Swapped)
    names = ("__module__", "__qualname__", "__doc__")
    return type(
        own.__name__, bases, {name: getattr(own, name) for name in names} | {"clockhands_classes": (exact, own)}
    )


def swap(model: nn.Module) -> tuple[str, ...]:
    """Replace a model's own position code by exact code.

    Everything that a model computes from positions (cosines and sines, sinusoidal tables, biases) then comes from exact
    phases. Its weights, learned tables, config, caches, hooks and saved files stay as they are. Buffers that hold a
    table of sines hold the exact one, and parts that had none beside their weights get one that is not saved. All parts
    are changed, or none.

    Args:
        model: A model of Transformers, or a pipeline.

    Returns:
        The paths of the parts that were changed.

    Accuracy: cosines and sines as `clockhands.rotary.cos_sin`; tables as `clockhands.table`; biases as
    `clockhands.bias`.

    Raises:
        InvalidType: This is no PyTorch module.
        InvalidValue: The model is swapped already, it computes nothing from positions, some layer's code is not known
            or cannot be reached, or a part returns other numbers than the config declares. Nothing is changed then.

    >>> swap(nn.Linear(2, 2))
    Traceback (most recent call last):
        ...
    clockhands.errors.InvalidValue: Linear has no position encoding that is recognised: nothing was changed.
    hint: `ch.audit(model)` shows what is known of it.
    """
    module = _module(model)
    name = type(module).__name__
    if _swapped(module):
        raise InvalidValue(f"{name} is swapped already.", "Call `restore(model)` first.")
    exact = [path for path, part in module.named_modules() if isinstance(part, ExactRotary)]
    if exact:
        raise InvalidValue(
            f"{exact[0]} of {name} is exact already, a module of clockhands: nothing was changed.",
            "Where all its parts are, `swap` is not needed; else put the model's own module there first.",
        )
    resolved, parts = declared_parts(module)
    if any(code.kind is None and of_text(code) for code in resolved.codes):
        raise InvalidValue(
            f"{name} has no position encoding that is recognised: nothing was changed.",
            "`ch.audit(model)` shows what is known of it.",
        )
    changes = [change for part in parts for change in _of_rotary_part(name, part)]
    changes += [*_of_tables(module, resolved.codes), *_of_biases(module, resolved.codes)]
    wanted = [code for code in resolved.codes if _in_use(code, module) and code.kind not in ("none", "learned")]
    lacking = [code for code in wanted if not _served(code, changes)]
    if lacking:
        code = lacking[0]
        where = f" in layers {code.layers}" if code.layers not in (None, "input") else ""
        raise InvalidValue(
            f"{name} has {_named(code)}{where}, and `swap` does not know which part makes them: nothing was changed.",
            "`ch.audit(model)` shows what is declared; docs/guides/transformers.md lists the families it knows.",
        )
    if not changes:
        raise InvalidValue(
            f"{name} has no position encoding that is computed: there is nothing to change.",
            "Learned tables are left alone; `ch.audit(model)` shows what is declared.",
        )
    for change in changes:
        try:
            change.make()
        except Exception as error:
            for part in _swapped(module).values():
                _own_again(part)
            raise InvalidValue(
                f"{change.path} of {name} cannot be changed: {type(error).__name__}: {error}. Nothing was changed.",
                f"{type(change.owner).__name__} must allow a subclass to be made of it, and assigned to the object.",
            ) from error
    return tuple(change.path for change in changes)


def restore(model: nn.Module) -> tuple[str, ...]:
    """Put a model's own position code back.

    Args:
        model: A model that was given to `swap`, or a copy of it.

    Returns:
        The paths of the parts that were changed back.

    Raises:
        InvalidType: This is no PyTorch module.
        InvalidValue: The model is not swapped.
    """
    module = _module(model)
    found = _swapped(module)
    if not found:
        raise InvalidValue(f"{type(module).__name__} is not swapped.", "Call `swap(model)` first.")
    for part in found.values():
        _own_again(part)
    return tuple(found)


def _own_again(part: Any) -> None:
    """Put one part's own class and buffers back."""
    for name, own in part.clockhands_own.items():
        here = getattr(part, name)
        setattr(part, name, own.to(device=here.device, dtype=here.dtype))
    for name in [name for name in (*vars(part), *dict(part.named_buffers(recurse=False))) if name in _KEPT]:
        delattr(part, name)
    part.__class__ = part.clockhands_classes[1]


def _module(model: Any) -> nn.Module:
    module = module_of(model)
    if module is None:
        raise InvalidType(f"`model` must be a PyTorch module, got {shown(model)}.", "Give the loaded model.")
    return getattr(module, "_orig_mod", module)


def _swapped(module: nn.Module) -> dict[str, Any]:
    return {path: part for path, part in module.named_modules() if isinstance(part, Swapped)}


def _in_use(code: LayerEncoding, module: nn.Module) -> bool:
    """Whether a code belongs to a text part that the model has; a config may declare an encoder that it lacks."""
    if code.part not in ("encoder", "decoder"):
        return of_text(code)
    return any(path.rpartition(".")[2] == code.part for path, _ in module.named_modules())


def _named(code: LayerEncoding) -> str:
    names = {"rotary": "a rotary encoding", "sinusoidal": "a sinusoidal table", "alibi": "linear biases (ALiBi)"}
    return names.get(code.kind or "", f"{code.kind} positions")


def _served(code: LayerEncoding, changes: list[Change]) -> bool:
    """Whether every layer of a code is in one of the changes."""
    own = [
        layers
        for change in changes
        for each, layers in change.codes
        if (each.kind, each.part) == (code.kind, code.part)
    ]
    if code.layers in (None, "input") or None in own:
        return bool(own)
    return layer_numbers(code.layers) <= {number for layers in own for number in layer_numbers(layers or "")}


# Cosines and sines


def _of_rotary_part(name: str, part: DeclaredPart) -> list[Change]:
    """The change of a module that returns cosines and sines; empty if it does not belong to a text part."""
    expected = {kind: codes for kind, codes in part.codes.items() if any(of_text(each.code) for each in codes)}
    if not expected:
        return []
    served = tuple((each.code, each.layers) for codes in expected.values() for each in codes)
    if isinstance(getattr(part.owner, "embed_positions", None), Tensor):  # no buffer in Transformers 4
        rows = _sines_then_cosines(name, part, expected[None])
        return [Change(part.paths[0], part.owner, served, ExactAttentionTable, buffers={"embed_positions": rows})]
    kept = {"clockhands_output": outputs_of(name, part), "clockhands_length": {}}
    return [Change(part.paths[0], part.owner, served, ExactRotary, kept)]


def _sines_then_cosines(name: str, part: DeclaredPart, codes: tuple[Expected, ...]) -> Tensor:
    """The exact table of an attention module that keeps sines, then cosines, of all positions."""
    own: Tensor = part.owner.embed_positions
    spec = certain(name, part.paths[0], codes)
    rows = exact_rows(spec, own) if own.ndim == 2 and own.shape[1] == spec.rotated else None
    if rows is None or not _close(own, rows, max(spec.rates), codes[0].slack):
        raise differs(name, part.paths[0])
    return rows


def _close(own: Tensor, exact: Tensor, fastest: float, slack: float = 2.0**-22) -> bool:
    """Whether rows of sines and cosines are as close to the exact ones as float32 phases allow."""
    rounded = UNIT_ROUNDOFF[str(own.dtype).removeprefix("torch.")]
    phases = torch.arange(len(own), device=own.device)[:, None] * fastest
    bound = error_bound(phases, slack, ROUNDING + rounded)
    return own.shape == exact.shape and bool(((own.double() - exact.double()).abs() <= bound).all())


# Tables added to tokens


def _of_tables(module: nn.Module, codes: Sequence[LayerEncoding]) -> Iterator[Change]:
    """The changes of modules that keep computed tables, saved or not."""
    name = type(module).__name__
    for held in walked(module).of("rows"):
        owner, own = held.owner, held.tensor.detach()
        declared = [code for code in in_part(codes, held.paths) if code.kind in ("sinusoidal", "rotary")]
        # A class with its own forward looks rows up there; the weights of a plain embedding may be added as they are.
        saved = isinstance(owner, nn.Embedding) and type(owner) is not nn.Embedding and held.name == "weight"
        grown = held.name == "weights" and hasattr(owner, "get_embedding")
        if not declared or not of_text(declared[0]) or not (saved or grown):
            continue
        code, served = declared[0], tuple((code, None) for code in declared)
        spec = frequencies_of(code.spec) if isinstance(code.spec, Rotary) else code.spec
        wide = rows = None
        if isinstance(spec, Sinusoidal | Rotary) and own.ndim == 2 and own.shape[1] == _channels(spec):
            wide = exact_rows(spec, own.double())
            rows = wide.to(own.dtype) if _close(own, wide.to(own.dtype), max(spec.rates)) else None
        if wide is None or rows is None:
            if code.kind == "rotary":
                continue  # a table that is learned, beside a rotation
            raise differs(name, held.paths[0])
        if saved:
            yield Change(held.paths[0], owner, served, ExactRows, _table_beside(wide, rows))
        elif isinstance(spec, Sinusoidal):
            yield Change(held.paths[0], owner, served, ExactTable, {"clockhands_spec": spec}, {held.name: rows})


def _table_beside(numbers: Tensor, rows: Tensor) -> dict[str, Any]:
    """What `RowsBeside` keeps: the exact values, and the table as the part uses it."""
    return {"clockhands_numbers": numbers.cpu().numpy().copy(), "clockhands_rows": rows}


def _channels(spec: Sinusoidal | Rotary) -> int:
    return spec.rotated if isinstance(spec, Rotary) else spec.width


# Biases

_KEYS = 256
_T5, _T5_ARGUMENTS = "_relative_position_bucket", ("bidirectional", "num_buckets", "max_distance")


def _of_biases(module: nn.Module, codes: Sequence[LayerEncoding]) -> Iterator[Change]:
    """The changes of modules whose methods compute biases."""
    name = type(module).__name__
    for path, part in module.named_modules():
        owner: Any = part
        for method, (kind, exact, agrees) in _BIASES.items():
            declared = [code for code in in_part(codes, (path,)) if isinstance(code.spec, kind) and of_text(code)]
            if not declared or not callable(getattr(owner, method, None)):
                continue
            if method == _T5 and not getattr(owner, "has_relative_attention_bias", False):
                continue
            spec = declared[0].spec
            kept = {"clockhands_spec": spec}
            if isinstance(spec, Buckets):
                rows = torch.from_numpy(buckets_of(spec))
                kept |= _table_beside(rows, rows.to(owner.relative_attention_bias.weight.device))
            if not agrees(owner, exact, SimpleNamespace(**kept), spec):
                raise differs(name, path)
            yield Change(path, owner, tuple((code, None) for code in declared), exact, kept)


def _same_lines(owner: Any, exact: Any, kept: Any, spec: Alibi) -> bool:
    """Whether BLOOM's biases are those of the spec."""
    mask = torch.ones(1, _KEYS, dtype=torch.int64)
    mask[:, :3] = 0
    made = exact.build_alibi_tensor(kept, mask, spec.heads, torch.float32)
    return _near(owner.build_alibi_tensor(mask, spec.heads, torch.float32), made)


def _same_last_row(owner: Any, exact: Any, kept: Any, spec: Alibi) -> bool:
    """Whether MPT's biases are those of the spec."""
    made = exact.build_mpt_alibi_tensor(kept, spec.heads, _KEYS)
    return _near(owner.build_mpt_alibi_tensor(spec.heads, _KEYS), made)


def _near(own: Tensor, exact: Tensor) -> bool:
    """Equal up to the rounding of a slope, three float32 roundings: a power, a quotient and a product."""
    return own.shape == exact.shape and bool(torch.allclose(own.float(), exact, rtol=2.0**-21, atol=0.0))


def _same_buckets(owner: Any, exact: Any, kept: Any, spec: Buckets) -> bool:
    """Whether an attention's buckets are those of the spec, at every distance."""
    own = (not owner.is_decoder, owner.relative_attention_num_buckets, owner.relative_attention_max_distance)
    if own != (spec.bidirectional, spec.buckets, spec.max_distance):
        return False
    places = torch.arange(-2 * spec.max_distance, 2 * spec.max_distance + 1, device=kept.clockhands_rows.device)
    # The method of UMT5 reads these three attributes from the attention module.
    takes = inspect.signature(getattr(owner, _T5)).parameters
    more = {name: each for name, each in zip(_T5_ARGUMENTS, own, strict=True) if name in takes}
    return torch.equal(getattr(owner, _T5)(places, **more), getattr(exact, _T5)(kept, places))


_BIASES: Mapping[str, tuple[type, type, Callable[[Any, Any, Any, Any], bool]]] = {
    "build_alibi_tensor": (Alibi, ExactBloom, _same_lines),
    "build_mpt_alibi_tensor": (Alibi, ExactMpt, _same_last_row),
    _T5: (Buckets, ExactBuckets, _same_buckets),
}
"""Method that makes biases: the spec that it is of, the class with the exact method, and whether both agree."""
