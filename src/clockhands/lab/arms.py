"""What an arm computes: its spec at the sizes of the model, at a length, and as a variant at test time."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clockhands import additive, biases, rotary, scaling, specs
from clockhands.arguments import shown
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.faults import FAULTS
from clockhands.lab.start import sizes_of_start
from clockhands.lab.store import Key
from clockhands.lab.study import AS_TRAINED, Arm, AtTest, Model, Study, near
from clockhands.memory import refuse_larger
from clockhands.mixtures import LayerMixture
from clockhands.presets import preset

NONE = "none"
"""How a study file says that there is no position encoding."""

Code = specs.Spec | None


@dataclass(frozen=True)
class Setting:
    """A code as one evaluation, or the training, needs it.

    Attributes:
        spec: The spec; None where there is no code.
        fault: The code of the fault that it is built with, or "".
        logit_scale: c of ``1 + c ln s``.
        scaled_by: s, the length over the trained length, at least 1.
    """

    spec: Code
    fault: str = ""
    logit_scale: float = 0.0
    scaled_by: float = 1.0


def setting(
    arm: Arm, model: Model, trained: int, length: int, variant: str = AS_TRAINED, *, dropped: bool = False
) -> Setting:
    """What an arm computes for sequences of a length.

    Args:
        arm: The arm.
        model: Its model, whose sizes the spec takes.
        trained: Tokens of a training sequence.
        length: Tokens of the sequence.
        variant: The name of a change at test time; "" is as trained.
        dropped: Whether the code has been dropped in training.

    Raises:
        InvalidValue, InvalidType: The code does not exist, or not at these sizes.
    """
    ratio = max(1.0, length / trained)
    change = AtTest() if variant == AS_TRAINED else arm.at_test[variant]
    made = None if dropped else spec_of(arm.code, model, trained, arm.channels)
    if change.code is not None:
        made = spec_of(change.code, model, trained, arm.channels)
    if change.scaling is not None and ratio > 1:
        made = _scaled(made, change.scaling, ratio, trained, length)
    return Setting(_at_length(made, length), change.fault or arm.fault, change.logit_scale, ratio)


def spec_of(code: Any, model: Model, trained: int, channels: int = 0) -> Code:
    """The spec that a study file's ``code`` says, at the sizes of a model.

    Args:
        code: "none", a preset with its fields as on the command line, or a table with ``type``. Fields that follow from
            the model (``width``, ``heads``, ``head_width``, ``rows``, ``length``) may be left out; ``base`` sets the
            base of the frequencies, and ``share`` the part of each head that is rotary. A table with ``codes`` and
            ``pattern`` gives layers different codes.
        model: Its sizes.
        trained: Tokens of a training sequence: the rows of a learned table unless it says otherwise.
        channels: The width of an additive code, where it is not the model's.

    Raises:
        InvalidValue, InvalidType: There is no such code, or not at these sizes.
    """
    if isinstance(code, str):
        if code == NONE:
            return None
        name, *fields = code.replace(",", ":").split(":")
        given = {key: _number(value) for key, _, value in (each.partition("=") for each in fields)}
        made = preset(name)
        return preset(name, **{**_sizes(type(made), model, trained, channels), **given})
    if not isinstance(code, Mapping):
        raise InvalidType(f"A `code` must be text or a table, got {shown(code)}.", 'Write code = {type = "Rotary"}.')
    if "codes" in code and "type" not in code:
        codes = tuple(spec_of(each, model, trained, channels) for each in code["codes"])
        return LayerMixture(codes, tuple(code.get("pattern", range(len(codes)))))
    table = dict(code)
    base, share = table.pop("base", None), table.pop("share", None)
    kind = next((each for each in specs.SPECS if each.__name__ == table.get("type")), None)
    if kind is None:
        names = [each.__name__ for each in specs.SPECS]
        raise InvalidValue(f"There is no code of type {shown(table.get('type'))}.", near(str(table.get("type")), names))
    if kind is additive.NoPosition:
        return None
    made = specs.from_dict({**_sizes(kind, model, trained, channels), **table})
    if base is not None:
        made = specs.with_fields(made, base=base)
    if share is not None:
        rotated = round(share * model.head_width / 2) * 2
        made = specs.with_fields(made, rotated=rotated)
    return made


def _sizes(kind: type, model: Model, trained: int, channels: int) -> dict[str, Any]:
    """The fields of a spec that follow from the model."""
    sizes = {
        "width": channels or model.width,
        "heads": model.heads,
        "head_width": model.head_width,
        "rows": trained,
        "length": trained,
    }
    if issubclass(kind, biases.Window):  # a window in the plane; a text is one row of it
        sizes |= {"height": 1, "width": trained}
    known = {each.name for each in dataclasses.fields(kind) if each.init}
    if issubclass(kind, rotary.Rotary):
        known.discard("length")
    if issubclass(kind, biases.Buckets):
        return {"heads": model.heads, "bidirectional": False}
    return {name: size for name, size in sizes.items() if name in known}


def _scaled(spec: Code, table: Any, ratio: float, trained: int, length: int) -> Code:
    """A rotary code with a scaling; what it leaves out is the ratio of the lengths, and the trained length."""
    if isinstance(spec, LayerMixture):
        codes = tuple(
            _scaled(code, table, ratio, trained, length) if isinstance(code, rotary.Rotary) else code
            for code in spec.codes
        )
        return dataclasses.replace(spec, codes=codes)
    if not isinstance(spec, rotary.Rotary):
        raise InvalidValue(f"A scaling is for rotary codes, got {type(spec).__name__}.", "Leave `scaling` out.")
    if not isinstance(table, Mapping):
        raise InvalidType(f"`scaling` must be a table, got {shown(table)}.", 'Write scaling = {type = "Yarn"}.')
    kind = next(
        (each for each in specs.PARTS if each.__name__ == table.get("type") and hasattr(scaling, each.__name__)), None
    )
    if kind is None:
        names = [each.__name__ for each in specs.PARTS if hasattr(scaling, each.__name__)]
        raise InvalidValue(f"There is no scaling {shown(table.get('type'))}.", near(str(table.get("type")), names))
    own = {each.name for each in dataclasses.fields(kind)}
    sizes = {name: value for name, value in {"factor": ratio, "original": trained}.items() if name in own}
    fields = {name: value for name, value in table.items() if name != "type"}
    for name in fields:
        if name not in own:
            raise InvalidValue(f"{kind.__name__} has no field {name!r}.", near(name, own))
    return dataclasses.replace(spec, scaling=kind(**{**sizes, **fields}), length=length)


def _at_length(spec: Code, length: int) -> Code:
    """A code that depends on the length of the sequence, at that length."""
    if isinstance(spec, additive.NormalizedCounter):
        return dataclasses.replace(spec, length=max(2, length))
    if isinstance(spec, LayerMixture):
        return dataclasses.replace(spec, codes=tuple(_at_length(code, length) for code in spec.codes))
    return spec


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def last_position(spec: Code, model: Model) -> int | None:
    """The last position that a code has numbers for; None where there is no end."""
    if isinstance(spec, additive.Learned):
        return spec.rows - 1 - spec.offset
    if isinstance(spec, biases.Window):
        return spec.tokens - 1
    if isinstance(spec, LayerMixture):
        ends = [end for code in spec.codes if (end := last_position(code, model)) is not None]
        return min(ends, default=None)
    return None


def check(study: Study) -> None:
    """Refuse what cannot be trained, before anything is: every arm at every length of every task.

    Raises:
        InvalidValue, InvalidType: A code does not exist, or ends before a length that is evaluated.
        TooLarge: A trial would need more memory than there is.
    """
    for key in dict.fromkeys(Key(each.task, each.arm, 0) for each in study.trial_keys()):
        arm, model, training = study.arms[key.arm], study.model_of(key), study.training_of(key)
        try:
            _check(study, key, arm, model, training.length)
        except ClockhandsError as wrong:
            raise type(wrong)(f"In `arms.{key.arm}` for `tasks.{key.task}`: {wrong.message}", wrong.hint) from None


def _check(study: Study, key: Key, arm: Arm, model: Model, trained: int) -> None:
    if model.start:
        model = sizes_of_start(model, study.tasks[key.task].task.vocabulary)
    for fault in (arm.fault, *(change.fault for change in arm.at_test.values())):
        if fault and fault not in FAULTS:
            raise InvalidValue(f"there is no fault {fault!r}.", near(fault, FAULTS))
    lengths = (trained, *study.lengths_of(key))
    for length in lengths:
        study.tasks[key.task].task.check(length)
    for variant in (AS_TRAINED, *arm.at_test):
        for length in lengths:
            spec = setting(arm, model, trained, length, variant).spec
            if isinstance(spec, LayerMixture) and len(spec.pattern) > model.layers:
                raise InvalidValue(
                    f"`pattern` names {len(spec.pattern)} layers, and the model has {model.layers}.", "Shorten it."
                )
            end = last_position(spec, model)
            if end is not None and end < length - 1:
                raise InvalidValue(
                    f"{type(spec).__name__} ends at position {end}, and length {length} is evaluated.",
                    f"Give the arm lengths = [{trained}], or the code more rows.",
                )
    if arm.positions is not None:
        largest = arm.positions.largest + (trained if arm.positions.draw == "shifted" else 0)
        end = last_position(spec_of(arm.code, model, trained, arm.channels), model)
        if end is not None and end < largest - 1:
            raise InvalidValue(
                f"the code ends at position {end}, and positions to {largest - 1} are drawn.", "Give it more rows."
            )
        if arm.positions.draw == "randomised" and arm.positions.largest < trained:
            raise InvalidValue(
                f"`positions.largest` must be at least the training length {trained}, got {arm.positions.largest}.",
                "Draw from at least as many positions as there are tokens.",
            )
    plan = study.tasks[key.task]
    training = study.training_of(key)
    hint = "Use fewer sequences, or shorter ones."
    # What one pass holds at least: the scores of a layer where there is a bias, and the logits with their gradient.
    refuse_larger((training.sequences, trained, plan.task.vocabulary, 3), 4, "The logits of a training step", hint)
    refuse_larger(
        (model.layers, training.sequences, trained, model.width, 16), 4, "The activations of a training step", hint
    )
    refuse_larger((model.heads, max(lengths), max(lengths), 2), 4, "The attention bias of the longest sequence", hint)
    parameters = model.layers * 12 * model.width**2 + 2 * plan.task.vocabulary * model.width
    refuse_larger((parameters, 4), 4, "The parameters with their optimiser state", "Use a smaller model.")
