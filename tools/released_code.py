"""Write configs/released_code.json: which position keys the code of a release reads for each model type.

The code is parsed and never run (`release_trees`). In Transformers the class of every config also puts some keys into
rope_parameters: code that does not mention rope_parameters does not get them.

    python tools/released_code.py FOLDER            # with a folder NAME-VERSION for each release, as pip unpacks it
    python tools/released_code.py FOLDER --check    # compares these releases with what was written
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from clockhands.configs import model_types
from clockhands.runtimes.releases import Statement, statements
from clockhands.runtimes.views import facts
from release_trees import (
    BLOCK_KEYS,
    POSITION_KEYS,
    Module,
    Place,
    Release,
    defined,
    key_of_block,
    loaded,
    mentioned,
    mentioned_beside_fields,
    of_any_kind,
)

CONFIGS = Path(model_types.__file__).parent
WRITTEN = CONFIGS / "released_code.json"


@dataclass
class TypeReads:
    """What the code for one model type reads.

    Attributes:
        owner: The class of the model, with its file and line.
        keys: The position keys that the code mentions.
    """

    owner: str
    keys: frozenset[str]


# What no config of a model reaches.
_ELSEWHERE = re.compile(r"\.(tokenization|processing|feature_extraction)_\w+$")


# The common class of all configs, which puts the RoPE keys of a file into rope_parameters.
CONVERSIONS = frozenset(
    [
        ("transformers.configuration_utils", "PreTrainedConfig"),
        ("transformers.configuration_utils", "PretrainedConfig"),
        ("transformers.modeling_rope_utils", "RotaryEmbeddingConfigMixin"),
    ]
)


Wanted = Callable[[str], bool]
"""Which model types are asked for."""


@cache
def shared_code(release: Release) -> frozenset[Place]:
    """The code that all models share: that of no model, without what makes one key of a config of another."""
    reached = release.reach(SHARED.get(release.program, ())) - CONVERSIONS
    return frozenset(place for place in reached if ".models." not in place[0])


def transformers_types(release: Release, wanted: Wanted) -> Iterator[tuple[str, TypeReads]]:
    """The types of Transformers: the class of a config names its type, and the model is in the same folder."""
    shared = shared_code(release) | CONVERSIONS
    taken = frozenset(release.mentions(CONVERSIONS, mentioned))
    for config in release.modules("transformers/models", "*/configuration_*.py"):
        classes = [node for node in config.tree.body if isinstance(node, ast.ClassDef)]
        named = [(node, name) for node in classes if (name := _type_named(node)) is not None and wanted(name)]
        models = list(release.modules(str(Path(config.file).parent), "modeling_*.py")) if named else []
        of_models = release.reach({(each.name, name) for each in models for name in each.definitions}, shared)
        for node, name in named if models else ():
            reached = of_models | release.reach({(config.name, node.name)}, shared)
            keys = frozenset(release.mentions(reached, mentioned))
            if keys & {"rope_parameters", "rope_scaling"}:
                # An attribute rope_scaling is rope_parameters under its old name, whoever takes the other keys.
                keys |= {"rope_scaling"} if _takes_out(node) else taken
            yield name, TypeReads(_class_of(node, config, models), keys)


def _type_named(node: ast.ClassDef) -> str | None:
    """The ``model_type`` of the class of a config."""
    for each in node.body:
        value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and "model_type" in defined(each):
            return str(value.value) if value.value else None
    return None


def _takes_out(node: ast.ClassDef) -> bool:
    """Whether the class of a config takes RoPE keys out of a file itself, so that the common class does not."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "convert_rope_params_to_dict":
            return "super()" not in ast.unparse(each)
    return False


def _class_of(config: ast.ClassDef, around: Module, models: list[Module]) -> str:
    """The class of the model of a config, with file and line; the class of the config where no model has its name."""
    stem = config.name.removesuffix("Config")
    wanted = [f"{stem}{end}" for end in ("Model", "ForCausalLM", "ForConditionalGeneration", "PreTrainedModel", "")]
    held = {name: (nodes[0], module) for module in models for name, nodes in module.definitions.items()}
    node, module = next((held[each] for each in wanted if each in held), (config, around))
    return f"{getattr(node, 'name', stem)} {module.file}:{node.lineno}"


