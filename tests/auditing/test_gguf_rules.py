"""What GGUF files lack or hold twice: each finding where it belongs, and not where it does not."""

import numpy as np

from auditing import published_fields as of
from auditing.faulty_containers import keys, llama3_factors
from auditing.model_files import Gguf, audited, of_code
from clockhands.auditing.findings._gguf import llama3_divisors
from clockhands.encodings.ladders import geometric
from clockhands.encodings.scaling import Llama3
from clockhands.runtimes import compared

LLAMA, QWEN3_MOE, PHI = of.GGUF_LLAMA, of.GGUF_QWEN3_MOE, of.GGUF_PHI3
DEEPSEEK, GEMMA3 = of.GGUF_DEEPSEEK, of.GGUF_GEMMA3
EMBEDDING = {"token_embd.weight": np.zeros((2, 8), np.float32)}
LISTS = {
    "rope_factors_short.weight": np.linspace(1, 2, 48, dtype=np.float32),
    "rope_factors_long.weight": np.linspace(1, 60, 48, dtype=np.float32),
}


def found(folder, code, values, **tensors):
    held = EMBEDDING | {name.replace("__", "."): array for name, array in tensors.items()}
    return of_code(audited(folder, {"model.gguf": Gguf(values, held)}), code)


def llama3(*numbers, base=500_000.0, pairs=64):
    plain = geometric(pairs, base)
    scaled = Llama3(*numbers)(plain)
    return [before / after for before, after in zip(plain.rates, scaled.rates, strict=True)]


def test_divisors_of_any_llama3_scaling_are_known_and_other_numbers_are_none(cases):
    for made, base in (
        (llama3(8, 8192), 5e5),
        (llama3(32, 8192, pairs=32), 5e5),
        (llama3(16, 8192, 1.0, 1.0), 5e5),
        (llama3(8, 8192, base=12e6), 12e6),
        (llama3(4, 2048, 2.0, 7.0, base=1e4), 1e4),
        (llama3_factors().tolist(), 5e5),
    ):
        with cases(made, base):
            assert llama3_divisors(made, base)
    for other in (
        [1.0] * 64,
        llama3(8, 8192)[::-1],
        [8.0 - number for number in llama3(8, 8192)],
        [1.0] * 30 + [1.0 + 7 * (step / 20) ** 3 for step in range(1, 21)] + [8.0] * 14,
        [*llama3(8, 8192)[:40], 1.0, *llama3(8, 8192)[41:]],
        [1.0] * 63 + [0.5],
    ):
        with cases(other):
            assert not llama3_divisors(other, 5e5)


def test_a_llama_that_needs_no_divisors_or_whose_tensors_are_elsewhere(tmp_path, cases):
    for other in (
        {"llama.context_length": 8192},
        {"llama.rope.freq_base": 1e6},
        {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 16.0},
        {"split.count": 4, "split.no": 0},
    ):
        with cases(other):
            assert not found(tmp_path, "rope-freqs-missing", LLAMA | other)


def test_a_file_of_keys_alone_lacks_no_tensor(tmp_path):
    assert not of_code(audited(tmp_path, {"model.gguf": Gguf(LLAMA)}), "rope-freqs-missing")


def test_divisors_and_a_scaling_in_the_keys_are_applied_twice(tmp_path):
    scaled = LLAMA | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0}
    (finding,) = found(tmp_path, "rope-freqs-differ", scaled, rope_freqs__weight=llama3_factors())
    assert "llama.rope.scaling.factor is 8 as well" in finding.message
    unscaled = LLAMA | {"llama.rope.scaling.type": "none"}
    assert not found(tmp_path, "rope-freqs-differ", unscaled, rope_freqs__weight=llama3_factors())


def test_divisors_that_divide_nothing_are_wrong_only_where_a_scaling_belongs(tmp_path):
    ones = np.ones(64, np.float32)
    (finding,) = found(tmp_path, "rope-freqs-differ", LLAMA, rope_freqs__weight=ones)
    assert "are all 1" in finding.message
    assert not found(tmp_path, "rope-freqs-differ", LLAMA | {"llama.context_length": 8192}, rope_freqs__weight=ones)


