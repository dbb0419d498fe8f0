"""Runs the parts of a model one by one: towers for images and audio, and the tables of a text."""

from collections.abc import Sequence

from torch import nn

from clockhands.auditing import Audit
from clockhands.auditing.findings import make_finding
from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.errors import InvalidValue
from clockhands.models.text_parts import TokenPart, is_absent, running_text, text_table_reading
from clockhands.models.towers import parts_beside_text
from clockhands.probes._live_result import LiveResult

_REMEDY = "Compare the rows that the model asks of its table with those of the release."


def parts_in_effect(live: LiveResult, module: nn.Module, audited: Audit) -> TokenPart | None:
    """Run each part and its tables, note what was measured and what was not, and return the part that reads texts."""
    beside = parts_beside_text(module, audited.layers)
    live.findings += [make_finding(*each) for each in beside.found]
    live.answers += beside.answers
    live.numbers["measured"] = beside.measured
    live.numbers["parts_left_out"] = list(beside.left_out)
    live.numbers["not_measured"] = list(beside.left_out.values())
    codes = [code for code in audited.layers if code.part in TEXT and code not in beside.codes]
    try:
        text = running_text(module)
    except InvalidValue as error:
        live.numbers["text_ran"] = False
        if codes or not audited.layers:
            live.answers.append(f"The text part was not run: {error.message}")
            live.numbers["not_measured"].append("the text part")
        return None
    live.numbers["text_ran"] = True
    _tables(live, text, codes)
    return text


def _tables(live: LiveResult, text: TokenPart, codes: Sequence[LayerEncoding]) -> None:
    """The rows that the tokens of a text get of each declared table."""
    for code in codes:
        if code.kind not in ("learned", "sinusoidal"):
            continue
        if is_absent(text.module, code.part):
            live.answers.append(f"The model has no {code.part} part, whose table its config declares.")
            continue
        part = f"the {code.part} part{f' ({text.path})' if text.path else ''}"
        reading = text_table_reading(text, code)
        if reading.measured is None:
            live.answers.append(f"The table of {part} was not measured: {reading.reason}.")
            live.numbers["not_measured"].append(f"the table of the {code.part} part")
            continue
        does = "are not as the config declares" if reading.wrong else "are as the config declares"
        live.answers.append(f"In a text, {reading.measured} of {part} {does}.")
        live.numbers["measured"].setdefault(code.part, reading.measured)
        for each in reading.wrong:
            says = f"{text.path}.{each}" if text.path else each
            live.findings.append(make_finding("run-differs", {"says": says, "remedy": _REMEDY}))
