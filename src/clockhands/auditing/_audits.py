"""Audits a target: opens it, resolves its position codes, runs the checks, and collects the findings."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from clockhands.arguments import count, one_of
from clockhands.auditing._edits import all_applied, disputed, pointer
from clockhands.auditing.cache_memory import CacheMemory, cache_memory
from clockhands.auditing.extending import Extension, extension
from clockhands.auditing.findings import (
    CODES,
    SEVERITIES,
    AuditSubject,
    Case,
    Finding,
    as_json,
    case_of,
    cases_of_checks,
    json_value,
    make_finding,
    with_release,
)
from clockhands.auditing.findings._runtimes import readings_of
from clockhands.auditing.findings._table_rows import audit_array, audit_tables
from clockhands.auditing.findings.weights import Pairing, cases_of, not_examined, pairing, with_layout
from clockhands.auditing.layer_words import details_of, part_of_layers
from clockhands.auditing.main_properties import MainProperties, main_properties
from clockhands.configs.opened import READ
from clockhands.configs.overriding import evidence_by_caller, overridden, served_length
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, LayerEncoding, Resolved
from clockhands.configs.targets import Opened, open_target
from clockhands.errors import InvalidType
from clockhands.formats.files import file_and_key
from clockhands.phrases import listed, number_of, shown
from clockhands.runtimes import CURRENT, Reading
from clockhands.runtimes.releases import RuntimeRelease, runtime_of
from clockhands.runtimes.telling import reach_of, reading_to_dict, release

if TYPE_CHECKING:
    from torch.nn import Module

    from clockhands.auditing.class_comparison import ClassComparison

CORRECT = "The position settings look correct"
"""How the verdict begins where nothing is wrong and nothing is left unknown."""

LAYER_FIELDS = (
    "part", "layers", "kind", "layout", "order", "width", "rotated", "base", "rates", "attention_factor",
    "scaling", "rows", "offset", "window", "two_sided", "chunk", "softmax_scale", "score_scale", "usable_length",
    "length", "sections", "component", "window_area", "rotating_heads", "coordinates", "positions_per_second",
    "placement", "relative", "assumed", "source",
)  # fmt: skip
"""The fields of one position code in JSON, in the order of the schema."""


@dataclass(frozen=True, repr=False)
class Audit:
    """What a target declares about positions, and what is wrong with it.

    Attributes:
        target: The target as the caller wrote it.
        model_type: The model type that the files name, if they do.
        context: Usable positions, as the files declare them.
        length: The length for which the frequencies are computed, in tokens.
        layers: The position codes, one for each group of layers that share one.
        findings: What was found, the most severe first.
        source: Where `model_type`, `context` and `length` come from.
        path: The file or folder on disk; None for a preset and for standard input.
        weights: What the weights say about the layout, or that they were not examined; None without rotary weights.
        readings: What runtimes compute from the same config, and where they differ from `layers`.
        ignored: Position keys that were not read: their sources and values.
        unexplained: Sources of those of them of which nothing is known: they may change what the model computes.
        remarks: What the types of parts do with positions besides the codes: the part, and a clause.
        extension: What is known beyond the context; None if no longer length was asked for.
        cache: The memory of the key-value cache at the length that was asked for; None without one.
        properties: The main properties of the codes, as far as they follow from their specs.
        notes: Choices made while opening the target that another program might make differently.
        not_covered: What the types of parts do with positions that clockhands does not read, in clauses.
        asked: The length that the caller gave; None for that of the files.
        runtime: The runtime that the caller named, with its release; None for none.
        of_class: What the model's class computes (``--with transformers``); None if it was not read.
        live: What was measured on the running model (``--live``); None if it was not run.
        known: Findings that a baseline lists; they are not among `findings`.
        left_out: Findings of codes that the caller ignores; they are not among `findings`.
    """

    target: str
    model_type: str | None
    context: int | None
    length: int | None
    layers: tuple[LayerEncoding, ...]
    findings: tuple[Finding, ...]
    source: Mapping[str, str] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()
    ignored: Mapping[str, Any] = field(default_factory=dict, hash=False)
    unexplained: tuple[str, ...] = ()
    path: Path | None = None
    weights: Pairing | None = None
    readings: tuple[Reading, ...] = ()
    extension: Extension | None = None
    cache: CacheMemory | None = None
    properties: tuple[MainProperties, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()
    not_covered: tuple[str, ...] = ()
    asked: int | None = None
    runtime: str | None = None
    of_class: "ClassComparison | None" = None
    live: Mapping[str, Any] | None = field(default=None, hash=False)
    known: tuple[Finding, ...] = ()
    left_out: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        """The target and the verdict only: the full text would fill pages of a prompt."""
        return f"<Audit of {self.target}: {self.verdict}>"

    def __str__(self) -> str:
        """The target, the verdict and what was found, as plain text; `clockhands audit` prints all of it.

        >>> print(audit("vaswani2017"))
        vaswani2017: The position settings look correct.
        """
        lines = [f"{self.target}: {self.verdict}", *self.notes]
        for found in self.findings:
            where = f", layers {found.layers}" if found.layers and found.layers != "input" else ""
            lines += [f"{found.severity} {found.code}{where}", f"  {found.message}", f"  hint: {found.hint}"]
        return "\n".join(lines)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make the model wrong in every runtime."""
        return self._of("error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that make it wrong in some runtime or at some length."""
        return self._of("warning")

    @property
    def recognised(self) -> bool:
        """Whether the encoding of any layer is known."""
        return any(code.kind is not None or code.spec is not None for code in self.layers)

    @property
    def correct(self) -> bool:
        """Whether the audit found no problem and knows all that the verdict "correct" claims."""
        return self.recognised and not self.problems and not self.doubts and not self._accepted()

    @property
    def refusals(self) -> tuple[Reading, ...]:
        """The current releases of runtimes that have the model type and do not load the file; none with a named one."""
        if self.runtime is not None:
            return ()
        held = (each for each in self.readings if each.reader in CURRENT and each.has_type)
        return tuple(each for each in held if each.verdict == "refuses")

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why no verdict of correct is possible although no problem was found, in clauses."""
        found: list[str] = []
        if any(not code.rates for code in self.layers if code.kind == "rotary" and code.part in TEXT):
            found.append(f"the RoPE frequencies cannot be computed{self._lacking()}")
        found += filter(None, (case_of(each.code, each.evidence).doubt() for each in self._every()))
        if not found and any(code.rates and not code.layout for code in self.layers if code.kind == "rotary"):
            found.append("the RoPE layout is not known")
        unknown = (code for code in self.layers if code.kind is None and code.spec is None)
        for part in dict.fromkeys(part_of_layers(code) or "text" for code in unknown):
            found.append(f"the position encoding of the {part} part is not known")
        found += [f"clockhands does not read {each}" for each in self.not_covered]
        if self.unexplained:
            names = list(dict.fromkeys(file_and_key(place)[1] for place in self.unexplained))
            several = len(names) > _NAMED_KEYS
            told = [*names[:_NAMED_KEYS], number_of(len(names) - _NAMED_KEYS, "more key")] if several else names
            found.append(f"{listed(told)} {'is' if len(names) == 1 else 'are'} not read")
        found += [f"{release(each)} does not load the file: {str(each.because).rstrip('.')}" for each in self.refusals]
        if self.runtime is None:
            others = [release(each) for each in self.readings if each.reader in CURRENT and each.verdict == "differs"]
            if others:
                compute = "compute" if len(others) > 1 else "computes"
                found.append(f"{listed(others)} {compute} other values than the file declares")
        return tuple(dict.fromkeys(found))

    @property
    def verdict(self) -> str:
        """The audit in one sentence."""
        if not self.problems and not self.recognised:
            return "No position encoding was recognised."
        accepted, known = self._accepted(), any(map(_is_problem, self.known))
        but = f", but {'; '.join(self.doubts)}" if self.doubts else ""
        if not self.problems and accepted:
            return f"No {'new' if known else 'other'} problems{accepted}{but}."
        if not self.problems and but:
            return f"No problem was found{but}."
        if not self.problems:
            return f"{CORRECT}{self._of_the_runtime()}."
        titles = "; ".join(dict.fromkeys(_lower(CODES[found.code].title) for found in self.problems))
        if not accepted and all(found.blames == "reader" for found in self.problems):
            if self.runtime is not None and all("runtime" in found.evidence for found in self.problems):
                refused = any(found.code == "refused-by-runtime" for found in self.problems)
                does = "does not load" if refused else "misreads"
                if not self.errors:
                    does = "may not load" if refused else "may misread"
                return f"The config is correct, but {self.runtime} {does} it."
            return f"The config is correct, but some runtimes misread it: {titles}."
        number = len(self.problems)
        return f"{number} {'new ' if known else ''}problem{'s' if number > 1 else ''}{accepted}: {titles}."

    def _every(self) -> tuple[Finding, ...]:
        """The findings with those that were taken out: what they leave unknown is not known without them either."""
        return (*self.findings, *self.known, *self.left_out)

    def _accepted(self) -> str:
        """How many problems were taken out: ``(3 known, 1 ignored)``, or nothing."""
        counts = {"known": sum(map(_is_problem, self.known)), "ignored": sum(map(_is_problem, self.left_out))}
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        return f" ({told})" if told else ""

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Errors, then warnings; in each group, those with a known change of the file come first."""
        return tuple(
            sorted((*self.errors, *self.warnings), key=lambda found: (found.severity != "error", not found.patch))
        )

    def fixed_with(self, found: Finding) -> Finding | None:
        """An earlier problem whose fix sets a value that this problem concerns; None if there is none.

        A problem with a fix that changes the file is treated as part of another only if that one sets the same keys, to
        other values.
        """
        earlier = list(itertools.takewhile(lambda other: other != found, self.problems))
        if found.patch:
            other = next((other for other in earlier if disputed(other.patch, found.patch)), None)
            theirs = set() if other is None else {step["path"] for step in other.patch}
            return other if theirs.issuperset(step["path"] for step in found.patch) else None
        about = {pointer(place) for place in (*found.evidence, str(found.evidence.get("belongs at", "")))}
        sets = (
            (other, (other.edit.file, step["path"])) for other in earlier if other.edit for step in other.edit.patch
        )
        return next((other for other, key in sets if key in about), None)

    @property
    def reach(self) -> int | None:
        """The length up to which readings are compared, in tokens: the given length, else as in `reach_of`."""
        return self.asked or reach_of(self.layers, self.context, self.length)

    def with_live(self, findings: Iterable[Finding], measured: Mapping[str, Any]) -> "Audit":
        """The same audit with the findings of the running model added, the most severe first.

        Args:
            findings: Findings of the running model; those that the audit of the files already has are not repeated.
            measured: The measured numbers.
        """
        have = {(each.code, each.layers) for each in self.findings}
        found = [*self.findings, *(each for each in findings if (each.code, each.layers) not in have)]
        return replace(self, findings=_in_order(found), live=measured)

    def without(self, codes: Iterable[str]) -> "Audit":
        """The same audit without the findings of some codes."""
        ignored = frozenset(codes)
        return self.taking_out(lambda found: found.code in ignored, "left_out")

    def taking_out(self, accepts: Callable[[Finding], bool], to: str) -> "Audit":
        """The same audit with the findings that are accepted in `known` or `left_out`."""
        out = tuple(found for found in self.findings if accepts(found))
        kept = tuple(found for found in self.findings if not accepts(found))
        return replace(self, findings=kept, **{to: (*getattr(self, to), *out)})

    def to_dict(self) -> dict[str, Any]:
        """One element of `targets` in the JSON of `clockhands audit`."""
        return {
            **as_json(self, "target", "model_type", "context", "length"),
            "layers": [as_json(code, *LAYER_FIELDS) for code in self.layers],
            **as_json(self, "findings", "source", "ignored", "weights", "extension", "cache"),
            "remarks": [{"part": part, "says": says} for part, says in (*self.remarks, *self._details())],
            "properties": json_value(self.properties),
            "readers": [json_value(reading_to_dict(reading, self.reach)) for reading in self.readings],
            "verdict": self.verdict,
            **({} if self.of_class is None else {"class": self.of_class.to_dict()}),
            **({} if self.live is None else as_json(self, "live")),
        }

    def _details(self) -> Iterator[tuple[str, str]]:
        """What the layers have beside the usual fields, in words."""
        for code in self.layers:
            for _, says, _ in details_of(code):
                yield code.part, f"layers {code.layers}: {says}" if code.layers not in (None, "input") else says

    def _of_the_runtime(self) -> str:
        """What is known about the runtime that the caller named, if it computes the same as the audit."""
        if any(found.code == "runtime-not-known" for found in self.findings):
            return f". What {self.runtime} computes is not known"
        same = [each for each in self.readings if each.verdict == "same"]
        if self.runtime is None or not same:
            return ""
        left = list(dict.fromkeys(name for each in same for name in each.not_compared))
        but = f" ({listed(left)} not compared)" if left else ""
        return f", and {self.runtime} computes these values{but}"

    def _lacking(self) -> str:
        """What the files lack for computing the frequencies."""
        lacking = (found for found in self.findings if found.code == "missing-value")
        evidence = [found.evidence for found in lacking if "without it" not in found.evidence]
        names = list(dict.fromkeys(name for held in evidence for name in str(held["missing"]).split(", ")))
        return f": {listed(names)} {'are' if len(names) > 1 else 'is'} not in the file" if names else " from the files"

    def _of(self, severity: str) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)


