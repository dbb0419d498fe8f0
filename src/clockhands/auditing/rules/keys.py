"""Keys that contradict each other, or that nobody reads."""

import difflib
import re
from collections.abc import Mapping

from clockhands.auditing.edits import Edit, copied, moved, removed, together
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, listed, named, said, stated


def _conflict(evidence: Evidence) -> str:
    used = evidence.get("used")
    tail = f" This audit goes by {_bare(used, evidence)}." if isinstance(used, str) else ""
    return f"{said(evidence, 'but')}: readers that look at only one of them build different models.{tail}"


def _bare(name: str, evidence: Evidence) -> str:
    several = len({entry.partition(":")[0] for entry, _ in stated(evidence)}) > 1
    return name if several else name.partition(":")[2] or name


def _conflict_edit(evidence: Evidence) -> Edit | None:
    """The other keys made to say what the used one says, or taken away where they count something else."""
    used = evidence.get("used")
    others = [name for name, _ in stated(evidence) if name != used]
    if not isinstance(used, str) or used not in evidence or not others:
        return None
    says = f"Make the others say what {used.partition(':')[2]} says, if that is what the model was trained with."
    alike = [_counts(name) == _counts(used) for name in others]
    return together(
        says,
        *(copied(used, name, "") if same else removed(name, "") for name, same in zip(others, alike, strict=True)),
    )


# A share of the channels and their number are two ways to say one thing: the value of the one is none of the other.
_SHARE = re.compile(r"(factor|pct|percentage)$")


def _counts(place: str) -> bool:
    return bool(_SHARE.search(place))


def _duplicate(evidence: Evidence) -> str:
    keys = listed([name for name, _ in named(evidence)])
    return f"{keys} is given more than once: the last value was read, and other readers may take the first."


# What the keys of position codes are made of, in the spellings of all families.
_ABOUT_POSITIONS = re.compile(
    r"rope|rot|position|theta|scal|factor|window|slid|seq|ctx|context|head|layer|hidden|model"
)


def _about_positions(evidence: Evidence) -> str:
    return "warning" if any(_ABOUT_POSITIONS.search(name) for name, _ in named(evidence)) else "note"


# What only some readers take, each in a way of its own; under no name of another key does it mean the same.
_OF_SOME = {
    "attn_factor": "vLLM 0.11.0 multiplies YaRN's own magnitude by it, and Transformers drops it;"
    " attention_factor, which Transformers reads, would take the place of that magnitude instead"
}


def _of_some(evidence: Evidence) -> str | None:
    place = next((name for name, _ in stated(evidence)), "")
    return _OF_SOME.get(place.rpartition(".")[2])


def _unknown_key(evidence: Evidence) -> str:
    some = _of_some(evidence)
    if some is not None:
        keys = listed([f"{name} ({spoken(value)})" for name, value in named(evidence)])
        return f"{keys} is a key of some readers only: {some}."
    known = evidence.get("known")
    keys = listed([f"{name} ({spoken(value)})" for name, value in named(evidence)])
    near = _nearest(evidence)
    meant = f" Perhaps {near} is meant." if near else ""
    return (
        f"{keys} is not a key of this block{f', which knows {known}' if known else ''}; readers drop it without a"
        f" word.{meant}"
    )


def _nearest(evidence: Evidence) -> str | None:
    """The key of the block that the unknown one is most like, if it is like one."""
    place = next((name for name, _ in stated(evidence)), "")
    known = str(evidence.get("known", "")).split(", ")
    return next(iter(difflib.get_close_matches(place.rpartition(".")[2], known, n=1, cutoff=0.7)), None)


def _unknown_key_edit(evidence: Evidence) -> Edit | None:
    place, near = next((name for name, _ in stated(evidence)), None), _nearest(evidence)
    if place is None or _of_some(evidence) is not None:
        return None
    if near is not None and not evidence.get("held", False):
        return moved(place, f"{place.rpartition('.')[0]}.{near}", f"Write it as {near}.")
    return removed(place, "Delete the key, which nobody reads.")


