"""Exact code in the place of a model's own, and the model's own back again.

A part is changed by its class: the new class is made from the part's own and overrides the one method that makes
numbers of positions. Weights, buffers, hooks and names stay as they are, so saving, loading, copying and caches do not
notice. What the new class returns is compared with what the old one returned before anything is changed.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.arguments import shown
from clockhands.auditing.modules import DeclaredPart, Expected, declared_parts, module_of
from clockhands.diagnosis import Cosines, of_table
from clockhands.errors import InvalidType, InvalidValue
from clockhands.rotary import Rotary
from clockhands.scaling import Dynamic, LongRope
from clockhands.sources.resolved import TEXT, Code, layer_numbers
from clockhands.transformers._rotary_part import ExactRotary, Form, RotaryOutput, frequencies_of

_NEAR, _FAR = 512, (777, 1024, 2049, 4097, 8191)
_PART_MAY_RAISE = (Exception,)


@dataclass(frozen=True, eq=False)
class Change:
    """One part that is to be changed: nothing is until `make` is called.

    Attributes:
        paths: Where the part is in the model.
        code: The kind of the code.
        layers: The layers that it serves; None for all of its part.
        make: What changes it.
    """

    paths: tuple[str, ...]
    kind: str
    layers: str | None
    make: Callable[[], None]


class Swapped:
    """The mark of a class that stands in for another, which is its last base."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by the class that it stands in for."""
        return _empty, (type(self).__mro__[1], type(self).__mro__[2]), vars(self)


def _empty(exact: type, own: type) -> Any:
    made = exact_class(exact, own)
    return made.__new__(made)


@cache
def exact_class(exact: type, own: type) -> type:
    """The class of a part of the class ``own`` with the methods of ``exact``."""
    return type(f"Exact{own.__name__}", (exact, own, Swapped), {"__module__": own.__module__, "__doc__": own.__doc__})


def swap(model: nn.Module) -> tuple[str, ...]:
    """Put exact position code in the place of a model's own.

    What a model computes of positions, cosines and sines, sinusoidal tables, biases, then comes from exact phases. Its
    weights, buffers, config, caches, hooks and saved files stay as they are; learned tables too. All parts are changed,
    or none.

    Args:
        model: A model of Transformers, or a pipeline.

    Returns:
        The paths of the parts that were changed.

    Accuracy: cosines and sines as `clockhands.rotary.cos_sin`; tables as `clockhands.table`; biases as
    `clockhands.bias`.

    Raises:
        InvalidType: This is no PyTorch module.
        InvalidValue: The model is swapped already, it computes nothing of positions, some layer's code is not known or
            cannot be reached, or a part returns other numbers than the config declares. Nothing is changed then.

    >>> from clockhands.torch import Rotary
    >>> swap(nn.Linear(2, 2))
    Traceback (most recent call last):
        ...
    clockhands.errors.InvalidValue: Linear has no computed position encoding that is known.
    hint: `ch.audit(model)` shows what is known of it.
    """
    module = _module(model)
    name = type(module).__name__
    if _swapped(module):
        raise InvalidValue(f"{name} is swapped already.", "Call `restore(model)` first.")
    resolved, parts = declared_parts(module)
    changes = [change for part in parts for change in _of_rotary_part(name, part)]
    wanted = [code for code in resolved.codes if code.part in (*TEXT, "other") and code.kind not in ("none", "learned")]
    lacking = [code for code in wanted if not _served(code, changes)]
    if lacking:
        code = lacking[0]
        where = f" of the layers {code.layers}" if code.layers not in (None, "input") else ""
        raise InvalidValue(
            f"{name} has {_named(code)}{where} in a place that is not known: nothing was changed.",
            "`ch.audit(model)` shows what is declared; see the families in docs/integration.md.",
        )
    if not changes:
        raise InvalidValue(
            f"{name} has no computed position encoding that is known.", "`ch.audit(model)` shows what is known of it."
        )
    for change in changes:
        change.make()
    return tuple(change.paths[0] for change in changes)


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
        for name in [name for name in vars(part) if name.startswith("clockhands_")]:
            delattr(part, name)
        part.__class__ = type(part).__mro__[2]
    return tuple(found)


def _module(model: Any) -> nn.Module:
    module = module_of(model)
    if module is None:
        raise InvalidType(f"`model` must be a PyTorch module, got {shown(model)}.", "Give the loaded model.")
    return getattr(module, "_orig_mod", module)


def _swapped(module: nn.Module) -> dict[str, nn.Module]:
    return {path: part for path, part in module.named_modules() if isinstance(part, Swapped)}


def _named(code: Code) -> str:
    names = {"rotary": "a rotary encoding", "sinusoidal": "a sinusoidal table", "alibi": "linear biases (ALiBi)"}
    return names.get(code.kind or "", f"positions of the kind {code.kind}")


def _served(code: Code, changes: list[Change]) -> bool:
    own = [change for change in changes if change.kind == code.kind]
    if code.layers in (None, "input"):
        return bool(own)
    numbers = {number for each in own if each.layers is not None for number in layer_numbers(each.layers)}
    return any(each.layers is None for each in own) or layer_numbers(code.layers) <= numbers


# Cosines and sines


def _of_rotary_part(name: str, part: DeclaredPart) -> list[Change]:
    """The change of a module that returns cosines and sines; none where its part of the model is not a text's."""
    if not any(part.codes.values()):
        return []
    expected = {kind: codes for kind, codes in part.codes.items() if codes}
    if all(code.code.part not in (*TEXT, "other") for codes in expected.values() for code in codes):
        return []
    outputs = {kind: _output(name, part, kind, codes) for kind, codes in expected.items()}
    own = type(part.owner)

    def make() -> None:
        part.owner.__class__ = exact_class(ExactRotary, own)
        part.owner.clockhands_output = outputs
        part.owner.clockhands_length = {}

    layers = [code.layers for codes in expected.values() for code in codes]
    whole = None if None in layers else ",".join(str(each) for each in layers)
    return [Change(part.paths, "rotary", whole, make)]


