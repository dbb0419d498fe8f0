"""The treatments of a module under test (cast, copy, save, load, …), and the output that is required afterwards.

Every treatment works on a copy, or on a newly built module. Learned numbers may change, such as by the rounding of a
cast. Computed numbers must be right after each treatment.
"""

import copy
import functools
import pickle
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from clockhands.arguments import one_of
from clockhands.encodings.additive import AdditiveCode
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.specs import describe
from clockhands.recognition.calling import Refused, error_text
from clockhands.recognition.faults import FAULTS
from clockhands.recognition.probe_positions import probe_positions
from clockhands.testing._checks import failures_of
from clockhands.testing._experiments import Asked, Experiment, Unasked
from clockhands.testing.functions import check_additive, check_bias, check_rotary
from clockhands.testing.modules._asking import Broke, Heard, ModuleSubject, Treated, Treatment, undone
from clockhands.testing.modules._explaining import Outcome, by_tensors, explained, once
from clockhands.testing.modules._tensors import as_it_was, held, put_parameters, spoil
from clockhands.testing.reports import Explanation, Failure, Report

# The methods that compute the numbers again that `to_empty` left uninitialised.
HOOKS = ("reset_parameters", "reset_buffers", "init_weights", "_init_weights", "rope_init")


def _cast(name: str) -> Callable[[ModuleSubject], Treated]:
    def run(subject: ModuleSubject) -> Treated:
        dtype = getattr(torch, name)
        module = subject.copied().to(dtype)
        rounded = subject.copied()
        with torch.no_grad():
            for parameter in rounded.parameters():
                if parameter.is_floating_point():
                    parameter.data = parameter.data.to(dtype).to(parameter.dtype)
        wanted = subject.asking.hear(rounded)
        return Treated(module, f"is cast to {name}", dtype=name, wanted=wanted, another=name == "float64")

    return run


def _there_and_back(name: str) -> Callable[[ModuleSubject], Treated]:
    def run(subject: ModuleSubject) -> Treated:
        module = subject.copied().to(getattr(torch, name)).to(torch.float32)
        put_parameters(module, subject.original)
        return Treated(module, f"is cast to {name} and back to float32", rounded=name)

    return run


def _coarser_tokens(subject: ModuleSubject) -> Treated:
    return Treated(subject.copied(), "gets bfloat16 tokens", dtype="bfloat16")


def _used(
    subject: ModuleSubject, what: str, at: np.ndarray, *before: Callable[[Callable[..., Heard]], Heard]
) -> Treated:
    """A copy that had the calls ``before``, called at these positions; a new copy gives the expected output."""
    wanted = subject.asking.hear(subject.copied(), positions=at)
    module = subject.copied()
    for question in before:
        question(functools.partial(subject.asking.hear, module))
    return Treated(module, what, wanted=wanted, heard=subject.asking.hear(module, positions=at))


def _after_coarser_tokens(subject: ModuleSubject) -> Treated:
    at = probe_positions(min(subject.asking.length, 2100))
    return _used(subject, "has had bfloat16 tokens before", at, lambda used: used(dtype="bfloat16", positions=at))


def _deepcopy(subject: ModuleSubject) -> Treated:
    try:
        return Treated(copy.deepcopy(subject.original).eval(), "is copied by copy.deepcopy")
    except Exception as error:
        raise Broke(f"cannot be copied by copy.deepcopy: {error_text(error, 200)}") from error


def _pickle(subject: ModuleSubject) -> Treated:
    try:
        written = pickle.dumps(subject.original)
    except Exception as error:
        raise Unasked(f"it cannot be pickled: {error_text(error, 200)}") from error
    return Treated(pickle.loads(written).eval(), "is pickled and read again")


def _state_dict(subject: ModuleSubject) -> Treated:
    used = subject.copied()
    subject.asking.hear(used)
    fresh = subject.made() if subject.make is not None and subject.alike else subject.copied()
    try:
        fresh.load_state_dict(used.state_dict(), strict=True)
    except RuntimeError as error:
        raise Broke(f"cannot load the state dict of one that has been used: {error_text(error, 200)}") from error
    return Treated(fresh, "loads the state dict of one that has been used")


def emptied(subject: ModuleSubject, module: torch.nn.Module) -> torch.nn.Module:
    """The module as loaders leave it: memory allocated, hooks called, and the state dict loaded."""
    there = {path for path, one in held(module).items() if one.kind != "attribute"}
    module.to_empty(device="cpu")
    spoil(module, there)
    with torch.no_grad():
        for owner in module.modules():
            for name in HOOKS:
                hook = getattr(owner, name, None)
                if callable(hook):
                    _called(hook, owner)
        if subject.restore is not None:
            subject.restore(module)
    module.load_state_dict(subject.original.state_dict(), strict=False)
    return module.eval()


