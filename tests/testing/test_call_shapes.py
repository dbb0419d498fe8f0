"""Functions in the shapes that people have are checked without an adapter, and the report says in which shape."""

import functools
import itertools
import time

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.rotary import XPos, chunked, interleaved
from clockhands.encodings.scaling import Linear, Yarn
from clockhands.testing import CannotCheck, check_rotary
from clockhands.testing.functions._call_shapes import _USUAL_AXES, _USUAL_TABLES
from testing import written_shapes as written
from testing.written_shapes import halves, llama, neighbours, transformers, vllm, waves

HALVES, PAIRS = ch.Rotary(16), ch.Rotary(16, "interleaved")
IN_PART = ch.Rotary(16, rotated=8)
COORDINATES = ch.Rotary(32, axes=interleaved((6, 5, 5)))


def doubled(row):
    return np.repeat(row, 2, -1)


def _positions_by_default(q, k, position_ids=None):
    places = np.arange(q.shape[-2]) if position_ids is None else position_ids[:, None]
    return written.rotated(q, places), written.rotated(k, places)


def _keys_by_default(positions, query, key=None):
    return vllm()(positions, query, key)


def _waves_by_default(x, cos=None, sin=None):
    return written.flash(x, cos, sin)


def _all_but_queries_by_default(q, k=None, cos=None, sin=None):
    return transformers(q, k, cos, sin)


def _positions_no_longer_used(q, k, cos, sin, position_ids=None):  # noqa: ARG001
    return transformers(q, k, cos, sin)


def _length_by_default(x, seq_len=None):
    return written.of_length(x, seq_len)


def _complex_by_another_name(hidden_states, freqs):
    x = hidden_states[..., ::2] + 1j * hidden_states[..., 1::2]
    return np.stack([(x * freqs).real, (x * freqs).imag], -1).reshape(hidden_states.shape).astype(hidden_states.dtype)


# The function, what it computes, and words of the shape in which it fits.
SOUND = [
    (transformers, HALVES, "q [batch, heads, seq, width]", "cos [batch, seq, 16, both halves equal]"),
    (transformers, ch.Rotary(16, base=5e5, scaling=Yarn(8.0, 1024)), "cos [batch, seq, 16, both halves equal]"),
    (functools.partial(transformers, unsqueeze_dim=2), HALVES, "q [batch, seq, heads, width]"),
    (written.transformers_4, HALVES, "cos [seq, 16, both halves equal]", "positions [batch, seq]"),
    (written.neox, HALVES, "cos [batch, seq, 16, both halves equal]"),
    (written.neox, IN_PART, "cos [batch, seq, 8, both halves equal]"),
    (written.esm, HALVES, "cos [batch, 1, seq, 16, both halves equal]"),
    (transformers, IN_PART, "q [batch, heads, seq, 8]", "cos [batch, seq, 8, both halves equal]"),
    (written.meta, ch.Rotary(16, "interleaved", rotated=8, part="last"), "q [batch, seq, heads, 8]"),
    (written.backward, ch.Rotary(16, direction="backward"), "cos [batch, 1, seq, 8, one for each pair]"),
    (written.timm, PAIRS, "sin [batch, 1, seq, 16, neighbours equal]"),
    (written.timm_cat, PAIRS, "sin_cos [batch, 1, seq, 16, neighbours equal]"),
    (written.flash, HALVES, "x [batch, seq, heads, width]", "cos [seq, 8, one for each pair]"),
    (written.flash, IN_PART, "x [batch, seq, heads, width]", "cos [seq, 4, one for each pair]"),
    (written.megatron, ch.Rotary(16, scaling=Linear(4.0)), "freqs [batch, 1, seq, 16, both halves equal]"),
    (written.meta, PAIRS, "q [batch, seq, heads, width]", "freqs_cis [seq, 8, one for each pair]"),
    (written.meta_table, ch.Rotary(16, "interleaved", base=5e5), "function(dim, end, theta) -> freqs_cis"),
    (llama(), HALVES, "positions [batch, seq]) -> cos, sin"),
    (llama(5e5), ch.Rotary(32, base=5e5), "positions [batch, seq]) -> cos, sin"),
    (llama(repeat=doubled), PAIRS, "positions [batch, seq]) -> cos, sin"),
    (llama(repeat=lambda row: row), HALVES, "positions [batch, seq]) -> cos, sin"),
    (written.of_positions, HALVES, "function(positions [batch, seq]) -> cos, sin"),
    (written.of_length, HALVES, "function(x [batch, heads, seq, width], end) -> cos, sin"),
    (written.table_of_length, HALVES, "function(dim, end, theta)"),
    (written.table_of_length, ch.Rotary(16, direction="backward", base=5e5), "function(dim, end, theta)"),
    (written.mrope(COORDINATES), COORDINATES, "positions [axes, batch, seq]) -> cos, sin"),
    (vllm(), HALVES, "positions [seq], q [seq, heads*width]"),
    (vllm(apart=neighbours, repeat=doubled), PAIRS, "positions [seq], q [seq, heads*width]"),
    (written.esm_module(), HALVES, "function(q [batch, heads, seq, width], k [batch, heads, seq, width])"),
    (written.of_two, HALVES, "q_positions [seq], k_positions [seq]"),
    (transformers, ch.Rotary(16, rotated=2), "q [batch, heads, seq, 2]", "cos [batch, seq, 2, both halves equal]"),
    (_positions_by_default, HALVES, "positions [batch, seq]"),
    (_keys_by_default, HALVES, "positions [seq], q [seq, heads*width]"),
    (_waves_by_default, HALVES, "cos [seq, 8, one for each pair]"),
    (_all_but_queries_by_default, HALVES, "cos [batch, seq, 16, both halves equal]"),
    (_positions_no_longer_used, HALVES, "sin [batch, seq, 16, both halves equal])"),
    (_length_by_default, HALVES, "function(x [batch, heads, seq, width], end) -> cos, sin"),
    (_complex_by_another_name, PAIRS, "freqs_cis [batch, 1, seq, 8, one for each pair]"),
]


