"""Models that give the logits of the last token alone, or the next token: each beginning of a text is its own call.

An engine is an object with a method that reads a prompt and one that goes on by a token, such as ``prefill(tokens)``
and ``decode(token, state)``, which return logits and a state. ``merge(states)`` makes one batch of several. Or it is,
or opens, a session: an object that is fed tokens and then says the next one, or its logits.
"""

import copy
import functools
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.recognition.calling import (
    FLOATS,
    Library,
    Refused,
    answered,
    as_numpy,
    dtype_of,
    library_name,
    likely_libraries,
)
from clockhands.testing._usual_names import meanings
from clockhands.testing.generation._cache_arrays import copied
from clockhands.testing.generation._causal_models import CausalModel, held, logits_and_cache
from clockhands.testing.generation._chosen_tokens import FEWEST, tokens_found

_PREFILLS = (
    "prefill", "prefill_one", "prefill_step", "start", "extend", "read_prompt", "add", "add_prompt", "add_sequence",
)  # fmt: skip
_FORWARDS = ("forward", "logits", "get_logits", "run", "eval", "compute")
_DECODES = ("decode", "decode_one", "decode_step", "step")
_OPENS = (
    "new_session", "create_session", "start_session", "open_session", "make_session", "session", "new_sequence",
    "create_context", "new_context", "new_stream", "start_stream",
)  # fmt: skip
_FEEDS = (
    "append", "feed", "extend", "push", "ingest", "eval", "evaluate", "add_tokens", "append_tokens", "accept",
    "prefill", "process", "eval_text", "eval_tokens",
)  # fmt: skip
_LOGITS = ("next_logits", "logits", "get_logits", "last_logits")
_NEXTS = ("next_token", "sample", "greedy", "next", "step", "decode", "generate_one", "argmax")


@dataclass(frozen=True)
class LastTokenModel:
    """A model by its logits of last tokens.

    Attributes:
        prefill: From tokens [1, seq] to logits and a state.
        decode: From tokens [batch, 1] and a state to logits and the state after them.
        merge: From the states of several texts to that of a batch; None where one text is taken at a time.
        last: Whether the logits of the last token alone are wanted: those before it are the same.
        owner: The engine.
    """

    prefill: Callable[[Any], tuple[Any, Any]]
    decode: Callable[[Any, Any], tuple[Any, Any]]
    merge: Callable[[Sequence[Any]], Any] | None = None
    last: bool = False
    owner: Any = None

    def __call__(self, tokens: Any, mask: Any = None, cache: Any = None) -> tuple[Any, Any]:
        """Logits [batch, seq, vocabulary], zeros for padding, and the state."""
        if len(tokens) > 1 and self.merge is None:
            raise Refused("it takes one text at a time")
        if cache is not None:
            steps = []
            for place in range(tokens.shape[1]):
                logits, cache = self.decode(tokens[:, place : place + 1], held(cache))
                steps.append(logits.reshape(len(tokens), -1))
            return stacked(steps, 1), cache
        rows, states = [], []
        for row, text in enumerate(tokens):
            seen = [mask is None or bool(each) for each in (text if mask is None else mask[row])]
            own = text if mask is None else text[mask[row]]
            logits, state = self.prefill(own[None])
            every = logits.reshape(-1, logits.shape[-1])
            states.append(state)
            if len(own) > 1 and len(every) != len(own):  # it answers for the last token alone
                shorter = [] if self.last else [self.prefill(own[None, :size])[0] for size in range(1, len(own))]
                tail = [each.reshape(-1, each.shape[-1])[-1] for each in (*shorter, logits)]
                every = tail * len(own) if self.last else tail
            last = iter(every)
            nothing = 0 * every[-1]
            rows.append(stacked([next(last) if here else nothing for here in seen], 0))
        return stacked(rows, 0), states[0] if self.merge is None else self.merge(states)


