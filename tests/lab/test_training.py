"""One trial: what it starts from, what a step computes, dropping, evaluation, and going on from a checkpoint."""

import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clockhands.formats import files
from clockhands.lab import study as studies
from clockhands.lab.store import Key, Measurement
from clockhands.lab.tasks import IGNORED
from late import Late

torch, training = Late("torch"), Late("clockhands.lab._training")
keeping = Late("clockhands.lab._keeping")

ARMS: dict[str, str] = {
    "none": 'code = "none"',
    "sinusoidal": 'code = { type = "Sinusoidal" }',
    "rotary": 'code = { type = "Rotary" }',
    "alibi": 'code = { type = "Alibi" }',
    "t5": 'code = { type = "Buckets" }',
    "drawn": 'code = { type = "Sinusoidal" }\npositions = { draw = "randomised", largest = 40 }',
    "shifted": 'code = { type = "Rotary" }\npositions = { draw = "shifted", largest = 9 }',
    "dropped": 'code = { type = "Rotary" }\ndrop = { at = 7, learning_rate = 0.001, warmup = 2, qk_norm = true }',
    "t5_dropped": 'code = { type = "Buckets" }\ndrop = { at = "50 %" }',
    "scaled": 'code = { type = "Rotary" }\nat_test = { yarn = { scaling = { type = "Yarn" } }, '
    'logits = { logit_scale = 0.5 }, none = { code = "none" }, wrong = { fault = "other-layout" } }',
}
STUDY = """\
question = "What happens in a trial?"
model = {{ width = 16, heads = 2 {model} }}
evaluation = {{ lengths = [8, 16], sequences = 4, curve = 4, curve_sequences = 4 {evaluation} }}
tasks.task = {{ kind = "{task}" }}

[training]
length = 8
sequences = 4
duration = "12 steps"
learning_rate = 0.01
warmup = 3
record = 4
checkpoint = 5
{training}

{arms}
"""


def text(arms: str = "", task: str = "copy", *, training: str = "", evaluation: str = "", model: str = "") -> str:
    chosen = arms.split() or ARMS
    listed = "\n".join(f"[arms.{name}]\n{ARMS[name]}" for name in chosen)
    return STUDY.format(arms=listed, task=task, training=training, evaluation=evaluation, model=model)


def opened(folder: Path, arm: str = "rotary", seed: int = 0, tell: Callable = lambda _: None, **how: str):
    return training.TrialRun(studies.parse(text(arm, **how)), Key("task", arm, seed), folder / "state.pt", "cpu", tell)


def rows(folder: Path, arm: str = "rotary", seed: int = 0, tell: Callable = lambda _: None, **how: str) -> list:
    """The rows of a trial that ends, and takes its checkpoint away as the lab does."""
    made = opened(folder, arm, seed, tell, **how).run()["rows"]
    (folder / "state.pt").unlink(missing_ok=True)
    return [Measurement(*row) for row in made]


def chosen(measured: list[Measurement], **fields: Any) -> list[float]:
    return [row.value for row in measured if all(getattr(row, name) == value for name, value in fields.items())]


def test_training_ends_on_a_plateau_as_one_of_that_many_steps_ends(tmp_path: Path):
    """By the training curve alone; a trial that was killed ends at the same step, and its last model is kept."""
    how = {"task": "absolute", "evaluation": ", threshold = 0.5"}
    long = 'plateau = 1\nduration = "2000 steps"'
    study = studies.parse(text("rotary", **how).replace('duration = "12 steps"', long))
    keep = keeping.Keeping(tmp_path / "kept", "it", keeping.kept_steps((), 2000))
    key, quiet = Key("task", "rotary", 0), lambda _: None
    made = training.TrialRun(study, key, tmp_path / "state.pt", "cpu", quiet, keeping=keep).run()
    steps = made["facts"]["steps"]
    curve = [row[2] for row in made["rows"] if row[:2] == ["training", "loss"]]
    assert 4 <= steps < 2000
    assert curve[-1] >= min(curve[:-1])
    assert all(curve[end] < min(curve[:end]) for end in range(1, len(curve) - 1))
    assert made["facts"]["kept"]["steps"][-1] == steps
    assert (tmp_path / "kept" / f"{steps:08}.safetensors").exists()
    fixed = studies.parse(text("rotary", **how).replace('"12 steps"', f'"{steps} steps"'))
    other = training.TrialRun(fixed, key, tmp_path / "other.pt", "cpu", quiet).run()
    assert made["rows"] == other["rows"]
    again = training.TrialRun(study, key, tmp_path / "state.pt", "cpu", quiet).run()
    assert again["rows"] == made["rows"]  # from the last checkpoint


