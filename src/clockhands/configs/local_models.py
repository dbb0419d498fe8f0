"""Opens models that Ollama or LM Studio stores on this machine, by the names that these programs use.

Ollama has a manifest for each model, ``manifests/HOST/NAMESPACE/MODEL/TAG``, which lists layers by the hash of their
content; the layer of the weights is a GGUF file among the ``blobs``. LM Studio keeps files as ``PUBLISHER/MODEL/FILE``.

Source: https://docs.ollama.com/faq (where models are stored),
https://github.com/ollama/ollama/blob/main/docs/modelfile.mdx (``num_ctx``) and ``manifest/manifest.go`` there (the
layers); https://lmstudio.ai/docs/app/advanced/import-model.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

from clockhands.configs.opened import Opened
from clockhands.configs.openers import gguf_models, open_file, open_folder, open_gguf
from clockhands.errors import Unreadable
from clockhands.formats import arrays, documents, files
from clockhands.phrases import did_you_mean, shown

PREFIXES = ("ollama:", "lmstudio:")
"""What the name of such a model begins with."""

_MODEL, _PARAMETERS = (f"application/vnd.ollama.image.{kind}" for kind in ("model", "params"))
_WORD = r"[\w-][\w.-]*"
_OLLAMA = re.compile(
    rf"(?:(?:(?P<host>{_WORD})/)?(?P<space>{_WORD})/)?(?P<model>{_WORD})(?::(?P<tag>{_WORD}))?", re.ASCII
)
_LM_STUDIO = re.compile(rf"{_WORD}/{_WORD}(?:/(?P<file>[\w-][\w.+ -]*))?", re.ASCII)


def open_local(text: str) -> Opened:
    """Open ``ollama:[[HOST/]NAMESPACE/]MODEL[:TAG]`` or ``lmstudio:PUBLISHER/MODEL[/FILE]``.

    Raises:
        Unreadable: The program has no model of this name here, or its files cannot be read.
    """
    if text.startswith("lmstudio:"):
        return _open_lm_studio(text)
    manifest = _manifest(text)
    layers = _layers(manifest, text)
    blob = _blob(layers, text)
    opened = open_gguf(blob, text)
    length, said = _parameters(layers)
    return replace(opened, length=length, notes=(f"{text} is read from {blob}.", *said, *opened.notes))


def local_path(text: str) -> Path | None:
    """The file or folder that ``open_local`` reads; None if there is none."""
    try:
        if text.startswith("lmstudio:"):
            return _lm_studio_path(text)
        manifest = _manifest(text)
        return _blob(_layers(manifest, text), text)
    except Unreadable:
        return None


# Ollama


def ollama_folders() -> list[Path]:
    """Possible folders of Ollama's models: the user's setting, else the homes of user and service on Linux."""
    if os.environ.get("OLLAMA_MODELS"):
        return [Path(os.environ["OLLAMA_MODELS"]).expanduser()]
    return [Path("~/.ollama/models").expanduser(), Path("/usr/share/ollama/.ollama/models")]


def _manifest(text: str) -> Path:
    """The manifest of a model."""
    found = _OLLAMA.fullmatch(text.removeprefix("ollama:"))
    if found is None:
        raise Unreadable(f"{shown(text)} is not the name of a model of Ollama.", "Write it as `ollama list` does.")
    place = Path(
        "manifests",
        found["host"] or "registry.ollama.ai",
        found["space"] or "library",
        found["model"],
        found["tag"] or "latest",
    )
    folders = ollama_folders()
    for folder in folders:
        if files.place(folder / place) == "file":
            return folder / place
    names = sorted({name for folder in folders for name in _ollama_names(folder)})
    raise _absent(text, "Ollama", folders, names)


def _ollama_names(folder: Path) -> list[str]:
    """The models in a folder of Ollama, with the names of `ollama list`."""
    found = []
    for manifest in (folder / "manifests").glob("*/*/*/*"):
        host, space, model, tag = manifest.parts[-4:]
        parts = [part for part, usual in ((host, "registry.ollama.ai"), (space, "library")) if part != usual]
        found.append(f"ollama:{'/'.join([*parts, model])}:{tag}")
    return found


def _layers(manifest: Path, text: str) -> dict[str, Path]:
    """The blob of the first layer of each kind."""
    layers = documents.read(manifest, found=True).fields.get("layers")
    found: dict[str, Path] = {}
    for layer in layers if isinstance(layers, list) else ():
        kind, digest = (layer.get("mediaType"), layer.get("digest")) if isinstance(layer, dict) else (None, None)
        if isinstance(kind, str) and isinstance(digest, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            found.setdefault(kind, manifest.parents[4] / "blobs" / digest.replace(":", "-"))
    if _MODEL not in found:
        raise Unreadable(
            f"The manifest of {text} names no GGUF file ({manifest}).",
            "Only models in GGUF files are read.",
        )
    return found


def _blob(layers: dict[str, Path], text: str) -> Path:
    blob = layers[_MODEL]
    if files.place(blob) is None:
        raise Unreadable(
            f"Ollama lists {text}, but its file {blob} is not there.",
            f"Download it again: `ollama pull {text.removeprefix('ollama:')}`.",
        )
    return blob


def _parameters(layers: dict[str, Path]) -> tuple[int | None, list[str]]:
    """The length that the parameters of the model set, and notes on them."""
    blob = layers.get(_PARAMETERS)
    if blob is None:
        return None, []
    try:
        length = documents.read(blob, found=True).fields.get("num_ctx")
    except Unreadable as error:
        return None, [f"Its parameters are not examined: {error.message}"]
    if type(length) is not int or length < 1:
        return None, []
    return length, [f"Ollama runs it with num_ctx {length:,}, the length that is audited."]


# LM Studio


def _lm_studio_folders() -> list[Path]:
    return [Path(folder).expanduser() for folder in ("~/.lmstudio/models", "~/.cache/lm-studio/models")]


def _lm_studio_path(text: str) -> Path:
    name = text.removeprefix("lmstudio:")
    if not _LM_STUDIO.fullmatch(name):
        raise Unreadable(
            f"{shown(text)} is not the name of a model of LM Studio.", "Write it as lmstudio:PUBLISHER/MODEL[/FILE]."
        )
    folders = _lm_studio_folders()
    for folder in folders:
        if files.place(folder / name) is not None:
            return folder / name
    names = sorted(
        f"lmstudio:{each.parent.name}/{each.name}" for folder in folders for each in folder.glob("*/*") if each.is_dir()
    )
    raise _absent(text, "LM Studio", folders, names)


def _open_lm_studio(text: str) -> Opened:
    path = _lm_studio_path(text)
    if files.place(path) == "folder":
        models = gguf_models(sorted(each.name for each in path.iterdir()))[1]
        if len(models) > 1 and files.place(path / "config.json") is None:
            raise Unreadable(
                f"{text} has {len(models)} .gguf files.",
                f"Name one as {text}/FILE. " + arrays.listed("There are", tuple(models)),
            )
        opened = open_folder(path, text)
    else:
        opened = open_file(path, text, None)
    return replace(opened, notes=(f"{text} is read from {opened.path}.", *opened.notes))


def _absent(text: str, program: str, folders: list[Path], names: list[str]) -> Unreadable:
    there = arrays.listed("There are", tuple(names)) if names else f"It keeps none in {' or '.join(map(str, folders))}."
    return Unreadable(
        f"{text} is not among the models that {program} keeps on this machine.",
        f"{did_you_mean(text, names)} {there}".lstrip(),
    )