def _called(hook: Callable[..., Any], owner: torch.nn.Module) -> None:
    try:
        hook()
    except TypeError:
        hook(owner)


def _to_empty(subject: ModuleSubject) -> Treated:
    module = emptied(subject, subject.copied().to("meta"))
    return Treated(module, "is moved to the meta device, given memory by to_empty and loaded again", another=True)


def _made_on_meta(subject: ModuleSubject) -> Treated:
    if subject.make is None or not subject.alike:
        raise Unasked("pass make=, a function that builds the module, to build one on the meta device")
    try:
        with torch.device("meta"):
            module = subject.make()
    except Exception as error:
        raise Unasked(f"it cannot be built on the meta device: {error_text(error, 200)}") from error
    if any(one.tensor.is_meta for one in held(module).values()):
        module = emptied(subject, module)
    put_parameters(module, subject.original)
    return Treated(
        module.eval(), "is built on the meta device, given memory by to_empty and loaded from its file", another=True
    )


def _made_coarse(subject: ModuleSubject) -> Treated:
    if subject.make is None or not subject.alike:
        raise Unasked("pass make=, a function that builds the module, to build one with bfloat16 as the default dtype")
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        module = subject.make().eval()
    except Exception as error:
        raise Unasked(f"it cannot be built with bfloat16 as the default dtype: {error_text(error, 200)}") from error
    finally:
        torch.set_default_dtype(usual)
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.float32) if parameter.is_floating_point() else parameter.data
    put_parameters(module, subject.original)
    return Treated(module, "is built with bfloat16 as the default dtype")


def _again(subject: ModuleSubject) -> Treated:
    at = probe_positions(subject.asking.length)
    return _used(subject, "is called a fourth time", at, *[lambda used: used(positions=at)] * 3)


def _after_longer(subject: ModuleSubject) -> Treated:
    """A short sequence after a long one on the same module, compared with the short one on a new copy."""
    few = np.arange(min(8, subject.asking.length))
    what = f"has had a sequence of {subject.asking.length:,} tokens before"
    return _used(subject, what, few, lambda used: used())


def _training(subject: ModuleSubject) -> Treated:
    module = subject.copied().train()
    if any(getattr(one, "p", 0) for one in module.modules() if "Dropout" in type(one).__name__):
        raise Unasked("it has dropout in training mode")
    return Treated(module, "is in training mode")


def _inference(subject: ModuleSubject) -> Treated:
    return Treated(subject.copied(), "runs in torch.inference_mode", around=torch.inference_mode)


def _trained_after_inference(subject: ModuleSubject) -> Treated:
    """A tensor that was made in inference mode cannot be used in a graph that records gradients."""
    if subject.asking.kind == "bias" or "offset" in subject.asking.called_as or subject.asking.called_as[0] == "q":
        raise Unasked("gradients are checked only if it takes tokens and positions")

    def trained(module: torch.nn.Module) -> None:
        with torch.enable_grad():
            x, *positions = subject.asking.arguments("cpu")
            if x.is_floating_point():
                x.requires_grad_()
            made = subject.asking.function(module)(x, *positions)
            if made.requires_grad:
                made.sum().backward()

    try:
        trained(subject.copied())
    except Exception as error:
        raise Unasked(f"it gives no gradients: {error_text(error, 200)}") from error
    module = subject.copied()
    subject.asking.hear(module, around=torch.inference_mode)
    try:
        trained(module)
    except RuntimeError as error:
        raise Broke(f"cannot be trained after it has run in torch.inference_mode: {error_text(error, 200)}") from error
    # Its output is not compared here: another treatment does that.
    return Treated(module, "is trained after it has run in torch.inference_mode", heard=subject.before)


def _autocast(subject: ModuleSubject) -> Treated:
    def around() -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16)

    return Treated(subject.copied(), "runs under torch.autocast to bfloat16", around=around)


def _moved(subject: ModuleSubject) -> Treated:
    """To a GPU and back; without a GPU to the meta device, where a tensor that was left behind raises an error."""
    if torch.cuda.is_available():
        return Treated(subject.copied().to("cuda").to("cpu"), "is moved to another device and back")
    module = subject.copied().to("meta")
    behind = [path for path, one in held(module).items() if one.kind == "attribute" and not one.tensor.is_meta]
    if not behind or subject.asking.kind == "bias":
        raise Unasked("there is no other device here")
    try:
        subject.asking.function(module)(*subject.asking.arguments("meta"))
    except RuntimeError as error:
        if "device" in str(error):
            stays = f"its attribute `{behind[0]}` stays where it was"
            raise Broke(f"cannot be moved: {stays}, and then {error_text(error, 200)}") from error
    raise Unasked("there is no other device here")


