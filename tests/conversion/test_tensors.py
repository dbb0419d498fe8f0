"""Which tensors move and how; what is not known, contradicts the config, or cannot be moved exactly is refused."""

import contextlib

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

from clockhands.configs.model_types import model_type
from clockhands.configs.resolved import INDEXER
from clockhands.configs.tensor_names import tensors_of, type_names
from clockhands.conversion import CannotConvert, convert
from clockhands.conversion._planning import model_of, moves
from clockhands.errors import ClockhandsError
from clockhands.formats import safetensors
from written_files import entry, refusal, safetensors_bytes, written

from .conftest import ATTENTION, LLAMA, llama_tensors, numbered

Q, K = ATTENTION.format(0, "q_proj"), ATTENTION.format(0, "k_proj")
HEAD = np.array([0, 2, 1, 3])  # halves to interleaved, for a head of 4 channels
SOURCE_HINT = "What it is indexed by is not known; convert its rows with clockhands.conversion.convert_rows."
EXACT_HINT = "Convert a copy of the model in float32, float16 or bfloat16, and quantise it again."


def order(heads, head=HEAD):
    return (np.arange(heads)[:, None] * len(head) + head).reshape(-1)


def converted(checkpoint, tmp_path, tensors, config=LLAMA, **named):
    convert(checkpoint(config=config, tensors=tensors), tmp_path / "out", "interleaved", **named)
    return load_file(tmp_path / "out" / "model.safetensors")


def test_biases_move_with_their_weights(checkpoint, tmp_path):
    extra = {f"{Q}.bias": numbered(16), f"{K}.bias": numbered(8), ATTENTION.format(0, "v_proj.bias"): numbered(8)}
    made = converted(checkpoint, tmp_path, llama_tensors() | extra)
    assert made[f"{Q}.bias"].tolist() == order(4).tolist()
    assert made[f"{K}.bias"].tolist() == order(2).tolist()
    assert made[ATTENTION.format(0, "v_proj.bias")].tolist() == list(range(8))


def test_norms_of_one_head_and_of_all(checkpoint, tmp_path):
    norms = {ATTENTION.format(n, f"{each}_norm.weight"): numbered(4) for n in (0, 1) for each in "qk"}
    made = converted(checkpoint, tmp_path, llama_tensors() | norms, LLAMA | {"model_type": "qwen3", "head_dim": 4})
    assert all(made[name].tolist() == HEAD.tolist() for name in norms)
    names = ("q_norm.weight", 16), ("k_norm.weight", 8)
    norms = {ATTENTION.format(n, name): numbered(size) for n in (0, 1) for name, size in names}
    model = checkpoint("olmo2", LLAMA | {"model_type": "olmo2"}, llama_tensors() | norms)
    convert(model, tmp_path / "olmo2-out", "interleaved")
    made = load_file(tmp_path / "olmo2-out" / "model.safetensors")
    assert made[ATTENTION.format(1, "k_norm.weight")].tolist() == order(2).tolist()


