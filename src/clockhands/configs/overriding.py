"""Values that a caller sets in place of those of a config, as on the command lines of servers.

They replace values of the parsed config before it is read, so the result is the same as if the file had them; only the
sources differ: ``--set:rope_theta`` instead of ``config.json:rope_theta``.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from clockhands.configs._scaling_fields import BESIDE
from clockhands.configs.dialects import keys_of_dialects, plain
from clockhands.configs.model_types import layer_labels, table
from clockhands.configs.opened import Opened
from clockhands.configs.resolved import Fact, LayerEncoding, Resolved
from clockhands.configs.rope_blocks import NEW, OLD
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import did_you_mean, shown

# What precedes the colon of a source for a value from the caller.
CALLER = "--set"

# Options of vLLM's and SGLang's command lines that change how positions are read, with the key that each sets.
_OPTIONS: Mapping[str, str] = {
    **{name: name for name in ("hf_overrides", "rope_scaling", "rope_theta", "max_model_len")},
    "json_model_override_args": "json_model_override_args",
    "context_length": "max_model_len",
}

# Keys of a config that hold an object, which a caller may set in part although the file lacks it.
_LABELS = ("full", "sliding", "chunked")


def read_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as a mapping; a value is JSON where it can be read as such, else it is the text itself.

    A text that is a JSON object by itself sets all of its keys, as vLLM's ``--hf-overrides`` does: an object under the
    name of a part (``text_config``) is merged into that part, any other value replaces the existing one. vLLM's options
    ``hf-overrides``, ``rope-scaling``, ``rope-theta`` and ``max-model-len`` may be written with their names, and so may
    SGLang's ``json-model-override-args``, which replaces a whole part instead of merging, and ``context-length``.

    >>> read_overrides(["rope_theta=1e6", "rope_scaling.rope_type=yarn", 'rope_scaling={"factor": 4}'])
    {'rope_theta': 1000000.0, 'rope_scaling.rope_type': 'yarn', 'rope_scaling': {'factor': 4}}
    >>> read_overrides(['{"text_config": {"rope_theta": 1e6}, "rope_scaling": null}'])
    {'text_config.rope_theta': 1000000.0, 'rope_scaling': None}

    Source: vllm-project/vllm, ``vllm/config/model.py`` (``_apply_dict_overrides``); sgl-project/sglang,
    ``python/sglang/srt/utils/hf_transformers/config.py`` (``config.update(model_override_args)``).

    Raises:
        InvalidValue: A text has no ``=``, no key, a key that another text has too, or an object that is not JSON.
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = ("", "=", text) if text.lstrip().startswith("{") else text.partition("=")
        key = _of_a_server(key.strip())
        if not equals or (not key and value is not text):
            raise InvalidValue(
                f"{shown(text)} sets nothing: it is not of the form KEY=VALUE.", "Write for example rope_theta=1000000."
            )
        held = _read(key, value)
        if key in ("", "hf_overrides", "json_model_override_args"):
            if not isinstance(held, dict):
                raise InvalidValue(f"{shown(text)} is no JSON object.", 'Write for example {"rope_theta": 1000000}.')
            made = dict(held if key.startswith("json") else _spread(held))
        else:
            made = {key: held}
        for each in made:
            if each in values:
                raise InvalidValue(f"{each} is set twice.", "Set each key once.")
        values |= made
    return values


def _read(key: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        if value.lstrip().startswith(("{", "[", '"')):
            raise InvalidValue(
                f"{key or 'The config'} is set to {shown(value)}, which looks like JSON but is not valid.",
                "Put quotes around names and close all brackets; in a shell, put the whole value between ' and '.",
            ) from None
        return value


def _of_a_server(key: str) -> str:
    """The key that an option of vLLM or SGLang sets, with or without its dashes; any other key as it is."""
    plain = key.lstrip("-").replace("-", "_")
    written_as_a_key = plain == "context_length" and "-" not in key  # which some configs have
    return key if written_as_a_key else _OPTIONS.get(plain, key)


def _spread(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of an object, those of a part of the config one by one."""
    for key, value in values.items():
        if key in table()["sections"] and isinstance(value, Mapping) and value:
            yield from _spread(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def served_length(overrides: Mapping[str, Any] | None) -> tuple[int | None, dict[str, Any]]:
    """Split the length given by ``max_model_len``, which is not a key of a config, from the other overrides.

    Raises:
        InvalidType: The overrides are not a dict.
        InvalidValue: It is not a positive whole number, nor in vLLM's notation for one.
    """
    if not isinstance(overrides, Mapping | None):
        raise InvalidType(
            f"`overrides` must be a dict, key to value, got {shown(overrides)}.",
            'Write for example overrides={"rope_theta": 1e6}.',
        )
    rest = dict(overrides or {})
    said = rest.pop("max_model_len", None)
    if said in (None, -1) or (isinstance(said, str) and said.lower() == "auto"):
        return None, rest  # vLLM then uses as much of the declared context as fits in its memory
    length = _with_suffix(said) if isinstance(said, str) else said
    if type(length) is not int or length < 1:
        raise InvalidValue(
            f"max_model_len must be a whole number above 0, got {shown(said)}.",
            "Write a length such as 32768, 32k (32,000) or 32K (32,768), or auto.",
        )
    return length, rest


def _with_suffix(text: str) -> int | None:
    """A length as on vLLM's command line: thousands for a small suffix, powers of 1,024 for a large one.

    Source: vllm 0.33.0, ``vllm/utils/argparse_utils.py``, ``human_readable_int``.
    """
    found = re.fullmatch(r"\s*(\d{1,12})(\.\d{1,12})?([kKmMgGtT])\s*", text)
    if found is None or (found[2] and found[3].isupper()):
        return None
    unit = (1024 if found[3].isupper() else 1000) ** ("kmgt".index(found[3].lower()) + 1)
    return int(float(f"{found[1]}{found[2]}") * unit) if found[2] else int(found[1]) * unit


def overridden(opened: Opened, overrides: Mapping[str, Any] | None, said: str = f"{CALLER}:") -> Opened:
    """The target with some values of its config set by the caller.

    Args:
        opened: A target with a config or with the keys of a GGUF file.
        overrides: Key to value. A dot leads into an object (``text_config.rope_theta``); None removes a key. Keys of
            GGUF files are written with the architecture before them or without it (``rope.freq_base``).
        said: The name of the place of the values in sources, before the key.

    Raises:
        InvalidValue: The target has no config, or nothing reads a key in that place.
        InvalidType: A key is not text, or JSON cannot represent a value.
    """
    if not overrides:
        return opened
    if opened.config is None:
        named = opened.form == "preset" and opened.path is None
        said = "fields are written behind its name" if named else "it has no config"
        hint = "Write PRESET:field=value." if named else "Name a target that has one."
        raise InvalidValue(f"Nothing can be set in {opened.target}: {said}.", hint)
    config: dict[str, Any] = dict(opened.config)
    names = dict(opened.overridden)
    for key, value in overrides.items():
        if not isinstance(key, str):
            raise InvalidType(
                f"The key of a value to override must be a string, got {shown(key)}.",
                "Write the key exactly as it is in the file.",
            )
        _check_value(key, value)
        if key.rpartition(".")[2] == "model_type" and not isinstance(value, str | None):
            raise InvalidValue(f"{key} must be the name of a type, got {shown(value)}.", "Write for example llama.")
        full = _gguf_key(opened, key) if opened.form == "gguf" else _set_inside(config, opened, key, value)
        if opened.form == "gguf":
            config[full] = value
        names[full] = f"{said}{key}"
    lost = {} if opened.form == "gguf" else _lost(config, opened, overrides)
    # A key that occurs twice in the file no longer matters if the caller has set it.
    left = tuple(key for key in opened.duplicates if key not in names)
    return replace(opened, config=config, overridden=names, duplicates=left, lost={**opened.lost, **lost})


def by_caller(resolved: Resolved, opened: Opened) -> Resolved:
    """The resolved codes, with the caller as the source of the values that the caller set."""
    if not opened.overridden:
        return resolved
    said = speaker(opened)

    def code(each: LayerEncoding) -> LayerEncoding:
        return replace(each, source={field: said(where) for field, where in each.source.items()})

    def fact(each: Fact) -> Fact:
        return replace(each, evidence=evidence_by_caller(each.evidence, opened))

    return replace(
        resolved,
        codes=tuple(code(each) for each in resolved.codes),
        facts=tuple(fact(each) for each in resolved.facts),
        source={field: said(where) for field, where in resolved.source.items()},
        ignored={said(place): value for place, value in resolved.ignored.items()},
        idle=frozenset(map(said, resolved.idle)),
    )


def evidence_by_caller(evidence: Mapping[str, Any], opened: Opened) -> dict[str, Any]:
    """Evidence, with the caller as the place of the values that the caller set."""
    if not opened.overridden:
        return dict(evidence)
    said = speaker(opened)
    return {said(name): said(value) if isinstance(value, str) else value for name, value in evidence.items()}


def speaker(opened: Opened) -> Callable[[str], str]:
    """A function that replaces places in the config by the caller, in a text, where the caller has set them."""
    file = re.escape(f"{opened.config_name}:")
    # The longest first, so that a key inside an object is not mistaken for the object.
    keys = sorted(opened.overridden, key=len, reverse=True)
    places = re.compile(rf"(?<![\w./-]){file}({'|'.join(map(re.escape, keys))})(?![\w-])")
    return lambda text: places.sub(lambda found: opened.overridden[found[1]], text)


def _check_value(key: str, value: Any) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise InvalidType(
            f"{key} cannot be set to {shown(value)}: a config holds numbers, texts, lists, objects, true, false and"
            " null.",
            "Give a value that JSON can hold.",
        ) from None


def _gguf_key(opened: Opened, key: str) -> str:
    """The full key: as given, or with the architecture before it."""
    config = opened.config or {}
    architecture = config.get("general.architecture")
    full = f"{architecture}.{key}"
    if key in config or key == "general.architecture":
        return key
    known = [each for keys in table()["gguf_keys"].values() for each in keys]
    if full in config or key in known:
        return full
    if key.startswith(f"{architecture}.") and key.removeprefix(f"{architecture}.") in known:
        return key
    held = [each.removeprefix(f"{architecture}.") for each in config]
    raise _unknown(opened, key, [*known, *held])


def _set_inside(config: dict[str, Any], opened: Opened, key: str, value: Any) -> str:
    """Set a value inside nested objects, copying those on the path; return the key in the spelling of the file.

    Programs with a dialect treat hyphens and underscores as the same: the file's spelling is kept.
    """
    *path, last = key.split(".")
    here, walked = config, ""
    for named in path:
        name = _spelling(here, opened, named)
        inner = here.get(name)
        if inner is None and name not in _objects():
            raise InvalidValue(
                f"{key} cannot be set: {opened.config_name} has no object {walked}{name}.",
                f"At this level, the file has {_some(here)}.",
            )
        if inner is not None and not isinstance(inner, Mapping):
            raise InvalidValue(
                f"{key} cannot be set: {walked}{name} is {shown(inner)} in {opened.config_name}, not an object.",
                f"Set {walked}{name} itself.",
            )
        here[name] = dict(inner or {})
        here, walked = here[name], f"{walked}{name}."
    known = keys_of_dialects() if opened.form == "dialect" else _keys()
    last = _spelling(here, opened, last)
    if last not in here and (plain(last) if opened.form == "dialect" else last) not in known:
        raise _unknown(opened, key, [f"{walked}{name}" for name in (*known, *here)])
    here[last] = value
    return f"{walked}{last}"


# What a block holds beside its scaling, and what Transformers 5 moves into it from the level of the block.
_IN_A_BLOCK = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
_BLOCKS = (OLD, NEW)


def _lost(config: dict[str, Any], opened: Opened, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the block under the other key if the caller gives a whole one, and return the lost values.

    A caller who sets ``rope_scaling`` or ``rope_parameters`` sets it on the config object. Both names are one block
    there, which also holds the base and the partial rotary factor, wherever the file has them: what the new block omits
    is lost.

    Source: Transformers 5.23.0, ``PreTrainedConfig.from_dict``, which sets what the caller passes after construction.
    """
    lost: dict[str, Any] = {}
    for key, value in overrides.items():
        path, dot, last = key.rpartition(".")
        if last not in _BLOCKS or not (value is None or isinstance(value, Mapping)):
            continue
        here: Any = config
        before: Any = opened.config
        for name in filter(None, path.split(".")):
            name = _spelling(here, opened, name)  # noqa: PLW2901 - the same name as the file spells it
            here, before = here.get(name, {}), before.get(name, {}) if isinstance(before, Mapping) else {}
        (other,) = (name for name in _BLOCKS if name != last)
        if f"{path}{dot}{other}" not in overrides:
            here.pop(other, None)
        for block in (*_BLOCKS, None):
            held = before.get(block) if block is not None else before
            for name in _IN_A_BLOCK if isinstance(held, Mapping) else ():
                set_too = f"{path}{dot}{name}" in overrides and block is None
                if held.get(name) is not None and name not in (value or ()) and not set_too:
                    place = ".".join(filter(None, (path, block, name)))
                    lost[f"{opened.config_name}:{place}"] = held[name]
    return lost


def _spelling(here: Mapping[str, Any], opened: Opened, name: str) -> str:
    """The name as an object of the file spells it, else as it was written."""
    if name in here or opened.form != "dialect":
        return name
    return next((key for key in here if isinstance(key, str) and plain(key) == plain(name)), name)


def _objects() -> frozenset[str]:
    """Objects that a config may lack and still receive: rotary blocks, and their objects for each kind of layer."""
    data = table()
    labels = [label for kind in _LABELS for label in layer_labels()[kind]]
    return frozenset((*data["spellings"]["config"]["blocks"], *labels))


def _keys() -> frozenset[str]:
    """Every key of a config that something reads."""
    data = table()
    keys = {"model_type", *data["position_keys"], *_objects(), *BESIDE}
    for spelt in (data["spellings"]["config"], data["spellings"]["block"]):
        keys.update(key for held in spelt.values() for key in held)
    for entry in data["types"].values():
        keys.update(key for held in entry.get("reads", {}).values() for key in held)
    return frozenset(keys)


def _unknown(opened: Opened, key: str, known: Iterable[str]) -> InvalidValue:
    hint = did_you_mean(key, sorted(set(known)), "Write the key as in the file, with dots for nested objects.")
    message = f"{key} cannot be set: {opened.config_name} does not hold it, and no position code is read from it."
    return InvalidValue(message, hint)


def _some(held: Mapping[str, Any]) -> str:
    objects = [name for name, value in held.items() if isinstance(value, Mapping)]
    return f"the objects {', '.join(objects[:8])}" if objects else "no objects"
