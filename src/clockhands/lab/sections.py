"""The sections of a study file: a frozen dataclass each.

The metadata of a field hold its check, its JSON Schema and one sentence, so that the parser, the published schema and
the documentation always agree.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clockhands.arguments import count, not_negative, positive, real
from clockhands.encodings import scaling, scores, specs
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.phrases import did_you_mean, shown

SCHEMA = 1
"""The version of the format that this code reads."""

GRID_CODES = ("AxialSinusoidal", "FourierFeatures", "LogWindow", "Window")
"""Codes of points in a plane or in space; the lab's tasks are lines of tokens."""

CODES = {kind.__name__: kind for kind in specs.SPECS if kind.__name__ not in (*GRID_CODES, "LayerMixture")}
"""What `type` may be."""
SCALINGS = {kind.__name__: kind for kind in scaling.SCALINGS}
SCALES = {kind.__name__: kind for kind in scores.SCALES}

NAME = r"\w[\w .:%@+-]*"
"""What a task, an arm or a variant may be called: clear in messages and rows, and as the name of a file."""

NAMED = {"pattern": f"^{NAME}$"}

LARGEST_RATE = 1e30
"""A learning rate far above this is not a number of float32."""

_NO_DEFAULT: Any = dataclasses.MISSING


def near(word: str, known: Iterable[str]) -> str:
    """The nearest valid name, or all of them, as a hint."""
    known = list(known)
    return did_you_mean(word, known, f"Valid names: {', '.join(known)}.", alike=0.5)


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse a name that is not known, with the nearest that is.

    Raises:
        InvalidValue: There is one.
    """
    known = list(known)
    for name in given:
        if name not in known:
            raise InvalidValue(f"{where} has the unknown field {name!r}.", near(name, known))


# Each of these functions makes one field of a section.


def _field(says: str, check: Callable[[str, Any], Any], schema: Mapping[str, Any], default: Any = _NO_DEFAULT) -> Any:
    metadata = {"says": says, "check": check, "schema": schema}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def _whole(says: str, default: Any = _NO_DEFAULT, least: int = 1, most: int = 2**31 - 1) -> Any:
    def check(name: str, value: Any) -> int:
        number = count(name, value, least)
        _refuse_above(name, number, most, says)
        return number

    return _field(says, check, {"type": "integer", "minimum": least, "maximum": most}, default)


def _above_zero(says: str, most: float, default: Any = _NO_DEFAULT) -> Any:
    def check(name: str, value: Any) -> float:
        number = positive(name, value)
        _refuse_above(name, number, most, says)
        return number

    return _field(says, check, {"type": "number", "exclusiveMinimum": 0, "maximum": most}, default)


def _refuse_above(name: str, number: float, most: float, says: str) -> None:
    if number > most:
        raise InvalidValue(
            f"`{name}` must be at most {most:,.15g}, got {shown(number)}.", says or "Give a smaller number."
        )


def _from_zero(says: str, default: Any = _NO_DEFAULT) -> Any:
    return _field(says, not_negative, {"type": "number", "minimum": 0}, default)


def _bound(says: str) -> Any:
    def check(name: str, value: Any) -> float:
        if not math.isfinite(real(name, value)):
            raise InvalidValue(f"`{name}` must be finite, got {shown(value)}.", "For no bound, leave it out.")
        return value

    return _field(says, check, {"type": "number"}, None)


def _word(says: str, words: tuple[str, ...], default: Any = _NO_DEFAULT) -> Any:
    def check(name: str, value: Any) -> str:
        if value not in words:
            raise InvalidValue(
                f"`{name}` must be one of {', '.join(words)}, got {shown(value)}.", near(str(value), words)
            )
        return value

    return _field(says, check, {"enum": list(words)}, default)


def _truth(says: str, default: bool) -> Any:
    return _field(says, _of_kind(bool, "true or false", says), {"type": "boolean"}, default)


def _text(says: str, default: Any = _NO_DEFAULT) -> Any:
    return _field(says, _of_kind(str, "text", says), {"type": "string"}, default)


def _of_kind(kind: type, words: str, says: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise InvalidType(f"`{name}` must be {words}, got {shown(value)}.", says)
        return value

    return check


def _list_of(says: str, item: Any, default: Any = _NO_DEFAULT, least: int = 1) -> Any:
    inner = item.metadata

    def check(name: str, value: Any) -> tuple:
        if not isinstance(value, list | tuple):
            raise InvalidType(f"`{name}` must be a list, got {shown(value)}.", says)
        made = tuple(inner["check"](name, each) for each in value)
        if len(made) < least:
            raise InvalidValue(f"`{name}` must not be empty.", says)
        twice = [each for place, each in enumerate(made) if each in made[:place]]
        if twice:
            raise InvalidValue(f"`{name}` holds {twice[0]} twice.", "Name each value once.")
        return made

    return _field(
        says, check, {"type": "array", "items": inner["schema"], "minItems": least, "uniqueItems": True}, default
    )


def _or_table(says: str, item: Any, default: Any) -> Any:
    """One value for all tasks, or a table with one for each task."""
    inner = item.metadata

    def check(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {task: inner["check"](f"{name}.{task}", each) for task, each in value.items()}
        return inner["check"](name, value)

    schema = {"oneOf": [inner["schema"], {"type": "object", "additionalProperties": inner["schema"]}]}
    return _field(says, check, schema, default)


def _by_layer(says: str, item: Any, default: Any) -> Any:
    """One value for all layers, or a list with one for each, which is repeated over the layers."""
    inner = item.metadata

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, list):
            return inner["check"](name, value)
        if not value:
            raise InvalidValue(f"`{name}` must not be empty.", says)
        return tuple(inner["check"](name, each) for each in value)

    schema = {"oneOf": [inner["schema"], {"type": "array", "items": inner["schema"], "minItems": 1}]}
    return _field(says, check, schema, default)


def of_layer(value: Any, layer: int) -> Any:
    """What a field of an arm is in a layer, counted from 0."""
    return value[layer % len(value)] if isinstance(value, tuple) else value


def _score_scale(name: str, value: Any) -> scores.ScoreScale | None:
    if value == "none":
        return None
    kind = value.get("type") if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping) or kind not in SCALES:
        raise InvalidValue(
            f'`{name}` must be a table with the `type` of a scale, or "none", got {shown(value)}.',
            near(str(kind), SCALES),
        )
    made = specs.from_dict(value)
    assert isinstance(made, scores.ScoreScale)
    return made


def _free(says: str, schema: Mapping[str, Any], default: Any = _NO_DEFAULT) -> Any:
    """A value that is checked later, when more is known."""
    return _field(says, lambda _name, value: value, schema, default)


_MOST_STEPS = 10**15  # or tokens
_UNITS = ("steps", "step", "tokens", "%", "percent")


def _duration(says: str, default: Any = _NO_DEFAULT) -> Any:
    """Steps as a number, or text with a unit: "300 steps", "600_000 tokens", "87.5 %"."""
    text = {"type": "string", "pattern": rf"^\s*[0-9]\S*\s+({'|'.join(_UNITS)})\s*$"}
    return _field(says, steps_of, {"oneOf": [{"type": "integer", "minimum": 0}, text]}, default)


def steps_of(name: str, value: Any) -> tuple[float, str]:
    """A duration as a number and its unit: ``steps``, ``tokens`` or ``%``.

    >>> steps_of("duration", 300), steps_of("duration", "87.5 percent")
    ((300.0, 'steps'), (87.5, '%'))
    """
    if isinstance(value, int) and not isinstance(value, bool):
        steps = count(name, value, 0)
        _refuse_above(name, steps, _MOST_STEPS, "Give a smaller number.")
        return float(steps), "steps"
    parts = value.split() if isinstance(value, str) else []
    if len(parts) != 2:
        raise InvalidValue(
            f"`{name}` must be a number of steps or text with a unit, got {shown(value)}.",
            'Write 300, "300 steps", "600_000 tokens" or "87.5 %".',
        )
    if parts[1] not in _UNITS:
        raise InvalidValue(f"`{name}` has the unknown unit {parts[1]!r}.", near(parts[1], _UNITS))
    try:
        number = float(parts[0].replace(",", ""))
    except ValueError:
        raise InvalidValue(f"`{name}` must begin with a number, got {value!r}.", 'Write "300 steps".') from None
    unit = {"step": "steps", "percent": "%"}.get(parts[1], parts[1])
    _refuse_above(name, number, _MOST_STEPS, "Give a smaller number.")
    if unit != "%" and not number.is_integer():
        raise InvalidValue(
            f"`{name}` must be a whole number of {unit}, got {value!r}.", f'Write "{number:.0f} {unit}".'
        )
    return not_negative(name, number), unit


# The sections.


@dataclass(frozen=True)
class Head:
    """The top level of the file."""

    question: str = _text("The question, one sentence.")
    schema: int = _field("Version of the format.", count, {"const": SCHEMA}, SCHEMA)
    name: str = _text("What the study is called by; the name of the file if left out.", "")
    scope: str = _text("What a model of this size can and cannot settle.", "")
    seeds: tuple[int, ...] = _list_of("Seeds of every trial.", _whole("", least=0), tuple(range(8)))
    published: tuple[str, ...] = _list_of(
        "Published figures to be shown beside, one line each with their source.", _text(""), (), least=0
    )
    history: tuple[str, ...] = _list_of(
        "Pilots that were run before, and gates that were changed after one, one line each.", _text(""), (), least=0
    )

    def check(self) -> None:
        """Refuse another version of the format."""
        if self.schema != SCHEMA:
            raise InvalidValue(
                f"`schema` is {self.schema}, but this version of clockhands reads {SCHEMA}.", "See CHANGELOG.md."
            )


@dataclass(frozen=True)
class Model:
    """The transformer that all arms share.

    ``start`` names a checkpoint (``glassllm``, or a ``.gguf`` or ``.npz`` file of a Llama-like model); its weights and
    sizes replace the fields of this section.
    """

    layers: int = _whole("Number of layers.", 2)
    width: int = _whole("Embedding width.", 64)
    heads: int = _whole("Attention heads of a layer.", 4)
    kv_heads: int = _whole("Heads of keys and values; 0 means as many as `heads`.", 0, 0)
    feed_forward: int = _whole("Hidden width of the feed-forward part; 0 means four times the width.", 0, 0)
    norm: str = _word(
        "Normalisation: LayerNorm (`layer`, or `pre`) or RMSNorm (`rms`) before each part, LayerNorm after each sum "
        "(`post`), or none.",
        ("layer", "rms", "pre", "post", "none"),
        "layer",
    )
    gated: bool = _truth("Whether the feed-forward part is gated (SwiGLU) instead of GELU.", False)
    qk_norm: bool = _truth("Whether queries and keys are normalised (RMSNorm) before they are rotated.", False)
    tied: bool = _truth("Whether the output uses the token embeddings.", False)
    start: str = _text("A checkpoint to start from instead of random weights.", "")
    sinks: int = _whole("Learned vectors before the tokens, which every query sees (attention sinks).", 0, 0)
    latent: int = _whole(
        "Width of the normalised vector from which keys and values are made (multi-head latent attention); 0 means "
        "that they are made from the token.",
        0,
        0,
    )
    shared_channels: int = _whole(
        "With `latent`: so many last channels of the keys are made from the token, once for all heads.", 0, 0
    )

    @property
    def head_width(self) -> int:
        """Channels of a head."""
        return self.width // self.heads

    def check(self) -> None:
        """Refuse sizes that do not fit together."""
        if self.width % self.heads:
            raise InvalidValue(
                f"`width` must be a multiple of `heads`, got width {self.width} and {self.heads} heads.",
                f"Use width = {self.heads * math.ceil(self.width / self.heads)}.",
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise InvalidValue(
                f"`heads` must be a multiple of `kv_heads`, got {self.heads} heads and {self.kv_heads} kv_heads.",
                "Leave kv_heads out.",
            )
        if self.shared_channels and (not self.latent or self.shared_channels >= self.head_width):
            raise InvalidValue(
                f"`shared_channels` needs `latent`, and must be below the head width {self.head_width}; got "
                f"{self.shared_channels}.",
                'Rotate them alone: code = { type = "Rotary", rotated = 8, part = "last" } with shared_channels = 8.',
            )
        if self.latent and self.kv_heads not in (0, self.heads):
            raise InvalidValue("`latent` makes keys and values of all heads.", "Leave kv_heads out.")


@dataclass(frozen=True)
class Training:
    """How a model is trained: AdamW on freshly drawn batches, the same ones for every arm of a seed."""

    length: int = _whole("Tokens of a training sequence.", 64, 2)
    sequences: int = _whole("Sequences of a step.", 32)
    duration: tuple[float, str] = _duration(
        'How long: steps, or text with a unit ("800_000 tokens").', (400.0, "steps")
    )
    plateau: int = _whole(
        "Training ends before `duration` when none of so many points of the training curve is below all before them; "
        "0 never.",
        0,
        0,
    )
    learning_rate: float = _above_zero(
        "AdamW's learning rate after warm-up; an arm may have its own.", LARGEST_RATE, 3e-3
    )
    warmup: int = _whole("Steps over which the learning rate rises from 0.", 20, 0)
    decay: str = _word(
        "The learning rate after warm-up: constant, or falling to 0.", ("constant", "cosine", "linear"), "constant"
    )
    decay_from: tuple[float, str] = _duration(
        'When it begins to fall: steps, or text with a unit ("80 %"); at the earliest after warm-up.', (0.0, "steps")
    )
    decay_to: float = _from_zero("The share of the learning rate to which it falls.", 0.0)
    weight_decay: float = _from_zero("AdamW's weight decay, on matrices only.", 0.01)
    clip: float = _from_zero("Gradients are scaled down to this norm; 0 never.", 1.0)
    record: int = _whole("Steps between two points of the training curve.", 20)
    checkpoint: int = _whole("Steps between two checkpoints.", 100)
    accumulate: int = _whole("Parts into which the sequences of a step are cut, to save memory.", 1)
    dtype: str = _word(
        "Of the arithmetic: float32, or bfloat16 where PyTorch's autocast uses it; weights are float32.",
        ("float32", "bf16"),
        "float32",
    )
    compile: bool = _truth("Whether training steps run through torch.compile.", False)

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        return self.in_steps(self.duration)

    def in_steps(self, duration: tuple[float, str]) -> int:
        """A duration in steps of this training; per cent are of its whole."""
        number, unit = duration
        if unit == "tokens":
            return math.ceil(number / (self.sequences * self.length))
        return round(self.steps * number / 100) if unit == "%" else int(number)

    def check(self) -> None:
        """Refuse a duration that refers to itself, and parts of a step without a sequence."""
        if self.accumulate > self.sequences:
            raise InvalidValue(
                f"`accumulate` must be at most the {self.sequences} sequences of a step, got {self.accumulate}.",
                "Use more sequences.",
            )
        if self.duration[1] == "%":
            raise InvalidValue(
                "`duration` must be in steps or tokens, got per cent.", 'Write duration = "400 steps", say.'
            )


@dataclass(frozen=True)
class Evaluation:
    """What is measured when a model is trained, on data that it never saw."""

    lengths: tuple[int, ...] = _list_of("Tokens of a sequence.", _whole("", least=2), (64,))
    sequences: int = _whole("Sequences at the longest length; shorter ones get more, so that tokens are equal.", 32)
    protocols: tuple[str, ...] = _list_of(
        "`whole`: sequences cut one after another. `sliding`: every scored token has a full context.",
        _word("", ("whole", "sliding")),
        ("whole",),
    )
    curve: int = _whole("Steps between two evaluations at the training length; 0 never.", 0, 0)
    curve_sequences: int = _whole("Sequences of such an evaluation.", 32)
    threshold: float = _from_zero("The accuracy at which a task counts as learnt (steps to threshold); 0 never.", 0.0)
    sinks: bool = _truth("Whether the share of attention on the first token is measured.", False)

    def at_length(self, length: int) -> int:
        """Sequences at a length."""
        return max(1, self.sequences * max(self.lengths) // length)


_CODE = {"$ref": "#/$defs/Code"}


@dataclass(frozen=True)
class AtTest:
    """One change at test time; everything else stays as it was trained."""

    code: Any = _free('Another code instead of the trained one, as in an arm; "none" removes it.', _CODE, None)
    scaling: Any = _free(
        "A scaling of the rotary frequencies: a table with `type`; without `factor` it is length / trained length.",
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": list(SCALINGS)}}},
        None,
    )
    logit_scale: float = _from_zero(
        "c of 1 + c ln s, by which attention scores are multiplied; s = length / trained length.", 0.0
    )
    fault: str = _text("The code of a fault that the code has at test time only.", "")


@dataclass(frozen=True)
class Drop:
    """A code that is removed during training (DroPE): all of it, in every layer, at one step."""

    at: tuple[float, str] = _duration('When: steps, or text with a unit ("87.5 %").')
    learning_rate: float = _from_zero("The learning rate from then on; 0 keeps the schedule.", 0.0)
    warmup: int = _whole("Steps over which that learning rate rises from 0.", 0, 0)
    qk_norm: bool = _truth("Whether queries and keys are normalised (RMSNorm) from then on.", False)

    def check(self) -> None:
        """Refuse a warm-up of a learning rate that is not given."""
        if self.warmup and not self.learning_rate:
            raise InvalidValue(
                "`warmup` needs `learning_rate`.", "Set `learning_rate` to the learning rate after the drop."
            )


@dataclass(frozen=True)
class DrawnPositions:
    """Positions that are drawn again for each training sequence (`clockhands.sampling`)."""

    draw: str = _word("How random positions are chosen.", ("randomised", "shifted"))
    largest: int = _whole("Random positions are below this (randomised), or the largest start (shifted).")


@dataclass(frozen=True)
class Arm:
    """One variant that is compared: a code, and how it is trained and tested."""

    code: Any = _free(
        'A spec as a table with its `type`, a preset with its fields, "none", or a table with `codes` and `pattern`.',
        _CODE,
    )
    says: str = _text("What it is, for the report.", "")
    learning_rate: Any = _or_table(
        "The arm's own learning rate, or one for each task.", _above_zero("", LARGEST_RATE), None
    )
    lengths: Any = _or_table(
        "Evaluation lengths, or a table of them by task, where they are not those of the task (a learned table ends).",
        _list_of("", _whole("", least=2)),
        None,
    )
    channels: int = _whole("How many embedding dimensions get an additive encoding; 0 means all.", 0, 0)
    times: float = _above_zero("Factor on a bias, or on an additive encoding.", 1e6, 1.0)
    slopes: str = _word(
        "Slopes of ALiBi: the standard ones, or random (log-uniform in their range).", ("own", "drawn"), "own"
    )
    frequencies: str = _word(
        "Frequencies of RoPE: fixed ones, or learned, from those of the code on, one set for each code.",
        ("own", "learned"),
        "own",
    )
    window: Any = _by_layer(
        "How many tokens a query may look at, itself included; 0 means all. A list has a number for each layer and is "
        "repeated. It stays when the code is dropped.",
        _whole("", 0, 0),
        0,
    )
    chunk: Any = _by_layer(
        "Tokens of a chunk, outside of which a query sees none (Llama 4); 0 means one chunk. Otherwise as `window`.",
        _whole("", 0, 0),
        0,
    )
    scores: Any = _by_layer(
        "Factor on the scores by position, in training and at test time (attention temperature, log-n): a scale of "
        'clockhands as a table with its `type`, or "none". Otherwise as `window`.',
        _field(
            "",
            _score_scale,
            {
                "oneOf": [
                    {"const": "none"},
                    {"type": "object", "required": ["type"], "properties": {"type": {"enum": list(SCALES)}}},
                ]
            },
        ),
        None,
    )
    fault: str = _text("The code of a fault that the code has in training and at test time.", "")
    drop: Drop | None = _free("See the section `drop`.", {"$ref": "#/$defs/Drop"}, None)
    positions: DrawnPositions | None = _free("See the section `positions`.", {"$ref": "#/$defs/DrawnPositions"}, None)
    at_test: Mapping[str, AtTest] = _free(
        "Changes at test time by name.",
        {"type": "object", "propertyNames": NAMED, "additionalProperties": {"$ref": "#/$defs/AtTest"}},
        {},
    )
    model: Mapping[str, Any] = _free("Fields of the model that this arm has otherwise.", {"$ref": "#/$defs/Model"}, {})
    training: Mapping[str, Any] = _free(
        "Fields of the training that this arm has otherwise.", {"$ref": "#/$defs/Training"}, {}
    )


BOUNDS = ("at_least", "at_most", "interval_above", "interval_below")


@dataclass(frozen=True)
class Gate:
    """A condition on the results, written before the run; the report says whether it holds.

    The number is the mean over seeds of a measure of ``arm``, less that of ``minus`` where one is named, paired by
    seed. ``loss_ratio`` is the loss over the same arm's loss at the training length. Bounds of an interval, the range
    of the seeds, need at least two seeds.
    """

    says: str = _text("The sentence.")
    task: str = _text("The task.")
    arm: str = _text("The arm.")
    measure: str = _word(
        "What is measured.",
        (
            "loss",
            "accuracy",
            "loss_ratio",
            "spike",
            "won_back",
            "steps_to_threshold",
            "sink_share",
            "gradient_norm",
            "gradient_norm_start",
        ),
        "loss",
    )
    minus: str = _text("Another arm, whose number is subtracted seed by seed.", "")
    variant: str = _text("A change at test time.", "")
    minus_variant: str = _text("A change at test time of the other arm.", "")
    length: int = _whole("Tokens; 0 means the training length.", 0, 0)
    protocol: str = _word("How it was evaluated.", ("whole", "sliding"), "whole")
    at_least: float | None = _bound("The mean must be at least this.")
    at_most: float | None = _bound("The mean must be at most this.")
    grid: tuple[str, ...] = _list_of(
        "The part of the grid for which it is said, beside the task itself: axes (`size`) and values (`length 128`).",
        _text(""),
        (),
        least=0,
    )
    interval_above: float | None = _bound("The whole range of the seeds must lie above this.")
    interval_below: float | None = _bound("The whole range of the seeds must lie below this.")

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that it has, by name."""
        return {name: bound for name in BOUNDS if (bound := getattr(self, name)) is not None}

    def check(self) -> None:
        """Refuse a gate without a bound."""
        if not self.bounds:
            raise InvalidValue("a gate needs at least one bound.", f"Give {' or '.join(BOUNDS)}.")


