"""One trial: trains and evaluates one model with one code on one task with one seed; it can be resumed.

A trial runs in a separate process and returns its rows; it only writes its checkpoint, which holds the model, the
optimiser, the state of every random generator and the rows so far. A trial resumed from a checkpoint gives the same
rows, bit for bit, as one that was never interrupted.

Where `torch.distributed` is initialised, each process takes its part of every batch and `DistributedDataParallel`
averages the gradients. Only the first process evaluates, returns rows and writes the checkpoint.
"""

import dataclasses
import io
import json
import math
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils import deterministic as switches

from clockhands.encodings import sampling
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.formats import files
from clockhands.lab import study as studies
from clockhands.lab._keeping import Keeping, kept_bytes, kept_steps
from clockhands.lab._model import Transformer
from clockhands.lab._model_codes import ModelCode, sizes_for
from clockhands.lab._start import load_start
from clockhands.lab.arms import AT_ONCE, Setting, setting, sizes_of
from clockhands.lab.store import Key, Measurement
from clockhands.lab.study import AS_TRAINED, Study
from clockhands.lab.tasks import IGNORED, Batch

Tell = Callable[[Mapping[str, Any]], None]

_TIMED = 3  # steps that are timed

_BUCKETS = 8  # of positions, for each training length

# The purposes of the generators of a trial: the numbers keep them apart.
_TRAINING, _EVALUATION, _POSITIONS, _CODE = 1, 2, 3, 4


class TrainingFailed(ClockhandsError):
    """A trial that cannot go on."""


def trial(
    *,
    study: str,
    task: str,
    arm: str,
    seed: int,
    checkpoint: str,
    threads: int = 1,
    device: str = "cpu",
    keep: Mapping[str, Any] | None = None,
    tell: Tell,
) -> dict[str, Any]:
    """Train and evaluate one model; the function that an engine calls.

    Args:
        study: The study's TOML text.
        task: The task of the trial.
        arm: Its arm.
        seed: Its seed.
        checkpoint: The file in which the trial keeps its state; it goes on from there if the file exists.
        threads: PyTorch's threads. Results are the same only for the same number of threads.
        device: Where the model is.
        keep: The fields of `Keeping`, where models are kept along the training.
        tell: Takes progress: ``{"step", "steps", "loss"}``, or ``{"warning"}``.

    Returns:
        ``rows`` (lists in the order of `Measurement`), ``facts`` and ``seconds``.

    Raises:
        TrainingFailed: The loss is not finite, or the checkpoint cannot be written.
    """
    keeping = None if keep is None else Keeping(Path(keep["folder"]), keep["name"], tuple(keep["steps"]))
    with _settings(threads, deterministic=device == "cpu"):
        key = Key(task, arm, seed)
        return TrialRun(studies.parse(study), key, Path(checkpoint), device, tell, keeping=keeping).run()


def timed(study: Study, key: Key, threads: int, device: str) -> tuple[int, float, float]:
    """Parameters of a trial, and the seconds of its training and its evaluation, from a few steps and batches."""
    with _settings(threads, deterministic=device == "cpu"):
        return TrialRun(study, key, Path(), device, lambda _: None).timed()


@contextmanager
def _settings(threads: int, *, deterministic: bool) -> Iterator[None]:
    """Set PyTorch's global settings for one trial, and restore the caller's settings afterwards."""
    memory: Any = switches  # PyTorch's own types do not have what it documents
    kept, filled = torch.get_num_threads(), memory.fill_uninitialized_memory
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    # Deterministic mode fills new memory with NaN, which costs 1 to 3 % of the time; no operation here reads it.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_num_threads(kept)
        torch.use_deterministic_algorithms(was_deterministic)
        memory.fill_uninitialized_memory = filled


