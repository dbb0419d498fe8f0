"""What a check compares with: a preset, the file of a spec, or what a model's files declare."""

import json

import pytest
from click.testing import CliRunner

import clockhands as ch
from clockhands.cli import main
from clockhands.errors import InvalidValue
from clockhands.testing import check_rotary
from clockhands.testing.kinds import spec_of

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 512, "rope_theta": 500000.0,
}  # fmt: skip
# One full layer after each sliding one, each kind with its base.
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "num_hidden_layers": 4,
    "sliding_window": 32, "sliding_window_pattern": 2, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
    "max_position_embeddings": 512,
}  # fmt: skip

INDEXED = {
    **LLAMA, "model_type": "deepseek_v32", "kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "index_head_dim": 16, "index_n_heads": 4, "index_topk": 64,
    "rope_theta": 10000.0,
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    """Writes a config into a folder of its own, and gives the folder."""

    def written(fields):
        (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
        return str(tmp_path)

    return written


def test_a_model_stands_for_the_one_code_of_its_text(config):
    folder = config(LLAMA)
    assert spec_of(folder) == spec_of(f"{folder}/config.json") == ch.Rotary(head_width=16, base=500_000)
    report = check_rotary(lambda x, positions: ch.rotate(x, ch.Rotary(16), positions), like=folder, raises=False)
    assert [each.codes for each in report.explanations] == [("another-base",)]


def test_one_layer_is_named_where_layers_differ(config):
    folder = config(GEMMA)
    with pytest.raises(InvalidValue, match=r"in layers 0,2 and .* in layers 1,3") as error:
        spec_of(folder)
    assert ":layer=0" in str(error.value.hint)
    assert [spec_of(f"{folder}:layer={layer}").base for layer in (0, 1)] == [10_000, 1_000_000]
    for wrong in ("x", "-1"):
        with pytest.raises(InvalidValue, match="number of a layer"):
            spec_of(f"{folder}:layer={wrong}")
    with pytest.raises(InvalidValue, match="no encoding that is known whole in layer 9"):
        spec_of(f"{folder}:layer=9")


def test_the_file_of_a_spec_is_read_in_python_too(tmp_path):
    spec = ch.Rotary(head_width=16, layout="interleaved")
    (tmp_path / "spec.json").write_text(ch.to_json(spec), encoding="utf-8")
    assert spec_of(str(tmp_path / "spec.json")) == spec
    assert spec_of("llama2:head_width=16") == ch.preset("llama2", head_width=16)


def test_another_part_of_a_model_is_chosen_by_its_name(config):
    """DeepSeek-V3.2: the indexer rotates halves, the attention neighbours."""
    folder = config(INDEXED)
    assert spec_of(folder).layout == "interleaved"
    for chosen in (":part=indexer", ":part=indexer:layer=1", ":layer=1:part=indexer"):
        assert spec_of(folder + chosen) == ch.Rotary(head_width=16, rotated=8)
    for wrong, says, hint in (
        (":part=vision", "has no part 'vision'", ":part=text or :part=indexer"),
        (":layer=indexer", "number of a layer", ":part=indexer"),
        (":layer=9", "in layer 9", "chosen by :part=indexer"),
        (":indexer", "chooses nothing in it", ":part=NAME"),
    ):
        with pytest.raises(InvalidValue, match=says) as error:
            spec_of(folder + wrong)
        assert hint in str(error.value.hint)


def test_a_function_of_another_part_is_told_how_that_is_chosen(config, monkeypatch, tmp_path):
    config(INDEXED)
    (tmp_path / "mine.py").write_text(
        "import clockhands as ch\nSPEC = ch.Rotary(16, rotated=8)\n"
        "def rotated(x, positions):\n    return ch.rotate(x, SPEC, positions)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    for like, code in (("config.json", 2), ("config.json:part=indexer", 0)):
        made = CliRunner().invoke(main, ["check", "mine.py:rotated", "--like", like])
        assert made.exit_code == code, made.output
        assert (":part=indexer chooses another part" in made.output) == bool(code)