def mlx_types(release: Release, wanted: Wanted) -> Iterator[tuple[str, TypeReads]]:
    """The types of mlx-lm and mlx-vlm: a file or a folder has the name of its type, or of one that it is mapped to."""
    package = release.packages[0]
    found = release.definition(f"{package}.utils.MODEL_REMAPPING")
    assert found is not None
    assert isinstance(found[1], ast.Assign)
    names: dict[str, list[str]] = {}
    for name, source in ast.literal_eval(found[1].value).items():
        names.setdefault(source, []).append(name)
    folder = release.folder / package / "models"
    for path in sorted(each for each in folder.iterdir() if each.is_dir() or each.suffix == ".py"):
        said = [name for name in [path.stem, *names.get(path.stem, ())] if wanted(name)]
        pattern = f"{path.name}/*.py" if path.is_dir() else path.name
        modules = list(release.modules(f"{package}/models", pattern)) if said else []
        configs = [each for each in modules if _config_named(each)]
        if configs:
            name = _config_named(configs[0])
            line = configs[0].definitions[name][0].lineno
            roots = [(module.name, each) for module in modules for each in module.definitions]
            reached = release.reach(roots, shared_code(release))
            keys = frozenset(release.mentions(reached, mentioned_beside_fields))
            yield from ((each, TypeReads(f"{name} {configs[0].file}:{line}", keys)) for each in said)


def _config_named(module: Module) -> str:
    """The dataclass that takes the keys of the text of a config; empty where a module has none."""
    return next((name for name in ("ModelArgs", "TextConfig", "ModelConfig") if name in module.definitions), "")


def types_by_architecture(release: Release, wanted: Wanted) -> Iterator[tuple[str, TypeReads]]:
    """The types of programs that choose their class by the name of that of Transformers."""
    for folder, pattern in MODELS[release.program]:
        for module in release.modules(folder, pattern):
            for architecture, place in _architectures(module):
                known = model_types.by_class({"architectures": [architecture]})
                found = release.definition(".".join(place))
                if known is not None and found is not None and wanted(known.name):
                    reached = release.reach([place], shared_code(release))
                    owner = f"{place[1]} {found[0].file}:{found[1].lineno}"
                    yield known.name, TypeReads(owner, frozenset(release.mentions(reached, mentioned)))


def _architectures(module: Module) -> Iterator[tuple[str, Place]]:
    """The architectures that a module registers, each with the definition for it."""
    for name, nodes in module.definitions.items():
        for node in nodes:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(node, ast.ClassDef):  # @ModelBase.register("LlamaForCausalLM")
                yield from ((each, (module.name, name)) for each in _registered(node))
            elif name == "EntryClass" and value is not None:
                classes = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
                yield from ((each, (module.name, each)) for each in classes)
            elif isinstance(value, ast.Dict):  # {"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}
                for key, held in zip(value.keys, value.values, strict=True):
                    texts = [each.value for each in ast.walk(held) if isinstance(each, ast.Constant)]
                    if isinstance(key, ast.Constant) and isinstance(held, ast.Tuple) and len(texts) == 2:
                        yield str(key.value), (f"{module.name.rpartition('.')[0]}.{texts[0]}", str(texts[1]))


def _registered(node: ast.ClassDef) -> Iterator[str]:
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and "register" in ast.unparse(each.func):
            for inner in (*each.args, *(keyword.value for keyword in each.keywords)):
                name = inner.value if isinstance(inner, ast.Constant) else getattr(inner, "id", None)
                if isinstance(name, str):
                    yield name


TYPES: Mapping[str, Callable[[Release, Wanted], Iterator[tuple[str, TypeReads]]]] = {
    "transformers": transformers_types,
    "mlx-lm": mlx_types,
    "mlx-vlm": mlx_types,
    **dict.fromkeys(("vllm", "sglang", "llama-cpp-python", "megatron-bridge"), types_by_architecture),
}
"""Of each program the function that finds its types."""

MODELS: Mapping[str, Sequence[tuple[str, str]]] = {
    "vllm": [("vllm/model_executor/models", "registry.py")],
    "sglang": [("sglang/srt/models", "*.py")],
    "llama-cpp-python": [("", "convert_hf_to_gguf.py"), ("conversion", "*.py")],
    "megatron-bridge": [("megatron/bridge/models", "*/*_bridge.py")],
}
"""The files that register the classes of models, by program: a folder, and a pattern of names."""

SHARED: Mapping[str, Sequence[Place]] = {
    "transformers": [
        ("transformers.modeling_utils", "PreTrainedModel"), ("transformers.generation.utils", "GenerationMixin"),
    ],
    "mlx-lm": [("mlx_lm.utils", "load_model")],
    "mlx-vlm": [("mlx_vlm.utils", "load_model")],
    "vllm": [("vllm.config", "ModelConfig"), ("vllm.transformers_utils.config", "get_config")],
    "sglang": [("sglang.srt.configs.model_config", "ModelConfig")],
}  # fmt: skip
"""The code that all models of a program share."""


