"""Experiments: what is asked of an implementation, what should come back, and how far it may be off."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


class Unasked(Exception):
    """The experiment cannot be made with this implementation; the message says why."""


@dataclass(frozen=True)
class Answer:
    """One answer of an implementation.

    Attributes:
        asked: What was asked, in words.
        got: What came back, [..., rows, channels].
        wanted: What is right, of the same shape.
        allowed: How far it may be off; broadcasts.
        positions: Where the rows stand; broadcasts to the shape without channels, or None.
    """

    asked: str
    got: np.ndarray
    wanted: np.ndarray
    allowed: np.ndarray
    positions: np.ndarray | None = None

    @property
    def shares(self) -> np.ndarray:
        """Each error as a share of what is allowed: infinite where nothing is, and where a number is NaN."""
        return shares(self.got, self.wanted, self.allowed)


@dataclass(frozen=True)
class Experiment:
    """Something that can be asked of every implementation of a kind.

    Attributes:
        name: What it is called by; the law that it asks, where it is one.
        asks: What it asks, one sentence.
        run: Asks an implementation; raises `Unasked` where that cannot be.
        needed: Whether nothing can be said without it.
    """

    name: str
    asks: str
    run: Callable[[Any], list[Answer]]
    needed: bool = False


def shares(got: np.ndarray, wanted: np.ndarray, allowed: Any) -> np.ndarray:
    """``|got - wanted| / allowed``; 0 where they are equal, infinite where nothing is allowed or a number is NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        off = np.abs(got - wanted)
        share = np.where(got == wanted, 0.0, off / allowed)
    return np.where(np.isnan(share), np.inf, share)