# What it starts from


def test_all_arms_of_a_seed_start_alike_and_see_the_same_batches(tmp_path: Path):
    first, other = opened(tmp_path, "none"), opened(tmp_path, "none", seed=1)
    weights = first.model.state_dict()
    batches = [first.task.batch(first.batches, 4, 8).tokens for _ in range(3)]
    assert not np.array_equal(batches[0], other.task.batch(other.batches, 4, 8).tokens)
    assert not torch.equal(weights["head.weight"], other.model.state_dict()["head.weight"])
    for arm in ARMS:
        torch.manual_seed(17)
        made = opened(tmp_path, arm)
        own = {name: each for name, each in made.model.state_dict().items() if not name.startswith("code.")}
        assert own.keys() == weights.keys()
        assert all(torch.equal(own[name], weights[name]) for name in own), arm
        assert all(np.array_equal(each, made.task.batch(made.batches, 4, 8).tokens) for each in batches)


def test_what_is_evaluated_is_the_same_for_all_arms_and_never_trained_on(tmp_path: Path):
    made = [opened(tmp_path, arm) for arm in ("none", "rotary")]
    held = [next(iter(each.task.evaluation(each._generator(2, 8), 4, 8))).tokens for each in made]
    assert np.array_equal(*held)
    assert not np.array_equal(held[0], made[0].task.batch(made[0].batches, 4, 8).tokens)


# What a step computes


