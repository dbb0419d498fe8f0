"""Numbers that other libraries' own code made: presets and specs give them, or the library is wrong."""

import numpy as np

import clockhands as ch
from clockhands.encodings.biases import Alibi, CeilingBuckets, row_numbers
from late import Late
from oracles import published
from oracles.rows import every

torch = Late("torch")

ENTRIES = published.entries("alibi", "relative_bucket", "kernel_bias", "window_index")
ENCODER, DECODER = ch.preset("t5"), ch.preset("t5-decoder")


def kerple(values):
    values = {name.removeprefix("bias_"): np.reshape(array, 4) for name, array in values.items()}
    return ch.bias(ch.preset("kerple-log", heads=4), 24, 24, values=values)


def fire(values):
    names = {"c": "c", "L": "threshold", "W1": "w1", "b1": "b1", "W2": "w2", "b2": "b2"}
    values = {names[name]: np.asarray(array) for name, array in values.items()}
    return ch.bias(ch.preset("fire", heads=4, hidden=8), 24, 24, values=values)


def retention(_):
    """Torchscale's mask: the decay, each row over the root of its sum."""
    mask = np.exp(ch.bias(ch.preset("retnet", heads=4), 16, 16, causal=True, dtype="float64"))
    return mask / np.sqrt(mask.sum(axis=-1, keepdims=True))


# What makes each published array, from the learned numbers beside it.
OURS = {
    "alibi_slopes_paper_h8": lambda _: ch.preset("alibi").slopes,
    "alibi_slopes_paper_h12": lambda _: ch.preset("alibi", heads=12).slopes,
    "alibi_bias_paper": lambda _: ch.bias(Alibi(8, "key"), 1, 32),
    "alibi_hf_bloom_h8": lambda _: ch.bias(ch.preset("bloom", heads=8), 1, 32),
    "alibi_hf_bloom_h12": lambda _: ch.bias(ch.preset("bloom", heads=12), 1, 32),
    "alibi_hf_mpt_h8": lambda _: ch.bias(ch.preset("mpt", heads=8), 1, 32),
    "alibi_llmfoundry_full_h12": lambda _: ch.bias(ch.preset("alibi-symmetric", heads=12), 16, 16)[None],
    "alibi_x_transformers_h12": lambda _: ch.bias(ch.preset("alibi-symmetric", heads=12), 8, 20),
    "alibi_opennmt": lambda _: ch.bias(ch.preset("alibi-symmetric"), 1, 12),
    "t5_bucket_bidirectional": lambda _: row_numbers(ENCODER, 40, 300),
    "t5_bucket_causal": lambda _: row_numbers(DECODER, 40, 300),
    "t5_bucket_bidirectional_square": lambda _: row_numbers(ENCODER, 256, 256),
    "x_transformers_bucket_causal": lambda _: row_numbers(ch.preset("x-transformers-t5"), 256, 256),
    "mesh_jax_bucket_causal": lambda _: row_numbers(ch.preset("mesh-transformer-jax"), 256, 256),
    "deberta_v1_rel": lambda _: row_numbers(ch.preset("deberta"), 20, 20) - ch.preset("deberta").span,
    "swin_index": lambda _: row_numbers(ch.preset("swin", height=4, width=5), 20, 20),
    "swin_original_index": lambda _: row_numbers(ch.preset("swin", height=4, width=5), 20, 20),
    "beit_index": lambda _: row_numbers(ch.preset("beit", height=4, width=5), 21, 21),
    "swinv2_logcpb": lambda _: ch.preset("swin-v2").coordinates(),
    "swinv2_logcpb_transfer": lambda _: ch.preset("swin-v2", height=16, width=16, trained=(12, 12)).coordinates(),
    "kerple_log": kerple,
    "fire_bias": fire,
    "retnet_decay": retention,
}


def worst(got, wanted):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    return float(np.abs(got - wanted).max())


def theirs_and_values(key):
    """The published array, which stands first, and the learned numbers that it was made from."""
    arrays = published.arrays(key)
    theirs = arrays.pop(next(iter(arrays)))
    return theirs, arrays


@every("key", OURS)
def test_biases_are_the_published_ones(key):
    (theirs, values), tolerance = theirs_and_values(key), ENTRIES[key]["tolerance"]
    made = np.asarray(OURS[key](values), np.float64)
    assert worst(made, theirs) <= tolerance
    # The check can fail.
    assert worst(made + (1 if not tolerance else 3 * tolerance + 1e-6), theirs) > tolerance


def test_every_published_bias_is_made():
    assert ENTRIES.keys() == OURS.keys()


# --- the code of the originals ---------------------------------------------------------------------------------


def float32_deberta(distances, span, most):
    """DeBERTa-v2's buckets as transformers computes them, in float32; cut as the model cuts them."""
    apart, middle = torch.from_numpy(distances), span // 2
    size = torch.where((apart < middle) & (apart > -middle), torch.tensor(middle - 1), torch.abs(apart))
    share = torch.log(size / middle) / torch.log(torch.tensor((most - 1) / middle))
    steps = torch.ceil(share * (middle - 1)) + middle
    made = torch.where(size <= middle, apart.type_as(steps), steps * torch.sign(apart)).long()
    return torch.clamp(made + span, 0, 2 * span - 1).numpy()


@every("span, most", [(256, 512), (64, 512), (8, 16), (128, 1_024), (255, 512), (63, 512)])
def test_deberta_v2_buckets_as_its_code_has_them(span, most):
    distances = np.arange(-3 * most, 3 * most)
    made = row_numbers(CeilingBuckets(1, span, most), distances, 1)[:, 0]
    assert np.array_equal(made, float32_deberta(distances, span, most))


def mpt_slopes(heads):
    """As MPT and llm-foundry cut them: of the next power of two, every second, then the others."""
    above = 1 << (heads - 1).bit_length()
    slopes = [2.0 ** (-8 * (head + 1) / above) for head in range(above)]
    return slopes if above == heads else (slopes[1::2] + slopes[0::2])[:heads]


def test_mpt_has_the_papers_slopes_for_the_same_heads(draw):
    """It cuts another list, and was said to give the heads another order: they are the same, for any number."""
    for heads in draw(range(1, 300), 40):
        np.testing.assert_allclose(mpt_slopes(heads), Alibi(heads).slopes, rtol=1e-14)