def _lower(title: str) -> str:
    """A title inside a sentence: names such as RoPE and YaRN keep their capitals."""
    first = title.partition(" ")[0]
    return title if sum(letter.isupper() for letter in first) > 1 else title[:1].lower() + title[1:]


def audit(
    target: "str | os.PathLike[str] | Mapping[str, Any] | Module | object",
    length: int | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    weights: bool = False,
    runtime: str | None = None,
    classes: str | None = None,
    stdin: IO[bytes] | None = None,
) -> Audit:
    """Audit a preset, a model folder, a config, a GGUF, safetensors or ONNX file, a bare array, or a loaded module.

    A config may be a file, a dict, or an object with ``to_dict`` such as ``LlamaConfig()``; for a pipeline, its model
    is audited.

    The config of a loaded ``torch.nn.Module`` is audited like that of a file, and the position data in its parts
    (frequencies, tables of cosines and sines, position numbers, tables of rows) are compared with it, layer by layer.
    The model is not run and not changed; parts that rotate their input are copied, and the copies are called for a few
    positions.

    Args:
        target: What to audit: a path, `-` for a config on standard input, a preset with `:field=value,…`, a config as
            a dict or an object, a module, or a pipeline.
        length: The length in tokens for which frequencies are computed; None means the length that the target sets (a
            training file, a Modelfile), else the original trained length.
        overrides: Values that replace those of the config before it is read, by key; dots lead into objects.
            ``max_model_len`` is not a key of a config: it is used as the length, as in vLLM, if ``length`` is None.
        weights: Whether to determine the layout from the query and key projections; this reads all of them.
        runtime: The runtime that will load the model, ``NAME`` or ``NAME@RELEASE`` (``vllm@0.25``): what it computes
            differently is a warning or an error, and other runtimes are left out. None names no runtime.
        classes: The library whose class of the model is built, without weights, and compared with the file:
            ``transformers``, if it is installed. Nothing is downloaded, and no code of the model is loaded. None builds
            none.
        stdin: Where `-` is read from; None is the process's own standard input.

    Raises:
        Unreadable: The target cannot be read as what it claims to be, or is a module without numbers.
        InvalidType: ``weights`` is set for a module: weights are examined in files only.
        InvalidValue: The target names a preset with a value that cannot be used, the length is not positive, an
            overridden key is not read, the runtime or its release is not known, or the library of the classes is
            another one or not installed.
    """
    named = None if runtime is None else runtime_of(runtime)
    if classes is not None:
        one_of("classes", classes, ("transformers",), "Other libraries have no classes that clockhands can build.")
    served, overrides = served_length(overrides)
    length = served if length is None else count("length", length)
    if isinstance(target, str | os.PathLike):
        opened = overridden(open_target(target, stdin), overrides)
        return audit_opened(opened, length, weights=weights, runtime=named, classes=classes)
    # Imported here: audits of files do not need it.
    from clockhands.models.held_tensors import module_of
    from clockhands.models.opened_modules import open_values

    module = module_of(target)
    if module is not None:
        return _of_module(module, length, overrides, weights, named)
    values = open_values(target)
    if values is None:
        raise InvalidType(
            f"A target must be a string, a path, a config, a dict or a loaded model, got {shown(target)}.",
            f"Name a preset, {READ}, or give `model.config` or the model.",
        )
    return audit_opened(overridden(values, overrides), length, weights=weights, runtime=named, classes=classes)


