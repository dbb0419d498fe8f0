"""The position rules of what a check is given as `like`: rules, the name of a family, a config, a model."""

from typing import Any

from clockhands.configs.targets import open_target, path_of
from clockhands.errors import InvalidValue
from clockhands.formats.hub_cache import hub_name
from clockhands.phrases import shown
from clockhands.recognition.token_positions import PositionRule, is_family, rules_of, rules_of_config


def known_rules(like: Any) -> tuple[PositionRule, ...]:
    """The rules of a family by its name, with fields, or of the config of a model: loaded, a file, a folder, a name.

    Raises:
        InvalidValue, InvalidType: There is no such family, or no rule is known for the model.
        Unreadable: The file cannot be read.
    """
    if like is None or isinstance(like, PositionRule | tuple):
        return rules_of(like)
    named = str(like) if isinstance(like, str) or hasattr(like, "__fspath__") else None
    if named is not None:
        if is_family(named) or (path_of(named) is None and hub_name(named) is None):
            return rules_of(named)
        config = open_target(named).config
    else:
        config = getattr(like, "config", like)
    rules = rules_of_config(config)
    if rules is None:
        held = config.get("model_type") if isinstance(config, dict) else getattr(config, "model_type", None)
        raise InvalidValue(
            f"No position rule is known for {shown(named or held or type(like).__name__)}.",
            'Name a family, such as "qwen2_vl"; "text" if tokens are counted from 0.',
        )
    return rules
