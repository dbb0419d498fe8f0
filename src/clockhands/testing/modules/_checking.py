"""`check_module`: whether a PyTorch module keeps its position code after casts, copies, saving, loading and more."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

from clockhands.additive import AdditiveCode
from clockhands.arguments import one_of, shown
from clockhands.biases import BiasCode
from clockhands.calling import Refused
from clockhands.errors import InvalidType, InvalidValue
from clockhands.rotary import Rotary
from clockhands.testing._experiments import resolved
from clockhands.testing.functions._rotary import LENGTH, asked_length
from clockhands.testing.kinds import is_module
from clockhands.testing.reports import CannotCheck, Report, settled


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
    """Check that a module that applies a position code goes on doing so, after every treatment.

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
        arithmetic may have made them, by that of float32; derived in `clockhands.testing.bounds`.

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
        if not _is_built(module):
            raise InvalidType(
                f"Expected a function that builds a torch.nn.Module, got one that returns {shown(module)}.",
                "Give the module itself, or make=lambda: Module(...).",
            )
    from clockhands.testing.modules._asking import ModuleCaller, ModuleSubject
    from clockhands.testing.modules._tensors import as_it_was
    from clockhands.testing.modules._treatments import report_of_module

    known = {"layout": layout or getattr(spec, "layout", "halves"), "width": width or _width(spec)}
    one_of(
        "layout", known["layout"], ("halves", "interleaved"), "It says which dimensions the cosines and sines rotate."
    )
    if call == "x, positions" and isinstance(spec, BiasCode):
        call = "queries, keys"
    with as_it_was(module):
        asking = ModuleCaller(
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
        subject = ModuleSubject(module, asking, make_one, build, restore, spec)
    except Refused as error:
        raise CannotCheck(
            f"The module failed when it was called: {error}.", "Pass call=, axes= or length= to say what it accepts."
        ) from (error)
    backend = None if compile is False else "aot_eager" if compile is True else compile
    return settled(report_of_module(subject, values, backend, without), raises)


def _given(module: Any, make: Callable[..., Any] | None) -> tuple[Any, Callable[..., Any] | None]:
    """A module and what builds it, from what was given first."""
    if _is_built(module):
        return module, make
    if module is None and make is not None:
        return None, make
    if callable(module) and make is None:
        return None, module
    raise InvalidType(
        f"Expected a torch.nn.Module, or make=, a function that builds one, got {shown(module)}.",
        "check_rotary, check_additive and check_bias check functions.",
    )


def _is_built(value: Any) -> bool:
    """Whether it is a module; a class of them has to be built first."""
    return is_module(value) and not isinstance(value, type)


def _first(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        raise CannotCheck(
            f"`make` was called to build the module: it raised {type(error).__name__}: {error}.",
            "Give a function without arguments, lambda: Module(...), or a function of a spec and like=.",
        ) from error


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
            f"`make` takes the arguments ({names}), but there is {there}.",
            "Give a function without arguments, lambda: Module(...), or a function of a spec and like=.",
        )
    return (lambda: make(spec)), make


def _width(spec: Any) -> int | None:
    return spec.head_width if isinstance(spec, Rotary) else getattr(spec, "width", None)


def _length(spec: Any, length: int | None) -> int | None:
    """Positions to ask: fewer than usual where the rates of a code follow the length in use."""
    if length is None and isinstance(spec, Rotary):
        found = asked_length(spec, None)
        return None if found == LENGTH else found
    return length