def audit_opened(
    opened: Opened,
    length: int | None = None,
    *,
    weights: bool = False,
    runtime: RuntimeRelease | None = None,
    classes: str | None = None,
) -> Audit:
    """Audit a target that is already open.

    Args:
        opened: The target, with what the caller set over it.
        length: The length in tokens for which frequencies are computed; None means the length that the target sets.
        weights: Whether to determine the layout from the query and key projections.
        runtime: The runtime that will load the model, or None.
        classes: The library whose class of the model is compared, or None.
    """
    length = opened.length if length is None else length
    if opened.form == "array":
        return judged(opened, *audit_array(opened), runtime=runtime)
    resolved, cases = audit_tables(opened, resolve(opened, length))
    of_class = None
    if classes is not None:
        # Imported here: an audit without the class does not need it.
        from clockhands.auditing.class_comparison import compared_with_class
        from clockhands.auditing.class_layers import with_layers_of_class

        of_class = compared_with_class(opened, resolved)
        if of_class.used and of_class.reading is not None:
            resolved = with_layers_of_class(resolved, of_class.reading)
    found = pairing(opened, resolved) if weights else not_examined(opened, resolved)
    cases += [*cases_of(found, resolved, opened), *(of_class.cases() if of_class is not None else ())]
    audited = judged(opened, resolved, cases, runtime=runtime)
    layers = with_layout(audited.layers, found)
    audited = replace(audited, layers=layers, weights=found, of_class=of_class)
    return _at_length(audited, opened, resolved, length, runtime)