def test_only_the_channels_that_turn_move(checkpoint, tmp_path):
    config = LLAMA | {"model_type": "stablelm", "num_attention_heads": 2, "num_key_value_heads": 1}
    config |= {"partial_rotary_factor": 0.5}
    tensors = {name: array for name, array in llama_tensors().items() if "_proj" in name}
    made = converted(checkpoint, tmp_path, tensors, config)
    head = np.array([0, 2, 1, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(made[f"{Q}.weight"], tensors[f"{Q}.weight"][order(2, head)])


LORA = "base_model.model.model.layers.{}.self_attn.{}"


def adapter(**more):
    tensors = {}
    for layer in (0, 1):
        for name, rows in (("q_proj", 16), ("v_proj", 8)):
            tensors[f"{LORA.format(layer, name)}.lora_A.weight"] = numbered(2, 16)
            tensors[f"{LORA.format(layer, name)}.lora_B.weight"] = numbered(rows, 2)
    return tensors | more


def test_of_an_adapter_b_moves_and_a_does_not(checkpoint, tmp_path):
    """W + B A is moved by its rows, which are B's; peers train q and v alone, so k may be absent."""
    base = checkpoint("base", tensors={"x": numbered(1)})
    q = LORA.format(0, "q_proj")
    extra = {f"{q}.lora_magnitude_vector": numbered(16), f"{q}.lora_B.bias": numbered(16)}
    folder = checkpoint("adapter", None, adapter(**extra), file="adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    done = convert(folder, tmp_path / "out", "interleaved", config=base / "config.json")
    assert len(done.moved) == 4
    assert [file.name for file in done.files] == ["adapter_model.safetensors", "adapter_config.json"]
    made = load_file(tmp_path / "out" / "adapter_model.safetensors")
    before = adapter(**extra)
    moved = {f"{LORA.format(n, 'q_proj')}.lora_B.weight" for n in (0, 1)} | set(extra)
    for name, array in before.items():
        np.testing.assert_array_equal(made[name], array[order(4)] if name in moved else array)
    merged = before[f"{q}.lora_B.weight"] @ before[f"{q}.lora_A.weight"]
    np.testing.assert_array_equal(made[f"{q}.lora_B.weight"] @ made[f"{q}.lora_A.weight"], merged[order(4)])


def test_adapters_of_other_kinds_are_refused_by_name(checkpoint, tmp_path, cases):
    """Products of Kronecker and Hadamard, and factors of activations: of no row is it known which channel it is."""
    for leaf in ("ia3_l", "hada_w1_a", "hada_t1", "lokr_w1", "lokr_w2_a", "vera_lambda_b", "oft_R.weight"):
        with cases(leaf):
            names = [f"base_model.model.model.layers.{n}.self_attn.{of}_proj.{leaf}" for n in (0, 1) for of in "qk"]
            tensors = {name: numbered(16, 2) for name in names}
            model = checkpoint(leaf, tensors=tensors, file="adapter_model.safetensors")
            message, hint = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
            assert message.endswith(f"{names[1]!r} is a tensor of a query or key that is not known: {leaf!r}.")
            assert hint == SOURCE_HINT


def test_an_adapter_without_its_base_is_refused(checkpoint, tmp_path):
    folder = checkpoint("adapter", None, adapter(), file="adapter_model.safetensors")
    message, hint = refusal(convert, folder, tmp_path / "out", "interleaved", error=CannotConvert)
    assert message == f"No config.json is in the folder of the tensors of {folder}, so their heads are not known."
    assert hint == "Name the config.json of the model, or of an adapter's base model, with --config."


# Quantised. Heads of 4 channels; 8-bit numbers in rows, with scales of each published form.

FP8 = LLAMA | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 16]}}


def fp8(folder, scales, rows=(16, 8)):
    """A llama of float8 weights with scales of some shape, written by hand: the library has no float8 in NumPy."""
    fields, data = {}, b""
    tensors = {}
    for layer in (0, 1):
        for name, count in zip(("q_proj", "k_proj"), rows, strict=True):
            module = ATTENTION.format(layer, name)
            tensors[f"{module}.weight"] = numbered(count, 16).astype(ml_dtypes.float8_e4m3fn)
            tensors[f"{module}.weight_scale_inv"] = scales(count)
            tensors[f"{module}.input_scale"] = np.float32(2)[None]
    for name, array in tensors.items():
        code = "F32" if array.dtype == np.float32 else "F8_E4M3"
        fields[name] = entry(code, array.shape, (len(data), len(data) + array.nbytes))
        data += array.tobytes()
    written(folder / "model.safetensors", safetensors_bytes(fields, data))
    return tensors


def raw(folder, name):
    info = safetensors.read_header(folder / "model.safetensors").tensors[name]
    return info.file.read_bytes()[info.offset :]


