"""The memory of the key-value cache: computed by hand for each way to keep keys, or not known."""

from auditing import published_fields as of
from auditing.model_files import Gguf, written_model
from auditing.model_files import audit_of as audited
from auditing.published_fields import GGUF_QWEN3
from clockhands.auditing import audit

LENGTH = 131072
LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
         "num_key_value_heads": 8, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}  # fmt: skip
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 61,
            "num_key_value_heads": 128, "torch_dtype": "bfloat16", "max_position_embeddings": 4096, **MLA}  # fmt: skip
GEMMA = {"model_type": "gemma3_text", "hidden_size": 1152, "num_attention_heads": 4, "num_key_value_heads": 1,
         "num_hidden_layers": 6, "head_dim": 256, "sliding_window": 512, "torch_dtype": "bfloat16",
         "max_position_embeddings": 32768}  # fmt: skip
LINEAR = {"model_type": "qwen3_next", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2,
          "head_dim": 256, "num_hidden_layers": 4, "torch_dtype": "bfloat16", "max_position_embeddings": 32768,
          "layer_types": ["linear_attention"] * 3 + ["full_attention"]}  # fmt: skip
SMOLLM3 = {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4,
           "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "torch_dtype": "bfloat16"}  # fmt: skip


def cache(config, length=LENGTH):
    found = audited(config, length).cache
    assert found is not None
    return found


def test_the_memory_is_that_of_what_each_layer_keeps(cases):
    for name, config, numbers in (
        ("grouped heads", LLAMA, 32 * 2 * 8 * 128 * LENGTH),
        ("one key for all queries", LLAMA | {"num_key_value_heads": 1}, 32 * 2 * 128 * LENGTH),
        ("latent vectors", DEEPSEEK, 61 * (512 + 64) * LENGTH),
        ("windows", GEMMA, (5 * 512 + 1 * LENGTH) * 2 * 256),
        ("layers without attention", LINEAR, 2 * 2 * 256 * LENGTH),
        ("layers without positions", SMOLLM3, 4 * 2 * 4 * 128 * LENGTH),
        ("a text part", {"model_type": "llava", "text_config": LLAMA}, 32 * 2 * 8 * 128 * LENGTH),
    ):
        with cases(name):
            assert cache(config).bytes == 2 * numbers
    assert cache(LLAMA | {"torch_dtype": "float32"}).bytes == 2 * cache(LLAMA).bytes
    assert cache(LLAMA, 1024).bytes * 128 == cache(LLAMA).bytes
    assert (
        "16 GiB for one text of 131,072 tokens, in bfloat16: 32 layers keep 8 heads of 128 + 128" in cache(LLAMA).says
    )


def test_what_is_assumed_is_said(cases):
    for config, words in (
        ({key: value for key, value in LLAMA.items() if key != "torch_dtype"}, "2 bytes a number are assumed"),
        (DEEPSEEK, "assumed to keep the latent vectors"),
        (GEMMA, "no more than the window"),
        (LINEAR, "a state whose size does not depend on the length"),
    ):
        with cases(words):
            assert any(words in sentence for sentence in cache(config).assumes)
    assert cache(LLAMA).assumes == ()


def test_an_upper_bound_is_no_size():
    found = cache({key: value for key, value in LLAMA.items() if key != "num_key_value_heads"})
    assert found.bytes is None
    assert found.says.startswith("At most 64 GiB")


def test_where_the_files_are_silent_it_is_not_known(cases):
    for config, words in (
        (LLAMA | {"block_configs": [{}]}, "block_configs changes what its layers keep"),
        (LLAMA | {"architectures": ["LlamaForSequenceClassification"]}, "is not known to generate text"),
        (
            SMOLLM3 | {"model_type": "llama4_text", "no_rope_layers": None},
            "which layers without positions have attention",
        ),
        ({"model_type": "bert", "max_position_embeddings": 512}, "was not read"),
        ({key: value for key, value in LLAMA.items() if "heads" not in key}, "the number of its heads"),
    ):
        with cases(words):
            found = cache(config)
            assert (found.bytes, found.says.startswith("Not known for 131,072 tokens: ")) == (None, True)
            assert words in found.says


def test_numbers_that_no_model_has_are_named_and_nothing_is_computed(cases):
    for config, words in (
        *((LLAMA | {"num_key_value_heads": wrong}, "num_key_value_heads is ") for wrong in ("8", 8.0, True, 0, -8)),
        (LLAMA | {"num_key_value_heads": float("nan")}, "which is no number of heads"),
        (LLAMA | {"num_key_value_heads": [8] * 31 + ["8"]}, "which is no number of heads"),
        (LLAMA | {"num_key_value_heads": [8] * 4}, "num_key_value_heads has 4 numbers for 32 layers"),
        (LLAMA | {"num_key_value_heads": 5}, "num_key_value_heads is 5, which does not divide the 32 query heads"),
        (LLAMA | {"num_key_value_heads": [8] * 31 + [5]}, "which does not divide the 32 query heads"),
        (DEEPSEEK | {"kv_lora_rank": "512"}, 'kv_lora_rank is "512", which is no width of a latent vector'),
        (DEEPSEEK | {"kv_lora_rank": [512]}, "which is no width of a latent vector"),
        (LLAMA | {"v_head_dim": "128"}, 'v_head_dim is "128", which is no head width'),
        (LLAMA | {"num_kv_shared_layers": "2"}, 'num_kv_shared_layers is "2", which is no number of layers'),
    ):
        with cases(words):
            found = cache(config)
            assert (found.bytes, found.assumes) == (None, ())
            assert found.says.startswith("Not known for 131,072 tokens: ")
            assert words in found.says


def test_a_number_of_heads_for_each_layer_is_counted_layer_by_layer():
    each = [8] * 16 + [4] * 16
    assert cache(LLAMA | {"num_key_value_heads": each}).bytes == 2 * sum(each) * 2 * 128 * LENGTH


def test_a_class_without_a_word_for_it_may_generate_text_as_well():
    chatglm = {"model_type": "chatglm", "architectures": ["ChatGLMModel"], "hidden_size": 4096, "kv_channels": 128,
               "num_attention_heads": 32, "num_layers": 40, "multi_query_attention": True, "multi_query_group_num": 2,
               "seq_length": 131072, "torch_dtype": "bfloat16"}  # fmt: skip
    assert cache(chatglm, 16384).bytes == 2 * 40 * 2 * 2 * 128 * 16384


def test_a_gguf_file_has_its_own_keys(tmp_path):
    model = written_model(tmp_path, {"model.gguf": Gguf(GGUF_QWEN3)})
    found = audit(model, 4096).cache
    keys = {key.partition(".")[2]: value for key, value in GGUF_QWEN3.items()}
    heads, width = keys["attention.head_count_kv"], keys["attention.key_length"]
    assert found.bytes == 2 * keys["block_count"] * 2 * heads * width * 4096


def test_without_a_length_nothing_is_computed():
    assert audited(of.LLAMA_31).cache is None
