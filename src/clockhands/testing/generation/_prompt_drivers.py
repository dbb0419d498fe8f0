"""Programs that are given prompts and choose the tokens that follow: `generate` functions, and engines with requests.

How one is called is found by trying: a prompt as a list of ids or as an array, alone or with others, and which of the
numbers that come back are the new tokens.
"""

import copy
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.models.torch_threads import faster_alone, in_one_thread
from clockhands.phrases import listed, shown
from clockhands.recognition.calling import (
    FLOATS,
    Library,
    Refused,
    answered,
    as_numpy,
    dtype_of,
    kind_of,
    likely_libraries,
)
from clockhands.testing._experiments import Unasked
from clockhands.testing._usual_names import meanings
from clockhands.testing.generation._causal_models import is_token
from clockhands.testing.generation._last_token_models import is_engine, model_that_keeps_state, needed_by
from clockhands.testing.generation._started_caches import owners_of
from clockhands.testing.kinds import is_module
from clockhands.testing.reports import CannotCheck

END = -1
"""Stands for each token that does not come, as the program ends a text earlier."""

_GENERATES = ("generate", "generate_tokens", "generate_batch", "greedy_generate", "complete", "serve")
_ADDS = ("add_request", "add", "submit", "enqueue", "add_prompt", "add_sequence", "insert")
_STEPS = ("step", "decode_step", "run_step", "tick")
_REMOVES = ("abort_request", "abort", "finish", "remove", "free", "release", "cancel")
_MEANT = meanings("prompt", "prompts", "number of new tokens", "length in all", "request id", "tokens", "mask")
_MODELS = meanings("model")
_CHUNKS = ("chunk_size", "prefill_chunk_size", "prefill_chunk", "chunk", "chunk_len")
_OUTPUTS = (
    "sequences", "token_ids", "output_token_ids", "output_ids", "output_tokens", "new_tokens", "generated_tokens",
    "generated", "outputs", "output", "tokens", "token_id", "token", "next_token", "ids",
)  # fmt: skip
_IDS = ("request_id", "req_id", "rid", "seq_id", "uid", "id", "index")
# What makes a program choose the most likely token and go on after an end token, where it has such an argument.
_GREEDY: Mapping[str, Any] = {"do_sample": False, "greedy": True, "top_k": 1, "ignore_eos": True, "stream": False}
_ENDS = ("eos_id", "eos_token_id", "eos_token", "stop_token", "stop_id", "eos")
# What a prompt of text alone has none of.
_OF_IMAGES = (
    "image_grid_thw", "video_grid_thw", "pixel_values", "pixel_values_videos", "images", "videos", "image_features",
    "second_per_grid_ts",
)  # fmt: skip
_TEMPERATURES: tuple[Mapping[str, float], ...] = ({}, {"temperature": 0.0}, {"temperature": 1e-5})

Prompts = Sequence[Sequence[int]]


@dataclass
class PromptDriver:
    """A program that continues prompts.

    Attributes:
        name: What it is called in messages.
        timeout: Seconds for a call; None calls without a limit, in this thread.
        calls, tokens: What it was asked so far.
        batches: Whether it continues several prompts in one call.
        unlike: Why prompts of several lengths cannot be given together; empty where they can.
        how: The call that succeeded.
        failed: Calls that did not, each with the reason.
        renews: Whether each call is made to a new copy of its object, as it goes on from the call before.
        watch: Opened around each call, in its thread.
    """

    name: str
    timeout: float | None = 60.0
    calls: int = 0
    tokens: int = 0
    batches: bool = False
    unlike: str = ""
    how: str = ""
    failed: tuple[str, ...] = ()
    renews: bool = False
    watch: Callable[[], AbstractContextManager[Any]] = nullcontext

    def new_tokens(self, prompts: Prompts, count: int, **how: Any) -> list[list[int]]:
        """The tokens that follow each prompt, [prompts][count]; `END` where it ends earlier.

        Raises:
            Refused: It failed, or returned something else.
            Unasked: It cannot be asked that.
        """
        self.calls += 1
        self.tokens += sum(map(len, prompts)) + count * len(prompts)

        def call() -> list[list[int]]:
            alone = "torch" in sys.modules and all(map(faster_alone, self.owners))
            with in_one_thread() if alone else nullcontext(), self.watch():
                return self._continued([list(map(int, one)) for one in prompts], count, **how)

        try:
            return answered(call, self.timeout)
        except Refused as error:
            if isinstance(error.__cause__, Unasked):
                raise error.__cause__ from None
            raise

    def _continued(self, prompts: list[list[int]], count: int, **how: Any) -> list[list[int]]:
        raise NotImplementedError

    def copied(self) -> Any:
        """The object that it is a method of, as it was before any call; None of a function."""
        return None

    @property
    def owners(self) -> list[Any]:
        """Modules of PyTorch that it uses."""
        return []

    @property
    def pads_itself(self) -> bool:
        """Whether prompts of several lengths are passed without pads."""
        return True

    @property
    def chunked(self) -> str:
        """Its argument for the size of the pieces in which a prompt is read, if it has one."""
        return ""


