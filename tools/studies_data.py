"""From stores of the lab to what `measures.claims` keeps of a study: called by studies_document.py."""

import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from clockhands.measures.claims import AS_TRAINED, OF_TRAINING, estimated, measured, stored

BINS = 10


def collect(path: Path) -> dict[str, Any]:
    """The shipped studies in a store, as they are kept, with the cells that are kept already of the same study."""
    found = {}
    for name, results in results_in(path):
        before = measured(name).data if name in stored() else None
        same = before is not None and before["run"]["hash"] == results.stored.hash
        found[name] = joined(name, before if same else None, results)
    return found


def repeated(path: Path) -> dict[str, Any]:
    """The verdicts in a store of studies that are kept from another run, and what run they are of."""
    found = {}
    for name, results in results_in(path):
        own = kept(results)
        if own["run"]["hash"] != measured(name).data["run"]["hash"]:
            raise SystemExit(f"{path} holds {name} as it is now, and its kept results are those of another form of it.")
        judged = ("value", "holds", "chance", "cells")
        found[name] = {
            "run": {key: own["run"][key] for key in ("commit", "created", "wall_seconds", "versions", "machine")},
            "gates": [{key: each[key] for key in judged if key in each} for each in own["gates"]],
        }
    return found


def results_in(path: Path) -> Iterator[tuple[str, Any]]:
    """The shipped studies in a store, by name."""
    from clockhands.lab import study as studies
    from clockhands.lab.store import Store

    shipped = {studies.read(name).hash: name for name in studies.shipped()}
    with Store.open(path, create=False, write=False) as store:
        for each in store.studies():
            if each.hash not in shipped:
                raise SystemExit(f"{path} holds a study {each.hash[:12]} that is not a shipped one as it is now.")
            yield shipped[each.hash], complete(store, each)


def joined(name: str, before: Mapping[str, Any] | None, results: Any) -> dict[str, Any]:
    """What is kept of a study; cells that an earlier run measured stay, and gates are judged over all of them."""
    from clockhands.lab.shipped_results import results_of

    own, planned = kept(results), results.study.tasks
    every = ({} if before is None else before["tasks"]) | own["tasks"]
    missing = [task for task, each in planned.items() if not each.base and task not in every]
    if missing:
        raise SystemExit(f"No trial of {name} is run of: {', '.join(missing)}.")
    if before is None or len(every) == len(own["tasks"]):
        return own
    run, added = before["run"], own["run"]
    sums = {key: run[key] + added[key] for key in ("wall_seconds", "trial_seconds", "finished", "failed")}
    apart = {key: added[key] for key in ("commit", "created", "versions")} | {"tasks": list(own["tasks"])}
    arms = own["arms"]
    data = {
        **before,
        "run": run | sums | {"apart": [*run.get("apart", ()), apart]},
        "arms": {arm: each | {"tasks": each["tasks"] | arms[arm]["tasks"]} for arm, each in before["arms"].items()},
        "tasks": {task: every[task] for task in planned if task in every},
    }
    judged = results_of(name, data)
    return data | {"gates": [gate(each, planned[each.gate.task].seeds) for each in judged.gates()]}


def complete(store: Any, stored: Any) -> Any:
    """The results of a study, without the cells of its grid of which trials are still to be run, or none was begun."""
    from clockhands.lab.results import Results

    whole = Results.load(store, stored)
    waiting = [each for each in whole.trials if each.state == "waiting"]
    if unrun := [each for each in waiting if not whole.study.tasks[each.task].base]:
        raise SystemExit(f"{store.path}: {len(unrun)} trials of {stored.name} are not run.")
    tasks = {each.task for each in whole.trials} - {each.task for each in waiting}
    trials = [each for each in whole.trials if each.task in tasks]
    study = replace(whole.study, full=True)
    return Results(study, stored, trials, store.rows(stored.hash, task=list(tasks)))


