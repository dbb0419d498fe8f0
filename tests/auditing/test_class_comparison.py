"""The class of the installed Transformers, built without weights, against what the audit says of a config."""

import dataclasses
import json

import pytest

from clockhands.auditing import audit, class_comparison
from clockhands.auditing.class_comparison import comparison
from clockhands.configs import model_types
from clockhands.configs.resolve import resolve
from clockhands.encodings.scores import ConstantScale, FloorLogScale
from clockhands.errors import InvalidValue
from configs.expected import opened

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "vocab_size": 96,
    "max_position_embeddings": 4096,
    "rope_theta": 50_000.0,
}
GEMMA = LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 64, "num_hidden_layers": 7}
GEMMA |= {"query_pre_attn_scalar": 16}
KINDS = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
BEAM = LLAMA | {"model_type": "beam", "head_dim": 16, "sliding_window": 64, "layer_types": KINDS}
BERT = LLAMA | {"model_type": "bert", "type_vocab_size": 2}
SMOLLM = LLAMA | {"model_type": "smollm3", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 96}
SAM = {"model_type": "sam_vision_model", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
SAME = "frequencies, layout, layers without rotation and scales of scores"
QWEN_TOWER = {"model_type": "qwen3_vl_vision", "depth": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 64}


def compared(target):
    """The comparison with the class in an audit."""
    found = audit(target, classes="transformers").of_class
    assert found is not None
    return found


def columns_first(code):
    """The code with the axes of its pairs exchanged, if it has some."""
    axes = getattr(code.spec, "axes", None)
    if axes is None:
        return code
    return dataclasses.replace(code, spec=dataclasses.replace(code.spec, axes=tuple(1 - axis for axis in axes)))


def read(config):
    from clockhands.models.built_classes import reading

    return reading(config)


def forgotten(monkeypatch, name):
    """A model type that the table does not have."""
    types = dict(model_types.table()["types"])
    del types[name]
    monkeypatch.setitem(model_types.table(), "types", types)
    model_types.model_type.cache_clear()


@pytest.fixture(autouse=True)
def _read_again():
    yield
    model_types.model_type.cache_clear()


@pytest.mark.parametrize(
    ("config", "same"),
    [
        (LLAMA, {"frequencies", "layout", "scales of scores"}),
        (SMOLLM, {"frequencies", "layers without rotation"}),
        (QWEN_TOWER, {"frequencies", "layout", "axes of images", "tables"}),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, {"frequencies", "layout"}),
        (GEMMA, {"frequencies", "layout", "windows"}),
        (BEAM, {"frequencies", "windows"}),  # its last layer sees all only if no kinds are listed
        (LLAMA | {"model_type": "internlm3"}, {"frequencies", "layout"}),  # its class is that of another type
        (BERT, {"tables", "scales of scores"}),
    ],
)
def test_a_class_agrees_with_the_audit_of_its_config(config, same):
    found = comparison(read(config), resolve(opened(config)))
    # The model gives cosines and a scale to some layers of Beam.
    by_model = ("the scales of scores of BeamModel", "the layers without rotation of BeamModel")
    assert (found.differences, found.unread, found.more) == ((), by_model if config is BEAM else (), ())
    assert same <= set(found.same)


@pytest.mark.parametrize(
    ("config", "change", "what"),
    [
        (LLAMA, lambda code: dataclasses.replace(code, rates=(*code.rates[:-1], 2 * code.rates[-1])), "frequencies"),
        (LLAMA, lambda code: dataclasses.replace(code, rates=code.rates[:-1]), "frequencies"),
        (LLAMA, lambda code: dataclasses.replace(code, attention_factor=1.2), "frequencies"),
        (LLAMA, lambda code: dataclasses.replace(code, layout="interleaved"), "layout"),
        (LLAMA, lambda code: dataclasses.replace(code, kind="none", rates=None), "frequencies"),
        (GEMMA, lambda code: dataclasses.replace(code, window=None), "windows"),
        (GEMMA, lambda code: dataclasses.replace(code, window=32), "windows"),
        (BERT, lambda code: dataclasses.replace(code, rows=512), "tables"),
        (LLAMA, lambda code: dataclasses.replace(code, score_scale=ConstantScale(2.0)), "scales of scores"),
        (LLAMA, lambda code: dataclasses.replace(code, score_scale=FloorLogScale(8192)), "scales of scores"),
        (SMOLLM, lambda code: dataclasses.replace(code, kind="rotary"), "layers without rotation"),
        (T5, lambda code: dataclasses.replace(code, relative={**code.relative, "buckets": 16}), "relative terms"),
        (SAM, lambda code: dataclasses.replace(code, window_area=None), "windows"),
        (QWEN_TOWER, columns_first, "axes of images"),
    ],
)
def test_each_difference_is_found(config, change, what):
    resolved = resolve(opened(config))
    wrong = dataclasses.replace(resolved, codes=tuple(map(change, resolved.codes)))
    found = comparison(read(config), wrong)
    assert {each.what for each in found.differences} == {what}
    assert what not in found.same
    (case, *_) = found.cases()
    assert case.finding().severity == "warning"
    assert "in Transformers " in case.message()


