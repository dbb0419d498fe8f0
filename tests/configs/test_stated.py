"""What configs are resolved to, as the JSON files of `stated/` state it: a sentence, a config, and what follows.

A config is made of a named one (`of`; `as` is the architecture of a GGUF file), of keys set over it (`with`: a dot
leads into an object, and "$name" is a named object of the file) and of keys taken away (`without`). `rows` are further
changes with what follows from each; `each` tries values of a key one after another. What is stated of a code are some
of its fields. A "..." is the rest of a text or of an object, true and false say whether there is a value, and
{"Rotary": {...}} is that spec.
"""

import copy
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clockhands.configs.opened import Opened
from clockhands.configs.resolve import LayerEncoding, resolve
from clockhands.configs.resolved import INDEXER, layer_numbers
from clockhands.encodings import additive, biases, ladders, rotary, scaling, scores

HERE = Path(__file__).with_name("stated")
MODULES = (additive, biases, ladders, rotary, scaling, scores)
UNUSABLE = {"impossible-value", "unreadable-field", "longrope-lists"}
MADE_OF = ("says", "of", "with", "without", "rows", "each", "file", "length", "set", "as")


def made(stated):
    """A spec, or a value in it."""
    if isinstance(stated, dict):
        ((name, fields),) = stated.items()
        (kind,) = {vars(module)[name] for module in MODULES if name in vars(module)}
        return kind(**{key: made(value) for key, value in fields.items()})
    return tuple(map(made, stated)) if isinstance(stated, list) else stated


def agrees(stated, found):
    """Whether what was found is as stated."""
    if isinstance(found, LayerEncoding):
        return all(agrees(value, getattr(found, field)) for field, value in stated.items())
    if isinstance(stated, bool) and not isinstance(found, bool):
        return stated == (found is not None)
    if isinstance(stated, str) and "..." in stated:
        pattern = ".*".join(map(re.escape, stated.split("...")))
        return isinstance(found, str) and re.fullmatch(pattern, found, re.DOTALL) is not None
    if isinstance(stated, dict) and stated.keys() == {"about"}:
        return found == pytest.approx(stated["about"], rel=1e-12)
    if isinstance(stated, dict) and next(iter(stated), "")[:1].isupper():
        spec = made(stated)
        return found == (pytest.approx(spec.rates, rel=1e-12) if isinstance(found, tuple) else spec)
    if isinstance(stated, dict):
        names = stated.keys() - {"..."}
        whole = isinstance(found, Mapping) and (found.keys() == names or ("..." in stated and names <= found.keys()))
        return whole and all(agrees(stated[name], found[name]) for name in names)
    if isinstance(stated, list):
        return len(found) == len(stated) and all(map(agrees, stated, found))
    return found == stated


def layers(found):
    """The code of each layer; an indexer is in the same layers as the attention."""
    codes = [code for code in found.codes if code.part != INDEXER]
    of_layers = {layer: code for code in codes for layer in layer_numbers(code.layers or "")}
    return [of_layers[layer] for layer in sorted(of_layers)]


def told(found, stated):
    return all(any(fact.code == code and agrees(says, fact.evidence) for fact in found.facts)
               for code, says in stated.items())  # fmt: skip


FOLLOWS = {
    "codes": lambda found, stated: agrees(stated, found.codes),
    "code": lambda found, stated: agrees([stated], found.codes),
    "every": lambda found, stated: bool(found.codes) and all(agrees(stated, code) for code in found.codes),
    "first": lambda found, stated: agrees(stated, found.codes[0]),
    "parts": lambda found, stated: all(
        agrees(codes, [code for code in found.codes if code.part == part]) for part, codes in stated.items()
    ),
    "kinds": lambda found, stated: agrees(stated, [code.kind for code in found.codes]),
    "by layer": lambda found, stated: all(
        agrees(values, [getattr(code, field) for code in layers(found)]) for field, values in stated.items()
    ),
    "layer 0": lambda found, stated: agrees(stated, layers(found)[0]),
    "layer 2": lambda found, stated: agrees(stated, layers(found)[2]),
    "layers that see all": lambda found, stated: (
        [layer for layer, code in enumerate(layers(found)) if code.window is None] == stated
    ),
    "windows": lambda found, stated: {code.window for code in found.codes} - {None} == set(stated),
    "facts": lambda found, stated: [fact.code for fact in found.facts] == stated,
    "told": told,
    "untold": lambda found, stated: {fact.code for fact in found.facts}.isdisjoint(stated),
    "one of": lambda found, stated: not {fact.code for fact in found.facts}.isdisjoint(stated),
    "only told": lambda found, stated: {fact.code for fact in found.facts} == set(stated),
    "impossible": lambda found, stated: agrees(
        stated, [fact.evidence["allowed"] for fact in found.facts if fact.code == "impossible-value"]
    ),
    "unusable": lambda found, stated: any(f.code in UNUSABLE and stated in f.evidence for f in found.facts),
    "context": lambda found, stated: found.context == stated,
    "used length": lambda found, stated: found.length == stated,
    "model type": lambda found, stated: found.model_type == stated,
    "source": lambda found, stated: agrees(stated, found.source),
    "ignored": lambda found, stated: agrees(stated, found.ignored),
    "notes": lambda found, stated: agrees(stated, found.notes),
}