@dataclass(frozen=True)
class SessionModel:
    """A model by sessions that are fed tokens: what it says after a call is the logits, or the next token.

    Attributes:
        owner: The engine that opens sessions, or a session without tokens.
        opens: The name of the method that opens one; empty if it is one.
        reads: The shape in which a session is fed tokens [1, seq].
        keeps: The name under which a session keeps its last logits; empty if it keeps none.
    """

    owner: Any
    opens: str = ""
    reads: Callable[[Any], Any] = lambda tokens: tokens[0].tolist()
    keeps: str = ""

    def __call__(self, tokens: Any, cache: Any = None) -> tuple[Any, Any]:
        """Logits [vocabulary] or the next token [1], and the session after these tokens."""
        if len(tokens) > 1:
            raise Refused("it takes one text at a time")
        session = self.opened() if cache is None else held(cache)
        said = getattr(session, _named_of(session, _FEEDS))(self.reads(tokens))
        if hasattr(said, "shape") and said.shape and said.shape[-1] > 1 and not dtype_of(said).startswith("int"):
            return said.reshape(-1, said.shape[-1])[-1], session
        if name := self.keeps or _named_of(session, _LOGITS):
            value = getattr(session, name)
            logits: Any = value() if callable(value) else value
            return logits.reshape(-1, logits.shape[-1])[-1], session
        return 0 * tokens[0, :1] + _next_of(session), session

    def opened(self) -> Any:
        """A session without tokens."""
        return getattr(self.owner, self.opens)() if self.opens else copy.deepcopy(self.owner)

    def fitted(self) -> "SessionModel":
        """The model with the shape that a session takes; each is tried on a session of its own, which it may change."""
        session = self.opened()
        libraries = [Library(name) for name in likely_libraries(getattr(session, _named_of(session, _FEEDS)))]
        for library, reads in itertools.product(libraries, _READ_AS):
            model = replace(self, reads=reads)
            with suppress(Exception):  # a user's code may raise anything
                model(library.positions(np.array([[1, 0, 1]])))
                with suppress(Exception):
                    model = model.with_logits(library)
                return model
        return self

    def with_logits(self, library: Library) -> "SessionModel":
        """The model with the array that a session keeps and whose largest number is at the token that it says next."""
        if _named_of(self.opened(), _LOGITS) or not _named_of(self.opened(), _NEXTS):
            return self
        found: set[str] | None = None
        for prompt in ([1, 0, 1], [0, 1, 1, 1], [1, 1]):
            session = self.opened()
            getattr(session, _named_of(session, _FEEDS))(self.reads(library.positions(np.array([prompt]))))
            kept = {name: each for name, each in vars(session).items() if hasattr(each, "shape") and each.shape}
            kept = {name: as_numpy(each) for name, each in kept.items() if dtype_of(each) in FLOATS}
            said = _next_of(session)
            fit = {name for name, each in kept.items() if each.reshape(-1, each.shape[-1])[-1].argmax() == said}
            found = fit if found is None else found & fit
        return replace(self, keeps=found.pop()) if found and len(found) == 1 else self


def _next_of(session: Any) -> int:
    """The token that a session says next; the session that says it may go on by it, so a copy is asked."""
    return int(getattr(copy.deepcopy(session), _named_of(session, _NEXTS))())


def _named_of(value: Any, names: Sequence[str]) -> str:
    return next((name for name in names if getattr(value, name, None) is not None), "")


def _is_session(value: Any) -> bool:
    """Whether it is fed tokens, and then has logits or says the next token.

    One whose only method for that is told a token, and that reads a prompt by another, is an engine that keeps a text.
    """
    says, feeds = (_named_of(value, each) for each in (_NEXTS, _FEEDS))
    told = callable(getattr(value, says, None)) and needed_by(getattr(value, says)) > inspect.isclass(value)
    return bool(feeds) and (bool(_named_of(value, _LOGITS)) or (bool(says) and not (told and feeds in _PREFILLS)))