def test_the_line_of_a_report_names_class_release_and_what_is_the_same():
    told = audit(LLAMA, classes="transformers").to_dict()
    library = f"Transformers {transformers.__version__}"
    assert told["class"]["says"] == f"LlamaModel of {library}: the same {SAME}"
    assert (told["class"]["name"], told["class"]["same"][:2]) == ("LlamaModel", ["frequencies", "layout"])
    assert "class" not in audit(LLAMA).to_dict()


def test_layers_of_an_unknown_type_are_those_of_its_class(monkeypatch):
    known = resolve(opened(GEMMA)).codes
    forgotten(monkeypatch, "gemma3_text")
    monkeypatch.setattr(class_comparison, "class_reading", read)
    assert {code.layout for code in audit(GEMMA).layers} == {None}
    assert compared(GEMMA).used
    found = audit(GEMMA, classes="transformers")
    assert {(code.layers, code.window, code.layout) for code in found.layers} == {
        (code.layers, code.window, code.layout) for code in known
    }
    for code in found.layers:
        assert "read from the class Gemma3TextModel in Transformers" in code.source["rates"]
    assert [each.code for each in found.findings if each.severity != "note"] == []


def test_layers_without_rotation_of_an_unknown_type_are_those_of_its_class(monkeypatch):
    forgotten(monkeypatch, "smollm3")
    monkeypatch.setattr(class_comparison, "class_reading", read)
    assert {code.kind: code.layers for code in audit(SMOLLM, classes="transformers").layers} == {
        "rotary": "0-2",
        "none": "3",
    }


def test_other_libraries_and_a_missing_one_are_refused(monkeypatch, refused):
    message, _ = refused(audit, LLAMA, classes="vllm", error=InvalidValue)
    assert message == "`classes` must be one of transformers, got 'vllm'."
    monkeypatch.setattr(class_comparison, "find_spec", lambda _: None)
    message, hint = refused(audit, LLAMA, classes="transformers", error=InvalidValue)
    assert message == "Reading the class of a model needs transformers and torch, not installed here."
    assert "pip install" in hint


def test_a_class_that_cannot_be_built_leaves_the_audit_as_it_is(monkeypatch):
    monkeypatch.setattr(class_comparison, "class_reading", read)
    odd = LLAMA | {"rope_scaling": {"rope_type": "no such scaling", "factor": 2.0}}
    found = compared(odd)
    assert found.reading is None
    assert "Transformers" in found.says
    assert audit(odd, classes="transformers").layers == audit(odd).layers
    assert compared("vaswani2017").says == "not read: the target names no model type of Transformers."


def test_a_hostile_config_costs_only_the_process_that_builds_it(tmp_path, monkeypatch):
    """It asks for a million layers, and its folder holds files under the names of libraries."""
    hostile = LLAMA | {"num_hidden_layers": 10**6, "auto_map": {"AutoModel": "torch.Evil"}}
    (tmp_path / "config.json").write_text(json.dumps(hostile))
    for name in ("torch", "transformers", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('it was run')")
    monkeypatch.chdir(tmp_path)
    found = compared(tmp_path)
    assert found.says.endswith(f"(built with 128 of 1,000,000 layers): the same {SAME}")
    assert found.cut == [("", (128, 10**6))]


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"hidden_size": 4 * 10**12, "head_dim": 10**12}, {"num_hidden_layers": 10**12}])
def test_absurd_sizes_are_refused_in_a_sentence(change):
    found = compared(LLAMA | change)
    assert found.refused or found.unread or found.cut


def test_attention_that_loops_over_its_tokens_is_left_after_2000_calls():
    """Linear attention computes chunk by chunk: of 262,144 tokens on the meta device that takes minutes."""
    torch = pytest.importorskip("torch")
    from clockhands.models.class_attention import layer_attentions
    from clockhands.models.class_readings import LayerAttention

    class LoopingAttention(torch.nn.Module):
        layer_idx, made = 0, 0

        def __init__(self):
            super().__init__()
            self.projection = torch.nn.Linear(8, 8)

        def forward(self, hidden_states):
            for place in range(hidden_states.shape[1]):
                hidden_states = hidden_states + 1
                LoopingAttention.made = place + 1
            return hidden_states

    with torch.device("meta"):
        module = LoopingAttention()
    assert layer_attentions(None, [module], (), {}) == {0: LayerAttention()}
    assert 100 < LoopingAttention.made < 2_000


def test_the_direction_of_a_rotation_is_that_of_the_class(cases):
    """NanoChat rotates backward, and its row says so; a row of the other direction is told apart."""
    small = LLAMA | {"num_key_value_heads": 4}
    for kind, way, other in (("nanochat", "backward", "forward"), ("llama", "forward", "backward")):
        with cases(kind):
            config = small | {"model_type": kind}
            found = compared(config)
            assert found.differences == ()
            assert {ladder.direction for part in found.reading.parts for ladder in part.ladders} == {way}
            resolved = resolve(opened(config), None)
            assert {code.spec.direction for code in resolved.codes} == {way}
            turned = [
                dataclasses.replace(code, spec=dataclasses.replace(code.spec, direction=other))
                for code in resolved.codes
            ]
            wrong = comparison(found.reading, dataclasses.replace(resolved, codes=tuple(turned)))
            assert [(each.what, each.declared, each.computed) for each in wrong.differences] == [
                ("direction of rotation", other, way)
            ]