def named(value, objects):
    return copy.deepcopy(objects[value[1:]] if isinstance(value, str) and value.startswith("$") else value)


def config_of(case, changes, objects, *, dots):
    config: dict[str, Any] = {}
    if "of" in case:
        config = named(f"${case['of']}", objects)
    if "as" in case:
        name = config["general.architecture"]
        config = {key.replace(f"{name}.", f"{case['as']}."): value for key, value in config.items()}
        config["general.architecture"] = case["as"]
    for key, value in (case.get("with", {}) | changes).items():
        *way, last = key.split(".") if dots else [key]
        inside = config
        for step in way:
            inside = inside[step]
        inside[last] = named(value, objects)
    for name in case.get("without", ()):
        del config[name]
    return config


def variants(case):
    """The case with what follows from each of its rows, and the changes to its config."""
    tried = itertools.product(*([(key, value) for value in values] for key, values in case.get("each", {}).items()))
    for row, one in itertools.product(case.get("rows", [[{}]]), list(tried)):
        changes, *more = row
        yield case | (more[0] if more else {}), changes | dict(one)


def opened(config, file):
    form = {"json": "config", "gguf": "gguf"}.get(file.rpartition(".")[2], "dialect")
    return Opened("x", form, config=config, config_name=file)


def gaps(case, objects):
    for held, changes in variants(case):
        file = held.get("file", "config.json")
        stated = {name: value for name, value in held.items() if name not in MADE_OF}
        assert stated, "nothing is stated"
        config = config_of(held, changes, objects, dots=not file.endswith(".gguf"))
        found = resolve(opened(config, file), held.get("length"), overrides=held.get("set"))
        for name, value in stated.items():
            if not FOLLOWS[name](found, value):
                yield f"{changes}: {name} is not {value}, but {found.codes}, {found.facts}, {found.ignored}"


@pytest.mark.parametrize("file", sorted(each.stem for each in HERE.glob("*.json")))
def test_configs_are_resolved_as_stated(file, cases):
    held = json.loads((HERE / f"{file}.json").read_text(encoding="utf-8"))
    for case in held["cases"]:
        with cases(case["says"]):
            found = list(gaps(case, held["objects"]))
            assert not found, "\n  ".join(found)


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": {"base": 2.0}}, {"code": {"spec": {"Rotary": {"head_width": 64, "base": 10000.0}}}}, {"kinds": []},
        {"every": {"layers": "0"}}, {"first": {"source": {"base": "config.json:rope_theta"}}}, {"facts": ["own-code"]},
        {"first": {"rates": False}}, {"told": {"default-base": {"used": 1.0, "...": 0}}}, {"untold": ["default-base"]},
        {"one of": ["own-code"]}, {"unusable": "config.json:rope_theta"}, {"by layer": {"window": [None]}},
        {"first": {"layout": "...leaved"}}, {"parts": {"text": []}}, {"context": 1}, {"ignored": {"a": 1}},
        {"layer 0": {"window": 4}}, {"windows": [4]}, {"layers that see all": [1]}, {"impossible": ["a"]},
        {"only told": []}, {"first": {"attention_factor": {"about": 1.1}}}, {"codes": [{}, {}]}, {"source": {}},
        {"notes": ["..."]}, {"used length": 1}, {"model type": "bert"},
    ],
)  # fmt: skip
def test_a_wrong_statement_is_noticed(wrong):
    config = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 2, "num_hidden_layers": 2}
    assert list(gaps({"says": "wrong", "with": config, **wrong}, {}))
