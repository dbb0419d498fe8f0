"""Every sentence that says that code does not use a key names the release, the file and the line, and these say so."""

import json
import random
import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from clockhands import audit
from clockhands.configs.model_types import model_type, table
from clockhands.configs.released_code import class_in

PLACE = re.compile(r"(transformers \d+\.\d+\.\d+), (\S+\.py):(\d+)")
BLOCK = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "mscale": 0.7}
# Values of keys of each kind; any other key is a number.
VALUES = {
    "rope_scaling": BLOCK, "rope_parameters": BLOCK | {"full_attention": {"rope_type": "default"}},
    "layer_types": ["full_attention"], "no_rope_layers": [1], "alibi": True, "rotary": True, "relative_attention": True,
    "use_dynamic_ntk": True, "position_embedding_type": "rotary", "partial_rotary_factor": 0.5, "rotary_pct": 0.5,
    "rotary_percentage": 0.5, "dual_chunk_attention_config": {"chunk_size": 64}, "per_layer_config": [{}],
}  # fmt: skip


def made_configs(number):
    """A config of a type with keys of other types, and of a part of images and text with keys beside its text."""
    keys, types = table()["position_keys"], sorted(table()["types"])
    for _ in range(number):
        name = random.choice(types)
        known = model_type(name)
        strange = {key: VALUES.get(key, 4321) for key in random.sample(keys, 4)}
        config = {"model_type": name, **strange}
        if known is not None and "text" in known.sections and random.random() < 0.5:
            config["text_config"] = {"model_type": known.sections["text"], "hidden_size": 64}
        yield config


def sentences(tmp_path):
    """Each sentence of the kind, with its key and the model type."""
    for config in made_configs(250):
        (tmp_path / "config.json").write_text(json.dumps(config))
        yield from of_file(tmp_path / "config.json")


def of_file(path):
    found = audit(path)
    for each in found.findings:
        if each.code == "ignored-key":
            keys = [place.rpartition(":")[2] for place in each.evidence if ":" in place]
            yield found.model_type, keys, each.message


def test_fifty_sentences_name_release_file_and_line_that_say_so(tmp_path, draw, cases):
    transformers = pytest.importorskip("transformers")
    root = Path(transformers.__file__).parents[1]
    found = list(sentences(tmp_path))
    assert len(found) >= 50, "too few sentences to draw from"
    for name, keys, message in draw(found, 50):
        with cases(name, *keys, message):
            held = PLACE.search(message)
            assert held is not None, "no release, file and line"
            release, file, line = held.groups()
            assert release == f"transformers {transformers.__version__}" == table()["library"]
            said = (root / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
            of_class = re.search(r"(\w+) in transformers", message)
            if of_class is None:
                assert any(key.rpartition(".")[2].removesuffix("_all_dim") in said for key in keys)
            else:
                assert f"class {of_class[1]}" in said


def test_of_code_that_was_not_read_nothing_is_said(tmp_path):
    """A type whose code is published with its weights, and a key that the code common to all types takes."""
    for name, key in [("telechat", "rotary_pct"), ("internlm2", "rotary_pct"), ("llama", "partial_rotary_factor")]:
        known = model_type(name)
        assert known is not None
        (tmp_path / "config.json").write_text(json.dumps({"model_type": name, key: 0.5}))
        found = audit(tmp_path / "config.json")
        assert "ignored-key" not in {each.code for each in found.findings}, name
        assert f"config.json:{key}" in found.unexplained, (
            "the report names the key as one that clockhands does not read"
        )
        assert "look correct" not in found.verdict


def test_a_window_that_the_cache_takes_from_any_config_is_not_said_to_be_without_use():
    """GPT-2 has no window, but the cache of Transformers makes one of the key."""
    gpt2 = class_in("transformers 5.23.0", "gpt2")
    assert gpt2 is not None
    assert not gpt2.lacks("sliding_window")


# Where a sentence says so, it has a place for the line, or is about any runtime that might do so.
SAYS_UNREAD = re.compile(r"\b(does not|do not) (read|use)\b|\bignores?\b|\bdrops?\b")
LINES = ("{because}", "{its_class}", "{its_line}", "{lacking_code:and}")
ANY_RUNTIME = re.compile(r"\b(a runtime|runtimes) that\b|\bthe audit cannot read\b|\ba lenient loader\b", re.IGNORECASE)


def test_every_sentence_of_a_finding_that_says_so_has_a_place_for_the_line(cases):
    folder = resources.files("clockhands.auditing.findings")
    for file in (each for each in folder.iterdir() if each.name.endswith(".toml")):
        for code, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
            for held in (row, *row.get("variants", ())):
                for name in ("title", "sentence", "unmended"):
                    text = held.get(name, "")
                    if SAYS_UNREAD.search(text) and not (name == "title" and code == "ignored-key"):
                        with cases(code, text):
                            assert any(each in text for each in LINES) or ANY_RUNTIME.search(text)


LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
LONGROPE |= {"original_max_position_embeddings": 4096, "short_mscale": 1.0, "long_mscale": 1.2}


def test_only_classes_with_an_original_length_of_their_own_take_it_from_outside_the_block(tmp_path):
    """PhiMoE's class reads the block: configuration_phimoe.py of Transformers 5.23.0 declares no such key."""
    for name, outside in (("phi3", True), ("phimoe", False)):
        config = {"model_type": name, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 16384}
        (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": LONGROPE}))
        found = [each for each in audit(tmp_path / "config.json").findings if each.code == "misplaced-original"]
        assert bool(found) is outside
        assert all("transformers 5.23.0, transformers/modeling_rope_utils.py:" in each.message for each in found)
