"""Calls a copy of a Transformers module and compares what it returns with what the model's config declares."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.auditing.modules import DeclaredPart, Expected
from clockhands.configs.resolved import TEXT, Code
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Dynamic, LongRope
from clockhands.errors import InvalidValue
from clockhands.recognition.diagnosis import Cosines, of_table
from clockhands.transformers._rotary_part import Form, RotaryOutput, frequencies_of

_NEAR, _FAR = 512, (777, 1024, 2049, 4097, 8191)
_PART_MAY_RAISE = (Exception,)


def of_text(code: Code) -> bool:
    """Whether a code belongs to a text part, and not to images or audio."""
    return code.part in (*TEXT, "other")


def outputs_of(name: str, part: DeclaredPart) -> dict[str | None, RotaryOutput]:
    """What a part returns for each kind of layer; empty if it does not belong to a text part.

    Raises:
        InvalidValue: It is not certain what it should return, or it returns something else.
    """
    kinds = {kind: codes for kind, codes in part.codes.items() if any(of_text(each.code) for each in codes)}
    return {kind: _output(name, part, kind, codes) for kind, codes in kinds.items()}


def certain(name: str, where: str, codes: tuple[Expected, ...]) -> Rotary:
    """The code of a part, where one is declared and no other can apply."""
    spec = codes[0].code.spec
    if len(codes) != 1 or not codes[0].sure or not isinstance(spec, Rotary) or len(spec.blocks) > 1:
        raise InvalidValue(
            f"It is not certain which rotary encoding {where} of {name} should have: nothing was changed.",
            "`ch.audit(model)` shows what its config declares.",
        )
    return frequencies_of(spec)


def differs(name: str, where: str, owner: Any = None) -> InvalidValue:
    """The error for a part that computes something else than its config declares, with the cause if it was cast."""
    held = () if owner is None else owner.named_buffers()
    narrow = [f"{key} in {str(each.dtype).removeprefix('torch.')}" for key, each in held if each.itemsize < 4]
    if narrow:
        return InvalidValue(
            f"{where} of {name} has {narrow[0]}, too few bits for its frequencies: nothing was changed.",
            "Load the model with from_pretrained(dtype=...), which keeps them in float32, or swap first and cast then.",
        )
    return InvalidValue(
        f"{where} of {name} does not compute the positions that its config declares: nothing was changed.",
        "`ch.audit(model)` says what differs, where it is a fault that is known.",
    )


def _output(name: str, part: DeclaredPart, kind: str | None, codes: tuple[Expected, ...]) -> RotaryOutput:
    """What a part returns for a kind of layer, in exact form, once that is known to agree with the config."""
    where = f"{part.paths[0] or name}{f' ({kind})' if kind else ''}"
    spec = certain(name, where, codes)
    if "forward" in vars(part.owner):
        raise InvalidValue(
            f"The forward of {where} in {name} was replaced on the object, as hooks do: nothing was changed.",
            "Swap before the model is dispatched, or remove the hook first (accelerate.hooks.remove_hook_from_module).",
        )
    found: RotaryOutput | None = None
    for length in _lengths(spec):
        positions = np.unique([*range(min(_NEAR, length)), *(far for far in _FAR if far < length), length - 1])
        given = _returned(part.owner, kind, positions, len(spec.rates), torch.float32)
        narrow = _returned(part.owner, kind, positions, len(spec.rates), torch.bfloat16)
        if given is None or narrow is None:
            raise InvalidValue(
                f"{where} of {name} is a {type(part.owner).__name__} that returns no cosines and sines for positions "
                "[batch, seq], as the rotary modules of Transformers do: nothing was changed.",
                "`swap` knows the families that docs/guides/transformers.md lists; `ch.audit(model)` checks others.",
            )
        output = _form(given, narrow, spec, codes[0], positions, length)
        if output is None or (found is not None and output != found):
            raise differs(name, where, part.owner)
        found = output
    assert found is not None
    found = _with_axes(part.owner, kind, found, codes[0])
    if found is None:
        raise differs(name, where)
    return found


def _with_axes(owner: Any, kind: str | None, output: RotaryOutput, expected: Expected) -> RotaryOutput | None:
    """The output with the axis of each pair, for a part that takes three coordinates of a token and returns one row.

    None if what it returns for three coordinates does not agree with the config.
    """
    longest = _lengths(output.spec)[0]
    ids = torch.arange(min(64, max(longest // 4, 1)))[None]
    given = torch.stack((ids, 2 * ids, 3 * ids))
    answer = _called(owner, kind, given, len(output.spec.rates), torch.float32)
    declared = expected.code.spec
    axes = declared.axes if isinstance(declared, Rotary) else None
    # A part for one coordinate raises, or returns an array of another shape (Transformers 5.0 to 5.17).
    if answer is None or (axes is None and answer[0].shape[:-1] not in (ids.shape, given.shape)):
        return output
    if answer[0].shape[:-1] == ids.shape and isinstance(declared, Rotary) and axes is not None:
        output = replace(output, of_axes=replace(frequencies_of(declared), axes=axes))
    device = answer[0].device
    made = output(torch.zeros(1, dtype=torch.float32, device=device), given.to(device), longest)
    exact = (made,) if isinstance(made, Tensor) else made
    bound = expected.factor_on_cosines * (2.0**-21 + 192 * max(output.spec.rates) * (expected.slack + 2.0**-23))
    pairs = zip(answer, exact, strict=True)
    same = all(own.shape == right.shape and bool(((own - right).abs() <= bound).all()) for own, right in pairs)
    return output if same else None


def _lengths(spec: Rotary) -> tuple[int, ...]:
    """Lengths at which a part is compared: below and beyond the original one where frequencies depend on it."""
    if isinstance(spec.scaling, LongRope | Dynamic):
        return max(spec.scaling.original - 1, 1), 2 * spec.scaling.original
    return (max(_FAR) + 1,)


def _returned(
    owner: Any, kind: str | None, positions: np.ndarray, pairs: int, dtype: torch.dtype
) -> tuple[Tensor, ...] | None:
    """Rows that a part returns for these positions; None if it cannot be called, or returns something else."""
    ids = torch.from_numpy(positions.astype(np.int64))[None]
    for given in (ids, torch.stack((ids, ids, ids))):
        parts = _called(owner, kind, given, pairs, dtype)
        if parts is not None and all(part.shape[-2] == len(positions) for part in parts):
            return tuple(part.reshape(-1, *part.shape[-2:])[0] for part in parts)
    return None


def _called(owner: Any, kind: str | None, ids: Tensor, pairs: int, dtype: torch.dtype) -> tuple[Tensor, ...] | None:
    """What a copy of a part returns, one or two arrays; None where it raises, or returns something else."""
    own = {id(value): value for name, value in vars(owner).items() if name == "config"}
    part = copy.deepcopy(owner, own)
    device = next((each.device for each in (*part.buffers(), *part.parameters())), torch.device("cpu"))
    x = torch.zeros(1, ids.shape[-1], 2 * pairs, dtype=dtype, device=device)
    try:
        with torch.no_grad():
            answer = part(x, ids.to(device), *(() if kind is None else (kind,)))
    except _PART_MAY_RAISE:
        return None
    parts = answer if isinstance(answer, tuple) else (answer,)
    return parts if parts and all(isinstance(each, Tensor) and each.ndim > 1 for each in parts) else None


def _form(  # noqa: PLR0917 - what a part returned, and what it should have
    given: tuple[Tensor, ...],
    narrow: tuple[Tensor, ...],
    spec: Rotary,
    expected: Expected,
    positions: np.ndarray,
    length: int,
) -> RotaryOutput | None:
    """How the pairs are arranged in the returned rows; None if the rows disagree with the config somewhere."""
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
        made = output(
            torch.zeros(1, dtype=torch.float32, device=given[0].device), torch.from_numpy(positions)[None], length
        )
        exact = (made.real, made.imag) if form == "complex" else made
        if exact[0].shape[-1] != width:
            continue
        each = [part.double().cpu().numpy().reshape(len(positions), width) for part in (*given, *exact)]
        rates = np.asarray(output.at(length).rates)
        once = np.arange(pairs) * (2 if form == "interleaved" else 1)
        table = Cosines(positions.astype(np.float64), each[0][:, once], each[1][:, once], "float32")
        if of_table(table, expected, expected.factor_on_cosines, rates).code is not None:
            continue
        # Every channel, including those that never rotate, must be as close to the exact value as float32 phases allow.
        phases = positions[:, None] * max(rates)
        bound = expected.factor_on_cosines * (2.0**-21 + phases * (expected.slack + 2.0**-23))
        if all((np.abs(own - right) <= bound).all() for own, right in zip(each[:2], each[2:], strict=True)):
            return output
    return None
