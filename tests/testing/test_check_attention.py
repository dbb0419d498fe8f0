"""Attention layers and models of one's own beside a config: sound ones pass, each fault is named with its layers."""

import json
import warnings

import pytest
from click.testing import CliRunner

from clockhands.cli import main
from clockhands.errors import InvalidType, InvalidValue
from clockhands.testing import CannotCheck, CheckFailed, check_attention
from clockhands.testing.kinds import check_any
from late import Late

twins, torch = Late("testing.attention_twins"), Late("torch")

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "max_position_embeddings": 4096, "rope_theta": 10000.0,
}  # fmt: skip
NEIGHBOURS = {**LLAMA, "model_type": "cohere"}
TWO_LISTS = {**LLAMA, "model_type": "phi3", "original_max_position_embeddings": 1024, "rope_scaling": {
    "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [float(i) for i in range(1, 9)]}}  # fmt: skip
GRANITE = {**LLAMA, "model_type": "granite", "attention_multiplier": 0.015625}
GEMMA = {**LLAMA, "model_type": "gemma2", "head_dim": 16, "query_pre_attn_scalar": 144, "sliding_window": 4096}
LATENT = {
    **LLAMA, "model_type": "deepseek_v3", "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "kv_lora_rank": 16, "q_lora_rank": 24,
    "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                     "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1},
}  # fmt: skip
WITHOUT = {
    "smollm3": {**LLAMA, "model_type": "smollm3", "no_rope_layers": [1, 1, 1, 0]},
    "exaone4": {**LLAMA, "model_type": "exaone4", "head_dim": 16, "sliding_window": 4096, "sliding_window_pattern": 4},
}
GROWING = {**LLAMA, "model_type": "llama4_text", "head_dim": 16, "no_rope_layers": [1, 1, 1, 0],
           "attn_temperature_tuning": True, "floor_scale": 64, "attn_scale": 0.1}  # fmt: skip
BUCKETS = {
    "is_encoder_decoder": True, "num_decoder_layers": 3, "num_layers": 3, "d_model": 64, "num_heads": 4, "d_kv": 16,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "vocab_size": 100,
}  # fmt: skip


def told(module, like, **how):
    """The codes and the messages of a report."""
    report = check_attention(module, like, raises=False, **how)
    return sorted(report.codes), " ".join(each.message for each in report.explanations)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def test_sound_layers_of_many_styles_pass_with_every_experiment(cases):
    for name, like in (("Layer", LLAMA), ("Fused", LLAMA), ("Einsum", LLAMA), ("Complex", NEIGHBOURS),
                       ("Flexible", LLAMA), ("Counting", LLAMA), ("Nested", LLAMA), ("Parameters", LLAMA),
                       ("TokensFirst", LLAMA), ("OneText", LLAMA), ("Coordinates", LLAMA)):  # fmt: skip
        with cases(name):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="flex_attention called without")
                assert told(getattr(twins, name)(scale=0.2), like)[0] == ["score-scale"]
                report = check_attention(getattr(twins, name)(), like)
            assert report.experiments == ("rotation", "score scale", "queries beside keys")
            assert not report.left_out
    for name, layers in (("Layer", 0), ("OneText", 0), ("Counting", 0), ("Sinking", 3)):
        with cases(f"a model of {name}"):
            report = check_attention(twins.Model((True,) * 4, getattr(twins, name)), LLAMA)
            counted = ["positions that are passed in"] * (name not in {"Layer", "OneText"})
            assert [*report.left_out] == [*counted, *["rotation of layers 1-3"][: bool(layers)]]
            wrong = twins.Model((True,) * 4, getattr(twins, name), base=500_000.0)
            assert told(wrong, LLAMA)[0] == ["layer-rotation"]
    for way in ("einsum", "absorbed", "first"):
        with cases(way):
            report = check_attention(twins.Latent(way=way), LATENT)
            assert report.experiments == ("rotation", "score scale", "queries beside keys")


