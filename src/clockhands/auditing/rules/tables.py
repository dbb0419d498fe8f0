"""Tables: what stands in the weights, and bare arrays."""

from collections.abc import Mapping

from clockhands.auditing.edits import Edit, replaced
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


def _short_edit(evidence: Evidence) -> Edit | None:
    """The declared length as what the table has, where the length stands in a file by itself."""
    usable = evidence.get("usable")
    place = next((name for name, value in stated(evidence) if value == evidence.get("context")), None)
    if place is None or not isinstance(usable, int) or usable < 1:
        return None
    return replaced(place, usable, f"Declare the {spoken(usable)} positions that the table has.")


_TENSOR = "The numbers of a tensor have to be made or loaded again."

CODES: Mapping[str, Rule] = {
    "short-table": Rule(
        "error",
        _short_table,
        "Lower the declared length to what the table has, or use the table that the config was written for.",
        blames="file",
        edit=_short_edit,
        unmended="Where the length stands in no file, the table has to be the one that it was written for.",
        title="A learned table that ends before the declared length",
        means="A learned table has a row for each position, after rows of padding in some models. A text that is"
        " longer than the table but not than the declared length asks for rows that are not there: an index error"
        " where the library looks, garbage or another row where it does not. It shows at long inputs only.",
        cases=("pegainfer-project/pegainfer#220", "microsoft/onnxruntime#28205"),
    ),
    "non-finite-rows": Rule(
        "error",
        _non_finite,
        "Load the file again from its source; if it is so there, the training or a conversion broke it.",
        blames="file",
        unmended=_TENSOR,
        title="Rows of a table hold NaN or infinity",
        means="A NaN in the row of one position makes every activation at that position NaN, and by attention all"
        " those after it. It shows as an output of nothing, or of one token repeated, from that position on."
        " Overflow in float16 and interrupted downloads make such rows.",
    ),
    "zero-table": Rule(
        "error",
        _zero_table,
        "Load the weights that the table was trained in, or compute it: a loader may have left it as it was allocated.",
        blames="file",
        unmended=_TENSOR,
        title="A table of positions in which every number is zero",
        means="A table of zeros adds nothing, so the model reads a bag of words. Loaders that allocate a model first"
        " and fill it later leave such tables where a name did not match, and fixed sinusoids are lost so because"
        " they are no parameters. Nothing fails, and answers that depend on word order are wrong.",
    ),
    "repeated-rows": Rule(
        _repeated_severity,
        _repeated,
        "Make the table anew, with positions and phases in float32 or better: bfloat16 holds no odd number above 256.",
        blames="file",
        unmended=_TENSOR,
        title="Rows of a table repeat the row before",
        means="Two positions with the same row are one position to the model. Where whole numbers were rounded before"
        " the table was made, rows repeat from 257 on in bfloat16 and from 2,049 on in float16, and more often"
        " the farther out. Trained rows may be alike too, where no text of that length was seen.",
        cases=("EleutherAI/gpt-neox#1016",),
    ),
    "table-differs": Rule(
        "warning",
        _table_differs,
        "Find out which of the two the model was trained with: a reader may load the one or compute the other.",
        blames="ambiguous",
        unmended="Which of the two the model was trained with, the files do not say.",
        title="The table in the weights is not the one that is declared",
        means="A fixed sinusoid is stored by some libraries and computed by others. Where the stored one has another"
        " order of sines and cosines, another exponent or another first position, the two kinds of readers run"
        " different models. Quality falls, and nothing fails.",
        cases=("OpenNMT/OpenNMT-py#2288", "wenet-e2e/wenet#2141"),
    ),
    "wrong-rows": Rule(
        "warning",
        _wrong_rows,
        "Load the file again from its source, or make these rows anew with `clockhands table`.",
        blames="file",
        unmended=_TENSOR,
        title="A few rows of a table are not what the others make",
        means="All rows but a few are those of a formula. The others were overwritten, by padding, by a merge or by a"
        " damaged file, and tokens at these positions are told a place that is none. It shows at single positions"
        " only.",
    ),
    "zero-rows": Rule(
        "warning",
        _zero_rows,
        "Rows of padding and of class tokens may be zeros; for any other, load the file again.",
        blames="file",
        unmended=_TENSOR,
        title="Rows of zeros where positions stand",
        means="Positions whose rows are zero cannot be told apart. A table that was made longer without being trained,"
        " or filled in part, ends so. Texts up to the first such row are read rightly; past it the order of words"
        " is lost.",
    ),
    "low-precision": Rule(
        "warning",
        _low_precision,
        "Make the table anew in float32 if the model was not trained with these numbers; keep it if it was.",
        blames="file",
        unmended=_TENSOR,
        title="Rates or positions rounded to bfloat16 or float16",
        means="A phase is a rate times a position, so that a relative error of the rate becomes an absolute one of the"
        " phase that grows with the position. In bfloat16 a rate is off by up to 1 in 256: half a turn is lost"
        " within some thousand positions. Casting a module as a whole does it, buffers included. Short texts"
        " hardly change.",
        cases=(
            "EleutherAI/gpt-neox#1003",
            "NVIDIA/Megatron-LM#744",
            "NVIDIA-NeMo/Automodel#2549 (June 2026)",
            "Modalities/modalities#462 (September 2026)",
        ),
    ),
    "table-size": Rule(
        "warning",
        _table_size,
        "Correct the config, or take the weights that it was written for; strict loaders refuse both.",
        blames="file",
        unmended="Whether the config or the weights are the wrong ones, the files do not say.",
        title="The shape of a table is not what is declared",
        means="The rows or the width of the table in the weights are others than those that follow from the config. A"
        " strict loader refuses the pair; a lenient one drops the table and starts with an untrained one, with a"
        " line in its log at most.",
        cases=("huggingface/transformers#15444 (January 2022)",),
    ),
    "recognised": Rule(
        "note",
        _recognised,
        "Nothing to mend. `clockhands identify` says more, and how to make it again.",
        title="A table that a formula makes",
        means="The numbers of the table are those of a known position code, so it can be left out of a file and"
        " computed. What was recognised, for which positions and in which precision it was made, is said with the"
        " largest error.",
    ),
    "moved-table": Rule(
        "note",
        _moved_table,
        f"{IF_SOUND} Whoever computes the table from its formula has another model.",
        title="A sinusoid that was trained further",
        means="The table began as a position code and was then trained like any other weight. It is still near its"
        " formula, but only the stored numbers are the model's: a reader that computes the table runs another"
        " model.",
    ),
    "not-recognised": Rule(
        "note",
        _bare_array,
        "Audit the config or the model that this array belongs to.",
        title="A bare array that is no known position code",
        means="The array was named by itself and no known code makes its numbers: it may be a trained table, or no"
        " position code at all. Alone it cannot be judged; beside its config it can.",
    ),
}