@dataclass
class GenerateFunction(PromptDriver):
    """A function(prompt, number of new tokens) -> tokens.

    Attributes:
        function: The function.
        form: How prompts are passed: as a list, lists, a row of an array or rows of it.
        library: Whose arrays.
        named: The names of its arguments by what they mean.
        settings: What else it is passed.
        untouched: A copy of the object that it is a method of, made before the first call.
    """

    untouched: Any = None
    function: Callable[..., Any] = len
    form: str = "list"
    library: Library | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def _continued(
        self, prompts: list[list[int]], count: int, pad: int = 0, settings: Mapping[str, Any] | None = None,
        engine: Any = None, **_: Any,
    ) -> list[list[int]]:  # fmt: skip
        engine = self.copied() if engine is None and self.renews else engine
        function = self.function if engine is None else getattr(engine, self.function.__name__)
        most = max(map(len, prompts))
        given = dict(self.settings) | dict(settings or {})
        if "number of new tokens" in self.named:
            given[self.named["number of new tokens"]] = count
        elif "length in all" in self.named:
            given[self.named["length in all"]] = most + count
        if self.form in {"list", "row"} and len(prompts) > 1:
            raise Unasked("it takes one prompt at a time")
        if self.form == "list":
            passed: Any = prompts[0]
        elif self.form == "lists":
            passed = prompts
        else:
            if self.unlike and len({*map(len, prompts)}) > 1:
                raise Unasked(self.unlike)
            assert self.library is not None
            rows = np.array([[pad] * (most - len(one)) + one for one in prompts])
            passed = self.library.positions(rows[0] if self.form == "row" else rows)
            if "mask" in self.named:
                mask = np.array([[0] * (most - len(one)) + [1] * len(one) for one in prompts])
                given[self.named["mask"]] = self.library.positions(mask)
        library = self.library or Library(likely_libraries(self.function)[0])
        return _new_tokens(library.calling(function)(passed, **given), prompts, count)

    def copied(self) -> Any:
        """See `PromptDriver`."""
        owner = getattr(self.function, "__self__", None)
        return None if owner is None or isinstance(owner, type) else copy.deepcopy(self.untouched or owner)

    @property
    def owners(self) -> list[Any]:
        """See `PromptDriver`."""
        return owners_of(self.function)

    @property
    def pads_itself(self) -> bool:
        """See `PromptDriver`."""
        return self.form != "rows"

    @property
    def chunked(self) -> str:
        """See `PromptDriver`."""
        return next((name for name in _CHUNKS if name in _parameters(self.function)), "")


