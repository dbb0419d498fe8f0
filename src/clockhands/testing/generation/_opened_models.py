"""Opens a user's model for the check: which of its arguments are tokens, positions, mask and cache, and its library."""

import copy
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT
from clockhands.errors import ClockhandsError, InvalidType
from clockhands.models.opened_modules import open_values, text_config
from clockhands.models.torch_threads import faster_alone
from clockhands.phrases import listed, shown
from clockhands.recognition.calling import LIBRARIES, Library, Refused, answered, as_numpy, likely_libraries
from clockhands.testing._experiments import Unasked
from clockhands.testing._usual_names import meanings
from clockhands.testing.generation._causal_models import (
    ARGUMENTS,
    COLUMNS,
    CausalModel,
    Counts,
    TransformersModel,
    every,
    logits_and_cache,
)
from clockhands.testing.generation._hidden_states import reading_states
from clockhands.testing.generation._last_token_models import (
    LastTokenModel,
    engine_model,
    last_token_model,
    method_with_cache,
    stacked,
)
from clockhands.testing.generation._measured_attention import is_measurable, known_tokens
from clockhands.testing.generation._started_caches import begun, object_of, owners_of, started, unknown_arguments
from clockhands.testing.reports import CannotCheck

_MEANT = meanings("tokens", "positions", "mask", "cache", "offset", "cache_positions")

# Above this a model is asked itself, where a smaller one is copied for each experiment.
_COPIED = 20_000_000
_OF_SOURCE = 7  # tokens of the text that an encoder has read
_THREE = np.array([[1, 0, 1]])
_TELLING = 64  # times nearer: the same numbers but for rounding
_ROUNDED = 1e4  # of the largest logit, by which equal ones may be apart


def opened(
    model: Any, forward: Callable[..., Any] | None, vocabulary: int | None, backend: Any, timeout: float | None
) -> CausalModel:
    """The model that is meant, and how it is called."""
    if forward is None and hasattr(model, "can_generate") and hasattr(model, "parameters"):
        _refuse_encoder(model, timeout)
    if forward is None and _of_transformers(model):
        return _from_transformers(model, vocabulary, timeout)
    owner = model if forward is None else forward
    fn = owner if callable(owner) else engine_model(owner) or method_with_cache(owner) or _refused(owner)
    takes, names = _taken(fn)
    tried: list[tuple[str, Refused]] = []
    for library in likely_libraries(fn) if backend is None else (backend,):
        made = CausalModel(fn, Library(library), vocabulary or 0, timeout, takes, names, alone=_faster_alone(owner))
        try:
            made = _sized(made)
            if not made.chooses and not _reads_all(made):  # what is meant as tokens may be read as texts
                single = _of_single_texts(made)
                made = single if single is not None and _reads_all(single) else made
            home = made.counts.library
            if backend is None and home in LIBRARIES and home != library and not made.chooses:
                # It takes arrays of others too, but answers in its own.
                made = replace(made, library=Library(home), counts=Counts())
                made(_THREE)
        except Refused as error:
            tried.append((made.library.name, error))
            other = _of_single_texts(made)
            other = reading_states(made) if other is None and library == "torch" else other
            # An engine begins a text itself, with the prompt.
            other = begun(made, _sized) if other is None and not isinstance(fn, LastTokenModel) else other
            if other is None:
                continue
            made = other
        if vocabulary is None and is_measurable(made) and (known := known_tokens(made)) < made.vocabulary:
            made = replace(made, vocabulary=known, columns=made.vocabulary)
        _refuse_dropout(made)
        made = _with_masks(made if isinstance(fn, LastTokenModel) else started(made))
        made.handed = _handed(made)
        made.counts = Counts(dtype=made.counts.dtype, library=made.counts.library)
        return made
    arguments = ", ".join(names.values() or (name for name in ARGUMENTS if name in takes))
    said = ", ".join(f"with {name} arrays {error}" for name, error in tried)
    raise CannotCheck(
        f"The model cannot be called as forward({arguments}) with 3 tokens: {said}.",
        "Wrap it: def forward(tokens, positions, mask, cache): return logits, cache; where tokens and positions are "
        "[batch, seq], mask is None or [batch, keys], and cache is None at first; arguments and cache may be absent.",
    ) from tried[-1][1]


