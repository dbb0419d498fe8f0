"""Random sound configs against the installed library: every rate and factor, at short and long lengths."""

import sys
import types
from collections import Counter

import pytest

from configs.drawn_configs import FLAT, NESTED, SCALINGS, drawn
from configs.expected import resolved
from configs.library import gaps, in_double, ladders, read_config, same

CONFIGS = 550

# The library computes in single precision, where these formulas lose more than that; in double they must be the same.
SINGLE, DOUBLE = 1e-6, 1e-9


def scalings(config):
    """The types of scaling that a config names; one for each kind of layer, where it has such blocks."""
    block = config.get("rope_scaling") or config.get("rope_parameters") or {}
    inner = [each for each in block.values() if isinstance(each, dict)]
    return [each.get("rope_type") or each.get("type") or "default" for each in inner or [block]]


def lengths(config):
    """Lengths at which a ladder may be another: within the original, at the context, far beyond it."""
    context = config["max_position_embeddings"]
    return (None, 64, context, 4 * context + 1) if {"dynamic", "longrope"} & set(scalings(config)) else (None,)


def parted(config, length):
    """Ladders that differ: in double, and by more than one part in a million from what the library rounds them to."""
    found = resolved(config, length)
    with in_double(config):
        made = read_config(config)
        exact = ladders(made, length)
        yield from gaps(made, found, length, DOUBLE, theirs=exact)
    rotary = [code for code in found.codes if code.kind == "rotary"]
    for label, ladder in ladders(read_config(config), length).items():
        pairs = zip(ladder.rates, exact[label].rates, strict=True)
        lost = max((abs(rate / real - 1) if real else abs(rate) for rate, real in pairs), default=0.0)
        if not any(same(code, ladder, SINGLE + lost) for code in rotary):
            yield f"{label or 'all'} in single precision, which itself loses {lost:.1e}"


def seeds_with_everything():
    """A few seeds whose configs have every type, and every scaling in both shapes."""
    met, seeds = set(), []
    for seed in range(CONFIGS):
        config = drawn(seed)
        new = {config["model_type"], *((kind, "rope_parameters" in config) for kind in scalings(config))} - met
        if new:
            seeds.append(seed)
        met |= new
    return seeds


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("some", [10, pytest.param(CONFIGS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_random_configs_have_the_ladders_of_the_library(cases, draw, some):
    for seed in sorted({*seeds_with_everything(), *draw(range(CONFIGS), some)}):
        config = drawn(seed)
        for length in lengths(config):
            with cases(seed, length):
                assert list(parted(config, length)) == []


def test_random_configs_are_of_every_kind():
    configs = [drawn(seed) for seed in range(CONFIGS)]
    kinds = Counter(kind for config in configs for kind in scalings(config))
    shapes = Counter("rope_parameters" in config for config in configs)
    assert {config["model_type"] for config in configs} == {*FLAT, *NESTED}
    assert min(kinds[kind] for kind in SCALINGS) >= 25
    assert min(shapes.values()) >= 150


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("wrong", [{"rope_theta": 1.0001}, {"head_dim": 2}, {"factor": 1.0001}])
def test_the_comparison_can_fail(wrong):
    config = {"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "head_dim": 64}
    config |= {"rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    other = {**config, "rope_scaling": dict(config["rope_scaling"])}
    for key, by in wrong.items():
        held = other if key in other else other["rope_scaling"]
        held[key] = type(held[key])(held[key] * by)
    assert not list(gaps(read_config(config), resolved(config)))
    assert list(gaps(read_config(other), resolved(config)))


def test_what_is_imported_while_float32_is_float64_is_named(monkeypatch):
    """It would hold the wrong types afterwards."""
    pytest.importorskip("transformers")
    message = r"^imported while float32 was float64, so import them before: \['somebodys\.dtypes'\]"
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 10000.0}
    with pytest.raises(AssertionError, match=message), in_double(config):
        monkeypatch.setitem(sys.modules, "somebodys.dtypes", types.ModuleType("somebodys.dtypes"))