def test_divisors_that_stop_the_slow_pairs_are_a_proportional_ladder(tmp_path):
    stopping = np.array([1.0] * 16 + [1e30] * 48, np.float32)
    assert not found(tmp_path, "rope-freqs-differ", LLAMA, rope_freqs__weight=stopping)
    mixed = np.array([1e30] * 16 + [1.0] * 48, np.float32)
    assert found(tmp_path, "rope-freqs-differ", LLAMA, rope_freqs__weight=mixed)


def test_divisors_that_are_no_numbers_are_said_where_they_are_read(tmp_path, cases):
    for number in (np.nan, np.inf, 0.0, -1.0):
        broken = llama3_factors()
        broken[40] = number
        with cases(number):
            assert not found(tmp_path, "rope-freqs-differ", LLAMA, rope_freqs__weight=broken)
            assert found(tmp_path, "impossible-value", LLAMA, rope_freqs__weight=broken)


def test_a_longrope_model_without_its_lists(tmp_path):
    assert not found(tmp_path, "longrope-factors-missing", PHI, **LISTS)
    (finding,) = found(tmp_path, "longrope-factors-missing", PHI)
    assert finding.evidence["missing"] == ["rope_factors_short.weight", "rope_factors_long.weight"]
    one = {"rope_factors_short.weight": LISTS["rope_factors_short.weight"]}
    (finding,) = found(tmp_path, "longrope-factors-missing", PHI, **one)
    assert finding.evidence["missing"] == ["rope_factors_long.weight"]


def test_a_model_that_was_not_extended_has_no_lists(tmp_path):
    short = {key: value for key, value in PHI.items() if "scaling" not in key} | {"phi3.context_length": 4096}
    assert not found(tmp_path, "longrope-factors-missing", short)


# An architecture, its number of turned channels, and others that fire; None where the key is absent.
TURNED = ((of.GGUF_PERSIMMON, 32, (64, None)), (of.GGUF_STABLELM, 20, (80, None)), (of.GGUF_QWEN3, 128, (64, 256)))


def test_the_turned_channels_of_a_known_architecture(tmp_path, cases):
    for values, right, wrong in TURNED:
        key = f"{values['general.architecture']}.rope.dimension_count"
        for count in {right, *wrong, None}:
            changed = of.without(values, key) | ({} if count is None else {key: count})
            said = found(tmp_path, "dimension-count", changed)
            with cases(key, count):
                assert len(said) == (count in wrong)
                assert all(each.edit.says.startswith(f"Set {key} to ") for each in said)


def test_of_an_unknown_architecture_only_more_than_a_head_is_wrong(tmp_path):
    new = keys("brandnew", block_count=2, context_length=4096, embedding_length=256, attention__head_count=4)
    assert not found(tmp_path, "dimension-count", new | {"brandnew.rope.dimension_count": 32})
    (finding,) = found(tmp_path, "dimension-count", new | {"brandnew.rope.dimension_count": 128})
    assert finding.edit is None


def test_a_context_that_releases_have_with_yarn_only(tmp_path):
    bare = unscaled(QWEN3_MOE)
    (finding,) = found(tmp_path, "missing-scaling", bare)
    assert finding.evidence["model.gguf:qwen3moe.context_length"] == 131072
    assert not found(tmp_path, "missing-scaling", bare | {"qwen3moe.context_length": 40960})
    assert not found(tmp_path, "missing-scaling", bare | {"qwen3moe.rope.freq_base": 1e7})


def test_a_factor_of_yarn_without_its_type_is_taken_for_linear(tmp_path):
    typeless = {key: value for key, value in QWEN3_MOE.items() if not key.endswith("scaling.type")}
    (finding,) = found(tmp_path, "ignored-key", typeless)
    assert finding.severity == "warning"
    assert finding.evidence["model.gguf:qwen3moe.rope.scaling.original_context_length"] == 32768
    assert not found(tmp_path, "ignored-key", QWEN3_MOE)
    linear = {key: value for key, value in typeless.items() if not key.endswith("original_context_length")}
    assert not found(tmp_path, "ignored-key", linear)


