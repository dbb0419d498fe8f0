"""Calls of a user's causal model in any array library: tokens in, logits and a cache out."""

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.errors import InvalidType
from clockhands.models.opened_modules import text_config
from clockhands.models.torch_threads import faster_alone, in_one_thread
from clockhands.phrases import shown
from clockhands.recognition.calling import (
    FLOATS,
    LIBRARIES,
    Library,
    Refused,
    answered,
    as_numpy,
    dtype_of,
    kind_of,
    library_name,
    likely_libraries,
)
from clockhands.testing._experiments import Unasked
from clockhands.testing._usual_names import OF_FIRST_POSITION, OF_POSITIONS, meanings
from clockhands.testing.reports import CannotCheck

ARGUMENTS = ("tokens", "positions", "mask", "cache")

# What else they are called; an offset is the position of the first token of a call.
_NAMES = {
    "tokens": ("input_ids", "token_ids", "ids", "idx", "inputs"),
    "positions": OF_POSITIONS,
    "mask": ("attention_mask",),
    "cache": ("past_key_values", "past_key_value", "kv_cache", "past_kv", "past"),
    "offset": OF_FIRST_POSITION,
}
_MEANT = meanings(_NAMES)

# Logits that are compared, at most: what positions do, they do to all.
_COLUMNS = 4096
# Above this a model is asked itself, where a smaller one is copied for each experiment.
_COPIED = 20_000_000
_THREE = np.array([[1, 0, 1]])
_TELLING = 64  # times nearer: the same numbers but for rounding


@dataclass
class Counts:
    """How often a model was called, with how many tokens, and what it answers in: dtype and library."""

    calls: int = 0
    rows: int = 0
    dtype: str = "float32"
    library: str = "numpy"


@dataclass
class CausalModel:
    """A causal model as a function of NumPy arrays.

    Attributes:
        forward: Its own function.
        library: What it takes.
        vocabulary: Tokens that there are.
        timeout: Seconds for a call.
        takes: Which of tokens, positions, mask and cache it takes.
        names: What it calls them, where they are passed by name.
        counts: What it was asked so far; shared with its copies.
        counting: Whether it counts positions itself where none are given.
        window: Keys that a query sees at most, where its layers keep no more.
        layers: How many layers it has, where it says so.
        pad: The token to pad with.
        alone: Whether it is a PyTorch model that is faster in one thread.
        answers: What it answered to each call, where that is recorded.
    """

    forward: Callable[..., Any]
    library: Library
    vocabulary: int
    timeout: float = 60.0
    takes: frozenset[str] = frozenset(ARGUMENTS)
    names: Mapping[str, str] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    counting: bool = False
    window: int | None = None
    layers: int | None = None
    pad: int = 0
    alone: bool = False
    answers: list[np.ndarray] | None = None

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
        if cache is not None and "cache" not in self.takes:
            raise Unasked("it takes no cache")
        self.counts.calls += 1
        self.counts.rows += tokens.size
        logits, cache = self._answered(tokens, positions, mask, cache, keep)
        shape = (*tokens.shape, self.vocabulary)
        if tuple(logits.shape) != shape:
            raise Refused(f"it returned logits of shape {list(logits.shape)}; expected {list(shape)}")
        self.counts.dtype, self.counts.library = dtype_of(logits), library_name(logits)
        if self.counts.dtype not in FLOATS:
            raise Refused(f"it returned {self.counts.dtype}, which is not a floating-point type")
        if self.vocabulary > _COLUMNS:
            logits = logits[..., :: -(-self.vocabulary // _COLUMNS)]
        answer = as_numpy(logits).astype(np.float64)
        if self.answers is not None:
            self.answers.append(answer)
        return answer, cache

    def _answered(
        self, tokens: np.ndarray, positions: np.ndarray | None, mask: np.ndarray | None, cache: Any, keep: bool
    ) -> tuple[Any, Any]:
        call = functools.partial(self.answer_of, tokens, positions, mask, cache, keep)
        logits, cache = answered(functools.partial(_alone, call) if self.alone else call, self.timeout)
        if not hasattr(logits, "shape") or not hasattr(logits, "dtype"):
            raise Refused(f"it returned a value of type {type(logits).__name__}, expected logits")
        return logits, cache

    def sized(self) -> "CausalModel":
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
        given = {
            "tokens": self.library.positions(tokens),
            "positions": self.library.positions(np.ascontiguousarray(positions)),
            "mask": None if mask is None else self.library.booleans(mask),
            "cache": cache,
        }
        call = self.library.calling(self.forward)
        if not self.names:
            return _logits_and_cache(call(*(given[name] for name in ARGUMENTS if name in self.takes)))
        if "offset" in self.names:
            given["offset"] = _start(positions)
        answer = call(**{name: given[meant] for meant, name in self.names.items()})
        return _logits_and_cache(answer)

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


@dataclass
class TransformersModel(CausalModel):
    """A causal model of the Transformers library.

    Attributes:
        model: The module.
        pristine: It as it was; never called.
        first: The position id of a text's first token: RoBERTa's classes count from the one after that of padding.
    """

    model: Any = None
    pristine: Any = None
    first: int = 0

    def answer_of(
        self, tokens: np.ndarray, positions: np.ndarray | None, mask: np.ndarray | None, cache: Any, keep: bool
    ) -> tuple[Any, Any]:
        import torch

        home = next(self.model.parameters())

        def tensor(array: np.ndarray, dtype: Any = torch.int64) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array)).to(home.device, dtype)

        given: dict[str, Any] = {"input_ids": tensor(tokens), "use_cache": keep}
        if positions is not None:
            given["position_ids"] = tensor(positions + self.first)
        if mask is not None and mask.ndim == 2:
            given["attention_mask"] = tensor(mask)
        elif mask is not None:
            hidden = torch.finfo(home.dtype).min
            given["attention_mask"] = tensor(np.where(mask, 0.0, 1.0), home.dtype)[:, None] * hidden
        if cache is not None:
            given["past_key_values"] = cache
        with torch.no_grad():
            answer = self.model(**given)
        kept = getattr(answer, "past_key_values", None)
        # Some classes of Transformers 4 make a cache that just fits the text, and expect another one from a caller.
        room = getattr(kept, "__dict__", {}).get("max_cache_len")
        if cache is None and room is not None and room <= tokens.shape[-1]:
            raise Unasked(f"the {type(kept).__name__} that it makes for a text has no room for more tokens")
        return answer.logits, kept

    @property
    def copied(self) -> bool:
        """See `CausalModel`."""
        return self.pristine is not None

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


