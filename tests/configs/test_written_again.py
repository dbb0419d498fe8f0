"""Published configs, loaded and written again by the installed Transformers, are read as they were.

Transformers 5 moves keys, adds defaults and drops what it does not know. What it changes of the model is named in
`reasons.toml`.
"""

import json
import warnings

import pytest

from configs.expected import reasons, resolved


def told(config):
    """What a config declares of position, in numbers that survive being written."""
    found = resolved(config)
    return found.context, sorted(
        (
            *(code.part, str(code.kind), code.layers or "", str(code.layout)),
            *(value or 0 for value in (code.rotated, code.rows, code.offset, code.window, code.chunk)),
            *(tuple(float(f"{rate:.5g}") for rate in code.rates or ()), round(code.attention_factor or 0, 4)),
        )
        for code in found.codes
    )


@pytest.mark.slow
def test_configs_written_again_are_read_alike(published, capsys):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    alike, parted = 0, {}
    for path in sorted((published / "configs").glob("*.json")):
        config = json.loads(path.read_text(encoding="utf-8")).get("config")
        if not isinstance(config, dict) or config.get("model_type") not in transformers.CONFIG_MAPPING:
            continue
        values = {key: value for key, value in json.loads(json.dumps(config)).items() if key != "model_type"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(values)
            except Exception:  # noqa: BLE001 - what the library refuses to load cannot be written by it
                continue
        again = json.loads(json.dumps(made.to_dict(), default=str))
        if told(config) == told(again):
            alike += 1
        else:
            parted[path.stem] = told(config), told(again)
    with capsys.disabled():
        print(f"\n{alike} published configs are read alike when Transformers has written them again")
    changed = reasons("written_again")
    assert {name: values for name, values in parted.items() if name not in changed} == {}
    assert parted.keys() == changed.keys()
    assert alike >= 150