def _sized(made: CausalModel) -> CausalModel:
    """The model with a vocabulary, after its first call; one that answers for the last token alone as such."""
    try:
        made = made if made.vocabulary else made.sized()
        made(_THREE)
    except Refused:
        of_last = last_token_model(made)
        if of_last is None:
            raise
        of_last(_THREE)
        return of_last
    return made


@dataclass(frozen=True)
class SingleText:
    """A function of one text, whose arrays have no axis of texts, as one of several.

    Attributes:
        forward: The function.
        names: What it calls tokens, positions and mask; empty where they are passed by place, in their order.
        takes: Which of them it takes.
    """

    forward: Callable[..., Any]
    names: Mapping[str, str]
    takes: frozenset[str]

    @property
    def owner(self) -> Any:
        """The object that the function is a method of."""
        return object_of(self.forward)

    def __call__(self, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        """Logits [batch, seq, vocabulary] and a cache for each text."""
        given = named or dict(zip((name for name in ARGUMENTS if name in self.takes), arguments, strict=True))
        meant = {self.names.get(name, name): name for name in ("tokens", "positions", "mask", "cache")}
        made = []
        for row in range(len(given[self.names.get("tokens", "tokens")])):
            own = {
                name: each[row] if each is not None and meaning != "offset" else each
                for name, each in given.items()
                for meaning in [meant.get(name, "offset")]
            }
            made.append(logits_and_cache(self.forward(**own) if named else self.forward(*own.values())))
        caches = [cache for _, cache in made]
        return stacked([logits for logits, _ in made], 0), caches if None not in caches else None


def _reads_all(made: CausalModel) -> bool:
    """Whether what follows the last token depends on each of those before it."""
    with suppress(Refused, Unasked, IndexError):
        last, *others = (made(np.array([text]))[0][0, -1] for text in ([1, 0, 1], [0, 0, 1], [1, 1, 1]))
        return not any(np.array_equal(last, each) for each in others)
    return True


def _of_single_texts(made: CausalModel) -> CausalModel | None:
    """The model as one whose arrays have no axis of texts; None if it is none."""
    single = replace(made, forward=SingleText(made.forward, made.names, made.takes), vocabulary=0)
    with suppress(Refused, Unasked, TypeError, IndexError):
        return _sized(single)
    return None


def _with_masks(made: CausalModel) -> CausalModel:
    """The model with the masks of queries and keys that it takes: the first ones that hide what they should.

    What the last of three tokens gets depends on the others no longer where it sees itself alone.
    """
    if "mask" not in made.takes or made.vocabulary < 2:
        return made
    texts = np.array([[1, 0, 1], [0, 1, 1]])
    apart = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], bool)
    for adds in ("", "batch heads queries keys", "batch queries keys"):
        trial = replace(made, adds_masks=adds, counts=Counts())
        with suppress(Refused, Unasked):
            one, other = trial(texts, None, np.stack([apart, apart]), keep=False)[0][:, 2]
            if np.abs(one - other).max() <= np.abs(one).max() / _ROUNDED:
                return replace(made, adds_masks=adds)
    return made


def _handed(model: CausalModel) -> dict[str, tuple[Any, str]]:
    """Arguments with the name of an attribute that each call sets anew, as the offset is that an image gives a text."""
    owners = owners_of(model.forward)
    attributes = {
        name: (owner, attribute)
        for name in unknown_arguments(model)
        for owner in owners
        for attribute in (name, f"_{name}")
        if hasattr(owner, attribute)
    }
    before = {name: getattr(*place) for name, place in attributes.items()}
    if attributes:
        model(_THREE)
    return {name: place for name, place in attributes.items() if getattr(*place) is not before[name]}