def _logits_and_cache(answer: Any) -> tuple[Any, Any]:
    """Both of a pair, of an output of Transformers, or logits alone without a cache."""
    if hasattr(answer, "logits"):
        return answer.logits, getattr(answer, "past_key_values", None)
    if hasattr(answer, "shape"):
        return answer, None
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Refused(f"it returned {kind_of(answer)}, expected logits, or logits and a cache")
    return answer[0], answer[1]


def opened(
    model: Any, forward: Callable[..., Any] | None, vocabulary: int | None, backend: Any, timeout: float
) -> CausalModel:
    """The model that is meant, and how it is called."""
    if forward is None and _of_transformers(model):
        return _from_transformers(model, vocabulary, timeout)
    fn = model if forward is None else forward
    if not callable(fn):
        raise InvalidType(
            f"Expected a causal model, got {shown(fn)}.",
            "Give a model of Transformers, or forward=, a function(tokens, positions, mask, cache) -> (logits, cache).",
        )
    takes, names = _taken(fn)
    tried = []
    for library in likely_libraries(fn) if backend is None else (backend,):
        made = CausalModel(fn, Library(library), vocabulary or 0, timeout, takes, names, alone=_faster_alone(fn))
        try:
            made = made.sized() if vocabulary is None else made
            three = _THREE % made.vocabulary
            made(three)
            home = made.counts.library
            if backend is None and home in LIBRARIES and home != library:
                # It takes arrays of others too, but answers in its own.
                made = replace(made, library=Library(home), counts=Counts())
                made(three)
        except Refused as error:
            tried.append((made.library.name, error))
        else:
            made.counts = Counts(dtype=made.counts.dtype)
            return made
    arguments = ", ".join(names.values() or (name for name in ARGUMENTS if name in takes))
    said = ", ".join(f"with {name} arrays {error}" for name, error in tried)
    raise CannotCheck(
        f"The model cannot be called as forward({arguments}) with 3 tokens: {said}.",
        "Wrap it: def forward(tokens, positions, mask, cache): return logits, cache; where tokens and positions are "
        "[batch, seq], mask is None or [batch, keys], and cache is None at first; arguments and cache may be absent.",
    ) from tried[-1][1]


def _of_transformers(model: Any) -> bool:
    if not hasattr(model, "config") or not hasattr(model, "forward") or not hasattr(model, "parameters"):
        return False
    return "past_key_values" in _argument_names(model)


def _argument_names(model: Any) -> set[str]:
    """What its forward can be passed; a function assigned to it that takes any name is one that passes them on."""
    own = inspect.signature(model.forward).parameters
    any_name = any(one.kind is one.VAR_KEYWORD for one in own.values())
    return {*own, *(inspect.signature(type(model).forward).parameters if any_name else ())}