@dataclass(frozen=True)
class Choice:
    """Which seeds and arms a task takes; all of the study unless it says otherwise."""

    seeds: tuple[int, ...] | None = _list_of("Seeds of its trials.", _whole("", least=0), None)
    arms: tuple[str, ...] | None = _list_of("Its arms.", _text(""), None)


@dataclass(frozen=True)
class GridValue:
    """A value of an axis of the grid: what the models of its cells have otherwise."""

    says: str = _text("What it is, for the report.", "")
    model: Mapping[str, Any] = _free("Fields of the model.", {"$ref": "#/$defs/Model"}, {})
    training: Mapping[str, Any] = _free("Fields of the training.", {"$ref": "#/$defs/Training"}, {})
    full: bool = _truth("Whether its cells are in the full form only (`clockhands lab run --full`).", False)


@dataclass(frozen=True)
class StudyGrid:
    """Sizes, trained lengths, learning rates or durations at which tasks are trained again.

    Each task is trained with each value of each axis alone; the full form has every combination.
    """

    tasks: tuple[str, ...] | None = _list_of("Its tasks; all if left out.", _text(""), None)
    axes: Mapping[str, Mapping[str, GridValue]] = _free(
        "Axes by name, each a table of values by name.",
        {
            "type": "object",
            "propertyNames": NAMED,
            "additionalProperties": {
                "type": "object",
                "propertyNames": NAMED,
                "additionalProperties": {"$ref": "#/$defs/GridValue"},
            },
        },
        {},
    )


