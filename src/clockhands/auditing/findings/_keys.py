"""Findings on keys that contradict each other, occur twice, or are not read, and on the old and new config shapes."""

import re
from collections.abc import Sequence
from typing import Any

from clockhands.auditing._edits import Edit, added, copied, moved, removed, replaced, together
from clockhands.auditing.findings._kind import Kind, listed, nearest, spoken
from clockhands.configs.overriding import CALLER
from clockhands.formats.files import file_and_key

# A share of the channels and their number express the same setting: the value of one key is not valid for the other.
_SHARE = re.compile(r"(factor|pct|percentage)$")

# The words in keys of position codes, in the spellings of all families.
_ABOUT_POSITIONS = re.compile(
    r"rope|rot|position|theta|scal|factor|window|slid|seq|ctx|context|head|layer|hidden|model"
)
# Keys that only some runtimes read, each in its own way; the value means something else under any other key.
_OF_SOME = {
    "attn_factor": "vLLM 0.11.0 multiplies YaRN's attention factor by attn_factor, and Transformers ignores the key;"
    " attention_factor, which Transformers reads, replaces YaRN's attention factor"
}


class ConflictingKeys(Kind, code="conflicting-keys"):
    title = "Two keys of one file contradict each other"
    severity = "warning"
    hint = "Find out which value the model was trained with, and delete or correct the other value."
    blames = "ambiguous"
    used: str | None = None

    def message(self) -> str:
        several = len({file_and_key(name)[0] for name, _ in self.stated}) > 1
        used = self.used if several or self.used is None else file_and_key(self.used)[1] or self.used
        tail = f" The audit uses {used}." if used is not None else ""
        return (
            f"One quantity has two values: {self.said('but')}. Runtimes that read only one of these keys build"
            " different"
            f" models.{tail}"
        )

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
            *(copied(used, name, "") if same else removed(name, "") for name, same in zip(others, alike, strict=True)),
        )


class DuplicateKey(Kind, code="duplicate-key"):
    title = "A key occurs more than once in the file"
    news = True
    hint = "Find out which value the model was trained with, and delete the other value."

    def blames(self) -> str | None:
        return "ambiguous" if self.severity() == "warning" else None

    def severity(self) -> str:
        return "warning" if any(_ABOUT_POSITIONS.search(name) for name, _ in self.named) else "note"

    def message(self) -> str:
        keys = listed([name for name, _ in self.named])
        return f"{keys} occurs more than once. The audit uses the last value; some runtimes may use the first value."


class UnknownKey(Kind, code="unknown-key"):
    title = "Some or all runtimes ignore a RoPE key"
    severity = "warning"
    hint = (
        "Correct the spelling or delete the key. If your runtime needs the key, keep the key and pass `--ignore"
        " unknown-key`."
    )
    blames = "file"
    known: str = ""
    held: bool = False
    meant: str | None = None
    of: str = ""
    causes: Sequence[str] = ()

    def message(self) -> str:
        so = f" The same mistake causes: {listed(self.causes)}." if self.causes else ""
        if self.meant is not None:
            ((name, value),) = self.named
            return (
                f"{name} ({spoken(value)}) is not a key of {self.of}; {self.meant}, which it resembles, is absent.{so}"
            )
        some = self._of_some()
        if some is not None:
            keys = listed([f"{name} ({spoken(value)})" for name, value in self.named])
            return f"Only some runtimes read {keys}: {some}."
        known = self.known
        keys = listed([f"{name} ({spoken(value)})" for name, value in self.named])
        near = self._nearest()
        meant = f" Did you mean {near}?" if near else ""
        return (
            f"{keys} is not a key of this block{f' (known keys: {known})' if known else ''}. Runtimes ignore this key"
            f" without a warning.{meant}{so}"
        )

    def edit(self) -> Edit | None:
        place, near = self.place, self._nearest()
        if place is None or self._of_some() is not None:
            return None
        if near is not None and not self.held:
            file, path = file_and_key(place)
            around = path.rpartition(".")[0]
            return moved(place, f"{file}:{around}{'.' if around else ''}{near}", f"Rename the key to {near}.")
        return removed(place, "Delete the key: the code of this model type does not read it.")

    def _of_some(self) -> str | None:
        place = self.place or ""
        return _OF_SOME.get(place.rpartition(".")[2])

    def _nearest(self) -> str | None:
        """The key of the block that is spelt most like the unknown one, if one is similar."""
        return self.meant or nearest((self.place or "").rpartition(".")[2], self.known)


