"""Public incidents of position codes, rebuilt as the file or as the code that their owner had.

`incidents.json` holds one record each. A file is made of position fields of a published model; code is a row of
`tests/faults`, a rotation of other fields than the right one, or a builder below.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import clockhands as ch
from auditing import published_fields
from auditing.faulty_containers import CONTAINER_FAULTS
from auditing.faulty_files import CONFIG_FAULTS
from auditing.model_files import Model, written_model
from clockhands import scaling, testing
from clockhands.auditing import Audit, audit
from clockhands.readers import Statement, facts, runtimes, statements
from clockhands.readers.drafts import contexts_differ, of_draft
from clockhands.rotary.axes import chunked
from clockhands.scaling import yarn_magnitude
from clockhands.show.differences import first_difference
from clockhands.specs import with_fields
from faults import wrong_additive, wrong_biases, wrong_generation, wrong_modules, wrong_rotary
from faults.rates import rates_of
from faults.wrong_rotary_arrays import of_another, on_the_fly, turned

Record = Mapping[str, Any]

_ARRAYS = {"rotary": wrong_rotary, "additive": wrong_additive, "bias": wrong_biases}
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
    check = code["check"]
    if "builder" in code:
        return BUILDERS[code["builder"]]()
    if "right" in code:
        right, wrong = rotary(code["right"]), rotary(code["wrong"])
        function = of_another(right, change=lambda _: wrong)
        return testing.check_rotary(function, right, backend="numpy", raises=False)
    if check in _ARRAYS:
        return _of_arrays(_ARRAYS[check], code["row"])
    if check == "module":
        row = _row(wrong_modules, code["row"])
        spec, build = row.spec(_LAYOUT), wrong_modules.built(row, wrong=True)
        options = dict(row.options, raises=False)
        if row.factory:
            return testing.check_module(like=spec, make=build, **options)
        return testing.check_module(build(spec), spec, **options)
    row = _row(wrong_generation, code["row"])
    return _generation(wrong_generation.built(row, code.get("model", _LAYOUT), wrong=True), row.length)


def _row(module: Any, name: str) -> Any:
    return next(row for row in module.ROWS if row.name == name)


def _of_arrays(module: Any, name: str) -> Any:
    row = _row(module, name)
    framework = "torch" if "numpy" not in row.frameworks else "numpy"
    spec, build = row.spec(_LAYOUT), module.made(row, framework, wrong=True)
    check = {wrong_rotary: testing.check_rotary, wrong_additive: testing.check_additive}.get(module, testing.check_bias)
    options: dict[str, Any] = {"backend": framework, "raises": False, **row.options}
    if row.values:
        options["values"] = row.values(spec)
    if row.factory or row.fresh:
        return check(make=build, like=spec, **options)
    return check(build(spec), spec, **options)


def _generation(model: Any, length: int | None = None) -> Any:
    vocabulary = wrong_generation.VOCABULARY
    return testing.check_generation(forward=model, vocabulary=vocabulary, length=length, raises=False)


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


def rotated_twice() -> Any:
    """YaRN of gpt-oss, by the module and by the kernel after it."""
    right = rotary({"width": 64, "base": 150000.0, "scaling": {"type": "Yarn", "factor": 32.0, "original": 4096}})
    once = on_the_fly(right)

    def function(x: Any, positions: Any) -> Any:
        return once(once(x, positions), positions)

    return testing.check_rotary(function, right, backend="numpy", raises=False)


def partner_in_the_rotated_part() -> Any:
    """The first quarter of Gemma 4's frequencies on pairs (i, i + 64), where the class pairs i with i + 256."""
    right = rotary({"width": 512, "base": 1e6, "scaling": {"type": "Proportional", "fraction": 0.25}})

    def function(x: Any, positions: Any) -> Any:
        rates = (1e6 ** -(np.arange(0, 128, 2) / 512)).astype(np.float32)
        phases = np.asarray(positions, np.float32)[..., None] * rates
        return np.concatenate([turned(x[..., :128], phases, _LAYOUT, np), x[..., 128:]], axis=-1)

    return testing.check_rotary(function, right, backend="numpy", raises=False)


def proportional_for_partial() -> Any:
    """A quarter of the head rotated with the exponents of the whole head, and i paired with i + head/2."""
    right = rotary({"width": 256, "rotated": 64, "base": 1e7})
    wrong = rotary({"width": 256, "base": 1e7, "scaling": {"type": "Proportional", "fraction": 0.25}})

    def function(x: Any, positions: Any) -> Any:
        plain = rates_of(with_fields(wrong, scaling=None))
        rates = np.where(np.arange(128) < 32, plain, 0).astype(np.float32)
        return turned(x, np.asarray(positions, np.float32)[..., None] * rates, _LAYOUT, np)

    return testing.check_rotary(function, right, backend="numpy", raises=False)


