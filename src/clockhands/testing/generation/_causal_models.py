"""Calls of a user's causal model in any array library: tokens in, logits and a cache out."""

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from clockhands.models.torch_threads import in_one_thread
from clockhands.recognition.calling import (
    FLOATS,
    Library,
    Refused,
    answered,
    as_numpy,
    dtype_of,
    kind_of,
    library_name,
)
from clockhands.testing._experiments import Unasked

ARGUMENTS = ("tokens", "positions", "mask", "cache")

# Logits that are compared, at most: what positions do, they do to all.
COLUMNS = 4096
_NOT_SEEN = -1e9


@dataclass
class Counts:
    """How often a model was called, with how many tokens, and what it answers in: dtype and library."""

    calls: int = 0
    rows: int = 0
    dtype: str = "float32"
    library: str = "numpy"


@dataclass
class HandedCache:
    """A cache with what else the first call of a text leaves behind and later calls of it are passed, by argument."""

    cache: Any
    handed: dict[str, Any]


@dataclass
class CausalModel:
    """A causal model as a function of NumPy arrays.

    Attributes:
        forward: Its own function.
        library: What it takes.
        vocabulary: Tokens that there are.
        timeout: Seconds for a call; None calls without a limit, in this thread.
        takes: Which of tokens, positions, mask and cache it takes.
        names: What it calls them, where they are passed by name.
        counts: What it was asked so far; shared with its copies.
        counting: Whether it counts positions itself where none are given.
        window: Keys that a query sees at most, where its layers keep no more.
        layers: How many layers it has, where it says so.
        pad: The token to pad with.
        alone: Whether it is a PyTorch model that is faster in one thread.
        answers: What it answered to each call, where that is recorded.
        starts: Makes the empty cache of so many texts, for a model that makes none itself and writes to the one that
            it is given.
        watch: Opened around each call, in its thread.
        columns: Numbers of a row of its logits, if there are more than tokens.
        handed: Arguments of later calls: the module and its attribute in which the first call of a text left each.
        by_queries: Whether its mask may say for each query which keys it sees.
        adds_masks: The axes of a mask of numbers that it adds to scores; empty if it takes booleans.
        chooses: Whether it gives tokens and no logits. Each is then a row of zeros with a 1 at its column.
    """

    forward: Callable[..., Any]
    library: Library
    vocabulary: int
    timeout: float | None = 60.0
    takes: frozenset[str] = frozenset(ARGUMENTS)
    names: Mapping[str, str] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    counting: bool = False
    window: int | None = None
    layers: int | None = None
    pad: int = 0
    alone: bool = False
    answers: list[np.ndarray] | None = None
    starts: Callable[[int], Any] | None = None
    watch: Callable[[], AbstractContextManager[Any]] | None = None
    columns: int | None = None
    handed: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    by_queries: bool = True
    adds_masks: str = ""
    chooses: bool = False

    def __call__(
        self,
        tokens: np.ndarray,
        positions: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        cache: Any = None,
        *,
        keep: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """Logits [batch, seq, vocabulary], float64, and the cache after these tokens; of large vocabularies a part.

        Args:
            tokens: [batch, seq].
            positions: [batch, seq]; None has the model count, or counts from 0 for one that cannot.
            mask: Which keys are seen: [batch, keys], or [batch, seq, keys] for all that each query sees.
            cache: What was kept of the tokens before; it may be written to.
            keep: Whether a cache is wanted.
        """
        if positions is not None and "positions" not in self.takes:
            raise Unasked("it takes no positions")
        if mask is not None and "mask" not in self.takes:
            raise Unasked("it takes no mask")
        if mask is not None and mask.ndim == 3 and not self.by_queries:
            raise Unasked(
                "a mask of queries and keys that hides nothing changes its logits: it takes masks of keys alone"
            )
        if cache is not None and "cache" not in self.takes:
            raise Unasked("it takes no cache")
        self.counts.calls += 1
        self.counts.rows += tokens.size
        logits, cache = self._answered(tokens, positions, mask, cache, keep)
        shape = (*tokens.shape, self.returned)
        if tuple(logits.shape) != shape:
            raise Refused(f"it returned logits of shape {list(logits.shape)}; expected {list(shape)}")
        logits = logits if self.columns is None else logits[..., : self.vocabulary]
        self.counts.dtype, self.counts.library = dtype_of(logits), library_name(logits)
        if self.counts.dtype not in FLOATS:
            raise Refused(f"it returned {self.counts.dtype}, which is not a floating-point type")
        if logits.shape[-1] > COLUMNS:
            logits = logits[..., :: every(logits.shape[-1])]
        answer = as_numpy(logits).astype(np.float64)
        if self.answers is not None:
            self.answers.append(answer)
        return answer, cache

    def _answered(
        self, tokens: np.ndarray, positions: np.ndarray | None, mask: np.ndarray | None, cache: Any, keep: bool
    ) -> tuple[Any, Any]:
        call = functools.partial(self.answer_of, tokens, positions, mask, cache, keep)
        call = call if self.watch is None else functools.partial(_watched, call, self.watch)
        logits, cache = answered(functools.partial(_alone, call) if self.alone else call, self.timeout)
        if not hasattr(logits, "shape") or not hasattr(logits, "dtype"):
            raise Refused(f"it returned a value of type {type(logits).__name__}, expected logits")
        return logits, cache

    def once(self) -> Self:
        """The model that is called once for a call, for what looks at the call alone and not at its answers."""
        forward: Any = self.forward
        return replace(self, forward=replace(forward, last=True)) if hasattr(forward, "last") else self

    def given(self, positions: np.ndarray) -> np.ndarray | None:
        """Positions, for a model that takes them; one that counts them itself is left to count."""
        return positions if "positions" in self.takes else None

    def in_pieces(
        self,
        tokens: np.ndarray,
        cuts: Sequence[int],
        *,
        itself: bool = False,
        turn: Callable[[Any], Any] = lambda cache: cache,
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Logits and cache after each piece of some texts, from one cut to the next.

        Args:
            tokens: [batch, seq].
            cuts: The first token of each piece after the first one.
            itself: Whether it counts positions itself though it takes them.
            turn: What becomes of the cache between two pieces.
        """
        cache = None
        for start, stop in itertools.pairwise([0, *cuts, tokens.shape[1]]):
            at = np.broadcast_to(np.arange(start, stop), (len(tokens), stop - start))
            cache = turn(held(cache)) if start else None
            logits, cache = self(tokens[:, start:stop], None if itself else self.given(at), None, cache)
            yield logits, cache

    @property
    def returned(self) -> int:
        """Logits of a token that its function returns."""
        return self.columns or self.vocabulary

    def sized(self) -> Self:
        """The same with as many tokens as the last axis of its logits, of token 0, is long."""
        logits, _ = self._answered(np.zeros((1, 3), np.int64), None, None, None, True)
        if len(logits.shape) != 3 or logits.shape[-1] < 2:
            raise Refused(f"it returned an array of shape {list(logits.shape)}; expected logits [1, 3, vocabulary]")
        return replace(self, vocabulary=int(logits.shape[-1]))

    def answer_of(
        self, tokens: np.ndarray, positions: np.ndarray | None, mask: np.ndarray | None, cache: Any, keep: bool
    ) -> tuple[Any, Any]:
        """In a thread of its own: call it with what it takes."""
        if positions is None:
            positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
        handed: dict[str, Any] = {}
        if isinstance(cache, HandedCache):
            cache, handed = cache.cache, cache.handed
        if cache is None and keep and self.starts is not None:
            cache = self.starts(len(tokens))
        given = {
            "tokens": self.library.positions(tokens),
            "positions": self.library.positions(np.ascontiguousarray(positions)),
            "mask": None if mask is None else self._mask(mask, tokens.shape[1]),
            "cache": cache,
        }
        call = self.library.calling(self.forward)
        if not self.names:
            answer = call(*(given[name] for name in ARGUMENTS if name in self.takes))
        else:
            if "offset" in self.names:
                given["offset"] = _start(positions)
            if "cache_positions" in self.names:
                given["cache_positions"] = self.library.positions(_start(positions) + np.arange(tokens.shape[1]))
            answer = call(**{name: given[meant] for meant, name in self.names.items()}, **handed)
        logits, kept = logits_and_cache(answer)
        kept = cache if kept is None and self.starts is not None else kept
        if kept is not None and self.handed:
            # What the first call of a text left: a later one may leave what another text did.
            left = {name: getattr(owner, attribute) for name, (owner, attribute) in self.handed.items()}
            kept = HandedCache(kept, handed or left)
        return logits, kept

    def _mask(self, mask: np.ndarray, size: int) -> Any:
        """A mask as it takes it; one that is added to scores says all that a query sees."""
        if not self.adds_masks:
            return self.library.booleans(mask)
        keys = mask.shape[-1]
        causal = np.arange(keys) <= np.arange(keys - size, keys)[:, None]
        hidden = ~(mask[:, None] & causal if mask.ndim == 2 else mask)
        added = np.where(hidden, _NOT_SEEN, 0.0)
        return self.library.floats(added[:, None] if "heads" in self.adds_masks else added, "float32")

    @property
    def copied(self) -> bool:
        """Whether `fresh` gives a model that knows nothing of the others."""
        return False

    def finer(self) -> "CausalModel | None":
        """A copy in float64 of a model in float32, in float32 of another, where one can be made."""
        return None

    def kept_arrays(self) -> dict[str, Any]:
        """What its modules keep between calls beside parameters and buffers, by name."""
        return {}

    def fresh(self) -> "CausalModel":
        """The model as it was before it was asked anything, where it can be copied; else itself."""
        return replace(self, answers=None)


class EncoderOutput(NamedTuple):
    """What a decoder reads of an encoder, by name or by place."""

    last_hidden_state: Any
    hidden_states: Any = None
    attentions: Any = None
    attention_mask: Any = None


@dataclass
class TransformersModel(CausalModel):
    """A causal model of the Transformers library.

    Attributes:
        model: The module.
        pristine: It as it was; never called.
        first: The position id of a text's first token: RoBERTa's classes count from the one after that of padding.
        source: What the encoder of an encoder-decoder model gives for one text, [1, tokens, width]: its decoder is the
            causal model then, and what it takes has names that begin with ``decoder_``. None for other models.
        first_call: What it is given beside a text with its first call, such as an image.
        numbering: The position ids of a text whose positions are not its places, [axes, 1, tokens].
        head: The part of the output head that makes the compared logits, by the names of its tensors: the whole one is
            a fifth of what a pass of a small model reads. Empty where the model is asked for all logits.
    """

    model: Any = None
    pristine: Any = None
    first: int = 0
    source: np.ndarray | None = None
    first_call: Mapping[str, Any] = field(default_factory=dict)
    numbering: np.ndarray | None = None
    head: Mapping[str, Any] = field(default_factory=dict)

    def answer_of(
        self, tokens: np.ndarray, positions: np.ndarray | None, mask: np.ndarray | None, cache: Any, keep: bool
    ) -> tuple[Any, Any]:
        import torch

        home = next(self.model.parameters())

        def tensor(array: np.ndarray, dtype: Any = torch.int64) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array)).to(home.device, dtype)

        given: dict[str, Any] = {self.argument("input_ids"): tensor(tokens), "use_cache": keep}
        if positions is not None:
            numbers = positions + self.first if self.numbering is None else self.numbering[:, :, positions[0]]
            given[self.argument("position_ids")] = tensor(numbers)
        if mask is not None and mask.ndim == 2:
            given[self.argument("attention_mask")] = tensor(mask)
        elif mask is not None:
            hidden = torch.finfo(home.dtype).min
            given[self.argument("attention_mask")] = tensor(np.where(mask, 0.0, 1.0), home.dtype)[:, None] * hidden
        if self.source is not None:
            read = tensor(np.repeat(self.source, len(tokens), axis=0), home.dtype)
            given["encoder_outputs"] = EncoderOutput(read)
        given |= {"past_key_values": cache} if cache is not None else self.first_call
        with torch.no_grad():
            # Where weights are tied, the embedding keeps the whole table.
            parted = functools.partial(torch.func.functional_call, self.model, dict(self.head), (), tie_weights=False)
            answer = parted(kwargs=given) if self.head else self.model(**given)
        kept = getattr(answer, "past_key_values", None)
        # Some classes of Transformers 4 make a cache that just fits the text, and expect another one from a caller.
        room = getattr(kept, "__dict__", {}).get("max_cache_len")
        if cache is None and room is not None and room <= tokens.shape[-1]:
            raise Unasked(f"the {type(kept).__name__} that it makes for a text has no room for more tokens")
        return answer.logits, kept

    def argument(self, name: str) -> str:
        """What the model calls an argument of its decoder."""
        return name if self.source is None else f"decoder_{name}"

    @property
    def copied(self) -> bool:
        """See `CausalModel`."""
        return self.pristine is not None

    @property
    def returned(self) -> int:
        """See `CausalModel`."""
        return len(next(iter(self.head.values()))) if self.head else super().returned

    def finer(self) -> "TransformersModel | None":
        """See `CausalModel`."""
        made = self.fresh()
        if not self.copied:
            return None
        exact = made.model.double() if self.counts.dtype == "float32" else made.model.float()
        made.model, made.pristine, made.counts = exact, None, Counts()
        return made

    def kept_arrays(self) -> dict[str, Any]:
        """See `CausalModel`."""
        named = self.model.named_modules()
        return {
            f"{path}.{name}": each for path, module in named for name, each in vars(module).items() if _is_tensor(each)
        }

    def fresh(self) -> "TransformersModel":
        """See `CausalModel`."""
        if self.pristine is None:
            return replace(self, answers=None)
        return replace(self, model=copy.deepcopy(self.pristine), answers=None)


def _start(positions: np.ndarray) -> int:
    """The position of the first token of a call, where that says all of its positions."""
    start = int(positions[0, 0])
    if (positions != start + np.arange(positions.shape[1])).any():
        raise Refused("it takes one position for a call, that of the first token")
    return start


def held(cache: Any) -> Any:
    """A cache that a call returned.

    Raises:
        Unasked: There is none.
    """
    if cache is None:
        raise Unasked("it returns no cache")
    return cache


def logits_and_cache(answer: Any) -> tuple[Any, Any]:
    """Both of an output of Transformers, a dict, dataclass or tuple, of which the first array is the logits; or logits.

    The cache is what comes last, if that is anything: a loss may be before it.
    """
    if hasattr(answer, "logits"):
        return answer.logits, getattr(answer, "past_key_values", None)
    if isinstance(answer, Mapping) and "logits" in answer:
        return answer["logits"], answer.get("past_key_values", answer.get("cache"))
    if hasattr(answer, "shape"):
        return answer, None
    if is_token(answer) or (isinstance(answer, list) and answer and all(map(is_token, answer))):
        return np.array(answer), None
    if is_dataclass(answer):
        answer = tuple(getattr(answer, one.name) for one in fields(answer))
    shapes = [len(getattr(each, "shape", ())) for each in answer] if isinstance(answer, tuple | list) else []
    several = shapes.count(3) != 1 and not (3 in shapes and not shapes[-1])  # hidden states may come before a cache
    if len(shapes) < 2 or (len(shapes) > 2 and several):
        raise Refused(f"it returned {kind_of(answer)}, expected logits, or logits and a cache")
    place = shapes.index(3) if 3 in shapes else 0
    others = [*answer[:place], *answer[place + 1 :]]
    return np.array(answer[place]) if is_token(answer[place]) else answer[place], others[-1]


def is_token(value: object) -> bool:
    """Whether a value is one whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def every(columns: int) -> int:
    """Which logits are compared: the first, and each of so many after it."""
    return -(-columns // COLUMNS)


def _is_tensor(value: object) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def _watched(call: Callable[[], Any], watch: Callable[[], AbstractContextManager[Any]]) -> Any:
    with watch():
        return call()


def _alone(call: Callable[[], Any]) -> Any:
    with in_one_thread():
        return call()