@dataclass
class RequestEngine(PromptDriver):
    """An object to which requests are added, and which gives each of them a token with every step.

    Attributes:
        engine: The object, never asked itself where it can be copied.
        adds, steps, removes: The names of its methods.
        library: Whose arrays a prompt is; None for a list of ids.
        earlier: Requests of earlier calls to the same object.
    """

    renews: bool = True
    engine: Any = None
    adds: str = ""
    steps: str = ""
    removes: str = ""
    library: Library | None = None
    earlier: set[Any] = field(default_factory=set)

    def _continued(
        self, prompts: list[list[int]], count: int, begins: Sequence[int] = (), engine: Any = None, **_: Any
    ) -> list[list[int]]:
        """The tokens of each request; ``begins`` are the steps before which the requests are added."""
        engine = self.copied() if engine is None else engine
        begins = begins or [0] * len(prompts)
        found: list[list[int]] = [[] for _ in prompts]
        keys: dict[Any, int] = {}
        named: dict[Any, int] = {}
        waiting = list(range(len(prompts)))
        # A step may read a part of a prompt only.
        for step in range(count + max(begins) + sum(map(len, prompts)) + 2):
            for place in [one for one in waiting if begins[one] <= step]:
                waiting.remove(place)
                keys[self._added(engine, place, prompts[place], count)] = place
            for key, tokens in _outputs(getattr(engine, self.steps)(), keys):
                if key in self.earlier:
                    continue  # a request of an earlier call
                # A name that was never given is that of the next request that no step has named.
                others = (place for place in keys.values() if place not in named.values())
                place = named.setdefault(key, keys[key] if key in keys else next(others, 0))
                row = found[place]
                whole = [*prompts[place], *row]
                if len(tokens) > len(row) > 0 and tokens[: len(row)] == row:
                    row[:] = tokens
                elif len(tokens) > len(whole) and tokens[: len(whole)] == whole:
                    row += tokens[len(whole) :]
                elif tokens != row or len(tokens) == 1:
                    row += tokens
            if not waiting and all(len(row) >= count for row in found):
                break
        self.earlier |= {*named}
        for key in list(keys):
            with suppress(Exception):
                getattr(engine, self.removes)(key)
        if short := [row for row in found if not row]:
            raise Refused(f"{len(short)} of {len(found)} requests got no token from {self.steps}()")
        return [(row + [END] * count)[:count] for row in found]

    def copied(self) -> Any:
        """The engine that has no request yet."""
        self.earlier = set()
        try:
            return copy.deepcopy(self.engine)
        except Exception:  # noqa: BLE001 - an engine may hold anything, such as a lock
            return self.engine

    def _added(self, engine: Any, place: int, prompt: list[int], count: int) -> Any:
        add = getattr(engine, self.adds)
        passed = prompt if self.library is None else self.library.positions(np.array(prompt))
        named = _named(add)
        own = f"request-{place}" if "str" in str(_parameters(add).get(named.get("request id", ""), "")) else place
        values = {"prompt": passed, "request id": own, "number of new tokens": count}
        given = {name: values[meant] for meant, name in named.items() if meant in values}
        for name, parameter in _parameters(add).items():
            if name not in given and parameter.default is parameter.empty and isinstance(parameter.annotation, type):
                given[name] = _made_settings(parameter.annotation, count)
        key = add(**given) if "prompt" in given else add(passed)
        key = own if key is None or "request id" in named else _key_of(key)
        return key if key is not None else place

    @property
    def owners(self) -> list[Any]:
        """See `PromptDriver`."""
        return owners_of(getattr(self.engine, self.steps))


def is_prompt_driver(value: Any, *, surely: bool = False) -> bool:
    """Whether a value is such a program, by the names of its arguments or methods.

    Args:
        value: A function, an object or a class.
        surely: Whether names that other functions have as well, such as ``x`` and ``n``, say nothing.
    """
    if isinstance(value, type) or not inspect.isroutine(value):
        return _takes_requests(value) or bool(_method(value, _GENERATES))
    named = _named(value)
    counts = named.get("number of new tokens", named.get("length in all", ""))
    sure = not surely or "prompt" in named.get("prompt", "") or "new" in counts or "gen" in counts
    sure = sure or getattr(value, "__name__", "").startswith("generate")
    sure = sure or any(name in _MODELS for name in _parameters(inspect.unwrap(value)))
    return "prompt" in named and bool(counts) and sure


def _takes_requests(value: Any) -> bool:
    """Whether requests are added to it, and its steps are told no tokens."""
    adds, steps = _method(value, _ADDS), _method(value, _STEPS)
    return bool(adds and steps) and needed_by(getattr(value, steps)) == isinstance(value, type)