@dataclass(frozen=True)
class Tuning:
    """What `clockhands lab tune` tries; the study's own seeds are never used."""

    learning_rates: tuple[float, ...] = _list_of("The grid.", _above_zero("", LARGEST_RATE), (1e-3, 3e-3, 1e-2))
    seeds: tuple[int, ...] = _list_of("Seeds of the trials.", _whole("", least=0), (1000,))


# From a table of the file to a section, and from a section to its JSON Schema.


def a_table(given: Any, where: str) -> Mapping[str, Any]:
    """What should be a table.

    Raises:
        InvalidType: It is something else.
    """
    if not isinstance(given, Mapping):
        raise InvalidType(f"`{where}` must be a table, got {shown(given)}.", f"Write [{where}].")
    return given


def section(cls: Any, given: Any, where: str, base: Any = None) -> Any:
    """A section from its table; what is missing comes from ``base``, or is the default.

    Raises:
        InvalidType, InvalidValue: A field is unknown, missing or not valid; the message says where.
    """
    values = checked(cls, given, where)
    try:
        for each in dataclasses.fields(cls):
            if base is None and _is_needed(each) and each.name not in values:
                raise InvalidValue(f"`{each.name}` is missing.", each.metadata["says"])
        made = cls(**values) if base is None else dataclasses.replace(base, **values)
        if hasattr(made, "check"):
            made.check()
    except ClockhandsError as wrong:
        raise within(where, wrong) from None
    return made


def checked(cls: Any, given: Any, where: str) -> dict[str, Any]:
    """The fields that a table gives to a section, each as its check returns it.

    Raises:
        InvalidType, InvalidValue: A field is unknown or not valid; the message says where.
    """
    fields = {each.name: each for each in dataclasses.fields(cls)}
    refuse_unknown(a_table(given, where), fields, f"`{where}`")
    try:
        return {name: fields[name].metadata["check"](name, value) for name, value in given.items()}
    except ClockhandsError as wrong:
        raise within(where, wrong) from None


def within(where: str, wrong: ClockhandsError) -> ClockhandsError:
    """The same error, prefixed with its place in the study file."""
    return type(wrong)(f"In `{where}`: {wrong.message}", wrong.hint)


def schema_of(cls: Any) -> dict[str, Any]:
    """The JSON Schema of a section."""
    fields = dataclasses.fields(cls)
    return {
        "type": "object",
        "properties": {each.name: {"description": each.metadata["says"], **each.metadata["schema"]} for each in fields},
        "required": [each.name for each in fields if _is_needed(each)],
        "additionalProperties": False,
    }


def _is_needed(each: dataclasses.Field) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