class TrialRun:
    """The state of a trial."""

    def __init__(
        self, study: Study, key: Key, checkpoint: Path, device: str, tell: Tell, *, keeping: Keeping | None = None
    ) -> None:
        self.study, self.key, self.path, self.device, self.tell = study, key, checkpoint, device, tell
        self.keeping = keeping
        self.rank, self.workers = 0, 1
        if distributed.is_available() and distributed.is_initialized():
            self.rank, self.workers = distributed.get_rank(), distributed.get_world_size()
        self.plan, self.arm = study.tasks[key.task], study.arms[key.arm]
        self.task, self.training, self.sizes = self.plan.task, study.training_of(key), sizes_of(study, key)
        self.step, self.seconds, self.rows, self.dropped = 0, 0.0, [], False
        self.steps = self.training.steps
        drop = self.arm.drop
        self.drop_step = None if drop is None else self.training.in_steps(drop.at)
        self.batches = self._generator(_TRAINING)
        self.positions = self._generator(_POSITIONS)
        self.model = self._built()
        self.counted = self.model.counted()  # as training begins: a code that is dropped has its numbers too
        self.parallel = self._parallel()
        self.optimiser = torch.optim.AdamW(self._groups(self.model.named_parameters()), lr=0.0)
        self.sums = [0.0, 0.0, 0.0, 0.0]  # loss, gradient norm, its maximum, steps

    def _generator(self, purpose: int, *more: int) -> np.random.Generator:
        # Without the arm's name: all arms of a seed see the same data in the same order.
        return np.random.default_rng([self.key.seed, zlib.crc32(self.key.task.encode()), purpose, *more])

    def _setting(self, length: int, variant: str = AS_TRAINED) -> Setting:
        return setting(
            self.arm,
            self.sizes,
            self.training.length,
            length,
            variant,
            dropped=self.dropped,
            causal=self.task.causal,
        )

    def built_code(self, of: Setting) -> ModelCode:
        """The code of the arm in another setting, with learned numbers as they are at first."""
        seed, sizes = self.key.seed + (_CODE << 40), sizes_for(self.sizes, self.training.length)
        return ModelCode(of, self.arm, self.task.causal, seed, sizes, sinks=self.sizes.sinks).to(self.device)

    def _built(self) -> Transformer:
        code = self.built_code(self._setting(self.training.length))
        model = Transformer(self.sizes, self.task.vocabulary, code, self.task.causal, self.key.seed)
        if self.sizes.start:
            load_start(model, self.sizes.start)
        return model.to(self.device)

    def _parallel(self) -> torch.nn.Module:
        """The module that is called in training; it averages gradients if there are several processes."""
        made = self.model if self.workers == 1 else DistributedDataParallel(self.model, broadcast_buffers=False)
        return torch.compile(made) if self.training.compile else made  # type: ignore[return-value]

    def _groups(self, parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> list[dict[str, Any]]:
        decayed, others = [], []
        for name, each in parameters:
            (decayed if each.dim() == 2 and not name.startswith("code.") else others).append(each)
        groups = ((decayed, self.training.weight_decay), (others, 0.0))
        return [{"params": each, "weight_decay": decay} for each, decay in groups if each]

    # Training

    def run(self) -> dict[str, Any]:
        """Go on from the checkpoint, or begin; train; evaluate."""
        self._resume()
        began, told = time.monotonic() - self.seconds, 0.0
        if not self.step:
            self._keep()
        while self.step < self.steps or self._drop_is_due():
            if self._drop_is_due():
                self._drop()
                continue
            loss = self._train_step()
            self._keep()
            if time.monotonic() - told > 0.5:
                told = time.monotonic()
                self.tell({"step": self.step, "steps": self.steps, "loss": loss})
            if self.step % self.training.checkpoint == 0 and self.step < self.steps:
                self.seconds = time.monotonic() - began
                self._save()
        trained = time.monotonic() - began
        if self.dropped and self.drop_step == self.steps:
            self._keep()  # the last step is that of the drop
        self._evaluate_all()
        tokens = self.steps * self.training.sequences * self.training.length
        facts = {
            **self.counted,
            "threads": torch.get_num_threads(),
            "device": self.device,
            "workers": self.workers,
            "steps": self.steps,
            "tokens": tokens,
            "training_seconds": trained,
            "tokens_per_second": tokens / trained if trained else 0.0,
        }
        if self.keeping is not None:
            facts["kept"] = {"folder": self.keeping.folder.name, "steps": list(self.keeping.steps)}
        return {"rows": [list(row) for row in self.rows], "facts": facts, "seconds": time.monotonic() - began}

    def timed(self) -> tuple[int, float, float]:
        """Parameters, and the seconds of the training and of the evaluation."""
        self._train_step()  # the first one takes longer
        plan, length, began = self.plan.evaluation, self.training.length, self._clock()
        for _ in range(_TIMED):
            self._train_step()
        training = self.steps * (self._clock() - began) / _TIMED
        evaluation = sum(self._seconds(*each) for each in product(self.study.lengths_of(self.key), plan.protocols))
        if plan.curve:
            training += self.steps // plan.curve * self._seconds(length, "whole")
        return self.counted["parameters"], training, evaluation * (1 + len(self.arm.at_test))

    def _clock(self) -> float:
        """Seconds; on a CPU those that were computed, so that other programs do not count."""
        return time.process_time() / torch.get_num_threads() if self.device == "cpu" else time.monotonic()

    @torch.no_grad()
    def _seconds(self, length: int, protocol: str) -> float:
        """Of one evaluation, from its first batch."""
        rng, sequences = self._generator(_EVALUATION, length), self.plan.evaluation.at_length(length)
        seconds, number = 0.0, 0
        for batch in _parts(self.task.evaluation(rng, sequences, length, protocol), max(1, AT_ONCE // length)):
            if not number:
                began = self._clock()
                float(self._answers(self.model, batch)[0].sum())  # waits for a GPU
                seconds = self._clock() - began
            number += 1
        return number * seconds

    def _train_step(self) -> float:
        batch = self.task.batch(self.batches, self.training.sequences, self.training.length)
        for group in self.optimiser.param_groups:
            group["lr"] = self._learning_rate()
        self.model.train()
        positions = self._drawn_positions()
        self.optimiser.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.device)
        for part in range(self.training.accumulate):
            of_part = self._loss(batch, positions, part)
            of_part.backward()
            loss = loss + of_part.detach()
        limit = self.training.clip or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        if self.workers > 1:
            loss = loss / self.workers
            distributed.all_reduce(loss)
        number = float(loss)
        for what, value in (("loss", number), ("gradient", norm)):
            if not math.isfinite(value):
                raise TrainingFailed(
                    f"The {what} of {self.key.arm} on {self.key.task} (seed {self.key.seed}) is {value} "
                    f"at step {self.step}, at learning rate {self._learning_rate():g}.",
                    "Give the arm a lower learning_rate: `clockhands lab tune` tries "
                    f"{', '.join(f'{rate:g}' for rate in self.study.tuning.learning_rates)}.",
                )
        self.optimiser.step()
        self.step += 1
        self.sums = [self.sums[0] + number, self.sums[1] + norm, max(self.sums[2], norm), self.sums[3] + 1]
        if self.step % self.training.record == 0 or self.step in (1, self.steps):
            self._record()
            self._end_on_plateau()
        curve = self.plan.evaluation.curve
        # After a drop, the loss at the end shows the recovery, also if no curve is requested.
        at_end = self.step == self.steps and (curve or self.dropped)
        if at_end or (curve and self.step % curve == 0):
            self._curve(AS_TRAINED)
        return number

    def _loss(self, batch: Batch, positions: Any, part: int = 0) -> torch.Tensor:
        """The mean over the batch, or what a part of its sequences contributes to it."""
        parts = self.training.accumulate
        if self.workers == parts == 1:
            return cross_entropy(*self._answers(self.parallel, batch, positions), ignore_index=IGNORED)
        # Of this process. Gradients are averaged over the processes, so it is counted once for each of them.
        mine = slice(self.rank + part * self.workers, None, self.workers * parts)
        own = dataclasses.replace(batch, tokens=batch.tokens[mine], targets=batch.targets[mine])
        answers = self._answers(self.parallel, own, None if positions is None else positions[mine])
        scored = int((batch.targets != IGNORED).sum())
        return cross_entropy(*answers, ignore_index=IGNORED, reduction="sum") * (self.workers / scored)

    def _answers(self, model: Any, batch: Batch, positions: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [tokens, vocabulary], and targets [tokens]."""
        with self._arithmetic():
            logits = model(torch.from_numpy(batch.tokens).to(self.device), positions).float()
        return logits.flatten(0, 1), torch.from_numpy(batch.targets).to(self.device).flatten()

    def _arithmetic(self) -> AbstractContextManager[Any]:
        if self.training.dtype == "float32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, torch.bfloat16)

    def _drawn_positions(self) -> Any:
        how = self.arm.positions
        if how is None:
            return None
        draw = sampling.randomised if how.draw == "randomised" else sampling.shifted
        return draw(self.training.length, how.largest, self.positions, batch=self.training.sequences)

    def _learning_rate(self) -> float:
        rate, warmup, first, last = self.training.learning_rate, self.training.warmup, 0, self.steps
        begin = self.training.in_steps(self.training.decay_from)
        drop = self.arm.drop
        if self.dropped and drop is not None and drop.learning_rate:
            assert self.drop_step is not None
            rate, warmup, first = drop.learning_rate, drop.warmup, self.drop_step
        done = self.step - first
        if done < warmup:
            return rate * (done + 1) / warmup
        full = max(warmup, begin - first)
        share = max(0, done - full) / max(1, last - first - full)
        falling = {"constant": 1.0, "linear": 1 - share, "cosine": (1 + math.cos(math.pi * share)) / 2}
        least = self.training.decay_to
        return rate * (least + (1 - least) * falling[self.training.decay])

    def _record(self) -> None:
        count = self.sums[3]
        for measure, value in (
            ("loss", self.sums[0] / count),
            ("gradient_norm", self.sums[1] / count),
            ("gradient_norm_largest", self.sums[2]),
        ):
            self._add("training", measure, value)
        self.sums = [0.0, 0.0, 0.0, 0.0]

    def _end_on_plateau(self) -> None:
        """Make this step the last one if no late point of the training curve is below all before (`plateau`).

        The held-out loss has no say: training does not stop where what is reported is best.
        """
        late = self.training.plateau
        losses = [each.value for each in self.rows if (each.kind, each.measure) == ("training", "loss")]
        if not late or len(losses) <= late or min(losses[-late:]) < min(losses[:-late]):
            return
        self.steps = self.step
        if self.keeping is not None:
            self.keeping = dataclasses.replace(self.keeping, steps=kept_steps(self.keeping.steps, self.step))

    def _add(
        self,
        kind: str,
        measure: str,
        value: float,
        *,
        variant: str = AS_TRAINED,
        protocol: str = "",
        length: int = 0,
        place: int | None = None,
    ) -> None:
        """One more row; length 0 is the training length."""
        length = length or self.training.length
        self.rows.append(Measurement(kind, measure, value, self.step, length, place, protocol, variant))

    def _drop_is_due(self) -> bool:
        return not self.dropped and self.drop_step is not None and self.step >= self.drop_step

    def _drop(self) -> None:
        """Remove the code from every layer, with the loss before and after."""
        self._curve("before drop")
        self._without_code()
        self._curve("dropped")

    def _without_code(self) -> None:
        assert self.arm.drop is not None
        self.dropped = True
        self.model.code = self.built_code(self._setting(self.training.length))
        if self.arm.drop.qk_norm and not self.sizes.qk_norm:
            known = {id(each) for each in self.model.parameters()}
            self.model.add_query_key_norms()
            new = [(name, each) for name, each in self.model.named_parameters() if id(each) not in known]
            for group in self._groups(new):
                self.optimiser.add_param_group(group)
        self.parallel = self._parallel()

    # Evaluation

    def _curve(self, variant: str) -> None:
        if self.rank:
            return
        loss, accuracy = self._measured(self.training.length, self.plan.evaluation.curve_sequences, "whole")[None]
        for measure, value in (("loss", loss), ("accuracy", accuracy)):
            self._add("curve", measure, value, variant=variant, protocol="whole")

    def _evaluate_all(self) -> None:
        if self.rank:
            return
        plan = self.plan.evaluation
        for variant in (AS_TRAINED, *self.arm.at_test):
            for length in self.study.lengths_of(self.key):
                with self._changed(length, variant):
                    for protocol in plan.protocols:
                        self._evaluate(variant, length, protocol, plan.at_length(length))
                self.tell({"step": self.steps, "steps": self.steps, "evaluated": f"{variant} {length}".strip()})
        if plan.sinks:
            self._sinks()

    @contextmanager
    def _changed(self, length: int, variant: str) -> Iterator[None]:
        """The model with its code as one evaluation needs it; the learned numbers are unchanged."""
        made, kept = self._setting(length, variant), self.model.code
        code, own = self.built_code(made), dict(kept.named_parameters())
        for name, each in code.named_parameters():
            each.data = own[name].data
        self.model.code, self.model.logit_scale = code, 1 + made.logit_scale * math.log(made.scaled_by)
        try:
            yield
        finally:
            self.model.code, self.model.logit_scale = kept, 1.0

    def _evaluate(self, variant: str, length: int, protocol: str, sequences: int) -> None:
        for place, numbers in self._measured(length, sequences, protocol).items():
            for measure, value in zip(("loss", "accuracy"), numbers, strict=True):
                self._add("evaluation", measure, value, variant=variant, protocol=protocol, length=length, place=place)

    @torch.no_grad()
    def _measured(self, length: int, sequences: int, protocol: str) -> dict[int | None, tuple[float, float]]:
        """Loss and accuracy on held-out data: the mean under None, then by position or depth."""
        self.model.eval()
        losses: dict[int, np.ndarray] = {}
        rng = self._generator(_EVALUATION, length)
        for batch in _parts(self.task.evaluation(rng, sequences, length, protocol), max(1, AT_ONCE // length)):
            logits, targets = self._answers(self.model, batch)
            loss = cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
            right = logits.argmax(-1) == targets
            scored = batch.targets.ravel() != IGNORED
            places = self._places(batch).ravel()[scored]
            numbers = np.stack([loss.double().cpu().numpy()[scored], right.cpu().numpy()[scored], np.ones(len(places))])
            for place in np.unique(places):
                losses[int(place)] = losses.get(int(place), np.zeros(3)) + numbers[:, places == place].sum(1)
        total = sum(losses.values(), np.zeros(3))
        if not total[2]:
            raise InvalidValue(f"No token is scored at length {length}.", "Use longer sequences, or more of them.")
        named: dict[int | None, np.ndarray] = {None: total, **dict(sorted(losses.items()))}
        return {place: (float(part[0] / part[2]), float(part[1] / part[2])) for place, part in named.items()}

    def _places(self, batch: Batch) -> np.ndarray:
        if batch.places is not None:
            return batch.places
        bucket = max(1, self.training.length // _BUCKETS)
        return np.broadcast_to(np.arange(batch.tokens.shape[1]) // bucket * bucket, batch.tokens.shape)

    @torch.no_grad()
    def _sinks(self) -> None:
        """The share of attention on the first token, of the queries in the second half, by layer and over all."""
        length = self.training.length
        self.model.eval()
        batch = next(iter(_parts(self.task.evaluation(self._generator(_EVALUATION, length), 64, length, "whole"), 64)))
        attentions = self.model.attentions
        for each in attentions:
            each.shares = []
        self._answers(self.model, batch)
        sinks = self.sizes.sinks
        shares = [float(each.shares[0][sinks + length // 2 :].double().mean()) for each in attentions if each.shares]
        for each in attentions:
            each.shares = None
        for layer, share in enumerate(shares):
            self._add("evaluation", "sink_share", share, protocol="whole", place=layer)
        seen = sinks + (np.arange(length // 2 + 1, length + 1) if self.task.causal else np.array([length]))
        even = float(np.mean(1 / seen))
        for measure, value in (("sink_share", float(np.mean(shares))), ("even_share", even)):
            self._add("evaluation", measure, value, protocol="whole")

    # Checkpoints

    def _save(self) -> None:
        if self.rank:
            return
        state = {
            "trial": [self.study.hash, *self.key],
            "step": self.step,
            "dropped": self.dropped,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generators": json.dumps([self.batches.bit_generator.state, self.positions.bit_generator.state]),
            "rows": [list(row) for row in self.rows],
            "sums": self.sums,
        }
        written = io.BytesIO()  # for a full disk, PyTorch's own writer gives no useful message
        torch.save(state, written)
        _write(self.path, written.getbuffer())

    def _keep(self) -> None:
        """Write the model beside the store if this step was chosen."""
        if self.rank or self.keeping is None or self.step not in self.keeping.steps:
            return
        code = self._setting(self.training.length)
        at = {"step": self.step, "dropped": self.dropped}
        made = kept_bytes(self.study, self.key, self.keeping, self.model, code, **at)
        _write(self.keeping.folder / f"{self.step:08}.safetensors", made)

    def _resume(self) -> None:
        try:
            state = self._read()
            if state is not None:
                self._restore(state)
        except (ValueError, KeyError, RuntimeError, TypeError) as error:
            self.path.unlink(missing_ok=True)
            said = f"The checkpoint of {self.key} cannot be used ({error}). The trial starts again from step 0."
            self.tell({"warning": said})
            # A half-loaded model must not be trained on.
            self.__init__(self.study, self.key, self.path, self.device, self.tell, keeping=self.keeping)

    def _read(self) -> dict[str, Any] | None:
        """What the checkpoint holds; None if there is none. Only the first process reads it, for all."""
        found: list[Any] = [None]
        if not self.rank and self.path.exists():
            try:
                with zipfile.ZipFile(self.path) as archive:  # PyTorch does not look at the checksums
                    damaged = archive.testzip()
                found[0] = torch.load(self.path, map_location="cpu", weights_only=True)
                if damaged is not None or found[0]["trial"] != [self.study.hash, *self.key]:
                    raise ValueError("it belongs to another trial" if damaged is None else f"{damaged} is damaged")
            except Exception as error:  # noqa: BLE001 - a damaged file fails in a dozen ways
                found[0] = ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__)
        if self.workers > 1:
            distributed.broadcast_object_list(found)
        if isinstance(found[0], ValueError):
            raise found[0]
        return found[0]

    def restore_model(self, weights: Mapping[str, torch.Tensor], *, dropped: bool) -> None:
        """Give the model the weights that it had at a step, and remove its code where it had been dropped by then."""
        if dropped:
            self._without_code()
        self.model.load_state_dict(weights)

    def _restore(self, state: dict[str, Any]) -> None:
        self.restore_model(state["model"], dropped=state["dropped"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.batches.bit_generator.state, self.positions.bit_generator.state = json.loads(state["generators"])
        self.rows = [Measurement(*row) for row in state["rows"]]
        self.step, self.seconds, self.sums = state["step"], state["seconds"], state["sums"]


def _write(path: Path, content: bytes | memoryview) -> None:
    """Write a checkpoint whole or not at all."""
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in files.left_beside(path):  # by one that was killed
            left.unlink(missing_ok=True)
        unfinished = files.fresh_beside(path)
        unfinished.write_bytes(content)
        files.rename(unfinished, path, replace=True)
    except OSError as error:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
        raise TrainingFailed(
            f"The checkpoint {path} cannot be written: {error.strerror or error}.",
            "Make room or choose another place for the store; `clockhands lab resume` goes on from the last one.",
        ) from None


def _parts(batches: Batch | Iterable[Batch], sequences: int) -> Iterator[Batch]:
    """Batches cut into parts of at most this many sequences."""
    for batch in [batches] if isinstance(batches, Batch) else batches:
        for start in range(0, len(batch.tokens), sequences):
            cut = slice(start, start + sequences)
            places = None if batch.places is None else batch.places[cut]
            yield dataclasses.replace(batch, tokens=batch.tokens[cut], targets=batch.targets[cut], places=places)
