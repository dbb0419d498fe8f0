"""Every model type of the installed Transformers: its default config is audited, and held to the modules of its class.

The classes are made without memory for their weights. What counts as a fault of the class itself is named
in `reasons.toml`.
"""

import json

import numpy as np
import pytest

from clockhands.auditing import audit
from clockhands.configs.model_types import model_type
from configs.expected import read_reasons, reasons, resolved
from configs.test_whole_specs import NEAR, cosine_sine
from written_files import written

pytestmark = pytest.mark.slow

CLOSE = 4e-6  # the modules hold their frequencies in float32


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
    assert unknown == set(reasons("unknown"))
    explained = read_reasons()["explained"]
    assert raised.keys() == explained.keys()
    for code, one in explained.items():
        assert raised[code].keys() == set(one["types"]), code


def appear(theirs, rates, close):
    """Whether the frequencies of a module are those of a code, in any order and for any number of axes."""
    ours = sorted(set(rates or ()))
    theirs = sorted(set(theirs))
    return len(ours) == len(theirs) and all(abs(a - b) <= close * b for a, b in zip(ours, theirs, strict=True))


def test_frequencies_of_every_module_appear(library, tmp_path, capsys):
    import torch

    from clockhands.models.class_encodings import ladders
    from clockhands.models.class_modules import meta_model, model_classes

    missing, held = {}, 0
    for name, config in defaults(library):
        try:
            model = meta_model(config, model_classes(config))
        except (ValueError, ImportError):  # it cannot be made here: without its package, or with its own defaults
            continue
        path = written(
            tmp_path / "config.json", json.dumps(config.to_dict() | {"model_type": name}, default=str).encode()
        )
        codes = [layer["rates"] for layer in audit(path).to_dict()["layers"] if layer["kind"] in ("rotary", "relative")]
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
                frequencies = {label: each.rates for label, each in ladders(type(module)(config=own)).items()}
            listed = getattr(own, "layer_types", None)
            for label, theirs in frequencies.items():
                if label and listed is not None and label not in listed:
                    continue
                held += 1
                if not any(appear(theirs, rates, CLOSE) for rates in codes):
                    missing.setdefault(name, []).append(
                        f"{type(module).__name__} {label} ({len(theirs)}, {theirs[-1]:.4g})"
                    )
    with capsys.disabled():
        print(f"\n{held} sets of frequencies are held to modules; {len(missing)} types have one that appears nowhere")
    elsewhere = reasons("frequencies_elsewhere")
    assert {name: told for name, told in missing.items() if name not in elsewhere} == {}
    assert missing.keys() == elsewhere.keys()


def test_towers_rotate_by_rows_and_columns_as_their_modules(library, capsys):
    import torch

    import model_types as tool
    from clockhands.models.class_modules import meta_model, model_classes

    held = set()
    for name, config in defaults(library):
        known = model_type(name)
        rows = [] if known is None else [row for row in known.rows if row.grid and row.part == "vision"]
        if not rows or config.sub_configs or name in reasons("not_by_places"):
            continue
        model = meta_model(config, model_classes(config))
        (module,) = {type(each): each for each in model.modules() if hasattr(each, "inv_freq")}.values()
        places = np.random.default_rng(1).integers(0, 50, (7, 2))
        embedding = type(module)(config=module.config)
        try:
            theirs = embedding(torch.zeros(1), torch.tensor(places))
        except (IndexError, RuntimeError):  # it takes a batch
            theirs = embedding(torch.zeros(1), torch.tensor(places[None]))
        (spec,) = {code.spec for code in resolved(tool.as_file(config)).codes if code.kind == "rotary"}
        ours = cosine_sine(spec, places)
        reversed_axes = cosine_sine(spec, places[:, ::-1])
        for each, own, wrong in zip(theirs, ours, reversed_axes, strict=True):
            numbers = each.reshape(7, -1).numpy()
            assert np.abs(numbers - own).max() <= NEAR, name
            assert np.abs(numbers - wrong).max() > 0.1, name
        held.add(name)
    with capsys.disabled():
        print(f"\n{len(held)} towers rotate as their modules")
    assert len(held) >= 25
