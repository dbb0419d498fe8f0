"""A length past the context: what is sound there, and changes of the config that an audit finds nothing new in."""

import json
import shlex
from pathlib import Path

import pytest

import clockhands as ch
from auditing.faulty_containers import llama3_factors
from auditing.model_files import Gguf, written_model
from auditing.model_files import audit_of as audited
from auditing.published_fields import GGUF_LLAMA, GGUF_QWEN3, LLAMA3
from clockhands.auditing import audit
from clockhands.auditing.extending import LABELS, OF_KINDS, OF_SCALINGS, Extension
from clockhands.auditing.length_answers import lines_of_change
from clockhands.configs.overriding import read_overrides

SMALL = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 12, "vocab_size": 100}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}


def config(kind, context, **more):
    return SMALL | {"model_type": kind, "max_position_embeddings": context} | more


BY_KIND = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
ROTARY = {
    "llama": config("llama", 8192, rope_theta=5e5),
    "llama in the new shape": config("llama", 8192, rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    "the base by default": config("llama", 2048),
    "qwen2": config("qwen2", 32768, rope_theta=1e6),
    "llama3": config("llama", 131072, rope_theta=5e5, rope_scaling=LLAMA3),
    "yarn": config("qwen2", 32768, rope_theta=1e6, rope_scaling=YARN),
    "yarn in the new shape": config("qwen2", 32768, rope_parameters=YARN | {"rope_theta": 1e6}),
    "yarn beside the original length": config("qwen2", 8192, rope_theta=1e6, rope_scaling=YARN),
    "llama3 beside the original length": config("llama", 8192, rope_theta=5e5, rope_scaling=LLAMA3),
    "linear": config("llama", 16384, rope_theta=1e4, rope_scaling={"type": "linear", "factor": 4.0}),
    "dynamic": config("llama", 4096, rope_theta=1e4, rope_scaling={"type": "dynamic", "factor": 2.0}),
    "an explicit attention factor": config(
        "llama", 32768, rope_theta=1e6, rope_scaling=YARN | {"attention_factor": 1.1386294361119891}
    ),
    "half a head": config("phi", 2048, partial_rotary_factor=0.5, rope_theta=1e4),
    "gpt_neox": config("gpt_neox", 2048, rotary_pct=0.25, rotary_emb_base=10000),
    "a text part": {"model_type": "llava", "text_config": config("llama", 4096, rope_theta=1e4)},
    "gemma3": config("gemma3_text", 32768, head_dim=128, rope_theta=1e6, sliding_window=512, rope_local_base_freq=1e4),
    "gemma3 in the new shape": config("gemma3_text", 32768, head_dim=128, sliding_window=512, rope_parameters=BY_KIND),
    "mRoPE": config("qwen2_vl", 32768, rope_theta=1e6, rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}),
}  # fmt: skip


def extended(values, length) -> Extension:
    found = audited(values, length).extension
    assert found is not None
    return found


def of_file(path, length) -> Extension:
    found = audit(path, length).extension
    assert found is not None
    return found


def fires(found):
    """What fires on a changed file, which keeps what it has beside a block; the override here in its place does not."""
    fired = {(finding.code, finding.severity) for finding in found.findings if finding.severity != "note"}
    return {(code, severity) for code, severity in fired if code != "override-replaces-block"}


def hold_each_change(values):
    """Each change offered for a length serves it, in all shapes alike, and only what it says fires anew."""
    before = audited(values)
    assert before.context is not None
    length = 2 * max(before.context, before.layers[0].scaled_to or 0)
    extension = extended(values, length)
    assert extension.ways
    for way in extension.ways:
        assert way.costs
        assert way.values
        rates = set()
        for shape, change in way.values.items():
            after = audited(values, length, change)
            new = {code for code, _ in fires(after) - fires(before)}
            assert new <= set(way.warns[shape]), (way.scaling, shape)
            turning = [
                code for code in after.layers if code.kind == "rotary" and code.part == "text" and not code.window
            ]
            assert turning[0].scaling is not None
            assert turning[0].scaling["type"] == way.scaling
            assert turning[0].rates is not None
            assert min(turning[0].rates) < min(before.layers[-1].rates or (1.0,))
            rates.add(turning[0].rates)
        assert len(rates) == 1, "the shapes say different things"