def _compiled(backend: str) -> Callable[[ModuleSubject], Treated]:
    def run(subject: ModuleSubject) -> Treated:
        module = subject.copied()
        torch.compiler.reset()
        if subject.asking.method is None:
            module.compile(backend=backend)
        else:
            # Module.compile compiles forward only, so another method is replaced by its compiled version.
            compiled = torch.compile(getattr(module, subject.asking.method), backend=backend)
            setattr(module, subject.asking.method, compiled)
        return Treated(module, f"is compiled by torch.compile ({backend})", another=True)

    return run


def _several(subject: ModuleSubject) -> Treated:
    """Four new modules, one for each layer: all have the same output."""
    if subject.make is None:
        raise Unasked("pass make=, a function that builds the module, to build one for each of four layers")
    modules = [subject.made() for _ in range(4)]
    for number, module in enumerate(modules):
        with as_it_was(module):
            heard = subject.asking.hear(module)
        if subject.differs(heard, subject.before):
            return Treated(
                module, f"is the {_nth(number)} of four more that are built, one for each layer", heard=heard
            )
    return Treated(modules[-1], "is the last of four more that are built, one for each layer")


def _after_freed(subject: ModuleSubject) -> Treated:
    """A module that is built after another was deleted, or moved to the meta device as loaders do to free memory."""
    first = subject.made()
    subject.asking.hear(first)
    del first
    second = subject.made()
    with as_it_was(second):
        heard = subject.asking.hear(second)
    if subject.differs(heard, subject.before):
        return Treated(second, "is built after an earlier one was deleted", heard=heard)
    first = subject.made()
    kept = as_it_was(first)
    kept.__enter__()
    subject.asking.hear(first)
    if list(held(first)):
        first.to("meta")
    second = subject.made()
    return Treated(second, "is built after an earlier one was moved to the meta device to free memory", kept=kept)


def _beside_cast(subject: ModuleSubject) -> Treated:
    """A module that is built after another was cast."""
    first = subject.made()
    kept = as_it_was(first)
    kept.__enter__()
    first.to(torch.bfloat16)
    with suppress(Refused):  # its own cast is another experiment
        subject.asking.hear(first, dtype="bfloat16")
    return Treated(subject.made(), "is built after an earlier one was cast to bfloat16", kept=kept)


def _numbers(subject: ModuleSubject) -> Treated:
    missing = np.isnan(subject.before.rows)
    if missing.any():
        raise Broke(f"returns NaN in {int(missing.sum()):,} of {missing.size:,} numbers")
    return Treated(subject.original, "is called", heard=subject.before)


def _nth(number: int) -> str:
    return ("first", "second", "third", "fourth")[number]


def treatments(compiled: str | None, dtype: str) -> Iterable[Treatment]:
    """All treatments; those whose failures also explain failures of others come first."""
    yield Treatment("numbers", "numbers", _numbers)
    yield Treatment("repeated call", "again", _again)
    yield Treatment("one for each of four layers", "several", _several)
    yield Treatment("after a longer sequence", "longer", _after_longer)
    yield Treatment("deepcopy", "deepcopy", _deepcopy)
    yield Treatment("pickle", "pickle", _pickle)
    yield Treatment("state dict", "state dict", _state_dict)
    yield Treatment("training mode", "mode", _training)
    yield Treatment("inference mode", "mode", _inference)
    yield Treatment("training after inference", "mode", _trained_after_inference)
    if dtype == "float32":
        yield Treatment("bfloat16 tokens", "coarse", _coarser_tokens)
        yield Treatment("after bfloat16 tokens", "after coarse", _after_coarser_tokens)
        for name in ("bfloat16", "float16", "float64"):
            yield Treatment(f"cast to {name}", "cast", _cast(name))
        for name in ("bfloat16", "float16"):
            yield Treatment(f"cast to {name} and back", "cast", _there_and_back(name))
        yield Treatment("autocast", "autocast", _autocast)
    yield Treatment("to_empty", "empty", _to_empty)
    yield Treatment("built on the meta device", "empty", _made_on_meta)
    if dtype == "float32":
        yield Treatment("built with bfloat16 as default", "default dtype", _made_coarse)
    yield Treatment("after another was freed", "shared", _after_freed)
    yield Treatment("after another was cast", "shared", _beside_cast)
    yield Treatment("moved to another device", "moved", _moved)
    if compiled is not None:
        yield Treatment("compiled", "compile", _compiled(compiled))