def test_a_yarn_without_its_factor_is_incomplete_and_not_missing(tmp_path):
    factorless = {key: value for key, value in QWEN3_MOE.items() if not key.endswith("scaling.factor")}
    assert found(tmp_path, "incomplete-scaling", factorless)
    assert not found(tmp_path, "missing-scaling", factorless)


def test_a_base_that_is_absent_where_no_release_has_that_of_the_loader(tmp_path, cases):
    fired = ("default-base", "differs-from-release")
    for values, base, words in (
        (GEMMA3, 1_000_000.0, "a published model of the same size, Gemma-3-4B, has a base of 1,000,000"),
        (of.GGUF_NOMIC, 1_000.0, "their base is 1,000"),
        (of.GGUF_COMMAND, 8_000_000.0, "The base 10,000 is small for 131,072 positions"),
    ):
        architecture = values["general.architecture"]
        with cases(architecture):
            said, *_ = of_code(audited(tmp_path / "without", {"model.gguf": Gguf(values, EMBEDDING)}), *fired)
            assert said.severity == "warning"
            assert words in said.message
            assert found(tmp_path / "with", "default-base", values | {f"{architecture}.rope.freq_base": base}) == []


LATENT = DEEPSEEK | {
    "deepseek2.attention.head_count_kv": 1,
    "deepseek2.attention.key_length": 576,
    "deepseek2.attention.value_length": 512,
    "deepseek2.attention.key_length_mla": 192,
    "deepseek2.attention.value_length_mla": 128,
}
GEMMA3_BASED = GEMMA3 | {"gemma3.rope.freq_base": 1_000_000.0}
GEMMA3_27B = GEMMA3_BASED | {
    "gemma3.block_count": 62,
    "gemma3.embedding_length": 5376,
    "gemma3.attention.head_count": 32,
    "gemma3.attention.head_count_kv": 16,
    "gemma3.attention.key_length": 128,
    "gemma3.attention.value_length": 128,
}


def unscaled(values):
    return {key: value for key, value in values.items() if ".scaling." not in key}


OF_RELEASE = "a published model of the same size, has the scaling yarn"
LOST = (
    (DEEPSEEK, "missing-scaling", f"DeepSeek-V3, {OF_RELEASE}"),
    (LATENT, "missing-scaling", 'of type "deepseek2" with this base and no scaling have a context length of 4,096'),
    (of.GGUF_GPT_OSS, "missing-scaling", f"gpt-oss-20b, {OF_RELEASE}"),
    (GEMMA3_BASED, "differs-from-release", "but a published model of the same size, Gemma-3-4B"),
    (GEMMA3_27B, "differs-from-release", "has the scaling linear with a factor of 8"),
)


def test_a_scaling_that_the_release_of_the_shape_has_in_its_keys(tmp_path, cases):
    fired = ("missing-scaling", "differs-from-release")
    for values, code, words in LOST:
        with cases(words):
            assert of_code(audited(tmp_path, {"model.gguf": Gguf(values, EMBEDDING)}), *fired) == []
            (said,) = of_code(audited(tmp_path, {"model.gguf": Gguf(unscaled(values), EMBEDDING)}), *fired)
            assert (said.code, said.severity, said.blames) == (code, "warning", "file")
            assert words in said.message


OF_8B = {"embedding_length": 4096, "block_count": 32, "attention.head_count": 32, "vocab_size": 128_256}
LLAMA_8B = {"general.architecture": "llama"} | {f"llama.{key}": value for key, value in OF_8B.items()}
OLLAMA = {"gemma3.rope.global.freq_base": 1e6, "gemma3.rope.local.freq_base": 1e4, "gemma3.context_length": 8192}


