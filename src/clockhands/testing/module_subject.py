"""A module under treatment: how copies and new ones of it are had, and when two answers are the same."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from clockhands.testing.experiments import Unasked, shares
from clockhands.testing.module_asking import Around, Asking, Heard
from clockhands.testing.module_bounds import allowed
from clockhands.testing.module_tensors import as_it_was, put_parameters


@dataclass
class Subject:
    """A module under treatment.

    Attributes:
        original: The caller's, never changed.
        asking: How it is asked.
        make: Builds another one like it, or None.
        build: Builds one of another spec, or None.
        restore: What the caller does to a module after ``to_empty``, or None.
        spec: The code that it should be, or None.
        alike: Whether what ``make`` builds is the same each time, as far as is known.
        notes: What is worth knowing and is no failure.
        copies: Whether its copies by copy.deepcopy are what it is; if not, new ones take their place.
        before: What it answers before any treatment.
    """

    original: torch.nn.Module
    asking: Asking
    make: Callable[[], torch.nn.Module] | None
    build: Callable[[Any], torch.nn.Module] | None
    restore: Callable[[torch.nn.Module], Any] | None
    spec: Any
    alike: bool = field(init=False, default=True)
    notes: list[str] = field(init=False, default_factory=list)
    copies: bool = field(init=False, default=True)
    before: Heard = field(init=False)

    def __post_init__(self) -> None:
        """Ask before any treatment."""
        with as_it_was(self.original):
            self.before = self.asking.hear(self.original.eval())
        try:
            self.copies = not differs(self.asking.hear(copy.deepcopy(self.original).eval()), self.before, self.asking)
        except Exception:  # noqa: BLE001 - told where it is copied on purpose
            self.copies = False

    def copied(self) -> torch.nn.Module:
        """A module like it, evaluating, that may be changed; raises `Unasked` where none can be had."""
        if not self.copies:
            if self.make is None:
                raise Unasked("its copies by copy.deepcopy are not what it is, and no make= builds others")
            return self.made()
        return copy.deepcopy(self.original).eval()

    def made(self) -> torch.nn.Module:
        """A new one, with the learned numbers of the original; raises `Unasked` where none can be built."""
        if self.make is None:
            raise Unasked("say make=, a function that builds the module, and it is asked of new ones")
        if not self.alike:
            raise Unasked("what make= builds is not the same each time")
        module = self.make().eval()
        put_parameters(module, self.original)
        return module


@dataclass
class Treated:
    """A module after a treatment.

    Attributes:
        module: The module.
        what: What was done, in words, after "when it".
        dtype: Of the tokens that it is asked with, if not the usual one.
        around: What it is called in.
        wanted: What it has to answer, if not what it answered before.
        another: Whether its numbers may have been made by other arithmetic, as right as the first.
        rounded: The dtype to which its numbers may be rounded once, if coarser than that of the answer.
        kept: What to undo afterwards.
        heard: Its answer, where the treatment has asked already.
    """

    module: torch.nn.Module
    what: str
    dtype: str | None = None
    around: Around = nullcontext
    wanted: Heard | None = None
    another: bool = False
    rounded: str | None = None
    kept: AbstractContextManager[Any] | None = None
    heard: Heard | None = None


class Broke(Exception):
    """The treatment itself fails; the message says how, after "it"."""


@dataclass(frozen=True)
class Treatment:
    """Something that happens to modules.

    Attributes:
        name: The experiment.
        group: What explains its failure.
        run: Treats a copy; raises `Unasked` or `Broke`.
    """

    name: str
    group: str
    run: Callable[[Subject], Treated]


def differs(heard: Heard, wanted: Heard, asking: Asking) -> bool:
    """Whether two answers are more apart than the same arithmetic in the same dtype puts them."""
    if heard.rows.shape != wanted.rows.shape:
        return True
    got, right = alike(heard.rows, wanted.rows)
    return bool((shares(got, right, allowed(asking, wanted, heard.dtype, False, 1.0)) > 1).any())


def alike(got: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two answers in which what is no number in both is nothing in both: that it was none before is told by itself."""
    both = np.isnan(got) & np.isnan(right)
    return np.where(both, 0.0, got), np.where(both, 0.0, right)


@contextmanager
def undone(kept: AbstractContextManager[Any] | None) -> Iterator[None]:
    """Undo what a treatment did to what others may share."""
    try:
        yield
    finally:
        if kept is not None:
            kept.__exit__(None, None, None)
