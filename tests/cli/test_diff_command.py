"""`clockhands diff`: two targets, or two readings of one, side by side."""

import json

import pytest

from clockhands.sources import open_target
from written_files import gguf_bytes, gguf_key

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
OLD = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": LLAMA3,
}
NEW = {key: value for key, value in OLD.items() if not key.startswith("rope_")} | {
    "rope_parameters": LLAMA3 | {"rope_theta": 500000.0}
}


@pytest.fixture
def file(tmp_path):
    def write(name, config):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    return write


def test_two_shapes_of_one_model_are_the_same(run, file):
    done = run("diff", file("old", OLD), file("new", NEW))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].startswith("Same position encoding: ")
    assert len(done.out.splitlines()) == 1


def test_one_pair_differs_and_several_differ(run, file):
    small = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2,
             "max_position_embeddings": 2048, "rope_theta": 10000.0}  # fmt: skip
    for heads, says in ((2, "pair 1 of 2 differs"), (1, "pairs 1-3 of 4 differ,")):
        old = small | {"num_attention_heads": heads}
        assert says in run("diff", file("old", old), file("new", old | {"rope_theta": 20000.0})).out


def test_rows_that_converters_move_are_said_to_be_moved(run, file, tmp_path):
    keys = {"block_count": 32, "context_length": 8192, "embedding_length": 4096, "attention.head_count": 64}
    entries = [
        gguf_key("general.architecture", "string", "llama"),
        gguf_key("llama.rope.freq_base", "float32", 500000.0),
    ]
    entries += [gguf_key(f"llama.{name}", "uint32", value) for name, value in keys.items()]
    (tmp_path / "model.gguf").write_bytes(gguf_bytes(entries))
    config = {name: value for name, value in OLD.items() if name != "rope_scaling"} | {"max_position_embeddings": 8192}
    done = run("diff", file("config", config), tmp_path / "model.gguf")
    assert done.code == 0
    assert "(another layout, as GGUF converters reorder the weights)" in done.out
    assert len(done.out.splitlines()) == 1
    assert done.err == "note: `clockhands audit MODEL --weights` says which layout the weights of a file have.\n"
    exact = run("diff", file("config", config), tmp_path / "model.gguf", "--exact")
    assert exact.code == 1
    assert "half-split layout against interleaved layout" in " ".join(exact.out.split())
    other = run("diff", file("config", config), file("neox", config | {"clockhands_layout": "interleaved"}))
    assert (other.code, other.err) == (1, "")


def test_a_scaling_that_a_conversion_lost_is_the_first_line(run, file, tmp_path):
    keys = {"block_count": 32, "context_length": 131072, "embedding_length": 4096, "attention.head_count": 64}
    entries = [
        gguf_key("general.architecture", "string", "llama"),
        gguf_key("llama.rope.freq_base", "float32", 500000.0),
        *(gguf_key(f"llama.{name}", "uint32", value) for name, value in keys.items()),
    ]
    (tmp_path / "model.gguf").write_bytes(gguf_bytes(entries))
    done = run("diff", file("config", OLD), tmp_path / "model.gguf")
    assert done.code == 1
    words = " ".join(done.out.split())
    assert words.startswith("Different: layers 0-31: base 500,000, llama3 by 8 in the first; base 500,000, no scaling")


@pytest.mark.parametrize(("factor", "code"), [(1 + 2.0**-22, 0), (1 + 2.0**-14, 1)])
def test_rates_within_float32_rounding_are_the_same(run, file, factor, code):
    other = OLD | {"rope_theta": OLD["rope_theta"] * factor}
    assert run("diff", file("a", OLD), file("b", other)).code == code
    assert run("diff", file("a", OLD), file("b", other), "--exact").code == 1


def test_a_reader_of_the_old_shape_is_354_times_too_fast(run, file):
    done = run("diff", file("old", OLD), file("new", NEW), "--reader", "transformers-4")
    assert (done.code, done.err) == (1, "")
    words = " ".join(done.out.split())
    assert "first " in words
    assert "as Transformers 4.57.1 reads it" in words
    assert "second base 10,000, no scaling" in words
    assert "pairs 1-31 of 32 differ, RoPE frequencies up to 354 times apart (pair 31)" in words
    assert "0.1 rad from distance 1, 1 rad from distance 8" in words