def test_a_base_and_a_context_that_no_release_of_the_shape_has_are_told(tmp_path, cases):
    fired = ("default-base", "differs-from-release", "context-of-no-release")
    based, option = {"llama.rope.freq_base": 500_000.0}, "`--rope-freq-base 500000`"
    for values, told in (
        (LLAMA_8B | {"llama.context_length": 131_072}, {"differs-from-release": option}),
        (LLAMA_8B | {"llama.context_length": 131_072, "llama.rope.freq_base": 1e4}, {"differs-from-release": option}),
        (LLAMA_8B | based | {"llama.context_length": 20_000}, {"context-of-no-release": "Llama-3-8B, published"}),
        (LLAMA_8B | based | {"llama.context_length": 131_072}, {}),
        (LLAMA_8B | based | {"llama.context_length": 8192}, {}),
        (
            unscaled(GEMMA3) | OLLAMA,
            {
                "differs-from-release": "gemma3.rope.global.freq_base is 1,000,000",
                "context-of-no-release": "8,192 looks like the length of a training or a converter's default",
            },
        ),
    ):
        with cases(values):
            found = of_code(audited(tmp_path, {"model.gguf": Gguf(values)}), *fired)
            said = {each.code: f"{each.message} {each.hint}" for each in reversed(found)}
            assert said.keys() == told.keys()
            assert all(words in said[code] for code, words in told.items())


def test_a_factor_of_one_in_the_keys_is_no_scaling(tmp_path):
    (said,) = found(tmp_path, "differs-from-release", GEMMA3_27B | {"gemma3.rope.scaling.factor": 1.0})
    assert "A factor of 1 changes nothing" in said.message


def test_no_release_says_what_is_missing_in_another_model(tmp_path, cases):
    for other in (
        {"deepseek2.rope.freq_base": 50000.0},  # of no release of the shape
        {"deepseek2.context_length": 8192},  # before it was stretched
        {"deepseek2.block_count": 27},
        {"deepseek2.vocab_size": 100000},
        {"deepseek2.rope.scaling.type": "longrope"},
    ):
        with cases(other):
            assert not found(tmp_path, "missing-scaling", unscaled(DEEPSEEK) | other)


def test_the_turned_channels_behind_a_latent(tmp_path, cases):
    for values in (DEEPSEEK, LATENT):
        for count in (64, 128, 192, 32):
            said = found(tmp_path, "dimension-count", values | {"deepseek2.rope.dimension_count": count})
            with cases(values, count):
                says = ["Set deepseek2.rope.dimension_count to 64."] * (count != 64)
                assert [each.edit and each.edit.says for each in said] == says


# Of an architecture without a row: a window and a second base, for layers that only the pattern names.
HALF_KNOWN = {
    "general.architecture": "unheard-of",
    **{
        f"unheard-of.{key}": value
        for key, value in {
            "block_count": 4, "context_length": 8192, "embedding_length": 1024, "attention.head_count": 8,
            "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.sliding_window": 512,
        }.items()
    },
}  # fmt: skip
PATTERN = {"unheard-of.attention.sliding_window_pattern": [True, True, True, False]}


def test_a_window_without_its_layers_is_not_called_unread(tmp_path):
    found = audited(tmp_path, {"model.gguf": Gguf(HALF_KNOWN, EMBEDDING)})
    assert not found.ignored
    assert not of_code(found, "ignored-key")
    (missing,) = of_code(found, "missing-value")
    assert missing.severity == "note"
    assert missing.edit is None
    assert missing.message == (
        "unheard-of.attention.sliding_window_pattern is not in the file: which layers have the window of 512 tokens and"
        " base 10,000 is not known."
    )


def test_layers_that_may_slide_are_no_difference_from_those_that_do(tmp_path):
    layers = {}
    for name, more in {"half": {}, "whole": PATTERN, "other": PATTERN | {"unheard-of.rope.freq_base_swa": 2e4}}.items():
        (tmp_path / name).mkdir()
        layers[name] = audited(tmp_path / name, {"model.gguf": Gguf(HALF_KNOWN | more, EMBEDDING)}).layers
    assert all(parted.equivalent for parted in compared(layers["half"], layers["whole"]))
    assert not all(parted.equivalent for parted in compared(layers["half"], layers["other"]))
