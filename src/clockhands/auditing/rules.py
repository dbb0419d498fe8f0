"""The table of findings: for everything that can be noticed, how grave it is, the sentence and what to do.

A reader of files notices (`Fact`: a code and its numbers); it does not judge. The judgement is here, a row for each
code: adding a finding means adding a row.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.auditing.findings import Finding, spoken

Evidence = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """How one kind of finding is judged and told.

    Attributes:
        severity: One of the severities, or a function of the evidence where it depends on the case.
        sentence: From the evidence to the message.
        hint: What to do, or a function of the evidence.
    """

    severity: str | Callable[[Evidence], str]
    sentence: Callable[[Evidence], str]
    hint: str | Callable[[Evidence], str]

    def finding(self, code: str, evidence: Evidence, layers: str | None) -> Finding:
        """The finding that this rule makes of one case."""
        severity = self.severity if isinstance(self.severity, str) else self.severity(evidence)
        hint = self.hint if isinstance(self.hint, str) else self.hint(evidence)
        return Finding(code, severity, self.sentence(evidence), hint, evidence, layers)


def stated(evidence: Evidence) -> list[tuple[str, Any]]:
    """The entries that stand in a file: their names are `file:key`."""
    return [(name, value) for name, value in evidence.items() if ":" in name]


def said(evidence: Evidence, joint: str = "and") -> str:
    """What the file says, in words.

    >>> said({"config.json:rope_theta": 10000.0, "used": 1})
    'rope_theta is 10,000'
    """
    return listed([f"{name} is {spoken(value)}" for name, value in named(evidence)], joint) or "the file does not say"


def listed(words: list[str], joint: str = "and") -> str:
    """Some words as a list in a sentence.

    >>> listed(["one", "two", "three"])
    'one, two and three'
    """
    return f" {joint} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def named(evidence: Evidence) -> list[tuple[str, Any]]:
    """What stands in the file under its bare keys; with the file's name where there are several files."""
    entries = stated(evidence)
    files = {name.partition(":")[0] for name, _ in entries}
    # A quantity of several keys names the file before each: `file:hidden_size / file:num_attention_heads`.
    return [(name if len(files) > 1 else name.replace(f"{min(files)}:", ""), value) for name, value in entries]


def judge(code: str, evidence: Evidence, layers: str | None = None) -> Finding:
    """The finding for something that was noticed."""
    return CODES[code].finding(code, evidence, layers)


def _impossible(evidence: Evidence) -> str:
    limit = str(evidence.get("allowed", "")).rstrip(".")
    # Some limits are sentences of their own: they come from the code that refused the values.
    allowed = f" ({limit})" if " must " in limit else f" (allowed: {limit})" if limit else ""
    return f"{said(evidence)}, which cannot be used{allowed}; no rates follow from it."


def _conflict(evidence: Evidence) -> str:
    used = evidence.get("used")
    tail = f" This audit goes by {_bare(used, evidence)}." if isinstance(used, str) else ""
    return f"{said(evidence, 'but')}: readers that look at only one of them build different models.{tail}"


def _bare(name: str, evidence: Evidence) -> str:
    several = len({entry.partition(":")[0] for entry, _ in stated(evidence)}) > 1
    return name if several else name.partition(":")[2] or name


def _converted(evidence: Evidence) -> str:
    return (
        f"{said(evidence)}, but code of this type pairs {evidence['pairs']} ({evidence['type']}) and does not know the"
        " key: it would turn the wrong channels together."
    )


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


def _unknown_scaling(evidence: Evidence) -> str:
    known = f" (known: {evidence['known']})" if evidence.get("known") else ""
    return f"{said(evidence)}, a scaling that is not known{known}; no rates follow from it."


_BY_ITSELF = "a scaling block with its numbers"


def _incomplete(evidence: Evidence) -> str:
    if evidence.get("missing") == _BY_ITSELF:
        return (
            f"{said(evidence)}: a scaling that only the model's own code knows the numbers of; the rates are left open."
        )
    return f"The scaling block is incomplete ({said(evidence)}): it lacks {evidence.get('missing', 'a required key')}."


def _incomplete_severity(evidence: Evidence) -> str:
    return "note" if evidence.get("missing") == _BY_ITSELF else "error"


