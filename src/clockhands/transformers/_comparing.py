"""Compares what a copy of a Transformers module returns with what the model's config declares."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.configs.expected_rates import Expected
from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Dynamic, LongRope
from clockhands.errors import InvalidValue
from clockhands.models.declared_parts import DeclaredPart
from clockhands.models.measured_rotations import ROWS, RotaryPart, compared, cosines_in, error_bound
from clockhands.recognition.probe_positions import probe_positions
from clockhands.transformers._rotary_part import Form, RotaryOutput, frequencies_of

ROUNDING = 2.0**-21
"""Of a cosine or sine that float32 arithmetic makes of a phase, and of the exact one."""

_LENGTH = 8192  # of a part whose frequencies do not depend on the length


def of_text(code: LayerEncoding) -> bool:
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
    rotary, pairs = RotaryPart(part.owner, kind, by_place=True), len(spec.rates)
    found: RotaryOutput | None = None
    for length in _lengths(spec):
        positions = probe_positions(length, ROWS)
        given, narrow = (rotary.rows(positions, pairs, dtype) for dtype in (torch.float32, torch.bfloat16))
        if given is None or narrow is None:
            raise InvalidValue(
                f"{where} of {name} is a {type(part.owner).__name__} that returns no cosines and sines for positions "
                "[batch, seq], as the rotary modules of Transformers do: nothing was changed.",
                "`swap` knows the families that docs/guides/transformers.md lists; `ch.audit(model)` checks others.",
            )
        output = _form(given, narrow[0].dtype, spec, codes[0], positions, length)
        if output is None or (found is not None and output != found):
            raise differs(name, where, part.owner)
        found = output
    assert found is not None
    found = _with_axes(rotary, found, codes[0])
    if found is None:
        raise differs(name, where)
    return found


def _with_axes(part: RotaryPart, output: RotaryOutput, expected: Expected) -> RotaryOutput | None:
    """The output with the axis of each pair, for a part that takes three coordinates of a token and returns one row.

    None if what it returns for three coordinates does not agree with the config.
    """
    longest = _lengths(output.spec)[0]
    ids = torch.arange(min(64, max(longest // 4, 1)))[None]
    given = torch.stack((ids, 2 * ids, 3 * ids))
    answer = part.output(given, len(output.spec.rates))
    declared = expected.code.spec
    axes = declared.axes if isinstance(declared, Rotary) else None
    # A part for one coordinate raises, or returns an array of another shape (Transformers 5.0 to 5.17).
    if answer is None or (axes is None and answer[0].shape[:-1] not in (ids.shape, given.shape)):
        return output
    if answer[0].shape[:-1] == ids.shape and isinstance(declared, Rotary) and axes is not None:
        output = replace(output, of_axes=replace(frequencies_of(declared), axes=axes))
    phases = 3 * ids.max() * max(output.spec.rates)
    bound = expected.factor_on_cosines * error_bound(phases, expected.slack, ROUNDING)
    return output if _agrees(answer, output, given, longest, bound) else None


def _agrees(own: tuple[Tensor, ...], output: RotaryOutput, ids: Tensor, length: int, bound: Any) -> bool:
    """Whether every number that a part returned is as close to the exact one as float32 phases allow."""
    made = output(torch.zeros(1, dtype=torch.float32, device=own[0].device), ids, length)
    exact = (made,) if isinstance(made, Tensor) else made
    return len(own) == len(exact) and all(
        one.shape == right.shape and bool(((one - right).abs().cpu() <= bound).all())
        for one, right in zip(own, exact, strict=True)
    )


def _lengths(spec: Rotary) -> tuple[int, ...]:
    """Lengths at which a part is compared: below and beyond the original one where frequencies depend on it."""
    if isinstance(spec.scaling, LongRope | Dynamic):
        return max(spec.scaling.original - 1, 1), 2 * spec.scaling.original
    return (_LENGTH,)


def _form(  # noqa: PLR0917 - what a part returned, and what it should have
    given: tuple[Tensor, ...],
    narrow: torch.dtype,
    spec: Rotary,
    expected: Expected,
    positions: np.ndarray,
    length: int,
) -> RotaryOutput | None:
    """How the pairs are arranged in the returned rows; None if the rows disagree with the config somewhere."""
    pairs, width = len(spec.rates), given[0].shape[-1]
    waves = cosines_in(given, positions, pairs)
    if waves is None:
        return None
    dtype = None if narrow == torch.bfloat16 else narrow
    forms: Mapping[Form, int] = {"halves": width // 2, "interleaved": width // 2}
    if len(given) == 1 or width == pairs:
        forms = {"complex" if len(given) == 1 else "pairs": width}
    outputs = [
        RotaryOutput(spec, form, count - pairs, None if form == "complex" else dtype) for form, count in forms.items()
    ]
    rates = np.asarray(outputs[0].at(length).rates)
    if compared(waves, expected, rates).code is not None:
        return None
    # Every channel, including those that never rotate, must be as close to the exact value as float32 phases allow.
    ids = torch.from_numpy(positions)[None]
    bound = expected.factor_on_cosines * error_bound(ids.mT * max(rates), expected.slack, ROUNDING)
    rows = tuple(each[None] for each in given)
    return next((output for output in outputs if _agrees(rows, output, ids, length, bound)), None)