def own_program(model: Any) -> Any:
    """What a module that cannot be called itself offers: methods that read a prompt and go on, or its `generate`."""
    if not is_module(model) or type(model).__module__.startswith("transformers."):
        return None
    if (engine := model_that_keeps_state(model)) is not None:
        return engine
    generate = getattr(model, _method(model, _GENERATES), None)
    return generate if generate is not None and is_prompt_driver(generate) else None


def generates_text(value: Any) -> bool:
    """Whether a value that is no module is a model with a cache, or a program that continues prompts, by its names."""
    if is_module(value):
        return False
    own = value if inspect.isfunction(value) else vars(type(value)).get("__call__")
    if inspect.isfunction(own):
        taken = [name for name in inspect.signature(own).parameters if name != "self"]
        if taken and taken[0] in meanings("tokens") and any(name in meanings("cache") for name in taken):
            return True
    return is_engine(value) or is_prompt_driver(value, surely=True)


def opened_driver(value: Any, backend: Any, timeout: float | None) -> PromptDriver | None:
    """The program as one that is called with prompts; None for a value that is none.

    Raises:
        CannotCheck: It cannot be called, or chooses tokens at random; the message has the calls that were tried.
    """
    if not is_prompt_driver(value):
        return None
    tried: list[tuple[str, str]] = []
    for driver, call in _forms(value, backend, timeout):
        try:
            driver.new_tokens([[1, 0, 1]], 2)
            several = driver.new_tokens([[1, 0, 1]], 4)
            if several != driver.new_tokens([[1, 0, 1]], 4):
                driver.renews = True
                if driver.copied() is None or driver.new_tokens([[1, 0, 1]], 4) != driver.new_tokens([[1, 0, 1]], 4):
                    tried.append((call, "it gave one prompt different tokens twice"))
                    continue
        except (Refused, Unasked) as error:
            tried.append((call, str(error)))
            continue
        driver.batches = driver.batches or isinstance(driver, RequestEngine)
        driver.how, driver.failed = call, tuple(f"{one}: {why}" for one, why in tried)
        return driver
    said = "; ".join(f"{call}: {why}" for call, why in dict(tried).items())
    raise CannotCheck(
        f"The program cannot be called with a prompt of 3 tokens: {said}.",
        "Write def generate(prompt: list[int], max_new_tokens: int) -> list[int], which chooses the likeliest tokens; "
        "or an engine whose add_request(prompt) returns an id and whose step() returns {id: token}.",
    )


