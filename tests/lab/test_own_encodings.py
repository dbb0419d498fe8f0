"""Encodings of the user's own in a study: identity, training as the built-in one, layers, and what a store may run."""

from pathlib import Path

import pytest

from clockhands.errors import InvalidValue, Unreadable
from clockhands.lab import study as studies
from clockhands.lab.own_codes import refuse_other_code
from clockhands.lab.store import Key
from late import Late

torch = Late("torch")

CODE = Path(__file__).with_name("my_codes.py").read_text(encoding="utf-8")
STUDY = """\
question = "Is my RoPE the built-in one?"
seeds = [0]
model = { width = 16, heads = 2, layers = 2 }
training = { length = 8, sequences = 4, duration = "6 steps", learning_rate = 0.01 }
evaluation = { lengths = [8, 16], sequences = 4 }
tasks.copy = { kind = "copy" }
arms.built = { code = { type = "Rotary" } }
arms.own = { code = { python = "my_codes.py:Rope", base = 10000.0 } }
arms.slopes = { code = { python = "my_codes.py:Slopes" } }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_codes.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def test_the_code_is_part_of_the_identity_of_a_study(folder):
    first = studies.read(folder / "mine.toml")
    assert CODE in studies.tomllib.loads(first.text)["sources"].values()
    assert studies.parse(first.text).hash == first.hash
    (folder / "my_codes.py").write_text(CODE + "\n# a change\n", encoding="utf-8")
    assert studies.read(folder / "mine.toml").hash != first.hash


def test_an_own_rope_trains_as_the_built_in_one(folder, tmp_path):
    pytest.importorskip("torch")
    from clockhands.lab._model_codes import check
    from clockhands.lab._training import TrialRun

    study = studies.read(folder / "mine.toml")
    check(study)
    losses = {}
    for arm in study.arms:
        trial = TrialRun(study, Key("copy", arm, 0), tmp_path / f"{arm}.pt", "cpu", lambda *_: None)
        trial.run()
        losses[arm] = [row.value for row in trial.rows if row.measure == "loss"]
        counted = trial.counted["code_parameters"]
        assert counted == (4 if arm == "slopes" else 0)  # two heads in each of two layers
    assert losses["own"] == pytest.approx(losses["built"], rel=1e-4)
    assert losses["slopes"] != pytest.approx(losses["built"], rel=1e-4)


def test_code_that_is_wrong_is_refused_before_training(folder):
    pytest.importorskip("torch")
    from clockhands.lab._model_codes import check

    for name, message in (("Wrong", "In `arms.own`"), ("Absent", "no 'Absent'")):
        (folder / "mine.toml").write_text(
            STUDY.replace("codes.py:Rope", f"codes.py:{name}").replace(", base = 10000.0", ""), encoding="utf-8"
        )
        with pytest.raises((InvalidValue, Unreadable), match=message):
            check(studies.read(folder / "mine.toml"))
    for given, message in (("gone.py:Rope", "gone.py"), ("my_codes", "must name an encoding in a file")):
        (folder / "mine.toml").write_text(STUDY.replace("my_codes.py:Rope", given), encoding="utf-8")
        with pytest.raises((InvalidValue, Unreadable), match=message):
            studies.read(folder / "mine.toml")
    (folder / "helper.py").write_text("RATE = 1.0", encoding="utf-8")
    (folder / "my_codes.py").write_text(f"from helper import RATE\n{CODE}", encoding="utf-8")
    (folder / "mine.toml").write_text(STUDY, encoding="utf-8")
    with pytest.raises(InvalidValue, match="imports helper from beside it"):
        studies.read(folder / "mine.toml")
    with pytest.raises(InvalidValue, match="is not in `sources`"):
        studies.parse(STUDY)


def test_code_of_a_store_runs_only_where_the_user_has_it(folder):
    data = studies.tomllib.loads(studies.read(folder / "mine.toml").text)
    refuse_other_code(data, folder)
    (folder / "my_codes.py").write_text(CODE + "\n", encoding="utf-8")
    with pytest.raises(InvalidValue, match="which differs from"):
        refuse_other_code(data, folder)
    with pytest.raises(InvalidValue, match="which is not in"):
        refuse_other_code(data, folder / "elsewhere")
