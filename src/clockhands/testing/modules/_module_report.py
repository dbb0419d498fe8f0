"""The report on a module: its check as a function, every treatment, and the explanations of what failed."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.arguments import one_of
from clockhands.encodings.additive import AdditiveCode
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.specs import describe
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import FAULTS
from clockhands.testing._checks import failures_of
from clockhands.testing._experiments import Experiment, ExperimentRun, Unasked
from clockhands.testing.functions import check_additive, check_bias, check_rotary
from clockhands.testing.modules._explanations import Outcome, by_tensors, explained, once
from clockhands.testing.modules._module_calls import Broke, ModuleOutput, ModuleSubject, Treated, Treatment, undone
from clockhands.testing.modules._module_tensors import as_it_was, held
from clockhands.testing.modules._treatments import treatments
from clockhands.testing.reports import Explanation, Failure, Report

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
            **asking.shape_words,
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
    return function, (*found, *(_with_shared_state(one) for one in function.explanations)), subject


def _failures(
    name: str, asked: str, subject: ModuleSubject, heard: ModuleOutput, wanted: ModuleOutput, *, treated: Treated
) -> tuple[tuple[Failure, ...], float]:
    answer = subject.compared(heard, wanted, treated, asked)
    return failures_of([ExperimentRun(Experiment(name, "", lambda _: []), [answer])], None)


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
        more = {"call": asking.shape, "axes": asking.axes, "positions": asking.places, "values": values}
    else:
        check = check_rotary
        more = {"call": asking.shape, "axes": asking.given_axes, "positions": asking.given_places}
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
                outcome, share = _outcome_of(subject, treatment, treated)
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


def _outcome_of(subject: ModuleSubject, treatment: Treatment, treated: Any) -> tuple[Outcome | None, float]:
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


def _with_shared_state(explanation: Explanation) -> Explanation:
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
