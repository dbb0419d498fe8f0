"""Rates that other libraries' own code made: every scaling gives them, or the library is wrong."""

import numpy as np
import pytest

from clockhands.encodings.ladders import geometric
from clockhands.encodings.scaling import Dynamic, Linear, Llama3, LongRope, Ntk, Proportional, Yarn
from oracles import published
from oracles.rows import every

# What float32 rates may be off by: the exponent of the ladder is rounded, then the power.
RELATIVE = 1e-6

SHORT = tuple(float(1 + np.float64(i) * 0.02) for i in range(32))
LONG = tuple(1 + 1.5 * i for i in range(32))
LADDER = geometric(32)
SCALED = {
    "rope_hf_default": LADDER,
    "rope_hf_linear": Linear(4.0)(LADDER),
    "rope_hf_dynamic_short": Dynamic(2.0, 4_096)(LADDER),
    "rope_hf_yarn": Yarn(8.0, 4_096)(LADDER),
    "rope_hf_yarn_notrunc": Yarn(8.0, 4_096, truncate=False, beta_fast=16.0, beta_slow=2.0)(LADDER),
    "rope_hf_longrope_short": LongRope(SHORT, LONG, 4_096, 32.0)(LADDER),
    "rope_hf_llama3": Llama3(8.0, 8_192)(LADDER),
    "rope_hf_proportional": Proportional(0.25)(LADDER),
    "rope_kerashub_linear": Linear(4.0)(LADDER),
    "rope_ret_ntk": Ntk(8.0)(LADDER),
}
# The library gives other numbers than it says it does; the right ones are asserted below, and the defect shown.
DEFECTS = {
    "rope_hf_yarn_nested_truncate": "truncate=False is not read where rope_parameters is nested by layer type",
    "rope_kerashub_dynamic": "every rate is divided by factor ** (d / (d - 2)), instead of the base multiplied by it",
}


def worst_relative(got, wanted):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    assert ((got == 0) == (wanted == 0)).all()
    return np.abs(got / np.where(wanted == 0, 1, wanted) - (wanted != 0)).max()


def published_rates(key):
    return published.arrays(key)["inv_freq"]


@every("key", SCALED)
def test_scaled_rates_are_the_published_ones(key):
    theirs = published.arrays(key)
    assert worst_relative(SCALED[key].rates, theirs["inv_freq"]) <= RELATIVE
    assert SCALED[key].attention_factor == pytest.approx(float(theirs["attention_factor"]), rel=1e-6)


def test_every_published_ladder_is_matched_or_named_as_a_defect():
    entries = published.entries("rotary_inv_freq")
    assert entries.keys() == SCALED.keys() | DEFECTS.keys()
    named = {key for key, entry in entries.items() if entry["differs_from_documented_claim"]}
    assert named == DEFECTS.keys()


def test_transformers_ignores_a_nested_truncate():
    theirs = published_rates("rope_hf_yarn_nested_truncate")
    # Asked for without floor and ceil, it gives the numbers with them.
    fields = {"beta_fast": 16.0, "beta_slow": 2.0}
    assert worst_relative(Yarn(8.0, 4_096, truncate=True, **fields)(LADDER).rates, theirs) <= RELATIVE
    right = Yarn(8.0, 4_096, truncate=False, **fields)(LADDER).rates
    assert worst_relative(right, theirs) > 0.1
    # The right ones are those that the same library gives where the value is not nested.
    assert worst_relative(right, published_rates("rope_hf_yarn_notrunc")) <= RELATIVE


def test_keras_hub_slows_every_hand_alike_and_calls_it_dynamic():
    theirs = published_rates("rope_kerashub_dynamic")
    assert worst_relative(Linear(4.0 ** (64 / 62))(LADDER).rates, theirs) <= RELATIVE
    # NTK-aware scaling multiplies the base by that: the fastest hand stays, the slowest is slowed four times.
    by_base = geometric(32, 10_000.0 * 4.0 ** (64 / 62)).rates
    for right in (Ntk(4.0)(LADDER), Dynamic(4.0, 4_096)(LADDER, 7_168)):
        assert worst_relative(right.rates, theirs) > 0.1
        assert worst_relative(right.rates, by_base) < 1e-14


@every("key", SCALED)
def test_the_check_of_rates_can_fail(key):
    theirs = published_rates(key)
    rates = np.array(SCALED[key].rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert worst_relative(rates * (1 + 1.2e-6), theirs) > RELATIVE
    others = [other for other in SCALED if worst_relative_or_inf(SCALED[other].rates, theirs) <= RELATIVE]
    alike = {"rope_hf_default", "rope_hf_dynamic_short"}, {"rope_hf_linear", "rope_kerashub_linear"}
    assert set(others) in ({key}, *alike)


def worst_relative_or_inf(got, wanted):
    try:
        return worst_relative(got, wanted)
    except AssertionError:
        return np.inf
