"""Determines what an arm computes: its spec for the sizes of the model, a length, and a variant at test time."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.arguments import real, set_fields
from clockhands.configs.own_encodings import NamedEncoding
from clockhands.encodings import additive, biases, rotary, specs
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.presets import preset
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.lab._start import sizes_of_start
from clockhands.lab.sections import (
    CODES,
    GRID_CODES,
    SCALINGS,
    Arm,
    AtTest,
    DrawnPositions,
    Model,
    Training,
    near,
    refuse_unknown,
)
from clockhands.lab.store import Key
from clockhands.lab.study import AS_TRAINED, Study
from clockhands.phrases import shown
from clockhands.recognition.faults import FAULTS

NONE = "none"
"""How a study file says that there is no position encoding."""

AT_ONCE = 1 << 14
"""Tokens of an evaluation batch."""


@dataclass(frozen=True)
class LayerCodes:
    """A `LayerMixture` some of whose codes are encodings of the user's own, by their names; each layer has its code.

    Attributes:
        codes, pattern: As there.
        specs: The mixture in which encodings of the user's own are None.
    """

    codes: tuple[Any, ...]
    pattern: tuple[int, ...]
    specs: LayerMixture = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Check the pattern."""
        known = LayerMixture(
            tuple(None if isinstance(each, NamedEncoding) else each for each in self.codes), self.pattern
        )
        set_fields(self, specs=known, pattern=known.pattern)


Mixture = LayerMixture | LayerCodes
Code = specs.Spec | NamedEncoding | LayerCodes | None


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
    arm: Arm,
    model: Model,
    trained: int,
    length: int,
    variant: str = AS_TRAINED,
    *,
    dropped: bool = False,
    causal: bool = True,
) -> Setting:
    """What an arm computes for sequences of a length.

    Args:
        arm: The arm.
        model: Its model, whose sizes the spec takes.
        trained: Tokens of a training sequence.
        length: Tokens of the sequence.
        variant: The name of a change at test time; "" is as trained.
        dropped: Whether the code has been dropped in training.
        causal: Whether the task is causal; see `spec_of`.

    Raises:
        InvalidValue, InvalidType: The code does not exist, or not at these sizes.
    """
    ratio = max(1.0, length / trained)
    change = AtTest() if variant == AS_TRAINED else arm.at_test[variant]
    made = None if dropped else spec_of(arm.code, model, trained, arm.channels, causal=causal)
    if change.code is not None:
        made = spec_of(change.code, model, trained, arm.channels, causal=causal)
    if change.scaling is not None:
        made = _scaled(made, change.scaling, ratio, trained, length)
    fault = change.fault or ("" if dropped else arm.fault)
    return Setting(_at_length(made, length), fault, change.logit_scale, ratio)


def spec_of(code: Any, model: Model, trained: int, channels: int = 0, *, causal: bool = True) -> Code:
    """The spec that a study file's ``code`` says, at the sizes of a model.

    Args:
        code: "none", a preset with its fields as on the command line, a table with ``type``, or one with ``python``,
            the name of an encoding in a file of code. Fields that follow from
            the model (``width``, ``heads``, ``head_width``, ``rows``, ``length``) may be left out; ``base`` sets the
            base of the frequencies, and ``share`` the part of each head that is rotary. A table with ``codes`` and
            ``pattern`` gives layers different codes.
        model: Its sizes.
        trained: Tokens of a training sequence: the rows of a learned table unless it says otherwise.
        channels: The width of an additive code, where it is not the model's.
        causal: Whether a query sees only keys up to its own position. Where it also sees later keys (an encoder), a
            bias is made for both sides unless its fields say otherwise: ALiBi and KERPLE of ``|q - k|``, T5's buckets
            bidirectional. Codes that are defined for earlier keys only are refused.

    Raises:
        InvalidValue, InvalidType: There is no such code, or not at these sizes.
    """
    made = _made(code, model, trained, channels, causal)
    if not causal:
        for each in codes_of(made):
            _refuse_one_sided(each)
    return made