def _forms(value: Any, backend: Any, timeout: float | None) -> Iterator[tuple[PromptDriver, str]]:
    """The ways in which it may be called, the likeliest first, each with the call in words."""
    adds, steps = _method(value, _ADDS), _method(value, _STEPS)
    if not inspect.isroutine(value) and _takes_requests(value):
        driver = RequestEngine(
            type(value).__name__, timeout, engine=value, adds=adds, steps=steps, removes=_method(value, _REMOVES)
        )
        yield driver, f"{adds}(list of ids), {steps}()"
        for name in likely_libraries(getattr(value, steps)) if backend is None else [backend]:
            yield replace(driver, library=Library(name)), f"{adds}({name} array [tokens]), {steps}()"
        return
    function = value if inspect.isroutine(value) else getattr(value, _method(value, _GENERATES))
    parameters, named = _parameters(function), _named(function)
    missing = [
        name
        for name, one in parameters.items()
        if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
        and name not in {*named.values(), *_GREEDY, *_ENDS, *_OF_IMAGES, "temperature"}
    ]  # fmt: skip
    name = str(getattr(function, "__name__", type(function).__name__))
    if "prompt" not in named:
        raise CannotCheck(
            f"{name}({', '.join(parameters)}) has no argument that is known to take a prompt.",
            f"Write def generate(prompt, max_new_tokens), which passes the prompt on and calls {name}.",
        )
    if missing:
        raise CannotCheck(
            f"{name} needs {listed(missing)}, whose meaning is not known.",
            f"Write def generate(prompt, max_new_tokens): return {name}(…), with these arguments given.",
        )
    untouched = None
    with suppress(Exception):  # an object may hold anything, such as a lock
        untouched = copy.deepcopy(getattr(function, "__self__", None))
    settings = {key: given for key, given in _GREEDY.items() if key in parameters}
    settings |= {key: None for key in _ENDS if key in parameters}
    images = [key for key in _OF_IMAGES if key in parameters and parameters[key].default is inspect.Parameter.empty]
    libraries = [Library(each) for each in (likely_libraries(function) if backend is None else [backend])]
    for form, heat in itertools.product(_orders(parameters[named["prompt"]], named), _TEMPERATURES):
        if heat and not heat.keys() <= parameters.keys():
            continue
        for library, empty in itertools.product(
            libraries if form in {"row", "rows"} else [None],
            [False, True] if any("grid" in key for key in images) else [False],
        ):
            grids = (library or libraries[0]).positions(np.zeros((0, 3), np.int64)) if empty else None
            without = {key: grids if "grid" in key else None for key in images}
            what = {
                "list": "list of ids",
                "lists": "list of one list of ids",
                "row": f"{library.name if library else ''} array [tokens]",
                "rows": f"{library.name if library else ''} array [batch, tokens]",
            }[form]
            others = [f"{key}={each}" for key, each in {**settings, **heat}.items()]
            unlike = "" if form == "lists" or "mask" in named else "it takes no mask: its prompts have one length"
            yield (
                GenerateFunction(
                    name, timeout, batches=form in {"lists", "rows"}, unlike=unlike, function=function, form=form,
                    library=library, named=named, settings={**settings, **without, **heat}, untouched=untouched,
                ),
                f"{name}({', '.join([what, 'number of tokens', *others])})",
            )  # fmt: skip


def _orders(prompt: inspect.Parameter, named: Mapping[str, str]) -> list[str]:
    """The forms of a prompt, the one first that the name or the annotation of the argument speaks of."""
    text = str(prompt.annotation).lower()
    if "list[list" in text or "sequence[sequence" in text or _MEANT.get(prompt.name) == "prompts":
        first = ["lists", "rows"]
    elif "tensor" in text or "array" in text or _MEANT.get(prompt.name) == "tokens" or "mask" in named:
        first = ["rows", "row"]
    else:
        first = ["list", "rows"]
    return [*first, *(form for form in ("list", "rows", "lists", "row") if form not in first)]


def _method(value: Any, names: Sequence[str]) -> str:
    return next((name for name in names if callable(getattr(value, name, None))), "")


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _named(function: Any) -> dict[str, str]:
    """The names of the arguments of a function by what they mean; the first one is the prompt unless another is."""
    parameters = _parameters(function)
    found: dict[str, str] = {}
    for name in parameters:
        found.setdefault(_MEANT.get(name, name), name)
    prompt = next((found[meant] for meant in ("prompt", "prompts", "tokens") if meant in found), None)
    kept = {
        meant: found[meant]
        for meant in ("number of new tokens", "length in all", "request id", "mask")
        if meant in found
    }
    if "number of new tokens" in kept:
        kept.pop("length in all", None)
    return kept if prompt is None else {"prompt": prompt, **kept}


def _made_settings(kind: type, count: int) -> Any:
    """An object that says how tokens are chosen: the most likely ones, so many."""
    parameters = _parameters(kind)
    counts = {name: count for name in parameters if _MEANT.get(name) == "number of new tokens"}
    greedy = {name: given for name, given in {**_GREEDY, "temperature": 0.0}.items() if name in parameters}
    return kind(**greedy, **counts)