def _of_module(
    module: Any, length: int | None, overrides: Mapping[str, Any] | None, weights: bool, runtime: RuntimeRelease | None
) -> Audit:
    """The audit of a loaded module: its config like that of a file, and the position data that its parts hold."""
    from clockhands.auditing.loaded_modules import config_cases, resolve_module
    from clockhands.models.held_tensors import walked
    from clockhands.models.opened_modules import open_module

    if weights:
        raise InvalidType(
            "`weights` is for files, but a loaded module was given.",
            "Audit the folder that it was loaded from with weights=True.",
        )
    found = walked(module)
    loaded = open_module(module, found)
    opened = overridden(loaded, overrides)
    resolved, cases = resolve_module(module, found, opened, length)
    cases += config_cases(loaded, length)
    return _at_length(judged(opened, resolved, cases, runtime=runtime), opened, resolved, length, runtime)


def _at_length(
    audited: Audit, opened: Opened, resolved: Resolved, length: int | None, runtime: RuntimeRelease | None
) -> Audit:
    """The audit with what a length needs: a scaling if it exceeds the context, and memory for the cache."""
    if length is None:
        return audited
    extended = extension(opened, resolved, length, runtime)
    return replace(audited, extension=extended, cache=cache_memory(opened, resolved, length))


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings, the most severe first, and then as in the table of all."""
    rank = {code: place for place, code in enumerate(CODES)}
    return tuple(sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), rank[each.code])))


def _is_problem(found: Finding) -> bool:
    return found.severity != "note"


def _undisputed(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; a note loses its edit if a problem's edit writes another value under the same key.

    Writing the default base of a class into the file is useful only if no release has another base.
    """
    kept = [each.patch for each in findings if each.severity != "note"]
    return [
        replace(each, edit=None)
        if each.severity == "note" and any(disputed(each.patch, other) for other in kept)
        else each
        for each in findings
    ]


