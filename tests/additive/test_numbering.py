"""Which row of a learned table a token gets: the published rules, and the ways to get them wrong."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import token_positions, token_rows
from clockhands.errors import InvalidValue
from late import Late
from oracles import published, sentences
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

BERT = ch.Learned(8, rows=16)
GPT2_BATCHED = ch.Learned(8, rows=16, padding_row=1)
BART = ch.Learned(8, rows=16, offset=2)
ROBERTA = ch.Learned(8, rows=16, offset=2, padding_row=1)
FAIRSEQ = ch.Sinusoidal(8, first=2, zero_rows=(1,))
VALUES = np.random.default_rng(5).standard_normal((16, 8)).astype(np.float32)

IDS = np.array([[1, 1, 5, 6, 7, 1], [5, 6, 7, 8, 9, 4]])
MASK = IDS != 1


def by_hand(spec, mask):
    """The rules in words, token by token."""
    rows = []
    for sequence in mask:
        seen = 0
        row = []
        for place, real in enumerate(sequence):
            if spec is BERT:
                row.append(place)
            elif spec is BART:
                row.append(place + 2)
            elif spec is GPT2_BATCHED:
                row.append(seen if real else 1)
            else:
                row.append(2 + seen if real else 1)
            seen += bool(real)
        rows.append(row)
    return rows


@every("spec", [BERT, GPT2_BATCHED, BART, ROBERTA, FAIRSEQ], drawn=2)
def test_every_rule_gives_the_rows_that_it_says(spec, backend):
    masks = np.random.default_rng(1).random((64, 9)) < 0.6
    wanted = by_hand(spec, masks)
    for given in (masks, masks.astype(np.int64), masks.astype(np.int32)):
        rows = token_rows(backend.asarray(given), spec)
        assert type(rows).__module__.partition(".")[0] in (backend.name, "jaxlib")
        assert backend.to_numpy(rows).tolist() == wanted
        assert "int" in str(rows.dtype)
        places = backend.to_numpy(token_positions(backend.asarray(given), spec))
        assert (places + getattr(spec, "offset", 0)).tolist() == wanted


def test_ids_with_padding_are_a_mask(backend):
    for spec in (BERT, BART, ROBERTA, FAIRSEQ):
        wanted = backend.to_numpy(token_rows(backend.asarray(MASK), spec))
        got = token_rows(backend.asarray(IDS), spec, padding=1)
        assert np.array_equal(backend.to_numpy(got), wanted)
        assert np.array_equal(backend.to_numpy(token_rows(backend.asarray(IDS[0]), spec, padding=1)), wanted[0])


@every("key, spec", [("posids_roberta", ROBERTA), ("posids_bart", BART), ("posids_bert", BERT)])
def test_published_rows_are_these(key, spec):
    arrays = published.arrays(key)
    assert token_rows(arrays["input_ids"], spec, padding=1).tolist() == arrays["pos"].tolist()
    others = {BERT, BART, ROBERTA} - {spec}
    assert all(token_rows(arrays["input_ids"], other, 1).tolist() != arrays["pos"].tolist() for other in others)


def test_every_published_rule_is_checked():
    assert published.entries("learned_offsets").keys() == {"posids_roberta", "posids_bart", "posids_bert"}


def test_the_sinusoid_of_fairseq_stands_at_the_published_ids():
    arrays = published.arrays("sin_hf_m2m100_forward_padded")
    ids, table = np.array([[1, 1, 5, 6, 7, 8, 1, 9]]), arrays["table"]
    places = token_positions(ids, ch.preset("fairseq", width=64), padding=1)
    assert places.tolist() == arrays["position_ids"].tolist()
    added = ch.add(np.zeros((1, 8, 64)), ch.preset("fairseq", width=64), places)
    assert np.abs(added[0] - table).max() < 1e-6
    assert not added[0, [0, 1, 6]].any()


def test_positions_may_exist_only_inside_a_trace(draw):
    for spec in draw((BERT, GPT2_BATCHED, BART, ROBERTA, FAIRSEQ), 2):
        wanted = token_rows(IDS, spec, padding=1)
        for given, padding in ((IDS, 1), (MASK, None), (MASK.astype(np.int32), None)):
            traced = jax.jit(lambda x, padding=padding, spec=spec: token_rows(x, spec, padding))
            assert np.array_equal(traced(given), wanted)
            assert np.array_equal(jax.vmap(traced)(given), wanted)
            mapped = torch.func.vmap(lambda x, padding=padding, spec=spec: token_rows(x, spec, padding))
            assert np.array_equal(mapped(torch.tensor(given)).numpy(), wanted)


def test_a_compiled_model_numbers_its_tokens():

    def embedded(ids, values):
        places = token_positions(ids, ROBERTA, padding=1)
        return token_rows(ids, ROBERTA, padding=1), ch.add(torch.zeros(*ids.shape, 8), ROBERTA, places, values=values)

    compiled = torch.compile(embedded, fullgraph=True, backend="eager")
    rows, added = compiled(torch.tensor(IDS), torch.tensor(VALUES))
    assert np.array_equal(rows.numpy(), token_rows(IDS, ROBERTA, padding=1))
    assert np.array_equal(added.numpy(), VALUES[rows.numpy()])


def test_padding_reads_its_own_row(backend):
    x = backend.asarray(np.zeros((2, 6, 8)), "float32")
    places = token_positions(backend.asarray(MASK), ROBERTA)
    added = backend.to_numpy(ch.add(x, ROBERTA, places, values=VALUES))
    assert np.array_equal(added, VALUES[token_rows(MASK, ROBERTA)])
    assert np.array_equal(ch.table(ROBERTA, [-1, 0], values=VALUES), VALUES[[1, 2]])


def test_a_sequence_beyond_the_table_is_refused():
    for spec, most in ((BERT, 16), (BART, 14)):
        assert token_rows(np.ones((2, most), bool), spec).max() == 15
        with pytest.raises(InvalidValue, match=f"^The table has rows for {most} tokens, got {most + 1}"):
            token_rows(np.ones((2, most + 1), bool), spec)
    long = np.ones((2, 20), bool)
    long[:, :8] = False
    assert token_rows(long, ROBERTA).max() == 13  # 12 real tokens, and padding takes no row
    with pytest.raises(InvalidValue, match=r"^The table has rows for 14 tokens, got 20\.\nhint: Cut the sequence"):
        token_rows(np.ones((1, 20), bool), ROBERTA)
    with pytest.raises(InvalidValue, match=r"positions 0 to 13, got 14"):
        ch.add(np.zeros((15, 8)), ROBERTA, values=VALUES)


def test_a_sequence_beyond_the_table_is_refused_inside_a_trace():
    with pytest.raises(InvalidValue, match="rows for 14 tokens, got 15"):
        jax.jit(lambda mask: token_rows(mask, BART))(np.ones((2, 15), bool))


def test_no_sequences_and_no_tokens():
    for spec in (BERT, ROBERTA):
        assert token_rows(np.ones((0, 4), bool), spec).shape == (0, 4)
        assert token_rows(np.ones((2, 0), bool), spec).shape == (2, 0)


def test_arguments_stay_as_they_are():
    ids = IDS.copy()
    token_rows(ids, ROBERTA, padding=1)
    assert np.array_equal(ids, IDS)


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("numbering", cases)