def test_sound_functions_of_every_shape_pass(cases):
    for function, spec, *words in SOUND:
        with cases(function, words):
            report = check_rotary(function, spec, length=3000)
            assert report.called["shape"] in str(report).replace("\n", " ").replace("  ", " ")
            assert [each for each in words if each not in report.called["shape"]] == []
            assert not [why for why in report.left_out.values() if why.startswith("it returned")]
            assert 0 < report.worst <= 1


def test_drawn_bases_widths_and_layouts_pass(cases):
    draw = np.random.default_rng(7)
    for _ in range(12):
        width, base = int(2 * draw.integers(2, 40)), float(10 ** draw.uniform(2, 7))
        for layout, apart, repeat in (("halves", halves, waves.__defaults__[2]), ("interleaved", neighbours, doubled)):
            spec = ch.Rotary(width, layout, base=base)
            functions = [vllm(base, width, apart, repeat), llama(base, repeat=repeat)]
            functions += [written.meta, written.timm] if layout == "interleaved" else [transformers, written.flash]
            for function in functions:
                with cases(spec, function):
                    assert check_rotary(function, spec, length=700).sound


def _exchanged(q, k, cos, sin):
    return transformers(q, k, sin, cos)


def _keys_left(q, k, cos, sin):
    return transformers(q, k, cos, sin)[0], k


def _queries_left(q, k, cos, sin):
    return q, transformers(q, k, cos, sin)[1]


def _crossed(q, k, cos, sin):
    return transformers(k, q, cos, sin)


def _backward(q, k, cos, sin):
    return transformers(q, k, cos, -sin)


def _repeated_for_pairs(x, cos, sin):
    cos, sin = (doubled(wave)[:, None] for wave in (cos, sin))
    return x * cos + halves(x) * sin


def _waves_exchanged(x, position_ids):
    return llama()(x, position_ids)[::-1]


def _positions_of_keys(q, k, q_positions, k_positions):  # noqa: ARG001
    return written.of_two(q, k, k_positions, k_positions)


def _positions_of_queries(q, k, q_positions, k_positions):  # noqa: ARG001
    return written.of_two(q, k, q_positions, q_positions)


def _conjugated(xq, xk, freqs_cis):
    return written.meta(xq, xk, freqs_cis.conj())


def _complex_keys_left(xq, xk, freqs_cis):
    return written.meta(xq, xk, freqs_cis)[0], xk


def _base_left_out(dim, end, theta=10000.0):  # noqa: ARG001
    return written.meta_table(dim, end)


def _from_first(positions, query, key):
    return vllm()(positions - positions[0], query, key)


