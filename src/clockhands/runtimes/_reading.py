"""What each runtime computes from the same config, compared with the audit."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clockhands.configs.dialects import dialect_of
from clockhands.configs.model_types import model_type
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import INDEXER, REGISTERED, TEXT, Code, Resolved
from clockhands.configs.rope_blocks import scaling_name
from clockhands.errors import InvalidValue
from clockhands.runtimes._comparing import Parted, compared
from clockhands.runtimes._of_llama_cpp import llama_cpp
from clockhands.runtimes._of_mlx import mlx_lm
from clockhands.runtimes._of_transformers import transformers_4, transformers_5
from clockhands.runtimes._of_vllm import vllm, vllm_0_11
from clockhands.runtimes._patterns import COMPUTES, READS, as_the_file
from clockhands.runtimes._windows import in_sections, in_windows, window_rule
from clockhands.runtimes.views import (
    AS_THE_CLASS,
    PER_LAYER,
    ModelFailure,
    NoSuchType,
    Refusal,
    Undescribed,
    View,
    about,
    canonical,
    put_back,
    views,
)


def _defaults_of_the_whole(name: str, view: View) -> None:
    """Refuse a part whose base the class around it gives: only Transformers 5 was read for that, and vLLM uses it.

    Raises:
        Undescribed: The part has no base, and what this reader takes for it was not read.
    """
    top = view.top.get("model_type")
    around = model_type(top) if view.path and isinstance(top, str) else None
    if name in PATTERNS or name in ("transformers-5", "vllm") or around is None:
        return
    if "base" in around.section_defaults.get(view.part, {}) and view.number("rope_theta") is None:
        raise Undescribed(f"What it takes for the base of a part of {top} is not known to clockhands.")


def _values_of_layers(name: str, view: View) -> None:
    """Refuse values of single layers: only Transformers 5 was read for them, where its class takes them.

    Raises:
        Undescribed: There are some, and what this reader does with them was not read.
    """
    if view.block(PER_LAYER) is None or name in PATTERNS:
        return
    if name != "transformers-5" or view.known is None or PER_LAYER not in view.known.reads.get("per_layer", ()):
        raise Undescribed(f"clockhands does not know how this runtime reads {PER_LAYER}.")


READERS: Mapping[str, Callable[[View], None]] = {
    "transformers-4": transformers_4,
    "transformers-5": transformers_5,
    "vllm-0.11": vllm_0_11,
    "vllm": vllm,
    "llama.cpp": llama_cpp,
    "mlx-lm": mlx_lm,
    **READS,
    **dict.fromkeys(COMPUTES, as_the_file),
}
"""Every reader by the name that the command line takes: programs, and patterns of misreading."""

PATTERNS: Sequence[str] = (*READS, *COMPUTES)
"""The readers that are no program."""

_SCALING_SCORES: Sequence[str] = ("transformers-5", *PATTERNS)
"""The readers that are known to scale scores as the audit says."""

_WITH_INDEXERS: Sequence[str] = ("transformers-5", *PATTERNS)
"""The readers whose indexers are known."""

CURRENT: Sequence[str] = ("transformers-5", "vllm", "llama.cpp", "mlx-lm")
"""The readers that are the newest release of their program that was read."""

_SHOWN = tuple(name for name in READERS if name not in PATTERNS or name == "no-scaling")


@dataclass(frozen=True)
class Reading:
    """How one runtime (or one pattern of misreading) reads a config.

    Attributes:
        reader: Its name, a key of `READERS`.
        title: Its name for people.
        version: The release whose code was read.
        verdict: ``same``, ``differs``, ``refuses`` (it does not load the file) or ``unknown`` (not described here).
        because: Why it refuses, or why it is not known, in a sentence.
        codes: The position codes as it computes them; empty where it refuses or is not known. Where its model class
            fails after its config class has taken the file, those that follow from what the config class took.
        not_read: Keys of the file that it drops, as ``file:key``.
        parted: The groups of layers in which it computes something different from the audit.
        longest: The longest context in tokens that it allows, where that is not the declared one.
        says: Further remarks, in sentences.
        not_compared: What the comparison leaves out although the model has it, since this runtime's code was not read
            for it: ``windows``, ``sections``, ``scores`` (what they are multiplied by).
        has_type: Whether it has the model type; one that does not have it refuses every file of the type.
    """

    reader: str
    title: str
    version: str
    verdict: str
    because: str | None = None
    codes: tuple[Code, ...] = ()
    not_read: tuple[str, ...] = ()
    parted: tuple[Parted, ...] = ()
    longest: int | None = None
    says: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    has_type: bool = True

    @property
    def of_program(self) -> bool:
        """Whether this is a program, and not a pattern that many ports follow."""
        return self.reader not in PATTERNS


def incomparable(opened: Opened, resolved: Resolved) -> str | None:
    """Why runtimes cannot be compared on a target, in a sentence; None where they can."""
    if opened.form == "preset":
        return "This target is a spec of clockhands, which runtimes do not read."
    if opened.form == "module":
        return "The audit compares runtimes on files, and this target is a loaded model, which runs its own code."
    if opened.form == "gguf":
        return "clockhands does not know what other runtimes compute from GGUF files."
    dialect = dialect_of(opened.config or {}) if opened.form == "dialect" else None
    if dialect is not None:
        return f"The compared runtimes read configs of Transformers, and this is a file of {dialect.name}."
    if opened.form in ("array", "dialect") or opened.config is None:
        return "The compared runtimes read the config.json of a model, and this target has none."
    if isinstance(opened.config.get("transformer_layer_config"), Mapping):
        return "The compared runtimes read configs of Transformers, and this is a draft in the format of speculators."
    if not any(code.kind == "rotary" and code.part in TEXT for code in resolved.codes):
        return "The audit compares only RoPE of text, and this model has no RoPE of text."
    return None


def readings(
    opened: Opened, resolved: Resolved, length: int | None = None, only: Iterable[str] | None = None
) -> tuple[Reading, ...]:
    """How each runtime reads the same file, compared with what was resolved.

    Only configs with a rotary code in a part for text are compared: in other kinds of encodings runtimes do not differ.
    A GGUF file is resolved as llama.cpp reads it; for all other targets each reading says why it cannot be compared.

    Args:
        opened: The target, with what the caller set over it.
        resolved: What was resolved from it.
        length: The length at which it was.
        only: Names of readers; None is all programs, and a port without the scaling.

    Raises:
        InvalidValue: There is no reader of that name.
    """
    chosen = tuple(_SHOWN if only is None else only)
    for name in chosen:
        if name not in READERS:
            raise InvalidValue(f"There is no runtime {name!r}.", f"The runtimes are {', '.join(READERS)}.")
    reason = incomparable(opened, resolved)
    if reason is not None:
        return tuple(_alone(name, opened, resolved, reason) for name in chosen)
    session = _Session(opened, resolved, length)
    return tuple(session.reading(name) for name in chosen)


def misreadings(opened: Opened, resolved: Resolved, length: int | None = None) -> tuple[Reading, ...]:
    """The patterns of misreading that change what is computed from a config, each with its reading.

    Args:
        opened: The target, with what the caller set over it.
        resolved: What was resolved from it.
        length: The length at which it was.
    """
    if incomparable(opened, resolved) is not None:
        return ()
    session = _Session(opened, resolved, length)
    return tuple(each for each in map(session.reading, PATTERNS) if each.verdict == "differs")


def _alone(name: str, opened: Opened, resolved: Resolved, reason: str) -> Reading:
    """The reading of a target that is not a config."""
    title, version, _ = about(name)
    followed = opened.form == "gguf" and name == "llama.cpp"
    if followed and not any(fact.code == "unknown-model-type" for fact in resolved.facts):
        says = ("The audit reads a GGUF file as llama.cpp does.",)
        return Reading(name, title, version, "same", codes=resolved.codes, says=says)
    reason = "The loader of llama.cpp for this architecture is not known to clockhands." if followed else reason
    return Reading(name, title, version, "unknown", reason)


class _Session:
    """All readings of one target; views that are equal are resolved once."""

    def __init__(self, opened: Opened, resolved: Resolved, length: int | None) -> None:
        self.opened, self.resolved, self.length = opened, resolved, length
        self.config: Mapping[str, Any] = opened.config or {}
        self.seen: list[tuple[dict[str, Any], int | None, tuple[Code, ...]]] = [
            (canonical(self.config), length, resolved.codes)
        ]

    def reading(self, name: str) -> Reading:
        title, version, _ = about(name)
        config: dict[str, Any] = dict(self.config)
        length, longest = self.length, None
        at: int | None = None
        not_read: list[str] = []
        says: list[str] = []
        failing: str | None = None
        rules: dict[str, Mapping[str, Any] | None] = {}
        sections: dict[str, str | None] = {}
        with_window: set[str] = set()
        try:
            for section, view in views(self.opened, self.length):
                rule = {} if name in PATTERNS else window_rule(name, view)
                view.sections = AS_THE_CLASS if name in PATTERNS else None
                if view.get("sliding_window"):
                    with_window.add(section.part)
                for key in (rule or {}).get("drops", ()):
                    view.drop(key)
                if name not in PATTERNS:
                    _given_by_clockhands(view)
                _defaults_of_the_whole(name, view)
                try:
                    READERS[name](view)
                except ModelFailure as failure:
                    failing = failing or str(failure)
                _values_of_layers(name, view)
                config = put_back(config, section, view.values)
                length = view.length if view.at is None else view.at
                at = at or view.at
                longest = view.longest if longest is None else longest
                not_read += view.not_read
                says += view.says
                sections[section.part] = view.sections
                rules[section.part] = rule if view.window_rule is None else view.window_rule
        except Refusal as refusal:
            has_type = not isinstance(refusal, NoSuchType)
            return Reading(name, title, version, "refuses", str(refusal), has_type=has_type)
        except Undescribed as unknown:
            return Reading(name, title, version, "unknown", str(unknown))
        try:
            codes = in_sections(in_windows(self._codes(config, length), rules), sections)
        except Refusal as refusal:
            return Reading(name, title, version, "refuses", str(refusal))
        except Undescribed as unknown:
            return Reading(name, title, version, "unknown", str(unknown))
        if name in COMPUTES:
            codes = tuple(COMPUTES[name](code) if code.part in (*TEXT, INDEXER) else code for code in codes)
        not_compared = self._not_compared(name, rules, sections, with_window)
        parted = ()
        if codes is not self.resolved.codes:
            beside = self.resolved.codes if at is None else self._codes(dict(self.config), at)
            groups = (group for group in self._compared(beside, codes, not_compared) if not group.same)
            parted = tuple(group for group in groups if not self._only_windows_that_never_act(group))
        open_rates = any(code.kind == "rotary" and code.part in TEXT and not code.rates for code in codes)
        if open_rates and not parted and not failing:
            # Two readings that both lack their frequencies do not agree on them.
            return Reading(name, title, version, "unknown", "The file lacks values for the RoPE frequencies.")
        context = self.resolved.context
        return Reading(
            name,
            title,
            version,
            "refuses" if failing else "differs" if parted else "same",
            failing,
            codes=codes,
            not_read=tuple(dict.fromkeys(not_read)),
            parted=parted,
            longest=int(longest) if longest is not None and longest != context else None,
            says=tuple(dict.fromkeys(says)),
            not_compared=not_compared,
        )

    def _not_compared(
        self,
        name: str,
        rules: Mapping[str, Any],
        sections: Mapping[str, str | None],
        declared: Collection[str],
    ) -> tuple[str, ...]:
        text = [code for code in self.resolved.codes if code.part in TEXT]
        # A window that the class of Transformers ignores may be one that this reader uses.
        windowed = {code.part for code in text if code.farthest is not None} | set(declared)
        windows = any(rules.get(part) is None for part in windowed)
        axes = any(code.sections is not None and sections.get(code.part) is None for code in text)
        scores = name not in _SCALING_SCORES and any(code.score_scale is not None for code in text)
        indexer = name not in _WITH_INDEXERS and any(code.part == INDEXER for code in self.resolved.codes)
        return ("windows",) * windows + ("sections",) * axes + ("scores",) * scores + ("indexer",) * indexer

    def _only_windows_that_never_act(self, group: Parted) -> bool:
        """Whether two codes differ in windows alone, and both windows are at least as long as the context."""
        context, ours, theirs = self.resolved.context, group.ours, group.theirs
        if context is None or ours is None or theirs is None or (group.ladder is not None and not group.ladder.same):
            return False
        past = all(code.farthest is None or code.farthest >= context for code in (ours, theirs))
        return past and group.says == (f"{ours.seen} against {theirs.seen}",)

    def _codes(self, config: dict[str, Any], length: int | None) -> tuple[Code, ...]:
        seen = canonical(config)
        for known, at, codes in self.seen:
            if at == length and known == seen:
                return codes
        codes = resolve(replace(self.opened, config=config, overridden={}, duplicates=()), length).codes
        self.seen.append((seen, length, codes))
        return codes

    def _compared(
        self, ours: tuple[Code, ...], codes: tuple[Code, ...], without: tuple[str, ...]
    ) -> tuple[Parted, ...]:
        parts = TEXT if "indexer" in without else (*TEXT, INDEXER)
        mine, theirs = ([code for code in side if code.part in parts] for side in (ours, codes))
        return compared(mine, theirs, windows="windows" not in without, scores="scores" not in without)


def _given_by_clockhands(view: View) -> None:
    """Whether a scaling has a type that only clockhands registers in Transformers."""
    for block in view.blocks():
        name = scaling_name(block.values) or ""
        if name.startswith(REGISTERED):
            raise Undescribed(f"{name} is known only to a process that calls clockhands.transformers.register().")
