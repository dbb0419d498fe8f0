"""Writes the models that a trial keeps along its training, each as one safetensors file that says what it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from clockhands.configs.kept_models import note_of
from clockhands.encodings import specs
from clockhands.encodings.additive import NoPosition
from clockhands.lab.arms import Setting
from clockhands.lab.store import Key
from clockhands.lab.study import Study

_HALVINGS = (4, 3, 2, 1)
# Fields of an arm that change its encoding beyond the spec.
_BESIDE_SPEC = ("channels", "times", "slopes", "frequencies", "window", "chunk", "scores", "fault")


@dataclass(frozen=True)
class Keeping:
    """Which models of a trial are kept, and where.

    Attributes:
        folder: One file for each step.
        name: The name of the study, which its text does not say.
        steps: After how many training steps.
    """

    folder: Path
    name: str
    steps: tuple[int, ...]


def kept_steps(chosen: Sequence[int], steps: int) -> tuple[int, ...]:
    """The steps at which a trial keeps its model: the chosen ones, else doubling ones; the last one always.

    >>> kept_steps((), 400), kept_steps((10, 1000), 400)
    ((0, 25, 50, 100, 200, 400), (10, 400))
    """
    known = chosen or (0, *(steps >> each for each in _HALVINGS))
    return tuple(sorted({*(each for each in known if each < steps), steps}))


def kept_bytes(
    study: Study, key: Key, keeping: Keeping, model: torch.nn.Module, code: Setting, *, step: int, dropped: bool
) -> bytes:
    """The file of a model at a step."""
    spec, unsaid = _spec_of(study, key, code)
    facts = {
        "study": keeping.name, "hash": study.hash, "text": study.text, **key._asdict(), "step": step,
        "length": study.training_of(key).length, "dropped": dropped, "spec": spec, "unsaid": unsaid,
    }  # fmt: skip
    tensors = {name: each.detach().cpu().clone().contiguous() for name, each in model.state_dict().items()}
    return safetensors.torch.save(tensors, note_of(facts))


def _spec_of(study: Study, key: Key, code: Setting) -> tuple[Mapping[str, Any] | None, str]:
    """The spec of a code as JSON values; or None, and why no spec says what the code is."""
    arm, plain = study.arms[key.arm], NoPosition(study.model_of(key).width)
    changed = [name for name in _BESIDE_SPEC if getattr(arm, name) != getattr(type(arm), name)]
    if changed and not (code.spec is None and not code.fault):
        return None, f"`{changed[0]}` of the arm changes it beyond what a spec says"
    spec = plain if code.spec is None else code.spec
    if not isinstance(spec, specs.WRITTEN):
        return None, "it is an encoding of your own"
    return specs.to_dict(spec), ""