def _flat_keys_left(positions, query, key):
    return vllm()(positions, query, key)[0], key


def _last_part(q, k, cos, sin):
    cos, sin, rest = cos[:, None], sin[:, None], q.shape[-1] - cos.shape[-1]

    def of(x):
        return np.concatenate([x[..., :rest], x[..., rest:] * cos + halves(x[..., rest:]) * sin], -1)

    return of(q), of(k)


def _positions_ignored(q, k, position_ids=None):  # noqa: ARG001
    return _positions_by_default(q, k)


def _complex_conjugated(hidden_states, freqs):
    return _complex_by_another_name(hidden_states, freqs.conj())


def _apart(q, k, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + neighbours(q) * sin, k * cos + neighbours(k) * sin


FAULTY = [
    (_exchanged, HALVES, "sine-and-cosine-swapped", ""),
    (_keys_left, HALVES, "no-rotation", "for keys only"),
    (_queries_left, HALVES, "no-rotation", "for queries only"),
    (_crossed, HALVES, "queries-and-keys-crossed", ""),
    (_backward, HALVES, "other-direction", ""),
    (transformers, PAIRS, "other-layout", "half-split instead of interleaved"),
    (written.timm, HALVES, "other-layout", "interleaved instead of half-split"),
    (_repeated_for_pairs, HALVES, "table-and-pairs-disagree", "its table is for interleaved pairs"),
    (llama(repeat=doubled), HALVES, "table-and-pairs-disagree", "its table is for interleaved pairs"),
    (transformers, ch.Rotary(16, "interleaved", rotated=8), "other-layout", "half-split instead of interleaved"),
    (written.table_of_length, ch.Rotary(64, scaling=Yarn(8.0, 1024)), "scaling-dropped", ""),
    (written.mrope(COORDINATES), ch.Rotary(32, axes=chunked((6, 5, 5))), "other-axes-order", "interleaved sections"),
    (transformers, ch.Rotary(16, direction="backward"), "other-direction", "forward instead of backward"),
    (_waves_exchanged, HALVES, "sine-and-cosine-swapped", ""),
    (llama(5e5), HALVES, "another-base", "500,000 instead of 10,000"),
    (_positions_of_keys, HALVES, "positions-of-other-side", "rotates queries by the positions of keys"),
    (_positions_of_queries, HALVES, "positions-of-other-side", "rotates keys by the positions of queries"),
    (_conjugated, PAIRS, "other-direction", ""),
    (_complex_keys_left, PAIRS, "no-rotation", "for keys only"),
    (_base_left_out, ch.Rotary(16, "interleaved", base=5e5), "another-base", "10,000 instead of 500,000"),
    (vllm(5e5), HALVES, "another-base", "500,000 instead of 10,000"),
    (vllm(apart=neighbours, repeat=doubled), HALVES, "other-layout", "interleaved instead of half-split"),
    (_from_first, HALVES, "positions-from-first", "every call starts at position 0"),
    (_flat_keys_left, HALVES, "no-rotation", "for keys only"),
    (written.esm_module(5e5), HALVES, "another-base", "500,000 instead of 10,000"),
    (_last_part, IN_PART, "other-part", ""),
    (_positions_ignored, HALVES, "positions-ignored", ""),
    (_complex_conjugated, PAIRS, "other-direction", ""),
    (_backward, COORDINATES, "other-direction", ""),
    (_apart, COORDINATES, "other-layout", "interleaved instead of half-split"),
]


def test_faults_of_every_shape_are_named(cases):
    for function, spec, code, said in FAULTY:
        with cases(function, code):
            report = check_rotary(function, spec, length=3000, raises=False)
            assert report.codes == {code}
            assert said in report.explanations[0].message


def test_tables_of_a_length_are_returned_in_either_order():
    def fixed(dim, seq_len, theta=10000.0):
        return written.table_of_length(dim, seq_len, theta)[::-1]

    report = check_rotary(fixed, HALVES, length=600)
    assert report.called["shape"] == "function(dim, end, theta) -> sin, cos"
    assert "which of two tables its callers take for the cosines" in report.left_out
    told = check_rotary(fixed, HALVES, length=600, call="dim, end, theta -> sin, cos")
    assert "which of two tables its callers take for the cosines" not in told.left_out
    call = "dim, end -> sin, cos"
    wrong = check_rotary(fixed, ch.Rotary(16, base=5e5), length=600, call=call, raises=False)
    assert wrong.codes == {"another-base"}


ORDERS = ("halves", "interleaved", "pairs")
SLIPS = {
    None: set(),
    "exchanged": {"sine-and-cosine-swapped"},
    "backward": {"other-direction"},
    "keys": {"no-rotation"},
    "queries": {"no-rotation"},
}


@pytest.mark.slow
def test_drawn_layouts_pass_and_their_faults_are_named(cases):
    """Every order of axes, shape and width of cosines has code for it, and no other layout hides or renames a fault."""
    draw = np.random.default_rng(11)
    for row in itertools.product(_USUAL_AXES, _USUAL_TABLES, ORDERS, ("halves", "interleaved"), SLIPS):
        if draw.random() < 0.08:
            with cases(row):
                spec = ch.Rotary(16, row[3])
                assert check_rotary(written.Drawn(*row), spec, length=300, raises=False).codes == SLIPS[row[4]]


def test_a_function_of_today_is_called_as_before_and_no_other_shape_is_tried():
    calls = []

    def plain(x, positions):
        calls.append(x.shape)
        return written.rotated(x, positions)

    report = check_rotary(plain, HALVES, length=300)
    assert calls[:2] == [(4, 16), (40, 16)]
    assert "shape" not in report.called


def test_what_fits_no_shape_is_told_with_the_number_of_layouts():
    def of_five_axes(q, k, cos, sin):
        batch, heads, seq, width, _ = q.shape
        raise AssertionError((batch, heads, seq, width, k, cos, sin))

    with pytest.raises(CannotCheck, match=r"q \[3, 2, 4, 16\].* and in 167 other layouts: .*not enough values"):
        check_rotary(of_five_axes, HALVES, backend="numpy")


def test_a_function_that_does_not_return_is_not_called_in_other_layouts():
    calls = []

    def waits(q, k, cos, sin):
        calls.append((q, k, cos, sin))
        time.sleep(5)

    with pytest.raises(CannotCheck, match=r"did not return within 0\.1 seconds"):
        check_rotary(waits, HALVES, backend="numpy", timeout=0.1)
    assert len(calls) <= 2  # and once for the hint


def test_layouts_that_did_not_fit_are_in_the_report_with_the_reason():
    called = check_rotary(written.meta, PAIRS, length=300).called
    reasons = {shape: why.partition(":")[0] for shape, why in called["did_not_fit"].items()}
    assert [why for shape, why in reasons.items() if "q [batch, heads, seq" in shape] == ["it raised ValueError"] * 7
    # Of sequences with numbers of their own, which a table of one sequence has not.
    assert [why for shape, why in reasons.items() if "q [batch, seq, heads" in shape] == ["its numbers differ"] * 4


def test_where_tokens_are_rotated_alike_no_other_axes_are_tried():
    """Right by chance: with one row of cosines for all tokens, where the axis that is cut is not that of tokens."""

    def first_row(x, cos, sin):
        return written.esm(x, cos[:, :, :1], sin[:, :, :1])

    report = check_rotary(_backward, HALVES, raises=False)
    assert {shape.partition("]")[0] for shape in report.called["did_not_fit"]} == {
        "function(q [batch, heads, seq, width"
    }
    assert not check_rotary(first_row, HALVES, axes="batch heads seq width", raises=False).sound


def test_what_is_given_is_not_tried_otherwise():
    report = check_rotary(transformers, HALVES, call="q, k, cos, sin", axes="batch seq heads width", raises=False)
    assert not report.sound or "q [batch, seq, heads, width]" in report.called["shape"]
    assert all("q [batch, seq, heads, width]" in shape for shape in report.called["did_not_fit"])


def test_xpos_has_no_cosines_that_could_be_given():
    with pytest.raises(CannotCheck, match="xPos has no cosines and sines that hold for queries and keys"):
        check_rotary(transformers, ch.Rotary(16, xpos=XPos()))


def test_names_that_are_not_known_need_the_call_where_numbers_are_wrong():
    def unknown(a, b, c, d):
        return transformers(a, b, c, d)

    def backward(a, b, c, d):
        return transformers(a, b, c, -d)

    assert check_rotary(unknown, HALVES, length=300).called["shape"].count("[batch, heads, seq, width]") == 2
    with pytest.raises(CannotCheck, match="missing 2 required") as caught:
        check_rotary(backward, HALVES)
    assert 'call="q, k, cos, sin"' in caught.value.hint
    assert check_rotary(unknown, HALVES, call="q, k, cos, sin", length=300).sound
    report = check_rotary(backward, HALVES, call="q, k, cos, sin", length=300, raises=False)
    assert report.codes == {"other-direction"}


def test_a_call_may_be_written_with_the_names_of_parameters():
    def unknown(a, b, c):
        return vllm()(a, b, c)

    def of_length(a, b):
        return written.of_length(a, b)

    assert check_rotary(unknown, HALVES, call="positions, query, key", length=300).sound
    assert check_rotary(of_length, HALVES, call="x, seq_len", length=300).sound


def test_two_arrays_of_tokens_are_no_cosines_and_sines():
    def with_tokens(x, positions):
        return written.rotated(x, positions), x

    with pytest.raises(CannotCheck, match="returned tuple of 2, not an array"):
        check_rotary(with_tokens, HALVES, axes="seq width", positions="seq", length=100)


def test_code_in_pytorch_of_meta_passes():
    torch = pytest.importorskip("torch")

    def apply_rotary_emb(xq, xk, freqs_cis):
        factors = freqs_cis.view(1, xq.shape[1], 1, -1)

        def of(x):
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * factors).flatten(3).type_as(x)

        return of(xq), of(xk)

    assert check_rotary(apply_rotary_emb, PAIRS, length=500).called["library"] == "torch"