def as_json(release: Release) -> dict[str, Any]:
    """What is written of a release: the keys that shared code reads, and each type's class and further keys.

    Of other releases than that of the table, only the code of types that runtimes.json describes for this release, and
    the code of which a statement says that it does not read a key.
    """
    whole = str(release) == model_types.table()["library"]
    said = [each for each in statements() if each.unread and release.version in each.read_in(release.program)]
    of_types = [each for each in said if each.library in (None, str(release)) and (each.library or not each.within)]
    about = {name for each in of_types for name in each.types or ()}
    for reader, held in facts()["readers"].items():
        if str(release) == f"{held.get('runtime')} {held['version']}":
            about |= set(facts().get(reader, {}).get("types", ()))
    shared = shared_code(release) if whole or about else ()
    common = release.mentions((each for each in shared if not _ELSEWHERE.search(each[0])), loaded)
    rows: dict[str, TypeReads] = {}
    for name, each in TYPES[release.program](release, lambda name: whole or name in about) if whole or about else ():
        first = rows.get(name, each)  # two classes may have one type
        rows[name] = TypeReads(first.owner, (first.keys | each.keys) - common.keys())
    definitions = dict(_definitions(release, said))
    sets: list[list[str]] = []
    by_kind: dict[str, dict[str, list[Any]]] = {"types": {}, "definitions": {}}
    for kind, held in (("types", rows), ("definitions", definitions)):
        for name in sorted(held):
            keys = sorted(held[name].keys)
            if keys not in sets:
                sets.append(keys)
            by_kind[kind][name] = [held[name].owner, sets.index(keys)]
    places = [each.owner.partition(" ")[2].rpartition(":")[0] for each in (*rows.values(), *definitions.values())]
    optional = {
        "config": release.mentions(CONVERSIONS, loaded),
        "block": keys_of_blocks(release),
        "files": {} if whole else {file: release.digest(file) for file in sorted(set(places))},
    }
    made = {"shared": common, **optional, "sets": sets, **by_kind}
    return {name: held for name, held in made.items() if held or name not in (*optional, "definitions")}


def _definitions(release: Release, said: Iterable[Statement]) -> Iterator[tuple[str, TypeReads]]:
    """The definitions that statements name, with the keys that their own text mentions, of any level of a config."""
    for each in said:
        found = None if each.within is None else release.definition(each.within)
        if found is not None:
            module, node = found
            name = next(defined(node))
            yield (
                str(each.within),
                TypeReads(f"{name} {module.file}:{node.lineno}", frozenset(key for key, _ in ANY_KEY(node))),
            )


ANY_KEY = of_any_kind(*{key for each in statements() for key in each.unread})


def keys_of_blocks(release: Release) -> dict[str, str]:
    """The keys that shared code takes from a RoPE block, each with its first file and line."""
    module = release.module("transformers.modeling_rope_utils")
    if module is None:
        return {}
    taken = [each for node in ast.walk(module.tree) if (each := key_of_block(node, BLOCK_KEYS)) is not None]
    lines = {str(each.value): each.lineno for each in sorted(taken, key=lambda each: -each.lineno)}
    return {key: f"{module.file}:{line}" for key, line in sorted(lines.items())}


def written() -> dict[str, Any]:
    """The data as it is in the package."""
    return json.loads(WRITTEN.read_text(encoding="utf-8"))


SAYS = (
    "Written by tools/released_code.py. Of each release: shared, the position keys that code for all models reads, with"
    " file and line; config, those that the class of every config takes; block, keys of a RoPE block; types, of each"
    " model type its class with file and line, and which of the sets holds the further keys that its code mentions;"
    " definitions, the same of functions and classes that misread.json names, where the keys and more_keys were looked"
    " for at any level of a config, in their own text; files, the SHA-256 of the files of both."
)


def releases_in(folder: Path) -> Iterator[Release]:
    """The releases in a folder, which are called as their package and release."""
    for program in PROGRAMS:
        for path in sorted(folder.glob(f"{program.replace('-', '_')}-*")):
            yield Release(program, path.name.rpartition("-")[2], path)


PROGRAMS = (*TYPES, "exllamav2", "exllamav3")


def text_of(found: Mapping[str, Any]) -> str:
    """All that is written, of releases by name."""
    more = sorted({key for each in statements() for key in each.unread} | BLOCK_KEYS - POSITION_KEYS)
    held = {"says": SAYS, "keys": sorted(POSITION_KEYS), "more_keys": more, "releases": found}
    one_line = re.sub(r"\[[^\[\]{}]+\]", lambda each: " ".join(each[0].split()), json.dumps(held, indent=1))
    return f"{one_line}\n"  # a list is a line


def main() -> int:
    """Read the releases in a folder and write the data, or say which of them are not as they were written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a release in the folder differs")
    given = parser.parse_args()
    found = {str(release): as_json(release) for release in releases_in(given.folder)}
    found = {name: held for name, held in found.items() if held["sets"]}
    if given.check:
        differing = [name for name, held in found.items() if held != written()["releases"].get(name)]
        print(f"{len(found)} releases read; not as written: {', '.join(differing) or 'none'}")
        return int(bool(differing))
    WRITTEN.write_text(text_of(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
