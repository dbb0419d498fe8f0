"""The rotary rows of the law table, in every array library, and a wrong code for each law."""

from dataclasses import replace

import numpy as np
import pytest

import clockhands as ch
from clockhands import testing
from clockhands.encodings.rotary import rotate
from conftest import load_backend
from laws.members import DRAWN, judge, other_libraries
from laws.rotary_members import FAR, ROTARY_MEMBERS, TOLERANCE, other_layout, rotary_subject_of

LAWS = {law.name: law for law in testing.LAWS if law.kinds == {testing.ROTARY}}
ALL_LAWS = testing.laws_for(ch.Rotary(8))


@pytest.mark.parametrize("row", ROTARY_MEMBERS, ids=lambda row: row.name)
def test_every_rotary_code_keeps_the_laws(row, cases):
    subject = rotary_subject_of(row, load_backend("numpy"))
    for law in ALL_LAWS:
        with cases(law.name):
            judge(row, law, subject)


@other_libraries
def test_laws_that_are_drawn_hold_in_every_library(any_backend, draw, cases):
    """That the numbers of every row are those of NumPy is seen in tests/rotary/test_rotate.py."""
    for row, law in draw([(row, law) for row in ROTARY_MEMBERS for law in ALL_LAWS], DRAWN[any_backend.name]):
        with cases(row.name, law.name):
            judge(row, law, rotary_subject_of(row, any_backend))


def test_rows_name_laws_that_exist():
    assert set(ALL_LAWS) == {law for law in testing.LAWS if testing.ROTARY in law.kinds} > set(LAWS.values())
    assert all(row.breaks <= LAWS.keys() for row in ROTARY_MEMBERS)


def test_every_row_has_its_other_layout_beside_it():
    # Else the law of the layouts would have nothing to compare.
    assert all(other_layout(row.spec) in row.others for row in ROTARY_MEMBERS if row.spec.rotated > 2)


# --- each law can fail -----------------------------------------------------------------------------------------

SPEC = ch.Rotary(12, rotated=8)


def right(x, positions):
    return rotate(x, SPEC, positions)


def tiled(x, positions):
    """Interleaved pairs, and cosines and sines in the order of halves: two angles in one pair."""
    phases = np.asarray(positions, np.float64)[..., None] * np.tile(SPEC.rates, 2)
    cosine, sine = np.cos(phases), np.sin(phases)
    if x.ndim > phases.ndim:
        cosine, sine = np.expand_dims(cosine, -3), np.expand_dims(sine, -3)
    turning = x[..., :8]
    beside = np.stack([-turning[..., 1::2], turning[..., 0::2]], axis=-1).reshape(turning.shape)
    return np.concatenate([turning * cosine + beside * sine, x[..., 8:]], axis=-1).astype(x.dtype)


def in_float32(x, positions):
    """Phases as products in float32, as one would."""
    phases = np.asarray(positions, np.float32)[..., None] * np.asarray(SPEC.rates, np.float32)
    cosine, sine = np.cos(phases), np.sin(phases)
    first, second = x[..., :4], x[..., 4:8]
    return np.concatenate([first * cosine - second * sine, first * sine + second * cosine, x[..., 8:]], axis=-1)


def times_almost_one(x, positions):
    return right((x * (1 - 2.0**-10)).astype(x.dtype), positions)


def counts_from_its_first(x, positions):
    positions = np.asarray(positions)
    return right(x, positions - positions[:1] if positions.ndim == 1 else positions)


def as_one_sequence(x, positions):
    return right(x, np.asarray(positions)[0]) if np.ndim(positions) == 2 else right(x, positions)


SABOTAGE = {
    "norms are kept": tiled,
    "position zero is the identity": lambda x, positions: right(x, np.asarray(positions) + 1),
    "scores depend on distance only": in_float32,
    "the inverse is the negative position": lambda x, positions: right(x, np.abs(positions)),
    "unrotated channels stay": times_almost_one,
    "layouts agree under the permutation": None,
    "packed equals separate": as_one_sequence,
    "decoding equals the full pass": counts_from_its_first,
}


def subject(apply=right, **fields):
    return testing.Subject(SPEC, apply, positions=FAR, tolerance=TOLERANCE, **fields)


@pytest.mark.parametrize("name", [name for name, apply in SABOTAGE.items() if apply])
def test_the_law_can_fail(name):
    assert testing.broken(LAWS[name], subject()) is None
    assert testing.broken(LAWS[name], subject(SABOTAGE[name]))


def test_there_is_a_wrong_code_for_each_law():
    assert SABOTAGE.keys() == LAWS.keys()


def test_a_code_that_does_not_know_its_layout_is_noticed():
    law = LAWS["layouts agree under the permutation"]
    for apply, holds in ((lambda x, at: rotate(x, other_layout(SPEC), at), True), (right, False)):
        other = testing.Subject(other_layout(SPEC), apply, positions=FAR, tolerance=TOLERANCE)
        assert (testing.broken(law, subject(others=(other,))) is None) == holds


def test_packed_sequences_that_are_counted_through_are_noticed():
    def through(x, _):
        return right(x, np.arange(x.shape[-2]))

    assert "packed" in testing.broken(LAWS["packed equals separate"], subject(through))


def test_a_subnormal_or_signed_zero_that_is_lost_is_noticed():
    law = LAWS["unrotated channels stay"]
    for wrong in (lambda x: x + 0, lambda x: np.where(np.abs(x) < np.finfo(x.dtype).tiny, x * 0, x)):

        def apply(x, positions, wrong=wrong):
            return np.concatenate([right(x, positions)[..., :8], wrong(x[..., 8:])], axis=-1)

        assert "was changed" in testing.broken(law, subject(apply))


def test_laws_need_room():
    for name, room, words in (
        ("position zero is the identity", range(1, 9), "has no position 0"),
        ("scores depend on distance only", range(1), "has too few positions"),
        ("the inverse is the negative position", range(9), "has no negative positions"),
    ):
        assert words in testing.broken(LAWS[name], replace(subject(), positions=room))


def test_an_attention_factor_that_is_left_out_is_noticed():
    from clockhands.encodings.scaling import Yarn

    spec = ch.Rotary(12, rotated=8, scaling=Yarn(8.0, 4_096))
    plain = ch.Rotary(12, rotated=8, scaling=Yarn(8.0, 4_096, attention_factor=1.0))
    forgetful = testing.Subject(spec, lambda x, at: rotate(x, plain, at), positions=FAR, tolerance=TOLERANCE)
    assert "position 0 changes a head" in testing.broken(LAWS["position zero is the identity"], forgetful)


def test_keys_that_are_turned_like_queries_are_noticed_in_xpos():
    spec = ch.Rotary(8, "interleaved", xpos=ch.rotary.XPos())
    apply = lambda x, at: rotate(x, spec, at, role="query")  # noqa: E731
    wrong = testing.Subject(spec, apply, positions=range(4_097), tolerance=TOLERANCE)
    law = LAWS["scores depend on distance only"]
    assert "is off by" in testing.broken(law, wrong)
    assert testing.broken(law, replace(wrong, keys=lambda x, at: rotate(x, spec, at, role="key"))) is None
