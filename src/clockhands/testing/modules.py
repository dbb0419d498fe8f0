"""`check_module`: whether a PyTorch module keeps its position code through all that is done to modules."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.arguments import one_of, shown
from clockhands.biases import BiasCode
from clockhands.calling import Refused
from clockhands.errors import InvalidType, InvalidValue
from clockhands.rotary import Rotary
from clockhands.specs import describe
from clockhands.testing.experiments import Answer, Experiment, Unasked
from clockhands.testing.explaining import Asked
from clockhands.testing.judging import failures_of, resolved
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report, settled

if TYPE_CHECKING:
    from clockhands.testing.module_explaining import Outcome
    from clockhands.testing.module_subject import Subject, Treatment

_THROUGHOUT = "whatever is done to it"


def check_module(
    module: Any = None,
    like: Any = None,
    *,
    make: Callable[..., Any] | None = None,
    call: str | Callable[..., Any] = "x, positions",
    method: str | None = None,
    axes: str | None = None,
    positions: str | None = None,
    dtype: str = "float32",
    layout: str | None = None,
    width: int | None = None,
    length: int | None = None,
    values: Any = None,
    restore: Callable[[Any], Any] | None = None,
    without: Collection[str] = (),
    compile: bool | str = False,  # noqa: A002 - what PyTorch calls it
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    """Check that a module that applies a position code goes on doing so, whatever is done to it.

    It is asked, treated, and asked again: cast to other dtypes and back, copied, pickled, written to a state dict and
    read, emptied on the meta device and loaded, built there, built where bfloat16 is the default, asked many times, in
    training, in inference mode and under autocast, beside other modules of the process and after them, compiled. Each
    treatment is done to a copy, or to a module that ``make`` builds: the caller's is never changed. What is learned
    may be rounded by a cast and is loaded from a file; what is computed has to be right after each.

    Args:
        module: The module; or a class or a function that builds one, as ``make``.
        like: The code that it should be, a spec or a preset's name: it is then also held to the code's exact numbers,
            as by `check_rotary`, `check_additive` or `check_bias`. None compares it with itself only.
        make: Builds the module: a function of a spec, so that models of several codes can be asked side by side, or a
            function of nothing.
        call: What it is called with: those of `check_rotary` and `check_bias`; ``"x, positions -> cos, sin"`` and
            ``"positions -> cos, sin"`` where it gives cosines and sines, by which tokens [batch, heads, seq, width]
            are then turned; or a function(module, x, positions), or (module, x) where it counts its rows itself.
        method: The name of the method that is called, if not the module itself.
        axes: The axes of x, as for `check_rotary`.
        positions: The axes of the positions, as for `check_rotary`.
        dtype: The dtype of its tokens.
        layout: The layout in which cosines and sines turn, where ``like`` does not say: ``"halves"`` unless said.
        width: Channels of its tokens; found out unless said.
        length: Positions 0 to ``length - 1`` are asked; found out unless said.
        values: The learned numbers of ``like``.
        restore: What is done to a module after ``to_empty``, such as a model's ``_init_weights``; a module's own
            ``reset_parameters``, ``reset_buffers``, ``init_weights`` and the like are called unasked.
        without: Names of treatments to leave out.
        compile: Whether it is compiled too, by the backend ``"aot_eager"``, or the backend's name. It is not unless
            asked for: PyTorch's compiler needs seconds to be loaded, more than all other treatments together.
        timeout: Seconds for a call.
        raises: Whether a failure is raised; else it is in the report.

    Returns:
        The report. ``called["notes"]`` holds what is worth knowing and is no failure.

    Accuracy: after a treatment numbers may be off by their rounding to the dtype of the answer, and where other
        arithmetic may have made them, by that of float32; derived in `clockhands.testing.module_bounds`.

    Raises:
        CheckFailed: Something failed; the message is the report.
        CannotCheck: The module cannot be called like that; the message says what came back.
        InvalidValue, InvalidType: An argument cannot be used, or is no module.

    Example::

        from clockhands.torch import Rotary

        spec = ch.Rotary(head_width=64)
        check_module(Rotary(spec), spec, make=Rotary)
    """
    __tracebackhide__ = True
    module, make = _given(module, make)
    spec = None if like is None else resolved(like, Rotary | AdditiveCode | BiasCode, "position")  # type: ignore[arg-type]
    make_one, build = _builders(make, spec)
    if module is None:
        assert make_one is not None
        module = _first(make_one)
        if not _is_module(module):
            raise InvalidType(
                f"Expected a function that builds a torch.nn.Module, got one that gives {shown(module)}.",
                "Give the module itself, or make=lambda: Module(...).",
            )
    from clockhands.testing.module_asking import Asking
    from clockhands.testing.module_explaining import explained, once
    from clockhands.testing.module_subject import Subject
    from clockhands.testing.module_tensors import as_it_was

    known = {"layout": layout or getattr(spec, "layout", "halves"), "width": width or _width(spec)}
    one_of("layout", known["layout"], ("halves", "interleaved"), "It says which channels cosines and sines turn.")
    if call == "x, positions" and isinstance(spec, BiasCode):
        call = "queries, keys"
    with as_it_was(module):
        asking = Asking(
            module.eval(),
            call=call,
            method=method,
            axes=axes,
            positions=positions,
            dtype=dtype,
            length=_length(spec, length),
            coordinates=spec.number_of_axes if isinstance(spec, Rotary | AdditiveCode) else 1,
            is_bias=isinstance(spec, BiasCode) or call in ("queries, keys", "counts"),
            timeout=timeout,
            **known,
        )
    try:
        subject = Subject(module, asking, make_one, build, restore, spec)
    except Refused as error:
        raise CannotCheck(f"The module was called: {error}.", "Say call=, axes= or length= for what it takes.") from (
            error
        )
    function, explanations, subject = _untreated(subject, values)
    backend = None if compile is False else "aot_eager" if compile is True else compile
    outcomes, made, left_out, worst = _treated(subject, backend, without, _fastest(spec))
    found = tuple(explained(subject, outcomes, bool(explanations), _fastest(spec)))
    # What only others of the process bring about is told first by what was done to these.
    explanations = once(found + explanations if function is not None and _of_others(function) else explanations + found)
    if function is not None:
        left_out, worst = {**function.left_out, **left_out}, max(worst, function.worst)
    before = () if function is None else function.experiments
    failures = () if function is None else function.failures
    return settled(
        Report(
            subject=type(module).__name__,
            kind="module",
            like=f"the same {_THROUGHOUT}" if spec is None else f"{describe(spec)}, {_THROUGHOUT}",
            experiments=(*before, *made),
            left_out=left_out,
            failures=(*failures, *(one.failure for one in outcomes)),
            explanations=explanations,
            called={
                "library": "torch",
                "dtype": dtype,
                "calls": asking.calls + (0 if function is None else function.called["calls"]),
                "rows": 0 if function is None else function.called["rows"],
                "length": asking.length,
                "notes": (*_notes(module, spec), *subject.notes),
            },
            worst=worst,
            spec=spec,
        ),
        raises,
    )


def _untreated(subject: "Subject", values: Any) -> tuple[Report | None, tuple[Explanation, ...], "Subject"]:
    """What is to be said before any treatment: as of a function, what explains it, and what is to be treated.

    Where what a module holds is all that is wrong with it, a mended one is treated: what was wrong has been said.
    """
    from clockhands.testing.module_bounds import allowed
    from clockhands.testing.module_explaining import by_tensors
    from clockhands.testing.module_subject import alike

    if subject.spec is None:
        return None, (), subject
    found, mended = by_tensors(subject)
    if mended is not None:
        function = _as_function(subject, mended, values)
        if function.sound:
            whole = replace(subject, original=mended)
            heard, wanted = subject.before, whole.before
            room = allowed(subject.asking, wanted, heard.dtype, True, _fastest(subject.spec))
            answer = Answer("a few positions", *alike(heard.rows, wanted.rows), room, wanted.positions)
            failures, worst = failures_of([Asked(Experiment("a few positions", "", lambda _: []), [answer])], ())
            if failures:
                return replace(function, failures=failures, worst=worst), tuple(found), whole
            return function, (), subject  # nobody uses what it holds
    function = _as_function(subject, subject.original, values)
    if function.sound:
        return function, (), subject
    return function, (*found, *(_shared(one) for one in function.explanations)), subject


def _given(module: Any, make: Callable[..., Any] | None) -> tuple[Any, Callable[..., Any] | None]:
    """A module and what builds it, from what was given first."""
    if _is_module(module):
        return module, make
    if module is None and make is not None:
        return None, make
    if callable(module) and make is None:
        return None, module
    raise InvalidType(
        f"Expected a torch.nn.Module, or make=, a function that builds one, got {shown(module)}.",
        "check_rotary, check_additive and check_bias check functions.",
    )


def _first(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        raise CannotCheck(
            f"`make` was called to build the module: it raised {type(error).__name__}: {error}.",
            "Give a function of nothing, lambda: Module(...), or a function of a spec and like=.",
        ) from error


def _is_module(value: Any) -> bool:
    import sys

    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _builders(
    make: Callable[..., Any] | None, spec: Any
) -> tuple[Callable[[], Any] | None, Callable[[Any], Any] | None]:
    """What builds a module like it, and what builds one of another spec."""
    if make is None:
        return None, None
    try:
        needed = [
            one
            for one in inspect.signature(make).parameters.values()
            if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        needed = []
    if not needed:
        return make, None
    if spec is None or len(needed) > 1:
        names = ", ".join(one.name for one in needed)
        there = "no `like` to give it" if spec is None else "one spec to give it"
        raise InvalidValue(
            f"`make` takes ({names}), and there is {there}.",
            "Give a function of nothing, lambda: Module(...), or a function of a spec and like=.",
        )
    return (lambda: make(spec)), make


def _width(spec: Any) -> int | None:
    return spec.head_width if isinstance(spec, Rotary) else getattr(spec, "width", None)


def _length(spec: Any, length: int | None) -> int | None:
    """Positions to ask: fewer than usual where the rates of a code follow the length in use."""
    if length is None and isinstance(spec, Rotary):
        rotary = import_module("clockhands.testing.rotary")
        found = rotary.asked_length(spec, None)
        return None if found == rotary.LENGTH else found
    return length


def _fastest(spec: Any) -> float:
    rates = getattr(spec, "rates", None)
    each = () if rates is None else (np.abs(np.atleast_1d(one)) for one in rates)  # codes of several axes have rows
    return max([1.0, *(float(one.max(initial=0)) for one in each)])


def _as_function(subject: "Subject", module: Any, values: Any) -> Report:
    """The module as a function, beside the code that it should be."""
    from clockhands.testing.module_tensors import as_it_was

    asking, spec, build = subject.asking, subject.spec, subject.build
    more: dict[str, Any]
    if isinstance(spec, BiasCode):
        check = import_module("clockhands.testing.biases").check_bias
        more = {"call": "queries, keys" if callable(asking.call) else asking.call, "values": values}
    elif isinstance(spec, AdditiveCode):
        check = import_module("clockhands.testing.additive").check_additive
        more = {"call": asking.called_as, "axes": asking.axes, "positions": asking.places, "values": values}
    else:
        check = import_module("clockhands.testing.rotary").check_rotary
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
    subject: "Subject", backend: str | None, without: Collection[str], fastest: float
) -> tuple[list["Outcome"], list[str], dict[str, str], float]:
    """Make every treatment: those that failed, the names of all, those that could not be made, the largest share."""
    from clockhands.testing.module_subject import Broke, Treatment, undone
    from clockhands.testing.module_treatments import treatments

    outcomes, made, left_out, worst = [], [], {}, 0.0
    known = [*treatments(backend, subject.asking.dtype), Treatment("positions matter", "positions", _positions_matter)]
    names = {one.name for one in (*known, *treatments("eager", "float32"))}
    for name in without:
        one_of("without", name, tuple(sorted(names)), "It names treatments.")
    for treatment in known:
        if treatment.name in without:
            left_out[treatment.name] = "it was not wanted"
            continue
        treated = None
        try:
            treated = treatment.run(subject)
            with undone(treated.kept):
                outcome, share = _asked(subject, treatment, treated, fastest)
        except Unasked as reason:
            left_out[treatment.name] = str(reason)
            continue
        except (Broke, Refused) as error:
            if isinstance(error, Refused) and treatment.group in ("cast", "coarse", "after coarse", "autocast"):
                # A module that says no is not one that is silently wrong.
                left_out[treatment.name] = str(error)
                continue
            outcome, share = _refused(treatment, treated, str(error)), np.inf
        except Exception as error:  # noqa: BLE001 - whatever the module's own hooks raise
            outcome, share = _refused(treatment, treated, f"raised {type(error).__name__}: {error}"), np.inf
        made.append(treatment.name)
        worst = max(worst, share)
        if outcome is not None:
            outcomes.append(outcome)
            # What it builds is not what it built before, and so is all that is done to that.
            subject.alike = subject.alike and treatment.group != "several"
    return outcomes, made, left_out, worst


def _asked(subject: "Subject", treatment: "Treatment", treated: Any, fastest: float) -> tuple["Outcome | None", float]:
    from clockhands.testing.module_bounds import allowed
    from clockhands.testing.module_explaining import Outcome
    from clockhands.testing.module_subject import alike, differs

    wanted = treated.wanted or subject.before
    heard = treated.heard or subject.asking.hear(treated.module, dtype=treated.dtype, around=treated.around)
    if heard.rows.shape != wanted.rows.shape:
        shapes = f"gave {list(heard.rows.shape)} numbers for {list(wanted.rows.shape)}"
        return _refused(treatment, treated, shapes), np.inf
    room = allowed(subject.asking, wanted, treated.rounded or heard.dtype, treated.another, fastest)
    answer = Answer(f"when it {treated.what}", *alike(heard.rows, wanted.rows), room, wanted.positions)
    failures, worst = failures_of([Asked(Experiment(treatment.name, "", lambda _: []), [answer])], ())
    if not failures:
        if treated.rounded is not None and differs(heard, wanted, subject.asking):
            subject.notes.append(f"When it {treated.what}, its numbers stay rounded, as learned ones do.")
        return None, worst
    failure = replace(failures[0], evidence={**failures[0].evidence, "dtype": heard.dtype})
    return Outcome(treatment, failure, treated, heard), worst


def _refused(treatment: "Treatment", treated: Any, said: str) -> "Outcome":
    from clockhands.testing.module_explaining import Outcome

    lead = f"when it {treated.what}, " if treated is not None else ""
    said = said if said.startswith(("it ", "cannot")) else f"it {said}"
    return Outcome(treatment, Failure(treatment.name, f"{lead}{said}.", {"said": said}), treated, None)


def _positions_matter(subject: "Subject") -> Any:
    """Whether anything that it gives depends on where its tokens stand: else there is no code."""
    from clockhands.testing.module_subject import Broke, Treated

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
        # Tokens of different rows differ, so the rows of a table or of turned tokens are told apart by their channels.
        rows = asking.hear(module).rows
        same = bool((np.abs(np.abs(rows) - 1) < 1e-6).all())
    if same:
        raise Broke(f"gives tokens at positions 0 and {asking.length - 3:,} the same numbers")
    return Treated(module, "is asked at other positions", heard=subject.before)


def _of_others(function: Report) -> bool:
    """Whether a function is wrong only where there are several models."""
    return bool(function.failures) and all(
        failure.experiment.startswith(("two models", "a model of")) for failure in function.failures
    )


def _shared(explanation: Explanation) -> Explanation:
    """What modules call what a function's check has found: a shared table, a shared object."""
    first = explanation.codes[0]
    if first.startswith("cache-without"):
        return replace(explanation, codes=("shared-table", *explanation.codes))
    if first == "shrinks-each-call":
        return replace(explanation, codes=("shared-object-mutated", *explanation.codes))
    return explanation


def _notes(module: Any, spec: Any) -> tuple[str, ...]:
    """What is worth knowing and no failure: computed numbers that are written with the weights, or trained."""
    from clockhands.faults import FAULTS
    from clockhands.testing.module_tensors import held

    notes = []
    for path, one in held(module).items():
        if one.kind == "buffer" and one.persistent and one.tensor.is_floating_point():
            notes.append(f"It {FAULTS['buffer-persistent'].sentence.format(path=path)}.")
        if one.kind == "parameter" and one.tensor.requires_grad and not getattr(spec, "learned", True):
            notes.append(f"It trains `{path}`, although the code is computed.")
    return tuple(notes)