def _changes(place: str, resolved: Resolved, findings: Iterable[Finding]) -> bool:
    """Whether a key that was not read may change something: it is no switch that is off, and no finding is on it."""
    if resolved.ignored[place] is False or place in resolved.idle:
        return False
    return not any(place in each.evidence for each in findings)


def _with_causes(findings: list[Finding], opened: Opened, resolved: Resolved) -> list[Finding]:
    """The findings without those problems that end when a misspelt key is renamed: they are told with that key."""
    moved = (each for each in findings if each.code == "unknown-key")
    renamed = [each for each in moved if any(step["op"] == "move" for step in each.patch)]
    if not renamed:
        return findings
    config = all_applied([step for each in renamed for step in each.patch], opened.config)
    mended = replace(opened, config=config)
    again = judged(mended, resolve(mended, resolved.asked)).problems
    left = {(each.code, each.layers) for each in again}
    ended = [
        each
        for each in findings
        if each.severity != "note" and each not in renamed and (each.code, each.layers) not in left
    ]
    if not ended:
        return findings
    causes = list(dict.fromkeys(_lower(CODES[each.code].title) for each in ended))
    first = make_finding("unknown-key", {**renamed[0].evidence, "causes": causes}, renamed[0].layers, {})
    first = replace(first, edit=renamed[0].edit)
    return [first if each is renamed[0] else each for each in findings if each not in ended]


