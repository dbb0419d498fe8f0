"""Configs of one model type: its default, others by what its row reads, and those by which classes usually differ."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from class_gaps import as_file
from clockhands.models.class_modules import class_default, config_keys

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}
# Blocks as files had them before Transformers 5, beside the base.
_FLAT = (
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    YARN,
    {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
    {"rope_type": "llama3", "factor": 8.0, **_LLAMA3},
)
_WINDOWS = {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 2}
_LISTED = ["full_attention", "sliding_attention"] * 2
_MARKS = [0, 1, 1, 0, 1, 0, 0]  # for each of seven layers
_FEW = len(_MARKS)  # so many layers show every period
_ATTENDING = ("attention", "full_attention")
_BASE = 5e4
# What is read from the class itself and needs no other config to show it.
PLAIN = ("hidden", "heads", "head_width", "layers", "decoder_layers", "context", "base", "share")
PLAIN += ("blocks", "original", "pad", "image", "patch", "unused")
_OF_LAYERS = re.compile("window|layer|still|full|rotat|two_sided")
_COUNTS = re.compile("num_|^n_|size|dim|heads|experts|group|top_?k")


def changed(values: Any) -> Iterator[tuple[str, Any]]:
    """A config file with other bases, a scaling, or other widths, lengths, windows and kinds of layers."""

    def walked(held: Any, change: Any) -> Any:
        if isinstance(held, list):
            return [walked(each, change) for each in held]
        if not isinstance(held, dict):
            return held
        return change({key: walked(each, change) for key, each in held.items()})

    def base(held: dict[str, Any]) -> dict[str, Any]:
        bases = {key: each for key, each in held.items() if key.endswith(("rope_theta", "rope_local_base_freq"))}
        lists = {key: [3 * one for one in each] for key, each in bases.items() if isinstance(each, list)}
        return held | {key: 3 * each for key, each in bases.items() if isinstance(each, int | float)} | lists

    def scaling(held: dict[str, Any]) -> dict[str, Any]:
        plain = "rope_theta" in held and held.get("rope_type") == "default" and "mrope_section" not in held
        return held | (YARN if plain else {})

    def shape(held: dict[str, Any]) -> dict[str, Any]:
        if "mrope_section" in str(held):
            return held
        numbers = {key: each for key, each in held.items() if type(each) is int and each > 0}
        doubled = ("head_dim", "qk_rope_head_dim", "max_position_embeddings")
        more = {key: 2 * numbers[key] for key in doubled if key in numbers}
        more |= {"sliding_window": numbers["sliding_window"] // 2} if "sliding_window" in numbers else {}
        return held | more | ({"layer_types": held["layer_types"][::-1]} if held.get("layer_types") else {})

    for name, change in (("default", dict), ("base", base), ("scaling", scaling), ("shape", shape)):
        other = walked(values, change)
        if name == "default" or other != values:
            yield name, other


def completions(config: Any) -> Iterator[dict[str, Any]]:
    """Values that the default configs of some classes lack, without which their models cannot be built."""
    yield {}
    heads, hidden, layers = (class_default(config, config_keys(config, each)) for each in ("heads", "hidden", "layers"))
    lacking: list[dict[str, Any]] = []
    if isinstance(heads, int) and isinstance(hidden, int):
        lacking += [{"head_dim": hidden // heads}, {"num_key_value_heads": heads}]
    lacking.append({"prediction_length": 24})
    if isinstance(layers, int):
        lacking += [{"mlp_layer_types": ["dense"] * layers}, {"layer_types": ["full_attention"] * layers}]
    yield from (values for values in lacking if all(hasattr(config, key) for key in values))


def further_completions(config: Any) -> Iterator[dict[str, Any]]:
    """Small values for what default configs leave open, such as the number of tokens."""
    yield {"vocab_size": 64, "pad_token_id": 1}
    yield {key: 8 for key, value in config.to_dict().items() if value is None and _COUNTS.search(key)}


def configs(
    name: str, config: Any, row: Mapping[str, Any], start: Mapping[str, Any], code: str
) -> Iterator[dict[str, Any]]:
    """Configs of a type, as files: the default one, and others with few layers.

    Args:
        name: The type.
        config: Its default config.
        row: Its row, filled in.
        start: What its default config lacks.
        code: The text of its class: a key that is not in it is not varied.
    """
    layers = [key for quantity in ("layers", "decoder_layers") for key in config_keys(config, quantity)[:1]]
    few = {key: _FEW for key in layers if isinstance(value := getattr(config, key, None), int) and value > _FEW}
    sparse = {"model_type": name, **start}
    yield sparse
    try:
        whole = as_file(type(config)(**{**start, **few})) | {"model_type": name}
    except Exception:  # noqa: BLE001 - a class that takes no other number of layers
        whole, few = as_file(type(config)(**start)) | {"model_type": name}, {}
    yield from (values for _, values in changed(whole))
    sparse |= few
    windows = {key: value for key, value in _WINDOWS.items() if key in whole}
    yield from ({**sparse, **more} for more in ({}, windows))
    if windows and "layer_types" in whole and layers:
        yield {**sparse, **windows, layers[0]: len(_LISTED), "layer_types": _LISTED}
    if any(each["kind"] == "rotary" for each in row["codes"]) and not config.sub_configs:
        # A file with a scaling says its base as well.
        based = {**sparse, **{key: _BASE for key in row.get("reads", {}).get("base", ())[:1] if key in code}}
        yield from ({**based, "rope_scaling": block} for block in _FLAT)
        aliases = {alias for each in row["codes"] for alias in each.get("aliases", {})}
        yield from ({**based, "rope_scaling": {**YARN, "rope_type": alias}} for alias in sorted(aliases))
    wanted = {quantity: values for each in row["codes"] for quantity, values in each.get("when", {}).items()}
    attending = [{"layer_types": [kind] * _FEW} for kind in _ATTENDING if "layer_types" in whole and layers]
    for quantity, keys in row.get("reads", {}).items():
        for key in () if quantity in (*PLAIN, "layer_types") else (each for each in keys if each in code):
            value = whole[key] if key in whole else getattr(config, key, None)
            usual = row.get("defaults", {}).get(quantity) if value is None else value
            for other in (each for each in _other_values(quantity, usual, wanted) if each != value):
                yield {**sparse, key: other}
                if windows and key not in windows and _OF_LAYERS.search(quantity):
                    yield {**sparse, **windows, key: other}
                yield from ({**sparse, **listed, key: other} for listed in attending if quantity in wanted)


def _other_values(quantity: str, value: Any, wanted: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Other values of a quantity; ``wanted`` are those on which codes of the row depend."""
    match value:
        case bool():
            other = [not value]
        case int():
            other = [2 * value, value + 1, value // 2]
        case float():
            other = [3 * value, value / 2]
        case list():
            other = [value[::-1], value[:1], _MARKS]
        case None if quantity == "layer_bases":
            other = [[_BASE * mark for mark in _MARKS]]
        case None:
            other = [_MARKS, True]
        case _:
            other = []
    return [*other, *wanted.get(quantity, ())]