class IgnoredKey(Kind, code="ignored-key"):
    title = "The code of this model type does not read a key of the file"
    news = True
    because: str | None = None
    read_instead: str = ""

    def hint(self) -> str:
        if self.by_caller:
            return "Set the key at the level at which this model type reads it, such as text_config.rope_parameters."
        return "Move the key to the place where this model type reads it, or delete the key."

    def blames(self) -> str | None:
        return "file" if self.severity() == "warning" else None

    @property
    def by_caller(self) -> bool:
        """Whether the caller set the key, and so expects an effect."""
        return any(place.startswith(f"{CALLER}:") for place, _ in self.stated)

    def severity(self) -> str:
        if self.by_caller:
            return "warning"
        # A key in a wrong place loses its value; one that this type does not use loses nothing.
        misplaced = re.search(r"block|object", str(self.because))
        # A switch turns on a code that the type does not have: the author meant another model.
        switched = any(value is True for _, value in self.stated)
        return "warning" if misplaced or switched or self.read_instead else "note"

    def message(self) -> str:
        because = f" ({self.because})" if self.because else ""
        instead = f" It uses {self.read_instead} instead." if self.read_instead else ""
        return f"{self.said()}, but the code of this model type ignores this key without a warning{because}.{instead}"

    def edit(self) -> Edit | None:
        place = self.place
        if place is None or self.by_caller:
            return None
        if self.severity() == "note":
            return removed(place, "Delete the key: the code of this model type does not read it.")
        file, path = file_and_key(place)
        around, _, key = path.rpartition(".")
        instead = str(self.read_instead)
        if key == "type" and instead.startswith("rope_type"):
            return copied(place, f"{place.removesuffix('type')}rope_type", "Write the name under rope_type as well.")
        # What is read instead is a key of the same object, or the default for the unread one.
        if not re.fullmatch(r"[a-z]\w*", instead) or instead in ("true", "false", "null"):
            return None
        return moved(place, f"{file}:{around}{'.' if around else ''}{instead}", f"Rename the key to {instead}.")


class ConflictingShapes(Kind, code="conflicting-shapes"):
    title = "The old and the new config format contradict each other"
    severity = "warning"
    hint = "Find out which values the model was trained with. Write them in both formats, or delete the wrong format."
    blames = "ambiguous"
    used: Any = ""

    def message(self) -> str:
        used = str(self.used)
        tail = f" Transformers 5 and the audit use {file_and_key(used)[1]}." if used else ""
        return (
            f"The old and the new config format contradict each other: {self._paired()}. Runtimes that read the old"
            " format"
            f" and runtimes that read the new format build different models, without a warning.{tail}"
        )

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
                edits.append(replaced(to, "default", "") if key in ("type", "rope_type") else removed(to, ""))
            else:
                edits.append(copied(from_, to, ""))
        place = file_and_key(used)[1]
        says = f"If the model was trained with the values of {place}, set the other keys to these values."
        return together(says, *edits)

    def _paired(self) -> str:
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


class ConflictingSpellings(Kind, code="conflicting-spellings"):
    title = "The keys type and rope_type contradict each other"
    severity = "warning"
    hint = "Find out which scaling the model was trained with. Write its name under both keys, or only under rope_type."
    blames = "ambiguous"
    used: Any = None

    def message(self) -> str:
        used = str(self.used).rpartition(".")[2]
        return (
            f"type and rope_type name different scalings: {self.said('but')}. Runtimes that read"
            f" only one of the two keys apply the scaling of that key; Transformers 5 and the audit use {used}."
        )

    def edit(self) -> Edit | None:
        used = self.used
        other = next((name for name, _ in self.stated if name != used), None)
        if not isinstance(used, str) or other is None:
            return None
        name = spoken(self.evidence.get(used))
        return copied(used, other, f"If the model was trained with the scaling {name}, write {name} under both keys.")


class FlatLayerTypes(Kind, code="flat-layer-types"):
    title = "The file has one RoPE block, but each layer type needs a separate block"
    severity = "warning"
    hint = "Write one object for each layer type into the RoPE block, as in the model's original release."
    blames = "file"
    kinds_of_layers: Sequence[str] = ()
    scaled: Sequence[str] = ()

    def message(self) -> str:
        kinds = list(self.kinds_of_layers)
        taken = [
            f"{spoken(self.evidence[f'base of {kind}'])} for {kind}"
            for kind in kinds
            if self.evidence.get(f"base of {kind}")
        ]
        used = f"uses the base {listed(taken)}, and no scaling" if taken else "applies no scaling"
        return (
            f"The file has a single RoPE block ({self.said()}), but this model type needs one block for each layer type"
            f" ({listed(kinds)}). Transformers 5.23.0 ignores the single block and {used}."
        )

    def edit(self) -> Edit | None:
        """Move the block into the object of the layers that it is for; the other layers get the class default."""
        kinds, owners = list(self.kinds_of_layers), list(self.scaled)
        entries = self.stated
        if len(owners) != 1 or not kinds or not entries:
            return None
        if any(place.rpartition(".")[2] in kinds for place, _ in entries):
            return None  # a kind of layer has a value that is not an object: the intention is unknown
        block = entries[0][0].rpartition(".")[0]
        edits = []
        for kind in kinds:
            base = self.evidence.get(f"base of {kind}")
            if kind not in owners and base is None:
                return None
            values = {} if kind in owners else {"rope_type": "default", "rope_theta": base}
            edits.append(added(f"{block}.{kind}", values, ""))
        for place, _ in entries:
            edits.append(moved(place, f"{block}.{owners[0]}.{place.rpartition('.')[2]}", ""))
        return together(
            f"Move the block into an object {owners[0]}, and write one object for every other layer type.", *edits
        )
