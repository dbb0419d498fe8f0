"""`convert`, which rewrites a checkpoint in the other layout: its files, their order, and their metadata.

A converted checkpoint needs code that pairs channels in the new layout, and records this in two places. The metadata of
every tensor file gets ``clockhands.layout`` (the new layout) and ``clockhands.layout_from`` (the old one); converting
back removes both. In config.json the key of the model class is set if it has one (``rope_interleave`` of DeepSeek-V3);
otherwise the layout is written under ``clockhands_layout`` while it differs from that of the class. Transformers
ignores unknown keys and pairs channels as its class does, so the result includes a note for the caller.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clockhands.configs.rotary_fields import LAYOUT_KEY
from clockhands.configs.targets import Opened, open_target
from clockhands.conversion._placing import INDEX, check_out, companions, interrupted, whole
from clockhands.conversion._planning import CannotConvert, Move, RotaryModel, model_of, moves
from clockhands.conversion._writing import write
from clockhands.encodings.layouts import Layout, layout_of
from clockhands.errors import Unreadable
from clockhands.formats import documents, files, safetensors
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.shards import LAYOUT_NOTE, WeightsHeader, out_of_folder
from clockhands.phrases import shown, some_of

FROM_NOTE = "clockhands.layout_from"

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"


@dataclass(frozen=True)
class Converted:
    """The result of a conversion.

    Attributes:
        from_: The layout of the source.
        layout: The layout of the result.
        because: How the layout of the source is known.
        moved: Names of the reordered tensors.
        kept: Number of tensors that were copied unchanged.
        files: The files that were written.
        notes: Notes for the user about the result.
    """

    from_: Layout
    layout: Layout
    because: str
    moved: tuple[str, ...]
    kept: int
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "from": self.from_,
            "layout": self.layout,
            "because": self.because,
            "moved": list(self.moved),
            "kept": self.kept,
            "files": [str(file) for file in self.files],
        }


@dataclass(frozen=True)
class _Source:
    """The files of a checkpoint."""

    opened: Opened
    folder: Path
    shards: tuple[WeightsHeader, ...]
    index: Path | None

    @property
    def is_folder(self) -> bool:
        """Whether the result is a folder: there are several files, or the source was given as a folder."""
        return self.index is not None or (self.opened.path or self.folder).is_dir()

    def makes(self) -> set[str]:
        """Names of the files that are written: tensor files, their index, and the configs next to them."""
        names = {header.path.name for header in self.shards}
        if self.index is not None:
            names.add(self.index.name)
        configs = (CONFIG, ADAPTER_CONFIG) if self.is_folder else (CONFIG,)
        return names | {name for name in configs if files.place(self.folder / name) == "file"}


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    layout: Layout,
    *,
    from_: Layout | None = None,
    only: Literal["q", "k"] | None = None,
    config: str | os.PathLike[str] | None = None,
    force: bool = False,
    others: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Converted:
    """Write a checkpoint with its queries and keys in the other layout.

    Tensors indexed by a channel of a query or key are reordered head by head (see `clockhands.conversion.row_order`);
    all others are copied bit for bit. A tensor that cannot be converted exactly is refused by name before anything is
    written, and files get their final names only when all are complete.

    Args:
        source: A model folder, a .safetensors file or an index of shards, or another target that names one.
        out: Path of the result: a file if the source is a file, else a folder. Missing parent folders are created.
        layout: ``"halves"`` or ``"interleaved"``.
        from_: The present layout, if it differs from what the files and their model type say.
        only: ``"q"`` or ``"k"`` if the weights of the other one have ``layout`` already: to repair a checkpoint, so
            ``layout`` must be the one that the files declare, and ``from_`` is needed.
        config: The config.json of the model, if there is none next to the weights: for an adapter, that of its base
            model.
        force: Whether existing files may be replaced; no file is ever removed.
        others: Whether other files of the folder (tokenizers, texts, code) are copied too. Possible weight files are
            not copied; the notes name them.
        progress: Called with a message for each step.

    Raises:
        CannotConvert: There is nothing to convert, or a tensor is unknown or cannot be converted exactly.
        InvalidValue: A layout is unknown, or ``out`` exists, has other weights next to it, or cannot be written.
        Unreadable: A file cannot be read.
        OSError: A file cannot be written.
    """
    layout = layout_of(layout)
    read = _read(source)
    found = _config(read, config)
    model = model_of(found.fields, Path(found.where).name)
    before, because = _layout_now(read, model, None if from_ is None else layout_of(from_))
    if before == layout:
        raise CannotConvert(
            f"{read.opened.target} is in the layout {layout} already ({because}).",
            f"If its rows have another order, pass --from {'halves' if layout == 'interleaved' else 'interleaved'} "
            "(from_= in Python).",
        )
    if only is not None and (only not in ("q", "k") or from_ is None or _layout_now(read, model, None)[0] != layout):
        raise CannotConvert(
            f"only={shown(only)} is for a checkpoint whose other side has the declared layout, which `layout` must be.",
            "Pass q or k, the layout that the files declare, and --from (from_= in Python).",
        )
    target = Path(out)
    makes = read.makes()
    _refuse_links(read, makes)
    along, left = companions(read.folder, makes) if others and read.is_folder else ([], [])
    check_out(target, [header.path for header in read.shards], read.is_folder, makes, force)
    tensors = _tensors(read)
    planned = moves(tensors, model, only)
    written = whole(
        target,
        None if read.is_folder else read.shards[0].path.name,
        lambda folder: _fill(folder, read, model, planned, before, layout, along, progress),
        force=force,
    )
    notes = read.opened.notes + interrupted(target)
    if left:
        notes += (f"Only tokenizers, texts and code are copied too; left where they are: {some_of(left)}.",)
    says = CONFIG in {path.name for path in written}
    if not says and files.place(read.folder / CONFIG) == "file":
        notes += (f"{target.parent / CONFIG} was there already and is left as it is: it does not know of the layout.",)
    others_stay = sorted({each for name in tensors for each in model.around if each in name.split(".")})
    if others_stay:
        notes += (f"Tensors of {', '.join(others_stay)} are not of the text model and stay as their class pairs them.",)
    if layout != model.layout and not (model.tensors.switch and says):
        notes += (
            f"A {model.tensors.name} pairs {model.layout or before} in Transformers, which reads no other layout:"
            f" {target} is for code that pairs {layout}.",
        )
    return Converted(before, layout, because, tuple(planned), len(tensors) - len(planned), written, notes)


def _read(source: str | os.PathLike[str]) -> _Source:
    opened = open_target(source)
    if opened.hub is not None:
        raise CannotConvert(
            f"{opened.target} is not on this machine, only its headers were fetched.",
            f"Download the model: `{opened.hub}`.",
        )
    if opened.form not in ("config", "safetensors") or opened.path is None:
        raise CannotConvert(
            f"{opened.target} is no checkpoint in safetensors files.", "Name a model folder or a .safetensors file."
        )
    path = opened.path
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir() if each.name.endswith(INDEX))
        usual = f"model{INDEX}"
        index = path / (usual if usual in names else names[0]) if usual in names or len(names) == 1 else None
    else:
        index = path if path.name.endswith(".json") else None
    if path.is_file() and index is not None and not index.name.endswith(INDEX):
        raise CannotConvert(f"{opened.target} is a config, which holds no tensors.", "Name the model folder.")
    if index is not None:
        listed = safetensors.read_index(index)
        shards = dict.fromkeys(info.file for info in listed.tensors.values())
        return _Source(opened, index.parent, tuple(map(safetensors.read_header, shards)), index)
    shards = dict.fromkeys(info.file for info in opened.tensors.values())
    if not shards or any(files.kind(file) != "safetensors" for file in shards):
        raise CannotConvert(
            f"{opened.target} holds no tensors in safetensors files.",
            "Name the .safetensors file, or save the weights as one.",
        )
    return _Source(opened, path if path.is_dir() else path.parent, tuple(map(safetensors.read_header, shards)), None)


def _refuse_links(read: _Source, names: Iterable[str]) -> None:
    """Refuse a file that was found rather than named, and is a link out of the model folder: it would be copied."""
    for file in sorted({read.folder / name for name in names} | {header.path for header in read.shards}):
        target = None if file == read.opened.path else out_of_folder(file)
        if target is not None:
            raise CannotConvert(
                f"{file} is a link out of the model folder, to {target}.",
                "Copy the file into the folder if it belongs to the model, or name the folder that holds it.",
            )


def _tensors(read: _Source) -> dict[str, TensorInfo]:
    """Every tensor of all files, each in one of them."""
    tensors: dict[str, TensorInfo] = {}
    for header in read.shards:
        for name, info in header.tensors.items():
            if name in tensors:
                raise CannotConvert(
                    f"{shown(name)} is in both {tensors[name].file.name} and {info.file.name}.",
                    "Save the model again with each tensor in one file.",
                )
            tensors[name] = info
    return tensors


def _config(read: _Source, config: str | os.PathLike[str] | None) -> documents.Document:
    if config is not None:
        path = Path(config)
        return documents.read(path / CONFIG if path.is_dir() else path)
    if read.opened.config is None:
        raise CannotConvert(
            f"No {CONFIG} is in the folder of the tensors of {read.opened.target}, so their heads are not known.",
            f"Name the {CONFIG} of the model, or of an adapter's base model, with --config.",
        )
    return documents.Document(read.opened.config_name or CONFIG, read.opened.config)


def _layout_now(read: _Source, model: RotaryModel, told: Layout | None) -> tuple[Layout, str]:
    """The present layout and its source: the caller, an earlier conversion, or the model type."""
    if told is not None:
        return told, "as the caller says"
    noted = {header.metadata.get(LAYOUT_NOTE) for header in read.shards}
    if noted != {None}:
        if len(noted) > 1 or not noted <= {"interleaved", "halves"}:
            layouts = ", ".join(sorted("none" if each is None else shown(each) for each in noted))
            raise CannotConvert(
                f"The files of {read.opened.target} say different layouts in their metadata: {layouts}.",
                "They are of different conversions: convert the original again.",
            )
        return layout_of(noted.pop()), f"{LAYOUT_NOTE} in the metadata"
    if model.said is not None:
        return model.said, f"{model.file}:{model.section.path}{LAYOUT_KEY}"
    said = model.section.values.get(LAYOUT_KEY)
    if said is not None:
        raise CannotConvert(
            f"{model.file}:{model.section.path}{LAYOUT_KEY} is {shown(said)}, which is no layout.",
            'Correct it to "halves" or "interleaved", or pass the order of the rows with --from.',
        )
    if model.layout is None:
        raise CannotConvert(
            f"The layout of {model.tensors.name} is not known.", "Pass the order of its rows with --from."
        )
    return model.layout, model.because


def _fill(  # noqa: PLR0917 - the steps of one conversion
    folder: Path,
    read: _Source,
    model: RotaryModel,
    planned: Mapping[str, Move],
    before: Layout,
    layout: Layout,
    others: Sequence[Path],
    progress: Callable[[str], None],
) -> None:
    for number, header in enumerate(read.shards, start=1):
        if len(read.shards) > 1:
            progress(f"{header.path.name} ({number} of {len(read.shards)})")
        orders = {
            name: (planned[name].order(before, layout), planned[name].width)
            for name in header.tensors
            if name in planned
        }
        write(folder / header.path.name, header, _noted(header.metadata, before, layout), orders)
    if read.index is not None:
        shutil.copyfile(read.index, folder / read.index.name)
    config = read.folder / CONFIG
    if files.place(config) == "file":
        text = json.dumps(_config_with_layout(documents.read(config).fields, model, layout), indent=2)
        (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    adapter = folder / ADAPTER_CONFIG
    # An index may give any name to a shard.
    if read.is_folder and files.place(read.folder / ADAPTER_CONFIG) == "file" and not adapter.exists():
        shutil.copyfile(read.folder / ADAPTER_CONFIG, adapter)
    for file in others:
        shutil.copyfile(file, folder / file.name)


def _noted(metadata: Mapping[str, str], before: Layout, layout: Layout) -> dict[str, str]:
    """The metadata with the layout added; converting back restores the original metadata."""
    rest = {key: value for key, value in metadata.items() if key not in (LAYOUT_NOTE, FROM_NOTE)}
    if metadata.get(LAYOUT_NOTE) == before and metadata.get(FROM_NOTE) == layout:
        return rest
    return {**rest, LAYOUT_NOTE: layout, FROM_NOTE: before}


def _config_with_layout(config: Mapping[str, Any], model: RotaryModel, layout: Layout) -> dict[str, Any]:
    """The config with the layout added in the section of the text model."""
    if not model.section.path:
        return _with_layout(config, model, layout)
    key, _, rest = model.section.path.partition(".")
    if rest or not isinstance(config.get(key), Mapping):
        raise Unreadable(
            f"{CONFIG} does not have the section `{model.section.path}` of the file given as --config.",
            "Leave --config out.",
        )
    return {**config, key: _with_layout(config[key], model, layout)}


def _with_layout(values: Mapping[str, Any], model: RotaryModel, layout: Layout) -> dict[str, Any]:
    switch = model.tensors.switch
    if switch is not None:
        return {**values, switch["key"]: switch[layout]}
    rest = {key: value for key, value in values.items() if key != LAYOUT_KEY}
    return rest if layout == model.layout else {**rest, LAYOUT_KEY: layout}
