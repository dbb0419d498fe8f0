"""Findings on a quantity that differs between files of a folder: config, params.json of Meta or Mistral, GGUF file."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.auditing.findings._parts import AuditSubject, check_of, declared, first_place, main_code, places
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.gguf_fields import ARCHITECTURE
from clockhands.configs.openers import open_file, open_gguf
from clockhands.configs.params_fields import SCALED, meta_scaling
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, LayerEncoding, Resolved
from clockhands.configs.rope_blocks import NEW, OLD
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.errors import ClockhandsError
from clockhands.formats import files
from clockhands.formats.files import file_and_key
from clockhands.formats.pickled_names import UNREAD, names_that_run
from clockhands.phrases import shown, spoken


class FilesDisagree(Case, code="files-disagree"):
    def two_values(self) -> str:
        """The values of the two files, as text."""
        return " but ".join(
            f"{name} is {spoken(value)}"
            for name, value in self.evidence.items()
            if ":" in name or name.startswith("config.json (")
        )


class PickleRunsCode(Case, code="pickle-runs-code"):
    @property
    def file(self) -> str:
        """The name of the pickle."""
        return file_and_key(self.stated[0][0])[0]

    @property
    def unread(self) -> bool:
        """Whether its names could not be read."""
        return bool(self.stated) and all(names == UNREAD for _, names in self.stated)


@check_of("path")
def pickles_that_run_code(subject: AuditSubject) -> Iterator[Case]:
    """Pickles of the folder, whether or not the model's weights are read from them."""
    folder = subject.opened.path
    if folder is None or not folder.is_dir():
        return
    for file, names in names_that_run(folder):
        yield case_of("pickle-runs-code", {f"{file}:names": ", ".join(shown(name)[1:-1] for name in names)})


PARAMS = "params.json"
_MOST_GGUF = 4  # of a folder: quantisations of one model have the same keys
_SAME = 1e-3  # relative, of a frequency: files hold bases and divisors in float32


@check_of("path", "beside")
def files_disagree(subject: AuditSubject) -> Iterator[Case]:
    """Base, scaling, layers and heads for which another file of the folder contradicts the config."""
    opened = subject.opened
    if opened.form == "gguf" and opened.path is not None:
        yield from _against_config(subject, opened.path)
    if opened.form != "config":
        return
    code = _full_attention_code(subject.resolved)
    params = opened.beside.get(PARAMS)
    if code is not None and params:
        yield from _against_params(subject, code, params)
    if code is not None and opened.path is not None and opened.path.is_dir():
        yield from _against_gguf(subject, code)


def _full_attention_code(resolved: Resolved) -> LayerEncoding | None:
    """The code of the full-attention layers, which every runtime has; else of any layers."""
    return main_code(code for code in resolved.codes if code.kind == "rotary" and code.part in TEXT and code.rates)


def _against_params(subject: AuditSubject, code: LayerEncoding, params: Mapping[str, Any]) -> Iterator[Case]:
    scaling, config, name = code.scaling or {}, subject.opened.config or {}, subject.opened.config_name
    key = next((key for key in (OLD, NEW) if key in config), OLD)
    block = next(iter(places(code, "scaling")), f"{name}:{key}")
    layers, heads = _layers(subject.resolved), config.get("num_attention_heads")
    yield from _numbers(code.base, params.get("rope_theta"), "base", declared(code, "base"), f"{PARAMS}:rope_theta")
    layers_here = first_place(code, "layers", layers)
    yield from _numbers(layers, params.get("n_layers"), "number of layers", layers_here, f"{PARAMS}:n_layers")
    here = {f"{name}:num_attention_heads": heads}
    yield from _numbers(heads, params.get("n_heads"), "number of heads", here, f"{PARAMS}:n_heads")
    switch, yarn = params.get("use_scaled_rope"), params.get("yarn")
    if isinstance(switch, bool) and switch != (scaling.get("type") == "llama3"):
        said = {block: scaling.get("type"), f"{PARAMS}:use_scaled_rope": switch}
        yield case_of("files-disagree", {"what": "scaling", "lost": switch and not scaling, **said}, code.layers)
    elif switch:
        yield from _meta_factor(code, params, {_placed(code, "factor") or f"{name}:{key}": scaling.get("factor")})
    if isinstance(yarn, Mapping) and yarn and scaling.get("type") != "yarn":
        said = {block: scaling.get("type"), f"{PARAMS}:yarn.factor": yarn.get("factor")}
        yield case_of("files-disagree", {"what": "scaling", "lost": not scaling, **said}, code.layers)
    elif isinstance(yarn, Mapping) and yarn:
        for field, inner in (("factor", "factor"), ("original", "original_max_position_embeddings")):
            said = {_placed(code, inner) or f"{name}:{key}": scaling.get(field)}
            yield from _numbers(scaling.get(field), yarn.get(inner), f"YaRN's {field}", said, f"{PARAMS}:yarn.{inner}")
        if "qk_nope_head_dim" not in params:  # in latent attention the switch concerns scores
            yield from _apply_scale(code, yarn)
    yield from _steps_of_scores(code, params.get("llama_4_scaling"))