_THROUGHOUT = "after every treatment"


def report_of_module(subject: ModuleSubject, values: Any, backend: str | None, without: Collection[str]) -> Report:
    """Check a module as a function, apply every treatment, and report the failures before and after."""
    spec, asking, original = subject.spec, subject.asking, subject.original
    function, explanations, subject = _untreated(subject, values)
    outcomes, made, left_out, worst = _treated(subject, backend, without)
    found = tuple(explained(subject, outcomes, bool(explanations)))
    # If the function is wrong only with several models, the treatments explain it better, so they come first.
    explanations = once(found + explanations if function is not None and _of_others(function) else explanations + found)
    if function is not None:
        left_out, worst = {**function.left_out, **left_out}, max(worst, function.worst)
    before = () if function is None else function.experiments
    failures = () if function is None else function.failures
    return Report(
        subject=type(original).__name__,
        kind="module",
        like=f"the same {_THROUGHOUT}" if spec is None else f"{describe(spec)}, {_THROUGHOUT}",
        experiments=(*before, *made),
        left_out=left_out,
        failures=(*failures, *(one.failure for one in outcomes)),
        explanations=explanations,
        called={
            "library": "torch",
            "dtype": asking.dtype,
            "calls": asking.calls + (0 if function is None else function.called["calls"]),
            "rows": 0 if function is None else function.called["rows"],
            "length": asking.length,
            "notes": (*_notes(original, spec), *subject.notes),
        },
        worst=worst,
        spec=spec,
    )


def _untreated(subject: ModuleSubject, values: Any) -> tuple[Report | None, tuple[Explanation, ...], ModuleSubject]:
    """The check before any treatment: the report of the function, its explanations, and the module to treat.

    If wrong tensors are the only fault, a copy with corrected tensors is treated: the fault is explained already.
    """
    if subject.spec is None:
        return None, (), subject
    found, mended = by_tensors(subject)
    if mended is not None:
        function = _as_function(subject, mended, values)
        if function.sound:
            whole = replace(subject, original=mended)
            heard, wanted = subject.before, whole.before
            same = Treated(mended, "", another=True)
            failures, worst = _failures("a few positions", "a few positions", subject, heard, wanted, treated=same)
            if failures:
                return replace(function, failures=failures, worst=worst), tuple(found), whole
            return function, (), subject  # the wrong tensors are not used
    function = _as_function(subject, subject.original, values)
    if function.sound:
        return function, (), subject
    return function, (*found, *(_shared(one) for one in function.explanations)), subject


def _failures(
    name: str, asked: str, subject: ModuleSubject, heard: Heard, wanted: Heard, *, treated: Treated
) -> tuple[tuple[Failure, ...], float]:
    answer = subject.compared(heard, wanted, treated, asked)
    return failures_of([Asked(Experiment(name, "", lambda _: []), [answer])], None)


def _as_function(subject: ModuleSubject, module: Any, values: Any) -> Report:
    """The report of the check of the module as a function, against the expected encoding."""
    asking, spec, build = subject.asking, subject.spec, subject.build
    more: dict[str, Any]
    check: Callable[..., Report]
    if isinstance(spec, BiasCode):
        check = check_bias
        more = {"call": "queries, keys" if callable(asking.call) else asking.call, "values": values}
    elif isinstance(spec, AdditiveCode):
        check = check_additive
        more = {"call": asking.called_as, "axes": asking.axes, "positions": asking.places, "values": values}
    else:
        check = check_rotary
        more = {"call": asking.called_as, "axes": asking.axes, "positions": asking.places}
    if build is not None:
        more["make"] = lambda own: asking.function(build(own).eval())
    with as_it_was(module):
        return check(
            asking.function(module.eval()),
            spec,
            backend="torch",
            dtype=asking.dtype,
            length=asking.length,
            timeout=asking.timeout,
            raises=False,
            **more,
        )


