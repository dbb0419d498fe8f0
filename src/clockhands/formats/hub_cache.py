"""Parses model names of the Hugging Face Hub, and finds and stores files in its local cache.

The cache has a folder for each model: ``refs/NAME`` holds the commit of a branch or a tag, ``snapshots/COMMIT`` the
files by name, as links to ``blobs/``, which stores each content once under its hash.

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache (its folders) and
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables (where it is).
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clockhands.errors import Unreadable
from clockhands.formats import files
from clockhands.formats.documents import CONFIGS
from clockhands.phrases import shown

PIPELINE = "model_index.json"
"""What a diffusers pipeline has in place of a config; its models are in folders."""

_WORD = r"[\w-][\w.-]*"
_PATH = r"[\w-][\w.+ -]*"
_NAME = re.compile(
    rf"(?P<name>{_WORD}/{_WORD})(?:@(?P<revision>{_WORD}(?:/{_WORD})*))?(?::(?P<part>{_PATH}(?:/{_PATH})*))?", re.ASCII
)
_SHORTEST_COMMIT = 7  # digits that abbreviate a commit, as in Git


@dataclass(frozen=True)
class HubName:
    """The name of a model on a hub.

    Attributes:
        name: ``org/name``.
        revision: A branch, a tag or a commit; None for the main branch.
        part: A file or a folder of the repository; None for the model that it holds.
    """

    name: str
    revision: str | None = None
    part: str | None = None

    def __str__(self) -> str:
        """The model and its revision."""
        return self.name if self.revision is None else f"{self.name}@{self.revision}"

    @property
    def download(self) -> str:
        """The command that downloads all of it, or the part that is named.

        >>> HubName("org/name", "v2").download
        'hf download org/name --revision v2'
        >>> HubName("org/name", part="model.gguf").download, HubName("org/name", part="unet").download
        ('hf download org/name model.gguf', "hf download org/name --include 'unet/*'")
        """
        part = "" if self.part is None else f" {self.part}"
        if self.part is not None and "." not in self.part.rpartition("/")[2]:
            part = f" --include '{self.part}/*'"
        return f"hf download {self.name}{part}" + (f" --revision {self.revision}" if self.revision else "")


def hub_name(text: str) -> HubName | None:
    """Parse ``org/name[@revision][:part]``; None for a text that is not such a name.

    >>> hub_name("org/name@v2:model.gguf")
    HubName(name='org/name', revision='v2', part='model.gguf')
    >>> hub_name("path/to/model"), hub_name("../name")
    (None, None)
    """
    found = _NAME.fullmatch(text)
    return None if found is None else HubName(**found.groupdict())


def hub_folder() -> Path:
    """The folder of the cache: ``HF_HUB_CACHE``, else ``hub`` in ``HF_HOME``, else in the user's cache folder."""
    return _folder_named("hub", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")


def assets_folder() -> Path:
    """The folder for what programs derive from models: ``HF_ASSETS_CACHE``, else ``assets`` in ``HF_HOME``."""
    return _folder_named("assets", "HF_ASSETS_CACHE", "HUGGINGFACE_ASSETS_CACHE")


def _folder_named(name: str, *variables: str) -> Path:
    """The folder that a variable gives, else ``name`` in ``HF_HOME``, by default a folder in the user's cache."""
    given = next((os.environ[variable] for variable in variables if os.environ.get(variable)), None)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or Path(os.environ.get("HF_HOME") or Path(cache, "huggingface"), name)).expanduser()


def cached_model(asked: HubName) -> Path | None:
    """The place of a model of this revision in the cache, or of a part of it; None if the model is not there.

    Raises:
        Unreadable: The model is in the cache, but not this revision of it, or nothing that can be read.
    """
    model = _folder(asked)
    if not model.is_dir():
        return None
    place = snapshots(asked)
    there = sorted(each.name for each in place.iterdir() if each.is_dir()) if place.is_dir() else []
    if not there:
        raise Unreadable(
            f"{asked.name} is in the local Hugging Face cache, but nothing of it was downloaded ({model}).",
            "Download the model first, or at least its config.json.",
        )
    folder = place / _commit(asked, model, there)
    place = folder / (asked.part or "")
    if not (place.exists() if asked.part else _holds_model(folder)):
        raise Unreadable(
            f"{asked} is in the local Hugging Face cache without {asked.part or 'its config.json'} ({folder}).",
            f"Download the model: `{asked.download}`.",
        )
    return place