def kept(results: Any) -> dict[str, Any]:
    """One study."""
    study, stored = results.study, results.stored
    run = {each.task for each in results.trials}
    ended = max(each.finished_at for each in results.trials)
    wall = (datetime.fromisoformat(ended) - datetime.fromisoformat(stored.created)).total_seconds()
    return {
        "question": study.question,
        "scope": study.scope,
        "published": list(study.published),
        **({"history": list(study.history)} if study.history else {}),
        "run": {
            "command": without_folders(stored.command),
            "commit": stored.commit_id,
            "version": stored.version,
            "hash": stored.hash,
            "created": stored.created,
            "wall_seconds": round(wall),
            "trial_seconds": round(results.seconds),
            "versions": stored.versions,
            "machine": {name: value for name, value in stored.machine.items() if name != "texts"},
            "texts": stored.machine.get("texts", {}),
            "finished": results.states["finished"],
            "failed": [
                {"task": each.task, "arm": each.arm, "seed": each.seed, "message": each.message}
                for each in results.trials
                if each.state == "failed"
            ],
        },
        "gates": [gate(each, study.tasks[each.gate.task].seeds) for each in results.gates()],
        "arms": {name: arm(results, name) for name in study.arms},
        "tasks": {name: task(results, name) for name in study.tasks if name in run},
    }


def without_folders(command: str) -> str:
    """A command without the folders of the machine that it was run on.

    >>> without_folders("clockhands lab run quick --store /home/me/quick.sqlite")
    'clockhands lab run quick --store quick.sqlite'
    """
    return shlex.join(Path(word).name for word in shlex.split(command))


def row(value: Any, seeds: Iterable[int], digits: int = 6) -> list[Any]:
    """An estimate: mean, low, high, then the number of each seed."""

    def short(number: float | None) -> Any:
        if number is None:
            return None
        return float(f"{number:.{digits}g}") if math.isfinite(number) else str(number)

    return [short(each) for each in (value.mean, value.low, value.high, *(value.seeds.get(seed) for seed in seeds))]


def gate(judged: Any, seeds: Iterable[int]) -> dict[str, Any]:
    """A gate with its verdict; fields that it does not use are left out."""
    told = judged.gate
    given = {
        name: getattr(told, name)
        for name in (
            "says", "task", "arm", "variant", "minus", "minus_variant", "measure", "length", "protocol", "at_least",
            "at_most", "interval_above", "interval_below",
        )
        if getattr(told, name) not in ("", None)
    }  # fmt: skip
    return given | judged_so(judged, seeds) | cells_of(judged, seeds)


def judged_so(judged: Any, seeds: Iterable[int]) -> dict[str, Any]:
    """The number and the verdict of a gate, or of it in a cell of the grid."""
    chance = None if judged.chance is None else float(f"{judged.chance:.2g}")
    value = None if judged.value is None else row(judged.value, seeds)
    return {"value": value, "holds": judged.holds, "chance": chance}


def cells_of(judged: Any, seeds: Iterable[int]) -> dict[str, Any]:
    """By cell of the grid, the same and whether the gate is said of it; nothing for a gate without a grid."""
    cells = {cell: judged_so(own, seeds) | {"said": own.said} for cell, own in judged.cells.items()}
    return {"cells": cells} if cells else {}


def arm(results: Any, name: str) -> dict[str, Any]:
    """What an arm is, and by task how it was trained and what it cost."""
    told = results.to_dict()["arms"][name]
    study, tasks, run = results.study, {}, {each.task for each in results.trials}
    for key in study.trial_keys():
        if key.arm == name and key.task not in tasks and key.task in run:
            facts = [each.facts for each in results.trials if each.key[:2] == key[:2] and each.state == "finished"]
            tasks[key.task] = {
                "steps": max((each.get("steps", 0) for each in facts), default=0) or study.training_of(key).steps,
                "learning_rate": study.training_of(key).learning_rate,
                "layers": study.model_of(key).layers,
                "parameters": facts[0]["parameters"] if facts else None,
                "code_parameters": facts[0]["code_parameters"] if facts else None,
                "tokens_per_second": round(median(each["tokens_per_second"] for each in facts)) if facts else None,
            }
    return {"says": told["says"], "tasks": tasks}


