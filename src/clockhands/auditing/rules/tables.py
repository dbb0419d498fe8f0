"""Tables: what stands in the weights, and bare arrays."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule, listed, said, stated


def _table_size(evidence: Evidence) -> str:
    expected = f"; {evidence['expected']} was expected" if evidence.get("expected") else ""
    declared = f" but {spoken(evidence['declared'])} is declared" if evidence.get("declared") else ""
    defaults = [
        f"the {name} is {spoken(value)}" for name, value in evidence.items() if name.startswith("class default")
    ]
    declared += f" but {listed(defaults)}" if defaults else ""
    return f"{said(evidence, 'but')}{declared}{expected}: the weights and what is declared of them do not fit."


def _short_table(evidence: Evidence) -> str:
    rows, offset, usable, context = (spoken(evidence[name]) for name in ("rows", "offset", "usable", "context"))
    before = f", {offset} of them before position 0" if evidence["offset"] else ""
    return f"The learned table has {rows} rows{before}: it ends after {usable} positions, but the context is {context}."


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
    if evidence.get("rates"):
        place = next((name for name, _ in stated(evidence)), "the checkpoint")
        phase = ""
        if evidence.get("phase error"):
            phase = f", which makes {evidence['phase error']:.2g} rad at the end of the context"
        return (
            f"The rates that the checkpoint stores ({place}) are rounded to {evidence['dtype']}: they are off by up to"
            f" {evidence['error']:.2g} of a rate{phase}."
        )
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


CODES: Mapping[str, Rule] = {
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
    "table-size": Rule(
        "warning",
        _table_size,
        "Correct the config, or take the weights that it was written for; strict loaders refuse both.",
    ),
    "recognised": Rule(
        "note", _recognised, "Nothing to mend. `clockhands identify` says more, and how to make it again."
    ),
    "moved-table": Rule(
        "note", _moved_table, f"{IF_SOUND} Whoever computes the table from its formula has another model."
    ),
    "not-recognised": Rule("note", _bare_array, "Audit the config or the model that this array belongs to."),
}