def method_with_cache(value: Any) -> Any:
    """The method of an object that takes tokens, and a cache that may be left out; None for any other object."""
    for name in (*_FORWARDS, *_DECODES):
        method = getattr(value, name, None)
        if inspect.ismethod(method):
            parameters = [*inspect.signature(method).parameters.values()]
            caches = [one for one in parameters[1:] if one.name in meanings("cache") and one.default is not one.empty]
            if caches and parameters[0].name in _TOKENS and needed_by(method) == 1:
                return method
    return None


def is_engine(value: Any) -> bool:
    """Whether an object or a class has a method that reads a prompt and one that goes on by a token, or sessions."""
    if isinstance(value, list | tuple | dict | set | str) or hasattr(value, "shape"):
        return False  # which can be extended too
    engine = None not in _methods(value) or bool(_named_of(value, _OPENS)) or _is_session(value)
    return engine or method_with_cache(value) is not None or _goes_on_alone(value)


_OF_TOKENIZERS = ("encode", "batch_decode", "tokenizer", "convert_ids_to_tokens")


def _goes_on_alone(value: Any) -> bool:
    """Whether an object or a class keeps a text to which one method adds tokens, ``decode(tokens)``."""
    method = getattr(value, "decode", None)
    if any(hasattr(value, name) for name in _OF_TOKENIZERS):
        return False
    if not inspect.isfunction(method) and not inspect.ismethod(method):
        return False
    taken = [one for one in inspect.signature(method).parameters if one != "self"]
    return taken[:1] != [] and taken[0] in meanings("tokens") and needed_by(method) == 1 + inspect.isfunction(method)


def _methods(engine: Any) -> tuple[Any, Any]:
    prefill, decode = (
        next((getattr(engine, name) for name in names if callable(getattr(engine, name, None))), None)
        for names in (_PREFILLS, _DECODES)
    )
    return prefill, decode


def engine_model(engine: Any) -> LastTokenModel | SessionModel | None:
    """An engine as a model; None for any other object."""
    prefill, decode = _methods(engine)
    if (model := model_that_keeps_state(engine)) is not None:
        return model
    arguments = None if decode is None else _decode_arguments(decode)
    if prefill is None or decode is None or arguments is None:
        model = SessionModel(engine, _named_of(engine, _OPENS))
        session = engine
        with suppress(Exception):  # a user's code may raise anything: the check tells what, when it calls it
            session = model.opened()
        if not _is_session(session):
            return None
        with suppress(Exception):  # a user's code may raise anything: the check tells what, when it calls it
            model = model.fitted()
        return model

    def read(tokens: Any) -> tuple[Any, Any]:
        logits, state = logits_and_cache(_of_either(prefill, tokens[0], tokens))
        if isinstance(state, int | str):
            raise Refused("its state is the name of a text, which cannot be copied")
        return logits, _Placed(state, tokens.shape[1]) if arguments.place else state

    def go_on(tokens: Any, state: Any) -> tuple[Any, Any]:
        inner, place = (state.state, state.tokens) if isinstance(state, _Placed) else (state, 0)

        def decoded(token: Any) -> Any:
            given = {arguments.tokens: token, arguments.state: inner, arguments.place: place}
            return decode(*(given[name] for name in arguments.order))

        logits, after = logits_and_cache(_of_either(decoded, tokens[:, 0], tokens))
        after = inner if after is None else after
        return logits, _Placed(after, place + 1) if arguments.place else after

    merge = None if arguments.place else getattr(engine, "merge", None)
    return LastTokenModel(read, go_on, merge, owner=engine)


@dataclass(frozen=True)
class _Placed:
    """A state of a text and how many tokens of it were read, for a method that is told where a token is."""

    state: Any
    tokens: int


@dataclass(frozen=True)
class _DecodeArguments:
    """The names of the arguments of a method that goes on by a token; ``place`` is empty where it is not told any."""

    order: tuple[str, ...]
    tokens: str
    state: str
    place: str = ""


