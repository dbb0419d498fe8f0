"""The position rules of what a check is given as `like`: rules, the name of a family, a config, a model."""

from collections.abc import Sequence
from typing import Any

from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.configs.targets import open_target, path_of
from clockhands.errors import InvalidValue
from clockhands.formats.hub_cache import hub_name
from clockhands.models.opened_modules import open_values
from clockhands.phrases import shown
from clockhands.recognition.token_positions import PositionRule, is_family, rules_of, rules_of_config

_FROM_A_TABLE = {"learned", "sinusoidal"}


def known_rules(like: Any) -> tuple[PositionRule, ...]:
    """The rules of a family by its name, with fields, or of the config of a model: loaded, a file, a folder, a name.

    Raises:
        InvalidValue, InvalidType: There is no such family, or no rule is known for the model.
        Unreadable: The file cannot be read.
    """
    if _names_rules(like):
        return rules_of(str(like) if hasattr(like, "__fspath__") else like)
    opened = _opened(like)
    named = str(like) if isinstance(like, str) or hasattr(like, "__fspath__") else None
    config = getattr(like, "config", like) if named is None or opened is None else opened.config
    rules = rules_of_config(config)
    if rules is None and opened is not None and _counts_text(resolve(opened).codes):
        return rules_of("text")
    if rules is None:
        held = config.get("model_type") if isinstance(config, dict) else getattr(config, "model_type", None)
        raise InvalidValue(
            f"No position rule is known for {shown(named or held or type(like).__name__)}.",
            'Name a family, such as "qwen2_vl"; "text" if tokens are counted from 0.',
        )
    return rules


def adds_a_table(like: Any) -> bool:
    """Whether the model adds rows of a table to its input, so that it matters from where its tokens are counted."""
    opened = None if _names_rules(like) else _opened(like)
    codes = () if opened is None else resolve(opened).codes
    return any(code.kind in _FROM_A_TABLE and code.part in TEXT for code in codes)


def _names_rules(like: Any) -> bool:
    if like is None or isinstance(like, PositionRule | tuple):
        return True
    if not (isinstance(like, str) or hasattr(like, "__fspath__")):
        return False
    return is_family(str(like)) or (path_of(str(like)) is None and hub_name(str(like)) is None)


def _opened(like: Any) -> Opened | None:
    if isinstance(like, str) or hasattr(like, "__fspath__"):
        return open_target(str(like))
    return open_values(getattr(like, "config", like))


def _counts_text(codes: Sequence[LayerEncoding]) -> bool:
    """Whether all codes are those of one text, and are known, and the first token is at position 0 of all of them."""
    return bool(codes) and all(
        code.part == "text" and code.kind is not None and not (code.kind in _FROM_A_TABLE and code.offset)
        for code in codes
    )