def _missing_original(evidence: Evidence) -> str:
    return (
        f"The scaling does not say which length the model was trained on, so {spoken(evidence.get('used'))} was taken"
        f" ({said(evidence)}); if the model was trained on less, every rate that the scaling bends is wrong."
    )


def _default(evidence: Evidence) -> str:
    owner = evidence.get("default of", "the model's class")
    usual = "its documented default" if evidence.get("documented") else "a default that other readers may not share"
    nulled = f" ({said(evidence)})" if stated(evidence) else ""
    used = spoken(evidence.get("used"))
    return f"{evidence.get('field', 'The base')} is not in the file{nulled}; {used} is the default of {owner}, {usual}."


def _missing_value(evidence: Evidence) -> str:
    return f"{evidence['missing']} is not in the file, and {evidence['needed for']} would follow from it: left open."


def _ignored(evidence: Evidence) -> str:
    # A key that stands in the wrong place loses its value; one that this type has no use for loses nothing.
    misplaced = re.search(r"block|object", str(evidence.get("because", "")))
    return "warning" if misplaced or evidence.get("read instead") else "note"


def _ignored_key(evidence: Evidence) -> str:
    because = f" ({evidence['because']})" if evidence.get("because") else ""
    instead = f" {evidence['read instead']} is read instead." if evidence.get("read instead") else ""
    return f"{said(evidence)}, but it is not read{because}: it is dropped without a word.{instead}"


def _factor(evidence: Evidence) -> str:
    product = evidence.get("factor x original")
    reach = (
        f"Factor x original length is {spoken(product)}" if product is not None else "Factor x original length differs"
    )
    tail = (
        "Models of the Llama-3 family are published so: the factor there is a tuning, not a ratio of lengths."
        if evidence.get("scaling") == "llama3"
        else "Readers that compute one from the others disagree."
    )
    return f"{reach}, another length than the one declared ({said(evidence)}). {tail}"


def _family(evidence: Evidence) -> str:
    return "note" if evidence.get("scaling") == "llama3" else "warning"


def _documented(evidence: Evidence) -> str:
    return "note" if evidence.get("documented") else "warning"


def _table_size(evidence: Evidence) -> str:
    expected = f"; {evidence['expected']} was expected" if evidence.get("expected") else ""
    declared = f" but {spoken(evidence['declared'])} is declared" if evidence.get("declared") else ""
    defaults = [
        f"the {name} is {spoken(value)}" for name, value in evidence.items() if name.startswith("class default")
    ]
    declared += f" but {listed(defaults)}" if defaults else ""
    return f"{said(evidence, 'but')}{declared}{expected}: the weights and what is declared of them do not fit."


def _nothing(evidence: Evidence) -> str:
    return " ".join(f"{name} holds {what}." for name, what in evidence.items())


def _unknown_type(evidence: Evidence) -> str:
    names = [value for _, value in stated(evidence) if value]
    who = f"Model type {spoken(names[0])} is not in the table of known types" if names else "No model type is named"
    return f"{who}: its fields alone were read, and what only its code decides, such as the layout, is left open."


def _unreadable_field(evidence: Evidence) -> str:
    expected = f" (expected: {evidence['expected']})" if evidence.get("expected") else ""
    return f"{said(evidence)}, which was not understood{expected} and was left out."


def _text_number(evidence: Evidence) -> str:
    read = spoken(evidence.get("read as"))
    return (
        f"{said(evidence)}, a text and not a number: it was read as {read}; other readers refuse it or take a default."
    )


def _never_turning(evidence: Evidence) -> str:
    count, pairs = evidence["pairs that never complete a turn"], evidence["pairs"]
    length, longest = spoken(evidence["length"]), spoken(evidence["longest wavelength"])
    complete = "completes" if count == 1 else "complete"
    owner = f" of the {evidence['part']}" if evidence.get("part") else ""
    return (
        f"{count} of {pairs} pairs{owner} never {complete} a turn within {length} positions (the slowest would need"
        f" {longest}): the model has seen only a part of their circle."
    )


def _short_table(evidence: Evidence) -> str:
    rows, offset, usable, context = (spoken(evidence[name]) for name in ("rows", "offset", "usable", "context"))
    before = f", {offset} of them before position 0" if evidence["offset"] else ""
    return f"The learned table has {rows} rows{before}: it ends after {usable} positions, but the context is {context}."


