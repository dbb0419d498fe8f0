"""Finds models in a folder and its subfolders: config folders, GGUF files, configs of other programs, Modelfiles."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from clockhands.configs.dialects import could_be_dialect, dialect_of
from clockhands.errors import ClockhandsError
from clockhands.formats import documents, files, yaml_documents
from clockhands.formats.key_lines import MOST

_CONFIGS = ("config.json", "params.json", "hparams.json", "genai_config.json", "model_config.yaml")
# Keys that model configs have and the configs of other programs do not: one of them is enough.
_OF_MODELS = frozenset({
    "architectures", "d_model", "head_dim", "hidden_size", "max_position_embeddings", "model_type", "n_embd", "n_head",
    "n_heads", "n_layer", "n_layers", "num_attention_heads", "num_hidden_layers", "rope_scaling", "rope_theta",
    "text_config", "vision_config",
})  # fmt: skip


def models_under(folder: Path) -> Iterator[Path]:
    """Every model, in the order of names: a folder with a model's config, or a file that is a model by itself.

    Such files are GGUF files, YAML configs of other programs with any name, and Modelfiles. A training file that names
    the model to train does not count. Other JSON and YAML files are skipped. Links to folders are not followed, and
    hidden folders are skipped. A folder that cannot be listed, or whose ``config.json`` cannot be read, is not an
    object or is a folder, is included: an audit gives the reason.
    """
    unread: list[Path] = []
    left = [str(folder)]
    while left:  # not os.walk, which calls itself for each level
        here = left.pop()
        inside, names = [], []
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    (inside if entry.is_dir() else names).append(entry.name)
        except OSError:  # also a path that is too long for the system
            unread.append(Path(here))
            continue
        inside = sorted(name for name in inside if not name.startswith("."))
        if "config.json" in inside or any(_is_model(Path(here, name)) for name in _CONFIGS if name in names):
            yield Path(here)
        for name in sorted(names):
            if not name.startswith(".") and _is_model_file(Path(here, name)):
                yield Path(here, name)
        left += (os.path.join(here, name) for name in reversed(inside) if not os.path.islink(os.path.join(here, name)))
    yield from sorted(unread)


def _is_model_file(path: Path) -> bool:
    name = path.name.lower()
    if name.endswith((".yaml", ".yml")) and name not in _CONFIGS:
        try:
            data = documents.bytes_of(path, yaml_documents.LARGEST, found=True)
            if not could_be_dialect(data.decode(errors="replace")):
                return False
            dialect = dialect_of(yaml_documents.parse(data, str(path)).fields)
        except (ClockhandsError, OSError):
            return False
        except Exception:  # noqa: BLE001 - one file must not cost the others theirs; its audit says what it is
            return True
        return dialect is not None and not dialect.base and not dialect.refused
    return name.endswith((".gguf", ".modelfile")) or name == "modelfile"


def _is_model(path: Path) -> bool:
    try:
        if files.kind(path) == "yaml":
            held = yaml_documents.read(path, found=True).fields
        else:
            with files.open_regular(path) as file:
                held = json.loads(file.read(MOST))
        if isinstance(held, dict):
            dialect = dialect_of(held)
            return (dialect is not None and not dialect.refused) or not _OF_MODELS.isdisjoint(held)
    except (ClockhandsError, OSError, ValueError, RecursionError):
        pass
    except Exception:  # noqa: BLE001 - as above
        return True
    return path.name == "config.json"