def codes_of(code: Code) -> tuple[Code, ...]:
    """The codes of a mixture; of any other code itself."""
    return code.codes if isinstance(code, Mixture) else (code,)


def _made(code: Any, model: Model, trained: int, channels: int, causal: bool) -> Code:
    if isinstance(code, str):
        if code == NONE:
            return None
        name, *fields = code.replace(",", ":").split(":")
        kinds = {each.lower(): each for each in (*CODES, NONE)}
        if name not in kinds and (kind := kinds.get(name.lower())):
            right = f'code = "{NONE}"' if kind == NONE else f'code = {{ type = "{kind}" }}'
            raise InvalidValue(f"There is no preset {shown(name)}.", f"Write {right}.")
        given = {key: _number(value) for key, _, value in (each.partition("=") for each in fields)}
        sizes = _sizes(type(preset(name)), model, trained, channels, causal)
        return _fitting(preset(name, **{**sizes, **given}), sizes)
    if not isinstance(code, Mapping):
        raise InvalidType(f"`code` must be text or a table, got {shown(code)}.", 'Write code = {type = "Rotary"}.')
    if "python" in code:
        table = {name: value for name, value in code.items() if name not in ("python", "source")}
        file, _, name = code["python"].rpartition(":")
        return NamedEncoding(file, name, code["source"], tuple(table.items()))
    if "codes" in code and "type" not in code:
        refuse_unknown(code, ("codes", "pattern"), "`code`")
        if not isinstance(code["codes"], list):
            raise InvalidType(f"`codes` must be a list, got {shown(code['codes'])}.", "Write codes = [A, B].")
        if not code["codes"]:
            raise InvalidValue("`codes` must not be empty.", "Write codes = [A, B].")
        codes: Any = tuple(_made(each, model, trained, channels, causal) for each in code["codes"])
        pattern = code.get("pattern", range(len(codes)))
        own = any(isinstance(each, NamedEncoding) for each in codes)
        return LayerCodes(codes, pattern) if own else LayerMixture(codes, pattern)
    table = dict(code)
    base, share = table.pop("base", None), table.pop("share", None)
    if "type" not in table:
        raise InvalidValue("The table `code` needs the field `type`.", 'Write code = { type = "Rotary" }.')
    if table.get("type") in GRID_CODES:
        raise InvalidValue(
            f"{table['type']} is an encoding of grids, which the lab does not train.",
            "Use an encoding of one axis, or for the task `neighbour` Rotary with `axes`.",
        )
    if table.get("type") == LayerMixture.__name__:
        raise InvalidValue("`type` cannot be a mixture of layers in a study.", "Write code = { codes = [A, B] }.")
    kind = _known("code of type", table.get("type"), CODES)
    if kind is additive.NoPosition:
        return None
    sizes = _sizes(kind, model, trained, channels, causal)
    made = _fitting(specs.from_dict({**sizes, **table}), sizes)
    if base is not None:
        made = specs.with_fields(made, base=base)
    if share is not None:
        if not 0 < real("share", share) <= 1:
            raise InvalidValue(
                f"`share` must be above 0 and at most 1, got {shown(share)}.",
                "Give the share of the dimensions that rotate; 1 is all.",
            )
        rotated = round(share * model.head_width / 2) * 2
        if not rotated:
            raise InvalidValue(
                f"`share` = {share:g} of the head width {model.head_width} is less than one pair of dimensions.",
                f"Give a share of at least {2 / model.head_width:g}.",
            )
        made = specs.with_fields(made, rotated=rotated)
    return made


def _known(what: str, name: Any, kinds: Mapping[str, Any]) -> Any:
    if not isinstance(name, str) or name not in kinds:
        raise InvalidValue(f"There is no {what} {shown(name)}.", near(name if isinstance(name, str) else "", kinds))
    return kinds[name]


def _fitting(spec: specs.Spec, sizes: Mapping[str, Any]) -> specs.Spec:
    """A spec, if it has the channels and heads of the model."""
    for name in ("width", "heads", "head_width"):
        if name in sizes and getattr(spec, name) != sizes[name]:
            raise InvalidValue(
                f"`{name}` of {type(spec).__name__} is {getattr(spec, name)}, but the model has {sizes[name]}.",
                "Leave it out.",
            )
    return spec


