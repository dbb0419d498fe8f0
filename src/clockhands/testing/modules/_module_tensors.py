"""The tensors of a module (buffers, parameters and plain attributes): their changes, and restoring them."""

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clockhands.models.held_tensors import tensors_of
from clockhands.recognition.calling import as_numpy, dtype_of
from clockhands.recognition.diagnosis import Verdict, of_array
from clockhands.recognition.suspects import scaling_name


@dataclass(frozen=True)
class ModuleTensor:
    """One tensor of a module.

    Attributes:
        path: Its path in the module: ``rotary.inv_freq``.
        kind: ``"buffer"``, ``"parameter"`` or ``"attribute"``; a plain attribute is not cast, moved or saved.
        tensor: The tensor.
        persistent: Whether it is in the state dict.
    """

    path: str
    kind: str
    tensor: torch.Tensor
    persistent: bool


@dataclass(frozen=True)
class Changed:
    """A tensor whose numbers or dtype a treatment changed.

    Attributes:
        path, kind: As in `ModuleTensor`.
        before, after: Its dtype before and after.
        wrong, of: How many of its numbers changed, and how many it has.
        first: Index, old and new value of the first number that changed; None if only the dtype changed.
        ids: Whether it holds consecutive numbers: position ids.
    """

    path: str
    kind: str
    before: str
    after: str
    wrong: int
    of: int
    first: tuple[int, float, float] | None
    ids: bool

    @property
    def change_in_words(self) -> str:
        """A description of the change for messages."""
        kind = "learned numbers" if self.kind == "parameter" else self.kind
        dtypes = f"{self.before} before, {self.after} after" if self.before != self.after else self.before
        if self.first is None:
            return f"its {kind} `{self.path}` ({dtypes})"
        index, was, now = self.first
        return (
            f"its {kind} `{self.path}` ({dtypes}; {self.wrong:,} of {self.of:,} numbers changed, the first is number"
            f" {index}, {was:.7g} before and {now:.7g} after)"
        )


def held(module: torch.nn.Module) -> dict[str, ModuleTensor]:
    """Every tensor of a module and of its submodules, by path; a shared module is listed once, by its first path."""
    found: dict[str, ModuleTensor] = {}
    for prefix, owner in module.named_modules():
        for name, tensor, persistent in tensors_of(owner):
            kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            path = f"{prefix}.{name}" if prefix else name
            found[path] = ModuleTensor(path, "attribute" if persistent is None else kind, tensor, bool(persistent))
    return found


def changed(before: torch.nn.Module, after: torch.nn.Module) -> list[Changed]:
    """The tensors that differ between two modules of one structure, in the order of the module.

    Tensors on the meta device, and those with another shape, are skipped.
    """
    now = held(after)
    found = []
    for path, one in held(before).items():
        if path not in now or now[path].tensor.shape != one.tensor.shape:
            continue
        other = now[path].tensor
        if other.is_meta or one.tensor.is_meta:
            continue
        was, became = numbers(one.tensor), numbers(other)
        wrong = ~((was == became) | (np.isnan(was) & np.isnan(became)))
        if not wrong.any() and one.tensor.dtype == other.dtype:
            continue
        first = None
        if wrong.any():
            index = int(np.argmax(wrong))
            first = (index, float(np.real(was[index])), float(np.real(became[index])))
        ids = was.size > 1 and bool((np.diff(was) == 1).all())
        found.append(
            Changed(
                path,
                one.kind,
                dtype_of(one.tensor),
                dtype_of(other),
                int(wrong.sum()),
                int(wrong.size),
                first,
                ids,
            )
        )
    return found