@pytest.mark.parametrize("number", [6, pytest.param(len(ROTARY), marks=pytest.mark.slow)])
def test_each_change_serves_the_length_and_no_new_finding_fires_but_those_that_are_said(number, cases, draw):
    for name in draw(ROTARY, number):
        with cases(name):
            hold_each_change(ROTARY[name])


LINEAR = {"rope_type": "linear", "factor": 4.0}


def test_a_scaling_beside_the_file_is_not_counted_in_its_context():
    found = audited(config("llama", 4096, rope_theta=1e4), 32768, {"rope_scaling": LINEAR})
    assert found.layers[0].scaled_to == 16384
    assert found.extension is not None
    (way,) = found.extension.ways
    assert (way.scaling, way.values["rope_scaling"]["rope_scaling"]["factor"]) == ("linear", 8.0)
    assert not [said for said in found.extension.without if "already includes" in said]
    assert way.says[0] == "Against the files as they are, 0 of 64 pairs keep their frequency, 64 are divided by 2."
    within = audited(config("llama", 4096, rope_theta=1e4), 16384, {"rope_scaling": LINEAR})
    assert within.extension is not None
    assert not within.extension.ways


def test_a_factor_is_the_least_that_reaches_the_length(cases):
    for name in ("llama", "qwen2", "gemma3"):
        length = 3 * ROTARY[name]["max_position_embeddings"]
        for way in extended(ROTARY[name], length).ways:
            block = way.values["rope_scaling"]["rope_scaling"]
            with cases(name, way.scaling):
                assert block["factor"] == 3.0
                declared = way.values["rope_scaling"].get("max_position_embeddings")
                assert declared == (None if way.scaling == "dynamic" else length)


def test_a_context_that_the_file_does_not_declare_is_declared_with_the_key_of_the_class():
    llama = SMALL | {"model_type": "llama", "rope_theta": 1e4}
    for values, key in (
        (llama, "max_position_embeddings"),
        ({"model_type": "llava", "text_config": llama}, "text_config.max_position_embeddings"),
    ):
        (linear, *_) = extended(values, 16384).ways
        assert linear.values["rope_scaling"][key] == 16384


def test_a_model_without_a_scaling_is_offered_each_that_its_class_reads():
    extension = extended(ROTARY["llama"], 16384)
    assert [way.scaling for way in extension.ways] == ["linear", "dynamic", "yarn", "llama3"]
    assert any(sentence.startswith("longrope: its lists") for sentence in extension.without)


def test_a_scaling_that_is_there_is_raised_and_no_other_offered(cases):
    """The factor is that of the length of the training, whatever the file declares as its context."""
    for name, scaling, times, factor in (
        ("llama3", "llama3", 2, 16),
        ("yarn", "yarn", 2, 8),
        ("linear", "linear", 2, 8),
        ("dynamic", "dynamic", 4, 4),
        ("yarn beside the original length", "yarn", 8, 8),
        ("llama3 beside the original length", "llama3", 16, 16),
    ):
        extension = extended(ROTARY[name], times * ROTARY[name]["max_position_embeddings"])
        with cases(name):
            assert [way.scaling for way in extension.ways] == [scaling]
            assert extension.ways[0].values["rope_scaling"]["rope_scaling"]["factor"] == factor
            assert any("already" in sentence for sentence in extension.without)


def test_a_length_that_the_scaling_is_for_needs_no_other(cases):
    """Qwen 2.5's card says to add YaRN by 4 and to leave max_position_embeddings at 32,768."""
    for name in ("yarn beside the original length", "llama3 beside the original length", "dynamic"):
        found = audited(ROTARY[name], 2 * ROTARY[name]["max_position_embeddings"])
        with cases(name):
            assert found.extension.ways == ()
            assert "positions are within" in found.extension.sound[0]
            (without,) = found.extension.without
            assert "No change of it is needed" in without
            (finding,) = [finding for finding in found.findings if finding.code == "beyond-context"]
            assert finding.severity == "note"
            assert "scaling of the file is for up to" in finding.message


