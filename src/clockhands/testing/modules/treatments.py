"""What is done to a module between two questions, and what it must then answer.

Every treatment works on a copy, or on a module that was built for it. What is learned is the caller's affair: a cast
rounds it, a file brings it back. What is computed has to be right after each.
"""

import copy
import pickle
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np
import torch

from clockhands.calling import Refused
from clockhands.testing.experiments import Unasked, telling
from clockhands.testing.modules.asking import Broke, ModuleSubject, Treated, Treatment
from clockhands.testing.modules.tensors import as_it_was, held, put_parameters, spoil

# What modules and frameworks call to compute anew what `to_empty` left without numbers.
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


def _after_coarser_tokens(subject: ModuleSubject) -> Treated:
    at = telling(min(subject.asking.length, 2100))
    wanted = subject.asking.hear(subject.copied(), positions=at)
    module = subject.copied()
    subject.asking.hear(module, dtype="bfloat16", positions=at)
    heard = subject.asking.hear(module, positions=at)
    return Treated(module, "has had bfloat16 tokens before", wanted=wanted, heard=heard)


def _deepcopy(subject: ModuleSubject) -> Treated:
    try:
        return Treated(copy.deepcopy(subject.original).eval(), "is copied by copy.deepcopy")
    except Exception as error:
        raise Broke(f"cannot be copied by copy.deepcopy: {_said(error)}") from error


def _pickle(subject: ModuleSubject) -> Treated:
    try:
        written = pickle.dumps(subject.original)
    except Exception as error:
        raise Unasked(f"it cannot be pickled: {_said(error)}") from error
    return Treated(pickle.loads(written).eval(), "is pickled and read again")


def _state_dict(subject: ModuleSubject) -> Treated:
    used = subject.copied()
    subject.asking.hear(used)
    fresh = subject.made() if subject.make is not None and subject.alike else subject.copied()
    try:
        fresh.load_state_dict(used.state_dict(), strict=True)
    except RuntimeError as error:
        raise Broke(f"cannot load the state dict of one that has been used: {_said(error)}") from error
    return Treated(fresh, "loads the state dict of one that has been used")


def emptied(subject: ModuleSubject, module: torch.nn.Module) -> torch.nn.Module:
    """The module as loaders leave it: given memory, hooks called, and what a state dict holds loaded."""
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
        raise Unasked("say make=, a function that builds the module, and one is built on the meta device")
    try:
        with torch.device("meta"):
            module = subject.make()
    except Exception as error:
        raise Unasked(f"it cannot be built on the meta device: {_said(error)}") from error
    if any(one.tensor.is_meta for one in held(module).values()):
        module = emptied(subject, module)
    put_parameters(module, subject.original)
    return Treated(
        module.eval(), "is built on the meta device, given memory by to_empty and loaded from its file", another=True
    )


def _made_coarse(subject: ModuleSubject) -> Treated:
    if subject.make is None or not subject.alike:
        raise Unasked("say make=, a function that builds the module, and one is built where bfloat16 is the default")
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        module = subject.make().eval()
    except Exception as error:
        raise Unasked(f"it cannot be built where bfloat16 is the default dtype: {_said(error)}") from error
    finally:
        torch.set_default_dtype(usual)
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.float32) if parameter.is_floating_point() else parameter.data
    put_parameters(module, subject.original)
    return Treated(module, "is built where bfloat16 is the default dtype")


def _again(subject: ModuleSubject) -> Treated:
    at = telling(subject.asking.length)
    wanted = subject.asking.hear(subject.copied(), positions=at)
    module = subject.copied()
    for _ in range(3):
        subject.asking.hear(module, positions=at)
    heard = subject.asking.hear(module, positions=at)
    return Treated(module, "is asked a fourth time", wanted=wanted, heard=heard)


def _after_longer(subject: ModuleSubject) -> Treated:
    """Few positions after many, on the same module, beside few on a new copy."""
    few = np.arange(min(8, subject.asking.length))
    wanted = subject.asking.hear(subject.copied(), positions=few)
    module = subject.copied()
    subject.asking.hear(module)
    heard = subject.asking.hear(module, positions=few)
    return Treated(module, f"has had a sequence of {subject.asking.length:,} tokens before", wanted=wanted, heard=heard)


