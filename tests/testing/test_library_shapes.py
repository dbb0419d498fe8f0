"""Functions with the parameters of published libraries are checked by the first command, without an option."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.scaling import Linear, Yarn
from clockhands.testing import CannotCheck, check_module, check_rotary
from testing import library_shapes as libraries
from testing.library_shapes import SHAPES, SLIPS


def test_each_is_correct_and_its_faults_are_named(cases):
    for make, layout, slips in SHAPES:
        for slip in (None, *slips):
            with cases(make.__name__, layout, slip):
                report = check_rotary(make(slip), ch.Rotary(16, layout), length=1500, raises=False)
                assert report.codes == SLIPS[slip]
                assert report.sound == (slip is None)


def test_the_report_says_what_parameters_are_taken_for(cases):
    for make, layout, words in (
        (libraries.torchtune, "interleaved", "x [batch, seq, heads, width], positions [batch, seq]"),
        (libraries.diffusers, "interleaved", "waves [seq, 16, neighbours equal]"),
        (libraries.flux, "interleaved", "matrices [batch, 1, seq, 8, one for each pair]"),
        (
            libraries.chatglm,
            "interleaved",
            "x [seq, batch, heads, width], wave_pairs [seq, batch, 8, one for each pair]",
        ),
        (libraries.mlx, "halves", "dim, interleaved, theta, scale, offset"),
        (libraries.gpt_fast_builder, "interleaved", "function(end, dim, theta) -> wave_pairs"),
        (libraries.megatron_builder, "halves", "function(end) -> freqs"),
        (libraries.flux_builder, "interleaved", "function(positions [batch, seq], dim, theta) -> matrices"),
    ):
        with cases(make.__name__):
            assert words in check_rotary(make(None), ch.Rotary(16, layout), length=300).called["shape"]


def test_settings_are_those_of_the_spec(cases):
    for make, spec in (
        (libraries.gemma, ch.Rotary(16, base=5e5)),
        (libraries.gemma_1, ch.Rotary(32, base=1e6)),
        (libraries.mlx, ch.Rotary(16, scaling=Linear(4.0))),
        (libraries.litgpt_builder, ch.Rotary(16, base=2e4)),
        (libraries.megatron, ch.Rotary(16, scaling=Yarn(8.0, 1024))),
    ):
        with cases(make.__name__):
            assert check_rotary(make(None), spec, length=500).sound


def test_names_that_say_nothing_are_taken_for_what_gives_right_numbers_or_not_at_all(cases):
    """A guess that gives wrong numbers may be wrong itself."""
    for slip in ("base", "direction", "layout"):
        with cases(slip), pytest.raises(CannotCheck, match="AssertionError"):
            check_rotary(libraries.batch_of_heads(slip), ch.Rotary(16))


def packed_by_tokens(t, cu_seqlens, freqs):  # noqa: ARG001
    """With a row of the table for each token of the packed row."""
    return libraries.by_angles(None, t, freqs[np.arange(len(t)), ..., : freqs.shape[-1] // 2].reshape(len(t), 1, -1))


def packed_by_both(t, cu_seqlens, freqs):
    """As Megatron tells them apart."""
    own = packed_by_tokens if len(freqs) == cu_seqlens[-1] else libraries.megatron_packed(None)
    return own(t, cu_seqlens, freqs)


def test_a_table_of_packed_documents_has_a_row_for_each_position_or_each_token(cases):
    for function, all_positions in ((libraries.megatron_packed(None), True), (packed_by_tokens, False)):
        with cases(function):
            report = check_rotary(function, ch.Rotary(16), length=500)
            assert ("of all positions" in report.called["shape"]) == all_positions
            assert ("of all positions" in report.called["other_reading"]) != all_positions
            assert "correct in one of two readings" in str(report)
            assert "its numbers differ" in str(report).replace("\n", " ")
    report = check_rotary(packed_by_both, ch.Rotary(16), length=500)
    assert "other_reading" not in report.called
    assert "is correct: " in str(report)


def test_tokens_that_do_not_rotate_have_no_frequencies():
    def scaled(x, freqs_cis):  # noqa: ARG001
        return 2 * x

    report = check_rotary(scaled, ch.Rotary(16), length=300, raises=False)
    assert not report.sound
    assert report.codes == set()


def of_table(positions, query, key):
    """vLLM's, with a table of 4,096 positions."""
    return libraries.vllm(None)(np.arange(4096)[positions], query, key)