def _ignored(evidence: Evidence) -> str:
    # A key that stands in the wrong place loses its value; one that this type has no use for loses nothing.
    misplaced = re.search(r"block|object", str(evidence.get("because", "")))
    # What a switch turns on is another code than the type has: whoever wrote it meant another model.
    switched = any(value is True for _, value in stated(evidence))
    return "warning" if misplaced or switched or evidence.get("read instead") else "note"


def _ignored_edit(evidence: Evidence) -> Edit | None:
    place = next((name for name, _ in stated(evidence)), None)
    if place is None:
        return None
    if _ignored(evidence) == "note":
        return removed(place, "Delete the key, which nobody reads.")
    file, _, path = place.partition(":")
    around, _, key = path.rpartition(".")
    instead = str(evidence.get("read instead", ""))
    if key == "type" and instead.startswith("rope_type"):
        return copied(place, f"{place.removesuffix('type')}rope_type", "Write the name under rope_type as well.")
    # What is read instead is a key of the same object, or the value that stands in for the one that is not read.
    if not re.fullmatch(r"[a-z]\w*", instead) or instead in ("true", "false", "null"):
        return None
    return moved(place, f"{file}:{around}{'.' if around else ''}{instead}", f"Write it as {instead}.")


def _ignored_key(evidence: Evidence) -> str:
    because = f" ({evidence['because']})" if evidence.get("because") else ""
    instead = f" {evidence['read instead']} is read instead." if evidence.get("read instead") else ""
    return f"{said(evidence)}, but it is not read{because}: it is dropped without a word.{instead}"


CODES: Mapping[str, Rule] = {
    "conflicting-keys": Rule(
        "warning",
        _conflict,
        "Find out which one the model was trained with and delete or correct the other.",
        blames="ambiguous",
        edit=_conflict_edit,
        unmended="Where a tensor disagrees with a config, no change of the config alone mends it.",
        title="Two keys of one file disagree about one thing",
        means="The same quantity stands under two keys: at the top and inside an object, or as a number of channels and"
        " as a share of them. Each reader knows one of them, so each builds another model from the same file. Nothing"
        " fails, and which of the two the weights were trained with does not show in the file.",
        cases=("vllm-project/vllm#43770 (May 2026)",),
    ),
    "duplicate-key": Rule(
        _about_positions,
        _duplicate,
        "Find out which value the model was trained with and delete the other.",
        blames=lambda evidence: "ambiguous" if _about_positions(evidence) == "warning" else None,
        unmended="A JSON Patch cannot tell two keys of the same name apart: one has to be deleted by hand.",
        title="A key that stands in the file more than once",
        means="JSON does not say which of two equal keys counts. Python's reader takes the last, others take the first"
        " or refuse the file. If the key is about positions, readers turn by different numbers.",
    ),
    "unknown-key": Rule(
        "warning",
        _unknown_key,
        "Correct the spelling or delete the key; if a reader of yours needs it, `--ignore unknown-key`.",
        blames="file",
        edit=_unknown_key_edit,
        unmended="What one reader multiplies by and another drops no single key says to both.",
        title="A key of a rotary block that no reader knows",
        means="A misspelt key in a scaling block does nothing: readers drop it, many of them without a word, and take"
        " the default of what it was meant for. The model then turns by another ladder than the one it was trained"
        " with, which shows at long distances only.",
    ),
    "ignored-key": Rule(
        _ignored,
        _ignored_key,
        "Move it to where this model type reads it, or delete it.",
        blames=lambda evidence: "file" if _ignored(evidence) == "warning" else None,
        edit=_ignored_edit,
        unmended="Where the key belongs elsewhere, which of two values was meant is for you to say.",
        title="A key that this model type does not read",
        means="The key has a meaning in other models, and none here: its value is dropped without a word. Where it"
        " stands in the wrong place, the value that was meant is replaced by a default; where the type has no use for"
        " it, nothing is lost.",
    ),
}
