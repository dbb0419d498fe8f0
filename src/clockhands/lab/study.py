"""A study as a TOML file: arms, tasks, model, training, evaluation and gates, checked before anything is trained."""

import dataclasses
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from clockhands.configs.callables import IN_FILE
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue, Unreadable
from clockhands.lab.own_codes import SOURCES, add_sources, with_sources
from clockhands.lab.sections import (
    BOUNDS,
    CODES,
    NAME,
    NAMED,
    Arm,
    AtTest,
    Choice,
    DrawnPositions,
    Drop,
    Evaluation,
    Gate,
    GridValue,
    Head,
    Model,
    StudyGrid,
    Training,
    Tuning,
    a_table,
    checked,
    near,
    refuse_unknown,
    schema_of,
    section,
    steps_of,
    within,
)
from clockhands.lab.store import Key
from clockhands.lab.tasks import TASKS, Task
from clockhands.phrases import shown

AS_TRAINED = ""
"""The name of the evaluation without any change at test time."""


@dataclass(frozen=True)
class TaskPlan:
    """A task of the study, or a cell of its grid, with its own model, training and evaluation.

    Attributes:
        task, model, training, evaluation, seeds, arms: What is trained and measured.
        base: The task of which it is a cell; "" if it is none.
        at: The values of the axes that a cell has otherwise, by axis.
        full: Whether it is trained in the full form of the study only.
    """

    task: Task
    model: Model
    training: Training
    evaluation: Evaluation
    seeds: tuple[int, ...]
    arms: tuple[str, ...]
    base: str = ""
    at: Mapping[str, str] = field(default_factory=dict)
    full: bool = False


@dataclass(frozen=True)
class Study:
    """A whole study.

    Attributes:
        name: What it is called by.
        question: The question of the study, one sentence.
        text: The file's text, after which the code of encodings of the user's own stands in a table ``sources``; its
            SHA-256 is the study's identity in a store.
        tasks: By name, after which the cells of the grid stand (`cell_name`).
        arms: By name.
        gates: In the order of the file.
        published: Published figures to be shown beside, one line each with their source.
        scope: What a model of this size can and cannot show.
        history: Pilots and changed gates.
        full: Whether the cells of the full form belong to its trials.
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
    history: tuple[str, ...] = ()
    full: bool = False

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the text: a study that was changed in any way is another study."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def trial_keys(self) -> list[Key]:
        """Every trial, seed by seed, so that an interrupted study has complete comparisons first.

        The tasks come before the cells of the grid, of which each is complete before the next.
        """
        cells: dict[tuple[tuple[str, str], ...], dict[str, TaskPlan]] = {}
        for task, plan in self.tasks.items():
            if self.full or not plan.full:
                cells.setdefault(tuple(plan.at.items()), {})[task] = plan
        return [
            Key(task, arm, seed)
            for tasks in cells.values()
            for seed in sorted({seed for plan in tasks.values() for seed in plan.seeds})
            for task, plan in tasks.items()
            if seed in plan.seeds
            for arm in plan.arms
        ]

    @property
    def own_tasks(self) -> dict[str, TaskPlan]:
        """The tasks without the cells of the grid."""
        return {name: plan for name, plan in self.tasks.items() if not plan.base}

    def gates_over_the_grid(self, gate: Gate) -> dict[str, Gate]:
        """A gate in its task and in every cell of it: at the same multiple of the trained length."""
        return {
            name: dataclasses.replace(gate, task=name, length=self._scaled(gate.length, plan))
            for name, plan in self.tasks.items()
            if gate.task in (name, plan.base)
        }

    def is_said_of(self, gate: Gate, cell: str) -> bool:
        """Whether a cell is in the part of the grid that a gate names; the gate's own task is."""
        at = self.tasks[cell].at
        return cell == gate.task or all({axis, f"{axis} {value}"} & {*gate.grid} for axis, value in at.items())

    def _scaled(self, length: int, plan: TaskPlan) -> int:
        """In a cell, the length that is the same multiple of the trained length as this one in its task."""
        return length * plan.training.length // self.tasks[plan.base].training.length if plan.base else length

    def training_of(self, key: Key) -> Training:
        """The training of a trial, with the arm's own fields."""
        plan, arm = self.tasks[key.task], self.arms[key.arm]
        own = dict(arm.training)
        if "duration" in own:  # in per cent it is of the task's
            number, unit = steps_of("duration", own["duration"])
            if unit == "%":
                own["duration"] = round(plan.training.steps * number / 100)
        rate = arm.learning_rate
        if isinstance(rate, Mapping):
            rate = rate.get(key.task, rate.get(plan.base))
        if rate is not None:
            own["learning_rate"] = rate
        return section(Training, own, f"arms.{key.arm}.training", plan.training)

    def model_of(self, key: Key) -> Model:
        """The model of a trial, with the arm's own fields."""
        return section(Model, self.arms[key.arm].model, f"arms.{key.arm}.model", self.tasks[key.task].model)

    def lengths_of(self, key: Key) -> tuple[int, ...]:
        """The evaluation lengths of a trial."""
        plan, own = self.tasks[key.task], self.arms[key.arm].lengths
        own = own.get(plan.base or key.task) if isinstance(own, Mapping) else own
        return plan.evaluation.lengths if own is None else tuple(self._scaled(length, plan) for length in own)


