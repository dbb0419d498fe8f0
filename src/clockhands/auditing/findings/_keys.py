"""Findings on keys that contradict each other, occur twice, or are not read, and on the old and new config shapes."""

import re
from typing import Any

from clockhands.auditing._edits import Edit, added, copied, moved, removed, renamed, replaced, together
from clockhands.auditing.findings._rules import Case
from clockhands.configs.overriding import CALLER
from clockhands.configs.released_code import line_of
from clockhands.formats.files import file_and_key
from clockhands.phrases import listed, nearest, spoken

# A share of the channels and their number express the same setting: the value of one key is not valid for the other.
_SHARE = re.compile(r"(factor|pct|percentage)$")

# The words in keys of position codes, in the spellings of all families.
_ABOUT_POSITIONS = re.compile(
    r"rope|rot|position|theta|scal|factor|window|slid|seq|ctx|context|head|layer|hidden|model"
)
# Keys that only some runtimes read, each in its own way; the value means something else under any other key.
_OF_SOME = {
    "attn_factor": "vLLM 0.11.0 multiplies YaRN's attention factor by attn_factor, and Transformers 5.23.0 reads"
    f" attention_factor ({line_of('transformers 5.23.0', 'attention_factor')}), which replaces YaRN's attention factor",
    "dual_chunk_attention_config": "vLLM 0.11.0 counts positions in chunks by it (dual chunk attention,"
    f" {line_of('vllm 0.11.0', 'dual_chunk_attention_config', 'shared')})",
}


_UNREAD = "Delete the key: the code of this model type does not use it."


def _of_some(place: str | None) -> str | None:
    return _OF_SOME.get(re.split(r"[.:]", place or "")[-1])


class ConflictingKeys(Case, code="conflicting-keys"):
    def used_key(self) -> str | None:
        """The key that is used, with its file if there are several."""
        several = len({file_and_key(name)[0] for name, _ in self.stated}) > 1
        return self.used if several or self.used is None else file_and_key(self.used)[1] or self.used

    def edit(self) -> Edit | None:
        """Set the other keys to the value of the used one, or remove them if they count something else."""
        used = self.used
        others = [name for name, _ in self.stated if name != used]
        if used is None or used not in self.evidence or not others:
            return None
        says = f"If the model was trained with the value of {file_and_key(used)[1]}, set the other keys to this value."
        alike = [bool(_SHARE.search(name)) == bool(_SHARE.search(used)) for name in others]
        return together(
            says,
            *(copied(used, name) if same else removed(name) for name, same in zip(others, alike, strict=True)),
        )


class DuplicateKey(Case, code="duplicate-key"):
    def keys(self) -> str:
        """The keys, as text."""
        return listed([name for name, _ in self.named])

    def about_positions(self) -> bool:
        """Whether one of them may concern positions."""
        return any(_ABOUT_POSITIONS.search(name) for name, _ in self.named)


class UnknownKey(Case, code="unknown-key"):
    known = ""
    of = ""

    def keys(self) -> str:
        """The keys with their values, as text."""
        return listed([f"{name} ({spoken(value)})" for name, value in self.named])

    def edit(self) -> Edit | None:
        place, near = self.place, self.near()
        if place is None or self.of_some() is not None:
            return None
        if near is not None and not self.held:
            return renamed(place, near)
        return removed(place, _UNREAD)

    def of_some(self) -> str | None:
        """What the runtimes do that read the key, if only some do."""
        return _of_some(self.place)

    def near(self) -> str | None:
        """The key of the block that is spelt most like the unknown one, if one is similar."""
        return self.meant or nearest((self.place or "").rpartition(".")[2], self.known.split(", "), 0.7)