def _placed(code: LayerEncoding, key: str) -> str | None:
    """The source of a number of the scaling."""
    return next((place for place in places(code, "scaling") if place.endswith(f".{key}")), None)


def _meta_factor(code: LayerEncoding, params: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Case]:
    """The factor, compared with the constant that Meta's code uses when its switch is on."""
    ours = (code.scaling or {}).get("factor")
    written = next((key for key in SCALED["factor"] if params.get(key) is not None), None)
    if written is not None:
        yield from _numbers(ours, params[written], "scaling's factor", here, f"{PARAMS}:{written}")
        return
    block, source = meta_scaling(params)
    if isinstance(ours, int | float) and not math.isclose(ours, block["factor"], rel_tol=1e-6):
        said = {**here, f"{PARAMS}:use_scaled_rope": True}
        evidence = {"what": "scaling's factor", "taken": block["factor"], "taken by": source}
        yield case_of("files-disagree", {**evidence, **said}, code.layers)


def _apply_scale(code: LayerEncoding, yarn: Mapping[str, Any]) -> Iterator[Case]:
    """Whether cosine and sine are multiplied by YaRN's ``0.1 ln f + 1``, which Mistral's files control by a switch."""
    applied, factor = yarn.get("apply_scale"), yarn.get("factor")
    if not isinstance(applied, bool) or not isinstance(factor, int | float) or factor <= 1:
        return
    meant = yarn_magnitude(factor) if applied else 1.0
    if code.attention_factor is None or math.isclose(code.attention_factor, meant, rel_tol=_SAME):
        return
    evidence = {"what": "attention factor", "here": code.attention_factor, "there": meant}
    here = first_place(code, "attention_factor", code.attention_factor)
    evidence |= here or {"config.json:attention factor": code.attention_factor}
    evidence |= {f"{PARAMS}:yarn.apply_scale": applied}
    yield case_of("files-disagree", evidence, code.layers)


def _steps_of_scores(code: LayerEncoding, theirs: Any) -> Iterator[Case]:
    """The scale of scores by position; the config of an unknown type does not say whether it has none."""
    if not isinstance(theirs, Mapping) or code.layout is None:
        return
    for key, ours in (
        ("beta", getattr(code.score_scale, "beta", 0.0)),
        ("original_max_position_embeddings", getattr(code.score_scale, "original", None)),
    ):
        here = {place: ours for place in places(code, "score_scale") if place.endswith((f"_{key}", f".{key}"))}
        yield from _numbers(ours, theirs.get(key), "scale of scores", here, f"{PARAMS}:llama_4_scaling.{key}")


def _numbers(ours: Any, theirs: Any, what: str, here: Mapping[str, Any], there: str) -> Iterator[Case]:
    if not isinstance(ours, int | float) or not isinstance(theirs, int | float) or isinstance(theirs, bool):
        return
    if not math.isclose(ours, theirs, rel_tol=1e-6):
        said = dict(here) or {"config.json (a default)": ours}
        yield case_of("files-disagree", {"what": what, **said, there: theirs})