def _training(subject: ModuleSubject) -> Treated:
    module = subject.copied().train()
    if any(getattr(one, "p", 0) for one in module.modules() if "Dropout" in type(one).__name__):
        raise Unasked("it drops numbers out while it is trained")
    return Treated(module, "is in training mode")


def _inference(subject: ModuleSubject) -> Treated:
    return Treated(subject.copied(), "runs in torch.inference_mode", around=torch.inference_mode)


def _trained_after_inference(subject: ModuleSubject) -> Treated:
    """A table that is made while nothing is recorded cannot be part of a recording."""
    if subject.asking.kind == "bias" or "offset" in subject.asking.called_as or subject.asking.called_as[0] == "q":
        raise Unasked("it is asked for gradients where it takes tokens and positions")

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
        raise Unasked(f"it gives no gradients: {_said(error)}") from error
    module = subject.copied()
    subject.asking.hear(module, around=torch.inference_mode)
    try:
        trained(module)
    except RuntimeError as error:
        raise Broke(f"cannot be trained after it has run in torch.inference_mode: {_said(error)}") from error
    # What it answers is not the question: another treatment asks that.
    return Treated(module, "is trained after it has run in torch.inference_mode", heard=subject.before)


def _autocast(subject: ModuleSubject) -> Treated:
    def around() -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16)

    return Treated(subject.copied(), "runs under torch.autocast to bfloat16", around=around)


def _moved(subject: ModuleSubject) -> Treated:
    """To a GPU and back; without one to the meta device, on which attributes that stay behind are refused."""
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
            raise Broke(f"cannot be moved: {stays}, and then {_said(error)}") from error
    raise Unasked("there is no other device here")


def _compiled(backend: str) -> Callable[[ModuleSubject], Treated]:
    def run(subject: ModuleSubject) -> Treated:
        module = subject.copied()
        torch._dynamo.reset()  # noqa: SLF001 - the module of that name is public
        if subject.asking.method is None:
            module.compile(backend=backend)
        else:
            # A method other than forward is compiled where it is looked up.
            compiled = torch.compile(getattr(module, subject.asking.method), backend=backend)
            setattr(module, subject.asking.method, compiled)
        return Treated(module, f"is compiled by torch.compile ({backend})", another=True)

    return run


def _several(subject: ModuleSubject) -> Treated:
    """One for each layer: the last of four is what the first is."""
    if subject.make is None:
        raise Unasked("say make=, a function that builds the module, and one is built for each of four layers")
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
    """One that is built after another was let go, or moved away as loaders do to free memory."""
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
    """One that is built after another was cast."""
    first = subject.made()
    kept = as_it_was(first)
    kept.__enter__()
    first.to(torch.bfloat16)
    with suppress(Refused):  # what a cast does to it is another experiment
        subject.asking.hear(first, dtype="bfloat16")
    return Treated(subject.made(), "is built after an earlier one was cast to bfloat16", kept=kept)


def _numbers(subject: ModuleSubject) -> Treated:
    missing = np.isnan(subject.before.rows)
    if missing.any():
        raise Broke(f"gives {int(missing.sum()):,} of {missing.size:,} numbers that are no numbers")
    return Treated(subject.original, "is asked", heard=subject.before)


def _nth(number: int) -> str:
    return ("first", "second", "third", "fourth")[number]


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def treatments(compiled: str | None, dtype: str) -> Iterable[Treatment]:
    """All of them, those that others are explained by first."""
    yield Treatment("numbers", "numbers", _numbers)
    yield Treatment("asked again", "again", _again)
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
        yield Treatment("built where bfloat16 is the default", "default dtype", _made_coarse)
    yield Treatment("after another was freed", "shared", _after_freed)
    yield Treatment("after another was cast", "shared", _beside_cast)
    yield Treatment("moved to another device", "moved", _moved)
    if compiled is not None:
        yield Treatment("compiled", "compile", _compiled(compiled))
