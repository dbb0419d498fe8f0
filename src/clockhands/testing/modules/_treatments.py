"""The treatments of a module under test (cast, copy, save, load, …), and the output that is required afterwards.

Every treatment works on a copy, or on a newly built module. Learned numbers may change, such as by the rounding of a
cast. Computed numbers must be right after each treatment.
"""

import copy
import functools
import pickle
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np
import torch

from clockhands.recognition.calling import Refused, error_text
from clockhands.recognition.probe_positions import probe_positions
from clockhands.testing._experiments import Unasked
from clockhands.testing.modules._module_calls import Broke, ModuleOutput, ModuleSubject, Treated, Treatment
from clockhands.testing.modules._module_tensors import as_it_was, held, put_parameters, spoil

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
    subject: ModuleSubject, what: str, at: np.ndarray, *before: Callable[[Callable[..., ModuleOutput]], ModuleOutput]
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
    shape = subject.asking.shape
    if shape is None or shape.by_name or not {*shape.takes} <= {"x", "positions"}:
        raise Unasked("gradients are checked only if it takes tokens and positions")

    def trained(module: torch.nn.Module) -> None:
        with torch.enable_grad():
            x, *positions = subject.asking.arguments("cpu")
            if x.is_floating_point():
                x.requires_grad_()
            made: Any = subject.asking.function(module)(x, *positions)
            made = sum(made) if isinstance(made, tuple) else made
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