def test_a_length_past_that_of_the_scaling_is_a_warning_that_names_both():
    values = ROTARY["yarn beside the original length"]
    (finding,) = [each for each in audited(values, 40_000).findings if each.code == "beyond-context"]
    assert finding.severity == "warning"
    assert "context length is 8,192. The yarn scaling of the file is for up to 32,768 positions." in finding.message


def test_a_linear_factor_may_be_in_the_context_or_not_and_the_advice_begins_with_it(cases):
    for length, says, hint in (
        (60_000, "for up to 65,536 positions and needs no change", "If it does not, no change is needed"),
        (131072, "131,072 positions is 8", "declare the"),
    ):
        found = audited(ROTARY["linear"], length)
        with cases(length):
            (sentence,) = [each for each in found.extension.without if "already includes" in each]
            assert "its context of 16,384" in sentence
            assert says in sentence
            (finding,) = [each for each in found.findings if each.code == "beyond-context"]
            unless = "is for up to 65,536 positions, unless the context length counts its factor already."
            assert unless in finding.message
            assert hint in finding.hint


def test_the_sections_of_a_block_stay():
    extension = extended(ROTARY["mRoPE"], 65536)
    for way in extension.ways:
        for change in way.values.values():
            block = change.get("rope_scaling") or change["rope_parameters"]
            assert block["mrope_section"] == [16, 24, 24]