def task(results: Any, name: str) -> dict[str, Any]:
    """What was measured in a task."""
    plan = results.study.tasks[name]
    kind = type(plan.task).__name__
    measures = ["loss", "sink_share", "even_share"] if kind == "Language" else ["accuracy", "loss"]
    cells: dict[str, Any] = {}
    training: dict[str, Any] = {}
    for each in plan.arms:
        own = results.study.arms[each]
        for variant in ("", *own.at_test):
            for protocol in plan.evaluation.protocols:
                for measure in measures:
                    for length in plan.evaluation.lengths:
                        value = results.value(name, each, measure, length=length, variant=variant, protocol=protocol)
                        if value is not None:
                            by_variant = cells.setdefault(each, {}).setdefault(variant or AS_TRAINED, {})
                            by_length = by_variant.setdefault(protocol, {}).setdefault(measure, {})
                            by_length[str(length)] = row(value, plan.seeds)
        for measure in OF_TRAINING:
            value = results.value(name, each, measure)
            if value is not None and (measure != "steps_to_threshold" or plan.evaluation.threshold):
                training.setdefault(each, {})[measure] = row(value, plan.seeds, 4)
        steps = results.curve(name, each, "gradient_norm_largest").values()
        largest = {seed: max(step.seeds[seed] for step in steps if seed in step.seeds) for seed in trained(steps)}
        if largest:
            training[each]["gradient_norm_largest"] = row(estimated(largest), plan.seeds, 4)
    return {
        "kind": kind,
        "length": plan.training.length,
        "sequences": plan.training.sequences,
        "steps": plan.training.steps,
        "threshold": plan.evaluation.threshold,
        "seeds": list(plan.seeds),
        "model": {
            "layers": plan.model.layers, "width": plan.model.width, "heads": plan.model.heads,
            "start": plan.model.start,
        },
        "drops": [each for each in plan.arms if results.study.arms[each].drop is not None],
        "bounds": {
            bound: {length: float(f"{each[bound]:.6g}") for length, each in results.bounds(name).items()}
            for bound in ("chance_accuracy", "bag_accuracy")
            if bound in next(iter(results.bounds(name).values()), ())
        },
        "cells": cells,
        "training": training,
        "places": places(results, name, kind),
        **({"at": dict(plan.at), "origins": results.origins(name)} if plan.base else {}),
    }  # fmt: skip


def trained(steps: Iterable[Any]) -> list[int]:
    """The seeds of a training curve."""
    return sorted({seed for step in steps for seed in step.seeds})


def places(results: Any, name: str, kind: str) -> dict[str, Any]:
    """Loss by position, or accuracy by depth or distance, as trained, at the longest length, in at most ten bins."""
    if kind not in ("Language", "Recall"):
        return {}
    plan = results.study.tasks[name]
    measure, length = ("loss" if kind == "Language" else "accuracy"), max(plan.evaluation.lengths)
    found = {each: results.places(name, each, measure, length) for each in plan.arms}
    every = sorted({place for each in found.values() for place in each})
    if not every:
        return {}
    step = 1 if every[-1] < BINS else 2 ** math.ceil(math.log2((every[-1] + 1) / BINS))
    bins = {first: [each for each in every if first <= each < first + step] for first in range(0, every[-1] + 1, step)}
    bins = {first: inside for first, inside in bins.items() if inside}
    width = every[1] - every[0] if len(every) > 1 and step > 1 else 1
    arms = {}
    for each, at in found.items():
        rows = []
        for inside in bins.values():
            here = [at[place].seeds for place in inside if place in at]
            seeds = {seed: fmean(one[seed] for one in here if seed in one) for seed in (here[0] if here else ())}
            rows.append(row(estimated(seeds), plan.seeds, 4) if seeds else None)
        if all(rows):  # a learned table ends before the longest length
            arms[each] = rows
    names = [f"{inside[0]}–{inside[-1] + width - 1}" if step > 1 else str(first) for first, inside in bins.items()]
    return {"what": plan.task.place, "measure": measure, "length": length, "names": names, "arms": arms}


def written(data: Mapping[str, Any]) -> str:
    """The data as JSON, one estimate a line."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return re.sub(r"(\[[^\[\]{}\"]*\],)", r"\1\n", text) + "\n"
