"""Every scaling is known wherever scalings are: configs, recognition, diagnosis, the lab, the explorer.

A new class in `clockhands.scaling` fails here until it has a row, and each place that does not know it needs a reason.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from auditing.model_files import audited
from clockhands import scaling
from clockhands.diagnosis import of_rates
from clockhands.lab.sections import SCALINGS
from clockhands.recognition._fitting import fit_ladder

WIDTH, ORIGINAL, PAIRS = 64, 4096, 32
_SHORT, _LONG = tuple(np.linspace(1.0, 1.3, PAIRS)), tuple(np.linspace(1.0, 40.0, PAIRS))


@dataclass(frozen=True)
class Row:
    """A scaling, how a config spells it, and what does not know it, with the reason.

    Attributes:
        spec: A code with it.
        keys: The keys of a config that declare it.
        not_fitted: Why it cannot be told from its rates.
        not_unscaled: Why rates without it are not told as such.
    """

    spec: ch.Rotary
    keys: dict[str, Any]
    not_fitted: str = ""
    not_unscaled: str = ""


def rotary(one: Any, length: int | None = None) -> ch.Rotary:
    return ch.Rotary(WIDTH, scaling=one, length=length)


def block(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, **more}}


_FROM = {"original_max_position_embeddings": ORIGINAL}
ROWS = {
    "Linear": Row(rotary(scaling.Linear(4.0)), block("linear", factor=4.0)),
    "Ntk": Row(
        rotary(scaling.Ntk(4.0)),
        {"model_type": "hunyuan_v1_dense", **block("dynamic", alpha=4.0, factor=1.0)},
        not_fitted="it is a ladder of another base",
    ),
    "Dynamic": Row(
        rotary(scaling.Dynamic(2.0, ORIGINAL), 2 * ORIGINAL),
        {"max_position_embeddings": ORIGINAL, **block("dynamic", factor=2.0)},
        not_fitted="at one length it is a ladder of another base",
        not_unscaled="up to the original length, which is what a module holds at first, nothing is scaled",
    ),
    "Yarn": Row(rotary(scaling.Yarn(4.0, ORIGINAL)), block("yarn", factor=4.0, **_FROM)),
    "LongRope": Row(
        rotary(scaling.LongRope(_SHORT, _LONG, ORIGINAL, 32.0), 32 * ORIGINAL),
        {
            "model_type": "phi3", **_FROM, "max_position_embeddings": 32 * ORIGINAL,
            **block("longrope", short_factor=list(_SHORT), long_factor=list(_LONG)),
        },
        not_fitted="its divisors are any numbers, and two lists are not seen at one length",
    ),
    "Llama3": Row(
        rotary(scaling.Llama3(8.0, ORIGINAL)),
        block("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, **_FROM),
    ),
    "Proportional": Row(
        rotary(scaling.Proportional(0.25)),
        {"model_type": "gemma4_text", "rope_parameters": {"full_attention": {
            "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0}},
            "layer_types": ["full_attention", "full_attention"], "global_head_dim": WIDTH},
    ),
}  # fmt: skip
EVERY = sorted(kind.__name__ for kind in scaling.SCALINGS)


def test_every_scaling_has_a_row():
    assert sorted(ROWS) == EVERY
    assert {type(row.spec.scaling).__name__: name for name, row in ROWS.items()} == {name: name for name in EVERY}


@pytest.mark.parametrize("name", EVERY)
def test_a_config_declares_it(name: str, tmp_path: Path):
    config = {
        "model_type": "llama", "hidden_size": 4 * WIDTH, "num_attention_heads": 4, "num_hidden_layers": 2,
        "head_dim": WIDTH, "max_position_embeddings": 4 * ORIGINAL, "vocab_size": 100, "rope_theta": 10000.0,
    } | ROWS[name].keys  # fmt: skip
    (code,) = audited(tmp_path, {"config.json": config}).layers
    assert isinstance(code.spec, ch.Rotary)
    assert type(code.spec.scaling).__name__ == name, code


@pytest.mark.parametrize("name", EVERY)
def test_it_is_recognised_from_its_rates(name: str):
    spec = ROWS[name].spec
    fit = fit_ladder(spec.rates, 1e-12, attention_factor=spec.attention_factor)[0]
    if ROWS[name].not_fitted:
        assert type(fit.scaling).__name__ != name, "it is fitted: take the reason out of its row"
        return
    assert fit.scaling == spec.scaling


@pytest.mark.parametrize("name", EVERY)
def test_rates_without_it_are_told(name: str):
    spec = ROWS[name].spec
    plain = ch.Rotary(WIDTH).rates
    found = of_rates(plain, spec).code
    assert found == (None if ROWS[name].not_unscaled else "buffer-unscaled")


@pytest.mark.parametrize("name", EVERY)
def test_the_lab_and_the_explorer_know_it(name: str):
    assert name in SCALINGS
    scripts = Path(ch.__file__).parent / "show" / "explorer" / "js" / "scalings.js"
    (changes,) = re.findall(r"^const CHANGES = \{(.*)\};$", scripts.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"{name}:" in changes.split()
