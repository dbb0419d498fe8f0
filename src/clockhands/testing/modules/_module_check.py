"""`check_module`: whether a PyTorch module keeps its position encoding after casts, copies, saving and loading.

`check_attention`: whether attention layers use it as a config declares.
"""

import inspect
from collections.abc import Callable, Collection
from typing import Any

from clockhands.arguments import one_of
from clockhands.encodings.additive import AdditiveCode
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition.calling import Refused
from clockhands.testing._checks import resolved
from clockhands.testing.functions._rotary import LENGTH, checked_length
from clockhands.testing.kinds import is_module
from clockhands.testing.reports import CannotCheck, Report, settled


def check_module(
    module: Any = None,
    like: Any = None,
    *,
    make: Callable[..., Any] | None = None,
    call: str | Callable[..., Any] | None = None,
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
    """Check that a module that applies a position encoding still applies it correctly after every treatment.

    It is called, treated, and called again. The treatments: a cast to other dtypes and back, a copy, pickling, saving
    and loading a state dict, ``to_empty`` from the meta device and loading, building on the meta device, building with
    bfloat16 as the default dtype, repeated calls, training mode, inference mode, autocast, other modules in the process
    before it or next to it, and compilation. Each treatment is applied to a copy, or to a module that ``make`` builds:
    the caller's module is never changed. Learned numbers may be rounded by a cast, and are loaded from the state dict;
    computed numbers must be correct after each treatment.

    Args:
        module: The module; or a class or a function that builds one, as ``make``.
        like: The expected encoding, a spec or a preset's name: its exact numbers are then checked too, as by
            `check_rotary`, `check_additive` or `check_bias`. None compares the module with itself only.
        make: Builds the module: a function of a spec, so that models of several encodings can be compared, or a
            function without arguments.
        call: The arguments, as for `check_rotary` and `check_bias`; or a function(module, x, positions), or (module, x)
            if it counts its rows itself. By default it is read from the names of the parameters.
        method: The name of the method to call, if not the module itself.
        axes: The axes of x, as for `check_rotary`.
        positions: The axes of the positions, as for `check_rotary`.
        dtype: The dtype of its tokens.
        layout: The layout of cosines and sines: by default that of ``like``, or ``"halves"`` without one.
        width: The number of dimensions of its tokens; detected by default.
        length: Positions 0 to ``length - 1`` are checked; detected by default.
        values: The learned numbers of ``like``.
        restore: A function to call on a module after ``to_empty``, such as a model's ``_init_weights``. The module's
            own ``reset_parameters``, ``reset_buffers``, ``init_weights`` and the like are always called.
        without: Names of treatments to skip.
        compile: Whether it is compiled too: true for the backend ``"aot_eager"``, or the name of a backend. False by
            default, because loading PyTorch's compiler takes seconds, more than all other treatments together.
        timeout: The time limit of a call, in seconds.
        raises: Whether a failure is raised; otherwise it is only in the report.

    Returns:
        The report. ``called["notes"]`` holds observations that are no failures.

    Accuracy: after a treatment, the error of a number may be that of rounding to the dtype of the output, plus that of
        float32 if other arithmetic may have computed it; derived in `clockhands.testing.bounds`.

    Raises:
        CheckFailed: An experiment failed; the message is the report.
        CannotCheck: The module cannot be called like that; the message gives the call and its result.
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
    from clockhands.testing.modules._module_calls import ModuleCaller, ModuleSubject
    from clockhands.testing.modules._module_report import report_of_module
    from clockhands.testing.modules._module_tensors import as_it_was

    rotary = spec if isinstance(spec, Rotary) else None
    known = {"layout": layout or getattr(spec, "layout", "halves"), "width": width or _width(spec)}
    one_of(
        "layout", known["layout"], ("halves", "interleaved"), "It says which dimensions the cosines and sines rotate."
    )
    if call is None and isinstance(spec, BiasCode):
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
            rotary=rotary,
            additive=isinstance(spec, AdditiveCode),
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


def check_attention(
    module: Any = None,
    like: Any = None,
    *,
    layer: int | None = None,
    call: Callable[..., Any] | None = None,
    raises: bool = True,
) -> Report:
    """Check that an attention layer, or each layer of a model, uses positions as a config declares.

    The module is run on texts that show them: of one repeated token, whose queries differ by their rotation alone, and
    of one token at position 0, where scores are the product of two projections times a number. Compared are the
    rotation of queries and keys (none where none is declared), the positions of queries with those of keys, the number
    that scores are multiplied by (``1 / sqrt(width)``, the value of a key, with the magnitude of YaRN in latent
    attention), how they grow with the position of a query, and the bias that is added to them.

    Args:
        module: A ``torch.nn.Module`` that calls ``scaled_dot_product_attention`` or ``flex_attention``, or puts a
            product of queries and keys into a softmax: one layer that takes hidden states [batch, seq, width], or a
            model that takes token ids [batch, seq]. Its parameters are read by their names: positions, cosines and
            sines in the usual layouts, a mask; the cosines are made from ``like``. It is not changed.
        like: The config: a target, as ``clockhands audit`` takes it, ``TARGET:layer=N``, a dict, or an object such as
            ``LlamaConfig()``. Its sizes are those of the module.
        layer: The number of the layer that the module is, where the layers of the config differ and the module has no
            ``layer_idx``.
        call: A function(module, x, positions), where the names of parameters do not say how it is called; x are
            hidden states, or token ids of a model, positions [batch, seq] or [seq].
        raises: Whether a failure is raised; otherwise it is only in the report.

    Returns:
        The report. ``left_out`` holds what could not be measured, with the reason.

    Accuracy: a query may differ by ``2**-12`` of its size, or 16 roundings of its dtype if that is more; a factor on
        scores by twice this share.

    Raises:
        CheckFailed: Something is not as declared; the message is the report.
        CannotCheck: The module cannot be called, its attention is not seen, its sizes are not those of the config, or
            nothing could be measured.
        InvalidValue, InvalidType: An argument cannot be used, or is no module.

    Example::

        check_attention(Attention(), {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4})
    """
    __tracebackhide__ = True
    if not is_module(module):
        raise InvalidType(
            f"Expected a torch.nn.Module, got {shown(module)}.", "check_rotary and check_bias check functions."
        )
    if like is None:
        raise InvalidType(
            "`like` is missing: the config that says what the layers should do.",
            "Give the path of a model, a dict, or an object such as LlamaConfig().",
        )
    from clockhands.testing.modules._attention_check import check_layers
    from clockhands.testing.modules._module_tensors import as_it_was

    module = _first(module) if isinstance(module, type) else module
    with as_it_was(module):
        report = check_layers(module.eval(), like, layer=layer, call=call, name=type(module).__name__)
    return settled(report, raises)


def _given(module: Any, make: Callable[..., Any] | None) -> tuple[Any, Callable[..., Any] | None]:
    """The module and its builder; a class or a function as the first argument is a builder. Either may be None."""
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
    """Whether the value is a module, not a class."""
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
    """A builder without arguments, and a builder of any spec; each is None if ``make`` does not allow it."""
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
    """The number of positions to check; None to detect it. Smaller if the frequencies depend on the length in use."""
    if length is None and isinstance(spec, Rotary):
        found = checked_length(spec, None)
        return None if found == LENGTH else found
    return length
