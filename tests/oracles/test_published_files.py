"""The files of ``tests/published`` are those that it says it holds, and each says where it is from."""

import json

from oracles import published


def keys_of(value):
    """The keys of an object and of the objects in it; what stands in the map of classes are names of classes."""
    if isinstance(value, list):
        return {key for each in value for key in keys_of(each)}
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys_of(each) for key, each in value.items() if key != "auto_map"))


def configs():
    return {path.stem: json.loads(path.read_text("utf-8")) for path in (published.FOLDER / "configs").iterdir()}


def test_every_table_is_in_the_index_and_as_it_says():
    entries = {entry["key"]: entry for entry in published.index()}
    assert len(entries) == len(published.index()) == 170
    assert {path.stem for path in (published.FOLDER / "tables").iterdir()} == entries.keys()
    for key, entry in entries.items():
        held = {name: [list(array.shape), array.dtype.name] for name, array in published.arrays(key).items()}
        assert held == entry["arrays"]
        assert all(entry[field] for field in ("library", "version", "object", "file"))


def test_every_config_says_which_file_it_is_of():
    assert len(configs()) == 232
    for name, config in configs().items():
        assert config["name"] == name
        assert config["source"]["repo"].count("/") == 1
        assert config["source"]["path"]
        assert len(config["source"]["commit"]) == 40


def test_configs_hold_the_keys_that_are_listed_and_no_others():
    blocks = (published.FOLDER / "README.md").read_text("utf-8").split("```")[1::2]
    listed = [key for block in blocks for key in block.removeprefix("text").split()]
    assert len(listed) == len(set(listed))
    assert set(listed) == set().union(*(keys_of(config["config"]) for config in configs().values()))
    assert f"{len(listed)} names are kept" in (published.FOLDER / "README.md").read_text("utf-8")
