"""A study as a TOML file: arms, tasks, model, training, evaluation and gates, all checked before anything is trained.

Each section of the file is a frozen dataclass below; a field's metadata hold its check, its JSON Schema and one
sentence, so that the parser, the published schema (`schema`) and the documentation cannot disagree.
"""

import dataclasses
import hashlib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from clockhands.arguments import count, not_negative, one_of, positive, shown
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue, Unreadable
from clockhands.lab.store import Key
from clockhands.lab.tasks import TASKS, Task

SCHEMA = 1
"""The version of the format that this code reads."""

AS_TRAINED = ""
"""The name of the evaluation without any change at test time."""

_NO_DEFAULT = dataclasses.MISSING


def _field(says: str, check: Callable[[str, Any], Any], schema: Mapping[str, Any], default: Any = _NO_DEFAULT) -> Any:
    metadata = {"says": says, "check": check, "schema": schema}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _whole(says: str, default: Any = _NO_DEFAULT, least: int = 1) -> Any:
    return _field(says, lambda name, v: count(name, v, least), {"type": "integer", "minimum": least}, default)


def _above_zero(says: str, default: Any = _NO_DEFAULT) -> Any:
    return _field(says, positive, {"type": "number", "exclusiveMinimum": 0}, default)


def _from_zero(says: str, default: Any = _NO_DEFAULT) -> Any:
    return _field(says, not_negative, {"type": "number", "minimum": 0}, default)


def _word(says: str, words: tuple[str, ...], default: Any = _NO_DEFAULT) -> Any:
    def check(name: str, value: Any) -> str:
        if isinstance(value, str) and value not in words:
            raise InvalidValue(f"`{name}` must be one of {', '.join(words)}, got {value!r}.", near(value, words))
        return one_of(name, value, words, says)

    return _field(says, check, {"enum": list(words)}, default)


