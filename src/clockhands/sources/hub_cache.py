"""Models in the local Hugging Face cache, as they were last downloaded; the network is never used.

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache (its folders) and
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables (where it is).
"""

import os
import re
from pathlib import Path

from clockhands.arguments import shown
from clockhands.errors import Unreadable


def hub_folder() -> Path:
    """The folder of the cache: ``HF_HUB_CACHE``, else ``hub`` in ``HF_HOME``, else in the user's cache folder."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def cached_model(name: str) -> Path | None:
    """The folder of ``org/name`` as last downloaded from its main branch; None if it never was.

    Raises:
        Unreadable: The model is in the cache, but which of its snapshots is meant cannot be told.
    """
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name, re.ASCII):
        return None
    model = hub_folder() / ("models--" + name.replace("/", "--"))
    if not model.is_dir():
        return None
    try:
        main = model / "refs" / "main"
        revision = main.read_text().strip() if main.is_file() else ""
    except (OSError, UnicodeDecodeError):
        revision = ""
    snapshots = model / "snapshots"
    there = sorted(each.name for each in snapshots.iterdir() if each.is_dir()) if snapshots.is_dir() else []
    if revision in there:
        return snapshots / revision
    if not revision and len(there) == 1:
        return snapshots / there[0]
    if not there:
        raise Unreadable(
            f"{name} is in the local Hugging Face cache, but nothing of it was downloaded ({model}).",
            "Download the model first, or at least its config.json.",
        )
    wanted = f"the revision {shown(revision)}" if revision else "a main revision"
    raise Unreadable(
        f"{name} is in the local Hugging Face cache, but {wanted} is not among its {len(there)} snapshots.",
        f"Name one of the folders in {snapshots}.",
    )
