"""Releases of runtimes, as a user names them, and what is known about them: ``misread.json``.

A statement says that a runtime behaves like a pattern of `_patterns.py`. It covers the releases and the files that its
source shows, and no others: a runtime without a statement is not thereby known to read a file correctly.

A user names a release, ``vllm@0.25``, whose code was read or not: `RuntimeRelease`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from packaging.version import InvalidVersion, Version

from clockhands.configs.released_code import ReleasedClass, class_in, definition_in
from clockhands.configs.rope_blocks import NEW, OLD, rope_blocks, scaling_name
from clockhands.errors import InvalidValue
from clockhands.packaged import packaged
from clockhands.phrases import did_you_mean
from clockhands.runtimes.views import facts

FORMS: Sequence[str] = ("config.json", "params.json", "gguf")
"""The forms of a file that statements are about."""

BASES: Sequence[str] = ("run", "read", "thread")
"""How a statement is known: a release was run by the tests, its files were read, or a thread reports it."""

_BLOCKS = (OLD, NEW, "yarn")  # the last is that of a params.json


@dataclass(frozen=True)
class Runtime:
    """A program that reads configs.

    Attributes:
        name: What the command line takes.
        title: Its name for people.
        releases: The releases whose code was read for the statements, in order.
    """

    name: str
    title: str
    releases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """How a runtime misreads a file, in some of its releases.

    Attributes:
        pattern: The reader that computes it, one of `PATTERNS`.
        runtime: The runtime's name.
        says: What it does, in a sentence.
        source: The thread, or the file that was read with its release.
        basis: How it is known, one of `BASES`.
        types: The model types that it covers, of the file or of its text part; None covers every type.
        since: The first release known to misread the file; None if not known.
        until: The first release that reads such a file correctly or refuses it; None if not known.
        mended: The thread that fixed it, where the release with the fix is not known; then no release is said to
            misread.
        only_if: What else it depends on, such as an installed library; None if nothing.
        form: The form of the file, one of `FORMS`.
        has: Keys that the file has, at the level of the text part or in one of its blocks.
        lacks: Keys that the file does not have at the level of the text part.
        unread: The keys, or names of scalings, that it says the code does not read; empty if it says something else.
        within: The definition of the runtime that would read them; None for the class of the model type.
        library: The release of the library whose class takes the file for the runtime, and does not read them either.
        scalings: Scaling types of which the file has one, ``default`` for a block without a type; empty matches any
            file.
    """

    pattern: str
    runtime: str
    says: str
    source: str
    basis: str = "thread"
    types: tuple[str, ...] | None = None
    since: str | None = None
    until: str | None = None
    mended: str | None = None
    only_if: str | None = None
    form: str = "config.json"
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    scalings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    within: str | None = None
    library: str | None = None

    def evidence(self, model_type: str | None, version: str | None = None) -> str:
        """Its source, with the class of a model type whose code lacks the key, where a release that was read has it.

        >>> of_mlx = (each for each in statements() if each.runtime == "mlx-lm")
        >>> said = next(each for each in of_mlx if each.unread == ("rope_parameters",))
        >>> said.evidence("llama").partition(": ")[0]
        'ModelArgs in mlx-lm 0.32.2, mlx_lm/models/llama.py:17'
        """
        code = self.code(model_type, version) or self.code(model_type)
        if code is not None:
            return f"{code}: {self.source}"
        return f"{self.source}; no line is known" if self.unread else self.source

    def code(self, model_type: str | None, version: str | None = None) -> ReleasedClass | None:
        """The code that lacks the keys, of a model type or `within`; None if there is none that was read.

        Args:
            model_type: The model type of the file.
            version: The release of the runtime; None for the newest that was read.
        """
        read = [each for each in self.read_in(self.runtime) if version in (None, each)]
        releases = [self.library] if self.library else [f"{self.runtime} {each}" for each in read]
        if self.within is None or self.library:
            found = [class_in(each, model_type or "") for each in reversed(releases)]
        else:
            found = [definition_in(each, self.within) for each in reversed(releases)]
        known = (each for each in found if each is not None and self.unread)
        return next((each for each in known if all(map(each.lacks, self.unread))), None)

    def read_in(self, program: str) -> tuple[str, ...]:
        """The releases of a program whose code was read for it: of the runtime, or of its library."""
        library, _, release = (self.library or "").partition(" ")
        own = runtimes()[self.runtime].releases if program == self.runtime else ()
        return (*filter(self.covers, own), *([release] if program == library else []))

    @property
    def of_some_release(self) -> bool:
        """Whether it is not known of which releases it is true: a thread names none, or a commit was read."""
        unread = self.mended is not None or self.basis == "thread" or not runtimes()[self.runtime].releases
        return unread and self.since is None and self.until is None

    @property
    def releases(self) -> str:
        """The runtime and its releases, as text.

        >>> Statement("no-windows", "vllm", "It has none.", "vllm 0.9: x.py", since="0.8", until="0.10").releases
        'vLLM from 0.8 on, before 0.10'
        """
        title, read = runtimes()[self.runtime].title, self.read_in(self.runtime)
        if self.mended is not None:
            return f"{title} before {self.mended}"
        if self.of_some_release or not (self.since or read):
            return f"some release of {title}"
        first = self.since or read[0]
        if self.until is not None:
            return f"{title} from {first} on, before {self.until}"
        return f"{title} {first}" if first == read[-1] else f"{title} {first} to {read[-1]}"

    @property
    def thread(self) -> str:
        """The first thread that its source names; the whole source where it names none.

        >>> Statement("no-windows", "vllm", "It has none.", "vllm 0.9: x.py; owner/name#1, owner/name#2").thread
        'owner/name#1'
        """
        found = re.search(r"[\w.-]+/[\w.-]+#\d+", self.source)
        return self.source if found is None else found[0]

    def covers(self, version: str | None) -> bool:
        """Whether a release is known to misread so: it lies between two known ones.

        These are the bounds of the statement, and the releases whose code was read for it; a thread alone shows neither
        the first release nor the last.

        Args:
            version: The release; None for the newest that was read.
        """
        read = () if self.basis == "thread" else [*map(release_order, runtimes()[self.runtime].releases)]
        if self.mended is not None or (version is None and not read):
            return False
        first = None if self.since is None else release_order(self.since)
        end = None if self.until is None else release_order(self.until)
        at = max(read) if version is None else release_order(version)
        inside = [each for each in read if (first is None or first <= each) and (end is None or each < end)]
        begun = first <= at if first is not None else any(each <= at for each in inside)
        return begun and (at < end if end is not None else any(at <= each for each in inside))

    def certain(self, version: str | None) -> bool:
        """Whether a release misreads so whatever else is installed."""
        return self.only_if is None and self.covers(version)

    def is_about(self, model_type: str | Collection[str] | None, form: str = "config.json") -> bool:
        """Whether it covers files of this form and type; with several types, those of a file and of its text part."""
        names = {model_type} if isinstance(model_type, str) else set(model_type or ())
        return form == self.form and (self.types is None or not names.isdisjoint(self.types))

    def fits(self, values: Mapping[str, Any]) -> bool:
        """Whether the text part of a config has the keys that it requires."""
        return self.fits_part(TextPart.of(values))

    def fits_part(self, part: "TextPart") -> bool:
        """As `fits`, of a part of which was found once what statements ask."""
        has = part.keys.issuperset(self.has) and part.outer.isdisjoint(self.lacks)
        return has and (not self.scalings or not part.scalings.isdisjoint(self.scalings))


@dataclass(frozen=True)
class TextPart:
    """What statements ask of the text part of a config, found once for all of them.

    Attributes:
        outer: The keys of the part that have a value.
        keys: These, and the keys inside its RoPE blocks that have one.
        scalings: The scaling types of its flat blocks, ``default`` for one without a type.
    """

    outer: frozenset[str]
    keys: frozenset[str]
    scalings: frozenset[str]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "TextPart":
        """What statements ask of the text part of a config with these values."""
        blocks = [block.values for block in rope_blocks(values, keys=_BLOCKS)]
        outer = [held for held in map(values.get, _BLOCKS) if isinstance(held, Mapping)]
        given = [{key for key, value in level.items() if value is not None} for level in (values, *outer, *blocks)]
        scalings = frozenset(scaling_name(block) or "default" for block in blocks)
        return cls(frozenset(given[0]), frozenset().union(*given), scalings)


def statements_about(parts: Iterable[tuple[Collection[str], Mapping[str, Any]]]) -> tuple[Statement, ...]:
    """The statements that cover a config.json with these text parts.

    Args:
        parts: Of each part its model type and that of the file around it, and its values.
    """
    known = [(names, TextPart.of(values)) for names, values in parts]
    return tuple(
        each for each in statements() if any(each.is_about(names) and each.fits_part(part) for names, part in known)
    )


def release_order(version: str) -> Version:
    """Sort key of releases: 0.9 before 0.10, a candidate before its release; builds such as b5000 sort by number.

    Raises:
        InvalidValue: The text is not a release number.

    >>> sorted(["0.5.10", "0.5.9.post1", "0.5.9", "0.5.9rc2"], key=release_order)
    ['0.5.9rc2', '0.5.9', '0.5.9.post1', '0.5.10']
    >>> release_order("b5000") < release_order("b10000")
    True
    """
    written = version.strip()
    try:
        return Version(re.sub(r"^b(?=\d+$)", "", written))
    except InvalidVersion:
        raise InvalidValue(
            f"{version!r} is not a release.", "Write a version number, such as 0.25.1, or a build, such as b5000."
        ) from None


@cache
def runtimes() -> Mapping[str, Runtime]:
    """Every runtime that a statement can name, by name."""
    return {
        name: Runtime(name, held["title"], tuple(held.get("releases", ())))
        for name, held in packaged(__file__, "misread.json")["runtimes"].items()
    }


@cache
def statements() -> tuple[Statement, ...]:
    """Every statement, in the order of the file."""
    return tuple(_statement(row) for row in packaged(__file__, "misread.json")["statements"])


def _statement(row: Mapping[str, Any]) -> Statement:
    named = ("types", "has", "lacks", "scalings", "unread")
    lists = {key: tuple(row[key]) for key in named if row.get(key) is not None}
    return Statement(**{**row, **lists})


@dataclass(frozen=True)
class RuntimeRelease:
    """A runtime that the caller has named.

    Attributes:
        name: Its name, a key of `runtimes`.
        release: The release as it was written; None for the newest known one.
        readers: The readers (keys of `clockhands.runtimes.READERS`) used for it: that of this release, or those of the
            nearest releases before and after it whose code was read. Empty where none was read.
        exact: Whether the code of this very release was read.
    """

    name: str
    release: str | None
    readers: tuple[str, ...]
    exact: bool

    def __str__(self) -> str:
        return self.title if self.release is None else f"{self.title} {self.release}"

    @property
    def title(self) -> str:
        """Its name for people."""
        described = runtimes().get(self.name)
        return self.name if described is None else described.title

    def statements(self, about: Iterable[Statement]) -> tuple[Statement, ...]:
        """What this release is known to misread, of the statements about a file."""
        return tuple(each for each in about if each.runtime == self.name and each.covers(self.release))

    def reported(self, about: Iterable[Statement]) -> tuple[Statement, ...]:
        """What is known of some release, without its number: this one may misread the file so."""
        return tuple(each for each in about if each.runtime == self.name and each.of_some_release)

    def right_again(self, about: Iterable[Statement]) -> frozenset[str]:
        """The patterns that older releases followed for the file, and this release is known not to."""
        return frozenset(each.pattern for each in self.fixed_before(about))

    def fixed_before(self, about: Iterable[Statement]) -> tuple[Statement, ...]:
        """What older releases misread in the file, and this release is known not to misread."""
        if self.release is None:
            return ()
        asked = release_order(self.release)
        held = [each for each in about if each.runtime == self.name and each.until is not None]
        return tuple(each for each in held if each.until is not None and release_order(each.until) <= asked)


def _reading_names() -> Mapping[str, Sequence[str]]:
    """Each runtime that can be named, with its readers from the oldest release to the newest; some have none."""
    held: dict[str, list[str]] = {}
    for reader, about in facts()["readers"].items():
        if "runtime" in about:
            held.setdefault(about["runtime"], []).append(reader)
    ordered = {name: sorted(readers, key=lambda each: _read(each) or Version("0")) for name, readers in held.items()}
    return ordered | {name: () for name in runtimes() if name not in held}


def runtime_of(text: str) -> RuntimeRelease:
    """Parse the name of a runtime, ``NAME`` or ``NAME@RELEASE``.

    If the code of the named release was not read, the nearest releases of the same major version before and after it
    are used. The name of a reader, such as ``vllm-0.11``, names its release.

    Args:
        text: What the caller wrote.

    Raises:
        InvalidValue: No such runtime is known, or the release is no version number.

    >>> runtime_of("vllm@0.25").readers, runtime_of("vllm").readers, runtime_of("transformers@4").exact
    (('vllm-0.11', 'vllm'), ('vllm',), True)
    """
    known = _reading_names()
    name, at, release = text.strip().partition("@")
    name = name.strip().lower()
    about = facts()["readers"].get(name)
    if about is not None and "runtime" in about and name not in known and not at:
        return RuntimeRelease(about["runtime"], about["version"], (name,), exact=True)
    if about is not None and "runtime" in about and name not in known:
        raise InvalidValue(
            f"{text!r} is not a runtime with one release: {name} is {about['runtime']} {about['version']} already.",
            f"Write {name}, or {about['runtime']}@{release}.",
        )
    if name not in known:
        raise InvalidValue(
            f"{name!r} is not a runtime that clockhands knows.",
            f"Name one of {', '.join(known)}, with @RELEASE or without. {did_you_mean(name, known)}".rstrip(),
        )
    readers = known[name]
    if not at:
        return RuntimeRelease(name, None, tuple(readers[-1:]), exact=bool(readers))
    asked = release_order(release)
    read = {reader: version for reader in readers if (version := _read(reader)) is not None}
    same = [reader for reader, version in read.items() if _same(asked, version)]
    if same:
        return RuntimeRelease(name, release, tuple(same[-1:]), exact=True)
    near = {reader: version for reader, version in read.items() if version.major == asked.major}
    before = [reader for reader, version in near.items() if version < asked][-1:]
    after = [reader for reader, version in near.items() if version > asked][:1]
    # Releases that are not numbered, such as those of llama.cpp, cannot be put in order.
    return RuntimeRelease(
        name, release, tuple(before + after) or tuple(r for r in readers if r not in read), exact=False
    )


def _read(reader: str) -> Version | None:
    """The release whose code was read for a reader; None where it has no number."""
    try:
        return Version(facts()["readers"][reader]["version"])
    except InvalidVersion:
        return None


def _same(asked: Version, read: Version) -> bool:
    """Whether a requested release matches: ``4`` and ``4.57`` match 4.57.1, and 0.33.2 counts as 0.33.0."""
    length = min(len(asked.release), 2)
    return asked.release[:length] == read.release[:length]