def _layers(resolved: Resolved) -> int | None:
    """How many layers the codes of text name."""
    named = [code.layers for code in resolved.codes if code.part == "text" and code.layers not in (None, "input")]
    last = [int(layers.replace("-", ",").rpartition(",")[2]) for layers in named if layers]
    return max(last) + 1 if last else None


def _against_gguf(subject: AuditSubject, code: LayerEncoding) -> Iterator[Case]:
    folder = subject.opened.path
    assert folder is not None
    for path in sorted(folder.glob("*.gguf"))[:_MOST_GGUF]:
        try:
            opened = open_gguf(path, str(path))
        except ClockhandsError:
            continue  # one part of a split file, or a damaged one: the config can be judged without it
        if _of_another_width(subject, opened.config or {}):
            continue  # a draft, or an image tower
        yield from _held_together(subject.resolved, code, resolve(opened, subject.resolved.length), path.name)


def _against_config(subject: AuditSubject, gguf: Path) -> Iterator[Case]:
    """Compare a GGUF file with the config in its folder if both have the same shape: folders often mix models."""
    path = gguf.with_name("config.json")
    if files.place(path) != "file":
        return
    try:
        opened = open_file(path, str(path), None)
        resolved = resolve(opened, subject.resolved.length)
    except ClockhandsError:
        return
    code, keys = _full_attention_code(resolved), subject.opened.config or {}
    same = not _of_another_width(AuditSubject(opened, resolved), keys) and _layers(resolved) == _layers(
        subject.resolved
    )
    if code is not None and same:
        yield from _held_together(resolved, code, subject.resolved, gguf.name)


def _held_together(ours: Resolved, code: LayerEncoding, other: Resolved, name: str) -> Iterator[Case]:
    """Compare a config and a GGUF file, as they were resolved; ``code`` is the rotary code of the config."""
    theirs = _full_attention_code(other)
    if theirs is None or theirs.rates is None or code.rates is None:
        return
    there = declared(theirs, "base") or {f"{name}:rope.freq_base": theirs.base}
    yield from _numbers(code.base, theirs.base, "base", declared(code, "base"), next(iter(there)))
    counted = theirs.source.get("layers", f"{name}:block_count").split(", ")[0]
    here = first_place(code, "layers", _layers(ours))
    yield from _numbers(_layers(ours), _layers(other), "number of layers", here, counted)
    if len(code.rates) != len(theirs.rates):
        evidence = {"config.json:pairs": len(code.rates), f"{name}:pairs": len(theirs.rates)}
        yield case_of("files-disagree", {"what": "number of RoPE pairs", **evidence}, code.layers)
    elif code.base is not None and theirs.base is not None and math.isclose(code.base, theirs.base, rel_tol=1e-6):
        yield from _ladders(code, theirs, name)


def _of_another_width(subject: AuditSubject, keys: Mapping[str, Any]) -> bool:
    theirs = keys.get(f"{keys.get(ARCHITECTURE)}.embedding_length")
    config = subject.opened.config or {}
    inner = config.get("text_config")
    ours = config.get("hidden_size", inner.get("hidden_size") if isinstance(inner, Mapping) else None)
    return isinstance(ours, int) and isinstance(theirs, int) and ours != theirs


def _ladders(code: LayerEncoding, theirs: LayerEncoding, name: str) -> Iterator[Case]:
    """Two ladders of one base: if they differ, a scaling was lost or changed."""
    ratios = [a / b for a, b in zip(code.rates or (), theirs.rates or (), strict=True) if b]
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)) if ratio > 0 else 0.0, default=1.0)
    if abs(worst - 1) <= _SAME:
        return
    block = next(iter(places(code, "scaling")), "config.json:scaling")
    said = {block: (code.scaling or {}).get("type"), f"{name}:scaling": (theirs.scaling or {}).get("type")}
    evidence = {"what": "scaling", "ratio": max(worst, 1 / worst), "lost": bool(code.scaling) != bool(theirs.scaling)}
    yield case_of("files-disagree", {**evidence, **said}, code.layers)
