"""What the installed Transformers makes of a config: ladders of its rotary modules, pairs of its code."""

import copy
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from clockhands.models.class_readings import LAYER_KINDS, ClassLadder

# The label of a module that has one ladder for all layers.
ALL = ""


def read_config(values: Mapping[str, Any]) -> Any:
    """The config object that the library makes of a config file."""
    import transformers

    # A copy: the library writes into the objects that it is given.
    held = copy.deepcopy({key: value for key, value in values.items() if key != "model_type"})
    return transformers.CONFIG_MAPPING[values["model_type"]].from_dict(held)


@contextmanager
def in_double(values: Mapping[str, Any]) -> Iterator[None]:
    """The library's formulas for a config in double precision, where they ask for single: its rounding is no matter.

    A module that is imported meanwhile would hold the wrong types for as long as the process runs: the table of sizes
    in ``safetensors.torch`` would have no float32. So the code of the config's type is imported before.

    Raises:
        AssertionError: Another module was imported for the first time.
    """
    from clockhands.models.class_modules import modeling_code

    importlib.import_module("safetensors.torch")
    importlib.import_module("clockhands.models.class_encodings")
    modeling_code(read_config(values))
    before = set(sys.modules)
    with float32_is_double():
        yield
    late = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names)
    assert not late, f"imported while float32 was float64, so import them before: {late}"


@contextmanager
def float32_is_double() -> Iterator[None]:
    """Whoever asks PyTorch for single precision gets double, and so does what is imported meanwhile."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        for name in ("float", "float32"):
            patch.setattr(torch, name, torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def ladders(config: Any, length: int | None = None) -> dict[str, ClassLadder]:
    """The ladders of the text part by kind of layer, as they are after a sequence of that many tokens."""
    from clockhands.models import class_encodings

    return class_encodings.ladders(class_encodings.rotary_module(config), length)


def kinds(config: Any) -> list[str] | None:
    """What each layer sees, where the config of the library says it."""
    listed: list[str] | None = getattr(config, "layer_types", None)
    return None if listed is None else [LAYER_KINDS.get(name, name) for name in listed]


def gaps(
    config: Any,
    found: Any,
    length: int | None = None,
    relative: float = 1e-6,
    theirs: Mapping[str, ClassLadder] | None = None,
) -> Iterator[str]:
    """Ladders of the library that the resolved codes of the text part do not have, and the other way round."""
    rotary = [code for code in found.codes if code.kind == "rotary" and code.part == "text"]
    theirs = ladders(config, length) if theirs is None else theirs
    listed = kinds(config)
    if listed is not None and len(theirs) > 1:
        # A module makes the ladders of all kinds, whether or not a layer is of that kind.
        theirs = {label: ladder for label, ladder in theirs.items() if LAYER_KINDS.get(label) in listed}
    for label, ladder in theirs.items():
        if not any(same(code, ladder, relative) for code in rotary):
            ours = [
                (code.layers, code.rates and (len(code.rates), code.rates[-1]), code.attention_factor)
                for code in rotary
            ]
            yield f"{label or 'all'}: {len(ladder.rates)}, {ladder.rates[-1]}, {ladder.factor}; resolved {ours}"
    for code in rotary:
        if not any(same(code, ladder, relative) for ladder in theirs.values()):
            yield f"{code.layers}: no module of the library has the resolved ladder"


def same(code: Any, ladder: ClassLadder, relative: float) -> bool:
    """Whether a code has a ladder of the library, pair for pair."""
    if code.rates is None or code.attention_factor is None or len(code.rates) != len(ladder.rates):
        return False
    pairs = zip((*code.rates, code.attention_factor), (*ladder.rates, ladder.factor), strict=True)
    return all(abs(mine - other) <= relative * abs(other) for mine, other in pairs)