def _treated(
    subject: ModuleSubject, backend: str | None, without: Collection[str]
) -> tuple[list[Outcome], list[str], dict[str, str], float]:
    """Apply every treatment: the failures, the names of all that ran, the skipped ones, the largest error share."""
    outcomes, made, left_out, worst = [], [], {}, 0.0
    known = [*treatments(backend, subject.asking.dtype), Treatment("positions matter", "positions", _positions_matter)]
    names = {one.name for one in (*known, *treatments("eager", "float32"))}
    for name in without:
        one_of("without", name, tuple(sorted(names)), "It names treatments.")
    for treatment in known:
        if treatment.name in without:
            left_out[treatment.name] = "left out by without="
            continue
        treated = None
        try:
            treated = treatment.run(subject)
            with undone(treated.kept):
                outcome, share = _asked(subject, treatment, treated)
        except Unasked as reason:
            left_out[treatment.name] = str(reason)
            continue
        except (Broke, Refused) as error:
            if isinstance(error, Refused) and treatment.group in ("cast", "coarse", "after coarse", "autocast"):
                # A module that raises an error for another dtype is not silently wrong.
                left_out[treatment.name] = str(error)
                continue
            outcome, share = _refused(treatment, treated, str(error)), np.inf
        except Exception as error:  # noqa: BLE001 - hooks of the module may raise anything
            outcome, share = _refused(treatment, treated, f"raised {type(error).__name__}: {error}"), np.inf
        made.append(treatment.name)
        worst = max(worst, share)
        if outcome is not None:
            outcomes.append(outcome)
            # If new modules differ, treatments of new modules are skipped.
            subject.alike = subject.alike and treatment.group != "several"
    return outcomes, made, left_out, worst


def _asked(subject: ModuleSubject, treatment: Treatment, treated: Any) -> tuple[Outcome | None, float]:

    wanted = treated.wanted or subject.before
    heard = treated.heard or subject.asking.hear(treated.module, dtype=treated.dtype, around=treated.around)
    if heard.rows.shape != wanted.rows.shape:
        shapes = f"gave {list(heard.rows.shape)} numbers for {list(wanted.rows.shape)}"
        return _refused(treatment, treated, shapes), np.inf
    failures, worst = _failures(treatment.name, f"when it {treated.what}", subject, heard, wanted, treated=treated)
    if not failures:
        if treated.rounded is not None and subject.differs(heard, wanted):
            subject.notes.append(f"When it {treated.what}, its values stay rounded, as learned ones do.")
        return None, worst
    failure = replace(failures[0], evidence={**failures[0].evidence, "dtype": heard.dtype})
    return Outcome(treatment, failure, treated, heard), worst


def _refused(treatment: Treatment, treated: Any, said: str) -> Outcome:

    lead = f"when it {treated.what}, " if treated is not None else ""
    said = said if said.startswith(("it ", "cannot")) else f"it {said}"
    return Outcome(treatment, Failure(treatment.name, f"{lead}{said}.", {"said": said}), treated, None)


def _positions_matter(subject: ModuleSubject) -> Any:
    """Called at other positions; raises `Broke` if the output does not depend on them."""
    asking = subject.asking
    if asking.kind == "bias":
        raise Unasked("a bias may be the same at all distances")
    if asking.length < 4:
        raise Unasked("it has too few positions")
    module = subject.copied()
    if asking.positions_given:
        first, second = (asking.hear(module, positions=np.arange(start, start + 2)) for start in (0, asking.length - 3))
        same = np.array_equal(first.rows, second.rows)
    else:
        # Tokens differ from row to row, so rows cannot be compared; numbers that are all +1 or -1 were not changed.
        rows = asking.hear(module).rows
        same = bool((np.abs(np.abs(rows) - 1) < 1e-6).all())
    if same:
        raise Broke(f"gives tokens at positions 0 and {asking.length - 3:,} the same values")
    return Treated(module, "is called with other positions", heard=subject.before)


def _of_others(function: Report) -> bool:
    """Whether a function fails only in experiments with several models."""
    return bool(function.failures) and all(
        failure.experiment.startswith(("two models", "a model of")) for failure in function.failures
    )


def _shared(explanation: Explanation) -> Explanation:
    """An explanation of the function with the code for modules added: a shared table, a shared object."""
    first = explanation.codes[0]
    if first.startswith("cache-without"):
        return replace(explanation, codes=("shared-table", *explanation.codes))
    if first == "shrinks-each-call":
        return replace(explanation, codes=("shared-object-mutated", *explanation.codes))
    return explanation


def _notes(module: Any, spec: Any) -> tuple[str, ...]:
    """Observations that are no failures: computed numbers that are saved with the weights, or trained."""
    notes = []
    for path, one in held(module).items():
        if one.kind == "buffer" and one.persistent and one.tensor.is_floating_point():
            notes.append(f"The module {FAULTS['buffer-persistent'].sentence.format(path=path)}.")
        if one.kind == "parameter" and one.tensor.requires_grad and not getattr(spec, "learned", True):
            notes.append(f"The module trains `{path}`, although the encoding is computed.")
    return tuple(notes)
