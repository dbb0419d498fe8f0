"""Models that a study of the lab kept along its training, found by name: ``STORE:[STUDY:][TASK:]ARM:SEED[@STEP]``.

``clockhands lab run --keep`` writes each as ``STORE.kept/STUDY/TRIAL/STEP.safetensors``. The metadata of the file say
which model it is, so a file is one by itself too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.configs.opened import Opened
from clockhands.encodings.specs import from_dict
from clockhands.errors import InvalidValue, Unreadable
from clockhands.formats import documents, safetensors
from clockhands.formats.shards import WeightsHeader

FOLDER = ".kept"
"""Added to the name of a store: the folder of its kept models."""

NOTE = "clockhands.kept"
"""The key of the metadata under which a kept model says what it is."""

_FIELDS = {"study": str, "hash": str, "text": str, "task": str, "arm": str, "seed": int, "step": int, "length": int}


def kept_path(text: str) -> Path | None:
    """The file of a kept model that ``text`` names; None where it names none.

    Without a step it is the last one that was kept.

    Raises:
        InvalidValue: The store has kept models, but not this one, or several of this name.
    """
    for colon in re.finditer(":", text):
        store = Path(text[: colon.start()])
        folder = store.with_name(store.name + FOLDER) if store.name else store
        if store.name and folder.is_dir():
            return _named(folder, text[colon.end() :], text)
    return None


def kept_trials(folder: Path) -> Iterator[tuple[dict[str, Any], dict[int, Path]]]:
    """What each trial in a folder of kept models is, and its files by step."""
    for trial in sorted(folder.glob("*/*/")):
        by_step = {int(each.stem): each for each in sorted(trial.glob("*.safetensors")) if each.stem.isdecimal()}
        if by_step:
            yield facts_of(safetensors.read_header(by_step[max(by_step)])), by_step


def facts_of(header: WeightsHeader) -> dict[str, Any]:
    """What the metadata of a kept model say.

    Raises:
        Unreadable: They are not those of a kept model.
    """
    facts = documents.parse(header.metadata.get(NOTE, "{}").encode(), f"the metadata of {header.path}").fields
    wrong = [name for name, kind in _FIELDS.items() if type(facts.get(name)) is not kind]
    if wrong:
        raise Unreadable(
            f"The metadata of {header.path} are not those of a kept model: `{wrong[0]}` is missing or of another type.",
            "`clockhands lab run STUDY --keep` writes such files.",
        )
    return facts


def note_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """The metadata of a kept model."""
    return {NOTE: json.dumps(dict(facts), sort_keys=True)}


def open_kept(header: WeightsHeader, target: str) -> Opened:
    """Open a kept model as a target: the spec of its encoding, and its tensors.

    Raises:
        Unreadable: No spec says what its encoding is.
    """
    facts = facts_of(header)
    if facts.get("spec") is None:
        why = facts.get("unsaid") or "no spec says what it is"
        raise Unreadable(
            f"The encoding of the arm {facts['arm']} cannot be audited: {why}.",
            "`clockhands probe` runs the model as the lab trained it.",
        )
    note = f"{target} is a model of the study {facts['study']}, task {facts['task']}, at step {facts['step']:,}."
    place = f"{header.path.name}:length"
    spec = from_dict(facts["spec"])
    return Opened(
        target, "preset", header.path, tensors=header.tensors, spec=spec, notes=(note,), length=facts["length"],
        length_place=place,
    )  # fmt: skip


def _named(folder: Path, name: str, text: str) -> Path:
    words, _, step = name.partition("@")
    *where, arm, seed = ["", "", *words.split(":")]
    trials = list(kept_trials(folder))
    found = [
        (facts, by_step)
        for facts, by_step in trials
        if (facts["arm"], str(facts["seed"])) == (arm, seed)
        and all(
            each in ("", facts["study"], facts["task"]) or (len(each) >= 6 and facts["hash"].startswith(each))
            for each in where
        )
    ]
    if len(found) != 1:
        asked = [facts for facts, _ in found or trials]
        held = dict.fromkeys(f"{each['hash'][:6]}:{each['task']}:{each['arm']}:{each['seed']}" for each in asked)
        what = f"{len(found)} kept models" if found else "no kept model"
        raise InvalidValue(
            f"{folder} has {what} of the name {name}.",
            f"Names are [STUDY:][TASK:]ARM:SEED[@STEP]; it has {', '.join(list(held)[:8]) or 'none'}"
            f"{' and more' if len(held) > 8 else ''}.",
        )
    _, by_step = found[0]
    if step and step not in map(str, by_step):
        raise InvalidValue(
            f"{text} was not kept: there is no step {step}.", f"Kept steps: {', '.join(map(str, by_step))}."
        )
    return by_step[int(step) if step else max(by_step)]
