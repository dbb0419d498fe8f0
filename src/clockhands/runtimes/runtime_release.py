"""A runtime as a user names it, ``vllm@0.25``, and what is known about that release."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from clockhands.errors import InvalidValue
from clockhands.runtimes._misread import Statement, release_order, runtimes
from clockhands.runtimes.views import facts


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


def _readers_by_name() -> Mapping[str, Sequence[str]]:
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
    known = _readers_by_name()
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
        near = difflib.get_close_matches(name, known, n=1)
        guess = f" Did you mean {near[0]}?" if near else ""
        raise InvalidValue(
            f"{name!r} is not a runtime that clockhands knows.",
            f"Name one of {', '.join(known)}, with @RELEASE or without.{guess}",
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