def shipped() -> list[str]:
    """The names of the studies that come with the library."""
    return sorted(
        file.name[:-5] for file in files("clockhands.lab").joinpath("studies").iterdir() if file.name.endswith(".toml")
    )


def shipped_studies() -> dict[str, Study | ClockhandsError]:
    """The studies that come with the library, by name; an error for one that needs a package that is not installed."""
    found: dict[str, Study | ClockhandsError] = {}
    for name in shipped():
        try:
            found[name] = read(name)
        except ClockhandsError as missing:
            found[name] = missing
    return found


def read(name: str | Path) -> Study:
    """A study by the name of a shipped one, or from a file.

    Raises:
        Unreadable: There is no such study, or the file cannot be read.
        InvalidValue, InvalidType: The file is not a valid study; the message says where, and what is allowed.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        try:
            text = path.read_text("utf-8-sig")  # Windows' editors write a byte order mark
            return parse(with_sources(text, _toml(text), path.parent), path.stem)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Unreadable(
                f"The study {path} cannot be read: {reason}.",
                "Name a TOML file, or a study that comes with clockhands.",
            ) from None
    if str(name) not in shipped():
        raise Unreadable(
            f"There is no study {str(name)!r}.",
            f"{near(str(name), shipped())} To run your own study, name a file that ends in .toml.",
        )
    return parse(files("clockhands.lab").joinpath("studies", f"{name}.toml").read_text("utf-8"), str(name))


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits are ValueErrors
        raise Unreadable(f"The study is not TOML: {error}.", "See docs/lab.md for the format.") from None


def parse(text: str, name: str = "study") -> Study:
    """The study that a TOML text says, checked as far as that is possible without building a model.

    Raises:
        Unreadable: The text is not TOML.
        InvalidValue, InvalidType: It is no valid study; the message says where, and what is allowed.
    """
    data = _toml(text)
    tops = [each.name for each in dataclasses.fields(Head)]
    refuse_unknown(data, (*tops, *_SECTIONS, "tasks", "arms", "gates", "tuning", "grid", SOURCES), "The study")
    add_sources(data)
    for each, cls in _SECTIONS.items():
        checked(cls, data.get(each, {}), each)
    head: Head = section(Head, {key: value for key, value in data.items() if key in tops}, "study")
    for needed in ("tasks", "arms"):
        if not data.get(needed):
            raise InvalidValue(f"The study has no `{needed}`.", "See docs/lab.md for a complete example.")
    arms = {arm: _arm(table, f"arms.{arm}") for arm, table in _named(data["arms"], "arms").items()}
    tasks = {
        task: _task(table, f"tasks.{task}", data, head.seeds, tuple(arms))
        for task, table in _named(data["tasks"], "tasks").items()
    }
    grid = a_table(data.get("grid", {}), "grid")
    tasks |= _cells({own: each for own, each in grid.items() if own != _TUNING}, tasks)
    for arm, each in arms.items():
        for own in ("learning_rate", "lengths"):
            if isinstance(by_task := getattr(each, own), Mapping):
                refuse_unknown(by_task, tasks, f"`arms.{arm}.{own}`")
    gates = data.get("gates", [])
    if not isinstance(gates, list):
        raise InvalidType(f"`gates` must be a list of tables, got {shown(gates)}.", "Write [[gates]].")
    study = Study(
        name=head.name or name,
        question=head.question,
        text=text,
        tasks=tasks,
        arms=arms,
        gates=tuple(section(Gate, table, f"gates[{place}]") for place, table in enumerate(gates)),
        tuning=section(Tuning, data.get("tuning", {}), "tuning"),
        published=head.published,
        scope=head.scope,
        history=head.history,
    )
    for key in dataclasses.replace(study, full=True).trial_keys():
        study.training_of(key)
        study.model_of(key)
    for place, gate in enumerate(study.gates):
        try:
            _check_gate(study, gate)
        except ClockhandsError as wrong:
            raise within(f"gates[{place}]", wrong) from None
    taken = {seed for plan in tasks.values() for seed in plan.seeds} & set(study.tuning.seeds)
    if taken:
        raise InvalidValue(
            f"`tuning.seeds` holds {min(taken)}, which is also a seed of the study.", "Use other seeds for tuning."
        )
    tunes = "grid" in data and (not grid or _TUNING in grid)
    return _over_the_rates(study, grid.get(_TUNING, {})) if tunes else study


_TUNING = "tuning"
"""The table in ``grid`` that makes a study one of learning rates (`clockhands.lab.tuning`), as an empty grid does."""


def _cells(given: Mapping[str, Any], tasks: Mapping[str, TaskPlan]) -> dict[str, TaskPlan]:
    """Every cell of the grid of a study: with one value of one axis, or in the full form of several."""
    grid: StudyGrid = section(StudyGrid, given, "grid")
    for task in grid.tasks or ():
        if task not in tasks:
            raise InvalidValue(f"`grid.tasks` names the unknown task {shown(task)}.", near(task, tasks))
    axes = {
        axis: {
            name: section(GridValue, each, f"grid.axes.{axis}.{name}")
            for name, each in _named(values, f"grid.axes.{axis}").items()
        }
        for axis, values in _named(grid.axes, "grid.axes").items()
    }
    choices = [[None, *((axis, name) for name in values)] for axis, values in axes.items()]
    chosen = [dict(filter(None, each)) for each in product(*choices)]
    return {
        cell_name(task, at): _cell(task, tasks[task], at, {axis: axes[axis][name] for axis, name in at.items()})
        for at in sorted(chosen, key=lambda at: (len(at), [list(axes).index(axis) for axis in at]))
        if at
        for task in grid.tasks or tasks
    }


def cell_name(task: str, at: Mapping[str, str]) -> str:
    """The name of a cell of the grid.

    >>> cell_name("language", {"size": "large", "length": "128"})
    'language @ size large + length 128'
    """
    return f"{task} @ {' + '.join(f'{axis} {value}' for axis, value in at.items())}"


def _cell(task: str, plan: TaskPlan, at: Mapping[str, str], values: Mapping[str, GridValue]) -> TaskPlan:
    """A task with the values of some axes; where two set the same field, that of the later axis counts."""
    model, training = plan.model, plan.training
    for axis, each in values.items():
        where = f"grid.axes.{axis}.{at[axis]}"
        model = section(Model, each.model, f"{where}.model", model)
        training = section(Training, each.training, f"{where}.training", training)
    lengths = dict.fromkeys(each * training.length // plan.training.length for each in plan.evaluation.lengths)
    return dataclasses.replace(
        plan,
        model=model,
        training=training,
        evaluation=dataclasses.replace(plan.evaluation, lengths=tuple(lengths)),
        base=task,
        at=dict(at),
        full=len(at) > 1 or any(each.full for each in values.values()),
    )


def at_rate(arm: str, rate: float) -> str:
    """The name of an arm at a learning rate that is tried."""
    return f"{arm} at {rate!r}"


def _over_the_rates(study: Study, only: Mapping[str, Mapping[str, list[float]]]) -> Study:
    """Every arm at every learning rate of ``tuning``, on its seeds, evaluated at the training length, without gates.

    ``only`` names other rates, by task and arm, and nothing else is trained then.
    """

    def rates(task: str, arm: str) -> tuple[float, ...]:
        return tuple(only.get(task, {}).get(arm, ())) if only else study.tuning.learning_rates

    arms = {
        at_rate(name, rate): dataclasses.replace(
            arm,
            learning_rate=rate,
            at_test={},
            lengths=(arm.training["length"],) if "length" in arm.training else None,
        )
        for name, arm in study.arms.items()
        for rate in dict.fromkeys(rate for task in study.tasks for rate in rates(task, name))
    }
    tasks = {
        name: dataclasses.replace(
            plan,
            task=plan.task.for_tuning,
            seeds=study.tuning.seeds,
            arms=tuple(at_rate(arm, rate) for arm in plan.arms for rate in rates(name, arm)),
            evaluation=dataclasses.replace(
                plan.evaluation, lengths=(plan.training.length,), protocols=("whole",), curve=0
            ),
        )
        for name, plan in study.tasks.items()
    }
    return dataclasses.replace(study, arms=arms, tasks=tasks, gates=())


_SECTIONS: Mapping[str, Any] = {"model": Model, "training": Training, "evaluation": Evaluation}
"""The sections that a task may have for itself; its fields come before those of the study."""


def _task(given: Any, where: str, study: Mapping[str, Any], seeds: tuple[int, ...], arms: tuple[str, ...]) -> TaskPlan:
    table = a_table(given, where)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in TASKS:
        raise InvalidValue(f"`{where}.kind` must be the name of a task, got {shown(kind)}.", near(str(kind), TASKS))
    own = _fields_of(TASKS[kind])
    refuse_unknown(table, (*own, "kind", "seeds", "arms", *_SECTIONS), f"`{where}`")
    try:
        task = TASKS[kind](**{key: value for key, value in table.items() if key in own})
    except ClockhandsError as wrong:
        raise within(where, wrong) from None
    choice: Choice = section(Choice, {key: table[key] for key in ("seeds", "arms") if key in table}, where)
    for arm in choice.arms or ():
        if arm not in arms:
            raise InvalidValue(f"`{where}.arms` names the unknown arm {shown(arm)}.", near(arm, arms))
    both = {name: {**study.get(name, {}), **a_table(table.get(name, {}), f"{where}.{name}")} for name in _SECTIONS}
    made = {name: section(cls, both[name], f"{where}.{name}") for name, cls in _SECTIONS.items()}
    if "lengths" not in both["evaluation"]:
        made["evaluation"] = dataclasses.replace(made["evaluation"], lengths=(made["training"].length,))
    for protocol in made["evaluation"].protocols:
        if protocol not in task.protocols:
            raise InvalidValue(
                f"`{where}` has no protocol {protocol!r}.", f"Its protocols are: {', '.join(task.protocols)}."
            )
    return TaskPlan(task, **made, seeds=choice.seeds or seeds, arms=choice.arms or arms)


def _fields_of(task: Any) -> dict[str, Any]:
    """The fields of a task that a study file may set, with their types."""
    return {each.name: each.type for each in dataclasses.fields(task) if each.init}


def _arm(table: Any, where: str) -> Arm:
    arm: Arm = section(Arm, table, where)
    own: dict[str, Any] = {
        name: section(cls, given, f"{where}.{name}")
        for name, cls in (("drop", Drop), ("positions", DrawnPositions))
        if (given := getattr(arm, name)) is not None
    }
    own["at_test"] = {
        name: section(AtTest, each, f"{where}.at_test.{name}")
        for name, each in _named(arm.at_test, f"{where}.at_test").items()
    }
    checked(Model, arm.model, f"{where}.model")
    checked(Training, arm.training, f"{where}.training")
    return dataclasses.replace(arm, **own)


def _check_gate(study: Study, gate: Gate) -> None:
    """Refuse a gate that names something unknown, or that would never be measured."""
    if gate.task not in study.tasks:
        raise InvalidValue(f"there is no task {gate.task!r}.", near(gate.task, study.tasks))
    plan = study.tasks[gate.task]
    parts = {part: None for each in study.tasks.values() if each.base == gate.task
             for axis, value in each.at.items() for part in (axis, f"{axis} {value}")}  # fmt: skip
    for part in gate.grid:
        if part not in parts:
            raise InvalidValue(f"the grid of {gate.task} has no {shown(part)}.", near(part, parts))
    of_loss = gate.measure in ("loss", "accuracy", "loss_ratio")
    if (gate.interval_above is not None or gate.interval_below is not None) and len(plan.seeds) < 2:
        raise InvalidValue("an interval needs at least two seeds, but the task has one.", "Use at_least or at_most.")
    if gate.at_least is not None and gate.at_most is not None and gate.at_least > gate.at_most:
        raise InvalidValue(
            f"no number is at least {gate.at_least:g} and at most {gate.at_most:g}.", "Swap the two bounds."
        )
    if gate.minus == gate.arm and gate.minus_variant == gate.variant:
        raise InvalidValue(
            "`minus` is the gate's own arm.", "Name another arm, or add `minus_variant`, a change at test time."
        )
    if gate.minus_variant and not gate.minus:
        raise InvalidValue(
            "`minus_variant` needs `minus`.", "Set `minus` to the arm to subtract; it may be the same arm."
        )
    for arm, variant in ((gate.arm, gate.variant), (gate.minus or gate.arm, gate.minus_variant)):
        if arm not in plan.arms:
            raise InvalidValue(f"there is no arm {arm!r} in this task.", near(arm, plan.arms))
        known = study.arms[arm].at_test if of_loss else ()
        if variant and variant not in known:
            raise InvalidValue(
                f"the study does not measure {gate.measure} of {arm} with {variant!r}.",
                near(variant, known) if known else "Leave `variant` out.",
            )
        trained, lengths = study.training_of(Key(gate.task, arm, 0)).length, study.lengths_of(Key(gate.task, arm, 0))
        if not of_loss:
            lengths = (trained,)
        if gate.minus and not gate.length and trained != study.training_of(Key(gate.task, gate.arm, 0)).length:
            raise InvalidValue(
                f"{gate.arm} and {gate.minus} are trained at different lengths, so the gate needs `length`.",
                "Set `length` to a length at which both are evaluated.",
            )
        for length in (gate.length or trained, *((trained,) if gate.measure == "loss_ratio" else ())):
            if length not in lengths:
                raise InvalidValue(
                    f"{gate.measure} of {arm} is not measured at length {length}.",
                    f"It is measured at: {', '.join(map(str, lengths))}.",
                )
        lacking = {
            "spike": study.arms[arm].drop is None and "`drop` in the arm",
            "won_back": not _goes_on_after_drop(study, Key(gate.task, arm, 0)) and "training after a `drop` in the arm",
            "steps_to_threshold": not (plan.evaluation.curve and plan.evaluation.threshold)
            and "a `curve` and a `threshold`",
            "sink_share": not plan.evaluation.sinks and "`sinks = true`",
        }.get(gate.measure)
        if lacking:
            raise InvalidValue(f"The measure {gate.measure} needs {lacking}.", "Add it, or use another measure.")
    if gate.protocol not in (plan.evaluation.protocols if of_loss else ("whole",)):
        raise InvalidValue(f"the protocol {gate.protocol!r} is not evaluated.", "Add the protocol to `protocols`.")


def _goes_on_after_drop(study: Study, key: Key) -> bool:
    drop, training = study.arms[key.arm].drop, study.training_of(key)
    return drop is not None and training.in_steps(drop.at) < training.steps


def _named(given: Any, where: str) -> Mapping[str, Any]:
    """A table of tables whose names are safe in messages, in rows and as file names."""
    for name in a_table(given, where):
        if not re.fullmatch(NAME, name):
            raise InvalidValue(
                f"`{where}` has the name {name!r}, which is not allowed.",
                "Begin it with a letter, a digit or _; after that, spaces and .:%@+- are allowed too.",
            )
    return given


def schema() -> dict[str, Any]:
    """The JSON Schema of a study file (TOML has the same types)."""
    kinds = {int: "integer", float: "number", str: "string", bool: "boolean"}
    shared = {name: {"$ref": f"#/$defs/{cls.__name__}"} for name, cls in _SECTIONS.items()}
    tasks = [
        {
            "type": "object",
            "properties": {
                "kind": {"const": kind},
                **{name: {"type": kinds[of]} for name, of in _fields_of(cls).items()},
                **schema_of(Choice)["properties"],
                **shared,
            },
            "required": ["kind"],
            "additionalProperties": False,
        }
        for kind, cls in TASKS.items()
    ]
    code = [
        {"type": "string"},
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": list(CODES)}}},
        {
            "type": "object",
            "required": ["python"],
            "properties": {"python": {"type": "string", "pattern": re.sub(r"\?P<\w+>", "", IN_FILE.pattern)}},
        },
        {
            "type": "object",
            "required": ["codes"],
            "properties": {
                "codes": {"type": "array", "items": {"$ref": "#/$defs/Code"}},
                "pattern": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            },
            "additionalProperties": False,
        },
    ]
    named = {"type": "object", "propertyNames": NAMED, "minProperties": 1}
    top = schema_of(Head)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A study of clockhands lab",
        **top,
        "required": [*top["required"], "tasks", "arms"],
        "properties": {
            **top["properties"],
            **shared,
            "tasks": {"additionalProperties": {"oneOf": tasks}, **named},
            "arms": {"additionalProperties": {"$ref": "#/$defs/Arm"}, **named},
            "gates": {"type": "array", "items": {"$ref": "#/$defs/Gate"}},
            "tuning": {"$ref": "#/$defs/Tuning"},
            SOURCES: {
                "type": "object",
                "description": "Code of files that `python` names; added when the file is read.",
            },
            "grid": {
                **schema_of(StudyGrid),
                "properties": {**schema_of(StudyGrid)["properties"], _TUNING: {"type": "object"}},
                "description": "Sizes, lengths, learning rates or durations at which tasks are trained again. "
                f"`lab tune` adds an empty grid, or one with `{_TUNING}`.",
            },
        },
        "$defs": {
            "Code": {"oneOf": code},
            **{
                cls.__name__: schema_of(cls)
                for cls in (*_SECTIONS.values(), AtTest, Drop, DrawnPositions, Arm, GridValue, Tuning)
            },
            "Gate": {**schema_of(Gate), "anyOf": [{"required": [bound]} for bound in BOUNDS]},
        },
    }
