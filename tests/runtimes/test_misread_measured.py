"""Statements about runtimes, against what the runtimes' own code computed from the same configs."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clockhands.runtimes import Statement, statements
from runtimes.reading_files import read

CASES = json.loads(Path(__file__).with_name("misread.json").read_text(encoding="utf-8"))["cases"]
# Rates are written with 6 digits or more, and made in float32 by a few operations, each rounded once.
CLOSE = 5e-6 + 3e-6

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 4096}


def statements_of(runtime: str, version: str, model_type: str) -> list[Statement]:
    """What one release of a runtime is said to make of files of a type."""
    held = (each for each in statements() if each.runtime == runtime and each.is_about(model_type))
    return [each for each in held if each.covers(version)]


def rotary(found):
    return [code for code in found.codes if code.kind == "rotary"]


def name(case):
    return f"{case['runtime']} {case['version']} {case['config']['model_type']} {case['pattern']}"


def test_the_pattern_of_a_statement_is_what_the_runtime_computed(tmp_path, cases):
    for case in CASES:
        with cases(name(case)):
            hold(tmp_path, case)


def hold(tmp_path, case):
    config = case["config"]
    stated = statements_of(case["runtime"], case["version"], config["model_type"])
    assert [each for each in stated if each.pattern == case["pattern"] and each.fits(config)]
    found = read(tmp_path, config, case["pattern"])
    assert found.verdict == "differs"
    for code in rotary(found):
        if "window" in case:
            assert case["window"] == case["config"]["sliding_window"] + 1
            assert code.window in (case["window"], None)
        elif "rates" in case:
            assert code.rates == pytest.approx(case["rates"], rel=CLOSE)
            assert code.attention_factor == pytest.approx(case["attention_factor"], rel=CLOSE)
        else:
            assert (code.base, (code.scaling or {}).get("type")) == (case["base"], case["scaling"])


def test_a_wrong_number_of_a_runtime_would_be_noticed(tmp_path):
    case = next(case for case in CASES if "rates" in case)
    (code,) = rotary(read(tmp_path, case["config"], case["pattern"]))
    assert code.rates != pytest.approx([rate * (1 + 2e-5) for rate in case["rates"]], rel=CLOSE)


def pinned() -> dict[str, str]:
    """What `runtimes.txt` installs in each folder."""
    lines = Path(__file__).with_name("runtimes.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines if not line.startswith("#"))


RECOMPUTED = {(name.rpartition("-")[0], name.rpartition("-")[2]) for name in pinned() if name != "."}
RECOMPUTED |= {("transformers", "4.57.6"), ("mlx-lm", "0.32.2")}
"""The runtimes and releases that the slow tests run again."""


def test_a_statement_says_that_it_was_run_if_its_cases_are_run_again():
    run = set()
    for case in CASES:
        if (case["runtime"], case["version"]) in RECOMPUTED:
            stated = statements_of(case["runtime"], case["version"], case["config"]["model_type"])
            run |= {each for each in stated if each.pattern == case["pattern"] and each.fits(case["config"])}
    assert {each for each in statements() if each.basis == "run"} == run


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "version"), sorted(RECOMPUTED))
def test_the_runtime_itself_computes_the_numbers_again(runtime, version):
    """The runtime is run, in a process that has this release: every rotary module, or the settings that it makes."""
    runtimes = Path(os.environ.get("RUNTIMES", Path(sys.prefix) / "runtimes"))
    folder = runtimes / (f"{runtime}-{version}" if f"{runtime}-{version}" in pinned() else ".")
    if not folder.is_dir():
        pytest.skip("make .venv/stamps/runtimes installs the runtimes beside the others")
    assert f"{runtime}-{version}" in pinned() or f"{runtime}=={version}" in pinned()["."].split()
    cases = [case for case in CASES if (case["runtime"], case["version"]) == (runtime, version)]
    assert cases
    inside = (*folder.glob("vendor/llama.cpp"), *folder.glob("vendor/llama.cpp/gguf-py"))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_runtimes.py"), runtime],
        input=json.dumps(cases),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (folder, *inside, runtimes)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for case, modules in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert modules, name(case)
        for module in modules:
            for key in ("base", "scaling", "window"):
                assert key not in case or module[key] == case[key], name(case)
            if "rates" in case:
                # An angle of float32 near 1 is rounded to 6e-8; mlx's is taken back from its sine and cosine.
                assert module["rates"] == pytest.approx(case["rates"], rel=2e-5, abs=4e-7), name(case)
                assert module["attention_factor"] == pytest.approx(case["attention_factor"], rel=2e-5), name(case)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["gemma2", "glm4", "llama", "mistral", "olmo2", "qwen2", "qwen3"])
def test_the_release_that_mended_it_computes_what_the_file_says(tmp_path, model_type):
    transformers: Any = importlib.import_module("transformers")
    cases = [case for case in CASES if case["runtime"] == "transformers" and case["config"]["model_type"] == model_type]
    assert cases
    for case in cases:
        config = case["config"]
        stated = statements_of("transformers", transformers.__version__, model_type)
        assert not [each for each in stated if each.pattern == case["pattern"] and each.fits(config)]
        rates = made(transformers, config, f"transformers.models.{model_type}.modeling_{model_type}").inv_freq.tolist()
        codes = rotary(read(tmp_path, config, "transformers-5"))
        assert codes
        assert all(code.rates == pytest.approx(rates, rel=CLOSE) for code in codes)


@pytest.mark.slow
def test_olmo3_has_the_scaling_in_its_full_attention_layers_alone_in_the_release_that_mended_it():
    transformers: Any = importlib.import_module("transformers")
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512}
    config = {"model_type": "olmo3", **SMALL, "num_hidden_layers": 4, "rope_theta": 5e5, "rope_scaling": scaling}
    class_of_it = made(transformers, config, "transformers.models.olmo3.modeling_olmo3")
    assert class_of_it.rope_type == {"full_attention": "yarn", "sliding_attention": "default"}
    assert not [
        each
        for each in statements_of("transformers", transformers.__version__, "olmo3")
        if each.pattern == "scaling-everywhere"
    ]
    assert statements_of("transformers", "5.12.1", "olmo3")


def made(transformers, config, module):
    """The module that makes the rates of a config."""
    held = importlib.import_module(module)
    (name,) = (name for name in vars(held) if name.endswith("RotaryEmbedding"))
    return getattr(held, name)(config=transformers.AutoConfig.for_model(**config))