class IgnoredKey(Case, code="ignored-key"):
    read_instead = ""

    @property
    def by_caller(self) -> bool:
        """Whether the caller set the key, and so expects an effect."""
        return any(place.startswith(f"{CALLER}:") for place, _ in self.stated)

    def of_some(self) -> str | None:
        """What the runtimes do that read the key, if only some do."""
        return _of_some(self.place)

    def lost(self) -> bool:
        """Whether a value is lost, and not only without use."""
        # A key in a wrong place loses its value; one that this type does not use loses nothing.
        misplaced = re.search(r"block|object", str(self.because))
        # A switch turns on a code that the type does not have: the author meant another model.
        switched = any(value is True for _, value in self.stated)
        return bool(misplaced or switched or self.read_instead)

    def edit(self) -> Edit | None:
        place = self.place
        if place is None or self.by_caller or self.of_some() is not None:
            return None
        if not self.lost():
            return removed(place, _UNREAD)
        instead = str(self.read_instead)
        if self.key().rpartition(".")[2] == "type" and instead.startswith("rope_type"):
            return copied(place, f"{place.removesuffix('type')}rope_type", "Write the name under rope_type as well.")
        # What is read instead is a key of the same object, or the default for the unread one.
        if not re.fullmatch(r"[a-z]\w*", instead) or instead in ("true", "false", "null"):
            return None
        return renamed(place, instead)


class ConflictingShapes(Case, code="conflicting-shapes"):
    used = ""

    def used_key(self) -> str:
        """The key that is used."""
        return file_and_key(str(self.used))[1]

    def edit(self) -> Edit | None:
        """Set the unused place to the values of the used one, number by number."""
        used = str(self.used)
        entries = self.stated
        edits = []
        for first, second in zip(entries[::2], entries[1::2], strict=True):
            (from_, value), (to, _) = (second, first) if second[0].startswith(used) else (first, second)
            key = to.rpartition(":")[2].rpartition(".")[2]
            if value is None:
                # The used place does not have the key: a missing type can be written, another key must be removed.
                edits.append(replaced(to, "default") if key in ("type", "rope_type") else removed(to))
            else:
                edits.append(copied(from_, to))
        place = file_and_key(used)[1]
        says = f"If the model was trained with the values of {place}, set the other keys to these values."
        return together(says, *edits)

    def paired(self) -> str:
        """The values of one setting in two places, side by side; values that only one place has come last."""
        entries = self.named
        both: list[str] = []
        alone: dict[str, list[str]] = {}
        for (name, value), (other, its) in zip(entries[::2], entries[1::2], strict=True):
            if value is None or its is None:
                holder, _, key = (name if its is None else other).rpartition(".")
                alone.setdefault(holder, []).append(key)
            else:
                both.append(f"{name} is {spoken(value)} but {other} is {spoken(its)}")
        only = [
            f"{listed(keys)} {'is' if len(keys) == 1 else 'are'} only in {holder}" for holder, keys in alone.items()
        ]
        return "; ".join(filter(None, [listed(both), *only]))


class ConflictingSpellings(Case, code="conflicting-spellings"):
    def used_key(self) -> str:
        """The key that is used."""
        return str(self.used).rpartition(".")[2]

    def edit(self) -> Edit | None:
        used = self.used
        other = next((name for name, _ in self.stated if name != used), None)
        if not isinstance(used, str) or other is None:
            return None
        name = spoken(self.evidence.get(used))
        return copied(used, other, f"If the model was trained with the scaling {name}, write {name} under both keys.")


class FlatLayerTypes(Case, code="flat-layer-types"):
    kinds_of_layers = ()
    scaled = ()

    def bases(self) -> dict[str, Any]:
        """The base of each kind of layer that its class has as a default."""
        return {kind: self.evidence.get(f"base of {kind}") for kind in self.kinds_of_layers}

    def used(self) -> str:
        """What Transformers uses, as text."""
        taken = [f"{spoken(base)} for {kind}" for kind, base in self.bases().items() if base]
        return f"uses the base {listed(taken)}, and no scaling" if taken else "applies no scaling"

    def edit(self) -> Edit | None:
        """Move the block into the object of the layers that it is for; the other layers get the class default."""
        bases, owners, entries = self.bases(), list(self.scaled), self.stated
        if len(owners) != 1 or not bases or not entries:
            return None
        if any(place.rpartition(".")[2] in bases for place, _ in entries):
            return None  # a kind of layer has a value that is not an object: the intention is unknown
        others = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}
        if any(bases[kind] is None for kind in bases if kind not in owners):
            return None
        block = entries[0][0].rpartition(".")[0]
        return together(
            f"Move the block into an object {owners[0]}, and write one object for every other layer type.",
            *(added(f"{block}.{kind}", {} if kind in owners else values) for kind, values in others.items()),
            *(moved(place, f"{block}.{owners[0]}.{place.rpartition('.')[2]}") for place, _ in entries),
        )