def table_of_neighbours() -> Any:
    """Each angle twice in the table, for neighbours, and half-split pairs in the rotation."""
    right = rotary({"width": 64})

    def function(x: Any, positions: Any) -> Any:
        angles = np.repeat(np.asarray(positions, np.float32)[..., None] * rates_of(right), 2, axis=-1)
        half = np.concatenate([-x[..., 32:], x[..., :32]], axis=-1)
        return x * np.cos(angles) + half * np.sin(angles)

    return testing.check_rotary(function, right, backend="numpy", raises=False)


def factor_through_the_formula() -> Any:
    """An attention factor that is final is taken for the mscale of YaRN's formula."""
    factor = yarn_magnitude(64.0)
    fields = {"width": 128, "base": 500000.0}
    yarn = {"type": "Yarn", "factor": 64.0, "original": 4096}
    right = rotary(fields | {"scaling": yarn | {"attention_factor": factor}})
    wrong = rotary(fields | {"scaling": yarn | {"attention_factor": yarn_magnitude(64.0, factor)}})
    return testing.check_rotary(of_another(right, change=lambda _: wrong), right, backend="numpy", raises=False)


def axes_three_times_as_fast() -> Any:
    """Rows and columns of an image advance by 3."""
    right = ch.Rotary(64, "interleaved", axes=chunked([16, 16]))

    def function(x: Any, positions: Any) -> Any:
        at, rates = 3 * np.asarray(positions, np.float32), rates_of(right)
        phases = np.concatenate([at[..., :1] * rates[:16], at[..., 1:] * rates[16:]], axis=-1)
        return turned(x, phases, "interleaved", np)

    return testing.check_rotary(function, right, backend="numpy", raises=False)


def unrotated_from_24_tokens_on() -> Any:
    """Another path for texts of 24 tokens or more, which does not rotate."""
    right = rotary({"width": 64, "base": 1e6, "layout": "interleaved"})
    rotated = on_the_fly(right)

    def function(x: Any, positions: Any) -> Any:
        return x if x.shape[-2] >= 24 else rotated(x, positions)

    return testing.check_rotary(function, right, backend="numpy", raises=False)


class BytesReadAsBfloat16(torch.nn.Module):
    """The frequencies of one process, of which another reads the bytes in its own dtype."""

    inv_freq: torch.Tensor

    def __init__(self, spec: Any) -> None:
        super().__init__()
        rates = torch.from_numpy(rates_of(spec))
        self.register_buffer("inv_freq", rates.view(torch.bfloat16)[: rates.numel()].float(), persistent=False)

    def forward(self, x: Any, positions: Any) -> Any:
        phases = torch.as_tensor(positions)[..., None].float() * self.inv_freq
        angles, half = torch.cat((phases, phases), dim=-1), x.shape[-1] // 2
        return x * angles.cos() + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * angles.sin()


def bytes_read_as_bfloat16() -> Any:
    """A buffer of re-read bytes."""
    spec = rotary({"width": 128, "base": 1e6})
    return testing.check_module(BytesReadAsBfloat16(spec), spec, raises=False)


class PrefixWithoutItsLast(wrong_generation.Model):
    """What follows a kept prefix stands one position too early."""

    def placed(self, tokens: Any, positions: Any, mask: Any, cache: Any) -> Any:
        return positions if cache is None or tokens.shape[1] == 1 else positions - 1


class CountedTwice(wrong_generation.Model):
    """What stands in the cache is added to positions that count it already."""

    def placed(self, tokens: Any, positions: Any, mask: Any, cache: Any) -> Any:
        past = 0 if cache is None else cache[0][0].shape[2]
        return positions + (past if tokens.shape[1] > 1 else 0)


class PaddingCounted(wrong_generation.Model):
    """Positions are counted from the first slot of a padded row, whatever the mask says."""

    def placed(self, tokens: Any, positions: Any, mask: Any, cache: Any) -> Any:
        if mask is None or mask.ndim != 2:
            return positions
        batch, seq = tokens.shape
        past = 0 if cache is None else cache[0][0].shape[2]
        return torch.arange(past, past + seq).expand(batch, seq)


BUILDERS: Mapping[str, Callable[[], Any]] = {
    "rotated_twice": rotated_twice,
    "table_of_neighbours": table_of_neighbours,
    "factor_through_the_formula": factor_through_the_formula,
    "axes_three_times_as_fast": axes_three_times_as_fast,
    "unrotated_from_24_tokens_on": unrotated_from_24_tokens_on,
    "bytes_read_as_bfloat16": bytes_read_as_bfloat16,
    "PrefixWithoutItsLast": lambda: _generation(PrefixWithoutItsLast(_LAYOUT).eval()),
    "partner_in_the_rotated_part": partner_in_the_rotated_part,
    "proportional_for_partial": proportional_for_partial,
    "PaddingCounted": lambda: _generation(PaddingCounted("sinusoidal").eval()),
    "CountedTwice": lambda: _generation(CountedTwice(_LAYOUT).eval()),
}
"""Code that no row of `tests/faults` has."""