def _new_tokens(answer: Any, prompts: list[list[int]], count: int) -> list[list[int]]:
    """The new tokens of each prompt in what a function returned.

    Raises:
        Refused: It is something else.
    """
    if isinstance(answer, Iterator):
        steps = [_token_rows(one) for one in itertools.islice(answer, count)]
        rows = [list(itertools.chain(*row)) for row in zip(*(one or [] for one in steps), strict=False)]
    else:
        rows = _likeliest_of_steps(answer, len(prompts), count) or _token_rows(answer) or []
    if len(rows) != len(prompts):
        wanted = f"{len(prompts)} rows of token ids" if len(prompts) > 1 else "token ids"
        raise Refused(f"it returned {_described(answer)}, expected {wanted}")
    found = []
    most = max(map(len, prompts))
    for row, prompt in zip(rows, prompts, strict=True):
        begun = next((start for start in (len(prompt), most) if row[start - len(prompt) : start] == prompt), 0)
        new = row[begun:] if len(row) > begun and begun else row
        if not new or len(new) > count:
            raise Refused(f"it returned {len(row)} tokens for a prompt of {len(prompt)}, where {count} were to follow")
        found.append((new + [END] * count)[:count])
    return found


def _described(answer: Any) -> str:
    shape = getattr(answer, "shape", None)
    return kind_of(answer) if shape is None else f"an array of shape {list(shape)} of {dtype_of(answer)}"


def _token_rows(value: Any) -> list[list[int]] | None:
    """Rows of token ids in a value of any usual form; None if it has none."""
    if is_token(value):
        return [[int(value)]]
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        array = as_numpy(value)
        if array.dtype.kind not in "iu" or array.ndim > 2:
            return None
        return np.atleast_2d(array).tolist()
    if isinstance(value, tuple | list):
        rows: list[list[list[int]] | None] = [_token_rows(each) for each in value]
        first, *others = [*value] or [None]
        counts = bool(others) and isinstance(value, tuple) and all(isinstance(each, int | float) for each in others)
        if counts and rows[0] is not None and not is_token(first):
            return rows[0]  # what follows says how many drafts were accepted, or the like
        single = [one[0] for one in rows if one is not None and len(one) == 1]
        if value and len(single) == len(rows):
            flat = all(is_token(each) or getattr(each, "shape", None) == () for each in value)
            return [[one[0] for one in single]] if flat else single
        known = [one for one in rows if one is not None]
        return known[0] if known and isinstance(value, tuple) else None
    held = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return next((found for name in _OUTPUTS if name in held and (found := _token_rows(held[name]))), None)


def _outputs(answer: Any, keys: Mapping[Any, int]) -> Iterator[tuple[Any, list[int]]]:
    """The request and the tokens of each output of a step."""
    if answer is None:
        return
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], list | Mapping):
        answer = answer[0]  # with a number of tokens, or a flag
    if isinstance(answer, Mapping) and not any(name in answer for name in _IDS):
        for key, value in answer.items():
            if rows := _token_rows(value):
                yield key, rows[0]
        return
    every = list(answer) if isinstance(answer, list | tuple) or hasattr(answer, "shape") else [answer]
    for place, one in enumerate(every):
        if isinstance(one, tuple | list) and len(one) >= 2 and (is_token(one[0]) or isinstance(one[0], str)):
            key, rows = one[0], _token_rows(one[1])
        else:
            own = _key_of(one)
            key = list(keys)[place] if (own is None or own is one) and place < len(keys) else own
            rows = _token_rows(one) or _likeliest(one)
        if rows is None:
            raise Refused(f"a step returned {shown(answer)}, expected a dict from request to token")
        yield key, rows[0]


def _likeliest_of_steps(value: Any, prompts: int, count: int) -> list[list[int]] | None:
    """The likeliest tokens by logits [prompts, count, vocabulary]; None of what are none."""
    if tuple(getattr(value, "shape", ()))[:-1] != (prompts, count) or dtype_of(value) not in FLOATS:
        return None
    return as_numpy(value).argmax(-1).tolist()


def _likeliest(value: Any) -> list[list[int]] | None:
    """The likeliest token by the last row of logits; None of what are none."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype") or dtype_of(value) not in FLOATS:
        return None
    logits = as_numpy(value)
    return [[int(logits.reshape(-1, logits.shape[-1])[-1].argmax())]] if logits.size > 1 else None


def _key_of(value: Any) -> Any:
    """What tells a request from others: itself if it can, or its id."""
    if isinstance(value, str | int):
        return value
    held = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return next((held[name] for name in _IDS if name in held), None)