def test_score_scales_that_are_not_declared_are_named(cases):
    for way in ("einsum", "absorbed", "first"):
        for times, measured, fault in ((0, "1", "1.874 on the scores left out"), (2, "3.511", "applied twice")):
            with cases(way, times):
                codes, message = told(twins.Latent(times, way), LATENT)
                assert codes == ["score-scale"]
                assert f"multiplied by {measured}, where the config declares 1.874" in message
                assert fault in message
    for like, right, wrong in ((GRANITE, 0.015625, 0.25), (GEMMA, 1 / 12, 0.25), (LLAMA, 0.25, 1.0)):
        with cases(like["model_type"]):
            assert told(twins.Layer(scale=right), like, layer=0) == ([], "")
            codes, message = told(twins.Layer(scale=wrong), like, layer=0)
            assert codes == ["score-scale"]
            assert "multiplied by" in message
    with cases("scores that are capped"):
        assert told(twins.Layer(scale=1 / 12, cap=50.0), GEMMA, layer=0) == ([], "")
        assert told(twins.Layer(scale=0.25, cap=50.0), GEMMA, layer=0)[0] == ["score-scale"]


def test_scores_that_should_grow_with_the_position_are_followed(cases):
    for grows, wanted in ((64, ""), (None, "do not grow with the position"), (32, "times those at position 0")):
        with cases(grows):
            codes, message = told(twins.Layer(rotates=False, grows=grows), GROWING, layer=3)
            assert codes == (["score-growth"] if wanted else [])
            assert wanted in message
    far = {**GROWING, "floor_scale": 8192, "max_position_embeddings": 65536}
    with cases("from position 8,192 on"):
        assert told(twins.Layer(rotates=False, grows=8192), far, layer=3) == ([], "")
        assert told(twins.Layer(rotates=False), far, layer=3)[0] == ["score-growth"]


def test_layers_that_rotate_against_the_config_are_named(cases):
    with cases("one text at a time"):
        codes, message = told(twins.Model((True, False, True, True), twins.OneText), LLAMA)
        assert (codes, "of layer 1," in message) == (["layer-without-rotation"], True)
    for name, like in WITHOUT.items():
        with cases(name):
            assert told(twins.Model(), like) == ([], "")
            assert told(twins.Model((True,) * 4), like) == (
                ["layer-rotates"],
                "rotates queries and keys of layer 3, where the config declares no rotation.",
            )
            assert told(twins.Model((False, True, True, False)), like) == (
                ["layer-without-rotation"],
                "does not rotate queries and keys of layer 0, where the config declares a rotation.",
            )
            assert told(twins.Layer(), like, layer=3)[0] == ["layer-rotates"]


def test_other_rotations_are_named(cases):
    for module, says in (
        (twins.Layer(base=500_000.0), "base 500,000"),
        (twins.Complex(), "layout interleaved"),
        (twins.Counting(base=500_000.0), "base 500,000"),
    ):
        with cases(says):
            codes, message = told(module, LLAMA)
            assert codes == ["layer-rotation"]
            assert says in message
    with cases("the frequencies of longer texts"):
        layer = twins.Layer()
        layer.inv_freq /= torch.arange(1, 9)
        codes, message = told(layer, TWO_LISTS)
        assert "layer-rotation" in codes
        assert "those beyond 1,024 tokens, where those up to 1,024 tokens are declared for a text of" in message
    with cases("a table that nothing has filled"):
        for table in (torch.full((4096, twins.HEAD), float("nan")), 1e26 * torch.randn(4096, twins.HEAD)):
            layer = twins.Layer()
            layer.rotated = lambda x, at, table=table: x * table[at][:, None] + twins.halves(x) * table[at][:, None]
            codes, message = told(layer, LLAMA)
            assert codes == ["layer-rotation"]
            assert "numbers that are no cosines or sines" in message
    with cases("queries one position later"):
        codes, message = told(twins.Layer(late=1), LLAMA)
        assert codes == ["queries-beside-keys"]