def _refused(model: Any) -> NoReturn:
    methods = [name for name in dir(type(model)) if not name.startswith("_") and callable(getattr(model, name, None))]
    own = f"Its methods are {listed(methods)}. " if methods and not isinstance(model, Collection | int | float) else ""
    raise InvalidType(
        f"Expected a causal model, got {shown(model)}.",
        f"{own}Give a model of Transformers, an engine whose prefill(tokens) and decode(tokens, state) return logits "
        "and a state, or forward=, a function(tokens, positions, mask, cache) -> (logits, cache).",
    )


def _of_transformers(model: Any) -> bool:
    if not hasattr(model, "config") or not hasattr(model, "forward") or not hasattr(model, "parameters"):
        return False
    names = _argument_names(model)
    open_ended = any(one.kind is one.VAR_KEYWORD for one in inspect.signature(model.forward).parameters.values())
    return "past_key_values" in names and ("use_cache" in names or open_ended)


def _argument_names(model: Any) -> set[str]:
    """What its forward can be passed; a function assigned to it that takes any name is one that passes them on."""
    own = inspect.signature(model.forward).parameters
    any_name = any(one.kind is one.VAR_KEYWORD for one in own.values())
    return {*own, *(inspect.signature(type(model).forward).parameters if any_name else ())}


def _from_transformers(model: Any, vocabulary: int | None, timeout: float | None) -> TransformersModel:
    config = text_config(model)
    taken = _argument_names(model)
    if next(model.parameters()).is_meta:
        raise CannotCheck(
            "The model is on the device meta: it has no values, so it cannot be called.", "Load its weights first."
        )
    small = sum(parameter.numel() for parameter in model.parameters()) <= _COPIED
    training = model.training
    made = TransformersModel(
        type(model).__call__,
        Library("torch"),
        vocabulary or _known(config, "vocab_size") or 0,
        timeout,
        counting=True,
        window=_window(config),
        layers=_known(config, "decoder_layers") or _known(config, "num_hidden_layers"),
        pad=_known(config, "pad_token_id") or 0,
        alone=_faster_alone(model),
        model=model,
        source=_source(config, taken),
    )
    names = {"position_ids": "positions", "attention_mask": "mask"}
    takes = {meant for name, meant in names.items() if made.argument(name) in taken}
    made.takes = frozenset({"tokens", "cache", *takes})
    made = _copied_model(made) if small else made
    if not made.copied and training:
        raise CannotCheck(
            "The model is in training mode: dropout would change its output.", "Call model.eval() before the check."
        )
    try:
        made = made if made.vocabulary else made.sized()
        answer, _ = made(_THREE)
    except Refused as error:
        raise CannotCheck(
            f"The model cannot be called with input_ids of 3 tokens: {error}.",
            "Give forward=, a function(tokens, positions, mask, cache) -> (logits, cache).",
        ) from error.__cause__
    made = made if made.copied else _with_part_of_the_head(made, answer)
    made.first = _first_position(made)
    made.by_queries = _is_of_library(model) or _takes_masks_of_queries(made)
    made.counts = Counts(dtype=made.counts.dtype)
    return made


def _refuse_encoder(model: Any, timeout: float | None) -> None:
    """Refuse a class that generates no text and sees later tokens, as encoders are meant to."""
    parameter = next(model.parameters())
    if model.training or parameter.is_meta or model.can_generate():
        return

    def first_token(last: int) -> np.ndarray:
        def call() -> Any:
            import torch

            with torch.no_grad():
                return model(input_ids=torch.tensor([[1, 0, last]], device=parameter.device))[0]

        return as_numpy(answered(call, timeout))[0, 0]

    with suppress(Refused, IndexError):  # one that cannot be called so is refused for what it returns
        if not np.array_equal(first_token(1), first_token(0)):
            raise CannotCheck(
                f"{type(model).__name__} is an encoder: what it gives for a token depends on later tokens, and it "
                "generates no text.",
                "`clockhands audit MODEL --live` measures the positions in effect in it, and --kind attention --like "
                "CONFIG checks its layers. To check the decoder of this type, load it with AutoModelForCausalLM and "
                "is_decoder=True.",
            )


