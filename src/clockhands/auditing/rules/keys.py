"""Keys that contradict each other, or that nobody reads."""

import re
from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, listed, named, said, stated


def _conflict(evidence: Evidence) -> str:
    used = evidence.get("used")
    tail = f" This audit goes by {_bare(used, evidence)}." if isinstance(used, str) else ""
    return f"{said(evidence, 'but')}: readers that look at only one of them build different models.{tail}"


def _bare(name: str, evidence: Evidence) -> str:
    several = len({entry.partition(":")[0] for entry, _ in stated(evidence)}) > 1
    return name if several else name.partition(":")[2] or name


def _duplicate(evidence: Evidence) -> str:
    keys = listed([name for name, _ in named(evidence)])
    return f"{keys} is given more than once: the last value was read, and other readers may take the first."


# What the keys of position codes are made of, in the spellings of all families.
_ABOUT_POSITIONS = re.compile(
    r"rope|rot|position|theta|scal|factor|window|slid|seq|ctx|context|head|layer|hidden|model"
)


def _about_positions(evidence: Evidence) -> str:
    return "warning" if any(_ABOUT_POSITIONS.search(name) for name, _ in named(evidence)) else "note"


def _unknown_key(evidence: Evidence) -> str:
    known = evidence.get("known")
    keys = listed([f"{name} ({spoken(value)})" for name, value in named(evidence)])
    return (
        f"{keys} is not a key of this block{f', which knows {known}' if known else ''}; readers drop it without a word."
    )


def _ignored(evidence: Evidence) -> str:
    # A key that stands in the wrong place loses its value; one that this type has no use for loses nothing.
    misplaced = re.search(r"block|object", str(evidence.get("because", "")))
    return "warning" if misplaced or evidence.get("read instead") else "note"


def _ignored_key(evidence: Evidence) -> str:
    because = f" ({evidence['because']})" if evidence.get("because") else ""
    instead = f" {evidence['read instead']} is read instead." if evidence.get("read instead") else ""
    return f"{said(evidence)}, but it is not read{because}: it is dropped without a word.{instead}"


CODES: Mapping[str, Rule] = {
    "conflicting-keys": Rule(
        "warning", _conflict, "Find out which one the model was trained with and delete or correct the other."
    ),
    "duplicate-key": Rule(
        _about_positions, _duplicate, "Find out which value the model was trained with and delete the other."
    ),
    "unknown-key": Rule(
        "warning",
        _unknown_key,
        "Correct the spelling or delete the key; if a reader of yours needs it, `--ignore unknown-key`.",
    ),
    "ignored-key": Rule(_ignored, _ignored_key, "Move it to where this model type reads it, or delete it."),
}