def snapshots(asked: HubName) -> Path:
    """The folder that has one folder for each commit, whether it exists or not."""
    return _folder(asked) / "snapshots"


def _folder(asked: HubName) -> Path:
    return hub_folder() / ("models--" + asked.name.replace("/", "--"))


def _commit(asked: HubName, model: Path, there: list[str]) -> str:
    """The snapshot of a revision."""
    try:
        reference = model / "refs" / (asked.revision or "main")
        commit = reference.read_text().strip() if reference.is_file() else ""
    except (OSError, UnicodeDecodeError):
        commit = ""
    if commit in there:
        return commit
    if asked.revision is None:
        if not commit and len(there) == 1:
            return there[0]
        wanted = f"the revision {shown(commit)}" if commit else "a main revision"
    else:
        named = [each for each in there if each.startswith(asked.revision)]
        if len(named) == 1 and len(asked.revision) >= _SHORTEST_COMMIT:
            return named[0]
        wanted = f"the revision {shown(asked.revision)}"
    raise Unreadable(
        f"{asked.name} is in the local Hugging Face cache, but {wanted} is not among its {len(there)} "
        f"snapshot{'s' if len(there) > 1 else ''}.",
        f"Name one of the folders in {model / 'snapshots'}.",
    )


def _holds_model(folder: Path) -> bool:
    """Whether a snapshot holds a config or weights, and not only, for example, a tokenizer."""
    for each in folder.iterdir():
        kind = next((kind for ending, kind in files.KINDS.items() if each.name.lower().endswith(ending)), None)
        weights = kind in files.CONTAINERS and not each.name.endswith(".json")
        if (weights or each.name in (*CONFIGS, PIPELINE)) and each.exists():
            return True
    return False


@contextmanager
def _refusal() -> Iterator[None]:
    """Say it in one sentence where the cache cannot be written."""
    try:
        yield
    except OSError as error:
        raise Unreadable(
            f"The cache {hub_folder()} cannot be written: {error.strerror or error}.",
            "Set HF_HUB_CACHE to a folder that can be written.",
        ) from None


@_refusal()
def keep(asked: HubName, commit: str, name: str, blob: str, data: bytes) -> Path:
    """Put one file of a model into the cache, as a download does, in one step: never a partial file.

    Args:
        asked: The model.
        commit: The commit that the file is of.
        name: Its path in the repository.
        blob: The hash of its content, by which the hub names it.
        data: Its content.

    Returns:
        Its path in the snapshot.

    Raises:
        Unreadable: The cache cannot be written.
    """
    model = _folder(asked)
    path = snapshots(asked) / commit / name
    content = model / "blobs" / blob
    path.parent.mkdir(parents=True, exist_ok=True)
    content.parent.mkdir(parents=True, exist_ok=True)
    if not content.exists():
        write(content, data)
    if not path.exists():
        with suppress(FileNotFoundError):
            path.unlink()  # a link whose content was deleted
        try:
            path.symlink_to(os.path.relpath(content, path.parent))
        except OSError:  # a file system without links: the library stores the file itself there
            write(path, data)
    return path


@_refusal()
def refer(asked: HubName, commit: str) -> None:
    """Record the commit of a branch or a tag; a revision that is itself a commit needs no record.

    Raises:
        Unreadable: The cache cannot be written.
    """
    revision = asked.revision or "main"
    if commit.startswith(revision):
        return
    reference = _folder(asked) / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    write(reference, commit.encode())


def write(path: Path, data: bytes) -> None:
    """Write a file in one step: never a partial file.

    Raises:
        OSError: It cannot be written.
    """
    unfinished = files.fresh_beside(path)
    try:
        unfinished.write_bytes(data)
        files.rename(unfinished, path, replace=True)
    finally:
        unfinished.unlink(missing_ok=True)
