"""Making the treatments of a module, and what is to be said before and after them."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.arguments import one_of
from clockhands.biases import BiasCode
from clockhands.calling import Refused
from clockhands.faults import FAULTS
from clockhands.specs import describe
from clockhands.testing.experiments import Asked, Experiment, Unasked, failures_of
from clockhands.testing.functions import check_additive, check_bias, check_rotary
from clockhands.testing.modules.asking import Broke, Heard, ModuleSubject, Treated, Treatment, undone
from clockhands.testing.modules.explaining import Outcome, by_tensors, explained, once
from clockhands.testing.modules.tensors import as_it_was, held
from clockhands.testing.modules.treatments import treatments
from clockhands.testing.reports import Explanation, Failure, Report

_THROUGHOUT = "whatever is done to it"


def report_of_module(subject: ModuleSubject, values: Any, backend: str | None, without: Collection[str]) -> Report:
    """Ask a module as a function, make every treatment, and report what is wrong before and after."""
    spec, asking, original = subject.spec, subject.asking, subject.original
    function, explanations, subject = _untreated(subject, values)
    outcomes, made, left_out, worst = _treated(subject, backend, without)
    found = tuple(explained(subject, outcomes, bool(explanations)))
    # What only others of the process bring about is told first by what was done to these.
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
    """What is to be said before any treatment: as of a function, what explains it, and what is to be treated.

    Where what a module holds is all that is wrong with it, a mended one is treated: what was wrong has been said.
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
            return function, (), subject  # nobody uses what it holds
    function = _as_function(subject, subject.original, values)
    if function.sound:
        return function, (), subject
    return function, (*found, *(_shared(one) for one in function.explanations)), subject


def _failures(
    name: str, asked: str, subject: ModuleSubject, heard: Heard, wanted: Heard, *, treated: Treated
) -> tuple[tuple[Failure, ...], float]:
    answer = subject.compared(heard, wanted, treated, asked)
    return failures_of([Asked(Experiment(name, "", lambda _: []), [answer])], ())


def _as_function(subject: ModuleSubject, module: Any, values: Any) -> Report:
    """The module as a function, beside the code that it should be."""
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
    """Make every treatment: those that failed, the names of all, those that could not be made, the largest share."""
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
                outcome, share = _asked(subject, treatment, treated)
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


def _asked(subject: ModuleSubject, treatment: Treatment, treated: Any) -> tuple[Outcome | None, float]:

    wanted = treated.wanted or subject.before
    heard = treated.heard or subject.asking.hear(treated.module, dtype=treated.dtype, around=treated.around)
    if heard.rows.shape != wanted.rows.shape:
        shapes = f"gave {list(heard.rows.shape)} numbers for {list(wanted.rows.shape)}"
        return _refused(treatment, treated, shapes), np.inf
    failures, worst = _failures(treatment.name, f"when it {treated.what}", subject, heard, wanted, treated=treated)
    if not failures:
        if treated.rounded is not None and subject.differs(heard, wanted):
            subject.notes.append(f"When it {treated.what}, its numbers stay rounded, as learned ones do.")
        return None, worst
    failure = replace(failures[0], evidence={**failures[0].evidence, "dtype": heard.dtype})
    return Outcome(treatment, failure, treated, heard), worst


def _refused(treatment: Treatment, treated: Any, said: str) -> Outcome:

    lead = f"when it {treated.what}, " if treated is not None else ""
    said = said if said.startswith(("it ", "cannot")) else f"it {said}"
    return Outcome(treatment, Failure(treatment.name, f"{lead}{said}.", {"said": said}), treated, None)


def _positions_matter(subject: ModuleSubject) -> Any:
    """Whether anything that it gives depends on where its tokens stand: else there is no code."""
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
    notes = []
    for path, one in held(module).items():
        if one.kind == "buffer" and one.persistent and one.tensor.is_floating_point():
            notes.append(f"It {FAULTS['buffer-persistent'].sentence.format(path=path)}.")
        if one.kind == "parameter" and one.tensor.requires_grad and not getattr(spec, "learned", True):
            notes.append(f"It trains `{path}`, although the code is computed.")
    return tuple(notes)