def _decode_arguments(decode: Any) -> _DecodeArguments | None:
    """What a method that takes a token and a state calls them; None for a method of other arguments."""
    order = tuple(inspect.signature(decode).parameters)
    places = [name for name in order if name in _PLACES] if len(order) == 3 else []
    names = [name for name in order if name not in places[:1]]
    if len(names) != 2:
        return None
    state_first = names[0] in meanings("cache") or names[1] in _TOKENS
    return _DecodeArguments(order, *(names[::-1] if state_first else names), *places[:1])


_TOKENS = {"token", "next_token", "last_token", "new_token", *meanings("tokens")}
_PLACES = {"position", *meanings("positions", "cache_positions", "offset")}


def needed_by(method: Any) -> int:
    """The arguments without which a method cannot be called."""
    return sum(one.default is one.empty for one in inspect.signature(method).parameters.values())


def model_that_keeps_state(engine: Any) -> LastTokenModel | None:
    """An object that reads a prompt, and goes on by a token that is all it is passed; None for any other."""
    reads, goes_on = (_named_of(engine, each) for each in (_PREFILLS, _DECODES))
    alone = not reads and not isinstance(engine, type) and not _is_session(engine)  # one method does both
    names = [reads or (goes_on if alone else ""), goes_on]
    if not all(names) or not all(callable(getattr(engine, name)) for name in names):
        return None
    decode = getattr(engine, names[1])
    takes_state = any(name in meanings("cache") for name in inspect.signature(decode).parameters)
    if takes_state or needed_by(decode) != 1:
        return None
    libraries = [Library(name) for name in likely_libraries(decode)]
    for library, read, go_on in itertools.product(libraries, _READ_AS, _READ_AS if alone else _GO_ON_AS):
        model = _keeping_state(engine, names[0], names[1], read, go_on)
        if _goes_on(model, library) and (not alone or _reads_texts(model, library)):
            return model
    return None


# The shapes of a prompt and of a token, of tokens [1, seq] and [1, 1].
_READ_AS: tuple[Callable[[Any], Any], ...] = (
    lambda tokens: tokens[0].tolist(), lambda tokens: tokens[0], lambda tokens: tokens,
)  # fmt: skip
_GO_ON_AS: tuple[Callable[[Any], Any], ...] = (
    lambda tokens: int(tokens[0, 0]), lambda tokens: [int(tokens[0, 0])], lambda tokens: tokens[0],
    lambda tokens: tokens,
)  # fmt: skip


def _goes_on(model: LastTokenModel, library: Library) -> bool:
    """Whether a token can be passed after a prompt."""
    for prompt in ([1, 0, 1], [1, 0, 1, 0]):
        with suppress(Exception):  # a user's code may raise anything
            logits, own = model.prefill(library.positions(np.array([prompt])))
            return hasattr(logits, "shape") and hasattr(
                model.decode(library.positions(np.array([[1]])), own)[0], "shape"
            )
    return False


def _reads_texts(model: LastTokenModel, library: Library) -> bool:
    """Whether several tokens are those of one text: what follows the last one depends on the first one."""
    with suppress(Exception):  # a user's code may raise anything
        last = [as_numpy(model.prefill(library.positions(np.array([[first, 0, 1]])))[0]) for first in (0, 1)]
        one, other = (each.reshape(-1, each.shape[-1])[-1] for each in last)
        return not np.array_equal(one, other)
    return False


def _keeping_state(
    engine: Any, prefill: str, decode: str, read_as: Callable[[Any], Any], go_on_as: Callable[[Any], Any]
) -> LastTokenModel:
    """An engine that keeps the state of its text itself: each text has a copy of it.

    A call that fails may have changed it, so it is called in one shape alone.
    """

    def read(tokens: Any) -> tuple[Any, Any]:
        own = copy.deepcopy(engine)
        return getattr(own, prefill)(read_as(tokens)), own

    def go_on(tokens: Any, state: Any) -> tuple[Any, Any]:
        return getattr(state, decode)(go_on_as(tokens)), state

    return LastTokenModel(read, go_on, owner=engine)