def _output(name: str, part: DeclaredPart, kind: str | None, codes: tuple[Expected, ...]) -> RotaryOutput:
    """What a part returns for a kind of layer: its exact form, once it is known to be what the config declares."""
    where = f"{part.paths[0] or name}{f' ({kind})' if kind else ''}"
    spec = codes[0].code.spec
    if len(codes) != 1 or not codes[0].sure or not isinstance(spec, Rotary) or len(spec.blocks) > 1:
        raise InvalidValue(
            f"It is not certain which rotary encoding {where} of {name} should have: nothing was changed.",
            "`ch.audit(model)` shows what its config declares.",
        )
    if "forward" in vars(part.owner):
        raise InvalidValue(
            f"{where} of {name} has a forward of its own, set by a hook: nothing was changed.",
            "Swap before the model is dispatched, or remove the hook first (accelerate.hooks.remove_hook_from_module).",
        )
    spec = frequencies_of(spec)
    found: RotaryOutput | None = None
    for length in _lengths(spec):
        positions = np.unique([*range(min(_NEAR, length)), *(far for far in _FAR if far < length), length - 1])
        given = _returned(part.owner, kind, positions, len(spec.rates), torch.float32)
        narrow = _returned(part.owner, kind, positions, len(spec.rates), torch.bfloat16)
        output = None if given is None or narrow is None else _form(given, narrow, spec, codes[0], positions, length)
        if output is None or (found is not None and output != found):
            raise InvalidValue(
                f"{where} of {name} does not return the cosines and sines that its config declares: nothing was "
                "changed.",
                "`ch.audit(model)` says what differs; a form that is not known is an issue to report.",
            )
        found = output
    assert found is not None
    return found


def _lengths(spec: Rotary) -> tuple[int, ...]:
    """Lengths at which a part is compared: below and beyond the original one where frequencies depend on it."""
    if isinstance(spec.scaling, LongRope | Dynamic):
        return max(spec.scaling.original - 1, 1), 2 * spec.scaling.original
    return (max(_FAR) + 1,)


def _returned(
    owner: Any, kind: str | None, positions: np.ndarray, pairs: int, dtype: torch.dtype
) -> tuple[Tensor, ...] | None:
    """What a copy of a part returns for these positions; None where it cannot be asked, or returns something else."""
    own = {id(value): value for name, value in vars(owner).items() if name == "config"}
    part = copy.deepcopy(owner, own)
    device = next((each.device for each in (*part.buffers(), *part.parameters())), torch.device("cpu"))
    x = torch.zeros(1, len(positions), 2 * pairs, dtype=dtype, device=device)
    ids = torch.from_numpy(positions.astype(np.int64)).to(device)[None]
    more = () if kind is None else (kind,)
    for given in (ids, torch.stack((ids, 2 * ids, 3 * ids))):
        try:
            with torch.no_grad():
                answer = part(x, given, *more)
        except _PART_MAY_RAISE:
            continue
        parts = answer if isinstance(answer, tuple) else (answer,)
        if not all(isinstance(each, Tensor) for each in parts) or any(each.shape[:-1] != given.shape for each in parts):
            return None
        return tuple(each.reshape(-1, *each.shape[-2:])[0] for each in parts)
    return None


def _form(  # noqa: PLR0917 - what a part returned, and what it should have
    given: tuple[Tensor, ...],
    narrow: tuple[Tensor, ...],
    spec: Rotary,
    expected: Expected,
    positions: np.ndarray,
    length: int,
) -> RotaryOutput | None:
    """How pairs lie in what a part returned; None where it is not what is declared, at one of the positions."""
    pairs, width = len(spec.rates), given[0].shape[-1]
    if len(given) == 1 and given[0].is_complex():
        forms: Mapping[Form, int] = {"complex": width}
        given = (given[0].real, given[0].imag)
    elif len(given) == 2 and not any(each.is_complex() for each in given):
        forms = {"pairs": width} if width == pairs else {"halves": width // 2, "interleaved": width // 2}
    else:
        return None
    dtype = None if narrow[0].dtype == torch.bfloat16 else narrow[0].dtype
    for form, count in forms.items():
        if count < pairs:
            return None
        output = RotaryOutput(spec, form, count - pairs, None if form == "complex" else dtype)
        made = output(torch.zeros(1, device=given[0].device), torch.from_numpy(positions)[None], length)
        exact = (made.real, made.imag) if form == "complex" else made
        if exact[0].shape[-1] != width:
            continue
        each = [part.double().cpu().numpy().reshape(len(positions), width) for part in (*given, *exact)]
        rates = np.asarray(output.at(length).rates)
        once = {"halves": np.arange(pairs), "interleaved": 2 * np.arange(pairs)}.get(form, np.arange(pairs))
        table = Cosines(positions.astype(np.float64), each[0][:, once], each[1][:, once], "float32")
        if of_table(table, expected, expected.factor_on_cosines, rates).code is not None:
            continue
        # Every channel, and those that never turn: no further from the exact ones than phases of float32 may be.
        phases = positions[:, None] * max(rates)
        bound = expected.factor_on_cosines * (2.0**-21 + phases * (expected.slack + 2.0**-23))
        if all((np.abs(own - right) <= bound).all() for own, right in zip(each[:2], each[2:], strict=True)):
            return output
    return None
