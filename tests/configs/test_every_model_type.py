"""Every model type of the installed Transformers: its default config is audited, and held to the modules of its class.

The classes are made without memory for their weights. What counts as a fault of the class itself is named
in `reasons.toml`.
"""

import json

import numpy as np
import pytest

from clockhands.auditing import audit
from clockhands.auditing.class_comparison import compared_reading
from clockhands.configs.model_types import model_type
from clockhands.configs.resolve import resolve
from clockhands.errors import Unreadable
from configs.expected import opened, read_reasons, reasons, resolved
from configs.test_whole_specs import NEAR, cosine_sine
from written_files import written

pytestmark = pytest.mark.slow


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


def differences(values):
    """What the class of a config computes otherwise, and rotations that the audit lacks; None without a class."""
    from clockhands.models.built_classes import reading

    try:
        read = reading(values)
    except Unreadable:
        return None
    target = opened(values)
    found = compared_reading(read, target, resolve(target))
    differ = [f"{each.what}: {each.computed}; {each.declared}" for each in found.differences]
    return differ, [each for each in found.more if each.startswith("rotation")]


def default_config(transformers, name):
    """The default config of a type as its file has it; None if its class has none."""
    try:
        return json.loads(json.dumps(transformers.CONFIG_MAPPING[name]().to_dict() | {"model_type": name}, default=str))
    except Exception:  # noqa: BLE001 - a class that refuses its own defaults has no default config
        return None


PARTS = 16


@pytest.mark.parametrize("part", range(PARTS))
def test_classes_compute_what_the_audit_says_of_their_configs(library, cases, part):
    """The default config of every type, and three with other bases, a scaling, or other sizes and kinds of layers."""
    from varied_configs import changed

    names, read = sorted(library.CONFIG_MAPPING)[part::PARTS], 0
    for name in names:
        config, differ, elsewhere = default_config(library, name), [], []
        for change, values in () if config is None else changed(config):
            found = differences(values)
            if found is not None:
                read += 1
                differ += [f"{change}: {each}" for each in found[0]]
                elsewhere += [f"{change}: {each}" for each in found[1]]
        with cases(name, *differ, *elsewhere):
            assert bool(differ) == (name in reasons("class_differs"))
            assert bool(elsewhere) == (name in reasons("frequencies_elsewhere"))
    assert read > len(names)


@pytest.mark.parametrize("part", range(4))
def test_classes_compute_what_the_audit_says_of_published_configs(library, published, cases, part):
    read = 0
    for path in sorted((published / "configs").glob("*.json"))[part::4]:
        values = json.loads(path.read_text(encoding="utf-8"))["config"]
        if values.get("model_type") in library.CONFIG_MAPPING:
            with cases(path.stem):
                found = differences(values)
                read += found is not None
                assert found in (None, ([], []))
    assert read > 30


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
