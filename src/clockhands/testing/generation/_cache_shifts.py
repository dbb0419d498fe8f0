"""Functions that move a cache on, or drop its first tokens and move the rest back, as users write them."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from clockhands.recognition.calling import Refused, error_text
from clockhands.testing._usual_names import meanings
from clockhands.testing.generation._causal_models import CausalModel
from clockhands.testing.generation._started_caches import owners_of

_NAMED = re.compile(r"\w*shift\w*")
_CACHES = meanings("cache")
_STARTS = ("start", "begin", "first", "p0", "start_pos", "n_keep", "keep", "num_keep")
_DELTAS = ("delta", "by", "shift", "offset", "positions", "amount", "n", "steps", "distance", "shift_by")
_DROPS = ("n_discard", "discard", "n_drop", "drop", "num_drop", "n_dropped", "n_remove", "num_discard", "n_evict")


@dataclass(frozen=True)
class CacheShift:
    """A user's function that moves a cache.

    Attributes:
        function: The function.
        cache, by: What it calls the cache, and the number of positions.
        start: What it calls the first row that is moved; empty if it moves all.
        drops: Whether it drops so many rows, and moves the others back by as many.
    """

    function: Callable[..., Any]
    cache: str
    by: str
    start: str = ""
    drops: bool = False

    def __call__(self, cache: Any, by: int) -> Any:
        """The cache after it was moved, or after so many of its first rows were dropped."""
        given = {self.cache: cache, self.by: by} | ({self.start: 0} if self.start else {})
        try:
            moved = self.function(**given)
        except Exception as error:
            name = getattr(self.function, "__name__", "shift")
            raise Refused(f"{name}({', '.join(given)}) raised {error_text(error)}") from error
        return cache if moved is None else moved


def cache_shift(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as one of a cache and a number of positions; itself where its arguments have other names."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function
    needed = {one.name for one in parameters if one.default is one.empty}
    names = [one.name for one in parameters]
    cache = next((name for name in names if name in _CACHES), "")
    start = next((name for name in names if name in _STARTS), "")
    drop = next((name for name in names if name in _DROPS), "")
    by = drop or next((name for name in names if name in _DELTAS), "")
    if not cache or not by or needed - {cache, start, by}:
        return function
    return CacheShift(function, cache, by, start, bool(drop))


def found_shift(model: CausalModel) -> CacheShift | None:
    """The function or method beside a model that moves its cache, by its name and those of its arguments."""
    for function in _beside(model.forward):
        shift = cache_shift(function)
        if isinstance(shift, CacheShift):
            return shift
    return None


def _beside(fn: Any) -> Iterator[Callable[..., Any]]:
    owners = [fn, getattr(fn, "__self__", None), *owners_of(fn)]
    for owner in owners:
        for name in dir(type(owner)) if owner is not None and not inspect.isroutine(owner) else ():
            if _NAMED.fullmatch(name) and inspect.isroutine(getattr(owner, name)):
                yield getattr(owner, name)
    for owner in owners:
        code = getattr(owner, "__func__", owner) if inspect.isroutine(owner) else vars(type(owner)).get("__call__")
        for name, each in getattr(code, "__globals__", {}).items():
            if _NAMED.fullmatch(name) and inspect.isfunction(each):
                yield each