def test_a_table_of_fewer_positions_is_checked_as_far_as_it_goes():
    report = check_rotary(of_table, ch.Rotary(16))
    assert "it raised IndexError" in report.left_out["positions from 4,096 on"]
    with pytest.raises(CannotCheck, match="IndexError"):
        check_rotary(of_table, ch.Rotary(16), length=5000)


def test_a_builder_without_arguments_is_asked_for_what_is_checked(cases):
    class Rope:
        def __init__(self, base=1e4):
            self.base = base

        def __call__(self, x, positions):
            return libraries.with_base(None)(x, positions, self.base)

    for build in (Rope, lambda: Rope(5e5), lambda base=5e5: Rope(base)):
        with cases(build):
            report = check_rotary(build, ch.Rotary(16), length=300, raises=False)
            assert report.codes == (set() if build is Rope else {"another-base"})


def test_a_module_with_weights_is_no_rotation():
    torch = pytest.importorskip("torch")
    with pytest.raises(CannotCheck, match="takes 0 positional arguments"):
        check_rotary(lambda: torch.nn.Linear(16, 16), ch.Rotary(16))


def test_a_module_that_takes_positions_by_name_is_called_so():
    torch = pytest.importorskip("torch")

    class Rope(torch.nn.Module):
        def __init__(self, base=1e4):
            super().__init__()
            self.base = base

        def forward(self, x, *, input_pos):
            rates = self.base ** (-torch.arange(8) / 8)
            at = input_pos[..., None, None] * rates
            a, b = x[..., ::2], x[..., 1::2]
            pairs = a * at.cos() - b * at.sin(), b * at.cos() + a * at.sin()
            return torch.stack(pairs, -1).flatten(-2).to(x.dtype)

    spec = ch.Rotary(16, "interleaved")
    report = check_module(Rope(), spec, length=500)
    assert report.called["shape"] == "function(x [batch, seq, heads, width], positions [batch, seq])"
    assert "another-base" in check_module(Rope(5e5), spec, length=500, raises=False).codes


def test_what_is_right_at_the_first_positions_alone_is_said_of_these():
    """Positions are doubled, and from 2,000 on the base is another one too."""

    def rope(x, positions):
        doubled = libraries.with_base(None)(x, 2 * positions, 1e4)
        return np.where(positions[:, None] < 2000, doubled, libraries.with_base(None)(x, 2 * positions, 3e5))

    report = check_rotary(rope, ch.Rotary(16), raises=False)
    assert report.codes == {"rotated-twice", "positions-scaled"}
    assert "at the first 512 positions" in report.explanations[0].message


def test_one_token_of_each_sequence_does_not_hide_the_axes_of_tokens(cases):
    spec = ch.Rotary(16)

    def rope(left, x, offset=0):  # [batch, heads, seq, width], with a path of its own for a single token
        out = ch.rotate(x, spec, offset + np.arange(x.shape[2]))
        if x.shape[2] == 1 and left is not None:
            out[1:] = left * x[1:]
        return out

    for left, said in (
        (0, "first sequence of a batch if each has one token: the others are zeros."),
        (1, "one token."),
    ):
        with cases(left):
            report = check_rotary(lambda x, offset=0, left=left: rope(left, x, offset), spec, length=600, raises=False)
            assert report.codes == {"first-sequence-only"}
            assert report.explanations[0].message.endswith(said)
            assert report.called["shape"] == "function(x [batch, heads, seq, width], offset)"
    assert check_rotary(lambda x, offset=0: rope(None, x, offset), spec, length=600).sound


def test_a_second_number_for_a_pair_that_is_not_read_stands_in_the_verdict(cases):
    def rope(first_alone, x, cos, sin):
        low, high = np.split(x, 2, -1)
        half = x.shape[-1] // 2
        second = slice(half) if first_alone else slice(half, None)
        return np.concatenate(
            [low * cos[..., :half] - high * sin[..., :half], high * cos[..., second] + low * sin[..., second]], -1
        )

    for first_alone in (True, False):
        with cases(first_alone):
            report = check_rotary(
                lambda x, cos, sin, first=first_alone: rope(first, x, cos, sin), ch.Rotary(16), length=300
            )
            assert ("cosines and sines whose halves differ" in report.left_out) == first_alone
            assert ("the first one is used for both" in next(report.lines()).text) == first_alone