def test_windows_that_are_not_as_declared_are_named(cases):
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 6}
    for window, wrong in ((6, []), (7, ["layer-window"]), (None, ["layer-window"])):
        with cases(window):
            codes, message = told(twins.Layer(window=window), mistral)
            assert codes == wrong
            assert ("where the last 6 positions are declared" in message) == bool(wrong)
    with cases("a window that no text within the context shows"):
        report = check_attention(twins.Layer(), {**mistral, "sliding_window": 4096})
        assert report.left_out["window"] == "no text within 4,096 tokens shows it"
    with cases("a layer that takes the mask of its model"):
        report = check_attention(twins.Fused(), mistral)
        assert "it takes a mask" in report.left_out["window"]


def test_the_table_of_biases_that_each_layer_reads_is_compared(cases):
    def tied(model):
        for number in (1, 2):
            model.tables[number] = model.tables[0]
        return model

    own, first = twins.Buckets(lambda layer: layer), twins.Buckets(lambda _: 0)
    for kind, sound, wrong, says in (
        ("umt5", own, first, "is that of the table of layer 0, where the config declares each layer its own"),
        ("t5", first, own, "is that of its own table, where the config declares all layers that of the first one"),
    ):
        like = {"model_type": kind, **BUCKETS}
        with cases(kind):
            assert "bias on scores" in check_attention(sound, like).experiments
            codes, message = told(wrong, like)
            assert codes == ["layer-bias"]
            assert "in layers 1-2" in message
            assert says in message
    with cases("buckets of a decoder"):
        codes, message = told(twins.Buckets(lambda _: 0, two_sided=False), {"model_type": "t5", **BUCKETS})
        assert codes == ["layer-bias"]
        assert "are one-sided, as in a decoder, where those of its stack are two-sided" in message
    with cases("one table for all"):
        codes, message = told(tied(twins.Buckets(lambda layer: layer)), {"model_type": "umt5", **BUCKETS})
        assert "one table of biases serves layers 0-2" in message


def test_what_cannot_be_checked_says_what_to_pass(cases):
    with cases("a layer of which the number is not known"), pytest.raises(InvalidValue) as error:
        check_attention(twins.Layer(), WITHOUT["smollm3"])
    assert "is one layer, and the config of smollm3 declares rotary in layers 0-2 and none in layers 3" in str(
        error.value
    )
    with cases("other sizes"), pytest.raises(CannotCheck, match=r"heads have 16 channels, and .* declares 32") as error:
        check_attention(twins.Layer(), {**LLAMA, "num_attention_heads": 2})
    assert "sizes of the config" in str(error.value.hint)
    with cases("no attention"), pytest.raises(CannotCheck, match="no attention was seen"):
        check_attention(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)), LLAMA)
    with cases("names that say nothing"):
        with pytest.raises(CannotCheck, match="was called as forward") as error:
            check_attention(twins.Unnamed(), LLAMA)
        assert "call=, a function(module, x, positions)" in str(error.value.hint)
        assert check_attention(twins.Unnamed(), LLAMA, call=lambda module, x, positions: module(x, positions)).sound
    with cases("no module"), pytest.raises(InvalidType, match="Expected a torch"):
        check_attention(3, LLAMA)


def test_the_command_and_the_check_of_anything_choose_it(tmp_path, monkeypatch):
    with pytest.raises(CheckFailed, match="rotates queries and keys of layer 3"):
        check_any(twins.Model((True,) * 4), WITHOUT["smollm3"])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(WITHOUT["smollm3"]), encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        "from testing.attention_twins import Layer, Model\ndef build():\n    return Model((True,) * 4)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    for name, like, code, says in (
        ("build", "model", 1, "rotates queries and keys of layer 3"),
        ("Model", "model", 0, "is correct"),
        ("Layer", "model:layer=0", 0, "is correct"),
        ("Layer", "model:layer=3", 1, "rotates queries and keys of layer 3"),
    ):
        made = CliRunner().invoke(main, ["check", f"mine.py:{name}", "--like", like])
        assert (made.exit_code, says in " ".join(made.output.split())) == (code, True), made.output
