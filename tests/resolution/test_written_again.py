"""Published configs, loaded and written again by the installed Transformers, are read as they were.

Transformers 5 moves keys, adds defaults and drops what it does not know. What it changes of the model is named here.
"""

import json
import warnings

import pytest

from resolution.expected import resolved

ADDED = "the file leaves a tower out, and Transformers writes the default of its class"
UNLISTED = "the fields that are kept here leave the list of its layers out, and Transformers writes that of its class"
FURTHER = "the fields that are kept here leave out the layers for multi-token prediction, and Transformers writes 1"
# Config to what Transformers changes of the model.
CHANGED = {
    "deepseek-v3": FURTHER,
    "detr-resnet-50": ADDED,
    "gemma-3-1b-executorch-mediatek": ADDED,
    "llama-4-maverick-17b-128e": ADDED,
    "llama-4-scout-17b-16e": ADDED,
    "llava-v1.5-7b-original": ADDED,
    "kimi-k2.5": FURTHER,
    "glm-4.1v-9b": "the class drops the share of the head that is rotated, which stands beside text_config",
    "nemotron-3-nano-30b-a3b": UNLISTED,
    "nemotron-3-super-120b-a12b": UNLISTED,
    "mimo-v2-flash": "the class adds the query itself to the window of the file",
}


def told(config):
    """What a config declares of position, in numbers that survive being written."""
    found = resolved(config)
    return found.context, sorted(
        (
            code.part,
            str(code.kind),
            code.layers or "",
            str(code.layout),
            code.rotated or 0,
            code.rows or 0,
            code.offset or 0,
            code.window or 0,
            code.chunk or 0,
            tuple(float(f"{rate:.5g}") for rate in code.rates or ()),
            round(code.attention_factor or 0, 4),
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
    assert {name: values for name, values in parted.items() if name not in CHANGED} == {}
    assert parted.keys() == CHANGED.keys()
    assert alike >= 150
