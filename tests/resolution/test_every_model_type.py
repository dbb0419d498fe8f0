"""Every model type of the installed Transformers: its default config is audited, and held to the modules of its class.

The classes are made without memory for their weights. What counts as a fault of the class itself is named here.
"""

import json
import sys
from pathlib import Path

import pytest

from clockhands.auditing import audit
from clockhands.sources.model_types import model_type
from written_files import written

pytestmark = pytest.mark.slow

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

# Types without a row, and why.
UNKNOWN: dict[str, str] = {}

# Warnings and errors on a default config, by code: why they are right, and the types.
EXPLAINED: dict[str, tuple[str, frozenset[str]]] = {}

# Frequencies of a module that the audit does not have, and why.
ELSEWHERE: dict[str, str] = {}


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    return transformers


def defaults(transformers):
    for name in sorted(transformers.CONFIG_MAPPING):
        try:
            config = transformers.CONFIG_MAPPING[name]()
        except Exception:  # noqa: BLE001 - a class that refuses its own defaults has no default config
            continue
        yield name, config


def test_default_configs_are_known_and_sound(library, tmp_path, capsys):
    unknown, raised, number = set(), {}, 0
    for name, config in defaults(library):
        number += 1
        path = written(
            tmp_path / "config.json", json.dumps(config.to_dict() | {"model_type": name}, default=str).encode()
        )
        told = audit(path).to_dict()
        if model_type(name) is None:
            unknown.add(name)
        for finding in told["findings"]:
            if finding["severity"] != "note":
                raised.setdefault(finding["code"], {})[name] = finding["message"]
    with capsys.disabled():
        print(f"\n{number - len(unknown)} of {number} model types are known")
    assert unknown == set(UNKNOWN)
    assert raised.keys() == EXPLAINED.keys()
    for code, (_, names) in EXPLAINED.items():
        assert raised[code].keys() == names, code


def test_frequencies_of_every_module_appear(library, tmp_path, capsys):
    import model_types as tool
    import torch

    missing, held = {}, 0
    for name, config in defaults(library):
        try:
            model = tool.made(config, tool.classes_of(type(config)))
        except (ValueError, ImportError):  # it cannot be made here: without its package, or with its own defaults
            continue
        path = written(
            tmp_path / "config.json", json.dumps(config.to_dict() | {"model_type": name}, default=str).encode()
        )
        codes = [layer["rates"] for layer in audit(path).to_dict()["layers"] if layer["kind"] == "rotary"]
        done = set()
        for module in model.modules():
            own = getattr(module, "config", None)
            if (
                type(module) in done
                or own is None
                or not any("inv_freq" in key for key, _ in module.named_buffers(recurse=False))
            ):
                continue
            done.add(type(module))
            with torch.device("cpu"):
                frequencies = tool.frequencies(own, module)
            listed = getattr(own, "layer_types", None)
            for label, theirs in frequencies.items():
                if label and listed is not None and label not in listed:
                    continue
                held += 1
                if not any(tool.same(rates, theirs) for rates in codes):
                    missing.setdefault(name, []).append(
                        f"{type(module).__name__} {label} ({len(theirs)}, {theirs[-1]:.4g})"
                    )
    with capsys.disabled():
        print(f"\n{held} sets of frequencies are held to modules; {len(missing)} types have one that appears nowhere")
    assert {name: told for name, told in missing.items() if name not in ELSEWHERE} == {}