def _from_transformers(model: Any, vocabulary: int | None, timeout: float) -> TransformersModel:
    config = text_config(model)
    taken = _argument_names(model)
    takes = {"tokens", "cache"} | ({"positions"} & {"positions" if "position_ids" in taken else ""})
    if "attention_mask" in taken:
        takes.add("mask")
    if next(model.parameters()).is_meta:
        raise CannotCheck(
            "The model is on the device meta: it has no values, so it cannot be called.", "Load its weights first."
        )
    small = sum(parameter.numel() for parameter in model.parameters()) <= _COPIED
    training = model.training
    made = TransformersModel(
        type(model).__call__,
        Library("torch"),
        int(config.vocab_size if vocabulary is None else vocabulary),
        timeout,
        frozenset(takes),
        counting=True,
        window=_window(config),
        layers=getattr(config, "num_hidden_layers", None),
        pad=int(getattr(config, "pad_token_id", None) or 0),
        alone=_faster_alone(model),
        model=model,
    )
    made = _copied_model(made) if small else made
    if not made.copied and training:
        raise CannotCheck(
            "The model is in training mode: dropout would change its output.", "Call model.eval() before the check."
        )
    try:
        made(_THREE)
    except Refused as error:
        raise CannotCheck(
            f"The model cannot be called with input_ids of 3 tokens: {error}.",
            "Give forward=, a function(tokens, positions, mask, cache) -> (logits, cache).",
        ) from error.__cause__
    made.first = _first_position(made)
    made.counts = Counts(dtype=made.counts.dtype)
    return made


def _first_position(made: TransformersModel) -> int:
    """0, or the number after the id of padding, if a text without positions is answered as from there."""
    if made.pad == 0 or "positions" not in made.takes or made.vocabulary <= made.pad + 1:
        return 0
    text = np.full((1, 3), made.pad + 1)  # classes that count so leave padding out
    counted = np.arange(3)[None]
    try:
        wanted, at_zero = made(text)[0], made(text, counted)[0]
        if np.array_equal(wanted, at_zero):
            return 0
        after = made(text, counted + made.pad + 1)[0]
    except Refused:
        return 0
    return made.pad + 1 if np.abs(after - wanted).max() < np.abs(at_zero - wanted).max() / _TELLING else 0


def _copied_model(of: TransformersModel) -> TransformersModel:
    """The model as copies of its module; itself where there are none, or where a call of a copy reaches the original.

    A function that was assigned to ``forward`` of one module is shared by all copies, and with it the module it calls.
    """
    reached: list[Any] = []
    try:
        pristine = copy.deepcopy(of.model).eval()
        made = replace(of, model=copy.deepcopy(pristine), pristine=pristine)
    except Exception:  # noqa: BLE001 - a module may hold anything, such as a lock
        return of
    with ExitStack() as hooks, suppress(Refused):
        for module in of.model.modules():
            hooks.enter_context(module.register_forward_pre_hook(lambda called, _: reached.append(called)))
        made(_THREE)
    return of if reached else made


def _is_tensor(value: object) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def _faster_alone(model: Any) -> bool:
    return "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module) and faster_alone(model)


def _alone(call: Callable[[], Any]) -> Any:
    with in_one_thread():
        return call()


def _window(config: Any) -> int | None:
    """Keys that a query sees at most, where some layer has a window."""
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if types is not None and not any("sliding" in str(kind) or "chunked" in str(kind) for kind in types):
        return None
    return window if isinstance(window, int) and getattr(config, "use_sliding_window", True) else None


def _taken(forward: Callable[..., Any]) -> tuple[frozenset[str], dict[str, str]]:
    """Which arguments it takes, and what it calls them: by its own names, of which the first is that of the tokens.

    All four, by place, where its names do not say, and the tokens alone where it takes only one.
    """
    if "torch" in sys.modules and isinstance(forward, sys.modules["torch"].nn.Module):
        forward = getattr(forward, "forward", forward)  # the signature of a module's call names no argument
    every: tuple[frozenset[str], dict[str, str]] = (frozenset(ARGUMENTS), {})
    try:
        parameters = [one for one in inspect.signature(forward).parameters.values() if one.kind is not one.VAR_KEYWORD]
    except (TypeError, ValueError):
        return every
    if len(parameters) == 1 and parameters[0].kind in {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }:
        return frozenset({"tokens"}), {}
    if any(one.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL} for one in parameters):
        return every
    names = {_MEANT[one.name]: one.name for one in parameters if one.name in _MEANT}
    if parameters and parameters[0].name not in _MEANT and "tokens" not in names:
        names = {"tokens": parameters[0].name, **names}
    if "positions" in names:
        names.pop("offset", None)
    passed = set(names.values())
    missing = [one for one in parameters if one.name not in passed and one.default is one.empty]
    if missing or "tokens" not in names or (len(names) == 1 and len(parameters) == len(ARGUMENTS)):
        return every
    return frozenset("positions" if meant == "offset" else meant for meant in names), names