# The most keys that a verdict names.
_NAMED_KEYS = 3


def judged(
    opened: Opened, resolved: Resolved, cases: Iterable[Case] = (), *, runtime: RuntimeRelease | None = None
) -> Audit:
    """The audit of what was resolved: facts and checks become findings, the most severe first."""
    resolved = resolved.with_lengths()
    subject = AuditSubject(opened, resolved, runtime)
    others = subject.readings
    facts = (case_of(fact.code, fact.evidence, fact.layers) for fact in resolved.facts)
    noticed = [*cases, *(with_release(subject, fact) for fact in facts)]
    noticed += cases_of_checks(subject)
    if any(place.endswith("rope_theta") for place in opened.lost):
        # The override is reported to have lost the base; the file has it.
        noticed = [case for case in noticed if case.code not in ("default-base", "differs-from-release")]
    if any(case.code == "differs-from-release" and {"here", "option"} <= case.evidence.keys() for case in noticed):
        # It says that the base is not in a GGUF file, and what the release has.
        noticed = [case for case in noticed if case.code != "default-base"]
    documents = {opened.config_name or "": opened.config, **opened.beside}
    findings = [
        make_finding(case.code, evidence_by_caller(case.evidence, opened), case.layers, documents) for case in noticed
    ]
    if runtime is not None:
        others = readings_of(subject)
        if any(each.verdict != "unknown" for each in others) or any("runtime" in each.evidence for each in findings):
            # Patterns of misreading were not compared; notes are kept where not everything was compared.
            whole = others and not any(each.not_compared for each in others)
            kept = () if whole else ("note",)
            findings = [
                each
                for each in findings
                if each.blames != "reader" or "runtime" in each.evidence or each.severity in kept
            ]
    findings = _in_order(_undisputed(_with_causes(findings, opened, resolved)))
    return Audit(
        target=opened.target,
        model_type=resolved.model_type,
        context=resolved.context,
        length=resolved.length,
        asked=resolved.asked,
        layers=resolved.codes,
        findings=findings,
        source=resolved.source,
        ignored=resolved.ignored,
        unexplained=tuple(place for place in resolved.ignored if _changes(place, resolved, findings)),
        notes=(*opened.notes, *resolved.notes),
        path=opened.path,
        readings=others,
        runtime=None if runtime is None else str(runtime),
        properties=main_properties(resolved),
        remarks=resolved.remarks,
        not_covered=resolved.not_covered,
    )