def _source(config: Any, taken: Collection[str]) -> np.ndarray | None:
    """What stands for the output of an encoder, drawn at random; None for a model that has none."""
    width = _known(config, "d_model") or _known(config, "hidden_size")
    if not {"encoder_outputs", "decoder_input_ids"} <= set(taken) or width is None:
        return None
    return np.random.default_rng(6).standard_normal((1, _OF_SOURCE, width))


def _known(config: Any, name: str) -> int | None:
    """A whole number of a config, which may be any object or a mapping; None where it has none of this name."""
    value = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return value if isinstance(value, int) else None


def _with_part_of_the_head(made: TransformersModel, wanted: np.ndarray) -> TransformersModel:
    """The model with an output head for the compared logits alone; itself where these would not be ``wanted``."""
    head = getattr(made.model, "get_output_embeddings", lambda: None)()
    name = next((name for name, each in made.model.named_modules() if each is head), "")
    held = {} if head is None else dict(head.named_parameters())
    if made.vocabulary <= COLUMNS or set(held) - {"bias"} != {"weight"}:
        return made
    with suppress(Refused, RuntimeError):
        part = {f"{name}.{each}": tensor.detach()[:: every(made.vocabulary)] for each, tensor in held.items()}
        smaller = replace(made, head=part)
        got, _ = smaller(_THREE)
        if got.shape == wanted.shape and np.abs(got - wanted).max() <= np.abs(wanted).max() / _TELLING:
            return smaller
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


def _is_of_library(model: Any) -> bool:
    """Whether a class is one of Transformers, or made from one: these take masks of queries and keys."""
    return any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__)


def _takes_masks_of_queries(made: TransformersModel) -> bool:
    """Whether a mask of queries and keys that says what a causal model does anyway changes nothing."""
    try:
        wanted, got = made(_THREE)[0], made(_THREE, None, np.tri(3, dtype=bool)[None])[0]
    except (Refused, Unasked):
        return False
    return bool(np.abs(got - wanted).max() <= np.abs(wanted).max() / _TELLING)


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


def _refuse_dropout(made: CausalModel) -> None:
    """Refuse a module that is in training mode and answers one text in two ways."""
    if any(owner.training for owner in owners_of(made.forward)):
        one, other = (made(_THREE)[0] for _ in range(2))
        if not np.array_equal(one, other):
            raise CannotCheck(
                "The model is in training mode and gives one text different logits, as with dropout.",
                "Call model.eval() before the check.",
            )


def _faster_alone(model: Any) -> bool:
    return any(map(faster_alone, owners_of(model)))


def _window(config: Any) -> int | None:
    """Keys that a query sees at most, where some layer has a window, by whatever name."""
    with suppress(ClockhandsError):
        if callable(getattr(config, "to_dict", None)) and (opened := open_values(config)) is not None:
            reaches = [code.farthest for code in resolve(opened).codes if code.part in TEXT]
            return min((reach for reach in reaches if reach is not None), default=None)
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
        counted = next(one for one in parameters if one.name == names["positions"])
        if type(counted.default) is int or counted.annotation in {int, "int"}:
            names["offset"] = names.pop("positions")
    passed = set(names.values())
    missing = [one for one in parameters if one.name not in passed and one.default is one.empty]
    if missing or "tokens" not in names or (len(names) == 1 and len(parameters) == len(ARGUMENTS)):
        return every
    return frozenset("positions" if meant in {"offset", "cache_positions"} else meant for meant in names), names
