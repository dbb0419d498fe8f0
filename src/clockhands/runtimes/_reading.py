"""What each runtime computes from the same config, compared with the audit."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from clockhands.configs.dialects import dialect_of
from clockhands.configs.gguf_fields import ARCHITECTURE
from clockhands.configs.model_types import class_of_others, model_type, table
from clockhands.configs.null_keys import FAILS, REFUSED, UNKNOWN
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import INDEXER, REGISTERED, TEXT, LayerEncoding, Resolved
from clockhands.configs.rope_blocks import RopeBlock, scaling_name
from clockhands.configs.section_fields import Section, model_in
from clockhands.errors import InvalidValue
from clockhands.runtimes._comparing import LayerDifference, compared
from clockhands.runtimes._of_llama_cpp import llama_cpp
from clockhands.runtimes._of_mlx import mlx_lm
from clockhands.runtimes._of_transformers import transformers_4, transformers_5
from clockhands.runtimes._of_vllm import vllm, vllm_0_11
from clockhands.runtimes._patterns import PATTERNS, DeclaredModel, Pattern
from clockhands.runtimes._windows import in_sections, in_windows, window_rule
from clockhands.runtimes.releases import Statement, statements_about
from clockhands.runtimes.views import (
    PER_LAYER,
    ModelFailure,
    NoSuchType,
    Refusal,
    Undescribed,
    View,
    canonical,
    facts,
    put_back,
    text_sections,
)


def _base_of_the_class_around(view: View) -> bool:
    """Whether a part has no base in the old shape, and the class of the whole model has a default for it."""
    top = view.top.get("model_type")
    around = model_type(top) if view.path and isinstance(top, str) else None
    return (
        around is not None
        and "base" in around.section_defaults.get(view.part, {})
        and view.number("rope_theta") is None
    )


def _defaults_of_the_whole(name: str, view: View) -> None:
    """Refuse a part whose base the class around it gives: only Transformers 5 was read for that, and vLLM uses it.

    Raises:
        Undescribed: The part has no base, and what this reader takes for it was not read.
    """
    if name not in ("transformers-5", "vllm") and _base_of_the_class_around(view):
        top = view.top.get("model_type")
        raise Undescribed(f"What it takes for the base of a part of {top} is not known to clockhands.")


def _types_for_statements(view: View) -> Collection[str]:
    """The model types whose statements hold for a part.

    Those about the type of the part itself are about its own defaults, which the class around it may replace.
    """
    return {view.top["model_type"]} if _base_of_the_class_around(view) else view.types


def _values_of_layers(name: str, view: View) -> None:
    """Refuse values of single layers: only Transformers 5 was read for them, where its class takes them.

    Raises:
        Undescribed: There are some, and what this reader does with them was not read.
    """
    if view.block(PER_LAYER) is None:
        return
    if name != "transformers-5" or view.known is None or PER_LAYER not in view.known.reads.get("per_layer", ()):
        raise Undescribed(f"clockhands does not know how this runtime reads {PER_LAYER}.")


def _nulls(name: str, view: View) -> None:
    """Refuse nulls in place of values, which were measured on the classes of Transformers 5 alone.

    vLLM is among the others: it has config classes of its own for types that Transformers has too.

    Raises:
        Refusal: The class takes no null there.
        Undescribed: What this reader makes of a null was not measured.
    """
    for key, meaning in view.nulls().items():
        if name != "transformers-5" or meaning == UNKNOWN:
            raise Undescribed(f"What it makes of null in {key} is not known to clockhands.")
        if meaning == REFUSED:
            raise Refusal(f"The config class of {view.name} refuses null in {key}.")
        if meaning == FAILS:
            raise Refusal(f"The class of {view.name} cannot be built with null in {key}.")


PROGRAMS: Mapping[str, Callable[[View], None]] = {
    "transformers-4": transformers_4,
    "transformers-5": transformers_5,
    "vllm-0.11": vllm_0_11,
    "vllm": vllm,
    "llama.cpp": llama_cpp,
    "mlx-lm": mlx_lm,
}
"""How each program reads a part of a config, by the name that the command line takes."""

READERS: Sequence[str] = (*PROGRAMS, *PATTERNS)
"""Every reader: programs, and patterns of misreading."""

_WITH_SCORES_AND_INDEXERS = "transformers-5"
"""The program that is known to scale scores and to rotate indexers as the audit says."""

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
    codes: tuple[LayerEncoding, ...] = ()
    not_read: tuple[str, ...] = ()
    parted: tuple[LayerDifference, ...] = ()
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
    held = FileReadings(opened, resolved, length)
    return tuple(map(held.reading, chosen))


def misreadings(opened: Opened, resolved: Resolved, length: int | None = None) -> tuple[Reading, ...]:
    """The patterns of misreading that change what is computed from a config, each with its reading.

    Args:
        opened: The target, with what the caller set over it.
        resolved: What was resolved from it.
        length: The length at which it was.
    """
    return FileReadings(opened, resolved, length).misreadings()


class FileReadings:
    """How each runtime reads one target; whatever several of them ask of it is found once.

    Attributes:
        opened: The target, with what the caller set over it.
        resolved: What was resolved from it.
        length: The length at which it was.
    """

    def __init__(self, opened: Opened, resolved: Resolved, length: int | None) -> None:
        """Read nothing yet."""
        self.opened: Opened = opened
        self.resolved: Resolved = resolved
        self.length: int | None = length
        self._config: Mapping[str, Any] = model_in(opened.config or {})[1]
        self._found: dict[str, Reading] = {}
        self._resolved_again: list[tuple[dict[str, Any], int | None, tuple[LayerEncoding, ...]]] = []

    @cached_property
    def incomparable(self) -> str | None:
        """Why runtimes cannot be compared on it, in a sentence; None where they can."""
        return incomparable(self.opened, self.resolved)

    @cached_property
    def _sections(self) -> tuple[Section, ...]:
        return text_sections(self._config)

    def _views(self) -> list[View]:
        return [View(self.opened, section, self.length) for section in self._sections]

    @cached_property
    def parts(self) -> tuple[View, ...]:
        """The parts of the config that read or write text, as no runtime has changed them."""
        return tuple(self._views())

    @cached_property
    def scaled_blocks(self) -> tuple[tuple[View, RopeBlock], ...]:
        """Each block that names a scaling, flat or for one kind of layer, with the part that holds it."""
        blocks = ((view, block) for view in self.parts for block in view.blocks_that_count())
        return tuple((view, block) for view, block in blocks if block.scaling not in (None, "default"))

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements that cover files with the type and the keys of this one, for any runtime and release."""
        return statements_about((_types_for_statements(view), view.values) for view in self.parts)

    def reading(self, name: str) -> Reading:
        """How one runtime or one pattern of misreading reads it."""
        if name not in self._found:
            self._found[name] = self._reading(name)
        return self._found[name]

    def shown(self) -> tuple[Reading, ...]:
        """How all programs read it, and a port without the scaling."""
        return tuple(map(self.reading, _SHOWN))

    def misreadings(self) -> tuple[Reading, ...]:
        """The patterns of misreading that change what is computed from it."""
        if self.incomparable is not None:
            return ()
        return tuple(each for each in map(self.reading, PATTERNS) if each.verdict == "differs")

    def _reading(self, name: str) -> Reading:
        about = facts()["readers"][name]
        title, version = about["title"], about["version"]
        if self.incomparable is not None:
            return self._alone(name, title, version, self.incomparable)
        try:
            made = _Computed(self.length)
            pattern = PATTERNS.get(name)
            if pattern is None:
                self._of_program(name, made)
            else:
                self._of_pattern(pattern, made)
        except Refusal as refusal:
            has_type = not isinstance(refusal, NoSuchType)
            return Reading(name, title, version, "refuses", str(refusal), has_type=has_type)
        except Undescribed as unknown:
            return Reading(name, title, version, "unknown", str(unknown))
        not_compared = () if name in PATTERNS else self._not_compared(name, made)
        parted = ()
        if made.codes is not made.beside:
            groups = (group for group in self._compared(made, not_compared) if not group.same)
            parted = tuple(group for group in groups if not self._only_windows_that_never_act(group))
        open_rates = any(code.kind == "rotary" and code.part in TEXT and not code.rates for code in made.codes)
        if open_rates and not parted and not made.failing:
            # Two readings that both lack their frequencies do not agree on them.
            return Reading(name, title, version, "unknown", "The file lacks values for the RoPE frequencies.")
        longest, context = made.longest, self.resolved.context
        return Reading(
            name,
            title,
            version,
            "refuses" if made.failing else "differs" if parted else "same",
            made.failing,
            codes=made.codes,
            not_read=tuple(dict.fromkeys(made.not_read)),
            parted=parted,
            longest=int(longest) if longest is not None and longest != context else None,
            says=tuple(dict.fromkeys(made.says)),
            not_compared=not_compared,
        )

    def _alone(self, name: str, title: str, version: str, reason: str) -> Reading:
        """The reading of a target that is not a config."""
        followed = self.opened.form == "gguf" and name == "llama.cpp"
        architecture = (self.opened.config or {}).get(ARCHITECTURE)
        if followed and architecture in table()["gguf"]["of_ollama"]:
            reason = f"{architecture} is Ollama's own name of an architecture, which only its loader knows."
            return Reading(name, title, version, "unknown", reason)
        if followed and not any(fact.code == "unknown-model-type" for fact in self.resolved.facts):
            says = ("The audit reads a GGUF file as llama.cpp does.",)
            return Reading(name, title, version, "same", codes=self.resolved.codes, says=says)
        reason = "The loader of llama.cpp for this architecture is not known to clockhands." if followed else reason
        return Reading(name, title, version, "unknown", reason)

    @cached_property
    def _scalings(self) -> frozenset[str]:
        """The names of all scalings of the text."""
        names = (scaling_name(block.values) for view in self.parts for block in view.blocks())
        return frozenset(name for name in names if name is not None)

    def _of_program(self, name: str, made: "_Computed") -> None:
        """What a program computes: it changes a copy of each part, and what it changed is resolved again."""
        config = self._config
        registered = next((each for each in self._scalings if each.startswith(REGISTERED)), None)
        if registered is not None:
            raise Undescribed(f"{registered} is known only to a process that calls clockhands.transformers.register().")
        for section, view in zip(self._sections, self._views(), strict=True):
            rule = window_rule(name, view)
            if view.get("sliding_window"):
                made.with_window.add(section.part)
            for key in (rule or {}).get("drops", ()):
                view.drop(key)
            _defaults_of_the_whole(name, view)
            _nulls(name, view)
            try:
                PROGRAMS[name](view)
            except ModelFailure as failure:
                made.failing = made.failing or str(failure)
            _values_of_layers(name, view)
            if view.values != section.values:
                config = put_back(config, section, view.values)
            made.length = view.length
            made.longest = view.longest if made.longest is None else made.longest
            made.not_read += view.not_read
            made.says += view.says
            made.sections[section.part] = view.sections
            made.rules[section.part] = rule if view.window_rule is None else view.window_rule
        if self._foreign:
            raise Undescribed("The file is not for the class of the model type that it names.")
        made.beside = self.resolved.codes
        codes = self._codes(config, made.length)
        made.codes = in_sections(in_windows(codes, made.rules), made.sections)

    def _of_pattern(self, pattern: Pattern, made: "_Computed") -> None:
        """What a pattern makes of the encodings, or of a config in which it reads other keys."""
        made.beside = self.resolved.codes
        if pattern.reads is not None:
            config = self._config
            for section, view in zip(self._sections, self._views(), strict=True):
                pattern.reads(view)
                config = put_back(config, section, view.values)
            made.codes = self._codes(config, self.length)
            return
        made.beside, made.codes = pattern.changed(made.beside, self._model)

    @cached_property
    def _foreign(self) -> bool:
        """Whether the class or the sizes of the file show that it is not for the class of its model type."""
        known = model_type(str(self._config.get("model_type")))
        other = known is not None and class_of_others(self._config, known) is not None
        return other or any("other keys" in fact.evidence for fact in self.resolved.facts)

    @cached_property
    def _model(self) -> DeclaredModel:
        known = next((view.known for view in self.parts if view.known is not None), None)
        return DeclaredModel(known, self.resolved.context, bool(self._scalings - {"default", "mrope"}))

    def _codes(self, config: Mapping[str, Any], length: int | None) -> tuple[LayerEncoding, ...]:
        """The codes of a changed config; those that are equal are resolved once."""
        if config is self._config and length == self.length:
            return self.resolved.codes
        if not self._resolved_again:
            self._resolved_again.append((canonical(self._config), self.length, self.resolved.codes))
        seen = canonical(config)
        for known, at, codes in self._resolved_again:
            if at == length and known == seen:
                return codes
        codes = resolve(replace(self.opened, config=dict(config), overridden={}, duplicates=()), length).codes
        self._resolved_again.append((seen, length, codes))
        return codes

    def _not_compared(self, name: str, made: "_Computed") -> tuple[str, ...]:
        text = [code for code in self.resolved.codes if code.part in TEXT]
        # A window that the class of Transformers ignores may be one that this reader uses.
        windowed = {code.part for code in text if code.farthest is not None} | made.with_window
        windows = any(made.rules.get(part) is None for part in windowed)
        axes = any(code.sections is not None and made.sections.get(code.part) is None for code in text)
        others = name != _WITH_SCORES_AND_INDEXERS
        scores = others and any(code.score_scale is not None for code in text)
        indexer = others and any(code.part == INDEXER for code in self.resolved.codes)
        return ("windows",) * windows + ("sections",) * axes + ("scores",) * scores + ("indexer",) * indexer

    def _only_windows_that_never_act(self, group: LayerDifference) -> bool:
        """Whether two codes differ in windows alone, and both windows are at least as long as the context."""
        context, ours, theirs = self.resolved.context, group.ours, group.theirs
        if context is None or ours is None or theirs is None or (group.ladder is not None and not group.ladder.same):
            return False
        past = all(code.farthest is None or code.farthest >= context for code in (ours, theirs))
        return past and group.says == (f"{ours.seen} against {theirs.seen}",)

    def _compared(self, made: "_Computed", without: tuple[str, ...]) -> tuple[LayerDifference, ...]:
        parts = TEXT if "indexer" in without else (*TEXT, INDEXER)
        mine, theirs = ([code for code in side if code.part in parts] for side in (made.beside, made.codes))
        return compared(mine, theirs, windows="windows" not in without, scores="scores" not in without)


@dataclass
class _Computed:
    """What a reader computes, and what it is compared with, collected part by part.

    Attributes:
        length: The length at which the reader computes the frequencies.
        codes: What it computes.
        beside: The codes of the audit, at the same length.
        rules: What it does with windows, by part; None where that is not known.
        sections: How it shares the pairs of M-RoPE among the axes, by part; None where that is not known.
        with_window: The parts whose config has a window.
        failing: Why the model class fails although the config class takes the file.
        longest: The longest context that it allows.
        not_read: Keys of the file that it drops.
        says: Further remarks.
    """

    length: int | None
    codes: tuple[LayerEncoding, ...] = ()
    beside: tuple[LayerEncoding, ...] = ()
    rules: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    sections: dict[str, str | None] = field(default_factory=dict)
    with_window: set[str] = field(default_factory=set)
    failing: str | None = None
    longest: float | None = None
    not_read: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
