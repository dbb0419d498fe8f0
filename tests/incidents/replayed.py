"""Public incidents of position codes, rebuilt as the file or as the code that their owner had.

`incidents.json` holds one record each. A file is made of position fields of a published model; code is a row of
`tests/recognition/faults`, a rotation of other fields than the right one, or a builder below.
"""

import json
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import clockhands as ch
from auditing import published_fields
from auditing.faulty_containers import CONTAINER_FAULTS
from auditing.faulty_files import CONFIG_FAULTS
from auditing.model_files import Model, written_model
from clockhands import testing
from clockhands.auditing import Audit, audit
from clockhands.encodings import scaling
from clockhands.encodings.rotary.axes import chunked
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.runtimes import Statement, facts, runtimes, statements
from clockhands.runtimes.drafts import contexts_differ, of_draft
from clockhands.runtimes.telling import first_difference
from recognition.faults import wrong_additive, wrong_biases, wrong_rotary
from recognition.faults.rates import rates_of
from recognition.faults.written import rotated, turned
from testing.small_models import VOCABULARY, SmallModel

Record = Mapping[str, Any]

_ROWS = (*wrong_rotary.ROWS, *wrong_additive.ROWS, *wrong_biases.ROWS)
_LAYOUT = "halves"
_PUBLISHED = Path(__file__).resolve().parents[1] / "published" / "configs"


@cache
def incidents() -> tuple[Record, ...]:
    """Every record, in the order of the file."""
    held = json.loads(Path(__file__).with_name("incidents.json").read_text(encoding="utf-8"))
    return tuple(held["incidents"])


def model_of(record: Record) -> Model:
    """The files of an incident."""
    file = record["file"]
    if "fault" in file:
        fault = next(fault for fault in (*CONFIG_FAULTS, *CONTAINER_FAULTS) if fault.name == file["fault"])
        return fault.sound if file.get("sound") else fault.faulty
    if "config" in file:
        return {"config.json": file["config"]}
    if "published" in file:
        held = (_PUBLISHED / f"{file['published']}.json").read_text(encoding="utf-8")
        return {"config.json": json.loads(held)["config"]}
    config = patched(getattr(published_fields, file["of"]), file.get("with", {}))
    return {"config.json": published_fields.new_shape(config) if file.get("new_shape") else config}


def patched(document: Any, patch: Any) -> Any:
    """A document with a merge patch (RFC 7386): null takes a key out."""
    if not isinstance(patch, Mapping):
        return patch
    made = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = patched(made.get(key), value)
    return made


def audited_file(record: Record, runtime: str | None = None) -> Audit:
    """The audit of an incident's files, for a runtime or for none in particular."""
    return _audited(json.dumps(record["file"], sort_keys=True), runtime)


@cache
def _audited(file: str, runtime: str | None) -> Audit:
    with tempfile.TemporaryDirectory() as folder:
        return audit(written_model(Path(folder), model_of({"file": json.loads(file)})), runtime=runtime)


def pointed_to(record: Record, found: Audit) -> str | None:
    """What the folded note on common mistakes says of the incident's pattern; None where it does not name it."""
    note = next((finding for finding in found.findings if finding.code == "often-misread"), None)
    return None if note is None else note.evidence.get(title_of(record))


def drafted(record: Record) -> tuple[bool, str]:
    """Whether the draft of a pair agrees with its target, and the first sentence of `clockhands diff`."""
    sides = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("target", "draft"):
            place = Path(folder) / name
            place.mkdir()
            sides.append(audit(written_model(place, model_of({"file": record["pair"][name]}))))
    target, draft = sides
    groups, contexts = of_draft(target.layers, draft.layers), (target.context, draft.context)
    agree = all(group.equivalent for group in groups) and not contexts_differ(*contexts, draft=True)
    return agree, first_difference(groups, contexts, ("target", "draft"), exact=False)


def title_of(record: Record) -> str:
    """What people call the pattern that an incident's runtime followed."""
    return facts()["readers"][record["pattern"]]["title"]


def followers(record: Record) -> list[Statement]:
    """What is known of the incident's runtime, in any release: that it reads such a file by the incident's pattern."""
    config = model_of(record)["config.json"]
    levels = [level for level in (config, config.get("text_config")) if isinstance(level, Mapping)]
    types = {level["model_type"] for level in levels if "model_type" in level}
    asked = (record["pattern"], record["runtime"])
    held = [each for each in statements() if (each.pattern, each.runtime) == asked and each.is_about(types)]
    return [each for each in held if any(map(each.fits, levels))]


def runtime_of(record: Record) -> str | None:
    """The runtime of an incident as ``--for`` takes it, with the last release that was read and has the fault.

    None where it was mended and no release with the fault is known.
    """
    for statement in followers(record):
        if statement.covers(None):
            return statement.runtime
        releases = [release for release in runtimes()[statement.runtime].releases if statement.covers(release)]
        if releases and statement.until is not None:
            return f"{statement.runtime}@{releases[-1]}"
    return None