def _truth(says: str, default: bool) -> Any:
    def check(name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidType(f"`{name}` must be true or false, got {shown(value)}.", says)
        return value

    return _field(says, check, {"type": "boolean"}, default)


def _text(says: str, default: Any = _NO_DEFAULT) -> Any:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise InvalidType(f"`{name}` must be text, got {shown(value)}.", says)
        return value

    return _field(says, check, {"type": "string"}, default)


def _list_of(says: str, item: Any, default: Any = _NO_DEFAULT) -> Any:
    inner = item.metadata

    def check(name: str, value: Any) -> tuple:
        if not isinstance(value, list | tuple):
            raise InvalidType(f"`{name}` must be a list, got {shown(value)}.", says)
        return tuple(inner["check"](name, each) for each in value)

    return _field(says, check, {"type": "array", "items": inner["schema"]}, default)


def _or_table(says: str, item: Any, default: Any) -> Any:
    """One value for all tasks, or a table with one for each task."""
    inner = item.metadata

    def check(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {task: inner["check"](f"{name}.{task}", each) for task, each in value.items()}
        return inner["check"](name, value)

    schema = {"oneOf": [inner["schema"], {"type": "object", "additionalProperties": inner["schema"]}]}
    return _field(says, check, schema, default)


def _free(says: str, schema: Mapping[str, Any], default: Any = _NO_DEFAULT) -> Any:
    """A value that is checked later, where more is known."""
    return _field(says, lambda _name, value: value, schema, default)


@dataclass(frozen=True)
class Model:
    """The transformer that all arms share.

    ``start`` names a checkpoint (``glassllm``, or a ``.gguf`` or ``.npz`` file of a Llama-like model); its weights and
    sizes replace the fields of this section.
    """

    layers: int = _whole("Number of layers.", 2)
    width: int = _whole("Channels of a token.", 64)
    heads: int = _whole("Attention heads of a layer.", 4)
    kv_heads: int = _whole("Heads of keys and values; 0 means as many as `heads`.", 0, 0)
    feed_forward: int = _whole("Hidden channels of the feed-forward part; 0 means four times the width.", 0, 0)
    norm: str = _word("Normalisation before each part.", ("layer", "rms"), "layer")
    gated: bool = _truth("Whether the feed-forward part is gated (SwiGLU) instead of GELU.", False)
    qk_norm: bool = _truth("Whether queries and keys are normalised (RMSNorm) before they are rotated.", False)
    tied: bool = _truth("Whether the output uses the token embeddings.", False)
    start: str = _text("A checkpoint to start from instead of random weights.", "")

    @property
    def head_width(self) -> int:
        """Channels of a head."""
        return self.width // self.heads

    def check(self) -> None:
        """Refuse sizes that do not fit together."""
        if self.width % self.heads:
            raise InvalidValue(
                f"`width` must be a multiple of `heads`, got {self.width} and {self.heads}.",
                f"Use width = {self.heads * math.ceil(self.width / self.heads)}.",
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise InvalidValue(
                f"`heads` must be a multiple of `kv_heads`, got {self.heads} and {self.kv_heads}.",
                "Leave kv_heads out.",
            )


_UNITS = {"step": 1.0, "steps": 1.0, "tokens": -1.0, "%": -2.0, "percent": -2.0}


def _duration(says: str, default: Any = _NO_DEFAULT) -> Any:
    """Steps as a number, or text with a unit: "300 steps", "600_000 tokens", "87.5 %"."""

    return _field(says, _steps_of, {"type": ["integer", "string"]}, default)


def _steps_of(name: str, value: Any) -> tuple[float, str]:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(count(name, value, 0)), "steps"
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
    return not_negative(name, number), {"step": "steps", "percent": "%"}.get(parts[1], parts[1])


@dataclass(frozen=True)
class Training:
    """How a model is trained: AdamW on freshly drawn batches, the same ones for every arm of a seed."""

    length: int = _whole("Tokens of a training sequence.", 64, 2)
    sequences: int = _whole("Sequences of a step.", 32)
    duration: tuple[float, str] = _duration(
        'How long: steps, or text with a unit ("800_000 tokens").', (400.0, "steps")
    )
    learning_rate: float = _above_zero("AdamW's learning rate after warm-up; an arm may have its own.", 3e-3)
    warmup: int = _whole("Steps over which the learning rate rises from 0.", 20, 0)
    decay: str = _word(
        "The learning rate after warm-up: constant, or falling to 0.", ("constant", "cosine", "linear"), "constant"
    )
    weight_decay: float = _from_zero("AdamW's weight decay, on matrices only.", 0.01)
    clip: float = _from_zero("Gradients are scaled down to this norm; 0 never.", 1.0)
    record: int = _whole("Steps between two points of the training curve.", 20)
    checkpoint: int = _whole("Steps between two checkpoints.", 100)

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
        """Refuse a duration that refers to itself."""
        if self.duration[1] == "%":
            raise InvalidValue("`duration` cannot be in per cent.", 'Write steps or tokens: duration = "400 steps".')


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


@dataclass(frozen=True)
class AtTest:
    """One change at test time; everything else stays as it was trained."""

    code: Any = _free('Another code instead of the trained one, as in an arm; "none" removes it.', {}, None)
    scaling: Any = _free(
        "A scaling of the rotary frequencies: a table with `type`; without `factor` it is length / trained length.",
        {"type": ["object", "null"]},
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


@dataclass(frozen=True)
class Positions:
    """Positions that are drawn anew for each training sequence (`clockhands.sampling`)."""

    draw: str = _word("How they are drawn.", ("randomised", "shifted"))
    largest: int = _whole("Positions below this are drawn (randomised), or the largest start (shifted).")


@dataclass(frozen=True)
class Arm:
    """One thing that is compared: a code, and how it is trained and tested."""

    code: Any = _free(
        'A spec as a table with its `type`, a preset with its fields, "none", or a table with `codes` and `pattern`.',
        {"type": ["string", "object"]},
    )
    says: str = _text("What it is, for the report.", "")
    learning_rate: Any = _or_table("The arm's own learning rate, or one for each task.", _above_zero(""), None)
    lengths: Any = _or_table(
        "Evaluation lengths, or a table of them by task, where they are not those of the task (a learned table ends).",
        _list_of("", _whole("", least=2)),
        None,
    )
    channels: int = _whole("How many channels of a token get an additive code; 0 means all.", 0, 0)
    times: float = _from_zero("What a bias, or an additive code, is multiplied by.", 1.0)
    slopes: str = _word("Slopes of ALiBi: its own, or drawn log-uniformly from their range.", ("own", "drawn"), "own")
    window: int = _whole("How many tokens a query may look at, itself included; 0 means all.", 0, 0)
    fault: str = _text("The code of a fault that the code has in training and at test time.", "")
    drop: Drop | None = _free("See the section `drop`.", {"$ref": "#/$defs/Drop"}, None)
    positions: Positions | None = _free("See the section `positions`.", {"$ref": "#/$defs/Positions"}, None)
    at_test: Mapping[str, AtTest] = _free(
        "Changes at test time by name.", {"type": "object", "additionalProperties": {"$ref": "#/$defs/AtTest"}}, {}
    )
    model: Mapping[str, Any] = _free("Fields of the model that this arm has otherwise.", {"type": "object"}, {})
    training: Mapping[str, Any] = _free("Fields of the training that this arm has otherwise.", {"type": "object"}, {})


@dataclass(frozen=True)
class TaskPlan:
    """A task of the study with its own model, training and evaluation."""

    task: Task
    model: Model
    training: Training
    evaluation: Evaluation
    seeds: tuple[int, ...]
    arms: tuple[str, ...]


@dataclass(frozen=True)
class Gate:
    """A sentence with a number, written before the run: the report says whether it holds.

    The number is the mean over seeds of a measure of ``arm``, less that of ``minus`` where one is named, paired by
    seed. ``loss_ratio`` is the loss over the same arm's loss at the training length.
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
    at_least: float | None = _free("The mean must be at least this.", {"type": "number"}, None)
    at_most: float | None = _free("The mean must be at most this.", {"type": "number"}, None)
    interval_above: float | None = _free("The whole interval must lie above this.", {"type": "number"}, None)
    interval_below: float | None = _free("The whole interval must lie below this.", {"type": "number"}, None)

    def check(self) -> None:
        """Refuse gates without a bound, or with one that is no number."""
        bounds = (self.at_least, self.at_most, self.interval_above, self.interval_below)
        given = [each for each in bounds if each is not None]
        if not given or any(isinstance(each, bool) or not isinstance(each, int | float) for each in given):
            raise InvalidValue(
                "A gate needs a bound that is a number.", "Give at_least, at_most, interval_above or interval_below."
            )


@dataclass(frozen=True)
class Tuning:
    """What `clockhands lab tune` tries; the study's own seeds are never used."""

    learning_rates: tuple[float, ...] = _list_of("The grid.", _above_zero(""), (1e-3, 3e-3, 1e-2))
    seeds: tuple[int, ...] = _list_of("Seeds of the trials.", _whole("", least=0), (1000,))


@dataclass(frozen=True)
class Study:
    """A whole study.

    Attributes:
        name: What it is called by.
        question: What is asked, one sentence.
        text: The file's text; its SHA-256 is the study's identity in a store.
        seeds: Seeds of every trial.
        tasks, arms: By name.
        gates: In the order of the file.
        published: Published figures to be shown beside, one line each with their source.
        scope: What a model of this size can and cannot settle.
    """

    name: str
    question: str
    text: str
    tasks: Mapping[str, TaskPlan]
    arms: Mapping[str, Arm]
    gates: tuple[Gate, ...]
    tuning: Tuning
    published: tuple[str, ...]
    scope: str

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the text: a study that was changed in any way is another study."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def trial_keys(self) -> list[Key]:
        """Every trial: seeds one after another, so that an interrupted study has whole comparisons first."""
        seeds = sorted({seed for plan in self.tasks.values() for seed in plan.seeds})
        return [
            Key(task, arm, seed)
            for seed in seeds
            for task, plan in self.tasks.items()
            if seed in plan.seeds
            for arm in plan.arms
        ]

    def training_of(self, key: Key) -> Training:
        """The training of a trial, with the arm's own fields."""
        plan, arm = self.tasks[key.task], self.arms[key.arm]
        own = dict(arm.training)
        if "duration" in own:  # in per cent it is of the task's
            number, unit = _steps_of("duration", own["duration"])
            if unit == "%":
                own["duration"] = round(plan.training.steps * number / 100)
        rate = arm.learning_rate.get(key.task) if isinstance(arm.learning_rate, Mapping) else arm.learning_rate
        if rate is not None:
            own["learning_rate"] = rate
        return _section(Training, own, f"arms.{key.arm}.training", plan.training)

    def model_of(self, key: Key) -> Model:
        """The model of a trial, with the arm's own fields."""
        return _section(Model, self.arms[key.arm].model, f"arms.{key.arm}.model", self.tasks[key.task].model)

    def lengths_of(self, key: Key) -> tuple[int, ...]:
        """The evaluation lengths of a trial."""
        own = self.arms[key.arm].lengths
        own = own.get(key.task) if isinstance(own, Mapping) else own
        return self.tasks[key.task].evaluation.lengths if own is None else own


def shipped() -> list[str]:
    """The names of the studies that come with the library."""
    return sorted(
        file.name[:-5] for file in files("clockhands.lab").joinpath("studies").iterdir() if file.name.endswith(".toml")
    )


def read(name: str | Path) -> Study:
    """A study by the name of a shipped one, or from a file.

    Raises:
        Unreadable: There is no such study, or the file cannot be read.
        InvalidValue, InvalidType: The file is not a valid study; the message says where, and what is allowed.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        try:
            return parse(path.read_text("utf-8"), path.stem)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Unreadable(
                f"The study {path} cannot be read: {reason}.", "Name a TOML file, or a shipped study."
            ) from None
    if str(name) not in shipped():
        raise Unreadable(
            f"There is no study {str(name)!r}.", f"{near(str(name), shipped())} A file's name ends in .toml."
        )
    return parse(files("clockhands.lab").joinpath("studies", f"{name}.toml").read_text("utf-8"), str(name))


def parse(text: str, name: str = "study") -> Study:
    """The study that a TOML text says, checked as far as that is possible without PyTorch."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"The study is not TOML: {error}.", "See docs/lab.md for the format.") from None
    _known(
        data,
        (
            "schema",
            "name",
            "question",
            "scope",
            "seeds",
            "published",
            "model",
            "training",
            "evaluation",
            "tasks",
            "arms",
            "gates",
            "tuning",
            "grid",
        ),
        "the study",
    )
    if data.get("schema", SCHEMA) != SCHEMA:
        raise InvalidValue(
            f"The study has schema {data['schema']}, and this version reads {SCHEMA}.", "See CHANGELOG.md."
        )
    for needed in ("question", "tasks", "arms"):
        if not data.get(needed):
            raise InvalidValue(f"The study has no `{needed}`.", "See docs/lab.md for a complete example.")
    seeds = _seeds(data.get("seeds", [0, 1, 2]), "seeds")
    arms = {arm: _arm(table, f"arms.{arm}") for arm, table in _tables(data["arms"], "arms").items()}
    tasks = {
        task: _task(table, f"tasks.{task}", data, seeds, tuple(arms))
        for task, table in _tables(data["tasks"], "tasks").items()
    }
    for arm, each in arms.items():
        for name in ("learning_rate", "lengths"):
            if isinstance(getattr(each, name), Mapping):
                _known(getattr(each, name), tasks, f"arms.{arm}.{name}")
    gates = tuple(_section(Gate, table, f"gates[{place}]") for place, table in enumerate(data.get("gates", [])))
    tuning = _section(Tuning, data.get("tuning", {}), "tuning")
    study = Study(
        data.get("name", name),
        data["question"],
        text,
        tasks,
        arms,
        gates,
        tuning,
        tuple(data.get("published", ())),
        data.get("scope", ""),
    )
    _check_gates(study)
    taken = {seed for plan in tasks.values() for seed in plan.seeds} & set(tuning.seeds)
    if taken:
        raise InvalidValue(f"`tuning.seeds` holds {min(taken)}, a seed of the study itself.", "Tune with other seeds.")
    for key in study.trial_keys():
        study.training_of(key), study.model_of(key)
    return _over_the_grid(study) if "grid" in data else study


def at_rate(arm: str, rate: float) -> str:
    """The name of an arm at a learning rate of the grid."""
    return f"{arm} at {rate:g}"


def _over_the_grid(study: Study) -> Study:
    """Every arm at every learning rate of ``tuning``, on its seeds, evaluated at the training length, without gates."""
    rates = study.tuning.learning_rates
    arms = {
        at_rate(name, rate): dataclasses.replace(arm, learning_rate=rate, at_test={}, lengths=None)
        for name, arm in study.arms.items()
        for rate in rates
    }
    tasks = {
        name: dataclasses.replace(
            plan,
            seeds=study.tuning.seeds,
            arms=tuple(at_rate(arm, rate) for arm in plan.arms for rate in rates),
            evaluation=dataclasses.replace(
                plan.evaluation, lengths=(plan.training.length,), protocols=("whole",), curve=0
            ),
        )
        for name, plan in study.tasks.items()
    }
    return dataclasses.replace(study, arms=arms, tasks=tasks, gates=())


def _task(table: Any, where: str, study: Mapping[str, Any], seeds: tuple[int, ...], arms: tuple[str, ...]) -> TaskPlan:
    if not isinstance(table, Mapping):
        raise InvalidType(f"`{where}` must be a table, got {shown(table)}.", 'Write kind = "copy" in it.')
    kind = table.get("kind")
    if kind not in TASKS:
        raise InvalidValue(f"`{where}.kind` must be a task, got {shown(kind)}.", near(str(kind), TASKS))
    sections = {"model", "training", "evaluation", "seeds", "arms", "kind"}
    cls = TASKS[kind]
    names = [each.name for each in dataclasses.fields(cls) if each.init]
    _known({key: None for key in table if key not in sections}, names, where)
    try:
        task = cls(**{key: value for key, value in table.items() if key not in sections})
    except ClockhandsError as wrong:
        raise type(wrong)(f"In `{where}`: {wrong.message}", wrong.hint) from None
    chosen = tuple(table.get("arms", arms))
    for arm in chosen:
        if arm not in arms:
            raise InvalidValue(f"`{where}.arms` names the unknown arm {shown(arm)}.", near(str(arm), arms))
    model = _section(Model, {**study.get("model", {}), **table.get("model", {})}, f"{where}.model")
    training = _section(Training, {**study.get("training", {}), **table.get("training", {})}, f"{where}.training")
    given = {**study.get("evaluation", {}), **table.get("evaluation", {})}
    evaluation = _section(Evaluation, given, f"{where}.evaluation")
    if "lengths" not in given:
        evaluation = dataclasses.replace(evaluation, lengths=(training.length,))
    if training.length < task.least_length:
        raise InvalidValue(
            f"`{where}` needs sequences of at least {task.least_length} tokens, got {training.length}.",
            f"Set training.length to {task.least_length} or more.",
        )
    for protocol in evaluation.protocols:
        if protocol not in task.protocols:
            raise InvalidValue(f"`{where}` has no protocol {protocol!r}.", f"It has {', '.join(task.protocols)}.")
    own_seeds = _seeds(table["seeds"], f"{where}.seeds") if "seeds" in table else seeds
    return TaskPlan(task, model, training, evaluation, own_seeds, chosen)


def _arm(table: Any, where: str) -> Arm:
    arm: Arm = _section(Arm, table, where)
    if arm.drop is not None:
        arm = dataclasses.replace(arm, drop=_section(Drop, arm.drop, f"{where}.drop"))
    if arm.positions is not None:
        arm = dataclasses.replace(arm, positions=_section(Positions, arm.positions, f"{where}.positions"))
    variants = {
        name: _section(AtTest, each, f"{where}.at_test.{name}")
        for name, each in _tables(arm.at_test, f"{where}.at_test").items()
    }
    return dataclasses.replace(arm, at_test=variants)


def _check_gates(study: Study) -> None:
    for place, gate in enumerate(study.gates):
        where = f"gates[{place}]"
        if gate.task not in study.tasks:
            raise InvalidValue(f"`{where}` names the unknown task {gate.task!r}.", near(gate.task, study.tasks))
        plan = study.tasks[gate.task]
        for arm, variant in ((gate.arm, gate.variant), (gate.minus, gate.minus_variant)):
            if arm == "" and variant == "":
                continue
            if arm not in plan.arms:
                raise InvalidValue(f"`{where}` names the unknown arm {arm!r}.", near(arm, plan.arms))
            known = (AS_TRAINED, *study.arms[arm].at_test)
            if variant not in known:
                raise InvalidValue(f"`{where}` names the unknown variant {variant!r}.", near(variant, known))
            lengths = study.lengths_of(Key(gate.task, arm, 0))
            if gate.length and gate.length not in lengths:
                listed = ", ".join(map(str, lengths))
                raise InvalidValue(
                    f"`{where}` needs length {gate.length}, which is not evaluated.", f"Lengths are {listed}."
                )
        if gate.protocol not in plan.evaluation.protocols:
            raise InvalidValue(f"`{where}` needs the protocol {gate.protocol!r}, which is not evaluated.", "Add it.")


def _section(cls: type, given: Any, where: str, base: Any = None) -> Any:
    """A section's dataclass from its table; what is missing comes from ``base``, or is the default."""
    if not isinstance(given, Mapping):
        raise InvalidType(
            f"`{where}` must be a table, got {shown(given)}.",
            f"It has {', '.join(f.name for f in dataclasses.fields(cls))}.",
        )
    fields = {each.name: each for each in dataclasses.fields(cls)}
    _known(given, fields, where)
    values = {}
    for name, each in fields.items():
        if name in given:
            if given[name] is None and each.default is None:
                values[name] = None
                continue
            try:
                values[name] = each.metadata["check"](name, given[name])
            except ClockhandsError as wrong:
                raise type(wrong)(f"In `{where}`: {wrong.message}", wrong.hint) from None
        elif base is None and each.default is _NO_DEFAULT and each.default_factory is _NO_DEFAULT:
            raise InvalidValue(f"`{where}` has no `{name}`.", each.metadata["says"])
    made = cls(**values) if base is None else dataclasses.replace(base, **values)
    if hasattr(made, "check"):
        try:
            made.check()
        except ClockhandsError as wrong:
            raise type(wrong)(f"In `{where}`: {wrong.message}", wrong.hint) from None
    return made


def _tables(given: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidType(f"`{where}` must be a table of tables, got {shown(given)}.", f"Write [{where}.NAME].")
    return given


def _seeds(given: Any, where: str) -> tuple[int, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise InvalidType(f"`{where}` must be a list of seeds, got {shown(given)}.", "Write seeds = [0, 1, 2].")
    seeds = tuple(count(where, each, 0) for each in given)
    if len(set(seeds)) < len(seeds):
        raise InvalidValue(f"`{where}` names a seed twice: {list(seeds)}.", "Each seed is one trial.")
    return seeds


def _known(given: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise InvalidValue(f"{where} has the unknown field {name!r}.", near(name, known))


def near(word: str, known: Iterable[str]) -> str:
    """What may have been meant: the nearest valid name, or all of them."""
    known = list(known)
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Valid names: {', '.join(known)}."


def schema() -> dict[str, Any]:
    """The JSON Schema of a study file (TOML has the same types)."""
    defs = {
        cls.__name__: _schema_of(cls)
        for cls in (Model, Training, Evaluation, AtTest, Drop, Positions, Arm, Gate, Tuning)
    }
    partial = {name: {**defs[name], "required": []} for name in ("Model", "Training", "Evaluation")}
    tasks = []
    for kind, cls in TASKS.items():
        own = {each.name: {} for each in dataclasses.fields(cls) if each.init}
        properties = {
            "kind": {"const": kind},
            **own,
            "seeds": {"$ref": "#/properties/seeds"},
            "arms": {"type": "array", "items": {"type": "string"}},
            **{name.lower(): {"$ref": f"#/$defs/{name}"} for name in partial},
        }
        tasks.append({"type": "object", "properties": properties, "required": ["kind"], "additionalProperties": False})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A study of clockhands lab",
        "type": "object",
        "required": ["question", "tasks", "arms"],
        "additionalProperties": False,
        "properties": {
            "schema": {"const": SCHEMA},
            "name": {"type": "string"},
            "question": {"type": "string"},
            "scope": {"type": "string"},
            "published": {"type": "array", "items": {"type": "string"}},
            "seeds": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True},
            **{name.lower(): {"$ref": f"#/$defs/{name}"} for name in partial},
            "tasks": {"type": "object", "additionalProperties": {"oneOf": tasks}, "minProperties": 1},
            "arms": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Arm"}, "minProperties": 1},
            "gates": {"type": "array", "items": {"$ref": "#/$defs/Gate"}},
            "tuning": {"$ref": "#/$defs/Tuning"},
            "grid": {"type": "object", "description": "Makes this a study of every arm at every rate of `tuning`."},
        },
        "$defs": {**defs, **partial},
    }


def _schema_of(cls: type) -> dict[str, Any]:
    properties, required = {}, []
    for each in dataclasses.fields(cls):
        properties[each.name] = {"description": each.metadata["says"], **each.metadata["schema"]}
        if each.default is _NO_DEFAULT and each.default_factory is _NO_DEFAULT:
            required.append(each.name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
