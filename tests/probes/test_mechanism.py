"""What the measurement of mechanisms says of small models that are made to do one thing, and of models that do not."""

import numpy as np
import pytest

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.heads import relative_head
from clockhands.encodings.rotary import Rotary
from clockhands.lab.arms import setting
from clockhands.lab.sections import Arm, Model
from late import Late

torch, transformers = Late("torch"), Late("transformers")
terms, looking_back = Late("clockhands.probes._additive_terms"), Late("clockhands.probes._head_distances")
shape, mechanism = Late("clockhands.probes._table_shape"), Late("clockhands.probes.mechanism")

# A table of fewer than 64 rows is too short for its shape, which takes most of the time.
LENGTH, WIDTH, ROWS = 48, 32, 56


def ids(windows=4, vocabulary=50):
    return torch.randint(0, vocabulary, (windows, LENGTH), generator=torch.Generator().manual_seed(1))


def encoder(rows=None, length=ROWS):
    """A BERT with small token vectors, whose table is a sinusoid unless other rows are given."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=length,
    )  # fmt: skip
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    rows = table(Sinusoidal(WIDTH, base=100.0), length, "float64") if rows is None else rows[:length]
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.copy_(torch.tensor(rows))
        model.embeddings.word_embeddings.weight.mul_(5)
    return model


def noise():
    return np.random.default_rng(0).standard_normal((128, WIDTH))


def numbers(model, windows=4):
    return mechanism.measure_mechanism(of_module(model), ids(windows), lambda *_: None)


def of_module(model):
    from clockhands.models.running_models import of_module

    return of_module(model)


SIZES = {
    "vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64,
}  # fmt: skip


def decoder(family="Llama"):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def test_the_four_terms_are_the_scores_of_layer_0():
    found = numbers(encoder()).numbers["score_terms"]
    assert found["exact"]
    assert found["largest_difference"] <= 1e-10
    assert found["largest_difference_of_attention"] < 1e-5
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert found["shares"]["position_position"] > found["shares"]["content_content"]


def test_the_shares_are_those_of_scores_made_term_by_term():
    """One head and one window, from the embeddings of the model in float64 and no function of the measurement."""
    model = encoder()
    window = ids(1)[0]
    embeddings, own = model.embeddings.double(), model.encoder.layer[0].attention.self.double()
    with torch.no_grad():
        words = embeddings.word_embeddings(window) + embeddings.token_type_embeddings.weight[0]
        rows = embeddings.position_embeddings.weight[:LENGTH]
        deviation = ((words + rows).var(-1, unbiased=False, keepdim=True) + embeddings.LayerNorm.eps).sqrt()
        parts = [each - each.mean(0) for each in (words, rows)]
        parts = [(each - each.mean(-1, keepdim=True)) / deviation for each in parts]
        shares = []
        for head in (slice(0, 16), slice(16, 32)):
            query, key = own.query.weight[head].T, own.key.weight[head].T
            varied = [((a @ query) @ (b @ key).T).var().item() for a in parts for b in parts]
            shares.append(np.array(varied) / sum(varied))
    model.float()
    found = terms.score_terms(terms.adding(model), ids(1))
    assert list(found.shares.values()) == pytest.approx(np.mean(shares, axis=0), rel=1e-5)


def test_scores_that_are_something_else_get_no_shares(cases):
    for sabotage in ("another norm", "another scale"):
        model = encoder()
        if sabotage == "another norm":
            model.embeddings.LayerNorm.register_forward_hook(lambda _, __, y: y.tanh())
        else:
            own = model.encoder.layer[0].attention.self
            own.scaling = 3 * own.scaling
            own.query.weight.data.mul_(10)
        with cases(sabotage):
            found = numbers(model)
            assert not found.numbers["score_terms"]["exact"]
            assert found.numbers["score_terms"]["shares"] is None
            assert any("are not the attention scores of layer 0" in each for each in found.answers)


def test_a_position_is_read_where_there_is_one_and_not_from_a_zeroed_table():
    sound, zeroed = (numbers(encoder(rows)).numbers["position_r2"] for rows in (None, np.zeros((128, WIDTH))))
    assert sound["position_encoding"]
    assert sound["own"]["0"] > 0.9
    assert abs(sound["frozen"]["0"]) < 0.02
    assert sound["relabelled"]["0"] < sound["own"]["0"] - 0.2
    assert not zeroed["position_encoding"]
    assert zeroed["own"]["0"] < 0.02
    found = numbers(encoder(), windows=2)
    assert "position_r2" not in found.numbers
    assert any("48 tokens in 1 of 2 windows are too few" in each for each in found.answers)


def test_ridge_regression_on_held_out_windows_is_the_closed_form():
    pytest.importorskip("torch")
    from clockhands.probes._position_readout import read_position

    rng = np.random.default_rng(0)
    states = rng.standard_normal((4, 32, 5)) + np.arange(32)[:, None] * [1, 0, 0, 0, 0.5]
    x, y = states[:3].reshape(-1, 5), np.tile(np.arange(32.0), 3)
    weights = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0]
    error = np.arange(32.0) - np.c_[states[3], np.ones(32)] @ weights
    assert read_position(states, 3) == pytest.approx(1 - (error**2).sum() / (32 * np.arange(32).var()), abs=2e-3)
    assert read_position(rng.standard_normal((4, 32, 5)), 3) < 0.1


def looking(back, temperature=0.02):
    """An encoder whose first head is the one built by hand; None looks where the other random numbers say."""
    model = encoder()
    spec = Sinusoidal(WIDTH, base=100.0)
    own = model.encoder.layer[0].attention.self
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.zero_()
        own.query.bias.zero_(), own.key.bias.zero_()
        head = relative_head(spec, back, temperature)
        channels = slice(0, 16)
        # A head of 16 channels holds the 8 fastest pairs.
        own.query.weight[channels] = torch.tensor(head.query[channels]).float()
        own.key.weight[channels] = torch.tensor(head.key[channels]).float()
    return model


def test_a_head_that_looks_two_tokens_back_is_found_and_is_lost_without_positions():
    found = numbers(looking(2))
    (head,) = found.numbers["heads"]["fixed"]
    assert (head["layer"], head["head"], head["back"]) == (0, 0, 2)
    assert head["share"] > 0.5
    assert head["without"] < 0.1
    assert found.numbers["heads"]["lost_at_position_0"] == 1
    assert any("looks 2 tokens back" in each for each in found.answers)
    assert not numbers(looking(0)).numbers["heads"]["fixed"], "a head that looks at its own token is none of them"


def test_the_head_built_by_hand_has_the_share_at_its_temperature(cases):
    away = np.arange(64)[::-1] - 3
    rates = np.array(10_000.0 ** (-np.arange(16) / 16))
    for spec in (Sinusoidal(WIDTH), Rotary(32)):
        with cases(spec):
            temperature, beside = looking_back.temperature_of(spec, 3, 0.7, 64)
            e = np.exp(np.cos(np.outer(away, rates)).sum(1) / temperature)
            shares = e / e.sum()
            assert shares[-4] == pytest.approx(0.7, abs=1e-6)
            assert beside == pytest.approx(shares[-5] + shares[-3], abs=1e-6)
            assert looking_back.temperature_of(spec, 3, 0.001, 64) is None


def test_a_sinusoid_is_shifted_by_one_matrix_and_noise_is_not():
    sinusoid = table(Sinusoidal(WIDTH, base=10.0), 128, "float64")
    assert np.linalg.matrix_rank(sinusoid) == WIDTH
    assert max(shape.shift_residuals(sinusoid)) <= 1e-12
    assert min(shape.shift_residuals(noise())) > 0.2
    draws = [shape.same_singular_values(sinusoid, np.random.default_rng(each)) for each in range(4)]
    shift = np.array([shape.shift_residuals(each) for each in draws])
    assert shift.shape == (4, len(shape.DISTANCES))
    assert shift.min() > 0.2


def test_tables_drawn_beside_one_keep_its_spectrum():
    rows, rng = table(Sinusoidal(WIDTH), 96, "float64"), np.random.default_rng(0)
    drawn = shape.same_singular_values(rows, rng)
    assert np.linalg.svd(drawn)[1] == pytest.approx(np.linalg.svd(rows)[1], abs=1e-9)
    smooth = shape.same_fourier_spectrum(rows, rng)
    power = (np.abs(np.fft.rfft(each, axis=0))[1:-1] for each in (smooth, rows))
    assert np.allclose(*power, atol=1e-9)
    assert not np.allclose(smooth, rows, atol=0.1)


def test_the_table_of_an_encoder_is_told_from_noise():
    with_waves = table(Sinusoidal(8, base=100.0), 128, "float64") @ noise()[:8] + 0.3 * noise()
    sound, other = (numbers(encoder(rows, 128)).numbers["table"] for rows in (with_waves, noise()))
    assert sound["partly_periodic"]
    assert sound["four_waves_r2"] > sound["four_waves_r2_of_noise"]
    assert not other["partly_periodic"]
    assert not other["one_matrix_shifts"]
    assert numbers(encoder(length=128)).numbers["table"]["one_matrix_shifts"]
    assert shape.four_waves(noise()).share < 0.1


def test_pairs_of_a_decoder():
    found = numbers(decoder())
    pairs = found.numbers["pairs"]
    assert sum(pairs["share_of_query_and_key"]) == pytest.approx(1)
    assert [(each["first"], each["last"]) for each in pairs["groups"]] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert all(each["removed"]["nats"] != 0 for each in pairs["groups"])
    assert found.numbers["heads"]["mean_distance"]
    assert "score_terms" not in found.numbers


def test_pairs_that_hold_nothing_or_do_not_rotate_cost_nothing():
    model = decoder()
    with torch.no_grad():
        for layer in model.model.layers:
            held = layer.self_attn.q_proj.weight.unflatten(0, (4, 16))
            held[:, [6, 7, 14, 15]] = 0
    found = numbers(model).numbers["pairs"]
    assert max(found["share_of_query_and_key"][6:]) == 0
    assert abs(found["groups"][-1]["removed"]["nats"]) < 1e-9
    assert found["groups"][0]["removed"]["nats"] != 0
    model = decoder()
    model.model.rotary_emb.inv_freq[6:] = 0
    first, *_, last = numbers(model).numbers["pairs"]["groups"]
    # Cosine and sine are made in float64 where pairs are changed, and in float32 by the model.
    assert abs(last["unrotated"]["nats"]) < 1e-7 < abs(last["removed"]["nats"])
    assert abs(first["unrotated"]["nats"]) > 1e-6


def test_how_far_heads_look_is_that_of_attention_in_equal_parts_where_queries_are_zero():
    model = decoder()
    queries = np.arange(looking_back.REACH, LENGTH)  # those that can look as far as is measured
    for factor, equal in ((0, True), (100, False)):
        with torch.no_grad():
            for layer, own in zip(model.model.layers, decoder().model.layers, strict=True):
                layer.self_attn.q_proj.weight.copy_(factor * own.self_attn.q_proj.weight)
        found = numbers(model).numbers["heads"]
        for name, expected in (("mean_distance", queries / 2), ("first_token_share", 1 / (queries + 1))):
            assert np.allclose(found[name], expected.mean(), rtol=1e-3) is equal


def test_pairs_of_an_interleaved_model_are_neighbours():
    """Cohere pairs channels 2i and 2i + 1: what is zero there is zero in its last two pairs."""
    model = decoder("Cohere")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.unflatten(0, (4, 16))[:, 12:] = 0
    found = numbers(model).numbers["pairs"]
    assert max(found["share_of_query_and_key"][6:]) == 0
    assert min(found["share_of_query_and_key"][:6]) > 0
    assert abs(found["groups"][-1]["removed"]["nats"]) < 1e-9


def of_lab(code, width=64):
    pytest.importorskip("torch")
    from clockhands.lab._model import Transformer
    from clockhands.lab._model_codes import ModelCode

    arm = Arm(code=code)
    sizes = Model(width=width, heads=2)
    made = setting(arm, sizes, LENGTH, LENGTH, causal=True)
    return Transformer(sizes, 50, ModelCode(made, arm, True, 0), True, 0).eval()


def test_distance_explains_sinusoids_only_before_a_projection():
    found = numbers(of_lab("vaswani2017")).numbers["score_terms"]
    explains = found["distance_explains"]
    assert found["exact"]
    assert explains["before"] == pytest.approx(1, abs=1e-12)
    assert 0.05 < explains["random"] < 0.2
    assert max(explains["trained"]) < 0.5
    other = numbers(encoder(noise())).numbers["score_terms"]["distance_explains"]
    assert other["before"] < 0.8, "rows of noise depend on more than the distance"


def test_tokens_and_rows_at_right_angles_are_told_from_tokens_along_the_rows():
    from clockhands.probes._token_cosines import token_cosines

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((64, 128))
    apart = token_cosines(rng.standard_normal((500, 128)), rows)
    assert apart.deviation == pytest.approx(128**-0.5, rel=0.05)
    assert apart.found == 1
    along = token_cosines(rows[np.arange(500) % 64] * rng.uniform(0.5, 1.5, (500, 1)), rows)
    assert along.largest == pytest.approx(1)
    assert along.found < 0.7
