"""Which layer has which code: values, JSON, words, refusals."""

import pytest

import clockhands as ch
from clockhands.configs.resolve import resolve
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.specs import with_fields
from clockhands.errors import InvalidValue
from oracles import sentences
from oracles.rows import every


@every("name", ["gemma3", "llama4-scout", "modernbert"])
def test_presets_of_models_are_made_of_presets_of_their_layers(name):
    first, second = ch.preset(name).codes
    parts = {
        "gemma3": ("gemma3-local", "gemma3-global"),
        "llama4-scout": ("llama4", None),
        "modernbert": ("modernbert-global", "modernbert-local"),
    }[name]
    assert (first, second) == tuple(None if part is None else ch.preset(part) for part in parts)


@every("name, config", [("gemma3", "gemma-3-4b"), ("llama4-scout", "llama-4-scout-17b-16e")])
def test_presets_of_models_are_the_published_configs(name, config, published, tmp_path):
    import json

    from clockhands.configs.targets import open_target

    path = tmp_path / "config.json"
    given = json.loads((published / "configs" / f"{config}.json").read_text("utf-8"))["config"]
    path.write_text(json.dumps(given), encoding="utf-8")
    checked = 0
    for code in resolve(open_target(str(path))).codes:
        for run in code.layers.split(",") if code.part == "text" else ():
            first, _, last = run.partition("-")
            for layer in range(int(first), int(last or first) + 1):
                assert ch.preset(name).layer(layer) == code.spec
                checked += 1
    assert checked == given["text_config"]["num_hidden_layers"]


def test_what_cannot_be_mixed_is_refused_in_words(cases):
    sentences.hold("mixtures", cases)


def test_fields_of_all_codes_can_be_changed_where_they_agree():
    narrower = with_fields(ch.preset("gemma3"), head_width=128)
    assert [code.head_width for code in narrower.codes] == [128, 128]
    assert [code.base for code in narrower.codes] == [10_000.0, 1_000_000.0]
    assert narrower == ch.preset("gemma3", head_width=128)
    some = LayerMixture((ch.Rotary(8), None), (0, 0, 1))
    assert with_fields(some, base=50.0, pattern=(0, 1)) == LayerMixture((ch.Rotary(8, base=50.0), None), (0, 1))
    assert with_fields(some, codes=(ch.Rotary(16), None), layout="interleaved").codes[0] == ch.Rotary(16, "interleaved")
    with pytest.raises(InvalidValue) as caught:
        with_fields(ch.preset("gemma3"), base=50.0)
    assert str(caught.value) == (
        "The codes of these layers have different values of base: 10000, 1e+06.\nhint: Give all of them, codes=(…)."
    )
    with pytest.raises(InvalidValue, match="Rotary has no field 'widht'"):
        with_fields(ch.preset("gemma3"), widht=8)
