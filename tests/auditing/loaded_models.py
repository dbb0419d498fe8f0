"""Small random models of many families, the faults that are done to them, and what the audit should say of each.

Their configs, and what is expected of them, are in `model_families.json`.
"""

import copy
import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        config: What its small model is made with.
        ladders: The buffers that hold its rates, to the layers that they serve; empty where it turns nothing, or
            keeps tables in place of rates.
        scaled: Those of them that have a scaling.
        written: Whether rates are written with the weights, so that a checkpoint brings them.
    """

    config: Mapping[str, Any]
    ladders: Mapping[str, str] = field(default_factory=dict)
    scaled: tuple[str, ...] = ()
    written: bool = False


_HELD = json.loads(Path(__file__).with_name("model_families.json").read_text(encoding="utf-8"))
FAMILIES: Mapping[str, Family] = {
    name: Family(**held | {"scaled": tuple(held.get("scaled", ()))}) for name, held in _HELD["families"].items()
}
COMPOSED: Mapping[str, Mapping[str, Any]] = _HELD["composed"]
"""Models of several parts, each with a config of its own."""

LAYERS = 3  # of each family
TURNING = tuple(name for name, family in FAMILIES.items() if family.ladders)


def firing(audited: Any) -> list[Any]:
    """The findings that are no notes."""
    return [found for found in audited.findings if found.severity != "note"]


def told(audited: Any) -> list[tuple[str, Any]]:
    """Code and layers of what fires, each as often as it stands there."""
    return sorted((found.code, found.layers) for found in firing(audited))


def transformers() -> Any:
    """The library, told to say nothing; a test that needs it skips without it."""
    pytest.importorskip("torch")
    found = pytest.importorskip("transformers")
    found.logging.set_verbosity_error()
    return found


def config_of(name: str, **changed: Any) -> Any:
    """The config of the small model of a family."""
    given = COMPOSED[name] if name in COMPOSED else FAMILIES[name].config
    return transformers().AutoConfig.for_model(name, **copy.deepcopy({**given, **changed}))


def model_of(name: str, **changed: Any) -> Any:
    """The small random model of a family, by the class that has no head."""
    import torch

    torch.manual_seed(0)
    return transformers().AutoModel.from_config(config_of(name, **changed)).eval()


def rotary_of(model: Any) -> Any:
    """The one module of a model that holds its rates."""
    found = [one for _, one in model.named_modules() if any("inv_freq" in name for name in one._buffers)]
    assert len(found) == 1
    return found[0]


# What is done to a model


@contextmanager
def filled_with_nan():
    """Memory that nobody fills holds NaN, as PyTorch offers it, so that a test sees the same each time."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def emptied(name: str) -> Any:
    """Made on the meta device, emptied, its weights loaded: nobody computes what is in no checkpoint (D2, 1)."""
    import torch

    weights = model_of(name).state_dict()
    with torch.device("meta"):
        model = transformers().AutoModel.from_config(config_of(name)).eval()
    with filled_with_nan():
        model.to_empty(device="cpu")
    model.load_state_dict(weights)
    return model


def _each_ladder(change: Callable[[Any, str], None]) -> Callable[[str], Any]:
    def done(name: str) -> Any:
        model = model_of(name)
        rotary = rotary_of(model)
        for buffer in rotary._buffers:
            if "inv_freq" in buffer:
                change(rotary, buffer)
        return model

    return done


def _garbage(rotary: Any, buffer: str) -> None:
    import torch

    held = getattr(rotary, buffer)
    bits = torch.randint(0, 2**31 - 1, held.shape, generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    held.copy_(bits.view(torch.float32))


def _zero(rotary: Any, buffer: str) -> None:
    getattr(rotary, buffer).zero_()


def _first_tiny(rotary: Any, buffer: str) -> None:
    getattr(rotary, buffer)[0] = 6.93e-18


recycled = _each_ladder(_garbage)  # D2, 2: the same, with memory that held something else
zeroed = _each_ladder(_zero)  # D2, 4
first_wrong = _each_ladder(_first_tiny)  # D2, 5


def repaired_without_scaling(name: str) -> Any:
    """Rates computed again by the plain formula (D2, 3)."""
    import torch

    model = model_of(name)
    rotary = rotary_of(model)
    for buffer in FAMILIES[name].ladders:
        held = getattr(rotary, buffer)
        parameters = rotary.config.rope_parameters
        kind = buffer.removesuffix("_inv_freq")
        base = parameters.get(kind, parameters)["rope_theta"]
        held.copy_(base ** -(torch.arange(held.numel(), dtype=torch.float64) / held.numel()))
    return model


def configured_late(name: str) -> Any:
    """A scaling set in the config of a model that is loaded already (D2, 6)."""
    model = model_of(name)
    parameters = rotary_of(model).config.rope_parameters
    late = {"rope_type": "linear", "factor": 4.0}
    for block in [parameters] if "rope_theta" in parameters else parameters.values():
        block.update(late)
    return model


def cast(name: str) -> Any:
    """The whole model cast to bfloat16 (D2, 7)."""
    import torch

    return model_of(name).to(torch.bfloat16)
