"""Opens a loaded module as a target: its config like that of a file, its tables like tensors of a file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

from clockhands.configs.opened import Opened
from clockhands.configs.openers import open_document
from clockhands.configs.weights import rows_and_width
from clockhands.encodings.dtypes import NAMES
from clockhands.errors import Unreadable
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.documents import Document
from clockhands.models.held_tensors import WHERE, HeldTensor, Walked
from clockhands.recognition.token_positions import PositionRule, rules_of_config

CONFIG = "config"
"""What stands before the colon in the place of a value of the module's config, where files have their name."""


def open_module(module: Any, walked: Walked) -> Opened:
    """Open a module as a target.

    Raises:
        Unreadable: All its tensors are on the meta device: they have shapes but no values.
    """
    name = name_of(module)
    if walked.only_meta and walked.held:
        raise Unreadable(
            f"{name} is on the meta device: its tensors have shapes but no values.",
            "Load its weights first, or audit the folder or config.json that it is made from.",
        )
    root, others = config_root(module)
    config = None if root is None else _config_of(module.get_submodule(root))
    notes = tuple(
        f"{other} has its own config and cannot be compared with another: audit it separately." for other in others
    )
    away = [one.full_name for one in walked.held if one.on_meta]
    if away:
        more = f" (and {len(away) - 1} more)" if len(away) > 1 else ""
        notes += (f"{away[0]}{more} is on the meta device, has no values and was not examined.",)
    if (numbering := token_numbering(module)) is not None and numbering.rules is not None:
        notes += (
            'The positions of images and videos were not checked: `ch.probe(model, measure=["live"])` checks the '
            f"model's {numbering.path}.",
        )
    tensors = {one.full_name: info for one in walked.of("rows") if (info := _info(one)) is not None}
    return Opened(f"{name} (loaded)", "module", None, config, CONFIG, tensors, notes=notes)


@dataclass(frozen=True)
class TokenNumbering:
    """The function of a model that numbers the tokens of text, images and videos.

    Attributes:
        path: Its place in the model.
        call: The function.
        rules: The rules of the family; None where they are not known.
    """

    path: str
    call: Callable[..., Any]
    rules: tuple[PositionRule, ...] | None


def token_numbering(module: Any) -> TokenNumbering | None:
    """The `get_rope_index` of a model; None where it has none."""
    for path, owner in module.named_modules():
        if hasattr(owner, "get_rope_index"):
            configs = (getattr(each, "config", None) for each in (owner, module))
            rules = next(filter(None, map(rules_of_config, configs)), None)
            name = ".".join(filter(None, (path, "get_rope_index")))
            return TokenNumbering(name, owner.get_rope_index, rules)
    return None


def open_values(target: object) -> Opened | None:
    """Open a config that is a dict, or an object with ``to_dict``, as a target; None for other objects."""
    values = config_values(target)
    if values is None:
        return None
    name = "config" if isinstance(target, Mapping) else type(target).__name__
    return replace(open_document(Document(CONFIG, values), CONFIG, None, CONFIG), target=name)


def name_of(module: Any) -> str:
    """The class name of a module; for a compiled module, that of the original."""
    inner = getattr(module, "_orig_mod", module)
    return type(inner).__name__


def config_root(module: Any) -> tuple[str | None, tuple[str, ...]]:
    """The path of the outermost module that has a config, and those of its siblings that have one.

    Of several, the one with the most parameters is taken: it is the model.
    """
    roots: list[str] = []
    for path, one in sorted(module.named_modules(), key=lambda each: each[0].count(".") + bool(each[0])):
        if not any(within(path, root) for root in roots) and config_values(_config(one)):
            roots.append(path)
    sizes = {root: sum(each.numel() for each in module.get_submodule(root).parameters()) for root in roots}
    roots.sort(key=lambda root: -sizes[root])
    return (roots[0] if roots else None), tuple(roots[1:])


def within(path: str, root: str) -> bool:
    """Whether a module is inside another, or is the same one.

    >>> within("model.layers.0", "model"), within("model2", "model"), within("model", "")
    (True, False, True)
    """
    return not root or path == root or path.startswith(f"{root}.")


def text_config(module: Any) -> Any:
    """The config of the part of a model that reads text; None where it has no config."""
    config = _config(module)
    return getattr(config, "get_text_config", lambda: config)()


def _config(module: Any) -> Any:
    return getattr(module, "config", None)


def config_values(config: Any) -> dict[str, Any] | None:
    """The values of a config as JSON values; None where it is none, or an object of which no values are known."""
    if isinstance(config, Mapping):
        made: Any = config
    elif callable(getattr(config, "to_dict", None)):
        made = config.to_dict()
    elif is_dataclass(config) and not isinstance(config, type):
        made = asdict(config)
    else:
        return None
    return _as_json(made) if isinstance(made, Mapping) else None


def _config_of(module: Any) -> dict[str, Any] | None:
    """The config of a module; for diffusers with the class name, which that library only writes when saving."""
    config = config_values(_config(module))
    names = [kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("diffusers.models.")]
    return {"_class_name": names[0], **config} if config is not None and names else config


def _as_json(value: Any) -> Any:
    """Values as JSON values; what JSON cannot represent becomes text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(item) for item in value]
    return str(value)


def _info(held: HeldTensor) -> TensorInfo | None:
    """A table of rows as the tensor of a file named ``model``; None if its values are not available."""
    tensor = held.tensor
    if held.on_meta or held.dtype not in NAMES:
        return None
    try:
        raw = b"".join(_bytes(tensor))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    shape = tuple(tensor.shape)
    return TensorInfo(held.full_name, held.dtype, rows_and_width(shape) or shape, Path(WHERE), held=raw)


def _bytes(tensor: Any) -> Iterator[bytes]:
    import torch

    here = tensor.detach().cpu().contiguous()
    yield here.view(torch.uint8).numpy().tobytes()