def test_two_readings_of_one_file(run, file):
    path = file("new", NEW)
    two = run("diff", path, "--readers", "clockhands,transformers-4", "--json")
    assert two.code == 1
    found = json.loads(two.out)
    assert (found["schema"], found["same"]) == (1, False)
    (group,) = found["groups"]
    assert group["rates"]["largest_ratio"] == pytest.approx(8 * 50 ** (62 / 64))
    assert group["rates"]["off_from"] == {"0.1": 1, "1.0": 8}
    assert [each["distance"] for each in group["rates"]["at"]][-2:] == [131072, 524288]
    assert run("diff", path, "--readers", "clockhands,transformers-5").code == 0


def test_a_scaling_that_is_left_out_has_the_published_cosine(run, file):
    wide = OLD | {"num_attention_heads": 32, "max_position_embeddings": 8192}
    done = run("diff", file("wide", wide), "--readers", "clockhands,no-scaling", "--json")
    (group,) = json.loads(done.out)["groups"]
    at = {each["distance"]: each["mean_cosine"] for each in group["rates"]["at"]}
    assert round(at[8192], 3) == 0.769


def test_only_the_layers_that_part_are_told_apart(run, file):
    gemma = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "num_attention_heads": 8,
        "head_dim": 256,
        "num_hidden_layers": 6,
        "max_position_embeddings": 131072,
        "sliding_window": 1024,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    done = run("diff", file("a", gemma), file("b", gemma | {"rope_scaling": None}), "--json")
    groups = {group["layers"]: group["same"] for group in json.loads(done.out)["groups"]}
    assert groups == {"0-4": True, "5": False}


def test_what_differs_is_said_where_both_have_the_same_words(run, file):
    other = OLD | {"rope_scaling": LLAMA3 | {"low_freq_factor": 2.0}}
    first = " ".join(run("diff", file("a", OLD), file("b", other)).out.split()).partition(" first ")[0]
    assert first.startswith("Different: layers 0-31: pairs ")
    assert "times apart" in first


def test_lengths_alone_are_a_difference(run, file):
    done = run("diff", file("a", OLD), file("b", OLD | {"max_position_embeddings": 65536}))
    assert done.code == 1
    assert done.out.splitlines()[0] == "Different context length: 131,072 in the first, 65,536 in the second."


def test_the_length_decides_which_list_of_longrope_is_compared(run, file):
    phi = {
        "model_type": "phi3",
        "hidden_size": 96,
        "num_attention_heads": 1,
        "num_hidden_layers": 2,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
    }
    other = phi | {"rope_scaling": phi["rope_scaling"] | {"long_factor": [3.0] * 48}}
    first, second = file("a", phi), file("b", other)
    assert run("diff", first, second, "--length", 4096).code == 0
    assert run("diff", first, second, "--length", 8192).code == 1


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("alibi", "alibi:heads=16", "heads 8 against 16"),
        ("t5", "vaswani2017", "buckets against sinusoidal"),
        ("vaswani2017", "vaswani2017:width=64", "512 against 64 channels"),
        ("vaswani2017", "tensor2tensor", "layout interleaved, not halves"),
    ],
)
def test_other_kinds_say_what_differs(run, first, second, said):
    done = run("diff", first, second)
    assert done.code == 1
    assert said in done.out
    assert run("diff", first, first).code == 0