def by_hand(model: Any, tokens: Any, kind: str, gated: bool, norm: str) -> Any:
    """The logits of a small transformer, from its weights and the formulas."""
    weights = {name: each.detach().double() for name, each in model.named_parameters()}
    sizes, length = model.sizes, tokens.shape[1]
    heads, width = sizes.heads, sizes.head_width
    place = torch.arange(length).double()
    away = place[:, None] - place

    def normalised(x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdim=True) if norm == "layer" else x
        x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weights[f"{name}.weight"]
        return x + weights[f"{name}.bias"] if norm == "layer" else x

    def rotated(x: Any) -> Any:  # channels i and i + width / 2 are a pair
        angle = place[:, None] * 10_000 ** (-torch.arange(0, width, 2).double() / width)
        one, two = x.chunk(2, -1)
        return torch.cat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], -1)

    x = weights["embedding.weight"][tokens]
    if kind == "sinusoidal":  # sine and cosine in turn
        angle = place[:, None] * 10_000 ** (-torch.arange(0, sizes.width, 2).double() / sizes.width)
        x = x + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    bias = torch.zeros(heads, length, length).double()
    if kind == "alibi":
        bias = -(2.0 ** (-8 * torch.arange(1, heads + 1) / heads))[:, None, None] * away
    bias = bias.masked_fill(away < 0, -math.inf)
    for layer in range(sizes.layers):
        name = f"blocks.{layer}"
        inside = normalised(x, f"{name}.attention_norm") @ weights[f"{name}.attention.into.weight"].T
        kv = sizes.kv_heads or heads
        query, key, value = (
            part.unflatten(-1, (-1, width)).transpose(1, 2)
            for part in inside.split([heads * width, kv * width, kv * width], -1)
        )
        key, value = (part.repeat_interleave(heads // kv, 1) for part in (key, value))
        if kind == "rotary":
            query, key = rotated(query), rotated(key)
        weight = (query @ key.transpose(-1, -2) / math.sqrt(width) + bias).softmax(-1)
        x = x + (weight @ value).transpose(1, 2).flatten(2) @ weights[f"{name}.attention.out.weight"].T
        inside = normalised(x, f"{name}.feed_forward_norm") @ weights[f"{name}.feed_forward.into.weight"].T
        if gated:
            gate, inside = inside.chunk(2, -1)
            inside = gate * gate.sigmoid() * inside
        else:
            inside = inside * (1 + torch.erf(inside / math.sqrt(2))) / 2
        x = x + inside @ weights[f"{name}.feed_forward.out.weight"].T
    return normalised(x, "norm") @ weights.get("head.weight", weights["embedding.weight"]).T


@pytest.mark.parametrize("model", ["", ', norm = "rms", gated = true, tied = true, kv_heads = 1, layers = 3'])
def test_the_loss_is_that_of_a_transformer_written_by_hand(tmp_path: Path, cases, model: str):
    how = bool(model), "rms" if model else "layer"
    for kind in ("none", "sinusoidal", "rotary", "alibi"):
        with cases(kind):
            made = opened(tmp_path, kind, model=model)
            batch = made.task.batch(made.batches, 4, 8)
            logits = by_hand(made.model, torch.from_numpy(batch.tokens), kind, *how)
            scored = batch.targets != IGNORED
            expected = -logits.log_softmax(-1)[scored][np.arange(scored.sum()), batch.targets[scored]].mean()
            assert made._loss(batch, None).item() == pytest.approx(expected.item(), rel=2e-6)
            wrong = "alibi" if kind == "rotary" else "rotary"
            other = by_hand(made.model, torch.from_numpy(batch.tokens), wrong, *how)
            assert not torch.allclose(logits, other, atol=1e-3)


def test_a_step_is_adamw_with_warm_up_and_a_limit_of_the_gradient(tmp_path: Path):
    """The first step, from PyTorch's gradients and AdamW's formula."""
    made = opened(tmp_path, training="weight_decay = 0.1\nclip = 0.01")
    copy = opened(tmp_path, training="weight_decay = 0.1\nclip = 0.01")
    before = {name: each.detach().clone() for name, each in made.model.named_parameters()}
    made._train_step()
    copy._loss(copy.task.batch(copy.batches, 4, 8), None).backward()
    norm = math.sqrt(sum(float(each.grad.double().square().sum()) for each in copy.model.parameters()))
    assert norm > 0.01
    rate = 0.01 / 3  # one of three steps of warm-up
    for (name, after), each in zip(made.model.named_parameters(), copy.model.parameters(), strict=True):
        gradient = each.grad * 0.01 / (norm + 1e-6)
        decayed = before[name] * (1 - rate * 0.1) if after.dim() == 2 else before[name]
        torch.testing.assert_close(after, decayed - rate * gradient / (gradient.abs() + 1e-8), atol=2e-6, rtol=0)


def test_the_learning_rate_follows_its_schedule(tmp_path: Path, cases):
    warm, falling = [1 / 3, 2 / 3, 1], [1 - k / 9 for k in range(9)]
    for arm, more, rates in (
        ("rotary", 'decay = "constant"', [*warm, *[1] * 9]),
        ("rotary", 'decay = "linear"', [*warm, *falling]),
        ("rotary", 'decay = "cosine"', [*warm, *((1 + math.cos(math.pi * k / 9)) / 2 for k in range(9))]),
        ("dropped", "", [*warm, 1, 1, 1, 1, 0.05, 0.1, 0.1, 0.1, 0.1]),
        ("dropped", 'decay = "linear"', [*warm, *falling[:4], 0.05, 0.1, 0.1, 0.2 / 3, 0.1 / 3]),
        ("t5_dropped", 'decay = "linear"', [*warm, *falling]),
    ):
        with cases(arm, more):
            made, found = opened(tmp_path, arm, training=more), []
            while made.step < made.steps:
                if made._drop_is_due():
                    made._drop()
                made._train_step()
                found.append({group["lr"] for group in made.optimiser.param_groups})
            assert all(len(each) == 1 for each in found)
            assert [each.pop() for each in found] == pytest.approx([0.01 * each for each in rates])


def test_the_training_curve_is_the_mean_of_what_steps_gave(tmp_path: Path):
    made, losses = opened(tmp_path), []
    while made.step < made.steps:
        losses.append(made._train_step())
    found = [(row.step, row.value) for row in made.rows if row.kind == "training" and row.measure == "loss"]
    spans = {1: losses[:1], 4: losses[1:4], 8: losses[4:8], 12: losses[8:12]}
    assert dict(found) == {step: pytest.approx(np.mean(each)) for step, each in spans.items()}


def test_learning_happens(tmp_path: Path):
    """Copying from 1 back among 4 tokens is learned in 150 steps."""
    made = text("rotary").replace('kind = "copy"', 'kind = "copy", back = 1, vocabulary = 4')
    study = studies.parse(made.replace("12 steps", "150 steps"))
    done = training.TrialRun(study, Key("task", "rotary", 0), tmp_path / "state", "cpu", lambda _: None).run()
    measured = [Measurement(*row) for row in done["rows"]]
    assert chosen(measured, kind="evaluation", measure="accuracy", length=8, place=None)[0] > 0.9


# Dropping


def test_a_drop_is_measured_right_before_and_after(tmp_path: Path):
    made = opened(tmp_path, "dropped")
    while not made._drop_is_due():
        made._train_step()
    kept = {name: each.clone() for name, each in made.model.state_dict().items()}
    before = made._measured(8, 4, "whole")[None][0]
    made._drop()
    assert (chosen(made.rows, variant="before drop", measure="loss"), made.dropped) == ([before], True)
    for name, each in made.model.state_dict().items():
        expected = kept.get(name, torch.ones(made.sizes.head_width))  # the norms of queries and keys begin at 1
        assert torch.equal(each, expected), name
    assert len(made.model.state_dict()) == len(kept) + 4
    assert chosen(made.rows, variant="dropped", measure="loss") == [made._measured(8, 4, "whole")[None][0]]
    made._train_step()
    assert {row.step for row in made.rows if row.variant} == {7}


def test_after_a_drop_the_model_is_one_without_a_code(tmp_path: Path):
    made = opened(tmp_path, "t5_dropped")
    assert made.model.counted()["code_parameters"] == 64
    made.run()
    assert made.model.counted()["code_parameters"] == 0
    tokens = torch.randint(32, (2, 16), generator=torch.Generator().manual_seed(0))
    logits = by_hand(made.model, tokens, "none", False, "layer")
    torch.testing.assert_close(made.model(tokens).double(), logits, atol=1e-5, rtol=0)


def test_a_drop_before_the_first_step_and_after_the_last(tmp_path: Path):
    for at, step in (("0", 0), ('"100 %"', 12)):
        study = studies.parse(text("t5_dropped").replace('"50 %"', at))
        made = training.TrialRun(study, Key("task", "t5_dropped", 0), tmp_path / at[:1], "cpu", lambda _: None)
        measured = [Measurement(*row) for row in made.run()["rows"]]
        assert {row.step for row in measured if row.variant in ("before drop", "dropped")} == {step}
        assert made.dropped


# Evaluation


def test_a_change_at_test_time_changes_the_code_alone(tmp_path: Path):
    plain, measured = rows(tmp_path, "rotary"), rows(tmp_path, "scaled")
    assert [row for row in measured if row.variant == ""] == plain
    made = opened(tmp_path, "scaled")
    while made.step < made.steps:
        made._train_step()
    before = {name: each.clone() for name, each in made.model.state_dict().items()}
    made._evaluate_all()
    assert all(torch.equal(each, before[name]) for name, each in made.model.state_dict().items())
    assert made.model.logit_scale == 1.0
    where = {"kind": "evaluation", "measure": "loss", "place": None}
    trained, longer = (
        {name: chosen(measured, variant=name, length=length, **where)[0] for name in ("", *made.arm.at_test)}
        for length in (8, 16)
    )
    assert trained["yarn"] == trained["logits"] == trained[""]
    assert len(set(trained.values())) == 3
    assert len(set(longer.values())) == 5


def test_the_logit_scale_grows_with_the_logarithm_of_the_length(tmp_path: Path):
    made, found = opened(tmp_path, "scaled"), {}
    for length in (4, 8, 16, 32):
        with made._changed(length, "logits"):
            found[length] = made.model.logit_scale
    assert found == {4: 1.0, 8: 1.0, 16: 1 + 0.5 * math.log(2), 32: 1 + 0.5 * math.log(4)}


def test_positions_are_drawn_for_training_alone(tmp_path: Path):
    made, given = opened(tmp_path, "drawn"), []
    called = made.model.code.embed
    made.model.code.embed = lambda x, positions=None: given.append(positions) or called(x, positions)
    made._train_step()
    made._train_step()
    made._measured(8, 4, "whole")
    first, second, held = given
    assert held is None
    assert first.shape == (4, 8)
    assert not np.array_equal(first, second)
    assert (np.diff(first) > 0).all()
    assert first.min() >= 0
    assert first.max() < 40


def test_shifted_positions_leave_a_rotary_model_as_it_is(tmp_path: Path):
    losses = (chosen(rows(tmp_path, arm), kind="training", measure="loss") for arm in ("rotary", "shifted"))
    np.testing.assert_allclose(*losses, atol=1e-4)


def test_places_add_up_to_the_whole(tmp_path: Path):
    made = opened(tmp_path, "none")
    for length in (8, 16):
        found = made._measured(length, 64, "whole")
        assert list(found) == [None, *range(3, length)]
        np.testing.assert_allclose(found[None], np.mean([found[each] for each in found if each is not None], 0))


def test_evaluation_takes_as_many_tokens_at_every_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []
    made = opened(tmp_path, "none")
    measured = training.TrialRun._measured
    monkeypatch.setattr(training.TrialRun, "_measured", lambda self, *how: asked.append(how) or measured(self, *how))
    made._evaluate_all()
    assert asked == [(8, 8, "whole"), (16, 4, "whole")]


def test_the_share_on_the_first_token_is_that_of_even_attention_where_scores_are_equal(tmp_path: Path):
    made = opened(tmp_path, "none", evaluation=", sinks = true")
    for each in made.model.attentions:
        torch.nn.init.zeros_(each.into.weight)
    made._sinks()
    even = np.mean([1 / n for n in range(5, 9)])
    assert chosen(made.rows, measure="even_share") == [pytest.approx(even)]
    assert chosen(made.rows, measure="sink_share") == [pytest.approx(even)] * 3
    assert [row.place for row in made.rows if row.measure == "sink_share"] == [0, 1, None]
    made = opened(tmp_path, "alibi", evaluation=", sinks = true")
    made._sinks()
    assert max(chosen(made.rows, measure="sink_share")) < even


def test_every_task_can_be_trained(tmp_path: Path, cases):
    for task in ("order", "recall", "induction", "absolute"):
        with cases(task):
            made = text("rotary", task).replace("length = 8\n", "length = 32\n").replace("[8, 16]", "[32, 40]")
            named = {"task": "task", "arm": "rotary", "seed": 3, "checkpoint": str(tmp_path / task)}
            done = training.trial(study=made, **named, tell=lambda _: None)
            found = [Measurement(*row) for row in done["rows"]]
            assert len(chosen(found, kind="evaluation", measure="loss", place=None)) == 2
            assert all(math.isfinite(row.value) for row in found)
            assert done["facts"]["steps"] == 12
            assert done["facts"]["tokens"] == 12 * 4 * 32


# Going on from a checkpoint


class Killed(Exception):
    """Stands for SIGKILL: nothing is written when it is raised."""


def killed(folder: Path, arm: str, step: int | None, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> Path:
    """A trial that ends before a step, or in its evaluation; its checkpoint."""

    def dying(self: Any, *arguments: Any) -> Any:
        if self.step == step or step is None:
            raise Killed
        return real(self, *arguments)

    name = "_evaluate" if step is None else "_train_step"
    real = getattr(training.TrialRun, name)
    with monkeypatch.context() as patched:
        patched.setattr(training.TrialRun, name, dying)
        with pytest.raises(Killed):
            rows(folder, arm, seed)
    return folder / "state.pt"


# Before the first checkpoint, at it, at the drop, after it, late, evaluating; and one that dies again and again.
ENDS = {
    "dropped": ((2, 5, 7, 8, 11, None), (6, 9, None)),
    "t5_dropped": ((6, 7, None), ()),
    "drawn": ((6, 11), ()),
}


@pytest.mark.parametrize("arm", ENDS)
def test_a_trial_that_goes_on_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str):
    whole, told = rows(tmp_path, arm), []
    once, again = ENDS[arm]
    for step in once:
        assert killed(tmp_path, arm, step, monkeypatch).exists() == (step != 2)
        assert rows(tmp_path, arm, tell=told.append) == whole
    assert not any("warning" in each for each in told)
    for step in again:
        killed(tmp_path, arm, step, monkeypatch)
    assert rows(tmp_path, arm) == whole


# One bit in the middle is another.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: data[:0],
    "text": lambda data: b"no checkpoint at all" + data[:0],
    "half": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "one bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
}


def test_a_damaged_checkpoint_is_told_and_the_trial_starts_again(tmp_path: Path, monkeypatch, cases):
    whole = rows(tmp_path)
    kept = killed(tmp_path, "rotary", 7, monkeypatch).read_bytes()
    for name, damage in DAMAGES.items():
        with cases(name):
            told = []
            (tmp_path / "state.pt").write_bytes(damage(kept))
            assert rows(tmp_path, tell=told.append) == whole
            (warning,) = (each["warning"] for each in told if "warning" in each)
            assert warning.startswith("The checkpoint of task, rotary, seed 0 cannot be used (")
            assert warning.endswith("). The trial starts again from step 0.")


def test_a_checkpoint_of_another_trial_or_format_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole, told = rows(tmp_path, seed=1), []
    file = killed(tmp_path, "rotary", 7, monkeypatch)
    assert rows(tmp_path, seed=1, tell=told.append) == whole
    file = killed(tmp_path, "rotary", 7, monkeypatch, seed=1)
    state = torch.load(file, weights_only=True)
    del state["sums"]
    torch.save(state, file)
    assert rows(tmp_path, seed=1, tell=told.append) == whole
    warnings = [each["warning"] for each in told if "warning" in each]
    assert ["(it belongs to another trial)" in warnings[0], "('sums')" in warnings[1], len(warnings)] == [True, True, 2]


def test_a_checkpoint_has_checksums_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = killed(tmp_path, "drawn", 7, monkeypatch)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    state = torch.load(file, weights_only=True)
    assert (state["step"], len(json.loads(state["generators"]))) == (5, 2)
    assert list(tmp_path.iterdir()) == [file]
    link = file.with_name(f"{file.name}.{os.getpid()}.unfinished")  # planted: it leads nothing elsewhere
    link.symlink_to(tmp_path / "victim")
    killed(tmp_path, "drawn", 7, monkeypatch)
    assert not (tmp_path / "victim").exists()
    link.unlink()
    files.fresh_beside(file)  # by a process that was killed while it wrote
    rows(tmp_path, "drawn")
    assert list(tmp_path.iterdir()) == []


# What goes wrong


def test_a_loss_that_is_not_finite_ends_the_trial_with_a_sentence(tmp_path: Path):
    study = studies.parse(text("rotary", training="clip = 0").replace("learning_rate = 0.01", "learning_rate = 1e30"))
    with pytest.raises(training.TrainingFailed) as caught:
        training.TrialRun(study, Key("task", "rotary", 0), tmp_path / "state.pt", "cpu", lambda _: None).run()
    assert caught.value.message == (
        "The loss of rotary on task (seed 0) is nan at step 1, at learning rate 6.66667e+29."
    )
    assert caught.value.hint == "Give the arm a lower learning_rate: `clockhands lab tune` tries 0.001, 0.003, 0.01."


def test_a_checkpoint_that_cannot_be_written_ends_the_trial_with_a_sentence(tmp_path: Path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(training.TrainingFailed) as caught:
        rows(tmp_path)
    assert caught.value.message == f"The checkpoint {tmp_path}/state.pt cannot be written: No space left on device."
    assert caught.value.hint == (
        "Make room or choose another place for the store; `clockhands lab resume` goes on from the last one."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_trial_leaves_the_settings_of_its_process_as_they_were(tmp_path: Path):
    from torch.utils import deterministic

    def settings() -> tuple[object, ...]:
        return (
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            deterministic.fill_uninitialized_memory,
        )

    before = settings()
    training.trial(
        study=text("none"), task="task", arm="none", seed=0, checkpoint=str(tmp_path / "c"), tell=lambda _: None
    )
    assert settings() == before
