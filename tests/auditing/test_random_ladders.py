"""Random rotary parts of a library, right and with one fault each: what is right passes, what is wrong is named."""

import copy
import random
from collections import Counter
from typing import Any

import pytest

import clockhands as ch
from auditing import loaded_models as models

torch: Any = None


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Imported when the first test runs."""
    globals()["torch"] = pytest.importorskip("torch")
    models.transformers()


def drawn(seed):
    """A config of any scaling, width, base and length."""
    draw = random.Random(seed)
    kind = draw.choice(["default", "linear", "dynamic", "yarn", "llama3", "longrope"])
    width, original = draw.choice([16, 32, 64, 80, 128, 256]), draw.choice([64, 512, 2048, 8192, 32768])
    factor = draw.choice([1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 40.0])
    block = {"rope_type": kind, "rope_theta": round(10 ** draw.uniform(2, 8), draw.choice([0, 2]))}
    if kind != "default":
        block["factor"] = factor
    if kind in ("yarn", "llama3", "longrope"):
        block["original_max_position_embeddings"] = original
    if kind == "llama3":
        block |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn":
        block["truncate"] = draw.choice([True, False])
    if kind == "longrope":
        block["short_factor"] = [round(draw.uniform(1.05, 1.5), 4) for _ in range(width // 2)]
        block["long_factor"] = [round(draw.uniform(1.05, factor + 1), 4) for _ in range(width // 2)]
    return models.transformers().LlamaConfig(
        hidden_size=4 * width,
        num_attention_heads=4,
        head_dim=width,
        num_hidden_layers=2,
        max_position_embeddings=original if kind == "dynamic" else int(original * factor),
        rope_parameters=block,
    )


def part(config):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return LlamaRotaryEmbedding(config)


def with_rates(right, rates):
    changed = copy.deepcopy(right)
    changed.inv_freq.copy_(rates)
    return changed


def wrong_ones(config, right):
    """Finding to a part that should have it; what a fault leaves as it is, is left out."""
    block, count = config.rope_parameters, right.inv_freq.numel()
    yield "buffer-rounded", copy.deepcopy(right).to(torch.bfloat16)
    yield "buffer-rounded", copy.deepcopy(right).to(torch.float16)
    yield "buffer-zero", with_rates(right, torch.zeros(count))
    bits = torch.randint(0, 2**31 - 1, (count,), dtype=torch.int32, generator=torch.Generator().manual_seed(count))
    yield "buffer-uninitialised", with_rates(right, bits.view(torch.float32))
    yield "buffer-uninitialised", with_rates(right, right.inv_freq.where(torch.arange(count) > 0, 6.93e-18))
    plain = block["rope_theta"] ** -(torch.arange(count, dtype=torch.float64) / count)
    yield "buffer-unscaled", with_rates(right, plain)
    for change, code in (({"rope_theta": 3 * block["rope_theta"]}, "buffer-of-another-base"), *other_factors(block)):
        other = copy.deepcopy(config)
        other.rope_parameters |= change
        yield code, with_rates(right, part(other).inv_freq)


def other_factors(block):
    if block["rope_type"] in ("linear", "yarn", "llama3"):
        yield {"factor": 3 * block["factor"]}, "buffer-of-another-factor"


def told(module):
    findings = ch.audit(module).findings
    return [found.code for found in findings if found.severity != "note" and found.blames == "module"]


def tried(seeds):
    named = Counter()
    for seed in seeds:
        config = drawn(seed)
        right = part(config)
        assert told(right) == [], config.rope_parameters
        for code, wrong in wrong_ones(config, right):
            same = torch.allclose(wrong.inv_freq.float(), right.inv_freq, rtol=2.0**-18, atol=0)
            if same and wrong.inv_freq.dtype == torch.float32:
                continue  # a scaling that changes none of so few pairs
            seen = told(wrong)
            assert seen, (code, config.rope_parameters)
            named[code, seen[0]] += 1
    return named


def share_named(named):
    return sum(count for (code, seen), count in named.items() if code == seen) / sum(named.values())


def test_some_random_ladders_are_named():
    assert share_named(tried(range(3))) >= 0.95


@pytest.mark.slow
def test_random_ladders_are_named():
    named = tried(range(1000, 1150))
    assert sum(named.values()) > 1000
    assert share_named(named) >= 0.98, named
    for code in ("buffer-rounded", "buffer-zero", "buffer-uninitialised"):
        assert {seen for wanted, seen in named if wanted == code} == {code}


def test_rates_made_by_an_exponential_are_right(cases):
    for base, width in ((1e4, 32), (5e5, 64), (1e6, 128), (8e6, 64), (11158840.0, 128), (8e7, 32)):
        config = models.transformers().LlamaConfig(
            hidden_size=2 * width,
            num_attention_heads=2,
            num_hidden_layers=2,
            rope_parameters={"rope_type": "default", "rope_theta": base},
        )
        right = part(config)
        steps, logarithm = torch.arange(0, width, 2), torch.log(torch.tensor(base))
        ways = {
            "a constant": torch.exp(steps * (-logarithm / width)),
            "three factors": torch.exp(-logarithm * steps / width),
            "a quotient": 1 / torch.exp(logarithm * (steps / width)),
        }
        for way, rates in ways.items():
            with cases(base, width, way):
                assert list(ch.audit(with_rates(right, rates)).errors) == []