def _beyond(evidence: Evidence) -> str:
    length, context = spoken(evidence["length"]), spoken(evidence["context"])
    asked = f"A length of {length} was asked for, but"
    if evidence.get("kind") == "learned":
        return f"{asked} the learned table ends after {context} positions: there are no rows to read."
    return f"{asked} the file declares a context of {context}: what lies beyond was never promised."


def _bare_array(evidence: Evidence) -> str:
    return (
        f"A bare array of shape {spoken(list(evidence['shape']))} and type {evidence['dtype']} that is not recognised"
        f" as a position code. {evidence['reason']}"
    )


def _recognised(evidence: Evidence) -> str:
    name = f", which is called {evidence['name']}" if evidence.get("name") else ""
    where = f", for {evidence['positions']}" if evidence.get("positions") else ""
    if not evidence["computed"]:
        return f"The table is {evidence['code']}: its rows are trained, and no formula makes them."
    made = f", made in {evidence['computed in']}" if evidence.get("computed in") else ""
    return f"The table is {evidence['code']}{name}{where}{made}: no number is off by more than {evidence['error']:.2g}."


def _zero_table(evidence: Evidence) -> str:
    rows, width = spoken(evidence["rows"]), spoken(evidence["width"])
    return f"All {rows} rows of {width} channels are zero: the table says nothing about any position."


def _zero_rows(evidence: Evidence) -> str:
    count, rows, first = (spoken(evidence[name]) for name in ("rows of zeros", "rows", "first such row"))
    are = "is" if evidence["rows of zeros"] == 1 else "are"
    return f"{count} of {rows} rows {are} zero, the first is row {first}: their positions cannot be told apart."


def _repeated(evidence: Evidence) -> str:
    count, rows, first = (spoken(evidence[name]) for name in ("rows like the one before", "rows", "first such row"))
    are = "is" if evidence["rows like the one before"] == 1 else "are"
    rounded = evidence.get("positions rounded to")
    why = f", just where {rounded} has no number" if rounded else ""
    return (
        f"{count} of {rows} rows {are} the same as the row before, the first is row {first}{why}: these positions"
        " cannot be told apart."
    )


def _repeated_severity(evidence: Evidence) -> str:
    # Rows of a formula are all different; trained ones may be alike where no text of that length was seen.
    return "error" if evidence["kind"] == "sinusoidal" or evidence.get("positions rounded to") else "warning"


def _low_precision(evidence: Evidence) -> str:
    name = f", which is called {evidence['name']}" if evidence.get("name") else ""
    parts = listed(list(evidence["rounded"])) or "numbers"
    return (
        f"The table is {evidence['code']}{name}, made in {evidence['computed in']}: its {parts} are rounded, and it is"
        f" off by up to {evidence['error']:.2g}, more at every longer position."
    )


def _moved_table(evidence: Evidence) -> str:
    return (
        f"The table began as {evidence['code']} and was trained further: it has moved by {evidence['share']:.2g} of the"
        f" code in root mean square, by up to {evidence['largest difference']:.2g} in row"
        f" {spoken(evidence['furthest row'])}."
    )


def _wrong_rows(evidence: Evidence) -> str:
    rows = evidence["rows that differ"]
    one = len(rows) == 1
    return (
        f"The table is {evidence['code']} but for row{'' if one else 's'} {listed(list(map(str, rows)))}, which"
        f" {'is' if one else 'are'} off by up to {evidence['largest difference']:.2g}."
    )


def _table_differs(evidence: Evidence) -> str:
    off, row = f"{evidence['largest difference']:.2g}", spoken(evidence["furthest row"])
    if evidence["table"] is None:
        what = f"the table in the weights is none: {evidence['reason']}"
    else:
        what = f"the table in the weights is {evidence['table']}"
        what += f" for {evidence['positions']}." if evidence.get("positions") else "."
    return f"What is declared is {evidence['declared']}; {what} They differ by up to {off}, in row {row}."


def _non_finite(evidence: Evidence) -> str:
    count, first = evidence["rows with NaN or infinity"], evidence["first such row"]
    return f"{spoken(count)} of {spoken(evidence['rows'])} rows hold NaN or infinity, the first is row {spoken(first)}."


_IF_SOUND = "Nothing to mend: sound models have this too."

