"""Models that a run keeps: they compute what the lab's models compute, survive a killed run, and are found by name."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidValue, Unreadable
from clockhands.jobs.engines import ENGINES
from clockhands.lab import study as studies
from clockhands.lab.store import Key, Store
from late import Late

torch = pytest.importorskip("torch")
running, training, kept = (
    Late("clockhands.lab.running"),
    Late("clockhands.lab._training"),
    Late("clockhands.lab.kept_models"),
)
keeping = Late("clockhands.lab._keeping")

STUDY = """
question = "What is kept?"
seeds = [0]
model = { width = 16, heads = 2 }
training = { length = 32, sequences = 4, duration = "8 steps", checkpoint = 3, learning_rate = 0.01 }
evaluation = { lengths = [32], sequences = 4 }
tasks.copy = { kind = "copy", vocabulary = 11 }
arms.none = { code = "none" }
arms.sinusoidal = { code = { type = "Sinusoidal" } }
arms.learned = { code = { type = "Learned" } }
arms.t5 = { code = { type = "Buckets" } }
arms.alibi = { code = { type = "Alibi" }, window = 8 }
arms.dropped = { code = { type = "Rotary" }, drop = { at = 5, qk_norm = true } }
"""
STEPS = (0, 4, 8)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "lab.sqlite"
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(ENGINES, "local", "jobs.engines.in_this_process:Pool")
        run(path, keep=(0, 4))
    return path


def run(path: Path, **options) -> None:
    study = studies.parse(STUDY, "kept")
    with Store.open(path) as opened:
        given = running.Options(at_once=1, **options)
        progress = running.prepare(study, opened, "", given)
        with closing(running.events(study, opened, given, progress)) as under_way:
            list(under_way)


def trial(folder: Path, arm: str, steps=STEPS, tell=lambda _: None):
    keep = {"folder": str(folder / "kept"), "name": "kept", "steps": steps}
    return training.trial(
        study=STUDY, task="copy", arm=arm, seed=0, checkpoint=str(folder / "state.pt"), keep=keep, tell=tell
    )


def test_the_rows_are_those_of_a_run_that_keeps_nothing(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ENGINES, "local", "jobs.engines.in_this_process:Pool")
    run(tmp_path / "plain.sqlite")
    study = studies.parse(STUDY, "kept")
    with Store.open(store) as one, Store.open(tmp_path / "plain.sqlite") as other:
        assert one.rows(study.hash) == other.rows(study.hash)
        assert one.trials(study.hash)[0].facts["kept"] == {"folder": "copy.none.0", "steps": list(STEPS)}
        assert "kept" not in other.trials(study.hash)[0].facts
        assert "kept" not in other.studies()[0].machine
    assert not (tmp_path / "plain.sqlite.kept").exists()


def test_a_kept_model_gives_the_logits_of_the_lab(store: Path, cases):
    study = studies.parse(STUDY, "kept")
    for arm in study.arms:
        with cases(arm), training._settings(1, deterministic=True):
            run = training.TrialRun(study, Key("copy", arm, 0), Path(), "cpu", lambda _: None)
            for step in STEPS:
                while run.step < step:
                    if run._drop_is_due():
                        run._drop()
                    run._train_step()
                found = kept.kept_model(f"{store}:{arm}:0@{step}")
                ids = torch.from_numpy(found.batch(4, 32).tokens)
                run.model.eval()
                with torch.no_grad():
                    own, lab = found.module(input_ids=ids, use_cache=False).logits, run.model(ids)
                assert torch.equal(own, lab), step


def test_a_killed_trial_keeps_what_an_undisturbed_one_keeps(tmp_path: Path):
    class Killed(Exception):
        pass

    def after(step: int):
        def tell(message):
            if message.get("step") == step:
                raise Killed

        return tell

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    trial(whole, "dropped")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training.time, "monotonic", iter(range(10**6)).__next__)  # every step is told
        for step in (2, 5, 7):
            with pytest.raises(Killed):
                trial(killed, "dropped", tell=after(step))
    (killed / "kept" / f".00000008.safetensors.{'0' * 16}.unfinished").touch()
    trial(killed, "dropped")
    files = [{each.name: each.read_bytes() for each in (folder / "kept").iterdir()} for folder in (whole, killed)]
    assert sorted(files[0]) == ["00000000.safetensors", "00000004.safetensors", "00000008.safetensors"]
    assert files[0] == files[1]


def test_a_study_goes_on_keeping_as_it_began(store: Path):
    study = studies.parse(STUDY, "kept")
    with Store.open(store) as opened:
        for options in ({}, {"keep": (1,)}):
            with pytest.raises(InvalidValue, match="The study kept keeps models since it was started"):
                running.prepare(study, opened, "", running.Options(**options))


def test_names(store: Path, cases):
    for name, step in (
        ("sinusoidal:0", 8),
        ("copy:sinusoidal:0@4", 4),
        (f"kept:copy:sinusoidal:0@{0}", 0),
        (f"{studies.parse(STUDY).hash[:8]}:sinusoidal:0", 8),
    ):
        with cases(name):
            assert kept.kept_model(f"{store}:{name}").facts["step"] == step
    for name, message in (
        ("sinusoidal:1", "has no kept model of the name sinusoidal:1."),
        ("text:sinusoidal:0", "has no kept model of the name"),
        ("sinusoidal", "has no kept model of the name"),
        ("sinusoidal:0@5", "was not kept: there is no step 5."),
    ):
        with cases(name), pytest.raises(InvalidValue) as caught:
            kept.kept_model(f"{store}:{name}")
        assert message in caught.value.message
    assert kept.kept_model("vaswani2017") is None


def test_an_audit_reads_the_spec_and_refuses_what_no_spec_says(store: Path):
    audited = ch.audit(f"{store}:sinusoidal:0@4")
    assert audited.layers[0].spec == ch.Sinusoidal(16)
    assert audited.length == 32
    assert ch.audit(f"{store}:dropped:0@4").layers[0].kind == "rotary"
    assert ch.audit(f"{store}:dropped:0").layers[0].kind == "none"
    with pytest.raises(Unreadable, match="The encoding of the arm alibi cannot be audited: `window` of the arm"):
        ch.audit(f"{store}:alibi:0")


def test_prices_are_losses_of_the_task_with_another_encoding(store: Path):
    found = ch.probe(f"{store}:sinusoidal:0", measure=["price"], windows=12, length=64)
    prices = {each["fault"]: each["nats"] for each in found.to_dict()["prices"]}
    model = kept.kept_model(f"{store}:sinusoidal:0")
    batch = model.batch(12, 64)
    x = model.module.base_model.embedding(torch.from_numpy(batch.tokens))

    def loss(rows):
        model.module.base_model.code.embed = lambda *_: x + rows
        logits = model.module(torch.from_numpy(batch.tokens)).logits
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).flatten()))

    right = torch.from_numpy(ch.table(ch.Sinusoidal(16), 64))
    sound = loss(right)
    assert prices["encoding-removed"] == pytest.approx(loss(0 * right) - sound, abs=1e-5)
    assert prices["mean-row"] == pytest.approx(loss(right.mean(0)) - sound, abs=1e-5)
    assert prices["added-twice"] == pytest.approx(loss(2 * right) - sound, abs=1e-5)
    assert "positions-from-first" not in prices, "whole sequences do not show it"
    assert found["price"].numbers["loss"] == pytest.approx(sound, abs=1e-5)


def test_a_change_is_taken_back(store: Path):
    for arm in ("sinusoidal", "t5", "learned"):
        model = kept.kept_model(f"{store}:{arm}:0")
        ids = torch.from_numpy(model.batch(2, 32).tokens)
        before = model.losses(ids)
        for change in (model.replaced(model.no_code), model.replaced(model.no_code, [0]), model.without_order()):
            with change:
                changed = model.losses(ids)
            assert np.array_equal(model.losses(ids), before)
            assert np.isfinite(changed).all()


def test_sequences_of_ones_own_are_refused_for_a_task_that_makes_them(store: Path):
    with pytest.raises(InvalidValue, match="The task copy makes its own sequences"):
        ch.probe(f"{store}:sinusoidal:0", ids=np.zeros((2, 32), int), measure=["price"])


def test_a_model_without_encoding_has_no_price(store: Path):
    with pytest.raises(InvalidValue, match="has no position encoding at this step"):
        ch.probe(f"{store}:dropped:0", measure=["price"], length=32)


def test_steps_that_are_kept():
    assert keeping.kept_steps((), 8) == (0, 1, 2, 4, 8)
    assert keeping.kept_steps((3, 100), 8) == (3, 8)


def test_heads_of_a_model_of_the_lab_are_those_that_its_scores_give(store: Path):
    model = kept.kept_model(f"{store}:dropped:0@4")
    ids = torch.from_numpy(model.batch(1, 32).tokens)
    shares = []
    attention = model.module.base_model.attentions[0]
    with torch.no_grad(), Late("clockhands.probes._head_distances").watching(model.module) as seen:
        seen.begin()
        model.module(ids)
        code = model.module.base_model.code
        x = model.module.base_model.embedding(ids)
        (ready, *_) = code.prepare(2, 32, None, x)
        query, key, _ = attention.projected(model.module.base_model.blocks[0].attention_norm(x))
        query, key = ready.turn(query, key)
        scores = (query @ key.mT / 8**0.5).masked_fill(torch.ones(32, 32, dtype=torch.bool).triu(1), -torch.inf)
        shares.append(scores.softmax(-1)[0])
    assert seen.found().at.shape[:2] == (2, 2)
    torch.testing.assert_close(seen.example, shares[0], atol=1e-5, rtol=0)


def test_commands(store: Path, capsys: pytest.CaptureFixture):
    from clockhands.cli.group import main

    for words, says in (
        (["audit", f"{store}:sinusoidal:0"], "sinusoidal"),
        (["check", f"{store}:sinusoidal:0", "--kind", "generation"], "correct as far as checked: the same logits"),
        (["probe", f"{store}:sinusoidal:0@4", "--length", "32", "--windows", "24", "--measure", "price"], "mean-row"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        assert says in " ".join(capsys.readouterr().out.split())  # wherever a line of the terminal ends


def test_steps_are_what_single_probes_give(store: Path):
    options = {"windows": 4, "length": 32}
    found = ch.probe(f"{store}:sinusoidal:0@4", measure=["steps"], **options)["steps"]
    assert list(found.numbers["steps"]) == ["0", "4", "8"]
    alone = ch.probe(f"{store}:sinusoidal:0@4", measure=["price", "mechanism"], **options)
    step = found.numbers["steps"]["4"]
    assert step["loss: of the task"] == alone["price"].numbers["loss"]
    prices = {each["fault"]: each["nats"] for each in alone["price"].numbers["prices"]}
    assert step["rise of the loss: mean-row"] == prices["mean-row"]
    mechanism = alone["mechanism"].numbers
    assert step["position read after layer: 2"] == mechanism["position_r2"]["own"]["2"]
    control = step["position read with all tokens at position 0, after layer: 2"]
    assert control == mechanism["position_r2"]["frozen"]["2"]
    explained = mechanism["score_terms"]["distance_explains"]
    ways = {
        "without projections": explained["before"],
        "random projections, mean": explained["random"],
        "heads of layer 0, mean": pytest.approx(np.mean(explained["trained"])),
        "heads of layer 0, smallest": min(explained["trained"]),
        "heads of layer 0, largest": max(explained["trained"]),
    }
    assert {name: step[f"part of the distance in the position-position term: {name}"] for name in ways} == ways
    assert {each.title.partition(",")[0] for each in found.figures} >= {"Loss", "Position read after layer"}
    with pytest.raises(InvalidValue, match="only the lab keeps them"):
        ch.probe(torch.nn.Linear(2, 2), ids=np.zeros((1, 8), int), measure=["steps"])
