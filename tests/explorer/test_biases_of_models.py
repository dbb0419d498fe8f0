"""The biases of a model on its page: ALiBi's by the model's own heads, T5's by the numbers that it learned."""

import json
import math
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

import clockhands as ch
from clockhands.auditing import audit
from clockhands.encodings.specs import from_dict
from clockhands.show.explorer.data import model_biases
from explorer.facts import MODELS
from explorer.facts import shown as page_of
from exploring import put, says

TENSOR = "{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


@pytest.fixture(scope="module")
def tables():
    """Drawn, as a stand-in for what training leaves."""
    draw = np.random.default_rng(16)
    return {part: draw.normal(size=(32, 4)).astype(np.float32) for part in ("encoder", "decoder")}


@pytest.fixture(scope="module")
def models(tmp_path_factory, tables):
    place = tmp_path_factory.mktemp("models")
    for name, config in {"t5": MODELS["t5"], "bloom": MODELS["bloom"], "bare": MODELS["t5"]}.items():
        (place / name).mkdir()
        (place / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({TENSOR.format(part): table for part, table in tables.items()}, place / "t5" / "model.safetensors")
    return place


def test_a_models_biases_are_its_specs_and_its_own_numbers(models, tables):
    found = model_biases([audit("llama"), audit(models / "t5"), audit(models / "bloom")])
    assert [(each["model"], each["part"], from_dict(each["spec"])) for each in found] == [
        (1, "encoder", ch.Buckets(4)),
        (1, "decoder", ch.Buckets(4, bidirectional=False)),
        (2, "text", ch.Alibi(12, form="key")),
    ]
    for each in found[:2]:
        assert np.array_equal(np.asarray(each["values"]["table"], dtype=np.float32), tables[each["part"]])
    assert found[2]["values"] is None


def test_without_weights_or_with_some_that_cannot_be_read_a_table_has_no_numbers(models):
    assert [each["values"] for each in model_biases([audit(models / "bare")])] == [None, None]
    assert model_biases([audit("t5")])[0]["values"] is None
    found, broken = audit(models / "t5"), models / "t5" / "model.safetensors"
    held = broken.read_bytes()
    try:
        broken.write_bytes(held[:100])
        assert [each["values"] for each in model_biases([found])] == [None, None]
    finally:
        broken.write_bytes(held)


@pytest.fixture(scope="module")
def shown(tmp_path_factory, models):
    audits = [audit(models / name) for name in ("t5", "bloom", "bare")]
    return page_of(tmp_path_factory.mktemp("page") / "models.html", *audits)


@pytest.mark.slow
def test_the_steps_of_a_model_stand_where_its_trained_numbers_are(quiet_page, shown, tables):
    with quiet_page(shown) as tab:
        for part, code in (("encoder", ch.Buckets(4)), ("decoder", ch.Buckets(4, bidirectional=False))):
            put(tab, "bias", biasOf={"encoder": "0", "decoder": "1"}[part], head=2)
            edges = code.boundaries
            says(tab, "bias", rf"t5 \({part}, layers 0-1\) all distances from # on share one value", edges[-1])
            says(tab, "bias", "of # distances they distinguish #", 2048, 1 + len(edges))
            note = "#bias .half:last-child .note"
            says(tab, note, rf"^The trained numbers of t5 \({part}.*: # buckets", 32)
            lines = tab.locator("#bias .half:last-child .head-line")
            assert lines.count() == 4
            for line in lines.all():
                corners = re.findall(r"(-?[\d.]+),(-?[\d.]+)", line.get_attribute("d"))
                heights = np.array([float(y) for _, y in corners])[::2]
                values = tables[part][: 1 + len(edges), int(line.get_attribute("data-head"))]
                # Upwards and to one scale, so that a number of one bucket tells that of all others.
                slope, start = np.polyfit(values, heights, 1)
                assert slope < 0
                assert np.abs(slope * values + start - heights).max() < 0.01
            assert not tab.locator('#bias input[data-name="seed"]').first.is_visible()
            assert not tab.locator('#bias input[data-name="heads"]').first.is_visible()


@pytest.mark.slow
def test_the_lines_of_a_model_are_those_of_its_heads_and_what_is_not_its_own_says_so(quiet_page, shown):
    with quiet_page(shown) as tab:
        put(tab, "bias", biasOf="2")
        slopes = ch.Alibi(12).slopes
        words = r"In bloom \(text, layers 0-5\), which has ALiBi on # heads, .* after # tokens .* and after #"
        says(tab, "bias", words, 12, math.log(2) / max(slopes), math.log(2) / min(slopes), rel=6e-3)
        assert tab.locator("#bias .half:first-child .head-line").count() == 12
        assert "drawn at random" in tab.locator("#bias .half:last-child .note").inner_text()
        put(tab, "bias", biasOf="3")
        told = tab.locator("#bias .half:last-child .note").inner_text()
        assert "are not in what was read; here they are drawn at random" in told
        assert "bare (t5)" in told
        put(tab, "bias", biasOf="-1", heads=5)
        says(tab, "bias", "With ALiBi on # heads", 5)
