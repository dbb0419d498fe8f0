"""What is wrong with rates, in one word at every place where clockhands meets them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from auditing.model_files import audited
from clockhands.auditing import CODES
from clockhands.diagnosis import of_rates
from clockhands.errors import InvalidValue
from clockhands.faults import FAULTS
from clockhands.scaling import Linear, Llama3, LongRope, Ntk, Yarn

WIDTH, PAIRS = 128, 64
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_SHORT, _LONG = np.linspace(1.0, 1.3, PAIRS), np.linspace(1.0, 40.0, PAIRS)
_LONGROPE = {
    "rope_type": "longrope",
    "short_factor": _SHORT.tolist(),
    "long_factor": _LONG.tolist(),
    "original_max_position_embeddings": 4096,
}
# Each code, and the keys of a config that declare it.
SPECS: dict[str, tuple[ch.Rotary, dict[str, Any]]] = {
    "plain": (ch.Rotary(WIDTH, base=500_000), {}),
    "linear": (ch.Rotary(WIDTH, scaling=Linear(4)), {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama3": (
        ch.Rotary(WIDTH, base=500_000, scaling=Llama3(8, 8192)),
        {"rope_scaling": _LLAMA3 | {"original_max_position_embeddings": 8192}},
    ),
    "yarn": (
        ch.Rotary(WIDTH, base=1_000_000, scaling=Yarn(4, 32768)),
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    ),
    "longrope": (
        ch.Rotary(WIDTH, scaling=LongRope(tuple(_SHORT), tuple(_LONG), 4096, 32.0), length=4096),
        {"model_type": "phi3", "original_max_position_embeddings": 4096, "rope_scaling": _LONGROPE},
    ),
}


def other_base(spec: ch.Rotary) -> ch.Rotary:
    return replace(spec, spacing=replace(spec.spacing, base=20_000.0))


def other_factor(spec: ch.Rotary) -> ch.Rotary:
    assert spec.scaling is not None
    return replace(spec, scaling=replace(spec.scaling, factor=12.0))


def plain(spec: ch.Rotary) -> ch.Rotary:
    return replace(spec, scaling=None)


def other_scaling(spec: ch.Rotary) -> ch.Rotary:
    return replace(spec, scaling=Ntk(4.0) if isinstance(spec.scaling, Linear) else Linear(4.0))


def twice(spec: ch.Rotary) -> np.ndarray:
    once, before = np.array(spec.rates), np.array(plain(spec).rates)
    return once * once / before


def bfloat16(rates: Any) -> np.ndarray:
    return np.array(rates).astype(ml_dtypes.bfloat16).astype(np.float64)


def float16(rates: Any) -> np.ndarray:
    return np.array(rates).astype(np.float16).astype(np.float64)


def permuted(rates: Any) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.array(rates))


def memory() -> np.ndarray:
    """What a buffer holds that nobody filled: some zeros, some numbers of any size."""
    found = np.random.default_rng(0).standard_normal(PAIRS) * 10.0 ** np.random.default_rng(1).integers(-30, 20, PAIRS)
    return np.where(np.arange(PAIRS) % 3, found, 0.0)


Make = Callable[[ch.Rotary], Any]
# The cause, and what makes it of the right code. A cause "" is right.
CASES: dict[str, tuple[str, Make]] = {
    "right": ("", lambda spec: spec.rates),
    "another base": ("of-another-base", lambda spec: other_base(spec).rates),
    "another factor": ("of-another-factor", lambda spec: other_factor(spec).rates),
    "unscaled": ("unscaled", lambda spec: plain(spec).rates),
    "unscaled, bfloat16": ("unscaled", lambda spec: bfloat16(plain(spec).rates)),
    "unscaled, float16": ("unscaled", lambda spec: float16(plain(spec).rates)),
    "twice": ("scaled-twice", twice),
    "another scaling": ("of-another-scaling", lambda spec: other_scaling(spec).rates),
    "off by 1e-5": ("differs", lambda spec: np.array(spec.rates) * (1 + 1e-5)),
    "off by 1e-4": ("differs", lambda spec: np.array(spec.rates) * (1 + 1e-4)),
    "off by 2**-17": ("differs", lambda spec: np.array(spec.rates) * (1 + 2.0**-17)),
    "bfloat16": ("rounded", lambda spec: bfloat16(spec.rates)),
    "float16": ("rounded", lambda spec: float16(spec.rates)),
    "zeros": ("zero", lambda _: np.zeros(PAIRS)),
    "memory": ("uninitialised", lambda _: memory()),
    "permuted": ("differs", lambda spec: permuted(spec.rates)),
    "NaN": ("uninitialised", lambda _: np.full(PAIRS, np.nan)),
    # Combinations that no rule names.
    "another base, unscaled": ("of-another-base", lambda spec: other_base(plain(spec)).rates),
    "another base, another factor": ("of-another-base", lambda spec: other_factor(other_base(spec)).rates),
    "another base, twice": ("of-another-base", lambda spec: twice(other_base(spec))),
    "another base, bfloat16": ("of-another-base", lambda spec: bfloat16(other_base(spec).rates)),
    "another factor, bfloat16": (
        "of-another-factor",
        lambda spec: bfloat16(other_factor(spec).rates),
    ),
    "unscaled, permuted": ("unscaled", lambda spec: permuted(plain(spec).rates)),
}
# LongRoPE's rates do not follow from a factor, and what its lists do to other ladders is not asked.
NOT_FOR = {
    "plain": {name for name in CASES if any(word in name for word in ("scal", "factor", "twice"))},
    "longrope": {name for name in CASES if any(word in name for word in ("another factor", "another scaling"))},
}
PAIRED = [
    pytest.param(name, case, id=f"{name}-{case}")
    for name in SPECS
    for case in CASES
    if case not in NOT_FOR.get(name, ())
]


def of_engine(spec: ch.Rotary, _keys: dict[str, Any], rates: np.ndarray, _folder: Path) -> tuple[str, str]:
    found = of_rates(rates, spec)
    return found.cause or "", FAULTS[found.code].hint if found.code else ""


def config_of(spec: ch.Rotary, keys: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": WIDTH * 2, "num_hidden_layers": 2, "num_attention_heads": 2,
        "head_dim": WIDTH, "vocab_size": 100, "max_position_embeddings": 131072, "rope_theta": spec.base,
    } | keys  # fmt: skip


def of_finding(audit: Any, prefix: str) -> tuple[str, str]:
    found = [one for one in audit.findings if one.code.startswith(prefix) and one.code != "stored-frequencies"]
    assert len(found) <= 1, [one.code for one in found]
    return (found[0].code.removeprefix(prefix), found[0].hint) if found else ("", "")


def of_file(spec: ch.Rotary, keys: dict[str, Any], rates: np.ndarray, folder: Path) -> tuple[str, str]:
    tensors = {"model.layers.0.self_attn.rotary_emb.inv_freq": rates.astype(np.float32)}
    found = audited(folder, {"config.json": config_of(spec, keys), "model.safetensors": tensors})
    code, hint = of_finding(found, "stored-frequencies-")
    return code.replace("differ", "differs"), hint


def of_loaded(spec: ch.Rotary, keys: dict[str, Any], rates: np.ndarray, _folder: Path) -> tuple[str, str]:
    return of_finding(ch.audit(holding(rates, config_of(spec, keys))), "buffer-")


def of_check(spec: ch.Rotary, _keys: dict[str, Any], rates: np.ndarray, _folder: Path) -> tuple[str, str]:
    pytest.importorskip("torch")
    from clockhands.testing.modules._tensors import wrong_tensors

    found = wrong_tensors(holding(rates), spec)
    return (found[0].code.removeprefix("buffer-"), FAULTS[found[0].code].hint) if found else ("", "")


def of_state_dict(spec: ch.Rotary, _keys: dict[str, Any], rates: np.ndarray, _folder: Path) -> tuple[str, str]:
    torch = pytest.importorskip("torch")
    from clockhands.torch import without_computed

    try:
        without_computed({"inv_freq": torch.from_numpy(rates.astype(np.float32))}, spec)
    except InvalidValue as wrong:
        code = wrong.message.partition("(buffer-")[2].partition(")")[0]
        return code, wrong.hint.removesuffix(" Left out of the state dict, the spec's own are used.")
    return "", ""


def holding(rates: np.ndarray, config: dict[str, Any] | None = None) -> Any:
    """A model whose layers hold these rates."""
    torch = pytest.importorskip("torch")
    from auditing import written_modules as written

    model = written.Model(lambda: written.Halves(WIDTH), config, layers=2)
    for layer in model.layers:
        layer.rotary_emb.inv_freq = torch.from_numpy(rates.astype(np.float32))
    return model


ENTRIES = {"engine": of_engine, "file": of_file, "loaded": of_loaded, "check": of_check, "state dict": of_state_dict}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("name", "case"), PAIRED)
def test_every_entry_point_has_the_same_word_and_the_same_advice(entry: str, name: str, case: str, tmp_path: Path):
    spec, keys = SPECS[name]
    cause, make = CASES[case]
    found, hint = ENTRIES[entry](spec, keys, np.array(make(spec), np.float64), tmp_path)
    # A linear scaling was a division of positions in older code, whose stored rates are therefore the plain ones.
    if (entry, name, case) == ("file", "linear", "unscaled"):
        cause = ""
    assert found == cause
    assert hint == (FAULTS[f"buffer-{cause}"].hint if cause else "")


def test_one_hint_for_each_code():
    for code in set(CODES) & set(FAULTS):
        assert CODES[code].hint == FAULTS[code].hint