def _of_either(function: Callable[[Any], Any], one: Any, other: Any) -> Any:
    """What a function gives for the first of two shapes of the same tokens that it takes."""
    try:
        return function(one)
    except Exception:  # noqa: BLE001 - a user's code may raise anything
        return function(other)


def stacked(arrays: Sequence[Any], axis: int) -> Any:
    """Arrays of one library, joined along a new axis."""
    name = library_name(arrays[0])
    return sys.modules["jax.numpy" if name == "jax" else name].stack(arrays, axis)


_PROMPTS = 15
"""Prompts by which a vocabulary is found."""


@dataclass
class LastTokenForward(CausalModel):
    """A causal model whose calls give one row of logits, or one token, for each text: that after its last token.

    A call of several tokens is therefore made once for each of its beginnings, with a copy of the cache.

    Attributes:
        whole: Whether it gives a token for each one that it is passed.
        last: Whether the answer for the last token alone is wanted: a call is made once.
    """

    whole: bool = False
    last: bool = False

    def once(self) -> "LastTokenForward":
        """See `CausalModel`."""
        return replace(self, last=True)

    def answer_of(
        self, tokens: np.ndarray, positions: np.ndarray | None, mask: np.ndarray | None, cache: Any, keep: bool
    ) -> tuple[Any, Any]:
        """See `CausalModel`."""
        size, rows, kept = tokens.shape[1], [], cache
        past = 0 if mask is None else mask.shape[-1] - size
        for part in [size] if self.whole or self.last else range(1, size + 1):
            where = None if positions is None else positions[:, :part]
            seen = None if mask is None else mask[..., : past + part]
            seen = seen if seen is None or seen.ndim == 2 else seen[:, :part]
            own = cache if cache is None or part == size else copied(cache)
            said, kept = super().answer_of(tokens[:, :part], where, seen, own, keep)
            rows.append(self.columns_of(said, len(tokens)) if self.chooses else said.reshape(len(tokens), -1))
        rows = rows * size if self.last and not self.whole else rows
        return rows[0] if self.whole else stacked(rows, 1), kept

    def columns_of(self, chosen: Any, texts: int) -> np.ndarray:
        """Tokens as rows of zeros with a 1; tokens beyond the columns share them."""
        ids = as_numpy(chosen).reshape((texts, -1) if self.whole else (texts,))
        return np.eye(self.returned)[ids % self.returned]


def last_token_model(model: CausalModel) -> LastTokenForward | None:
    """The model as one that answers for the last token of a call; None where its answers are of another kind.

    Raises:
        Refused: It cannot be called.
    """

    def said_of(tokens: np.ndarray) -> Any:
        call = functools.partial(CausalModel.answer_of, model, tokens, None, None, None, True)
        return answered(call, model.timeout)[0]

    text = np.array([[1, 0, 1]])
    said = said_of(text)
    if not hasattr(said, "shape") or not hasattr(said, "dtype"):
        return None
    shape = tuple(said.shape)
    chooses = dtype_of(said).startswith(("int", "uint"))
    if chooses and (shape == text.shape or math.prod(shape) == 1):

        def last_of(answer: Any) -> list[int]:
            return [int(as_numpy(answer).flat[-1])]

        seen = tokens_found(
            lambda prompt: last_of(said_of(prompt[None])), [0, 1, *last_of(said)],
            0 if model.vocabulary else _PROMPTS, np.random.default_rng(3),
        )  # fmt: skip
        tokens = model.vocabulary or 1 + max(seen)
        if tokens < FEWEST and not model.vocabulary:
            raise Refused(
                f"it returned only the tokens {min(seen)} to {max(seen)}: pass vocabulary=, how many it knows"
            )
        return LastTokenForward(**{**vars(model), "vocabulary": tokens, "chooses": True}, whole=shape == text.shape)
    if not chooses and shape and shape[-1] > text.size and math.prod(shape) == shape[-1]:
        return LastTokenForward(**{**vars(model), "vocabulary": model.vocabulary or shape[-1]})
    return None