CODES: Mapping[str, Rule] = {
    "impossible-value": Rule(
        "error",
        _impossible,
        "Put the value in that the model was trained with; the original release of the model has it.",
    ),
    "unknown-scaling": Rule(
        "error", _unknown_scaling, "Correct the spelling, or use a release of clockhands that knows this scaling."
    ),
    "incomplete-scaling": Rule(
        _incomplete_severity,
        _incomplete,
        "Copy the whole block from the model's original release; readers that guess differ.",
    ),
    "short-table": Rule(
        "error",
        _short_table,
        "Lower the declared length to what the table has, or use the table that the config was written for.",
    ),
    "non-finite-rows": Rule(
        "error",
        _non_finite,
        "Load the file again from its source; if it is so there, the training or a conversion broke it.",
    ),
    "zero-table": Rule(
        "error",
        _zero_table,
        "Load the weights that the table was trained in, or compute it: a loader may have left it as it was allocated.",
    ),
    "repeated-rows": Rule(
        _repeated_severity,
        _repeated,
        "Make the table anew, with positions and phases in float32 or better: bfloat16 holds no odd number above 256.",
    ),
    "table-differs": Rule(
        "warning",
        _table_differs,
        "Find out which of the two the model was trained with: a reader may load the one or compute the other.",
    ),
    "wrong-rows": Rule(
        "warning", _wrong_rows, "Load the file again from its source, or make these rows anew with `clockhands table`."
    ),
    "zero-rows": Rule(
        "warning", _zero_rows, "Rows of padding and of class tokens may be zeros; for any other, load the file again."
    ),
    "low-precision": Rule(
        "warning",
        _low_precision,
        "Make the table anew in float32 if the model was not trained with these numbers; keep it if it was.",
    ),
    "conflicting-keys": Rule(
        "warning", _conflict, "Find out which one the model was trained with and delete or correct the other."
    ),
    "converted-layout": Rule(
        "warning",
        _converted,
        "Run it with code that pairs as the key says, or convert it back with `clockhands convert`.",
    ),
    "duplicate-key": Rule(
        _about_positions, _duplicate, "Find out which value the model was trained with and delete the other."
    ),
    "table-size": Rule(
        "warning",
        _table_size,
        "Correct the config, or take the weights that it was written for; strict loaders refuse both.",
    ),
    "unknown-key": Rule(
        "warning",
        _unknown_key,
        "Correct the spelling or delete the key; if a reader of yours needs it, `--ignore unknown-key`.",
    ),
    "ignored-key": Rule(_ignored, _ignored_key, "Move it to where this model type reads it, or delete it."),
    "unreadable-field": Rule("warning", _unreadable_field, "Write the field as the model's library writes it."),
    "text-number": Rule("warning", _text_number, "Write it as a number, without the quotes."),
    "missing-original": Rule(
        "warning", _missing_original, "Add original_max_position_embeddings with the length of the first training."
    ),
    "default-base": Rule(_documented, _default, "Write the base into the file, so that no reader has to guess."),
    "default-value": Rule(_documented, _default, "Write the value into the file, so that no reader has to guess."),
    "factor-times-original": Rule(
        _family,
        _factor,
        lambda evidence: (
            _IF_SOUND
            if _family(evidence) == "note"
            else "Make the three numbers agree with the model's original release."
        ),
    ),
    "beyond-context": Rule(
        "warning",
        _beyond,
        lambda evidence: (
            "Stay within the table; it has to be trained further to reach more."
            if evidence.get("kind") == "learned"
            else "Stay within the context, or declare the scaling that the model was extended with."
        ),
    ),
    "never-turning": Rule(
        "note",
        _never_turning,
        f"{_IF_SOUND} It matters when the model is served at a longer length than it was trained on.",
    ),
    "missing-value": Rule("note", _missing_value, "Add it with the value that the model was trained with."),
    "unknown-model-type": Rule(
        "note", _unknown_type, "Check the layout against the model's code before you convert or port it."
    ),
    "nothing-declared": Rule("note", _nothing, "Audit the model's config.json, or the folder that holds both."),
    "recognised": Rule(
        "note", _recognised, "Nothing to mend. `clockhands identify` says more, and how to make it again."
    ),
    "moved-table": Rule(
        "note", _moved_table, f"{_IF_SOUND} Whoever computes the table from its formula has another model."
    ),
    "not-recognised": Rule("note", _bare_array, "Audit the config or the model that this array belongs to."),
}
"""Every code that a finding can have, the grave ones first."""
