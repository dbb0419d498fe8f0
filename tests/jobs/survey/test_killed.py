"""A survey that was killed, or lost a worker of a Ray cluster, ends with the rows of one that nothing disturbed."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from clockhands.jobs.survey.batches import Workers
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.running import SurveyOptions, survey, targets_of
from clockhands.jobs.survey.store import SurveyStore
from jobs.survey.test_running import model

pytestmark = pytest.mark.slow

MODELS = 60
CALL = "jobs.survey.calls:leisurely"

DRIVER = """
import sys
from clockhands.jobs.survey.batches import Workers
from clockhands.jobs.survey.running import SurveyOptions, survey, targets_of
from clockhands.jobs.survey.store import SurveyStore

options = SurveyOptions(Workers(at_once=2, batch=7), call="jobs.survey.calls:leisurely")
with SurveyStore.open(sys.argv[1]) as store:
    for progress in survey(targets_of(sys.argv[2:]), store, options):
        print(progress.stored, flush=True)
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Sixty models with settings of their own, one of which cannot be read."""
    for number in range(MODELS):
        folder = model(tmp_path / "models" / f"{number:03d}", rope_theta=10000.0 + number)
    (folder / "config.json").write_text("[", encoding="utf-8")
    return tmp_path / "models"


def contents(store: SurveyStore) -> list[tuple[SurveyRow, str]]:
    """Every row with its report, without the time that it took and was made at."""
    return [(row._replace(seconds=None, audited_at=""), store.report_of(row)) for row in store.rows(latest=False)]


@pytest.fixture
def undisturbed(models: Path, tmp_path: Path) -> list[tuple[SurveyRow, str]]:
    with SurveyStore.open(tmp_path / "undisturbed.sqlite") as store:
        for _ in survey(targets_of([str(models)]), store, SurveyOptions(Workers(at_once=2))):
            pass
        made = contents(store)
    assert len(made) == MODELS
    assert [row.state for row, _ in made].count("failed") == 1
    return made


@pytest.mark.parametrize("moments", [(1,), (5, 12, 20), (30,)])
def test_sigkill_of_a_survey_loses_no_row_and_makes_none_twice(
    models: Path, tmp_path: Path, undisturbed: list[tuple[SurveyRow, str]], moments: tuple[int, ...]
):
    path = tmp_path / "survey.sqlite"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", DRIVER, str(path), str(models)]
    kept = 0
    for moment in moments:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as driver:
            assert driver.stdout is not None
            next(line for line in driver.stdout if int(line) >= moment)
            driver.send_signal(signal.SIGKILL)
        with SurveyStore.open(path) as store:
            kept, before = len(store.rows(latest=False)), kept
            assert before + moment <= kept < MODELS
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert int(done.stdout.split()[-1]) == MODELS - kept
    with SurveyStore.open(path) as store:
        assert sorted(contents(store)) == undisturbed


def test_a_killed_worker_of_a_ray_cluster_changes_no_row(
    models: Path,
    tmp_path: Path,
    undisturbed: list[tuple[SurveyRow, str]],
    monkeypatch: pytest.MonkeyPatch,
):
    pytest.importorskip("ray")
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.setenv(name, "")  # so that what the engine sets is taken back
        monkeypatch.delenv(name)
    options = SurveyOptions(Workers("ray", at_once=2, batch=15), call=CALL)
    killed: set[str] = set()
    with (
        SurveyStore.open(tmp_path / "survey.sqlite") as store,
        closing(survey(targets_of([str(models)]), store, options)) as events,
    ):
        for progress in events:
            if progress.stored >= 10 * (1 + len(killed)) and len(killed) < 2:
                alive = [path.name for path in (tmp_path / "processes").iterdir() if running_now(path.name)]
                for process in alive[-1:]:  # none while both try what the first killed process had begun
                    os.kill(int(process), signal.SIGKILL)
                    killed.add(process)
        assert (progress.stored, progress.failed) == (MODELS, 1)
        assert len(killed) == 2
        assert sorted(contents(store)) == undisturbed


def running_now(process: str) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
