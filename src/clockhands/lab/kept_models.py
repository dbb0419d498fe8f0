"""Models that the lab kept along a training, loaded again and run by the lab's own code."""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clockhands.configs.kept_models import NOTE, facts_of, kept_path
from clockhands.encodings.additive import AdditiveCode
from clockhands.errors import InvalidValue
from clockhands.formats import arrays, safetensors
from clockhands.lab import study as studies
from clockhands.lab._model_codes import ModelCode, buildable_faults
from clockhands.lab._training import TrialRun
from clockhands.lab.arms import Setting, codes_of, last_position
from clockhands.lab.own_codes import refuse_other_code
from clockhands.lab.store import Key
from clockhands.lab.tasks import IGNORED, Batch, Language
from clockhands.models.running_models import RunningModel
from clockhands.phrases import number_of

_SEED = 0  # of the sequences that a probe reads


class _Logits(NamedTuple):
    """Output of a model, with the name that outputs of Transformers have."""

    logits: Tensor


class RunnableModel(nn.Module):
    """A model of the lab with the arguments of a causal model of Transformers; its logits are those of the lab."""

    def __init__(self, base_model: nn.Module) -> None:
        super().__init__()
        self.base_model = base_model

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, use_cache: bool = False) -> _Logits:
        """Logits [batch, length, vocabulary]; it keeps no cache, whatever `use_cache` says."""
        return _Logits(self.base_model(input_ids, position_ids))


@dataclass(frozen=True, eq=False)
class KeptModel(RunningModel):
    """A model of the lab at a step of its training.

    Attributes:
        facts: What the file says of it.
        path: The file; those of the other steps are in its folder.
    """

    _run: TrialRun
    facts: dict[str, Any]
    path: Path

    @property
    def arm(self) -> str:
        """The name of its arm in the study."""
        return self._run.key.arm

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return self._run.sizes.layers

    @property
    def predicts(self) -> bool:
        """Whether its outputs are logits of the next token."""
        return isinstance(self._run.task, Language)

    @property
    def code(self) -> ModelCode:
        """The encoding that it was trained with, as it runs now."""
        return self._run.model.code

    @property
    def added(self) -> bool:
        """Whether its encoding is added to the tokens."""
        return any(isinstance(each, AdditiveCode) for each in codes_of(self.code.spec))

    def batch(self, windows: int, length: int) -> Batch:
        """Held-out sequences of its task, the same in each call.

        Raises:
            InvalidValue: The task has no sequences of this length, or not so many.
        """
        rng = np.random.default_rng(_SEED)
        found = next(iter(self._run.task.evaluation(rng, windows, length)))
        if len(found.tokens) < windows:
            raise InvalidValue(
                f"The task {self._run.key.task} has {number_of(len(found.tokens), 'held-out sequence')} of {length:,} "
                f"tokens, and {windows} are needed.",
                "Give fewer windows (--windows) or shorter ones (--length).",
            )
        return found

    def targets(self, ids: Tensor) -> Tensor:
        """What the model must answer to its own sequences, or to a text: the next token; `IGNORED` where nothing.

        Raises:
            InvalidValue: The task makes its own sequences, and these are others.
        """
        if isinstance(self._run.task, Language):
            return torch.cat((ids[:, 1:], torch.full_like(ids[:, :1], IGNORED)), 1)
        own = self.batch(*ids.shape)
        if not np.array_equal(own.tokens, ids.numpy()):
            raise InvalidValue(
                f"The task {self._run.key.task} makes its own sequences; what is right for others is not known.",
                "Leave the text and `ids` out.",
            )
        return torch.from_numpy(own.targets)

    def losses(self, ids: Tensor) -> np.ndarray:
        """Nats of the answers in each sequence, [windows, answers]."""
        found = []
        with torch.no_grad():
            for window, target in zip(ids, self.targets(ids), strict=True):
                logits = self._run.model(window[None])[0].float()
                found.append(cross_entropy(logits, target, reduction="none", ignore_index=IGNORED)[target != IGNORED])
        least = min(map(len, found))
        return torch.stack([each[:least] for each in found]).double().numpy()

    def faults(self, length: int) -> Iterator[tuple[str, str, ModelCode]]:
        """Every fault that its encoding can have at this length: its code, what is wrong, and the faulty encoding."""
        if not self.code.faulty:
            for fault, says in buildable_faults(self.code.spec, length):
                yield fault, says, self._run.built_code(Setting(self.code.spec, fault))

    @property
    def no_code(self) -> ModelCode:
        """No encoding, with the windows and scales of its arm."""
        return self._run.built_code(Setting(None))

    @contextmanager
    def replaced(self, other: ModelCode, layers: Sequence[int] | None = None) -> Iterator[None]:
        """Another encoding in the whole model, or its rotation and bias in some layers.

        Args:
            other: The other encoding.
            layers: The layers; None for all, and for what is added to the tokens.
        """
        model, own = self._run.model, self.code
        try:
            if layers is None:
                model.code = other
            else:
                own.prepare = _in_layers(own.prepare, other.prepare, layers)  # type: ignore[method-assign]
            yield
        finally:
            model.code = own
            vars(own).pop("prepare", None)

    @contextmanager
    def without_order(self) -> Iterator[None]:
        """The mean of its rows at each position in place of the row of the position."""
        own = self.code

        def averaged(x: Tensor, positions: Any = None) -> Tensor:
            rows = type(own).embed(own, torch.zeros_like(x[:1]), positions)
            return x + rows.mean(1, keepdim=True)

        own.embed = averaged  # type: ignore[method-assign]
        try:
            yield
        finally:
            del own.embed


def _in_layers(own: Callable[..., Any], other: Callable[..., Any], layers: Sequence[int]) -> Callable[..., Any]:
    def prepare(*asked: Any) -> list[Any]:
        both = zip(own(*asked), other(*asked), strict=True)
        return [two if layer in layers else one for layer, (one, two) in enumerate(both)]

    return prepare


def kept_model(target: str) -> KeptModel | None:
    """Load the kept model that a target names, ``STORE:ARM:SEED@STEP`` or its file; None if it names none.

    Raises:
        InvalidValue: The store has no such model, or the study needs code that is not here.
        Unreadable: The file is damaged.
    """
    path = kept_path(target) or Path(target)
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    header = safetensors.read_header(path)
    if NOTE not in header.metadata:
        return None
    facts = facts_of(header)
    refuse_other_code(tomllib.loads(facts["text"]), Path.cwd())
    study = studies.parse(facts["text"], facts["study"])
    run = TrialRun(study, Key(facts["task"], facts["arm"], facts["seed"]), Path(), "cpu", lambda _: None)
    weights = {name: torch.from_numpy(arrays.read(each)) for name, each in header.tensors.items()}
    run.restore_model(weights, dropped=bool(facts.get("dropped")))
    run.model.eval().requires_grad_(False)
    encode = run.task.encoded if isinstance(run.task, Language) else None
    end = last_position(run.model.code.spec)
    context = None if end is None else end + 1 - run.sizes.sinks
    return KeptModel(target, RunnableModel(run.model), encode, context, run, facts, path)