def _refuse_one_sided(spec: Code) -> None:
    """Refuse a code that is not defined for keys after the query."""
    if isinstance(spec, biases.Decay | biases.Fire) or getattr(spec, "xpos", None) is not None:
        name = "Rotary with xpos" if isinstance(spec, rotary.Rotary) else type(spec).__name__
        raise InvalidValue(
            f"{name} is defined for keys up to the query only, but in this task tokens also see later keys.",
            "Set `arms` of this task to arms without this encoding.",
        )


def _sizes(kind: type, model: Model, trained: int, channels: int, causal: bool) -> dict[str, Any]:
    """The fields of a spec that follow from the model and the task."""
    sizes: dict[str, Any] = {
        "width": channels or model.width,
        "heads": model.heads,
        "head_width": model.head_width,
        "rows": trained,
        "length": trained,
    }
    if issubclass(kind, biases.Slopes):  # those of ALiBi where a study gives none
        sizes["slopes"] = biases.Alibi(model.heads).slopes
    if issubclass(kind, biases.Window):  # a window in the plane; a text is one row of it
        sizes |= {"height": 1, "width": trained}
    known = {each.name for each in dataclasses.fields(kind) if each.init}
    if issubclass(kind, rotary.Rotary):
        known.discard("length")
    if issubclass(kind, biases.Buckets):
        return {"heads": model.heads, "bidirectional": not causal}
    if not causal:
        if issubclass(kind, biases.Alibi | biases.Slopes):
            sizes["form"] = "symmetric"
        if issubclass(kind, biases.Kerple):
            sizes["symmetric"] = True
    return {name: size for name, size in sizes.items() if name in known}


def _scaled(spec: Code, table: Any, ratio: float, trained: int, length: int) -> Code:
    """A rotary code with a scaling; missing values are the ratio of the lengths, and the trained length."""
    if isinstance(spec, Mixture):
        codes = tuple(
            _scaled(code, table, ratio, trained, length) if isinstance(code, rotary.Rotary) else code
            for code in spec.codes
        )
        return dataclasses.replace(spec, codes=codes)
    if not isinstance(spec, rotary.Rotary):
        what = "no position encoding" if spec is None else type(spec).__name__
        raise InvalidValue(f"`scaling` is for RoPE, got {what}.", "Leave `scaling` out.")
    if not isinstance(table, Mapping):
        raise InvalidType(f"`scaling` must be a table, got {shown(table)}.", 'Write scaling = {type = "Yarn"}.')
    kind = _known("scaling", table.get("type"), SCALINGS)
    own = {each.name for each in dataclasses.fields(kind)}
    sizes = {name: value for name, value in {"factor": ratio, "original": trained}.items() if name in own}
    fields = {name: value for name, value in table.items() if name != "type"}
    refuse_unknown(fields, own, kind.__name__)
    needed = [each.name for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING]
    if missing := [name for name in needed if name not in sizes and name not in fields]:
        own_needs = ", ".join(name for name in needed if name not in sizes)
        raise InvalidValue(
            f"The scaling {kind.__name__} lacks the field `{missing[0]}`.", f"Required fields: {own_needs}."
        )
    # Lists become tuples: a TOML file has no tuples.
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return dataclasses.replace(spec, scaling=kind(**{**sizes, **given}), length=length)


def _at_length(spec: Code, length: int) -> Code:
    """A code that depends on the length of the sequence, at that length."""
    if isinstance(spec, additive.NormalizedCounter):
        return dataclasses.replace(spec, length=max(2, length))
    if isinstance(spec, Mixture):
        return dataclasses.replace(spec, codes=tuple(_at_length(code, length) for code in spec.codes))
    return spec


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def last_position(spec: Code) -> int | None:
    """The last position for which a code is defined; None if there is no end."""
    if isinstance(spec, additive.Learned):
        return spec.rows - 1 - spec.offset
    if isinstance(spec, biases.Window):
        return spec.tokens - 1
    if isinstance(spec, Mixture):
        ends = [end for code in spec.codes if (end := last_position(code)) is not None]
        return min(ends, default=None)
    return None


