"""The results of the studies that come with clockhands, as those of a store: a report needs no store for them.

Their files keep the numbers of the finished models with six digits, those by position in at most ten bins, and of
the training what it came to. Curves by training step are not in them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clockhands.errors import InvalidValue
from clockhands.lab import study as studies
from clockhands.lab.results import Results
from clockhands.lab.store import StoredRow, StoredStudy, Trial
from clockhands.measures.claims import AS_TRAINED, measured

NOTE = (
    "These are the results that come with clockhands, of {day}; no store is read. Curves by training step are not "
    "among them: `clockhands lab run {name}` measures them again."
)


def shipped_results(name: str) -> Results:
    """The results of a study that come with the package.

    Raises:
        InvalidValue: There are none, or they are of another version of the study's file.
    """
    return results_of(name, measured(name).data)


def results_of(name: str, data: Mapping[str, Any]) -> Results:
    """The results of a study from what is kept of them.

    Raises:
        InvalidValue: They are of another version of the study's file.
    """
    study, run = studies.read(name), data["run"]
    if run["hash"] != study.hash:
        raise InvalidValue(
            f"The stored results of {name} are of another version of its file.", f"Run `clockhands lab run {name}`."
        )
    failed = {(each["task"], each["arm"], each["seed"]): each["message"] for each in run["failed"]}
    trials = [
        Trial(*key, "failed", failed[key], None, {}, None)
        if key in failed
        else Trial(*key, "finished", "", None, _facts(data, run, key.task, key.arm), run["created"])
        for key in study.trial_keys()
        if key.task in data["tasks"]
    ]
    kept = StoredStudy(
        *(study.hash, name, study.text, run["created"], run["command"], run["version"], run["commit"]),
        run["versions"],
        {**run["machine"], "texts": run["texts"]},
        {task: _bounds(each["bounds"]) for task, each in data["tasks"].items()},
    )
    of_training = {
        (task, arm, measure): _by_seed(row, each["seeds"])
        for task, each in data["tasks"].items()
        for arm, by_measure in each["training"].items()
        for measure, row in by_measure.items()
    }
    rows = [row for task in data["tasks"] for row in _rows(study.hash, task, data["tasks"][task])]
    return Results(study, kept, trials, rows, of_training=of_training, seconds=run["trial_seconds"])


def _facts(data: Mapping[str, Any], run: Mapping[str, Any], task: str, arm: str) -> dict[str, Any]:
    own = data["arms"][arm]["tasks"][task]
    facts = {name: own[name] for name in ("parameters", "code_parameters", "tokens_per_second")}
    run = next((run | apart for apart in run.get("apart", ()) if task in apart["tasks"]), run)
    more = {"device": run["machine"].get("device"), "torch": run["versions"].get("torch")}
    return facts | more | {"clockhands": run["version"], "commit": run["commit"]}


def _bounds(stated: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Bounds by length, from bounds by name."""
    lengths = dict.fromkeys(length for by_length in stated.values() for length in by_length)
    return {
        length: {name: by_length[length] for name, by_length in stated.items() if length in by_length}
        for length in lengths
    }


def _by_seed(row: Sequence[Any], seeds: Sequence[int]) -> dict[int, float]:
    """The number of each seed; before them stand the mean and the range."""
    return {seed: float(each) for seed, each in zip(seeds, row[3:], strict=True) if each is not None}


def _rows(study: str, task: str, data: Mapping[str, Any]) -> Iterator[StoredRow]:
    for arm, variants in data["cells"].items():
        for variant, protocols in variants.items():
            for protocol, measures in protocols.items():
                for measure, lengths in measures.items():
                    for length, row in lengths.items():
                        where = ("" if variant == AS_TRAINED else variant, 0, protocol, int(length), None, measure)
                        for seed, value in _by_seed(row, data["seeds"]).items():
                            yield StoredRow(study, task, arm, seed, "evaluation", *where, value)
    places = data["places"]
    for arm, binned in places.get("arms", {}).items():
        for name, row in zip(places["names"], binned, strict=True):
            where = ("", 0, "whole", places["length"], int(name.partition("–")[0]), places["measure"])
            for seed, value in _by_seed(row, data["seeds"]).items():
                yield StoredRow(study, task, arm, seed, "evaluation", *where, value)
