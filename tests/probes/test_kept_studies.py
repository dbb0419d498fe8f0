"""A study whose kept models were probed: its report, figure and tables show the curves, with no second measurement."""

import csv
import io
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.cli.group import main
from clockhands.errors import InvalidValue
from clockhands.jobs.engines import ENGINES
from clockhands.lab import study as studies
from clockhands.lab.store import Measurement, Store
from late import Late

pytest.importorskip("torch")
pytest.importorskip("scipy")
running, kept_studies, results = (
    Late("clockhands.lab.running"), Late("clockhands.probes.kept_studies"), Late("clockhands.lab.results")
)  # fmt: skip

STUDY = """
question = "What do kept models do?"
seeds = [0, 1]
model = { width = 16, heads = 2 }
training = { length = 32, sequences = 4, duration = "8 steps", learning_rate = 0.01 }
evaluation = { lengths = [32], sequences = 4 }
tasks.copy = { kind = "copy", vocabulary = 11 }
arms.none = { code = "none" }
arms.sinusoidal = { code = { type = "Sinusoidal" } }
"""
HASH = studies.parse(STUDY).hash
REMOVED = "rise of the loss: encoding-removed"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of two seeds at two steps, probed by the command."""
    path = tmp_path_factory.mktemp("probed") / "lab.sqlite"
    study = studies.parse(STUDY, "probed")
    with pytest.MonkeyPatch.context() as patched, Store.open(path) as opened:
        patched.setitem(ENGINES, "local", "jobs.engines.in_this_process:Pool")
        given = running.Options(at_once=1, keep=(0,))
        with closing(running.events(study, opened, given, running.prepare(study, opened, "", given))) as under_way:
            list(under_way)
    assert command("probe", "--store", path, "--windows", 4) == 0
    return path


def command(*words) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["lab", *map(str, words)])
    return int(ended.value.code or 0)


def loaded(path: Path):
    with Store.open(path, create=False, write=False) as opened:
        return results.Results.load(opened, opened.study(HASH))


def test_the_store_has_what_a_probe_of_each_model_gives_with_the_range_of_the_seeds(store: Path):
    found = loaded(store).kept_models("copy", "sinusoidal")
    probes = [
        ch.probe(f"{store}:sinusoidal:{seed}", measure=["steps"], windows=4, length=32)["steps"].numbers["steps"]
        for seed in (0, 1)
    ]
    assert set(found) == set(probes[0]["8"])
    for measure, by_step in found.items():
        assert list(by_step) == [0, 8]
        for step, value in by_step.items():
            alone = [each[str(step)][measure] for each in probes]
            assert value.seeds == dict(enumerate(alone))
            assert (value.low, value.high, value.mean) == (min(alone), max(alone), pytest.approx(np.mean(alone)))
    groups = {each.partition(":")[0] for each in found}
    assert groups >= {
        "rise of the loss with a fault", "heads at one distance", "position read after layer",
        "position part left by R_k after layer",
    }  # fmt: skip


def test_the_prices_of_faults_are_those_of_the_measurement_price(store: Path):
    found = loaded(store).kept_models("copy", "sinusoidal")
    prices = ch.probe(f"{store}:sinusoidal:1", measure=["price"], windows=4, length=32)["price"].numbers["prices"]
    seen = {each["fault"]: each["nats"] for each in prices}
    group = "rise of the loss with a fault: "
    own = {name.removeprefix(group): each[8].seeds[1] for name, each in found.items() if name.startswith(group)}
    own |= {name: found[f"rise of the loss: {name}"][8].seeds[1] for name in ("encoding-removed", "mean-row")}
    assert {name: own[name] for name in seen} == seen
    assert not any(own[name] for name in own.keys() - seen.keys()), "a fault that is not visible has 0"


def test_what_was_measured_so_is_not_measured_again_and_other_windows_replace_it(
    store: Path, capsys: pytest.CaptureFixture
):
    plain = loaded(store)
    rows = plain.by_seed("copy", "sinusoidal", "loss")
    assert command("probe", "--store", store, "--windows", 4) == 0
    assert "0 trials were measured" in capsys.readouterr().err
    assert command("probe", "--store", store, "--windows", 4, "--length", 40, "--arm", "none") == 0
    assert "2 trials were measured" in capsys.readouterr().err
    other = loaded(store)
    assert other.probed("copy")["none"]["length"] == 40
    assert other.kept_models("copy", "none") != plain.kept_models("copy", "none")
    assert other.kept_models("copy", "sinusoidal") == plain.kept_models("copy", "sinusoidal")
    assert other.by_seed("copy", "sinusoidal", "loss") == rows
    command("probe", "--store", store, "--windows", 4)


def test_the_report_the_figure_and_the_tables_show_the_curves(store: Path, capsys: pytest.CaptureFixture, cases):
    pytest.importorskip("matplotlib")
    made = store.parent
    names = {"--html": "it.html", "--figure": "it.svg", "--table": "it.md"}
    words = [word for option, name in names.items() for word in (option, made / name)]
    capsys.readouterr()
    assert command("report", "--store", store, *words, "--force") == 0
    assert command("report", "--store", store, "--table", made / "it.csv", "--force") == 0
    terminal, (page, figure, markdown) = capsys.readouterr().out, ((made / each).read_text() for each in names.values())
    value = loaded(store).kept_models("copy", "sinusoidal")[REMOVED][8]
    with cases("terminal"):
        (row,) = {line for line in terminal.splitlines() if line.startswith(REMOVED)}
        assert row.endswith(f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]")
    with cases("page"):
        assert "What do the kept models do with their positions along the training?" in page
        assert "4 of 32 tokens" in page
        # Each chart is drawn for a wide page and for a phone; both arms have hidden states, one has an encoding.
        for title, number in (
            ("rise of the loss, encoding-removed (nats)", 2), ("position left of a shift by 1 token (share)", 2),
            ("rise of the loss with each fault (nats)", 2), ("position read out of hidden states (R2)", 4),
        ):  # fmt: skip
            assert page.count(f'aria-label="{title}"') == number, title
    with cases("figure"):
        assert "sinusoidal: position left of a shift" in figure
        assert "R_k, layer 2" in figure
    with cases("tables"):
        (row,) = [line for line in markdown.splitlines() if f"| 8 | {REMOVED} |" in line]
        assert f"| copy | sinusoidal | kept model |  | 32 | 8 | {REMOVED} | 2 | {value.mean:.6g} |" in row
        rows = list(csv.DictReader(io.StringIO((made / "it.csv").read_text())))
        assert {each["step"] for each in rows} == {"", "0", "8"}


def test_what_cannot_be_measured_is_refused(store: Path, tmp_path: Path):
    with Store.open(store) as opened:
        stored = opened.study(HASH)
        with pytest.raises(InvalidValue, match="arm"):
            kept_studies.probe_study(opened, stored, ["rotary"])
        row = Measurement("curve", "loss", 1.0, 8, 32)
        with pytest.raises(InvalidValue, match="A row of a probe is of another variant"):
            opened.put_probe(HASH, ("copy", "none", 0), {}, [row])
    with Store.open(tmp_path / "lab.sqlite") as opened:
        opened.add_study(HASH, "probed", STUDY, {})
        opened.add_trials(HASH, studies.parse(STUDY).trial_keys())
        with pytest.raises(InvalidValue, match="has no kept models of this study"):
            kept_studies.probe_study(opened, opened.study(HASH))