def sizes_of(study: Study, key: Key) -> Model:
    """The model of a trial; where it starts from a checkpoint, with the checkpoint's sizes.

    Raises:
        InvalidValue, Unreadable: The checkpoint cannot be used.
    """
    model = study.model_of(key)
    return sizes_of_start(model, study.tasks[key.task].task.vocabulary) if model.start else model


def wanted(study: Study, key: Key) -> Iterator[tuple[str, int, bool]]:
    """The settings that a trial needs: variant, length, and whether the code has been dropped by then."""
    arm, trained = study.arms[key.arm], study.training_of(key).length
    yield AS_TRAINED, trained, False
    for variant in (AS_TRAINED, *arm.at_test):
        for length in study.lengths_of(key):
            yield variant, length, arm.drop is not None


def check(study: Study) -> None:
    """Refuse what cannot be trained, before anything is: every arm at every length of every task.

    Raises:
        InvalidValue, InvalidType: A code does not exist, or ends before a length that is evaluated.
        TooLarge: A trial would need more memory than there is.
    """
    for key in dict.fromkeys(each._replace(seed=0) for each in study.trial_keys()):
        try:
            _check(study, key, study.arms[key.arm], study.training_of(key))
        except ClockhandsError as wrong:
            raise in_arm(key, wrong) from None


def in_arm(key: Key, wrong: ClockhandsError, variant: str = AS_TRAINED) -> ClockhandsError:
    """The same error, prefixed with its place in the study."""
    where = f"`arms.{key.arm}`" + (f", `at_test.{variant}`," if variant else "")
    return type(wrong)(f"In {where} for `tasks.{key.task}`: {wrong.message}", wrong.hint)


