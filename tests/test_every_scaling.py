"""Every scaling is known wherever scalings are: configs, readers, recognition, faults, diagnosis, lab and explorer.

A new class in `clockhands.scaling` fails here until it has a row, and each place that does not know it needs a reason.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import clockhands as ch
from auditing.model_files import audited
from clockhands.encodings import scaling
from clockhands.encodings.ladders import Explicit
from clockhands.lab.sections import SCALINGS
from clockhands.recognition import fit_ladder
from clockhands.recognition.diagnosis import of_rates
from clockhands.recognition.faults import FAULTS
from clockhands.runtimes import PATTERNS, READERS
from clockhands.testing import check_rotary
from oracles.rows import every
from runtimes.reading_files import read

WIDTH, ORIGINAL, PAIRS = 64, 4096, 32
_SHORT, _LONG = tuple(np.linspace(1.0, 1.3, PAIRS)), tuple(np.linspace(1.0, 40.0, PAIRS))


@dataclass(frozen=True)
class Row:
    """A scaling, how a config spells it, and what does not know it, with the reason.

    Attributes:
        spec: A code with it.
        keys: The keys of a config that declare it.
        readers: What readers make of that config, where they do not compute the same ladder: their verdict.
        mistakes: The faults that are its own, beside that it is left out or is another scaling.
        not_fitted: Why it cannot be told from its rates.
        not_unscaled: Why rates without it are not told as such.
    """

    spec: ch.Rotary
    keys: dict[str, Any]
    readers: dict[str, str] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()
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
        readers=dict.fromkeys(("vllm-0.11", "llama.cpp", "mlx-lm"), "unknown"),
        not_fitted="it is a ladder of another base",
    ),
    "MixedNtk": Row(
        rotary(scaling.MixedNtk(4.0)),
        {"model_type": "new", "auto_map": {"AutoConfig": "configuration.NewConfig"}, **block("ntk", factor=4.0)},
        readers={
            **dict.fromkeys(("transformers-4", "transformers-5", "vllm-0.11", "vllm", "llama.cpp"), "unknown"),
            "mlx-lm": "refuses",
        },
        not_fitted="it is a ladder of another base, slowed",
    ),
    "Dynamic": Row(
        rotary(scaling.Dynamic(2.0, ORIGINAL), 2 * ORIGINAL),
        {"max_position_embeddings": ORIGINAL, **block("dynamic", factor=2.0)},
        readers={"vllm-0.11": "differs", "no-scaling": "same"},
        not_fitted="at one length it is a ladder of another base",
        not_unscaled="up to the original length, which is what a module holds at first, nothing is scaled",
    ),
    "Yarn": Row(
        rotary(scaling.Yarn(4.0, ORIGINAL)),
        block("yarn", factor=4.0, **_FROM),
        mistakes=("ramp-reversed", "factor-in-power", "another-scaling"),
    ),
    "LongRope": Row(
        rotary(scaling.LongRope(_SHORT, _LONG, ORIGINAL, 32.0), 32 * ORIGINAL),
        {
            "model_type": "phi3", **_FROM, "max_position_embeddings": 32 * ORIGINAL,
            **block("longrope", short_factor=list(_SHORT), long_factor=list(_LONG)),
        },
        readers=dict.fromkeys(("transformers-4", "vllm-0.11", "mlx-lm"), "refuses"),
        mistakes=("lists-swapped",),
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
        readers={
            "transformers-4": "refuses", "vllm-0.11": "unknown", "llama.cpp": "unknown", "mlx-lm": "unknown",
        },
    ),
}  # fmt: skip
EVERY = sorted(kind.__name__ for kind in scaling.SCALINGS)
CONFIG = {
    "model_type": "llama", "hidden_size": 4 * WIDTH, "num_attention_heads": 4, "num_hidden_layers": 2,
    "head_dim": WIDTH, "max_position_embeddings": 4 * ORIGINAL, "vocab_size": 100, "rope_theta": 10000.0,
}  # fmt: skip


def test_every_scaling_has_a_row():
    assert sorted(ROWS) == EVERY
    assert {type(row.spec.scaling).__name__: name for name, row in ROWS.items()} == {name: name for name in EVERY}


@every("name", EVERY)
def test_a_config_declares_it(name: str, tmp_path: Path):
    (code,) = audited(tmp_path, {"config.json": CONFIG | ROWS[name].keys}).layers
    assert isinstance(code.spec, ch.Rotary)
    assert type(code.spec.scaling).__name__ == name, code


@every("name", EVERY)
def test_every_reader_computes_it_or_says_why_not(name: str, tmp_path: Path, cases: Any):
    config, folder = CONFIG | ROWS[name].keys, tmp_path / name
    folder.mkdir()
    (known,) = audited(folder, {"config.json": config}).layers
    expected = {"no-scaling": "differs"} | ROWS[name].readers
    for reader in READERS:
        with cases(name, reader):
            found, ours = read(folder, config, reader), known
            if reader in expected or reader not in PATTERNS:
                assert found.verdict == expected.get(reader, "same")
            if found.verdict in ("refuses", "unknown"):
                assert found.because
                continue
            (theirs,) = found.codes
            if found.parted:  # which may be compared at another length
                ours, theirs = found.parted[0].ours, found.parted[0].theirs
                assert ours is not None
                assert theirs is not None
            assert ours.rates
            assert theirs.rates
            same = len(ours.rates) == len(theirs.rates) and np.allclose(ours.rates, theirs.rates, rtol=1e-6, atol=0)
            same = same and (ours.attention_factor, ours.layout) == (theirs.attention_factor, theirs.layout)
            assert same == (found.verdict == "same")


@every("name", EVERY)
def test_it_is_recognised_from_its_rates_and_rates_without_it_are_told(name: str):
    row = ROWS[name]
    fit = fit_ladder(row.spec.rates, 1e-12, attention_factor=row.spec.attention_factor)[0]
    if row.not_fitted:
        assert type(fit.scaling).__name__ != name, "it is fitted: take the reason out of its row"
    else:
        assert fit.scaling == row.spec.scaling
    assert of_rates(ch.Rotary(WIDTH).rates, row.spec).code == (None if row.not_unscaled else "buffer-unscaled")


def checked(wrong: ch.Rotary, spec: ch.Rotary) -> Any:
    return check_rotary(lambda x, positions: ch.rotate(x, wrong, positions), spec, length=64, raises=False)


@every("name", EVERY)
def test_a_function_without_it_is_told(name: str):
    spec = ROWS[name].spec
    assert checked(spec, spec).sound
    assert "scaling-dropped" in checked(replace(spec, scaling=None, length=None), spec).explanations[0].codes


@every("name", EVERY)
def test_functions_that_make_its_own_mistakes_are_told(name: str):
    spec: Any = ROWS[name].spec
    mistakes = list(spec.scaling.mistakes(spec.length))
    assert {mistake.fault for mistake in mistakes} == set(ROWS[name].mistakes) <= set(FAULTS)
    plain = np.array(replace(spec, scaling=None, length=None).rates)
    for mistake in mistakes:
        wrong = replace(spec, scaling=mistake.scaling)
        if mistake.rates is not None:
            rates = mistake.rates(plain, np.array(spec.rates))
            wrong = replace(spec, spacing=Explicit(tuple(rates)), scaling=None, length=None)
        assert mistake.fault in checked(wrong, spec).codes


@every("name", EVERY)
def test_the_lab_and_the_explorer_know_it(name: str):
    assert name in SCALINGS
    scripts = Path(ch.__file__).parent / "show" / "explorer" / "js" / "scalings.js"
    (changes,) = re.findall(r"^const CHANGES = \{(.*)\};$", scripts.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"{name}:" in changes.split()
