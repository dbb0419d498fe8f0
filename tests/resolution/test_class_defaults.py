"""Each row of the table against the class that it describes: defaults, ladder, pairing, kinds of layers."""

import pytest

from clockhands.sources.model_types import model_type, model_types
from resolution.expected import layer_numbers, resolved
from resolution.library import gaps, kinds, pairing, read_config

# Type to why its class cannot be asked.
NOT_ASKED = {
    "gptj": "its attention has no rotary module, but a table of sines; the conversion of small models holds it",
    "codegen": "as gptj",
}


def of_the_library():
    """The types of the table that the library has too, with a rotary text part."""
    import transformers

    for name in model_types():
        known = model_type(name)
        assert known is not None
        if not known.library.startswith("transformers") or name not in transformers.CONFIG_MAPPING:
            continue
        if any(row.kind == "rotary" and row.part == "text" and not row.when for row in known.rows):
            yield name


def default_gaps(name):
    config, found = read_config({"model_type": name}), resolved({"model_type": name})
    config = getattr(config, "text_config", config)
    listed = kinds(config)
    if listed is None or set(listed) != {"none"}:
        yield from gaps(config, found)
    rotary = [code for code in found.codes if code.kind == "rotary" and code.part == "text"]
    layouts = {code.layout for code in rotary}
    if rotary and layouts != {pairing(config)}:
        yield f"layout: {layouts}, the code pairs {pairing(config)}"
    number = sum(len(list(layer_numbers(code))) for code in found.codes if code.part == "text")
    if number != config.num_hidden_layers:
        yield f"layers: {number}, the class has {config.num_hidden_layers}"
    context = getattr(config, "max_position_embeddings", None)
    if found.context != context:
        yield f"context: {found.context}, the class has {context}"
    windows = {layer for code in rotary if code.window for layer in layer_numbers(code)}
    if (
        listed is not None
        and "sliding" in listed
        and {i for i, kind in enumerate(listed) if kind == "sliding"} != windows
    ):
        yield f"windows: {sorted(windows)}, the class has {listed}"


def test_the_defaults_are_those_of_the_classes(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    asked, parted = 0, {}
    for name in of_the_library():
        if name in NOT_ASKED:
            continue
        asked += 1
        found = list(default_gaps(name))
        if found:
            parted[name] = found
    with capsys.disabled():
        print(f"\n{asked} types of the table with a class in the library")
    assert parted == {}
    assert asked >= 110