def _check(study: Study, key: Key, arm: Arm, training: Training) -> None:
    model, plan, trained = sizes_of(study, key), study.tasks[key.task], training.length
    task = plan.task
    for fault in (arm.fault, *(change.fault for change in arm.at_test.values())):
        if fault and fault not in FAULTS:
            raise InvalidValue(f"there is no fault {fault!r}.", near(fault, FAULTS))
    if arm.code == NONE and (arm.drop or arm.positions):
        raise InvalidValue(
            f"`{'drop' if arm.drop else 'positions'}` needs a position encoding, but the arm has none.", "Leave it out."
        )
    if arm.drop is not None and training.plateau:
        raise InvalidValue("`drop` needs a training whose end is known, and `plateau` ends it.", "Leave `plateau` out.")
    if arm.drop is not None and arm.drop.at[1] == "%" and arm.drop.at[0] > 100:
        raise InvalidValue(
            f"`drop.at` must be at most 100 % of the training, got {arm.drop.at[0]:g} %.", 'Write at = "75 %", say.'
        )
    if arm.drop is not None and (step := training.in_steps(arm.drop.at)) > training.steps:
        raise InvalidValue(
            f"`drop.at` is step {step}, but the training ends at step {training.steps}.", 'Write at = "75 %", say.'
        )
    code = spec_of(arm.code, model, trained, arm.channels, causal=task.causal)
    kinds = codes_of(code)
    added = any(isinstance(each, additive.AdditiveCode) for each in kinds)
    for each in kinds:
        if isinstance(each, rotary.Rotary) and each.number_of_axes not in (1, task.axes):
            what = "lines of tokens" if task.axes == 1 else f"of {task.axes} axes"
            raise InvalidValue(
                f"The encoding has {each.number_of_axes} axes, but the sequences of this task are {what}.",
                "Leave `axes` out; the task `neighbour` has images, of 2 axes.",
            )
    if arm.channels and (not added or arm.channels > model.width):
        raise InvalidValue(
            f"`channels` is for an additive encoding, and must be at most the model's width {model.width}; got "
            f"{arm.channels}.",
            "Leave it out.",
        )
    if arm.slopes == "drawn" and not any(isinstance(each, biases.Alibi) for each in kinds):
        raise InvalidValue('`slopes = "drawn"` is for Alibi, but the arm has another encoding.', "Leave it out.")
    if arm.times != 1 and not (added or any(isinstance(each, biases.BiasCode) for each in kinds)):
        raise InvalidValue("`times` is for additive encodings and for biases, but the arm has none.", "Leave it out.")
    if arm.frequencies == "learned":
        _check_frequencies(arm, kinds)
    if model.sinks and (arm.positions is not None or any(getattr(each, "number_of_axes", 1) > 1 for each in kinds)):
        raise InvalidValue(
            "`sinks` are before the tokens and counted with them, but these tokens have positions of their own.",
            "Leave `sinks` out, or `positions` and `axes`.",
        )
    for variant, length, dropped in wanted(study, key):
        task.check(length)
        spec = setting(arm, model, trained, length, variant, dropped=dropped, causal=task.causal).spec
        if isinstance(spec, Mixture) and len(spec.pattern) > model.layers:
            raise InvalidValue(
                f"`pattern` has {len(spec.pattern)} layers, but the model has {model.layers}.", "Shorten `pattern`."
            )
        end = last_position(spec)
        if end is not None and end < length + model.sinks - 1:
            before = f" after {model.sinks} sinks" if model.sinks else ""
            raise InvalidValue(
                f"{type(spec).__name__} ends at position {end}, but length {length} is evaluated{before}.",
                f"Set lengths = [{trained}] for the arm, or give the encoding more rows.",
            )
    if arm.positions is not None:
        _check_positions(arm, code, arm.positions, trained)
    # The least memory of a pass: the scores of a layer if there is a bias, and the logits with their gradient.
    longest = max(trained, *study.lengths_of(key))
    hint = "Use fewer sequences, or shorter ones."
    for shape, what in (
        *(
            ((plan.evaluation.at_length(length), length, 6), f"The evaluation at length {length}")
            for length in study.lengths_of(key)
        ),
        ((plan.evaluation.curve_sequences, trained, 6), "The evaluation of the training curve"),
        ((training.sequences, trained, task.vocabulary, 3), "The logits of a training step"),
        ((model.layers, training.sequences, trained, model.width, 16), "The activations of a training step"),
        ((max(AT_ONCE, longest), task.vocabulary, 2), "The logits of an evaluation"),
        ((model.heads, longest, longest, 2), "The attention bias of the longest sequence"),
    ):
        refuse_larger(shape, 4, what, hint)
    parameters = model.layers * 12 * model.width**2 + 2 * task.vocabulary * model.width
    refuse_larger((parameters, 4), 4, "The parameters with their optimiser state", "Use a smaller model.")


def _check_frequencies(arm: Arm, codes: Iterable[Code]) -> None:
    rope = [each for each in codes if isinstance(each, rotary.Rotary)]
    changes = arm.at_test.values()
    wrong = ""
    if not rope:
        wrong = "the arm has no RoPE"
    elif any(each.xpos or each.axes or min(each.rates) <= 0 for each in rope):
        wrong = "it has xPos, several axes, or a frequency of 0"
    elif arm.fault or any(change.scaling or change.fault or change.code not in {None, NONE} for change in changes):
        wrong = "a fault, a scaling or another code is made of fixed ones"
    if wrong:
        raise InvalidValue(f'`frequencies = "learned"` is for frequencies of RoPE, but {wrong}.', "Leave it out.")


def _check_positions(arm: Arm, spec: Code, positions: DrawnPositions, trained: int) -> None:
    randomised = positions.draw == "randomised"
    if arm.fault:
        raise InvalidValue(
            "an arm with a `fault` has the positions 0, 1, 2 and so on, so `positions` must not be given.",
            "Remove `positions` from this arm.",
        )
    if randomised and positions.largest < trained:
        raise InvalidValue(
            f"`positions.largest` must be at least the training length {trained}, got {positions.largest}.",
            "Each token needs a position: raise `positions.largest`.",
        )
    last = positions.largest - 1 + (0 if randomised else trained)
    end = last_position(spec)
    if end is not None and end < last:
        raise InvalidValue(
            f"the encoding ends at position {end}, but random positions go to {last}.", "Give the encoding more rows."
        )