def numbers(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor, flattened, as float64 or complex128."""
    array = as_numpy(tensor).reshape(-1)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def put(module: torch.nn.Module, path: str, tensor: torch.Tensor) -> None:
    """Set a tensor of a module, whatever its dtype was."""
    prefix, _, name = path.rpartition(".")
    owner = module.get_submodule(prefix)
    held_in: Any = vars(owner)
    for group in (owner._buffers, owner._parameters):  # noqa: SLF001 - setattr would refuse another dtype or kind
        if name in group:
            held_in = group
    if held_in is owner._parameters:  # noqa: SLF001
        tensor = torch.nn.Parameter(tensor, requires_grad=False)
    held_in[name] = tensor


def put_parameters(module: torch.nn.Module, like: torch.nn.Module) -> None:
    """Copy the learned numbers of another module, so that only computed numbers can differ."""
    theirs = dict(like.named_parameters())
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in theirs and theirs[name].shape == parameter.shape:
                parameter.data = theirs[name].detach().clone().to(parameter.dtype)


def spoil(module: torch.nn.Module, owners: set[str] | None = None) -> None:
    """Fill uninitialised tensors with NaN, or with the largest integer; only those at the paths ``owners``, if given.

    Uninitialised memory may by chance still hold the old numbers, so a test without this would depend on chance.
    """
    with torch.no_grad():
        for path, one in held(module).items():
            if one.tensor.is_meta or (owners is not None and path not in owners):
                continue
            if one.tensor.is_floating_point() or one.tensor.is_complex():
                one.tensor.fill_(float("nan"))
            elif one.tensor.dtype != torch.bool:
                one.tensor.fill_(torch.iinfo(one.tensor.dtype).max)


def spoiled(tensor: torch.Tensor) -> bool:
    """Whether all numbers of a tensor are those that `spoil` wrote."""
    if tensor.is_meta or not tensor.numel():
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.isnan().all())
    return tensor.dtype != torch.bool and bool((tensor == torch.iinfo(tensor.dtype).max).all())


def _groups(owner: torch.nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The dictionaries of a module's buffers, parameters and submodules, each with a copy of its contents."""
    groups: list[dict[str, Any]] = [owner._buffers, owner._parameters, owner._modules]  # type: ignore[list-item]  # noqa: SLF001
    return [(group, dict(group)) for group in groups]


@contextmanager
def as_it_was(module: torch.nn.Module) -> Iterator[None]:
    """Restore a module when the block ends, so that the caller's module is never changed."""
    kept = [
        (
            owner,
            dict(vars(owner)),
            _groups(owner),
            set(owner._non_persistent_buffers_set),  # noqa: SLF001
        )
        for owner in module.modules()
    ]
    tensors = [(one.tensor, one.tensor.detach().clone()) for one in held(module).values() if not one.tensor.is_meta]
    # Caches in plain containers are changed in place, so their contents are copied.
    remembered = [
        (value, copy.copy(value))
        for owner in module.modules()
        for name, value in vars(owner).items()
        if isinstance(value, dict | list | set) and not name.startswith("_")
    ]
    # The storage of a parameter may be replaced in place.
    stored = [(parameter, parameter.data) for parameter in module.parameters()]
    try:
        yield
    finally:
        for parameter, data in stored:
            parameter.data = data
        with torch.no_grad():
            for tensor, values in tensors:
                if not np.array_equal(numbers(tensor), numbers(values), equal_nan=True):
                    tensor.copy_(values)
        for container, contents in remembered:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(contents)
        for owner, attributes, groups, hidden in kept:
            for name in set(vars(owner)) - set(attributes):
                del vars(owner)[name]
            vars(owner).update(attributes)
            for group, members in groups:
                group.clear()
                group.update(members)
            owner._non_persistent_buffers_set.clear()  # noqa: SLF001
            owner._non_persistent_buffers_set.update(hidden)  # noqa: SLF001


_RATES = re.compile(r"freq|theta|rate|omega", re.IGNORECASE)
_SLOPES = re.compile(r"slope", re.IGNORECASE)
_TABLES = re.compile(r"cos|sin|freqs_cis|cache|pe$|weights?$|embed|position|table", re.IGNORECASE)


@dataclass(frozen=True)
class Wrong:
    """A tensor that differs from what the encoding defines.

    Attributes:
        code: The fault.
        held: The tensor.
        parameters: The values for the sentence of the fault.
        right: The correct numbers; None if they are not known.
        what: The kind of its numbers, as a word for messages.
    """

    code: str
    held: ModuleTensor
    parameters: Mapping[str, Any]
    right: np.ndarray | None
    what: str = "rows"


def wrong_tensors(module: torch.nn.Module, spec: Any) -> list[Wrong]:
    """The tensors of a module that differ from what the spec defines, frequencies first: tables are made from them."""
    found = []
    for one in held(module).values():
        if not (one.tensor.is_floating_point() or one.tensor.is_complex()) or one.tensor.is_meta:
            continue
        kind = _kind(one, spec)
        if kind is not None and (wrong := _beside(one, spec, kind)) is not None:
            found.append(wrong)
    return sorted(found, key=lambda one: one.what != "rates")


def _kind(one: ModuleTensor, spec: Any) -> str | None:
    """``"rates"``, ``"slopes"`` or ``"table"``, by a tensor's name and size; None if it belongs to no encoding."""
    name = one.path.rpartition(".")[2]
    if not one.tensor.is_complex():
        for kind, names in (("rates", _RATES), ("slopes", _SLOPES)):
            of = spec if kind == "slopes" else getattr(spec, "ladder", None)
            if one.tensor.numel() == len(getattr(of, kind, ())) > 0 and names.search(name):
                return kind
    # A learned table is not computed from the spec, and may start at zero.
    learned = one.kind == "parameter" and one.tensor.requires_grad
    return "table" if one.tensor.ndim >= 2 and _TABLES.search(name) and not learned else None


def _beside(one: ModuleTensor, spec: Any, kind: str) -> Wrong | None:
    """Compare a tensor with the numbers that the spec defines (`recognition.diagnosis`); None if it is right."""
    array = as_numpy(one.tensor)
    array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    dtype = str(one.tensor.dtype).removeprefix("torch.")
    found = None if spec is None else of_array(array, spec, kind, one.path.rpartition(".")[2], dtype)
    if found is None or found.held.shape != found.made.shape:
        return _by_itself(one, numbers(one.tensor)) if kind == "table" else None
    if found.verdict.code is None:
        return None
    right = found.made if found.made.size == one.tensor.numel() else None
    return Wrong(found.verdict.code, one, _parameters(found.verdict, spec, len(found.made)), right, found.what)


def _by_itself(one: ModuleTensor, values: np.ndarray) -> Wrong | None:
    """The fault of a table whose correct numbers are not known: not finite, all zero, or above 1e6; None if none."""
    with np.errstate(invalid="ignore"):
        size = np.abs(values)
    if values.size and not np.isfinite(size).all():
        where = int(np.argmax(~np.isfinite(size)))
        change_in_words = (
            f"{int((~np.isfinite(size)).sum()):,} of {size.size:,} numbers are not finite, the first is {where:,}"
        )
        return Wrong("table-uninitialised", one, {"told": change_in_words}, None)
    if values.size and not size.any():
        return Wrong("table-zero", one, {}, None)
    if values.size and size.max() > 1e6:
        change_in_words = f"it holds {values.reshape(-1)[int(np.argmax(size))]:.4g}"
        return Wrong("table-uninitialised", one, {"told": change_in_words}, None)
    return None


def _parameters(verdict: Verdict, spec: Any, pairs: int) -> dict[str, Any]:
    """The values for the sentence of a fault."""
    found = verdict.evidence
    scaling, change_in_words = getattr(spec, "scaling", None), ""
    if "stored" in found and "declared" in found:
        where = f"pair {found.get('pair')} has"
        if "position" in found:
            where = f"the {found['wave']} of pair {found['pair']} at position {found['position']} is"
        elif "head" in found:
            where = f"the slope of head {found['head']} is"
        unit = " rad/token" if where.endswith("has") else ""
        change_in_words = f"{where} {found['stored']:.7g}{unit}, expected {found['declared']:.7g}"
    if verdict.code == "buffer-uninitialised":
        change_in_words = f"{found['wrong']} of {found['pairs']} are wrong" + (
            f", {change_in_words}" if change_in_words else ""
        )
    if "rounded to" in found and verdict.code != "buffer-rounded":
        change_in_words += f"; they are rounded to {found['rounded to']}, too"
    if it_is := found.get("it is", found.get("behaves as")):
        change_in_words += f"; it holds {it_is}"
    further = ""
    if "scaling dropped" in found:
        further = f", and no scaling: {scaling_name(scaling)} is missing"
    elif "scaled twice" in found:
        further = ", scaled twice"
    elif "effective factor" in found:
        further = f", scaled by a factor of {found['effective factor']:.7g}"
    return {
        "told": change_in_words,
        "dtype": found.get("rounded to", found.get("read as", "")),
        "scaling": "none" if scaling is None else scaling_name(scaling),
        "other": found.get("scaling in effect", found.get("bytes of", "")),
        "further": further,
        "base": found.get("base in effect", 0.0),
        "factor": found.get("effective factor", 0.0),
        "declared": float(
            (getattr(spec, "base", None) or 0.0) if "base in effect" in found else found.get("declared factor", 0.0)
        ),
        "held": found.get("pairs", pairs),
        "pairs": pairs,
    }