def checked(record: Record) -> Any:
    """The report of the check that its owner could run, on code that does what the incident's code did."""
    return _checked(json.dumps(record["code"], sort_keys=True))


@cache
def _checked(replay: str) -> Any:
    code = json.loads(replay)
    check = code.pop("check")
    if "builder" in code:
        right, function = globals()[code["builder"]]()
    elif "right" in code:
        right, wrong = rotary(code["right"]), rotary(code["wrong"])
        function = partial(rotated, spec=wrong, xp=np)
    elif check == "module":
        return _module(**code)
    elif check == "generation":
        return _generation(**code)
    else:
        return _named(code["row"]).report("numpy")
    return testing.check_rotary(function, right, backend="numpy", raises=False)


def row_of(record: Record) -> Any:
    """The row of tests/recognition/faults whose function replays an incident."""
    return _named(record["code"]["row"])


def _named(name: str) -> Any:
    return next(row for row in _ROWS if row.name == name)


def _module(twin: str = "Guarded", held: str | None = None, factor: float = 1.0, shared: bool = False) -> Any:
    from testing import module_twins as twins

    spec = ch.Rotary(32, base=twins.BASE, scaling=scaling.Linear(factor) if factor > 1 else None)
    module = twins.built(getattr(twins, twin), factor=factor) if held is None else twins.holding(held, factor=factor)
    if shared:
        return testing.check_module(make=lambda: module, raises=False)
    return testing.check_module(module, spec, raises=False)


def _generation(model: str = _LAYOUT, length: int | None = None, **slip: Any) -> Any:
    model = SmallModel("numpy", model, **slip)
    return testing.check_generation(model, vocabulary=VOCABULARY, length=length, raises=False)


def rotary(fields: Mapping[str, Any]) -> ch.Rotary:
    """A rotary spec of a record's fields."""
    held = dict(fields)
    made = held.pop("scaling", None)
    if made is not None:
        made = dict(made)
        kind = getattr(scaling, made.pop("type"))
        if "of" in made:
            config = getattr(published_fields, made["of"])
            block, original = config["rope_scaling"], config["original_max_position_embeddings"]
            factor = config["max_position_embeddings"] / original
            made = {"short": tuple(block["short_factor"]), "long": tuple(block["long_factor"])}
            made |= {"original": original, "factor": factor}
        made = kind(**made)
    return ch.Rotary(held.pop("width"), held.pop("layout", _LAYOUT), scaling=made, **held)


# Code that no row of `tests/recognition/faults` has: the right spec, and the wrong function.


def in_float32(positions: Any) -> Any:
    return np.asarray(positions, np.float32)[..., None]


def rotated_twice() -> Any:
    """YaRN of gpt-oss, by the module and by the kernel after it."""
    right = rotary({"width": 64, "base": 150000.0, "scaling": {"type": "Yarn", "factor": 32.0, "original": 4096}})
    once = partial(rotated, spec=right, xp=np)
    return right, lambda x, positions: once(once(x, positions), positions)


def partner_in_the_rotated_part() -> Any:
    """The first quarter of Gemma 4's frequencies on pairs (i, i + 64), where the class pairs i with i + 256."""
    right = rotary({"width": 512, "base": 1e6, "scaling": {"type": "Proportional", "fraction": 0.25}})
    rates = (1e6 ** -(np.arange(0, 128, 2) / 512)).astype(np.float32)
    return right, lambda x, at: turned(x, np.cos(in_float32(at) * rates), np.sin(in_float32(at) * rates), _LAYOUT, np)


def proportional_for_partial() -> Any:
    """A quarter of the head rotated with the exponents of the whole head, and i paired with i + head/2."""
    right, whole = rotary({"width": 256, "rotated": 64, "base": 1e7}), rotary({"width": 256, "base": 1e7})
    return right, partial(rotated, spec=whole, xp=np, ladder=np.where(np.arange(128) < 32, rates_of(whole), 0))


def table_of_neighbours() -> Any:
    """Each angle twice in the table, for neighbours, and half-split pairs in the rotation."""
    right = rotary({"width": 64})
    return right, wrong_rotary.tiled(right, True, np)


def factor_through_the_formula() -> Any:
    """An attention factor that is final is taken for the mscale of YaRN's formula."""
    factor, yarn = yarn_magnitude(64.0), {"type": "Yarn", "factor": 64.0, "original": 4096}
    right = rotary({"width": 128, "base": 500000.0, "scaling": yarn | {"attention_factor": factor}})
    return right, partial(rotated, spec=right, xp=np, factor=yarn_magnitude(64.0, factor))


def axes_three_times_as_fast() -> Any:
    """Rows and columns of an image advance by 3."""
    right = ch.Rotary(64, "interleaved", axes=chunked([16, 16]))
    return right, partial(rotated, spec=right, xp=np, stretched=3)


def unrotated_from_24_tokens_on() -> Any:
    """Another path for texts of 24 tokens or more, which does not rotate."""
    right = rotary({"width": 64, "base": 1e6, "layout": "interleaved"})
    return right, lambda x, positions: x if x.shape[-2] >= 24 else rotated(x, positions, right, np)
