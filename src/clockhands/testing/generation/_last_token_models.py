"""Engines as models: they give the logits of the last token alone, so each beginning of a text is a prompt of its own.

An engine is an object with a method that reads a prompt and one that goes on by a token, such as ``prefill(tokens)``
and ``decode(token, state)``, which return logits and a state. ``merge(states)`` makes one batch of several.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clockhands.recognition.calling import Refused, library_name
from clockhands.testing._usual_names import meanings
from clockhands.testing.generation._causal_models import held, logits_and_cache

_PREFILLS = ("prefill", "prefill_one", "prefill_step", "start")
_DECODES = ("decode", "decode_one", "decode_step", "step")


@dataclass(frozen=True)
class LastTokenModel:
    """A model by its logits of last tokens.

    Attributes:
        prefill: From tokens [1, seq] to logits and a state.
        decode: From tokens [batch, 1] and a state to logits and the state after them.
        merge: From the states of several texts to that of a batch; None where one text is taken at a time.
    """

    prefill: Callable[[Any], tuple[Any, Any]]
    decode: Callable[[Any, Any], tuple[Any, Any]]
    merge: Callable[[Sequence[Any]], Any] | None = None

    def __call__(self, tokens: Any, mask: Any = None, cache: Any = None) -> tuple[Any, Any]:
        """Logits [batch, seq, vocabulary], zeros for padding, and the state."""
        if len(tokens) > 1 and self.merge is None:
            raise Refused("it takes one text at a time")
        if cache is not None:
            steps = []
            for place in range(tokens.shape[1]):
                logits, cache = self.decode(tokens[:, place : place + 1], held(cache))
                steps.append(logits.reshape(len(tokens), -1))
            return _stacked(steps, 1), cache
        rows, states = [], []
        for row, text in enumerate(tokens):
            seen = [mask is None or bool(each) for each in (text if mask is None else mask[row])]
            own = text if mask is None else text[mask[row]]
            said = [self.prefill(own[None, : size + 1]) for size in range(len(own))]
            states.append(said[-1][1])
            last = iter([logits.reshape(-1, logits.shape[-1])[-1] for logits, _ in said])
            nothing = 0 * said[0][0].reshape(-1, said[0][0].shape[-1])[-1]
            rows.append(_stacked([next(last) if here else nothing for here in seen], 0))
        return _stacked(rows, 0), states[0] if self.merge is None else self.merge(states)


def engine_model(engine: Any) -> LastTokenModel | None:
    """An engine as a model; None for any other object."""
    prefill, decode = (
        next((getattr(engine, name) for name in names if callable(getattr(engine, name, None))), None)
        for names in (_PREFILLS, _DECODES)
    )
    if prefill is None or decode is None or len(inspect.signature(decode).parameters) != 2:
        return None
    first, second = inspect.signature(decode).parameters
    meant = meanings("cache", "tokens")
    state_first = meant.get(first) == "cache" or meant.get(second) == "tokens"

    def read(tokens: Any) -> tuple[Any, Any]:
        return logits_and_cache(_of_either(prefill, tokens[0], tokens))

    def go_on(tokens: Any, state: Any) -> tuple[Any, Any]:
        def decoded(token: Any) -> Any:
            return decode(*((state, token) if state_first else (token, state)))

        logits, after = logits_and_cache(_of_either(decoded, tokens[:, 0], tokens))
        return logits, state if after is None else after

    return LastTokenModel(read, go_on, getattr(engine, "merge", None))


def _of_either(function: Callable[[Any], Any], one: Any, other: Any) -> Any:
    """What a function gives for the first of two shapes of the same tokens that it takes."""
    try:
        return function(one)
    except Exception:  # noqa: BLE001 - a user's code may raise anything
        return function(other)


def _stacked(arrays: Sequence[Any], axis: int) -> Any:
    name = library_name(arrays[0])
    return sys.modules["jax.numpy" if name == "jax" else name].stack(arrays, axis)