@pytest.mark.slow
def test_functions_and_modules_of_transformers_pass(cases):
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.models.cohere import modeling_cohere
    from transformers.models.esm import modeling_esm
    from transformers.models.gpt_neox import modeling_gpt_neox
    from transformers.models.llama import modeling_llama

    llama_module = modeling_llama.LlamaRotaryEmbedding(LlamaConfig(hidden_size=64, num_attention_heads=4))
    for function, spec in (
        (modeling_llama.apply_rotary_pos_emb, HALVES),
        (modeling_gpt_neox.apply_rotary_pos_emb, HALVES),
        (modeling_cohere.apply_rotary_pos_emb, PAIRS),
        (llama_module, HALVES),
        (getattr(modeling_esm, "apply_rotary_pos_emb", modeling_llama.apply_rotary_pos_emb), HALVES),
    ):
        with cases(function):
            assert check_rotary(function, spec, length=500).sound


def test_tokens_without_a_batch_are_not_told_that_a_batch_shares_positions(cases):
    """[tokens, heads, width]: a batch of them is given one row of positions by broadcasting alone."""

    def rotated(x, positions):
        angles = positions[:, None] * 10_000.0 ** (-np.arange(8) / 8)
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        first, second = np.split(x, 2, -1)
        return np.concatenate([first * cosine - second * sine, first * sine + second * cosine], -1).astype(x.dtype)

    def flat(x, positions):
        return rotated(x, positions[0] if positions.ndim == 2 else positions)

    def of_a_batch(x, positions):
        return rotated(x, positions[0])

    batch = {"axes": "batch seq heads width", "positions": "batch seq"}
    for function, how, fault in ((flat, {}, False), (flat, batch, True), (of_a_batch, {}, True)):
        with cases(function.__name__, how):
            report = check_rotary(function, ch.Rotary(16), length=400, raises=False, **how)
            assert report.codes == ({"positions-of-first-sequence"} if fault else set())
            assert ("it takes no batch" in str(report).replace("\n", " ")) == (not fault)


def test_tables_with_sines_first_say_so_in_the_verdict(cases):
    def get_cos_sin(seq_len):
        angles = np.outer(np.arange(seq_len), 10_000.0 ** (-np.arange(8) / 8))
        return np.sin(angles), np.cos(angles)

    def tables(seq_len):
        return get_cos_sin(seq_len)

    def get_cos_sin_in_order(seq_len):
        return get_cos_sin(seq_len)[::-1]

    for function, says in (
        (get_cos_sin, "it returns the sines first, although its name, get_cos_sin, says cosines first"),
        (tables, "it returns the sines first)"),
        (get_cos_sin_in_order, ""),
    ):
        with cases(function.__name__):
            text = " ".join(str(check_rotary(function, ch.Rotary(16), length=400)).split())
            assert says in text
            assert ("as far as checked" in text) == bool(says)
