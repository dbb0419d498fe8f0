"""Position fields of published models, as facts: what the cases of faults are made from.

`published_fields.json` holds them by the names that are imported from here, each with the file that it was read from:
repository, path and the first digits of the commit, or what else it comes from. Fields that do not bear on position are
left out. Names with ``GGUF_`` are keys of GGUF files, as are all others configs, or parts of one.
"""

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

_PUBLISHED = json.loads(Path(__file__).with_name("published_fields.json").read_text(encoding="utf-8"))


def __getattr__(name: str) -> Any:
    """The fields of a published model."""
    if name not in _PUBLISHED:
        raise AttributeError(name)
    return _PUBLISHED[name]["fields"]


def without(config: Config, *keys: str) -> Config:
    """A config that lacks some keys."""
    return {key: value for key, value in config.items() if key not in keys}


def block_with(config: Config, **changes: Any) -> Config:
    """A config whose scaling block has other values; None takes a key out."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    block = {key: value for key, value in (config[name] | changes).items() if value is not None}
    return config | {name: block}


def in_text(config: Config, **changes: Any) -> Config:
    """A config of several parts whose text has other values."""
    return config | {"text_config": config["text_config"] | changes}


def new_shape(config: Config) -> Config:
    """The same config with everything about rotation in ``rope_parameters``, as Transformers 5 saves it."""
    old = ("rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_pct", "rotary_emb_base")
    block = dict(config.get("rope_scaling") or {"rope_type": "default"})
    block["rope_theta"] = config.get("rope_theta", config.get("rotary_emb_base"))
    share = config.get("partial_rotary_factor", config.get("rotary_pct"))
    if share is not None:
        block["partial_rotary_factor"] = share
    return without(config, *old) | {"rope_parameters": block}