def test_layers_that_slide_keep_their_base():
    extension = extended(ROTARY["gemma3 in the new shape"], 65536)
    (linear, *_) = extension.ways
    assert linear.values["rope_parameters"]["rope_parameters"] == {
        "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }


def test_a_class_that_scales_all_layers_in_the_old_shape_is_offered_the_new_one_alone():
    modernbert = config("modernbert", 8192, global_rope_theta=1.6e5, local_rope_theta=1e4, local_attention=128)
    before, found = audited(modernbert), extended(modernbert, 32768)
    sliding = {code.layers: code.rates for code in before.layers if code.window}
    assert sliding
    for way in found.ways:
        assert list(way.values) == ["rope_parameters"]
        after = audited(modernbert, 32768, way.values["rope_parameters"])
        assert {code.layers: code.rates for code in after.layers if code.window} == sliding
    assert found.answer.settings[0].lines[0].startswith('"rope_parameters": {"full_attention"')
    for runtime in ("vllm@0.11", "transformers@4.57.1"):
        (setting,) = ch.audit(modernbert, 32768, runtime=runtime).extension.answer.settings
        assert "No change can be written in the old config format" in setting.lines[0]


def test_the_lines_of_a_part_are_nested_as_in_the_file(cases):
    """The lines are put into the file as they are, and the file is read again."""
    gemma = {
        "model_type": "gemma3",
        "text_config": ROTARY["gemma3"] | {"rope_scaling": {"type": "linear", "factor": 8.0}},
    }
    for name, values in (("llava", ROTARY["a text part"]), ("gemma3", gemma)):
        found = extended(values, 4 * audited(values).context)
        for way in found.ways:
            for shape, change in way.values.items():
                lines = list(lines_of_change(shape, change))
                gone = [line for line in lines if line.startswith("without ")]
                read = json.loads(f"{{{', '.join(line for line in lines if line not in gone)}}}")
                with cases(name, way.scaling, shape):
                    assert list(read) == ["text_config"]
                    part = values["text_config"] | read["text_config"]
                    if gone:
                        assert gone == ['without "rope_scaling" in "text_config"']
                        del part["rope_scaling"]
                    after = audited(values | {"text_config": part}, found.length)
                    assert after.layers[-1].rates == audited(values, found.length, change).layers[-1].rates


def test_an_attention_factor_of_the_formula_is_written_anew():
    extension = extended(ROTARY["an explicit attention factor"], 65536)
    block = extension.ways[0].values["rope_scaling"]["rope_scaling"]
    assert block["attention_factor"] == pytest.approx(1.2079441541679836)


def test_within_the_context_nothing_is_said():
    assert audited(ROTARY["llama"]).extension is None
    assert audited(ROTARY["llama"], 8192).extension is None
    assert audited(ROTARY["llama"], 8193).extension is not None


def test_what_is_sound_is_counted():
    extension = extended(ROTARY["the base by default"], 4096)
    assert "at 4,096 positions 23 of 64 pairs reach angles that the model has never seen" in extension.sound[0]
    assert "within the 2,048 declared; the other 41 meet no new angle" in extension.sound[0]
    assert extension.sound[1].endswith("fail first at distance 1,707.")


def test_codes_that_no_block_extends_and_classes_for_which_none_can_be_written(cases):
    gptj = config("gptj", 2048, n_positions=2048, rotary_dim=64, n_embd=512, n_head=4, n_layer=2)
    for values, part, word in (
        (config("bert", 512), "sound", "1,024 positions need 1,024 rows"),
        (config("roberta", 514, pad_token_id=1), "sound", "1,024 positions need 1,026 rows"),
        (config("bloom", 2048, n_layer=2, n_head=4, seq_length=2048), "sound", "is defined at every distance"),
        (config("mistral", 4096, sliding_window=1024), "sound", "a query attends to the last 1,024 positions only"),
        (config("of_a_vendor", 4096, rope_theta=1e4), "without", "The model type is unknown"),
        (gptj, "without", "reads no scaling block"),
        (config("phi3", 4096, rope_theta=1e4), "without", "come from a search"),
    ):
        with cases(word):
            extension = extended(values, 2 * audited(values).context)
            assert not extension.ways
            assert any(word in sentence for sentence in getattr(extension, part)), extension


def test_a_params_json_has_keys_of_its_own(tmp_path):
    params = {
        "dim": 512, "n_layers": 2, "n_heads": 4, "head_dim": 128, "hidden_dim": 1024, "rope_theta": 1e6,
        "vocab_size": 100, "max_position_embeddings": 32768,
    }  # fmt: skip
    (tmp_path / "params.json").write_text(json.dumps(params), encoding="utf-8")
    extension = of_file(tmp_path / "params.json", 65536)
    assert not extension.ways
    assert "write the block into the config.json" in extension.without[0]


def test_a_gguf_file_is_changed_by_its_keys(tmp_path):
    model = written_model(tmp_path, {"model.gguf": Gguf(GGUF_QWEN3)})
    extension = of_file(model, 131072)
    assert [way.scaling for way in extension.ways] == ["linear", "yarn"]
    yarn = extension.ways[1].values["gguf"]
    assert yarn["qwen3.rope.scaling.factor"] == pytest.approx(3.2)
    before = fires(audit(model))
    for way in extension.ways:
        after = audit(model, 131072, overrides=way.values["gguf"])
        assert fires(after) == before
        assert (after.layers[0].scaling or {}).get("type") == way.scaling


def test_a_gguf_file_whose_scaling_is_a_tensor_has_no_key_for_another(tmp_path):
    model = written_model(tmp_path, {"model.gguf": Gguf(GGUF_LLAMA, {"rope_freqs.weight": llama3_factors()})})
    extension = of_file(model, 262144)
    assert not extension.ways
    assert "rope_freqs.weight" in extension.without[0]


QWEN = {
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "rope_theta": 1e6,
    "num_hidden_layers": 28, "vocab_size": 152064, "intermediate_size": 18944, "max_position_embeddings": 32768,
}  # fmt: skip


def test_the_answer_is_the_scaling_of_the_file_or_of_the_publisher_or_of_the_study(cases):
    for config, length, scaling, why in (
        (QWEN, 131072, "yarn", "Qwen2-7B, a published model of this size, has a YaRN extension that its publisher"),
        (ROTARY["llama3"], 262144, "llama3", "the scaling that the model has already, with a larger factor"),
        (ROTARY["linear"], 131072, "linear", "the scaling that the model has already"),
        (ROTARY["llama"], 16384, "yarn", "it had the least loss without training in small models"),
    ):
        answer = extended(config, length).answer
        with cases(scaling, length):
            assert answer.scaling == scaling
            assert why in answer.why
            assert f"and not for {length:,}" in answer.untrained
            assert answer.published
    for name in ("phi3", "bert"):
        assert extended(config_without_block(name), 131072).answer is None


def config_without_block(kind):
    return config(kind, 4096, rope_theta=1e4)


def test_each_setting_of_the_answer_gives_the_frequencies_of_its_scaling(cases):
    """What is offered for vLLM and SGLang is read again as these servers read it; the lines are those of the file."""
    for name, values in (*((name, ROTARY[name]) for name in ("llama", "yarn", "a text part", "mRoPE")), ("qwen", QWEN)):
        length = 4 * audited(values).context
        extension = extended(values, length)
        (way,) = (way for way in extension.ways if way.scaling == extension.answer.scaling)
        settings = {setting.runtime: setting.lines for setting in extension.answer.settings}
        with cases(name):
            assert list(settings) == [each for each in ("config", "vllm", "sglang", "llama.cpp") if each in settings]
            if name == "a text part":
                assert "replaces the whole of text_config" in settings.pop("sglang")[0]
            offered = audited(values, length, next(iter(way.values.values()))).layers[0].rates
            for server in settings.keys() & {"vllm", "sglang"}:
                option, override, _, at = shlex.split(settings[server][0])
                assert int(at) == length
                overrides = read_overrides([f"{option.lstrip('-')}={override}"])
                assert audited(values, length, overrides).layers[0].rates == offered


def test_one_runtime_has_one_setting_and_an_option_that_is_not_there_is_said(cases):
    for runtime, starts in (
        ("vllm", "--hf-overrides"),
        ("vllm@0.11", '--hf-overrides \'{"rope_scaling"'),
        ("sglang", "--json-model-override-args"),
        ("llama.cpp", "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 --ctx-size 131072"),
        ("transformers", '"rope_scaling"'),
    ):
        with cases(runtime):
            (setting,) = ch.audit(QWEN, 131072, runtime=runtime).extension.answer.settings
            assert setting.lines[0].startswith(starts)
    answer = ch.audit(ROTARY["llama3"], 262144, runtime="llama.cpp").extension.answer
    assert "convert it again" in answer.settings[0].lines[0]


def test_every_figure_says_where_it_is_from():
    for cost in [each for table in (OF_SCALINGS, OF_KINDS) for costs in table.values() for each in costs]:
        assert cost.label in LABELS
        assert bool(cost.source) == (cost.label in {"read", "transcribed"})


def test_the_extension_is_json_that_the_published_schema_knows():
    told = audited(ROTARY["llama"], 16384).to_dict()["extension"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    root = Path(__file__).parents[2]
    schema = json.loads((root / "docs" / "audit.schema.json").read_text(encoding="utf-8"))
    assert set(told) == set(schema["$defs"]["extension"]["required"])
    (way, *_) = told["ways"]
    assert set(way) == set(schema["$defs"]["extension"]["properties"]["ways"]["items"]["required"])


@pytest.mark.slow
def test_the_changes_of_published_configs_serve_the_length_and_nothing_new_fires(published):
    new = []
    ways = 0
    for file in sorted((published / "configs").glob("*.json")):
        values = json.loads(file.read_text(encoding="utf-8")).get("config")
        before = audited(values) if values else None
        if before is None or before.context is None:
            continue
        found = audited(values, 4 * before.context).extension
        for way in found.ways if found is not None else ():
            ways += 1
            for shape, change in way.values.items():
                after = audited(values, 4 * before.context, change)
                codes = {code for code, _ in fires(after) - fires(before)} - set(way.warns[shape])
                new += [(file.stem, way.scaling, shape, code) for code in codes]
    assert new == []
    assert ways >= 200, "most published models rotate, and their classes read scalings"