def test_scales_of_rows_move_and_of_blocks_stay(checkpoint, tmp_path, cases):
    for number, (shape, along) in enumerate((
        (lambda _rows: (1,), False),
        (lambda _rows: (), False),
        (lambda rows: (rows,), True),
        (lambda rows: (rows, 1), True),
        (lambda rows: (rows // 4, 1), False),  # a block holds a head
    )):  # fmt: skip
        with cases(number):
            model, out = checkpoint(f"model {number}", config=FP8, tensors={}), tmp_path / f"out {number}"
            before = fp8(model, lambda rows, shape=shape: numbered(*shape(rows)))
            convert(model, out, "interleaved")
            for name, heads in ((Q, 4), (K, 2)):
                weight, scale = before[f"{name}.weight"], before[f"{name}.weight_scale_inv"]
                assert raw(out, f"{name}.weight").startswith(weight[order(heads)].tobytes())
                expected = (scale[order(heads)] if along else scale).tobytes()
                assert raw(out, f"{name}.weight_scale_inv").startswith(expected)


def test_scales_that_cannot_be_moved_exactly(checkpoint, tmp_path, cases):
    small = FP8 | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 16]}}
    neither = "which is neither one scale for each of 16 rows nor one for each block of them."
    for config, shape, message in (
        (small, lambda rows: (rows // 2, 1), "holds one scale for each 2 rows, and rows would leave their block."),
        (LLAMA, lambda rows: (rows // 4, 1), f"has the shape [4, 1], {neither}"),
        (FP8, lambda _rows: (3,), f"has the shape [3], {neither}"),
    ):
        with cases(message):
            model = checkpoint(message[:20], config=config, tensors={})
            fp8(model, lambda rows, shape=shape: numbered(*shape(rows)))
            said, hint = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
            assert said == f"{model / 'model.safetensors'}: '{Q}.weight_scale_inv' {message}"
            assert hint == EXACT_HINT


def test_rows_packed_along_the_inputs_move(checkpoint, tmp_path):
    tensors = {}
    for layer in (0, 1):
        for name, rows in (("q_proj", 16), ("k_proj", 8)):
            module = ATTENTION.format(layer, name)
            tensors[f"{module}.weight_packed"] = numbered(rows, 2, dtype="int32")
            tensors[f"{module}.weight_scale"] = numbered(rows, 4)
            tensors[f"{module}.weight_shape"] = np.array([rows, 16])
            tensors[f"{module}.weight_g_idx"] = numbered(16, dtype="int32")
    config = LLAMA | {"quantization_config": {"quant_method": "compressed-tensors"}}
    made = converted(checkpoint, tmp_path, tensors, config)
    for leaf in ("weight_packed", "weight_scale"):
        np.testing.assert_array_equal(made[f"{K}.{leaf}"], tensors[f"{K}.{leaf}"][order(2)])
    for leaf in ("weight_shape", "weight_g_idx"):
        np.testing.assert_array_equal(made[f"{K}.{leaf}"], tensors[f"{K}.{leaf}"])


# Refused by name


def changed(drop=(), **more):
    return {name: array for name, array in llama_tensors().items() if name not in drop} | more


LOOKS = "looks like a tensor of queries or keys, and a llama is not known to have it."
OTHER = "config.json and the tensors are not of one model, or the tensor is packed or transposed."
# A tensor, what is said of it after its name, and the hint.
REFUSED = [
    (f"{Q}.gate", numbered(16),
     "is a one-dimensional tensor of a query or key that is not known: 'gate'.", SOURCE_HINT),
    (f"{K}.lora_E", numbered(2, 2), "is a tensor of a query or key that is not known: 'lora_E'.", SOURCE_HINT),
    (f"{Q}.qweight", numbered(2, 16, dtype="int32"),
     "is quantised by GPTQ or AWQ, whose numbers do not lie row by row.", EXACT_HINT),
    (f"{Q}.weight.absmax", numbered(4),
     "is quantised by bitsandbytes, whose numbers do not lie row by row.", EXACT_HINT),
    (f"{Q}.weight.quant_state.bitsandbytes__nf4", numbered(4),
     "is quantised by bitsandbytes, whose numbers do not lie row by row.", EXACT_HINT),
    (f"{Q}.weight", numbered(16, 16, dtype="uint8"),
     "is stored as uint8 without a scale, so its packing is not known.", EXACT_HINT),
    (ATTENTION.format(0, "q_norm.weight"), numbered(4), LOOKS, SOURCE_HINT),
    (ATTENTION.format(0, "Wqkv.weight"), numbered(4, 4), LOOKS, SOURCE_HINT),
    ("vision_tower.layers.0.self_attn.q_proj.weight", numbered(4, 4), LOOKS, SOURCE_HINT),
    (f"{Q}.weight", numbered(12, 16), "has 12 rows, which are not those of 4 heads of width 4.", OTHER),
    (f"{K}.weight", numbered(16, 16), "has 16 rows, which are not those of 2 key heads of width 4.", OTHER),
    (f"{Q}.weight", numbered(16, 2, 8), "has the shape [16, 2, 8], expected rows of output dimensions.", SOURCE_HINT),
]  # fmt: skip


def test_what_is_not_known_is_refused_by_name_and_nothing_is_written(checkpoint, tmp_path, cases):
    for number, (name, tensor, message, hint) in enumerate(REFUSED):
        with cases(name, message):
            model = checkpoint(str(number), tensors=changed(**{name: tensor}))
            said = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
            assert said == (f"{model / 'model.safetensors'}: '{name}' {message}", hint)
            assert not (tmp_path / "out").exists()


def narrow(checkpoint, code, columns):
    """A llama whose queries and keys are of 4 or 6 bits, with random bytes: what the library does not write."""
    bits, fields, data = int(code[1]) * columns, {}, b""
    random = np.random.default_rng(0)
    for layer in (0, 1):
        for name, rows in (("q_proj", 16), ("k_proj", 8), ("v_proj", 8)):
            numbers = random.bytes(rows * bits // 8)
            where = (len(data), len(data) + len(numbers))
            fields[ATTENTION.format(layer, name) + ".weight"] = entry(code, (rows, columns), where)
            data += numbers
    model = checkpoint(f"{code} {columns}", tensors={})
    written(model / "model.safetensors", safetensors_bytes(fields, data))
    return model


def test_rows_that_share_a_byte_are_refused(checkpoint, tmp_path, cases):
    for code, columns, bits in (
        *(("F4", 1, 4), ("F4", 3, 12)),
        *(("F6_E2M3", 1, 6), ("F6_E2M3", 2, 12), ("F6_E3M2", 3, 18)),
    ):
        with cases(code, columns):
            model = narrow(checkpoint, code, columns)
            said = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
            what = f"is stored as {code} in rows of {bits} bits, which are not whole bytes."
            assert said == (f"{model / 'model.safetensors'}: '{Q}.weight' {what}", EXACT_HINT)
            assert not (tmp_path / "out").exists()


def test_narrow_numbers_in_rows_of_whole_bytes_move_byte_by_byte(checkpoint, tmp_path, cases):
    for number, (code, columns) in enumerate((("F4", 0), ("F4", 2), ("F6_E2M3", 4), ("F6_E3M2", 8))):
        with cases(code, columns):
            model, out, back = narrow(checkpoint, code, columns), tmp_path / f"out {number}", tmp_path / f"b {number}"
            convert(model, out, "interleaved")
            convert(out, back, "halves")
            start, made, again = (rows_of(each / "model.safetensors") for each in (model, out, back))
            for name, rows in start.items():
                heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
                np.testing.assert_array_equal(made[name], rows if heads is None else rows[order(heads)])
                np.testing.assert_array_equal(again[name], rows)


def rows_of(file):
    """Every tensor as the bytes of its rows."""
    whole, rows = file.read_bytes(), {}
    for name, info in safetensors.read_header(file).tensors.items():
        row = info.shape[1] * int(info.dtype[1]) // 8
        data = whole[info.offset : info.offset + info.shape[0] * row]
        rows[name] = np.frombuffer(data, np.uint8).reshape(info.shape[0], row)
    return rows


def test_what_no_channel_indexes_is_no_matter(checkpoint, tmp_path):
    single = {f"{K}.k_scale": np.float32([2]), "model.layers.0.self_attn.attn.q_scale": np.array(np.float32(2))}
    rates = {"model.layers.0.self_attn.rotary_emb.inv_freq": numbered(2)}
    made = converted(checkpoint, tmp_path, llama_tensors() | single | rates)
    for name, array in (single | rates).items():
        np.testing.assert_array_equal(made[name], array)


def test_a_layer_of_which_a_part_only_would_move_is_refused(checkpoint, tmp_path, cases):
    for word in ("query", "key"):
        with cases(word):
            model = checkpoint(word, tensors=changed(drop=[f"{ATTENTION.format(1, word[0] + '_proj')}.weight"]))
            said = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
            hint = "Name the whole model: its folder, or the index of its shards."
            assert said == (f"Layer 1 has no {word} projection among the tensors.", hint)


def test_models_that_do_not_fit_their_config_are_refused(checkpoint, tmp_path, cases):
    eetq = LLAMA | {"quantization_config": {"quant_method": "eetq"}}
    for config, tensors, ending, told in (
        (LLAMA, {"classifier.weight": numbered(4, 4)},
         "None of the tensors is a query or key of a llama.", "Name the weights of that model."),
        (eetq, None, "_proj.weight' is quantised by eetq, whose numbers do not lie row by row.", EXACT_HINT),
        (LLAMA | {"model_type": "smollm3", "no_rope_layers": [1, 0]}, llama_tensors(3),
         "_proj.weight' is of layer 2, which config.json does not describe.", ""),
    ):  # fmt: skip
        with cases(ending):
            model = checkpoint(ending[-9:], config=config, tensors=tensors)
            message, hint = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
            assert message.endswith(ending)
            assert told in hint
    shard = checkpoint(shards=9) / "model-00001-of-00009.safetensors"
    refusal(convert, shard, tmp_path / "x.safetensors", "interleaved", error=CannotConvert)


UNKNOWN = "config.json is of the model type {}, whose tensors are not known."
SEES = "config.json has a vision part of the type '{}', which may use a different RoPE."
CONFIGS = [
    (LLAMA | {"model_type": "newllama"}, UNKNOWN.format("'newllama'")),
    ({"hidden_size": 4}, UNKNOWN.format(None)),
    (LLAMA | {"model_type": ["llama"]}, UNKNOWN.format("['llama']")),
    ({"model_type": "gpt2"}, UNKNOWN.format("'gpt2'")),
    ({"model_type": "glm4v", "text_config": LLAMA}, UNKNOWN.format("'glm4v'")),
    (LLAMA | {"model_type": "qwen2_vl", "vision_config": {"model_type": "siglip_vision_model"}},
     SEES.format("siglip_vision_model")),
    ({"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "pixtral"}}, SEES.format("pixtral")),
    (LLAMA | {"vision_config": {"model_type": "clip_vision_model"}}, SEES.format("clip_vision_model")),
    (LLAMA | {"model_type": "falcon", "alibi": True}, "config.json declares alibi positions."),
    (LLAMA | {"model_type": "stablelm", "partial_rotary_factor": 0.25},
     "config.json rotates 1 of 4 dimensions per head, which cannot form pairs."),
    (LLAMA | {"hidden_size": "wide"}, "config.json does not say how wide a head is."),
]  # fmt: skip


def test_configs_that_do_not_say_enough(checkpoint, tmp_path, cases):
    for number, (config, message) in enumerate(CONFIGS):
        with cases(message):
            model = checkpoint(str(number), config=config)
            said, _ = refusal(convert, model, tmp_path / "out", "interleaved", from_="halves", error=CannotConvert)
            assert said == message


ODD = [None, True, 0, -1, 3, 4.0, 1e308, 2**70, "4", "x", [], [1], {}, {"model_type": "llama"}, [[["deep"]]]]


def test_no_value_of_a_config_ends_in_anything_but_a_plan_or_a_refusal(checkpoint, cases):
    tensors = safetensors.read_header(checkpoint() / "model.safetensors").tensors
    for key in (*LLAMA, "head_dim", "quantization_config", "text_config", "clockhands_layout"):
        for value in ODD:
            for config in (LLAMA | {key: value}, {"model_type": "llava", "text_config": LLAMA | {key: value}}):
                with cases(config), contextlib.suppress(ClockhandsError):
                    assert len(moves(tensors, model_of(config, "config.json"))) == 4


# The table


def test_every_row_is_of_a_type_whose_layout_is_known(cases):
    for name in type_names():
        with cases(name):
            known = tensors_of(name)
            assert known is not None
            row = model_type(name)
            # An indexer's projections stay as they are.
            rows = [code for code in row.rows if code.part != INDEXER] if row is not None else []
            layouts = {code.layout for code in rows if code.kind == "rotary"} if row is not None else {known.layout}
            assert layouts <= {"halves", "interleaved"}
            assert row is None or known.layout is None, "one table says it, not two"
            assert row is None or {code.latent for code in rows} == {known.latent}