def test_what_a_reader_refuses_cannot_be_compared(run, file):
    path = file("odd", OLD | {"rope_scaling": {"rope_type": "deepseek_yarn", "factor": 4.0}})
    done = run("diff", path, "--readers", "transformers-4,vllm")
    assert (done.code, done.out) == (2, "")
    assert "Transformers 4.57.1 does not load" in done.err
    assert "(KeyError)" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("one.json",), "Pass two targets, or one with --readers A,B."),
        (("one.json", "two.json", "--readers", "vllm,mlx-lm"), "pass one target"),
        (("one.json", "two.json", "--reader", "vlm"), "'vlm' is not a known runtime. Did you mean vllm?"),
        (("one.json", "--readers", "vllm,vllm"), "Name two different runtimes: vllm is named twice."),
        (("one.json", "--readers", "vllm"), "Name two runtimes with a comma between them."),
        (("one.json", "two.json", "--reader", "vllm", "--readers", "vllm,mlx-lm"), "use only one of them"),
        (("alibi", "--readers", "clockhands,vllm"), "Runtimes cannot be compared on "),
    ],
)
def test_misuse_is_told_in_a_sentence(run, words, said):
    done = run("diff", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "hint: " in done.err


@pytest.mark.parametrize(
    "config", [OLD | {"rope_theta": "abc"}, {"model_type": "nobody's"}], ids=["no rates", "no code"]
)
def test_what_leaves_its_rates_open_is_not_the_same_as_itself(run, file, config):
    path = file("open", config)
    done = run("diff", path, path)
    assert (done.code, done.out) == (2, "")
    assert "cannot be compared" in done.err
    assert f"clockhands audit {path}" in done.err


DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 64,
    "num_hidden_layers": 1, "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": LLAMA3,
}  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"hidden_size": 8192}, {"sliding_window": 512, "model_type": "mistral"}])
def test_a_draft_of_other_layers_width_and_window_agrees_with_its_target(run, file, more):
    done = run("diff", file("target", OLD), file("draft", DRAFT | more))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("The draft agrees with its target: ")
    assert run("diff", file("draft", DRAFT | more), file("target", OLD)).code == 1  # which is no draft


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rope_scaling": None}, "base 500,000, llama3 by 8 in the target; base 500,000, no scaling in the draft"),
        ({"rope_theta": 10000.0}, "base 500,000, llama3 by 8 in the target; base 10,000, llama3 by 8 in the draft"),
        ({"hidden_size": 8192, "rope_theta": 10000.0}, "base 500,000 against 10,000"),
        ({"hidden_size": 8192, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 4096}},
         "llama3 by 8 from 8,192 tokens on against llama3 by 8 from 4,096 tokens on"),
        ({"model_type": "cohere", "hidden_size": 8192}, "halves layout against interleaved layout"),
        ({"max_position_embeddings": 2048}, "Different context length: 131,072 in the target, 2,048 in the draft."),
    ],
)  # fmt: skip
def test_a_draft_has_the_base_the_scaling_the_layout_and_the_context_of_its_target(run, file, more, said):
    done = run("diff", file("target", OLD), file("draft", DRAFT | more))
    assert done.code == 1
    assert said in " ".join(done.out.split())


def test_a_draft_that_its_config_does_not_name_is_named_by_the_caller(run, file):
    small = DRAFT | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4}
    assert run("diff", file("target", OLD), file("draft", small)).code == 1
    done = run("diff", file("target", OLD), file("draft", small), "--draft", "--json")
    assert (done.code, json.loads(done.out)["draft"]) == (0, True)


def test_a_draft_is_held_to_the_nearest_of_the_layers_of_its_target(run, file):
    gemma = {"model_type": "gemma3_text", "hidden_size": 1152, "num_attention_heads": 4, "head_dim": 256,
             "num_hidden_layers": 26, "sliding_window": 512, "max_position_embeddings": 131072,
             "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0}  # fmt: skip
    draft = DRAFT | {"head_dim": 256, "rope_scaling": None}
    assert run("diff", file("target", gemma), file("draft", draft | {"rope_theta": 10000.0})).code == 0
    assert run("diff", file("target", gemma), file("draft", draft | {"rope_theta": 1000000.0})).code == 0
    assert run("diff", file("target", gemma), file("draft", draft)).code == 1


@pytest.mark.parametrize("options", [(), ("--reader", "vllm"), ("--reader", "no-scaling")])
def test_each_target_is_opened_once(run, file, monkeypatch, options):
    asked = []

    def counted(target, *rest):
        asked.append(target)
        return open_target(target, *rest)

    monkeypatch.setattr("clockhands.cli.diff.open_target", counted)
    monkeypatch.setattr("clockhands.auditing._audits.open_target", counted)
    targets = [str(file("target", OLD)), str(file("draft", DRAFT))]
    run("diff", *targets, *options)
    assert asked == targets


def test_layers_for_multi_token_prediction_that_a_conversion_leaves_out_are_no_difference(run, file):
    more = {"num_nextn_predict_layers": 1}
    assert run("diff", file("whole", OLD | more), file("converted", OLD)).code == 0
    assert run("diff", file("whole", OLD | more), file("same", NEW | more)).code == 0
    done = run("diff", file("whole", OLD | more), file("other", OLD | more | {"rope_theta": 10000.0}))
    assert done.code == 1
    assert "multi-token prediction: layer 32" in done.out


def test_a_head_for_multi_token_prediction_is_a_draft_of_its_model(run, file):
    more = {"num_nextn_predict_layers": 1}
    head = OLD | more | {"architectures": ["LlamaForCausalLMNextN"], "num_hidden_layers": 1}
    done = run("diff", file("target", OLD | more), file("head", head))
    assert (done.code, done.out.partition(":")[0]) == (0, "The draft agrees with its target")
    assert run("diff", file("target", OLD | more), file("head", head | {"rope_theta": 10000.0})).code == 1
