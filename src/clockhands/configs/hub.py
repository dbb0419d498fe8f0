"""Reads a model on the Hugging Face Hub without downloading it: its configs, and the headers of its weights.

Configs are stored in the library's cache and checked against the hash from the hub, so that the next audit needs no
network; what cannot be checked is refused. Of the weights, the headers are fetched, and a few small tensors that
configs do not determine (``inv_freq``, ``rope_freqs``, relative biases): all as data, and never more than 20 MB. They
are stored too where all of them arrived, each from a file of the size that the hub lists.

Source: https://huggingface.co/docs/hub/api (what the hub lists of a model), and for the hashes of files Git (SHA-1 of a
blob) and Git LFS (SHA-256).
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar, cast

from clockhands.configs import kept_headers
from clockhands.configs.gguf_fields import FREQUENCIES, LISTS
from clockhands.configs.kept_headers import RemoteHeader, away, tensors_of
from clockhands.configs.opened import Opened
from clockhands.configs.openers import BESIDE, gguf_models, open_file, open_folder, opened_gguf, preferred
from clockhands.configs.weights import BUCKETS, RATES
from clockhands.encodings import memory
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.formats import arrays, documents, gguf, hub_cache, safetensors, shards
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.documents import CONFIGS
from clockhands.formats.files import leaves_folder
from clockhands.formats.hub_cache import PIPELINE, HubName
from clockhands.formats.transfers import WATCH, Growing, NotFetched, Transferred, Transfers, WholeFilesOnly, at_once
from clockhands.phrases import shown

LARGEST_TEXT = 5_000_000  # bytes of a config or of a list of files; a config with many labels has 3 MB
LARGEST_INDEX = 10_000_000  # a checkpoint with 92,000 tensors has an index of 9 MB

_FIRST = 2**15  # bytes of a header that are requested before its length is known
_LARGEST_GUESS = 2**17
_BLOCK = 2**20  # bytes of a GGUF header, which does not state its length: it is read to its end
_SMALL = 2**16  # bytes of a tensor that is itself fetched
_MOST_SMALL = 256

Done = TypeVar("Done")


@dataclass(frozen=True)
class _Remote:
    """A file of the repository; None for what the hub does not say about it."""

    name: str
    size: int | None
    blob: str | None


def fetched(asked: HubName, target: str) -> Opened:
    """Open a model, or a file or folder of its repository, with as few bytes as that takes.

    Args:
        asked: The name of the model.
        target: As the caller wrote it.

    Raises:
        Unreadable: The hub cannot be reached, does not have it or does not let it be read; the repository holds no
            model that can be read, or what it holds is damaged.
    """
    transfers = Transfers(asked)
    fetch = _Fetch(transfers, *_listed(transfers))
    return fetch.opened(target)


def _listed(transfers: Transfers) -> tuple[str, dict[str, _Remote]]:
    """The commit of a revision, and its files by name."""
    asked, where = transfers.asked, f"what {transfers.endpoint} lists of {transfers.asked}"
    fields = documents.parse(transfers.listing(LARGEST_TEXT), where, many=True).fields
    commit, listed = fields.get("sha"), fields.get("siblings")
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit) or not isinstance(listed, list):
        raise Unreadable(
            f"{where} names no commit with its files.", "Check that HF_ENDPOINT is the address of a Hugging Face hub."
        )
    if asked.revision is not None and re.fullmatch(r"[0-9a-f]{40}", asked.revision) and commit != asked.revision:
        raise Unreadable(
            f"{transfers.endpoint} answers with the commit {commit[:12]} of {asked.name}, not with "
            f"{asked.revision[:12]}.",
            "Check that HF_ENDPOINT is the address of a Hugging Face hub.",
        )
    files = {}
    for each in listed:
        name = each.get("rfilename") if isinstance(each, dict) else None
        if not isinstance(name, str) or not _is_inside(name):
            continue
        lfs = each.get("lfs")
        blob = lfs.get("sha256") if isinstance(lfs, dict) else each.get("blobId")
        size = each.get("size")
        hashed = isinstance(blob, str) and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", blob)
        files[name] = _Remote(name, size if type(size) is int and size >= 0 else None, blob if hashed else None)
    if not files:
        raise Unreadable(
            f"{asked} holds no files.", f"See {transfers.endpoint}/{asked.name} for what was meant to be there."
        )
    return commit, files


def _is_inside(name: str) -> bool:
    """Whether the name of a file can only lead into the folder where it is stored, and shows as what it is."""
    return bool(PurePosixPath(name).parts) and not leaves_folder(name) and ":" not in name and name.isprintable()


class _Fetch:
    """The files that are fetched from one commit."""

    def __init__(self, transfers: Transfers, commit: str, files: dict[str, _Remote]) -> None:
        self.transfers, self.commit, self.files = transfers, commit, files
        self.asked = transfers.asked
        self.folder = hub_cache.snapshots(self.asked) / commit
        self.texts: list[str] = []
        self.headers = 0
        self.tensors = 0
        self.notes: list[str] = []
        self.downloaded = False  # the weights before their config

    def opened(self, target: str) -> Opened:
        """The model, or the requested part of the repository."""
        part = self.asked.part
        if part is None:
            opened = self._model("", target)
        elif part in self.files:
            opened = self._file(part, target)
        elif any(name.startswith(f"{part}/") for name in self.files):
            opened = self._model(f"{part}/", target)
        else:
            raise Unreadable(
                f"{self.asked} has no file or folder {shown(part)}.",
                arrays.listed("It has", tuple(self.files)),
            )
        download = None if self.downloaded else self.asked.download
        return replace(opened, hub=download, notes=(self._said(), *opened.notes, *self.notes))

    def _said(self) -> str:
        counts = ((self.headers, "header"), (self.tensors, "small tensor"))
        what = [*self.texts, *(f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count)]
        return (
            f"read from {self.transfers.endpoint}/{self.asked.name} at revision {self.commit[:12]}: {', '.join(what)} "
            f"({memory.readable(self.transfers.received)} in all)."
        )

    def _watch(self, what: str) -> None:
        watch = WATCH.get()
        if watch is not None:
            watch(f"fetching {self.asked}: {what} ({memory.readable(self.transfers.received)})")

    # Configs

    def _model(self, under: str, target: str) -> Opened:
        """The model in a folder of the repository."""
        names = [name.removeprefix(under) for name in self.files if name.startswith(under)]
        names = sorted(name for name in names if "/" not in name)
        config = next((name for name in CONFIGS if name in names), None)
        if config is None:
            first = gguf_models(names)[1]
            if len(first) != 1:
                raise self._no_config(under, tuple(first))
            return self._gguf(under + first[0], target)
        contents = {config: self._content(under + config, LARGEST_TEXT)}
        for name in BESIDE:
            if name in names and name != config:
                try:
                    contents[name] = self._content(under + name, LARGEST_TEXT)
                except NotFetched as error:
                    self.notes.append(error.message)
        weights = [self.folder / under / name for name in names if name.endswith((".safetensors", ".bin"))]
        self.downloaded = any(path.exists() for path in weights)
        tensors = {} if self.downloaded else self._tensors(under, names)
        # Only now: a model is in the cache only when everything that is fetched of it is there.
        for name, content in contents.items():
            self._keep(under + name, content)
        hub_cache.refer(self.asked, self.commit)
        opened = open_folder(self.folder / under, target, weights=self.downloaded)
        return opened if self.downloaded else replace(opened, tensors=tensors)

    def _no_config(self, under: str, models: tuple[str, ...]) -> Unreadable:
        asked = self.asked
        if models:
            return Unreadable(
                f"{asked} has {len(models)} .gguf files and no config.json.",
                f"Name one as {asked}:FILE. " + arrays.listed("There are", tuple(under + name for name in models)),
            )
        folders = tuple(
            str(PurePosixPath(name).parent)
            for name in self.files
            if name.startswith(under) and name.endswith("/config.json")
        )
        what = "is a pipeline of several models" if under + PIPELINE in self.files else "has no config.json"
        if folders:
            return Unreadable(f"{asked} {what}.", f"Name one as {asked}:FOLDER. " + arrays.listed("There are", folders))
        return Unreadable(
            f"{asked} {what}, and no GGUF file.",
            arrays.listed("It has", tuple(self.files)) + f" Another revision is named as {asked.name}@REVISION.",
        )

    def _file(self, name: str, target: str) -> Opened:
        """One file of the repository."""
        place = PurePosixPath(name)
        under = "" if str(place.parent) == "." else f"{place.parent}/"
        if place.suffix == ".gguf":
            return self._gguf(name, target)
        if place.suffix == ".json":
            self._text(name, LARGEST_TEXT)
            hub_cache.refer(self.asked, self.commit)
            return open_file(self.folder / name, target, None)
        if place.suffix == ".safetensors":
            tensors = tensors_of(self.folder, None, {name: self._header(name)})
            self.headers += 1
            tensors = away(tensors, self.asked.download, self._small(tensors))
            opened = Opened(target, "safetensors", self.folder / name, tensors=tensors)
            config = next((each for each in CONFIGS if under + each in self.files), None)
            if config is None:
                return opened
            document = documents.read(self._text(under + config, LARGEST_TEXT), found=True)
            hub_cache.refer(self.asked, self.commit)
            return replace(opened, config=document.fields, config_name=config, duplicates=document.duplicates)
        raise Unreadable(
            f"{name} of {self.asked} is not fetched: only .json, .safetensors and .gguf files are.",
            f"Download the model: `{self.asked.download}`.",
        )

    def _text(self, name: str, largest: int) -> Path:
        """A file in the cache, fetched if it is not there yet."""
        return self._keep(name, self._content(name, largest))

    def _content(self, name: str, largest: int) -> bytes | None:
        """The content of a file; None if it is in the cache."""
        file = self.files[name]
        if (self.folder / name).exists():
            self.texts.append(f"{name} (cached)")
            return None
        if file.size is not None and file.size > largest:
            raise NotFetched(
                f"{name} of {self.asked} has {memory.readable(file.size)}, and at most {memory.readable(largest)} are "
                "fetched of it.",
                f"Download the model: `{self.asked.download}`.",
            )
        self._watch(name)
        answer = self.transfers.file(self.commit, name, largest if file.size is None else file.size)
        blob = file.blob or answer.blob
        if blob is None:
            raise Unreadable(
                f"{name} of {self.asked} cannot be checked: {self.transfers.endpoint} gives no hash for it.",
                f"Download the model: `{self.asked.download}`.",
            )
        if blob not in _hashes(answer.data):
            raise Unreadable(
                f"{name} of {self.asked} arrived damaged: {self.transfers.endpoint} gives another hash for it.",
                "Try again.",
            )
        self.texts.append(name)
        return answer.data

    def _keep(self, name: str, content: bytes | None) -> Path:
        if content is None:
            return self.folder / name
        return hub_cache.keep(self.asked, self.commit, name, self.files[name].blob or _hashes(content)[0], content)

    # Headers of weights

    def _tensors(self, under: str, names: list[str]) -> dict[str, TensorInfo]:
        """The tensors of a model, as far as headers of its weights could be fetched; notes describe the rest."""
        index = preferred(names, ".safetensors.index.json", "model.safetensors.index.json")
        file = preferred(names, ".safetensors", "model.safetensors")
        if index is None and file is None:
            weights = [name for name in names if name.endswith((".safetensors", ".gguf", ".bin", ".pt", ".pth"))]
            if weights:
                self.notes.append(f"No header is fetched of {arrays.listed('the weights', tuple(weights))}")
            if any(name.endswith((".safetensors", ".gguf")) for name in weights):
                self.notes.append(f"Name one as {self.asked}:FILE to have its header read.")
            return {}
        wanted = [file] if file and not index else []
        try:
            if index is not None:
                wanted = list(dict.fromkeys(shards.shard_of_each(self._text(under + index, LARGEST_INDEX)).values()))
        except NotFetched as error:
            self.notes.append(f"No header of the weights is fetched: {error.message}")
            return {}
        there = [name for name in wanted if under + name in self.files]
        headers = self._each(there, lambda name: self._header(under + name))
        if len(headers) < len(wanted):
            self.notes.append(
                f"The headers of {len(wanted) - len(headers)} of {len(wanted)} files of weights are not read."
            )
        self.headers += len(headers)
        tensors = tensors_of(self.folder / under, index, headers)
        missed = len(self.notes)
        held = self._small(tensors)
        # A part of them would be read offline as if the others held nothing of interest.
        if headers and len(headers) == len(wanted) and len(self.notes) == missed:
            kept_headers.keep(self.asked, self.folder / under, index, headers, held)
        return away(tensors, self.asked.download, held)

    def _header(self, name: str) -> RemoteHeader:
        """The header of a safetensors file."""
        answer = self._range(name, 0, self._guess)
        size = answer.total or 0
        length = safetensors.header_length(self.folder / name, answer.data[:32], size)
        text = answer.data[8 : 8 + length]
        if len(text) < length:
            text += self._range(name, 8 + len(text), length - len(text)).data
        self._guess = min(_LARGEST_GUESS, max(2**12, length + length // 8))
        return RemoteHeader(size, text)

    _guess = _FIRST

    def _range(self, name: str, start: int, count: int) -> Transferred:
        """Bytes of a file, which has as many as the hub lists, or as it said in its first answer."""
        answer, listed = self.transfers.range(self.commit, name, start, count), self.files[name].size
        if listed is None:
            self.files[name] = replace(self.files[name], size=answer.total)
        elif answer.total not in (None, listed):
            raise Unreadable(
                f"{self.transfers.endpoint} sends a part of a file of {answer.total:,} bytes as {name} of "
                f"{self.asked}, which has {listed:,}.",
                f"Try again, or download the model: `{self.asked.download}`.",
            )
        return replace(answer, total=self.files[name].size)

    def _gguf(self, name: str, target: str) -> Opened:
        """The header of a GGUF file, read on until its end is known."""
        self._watch(name)
        first = self._range(name, 0, _BLOCK)
        transfers = self.transfers
        file = Growing(first, lambda at, count: self._range(name, at, count).data, lambda: transfers.left)
        try:
            header = gguf.header_in(self.folder / name, cast("BinaryIO", file))
        except NotFetched as error:
            raise Unreadable(
                f"The header of {name} of {self.asked} is not fetched: {error.message}", error.hint
            ) from None
        self.headers += 1
        held = self._small(header.tensors, file.data)
        return opened_gguf(replace(header, tensors=away(header.tensors, self.asked.download, held)), target)

    # Small tensors

    def _small(self, tensors: dict[str, TensorInfo], start: bytes | bytearray = b"") -> dict[str, bytes]:
        """The bytes of the small tensors for positions; ``start`` is the beginning of the file, if it is one."""
        wanted = {name: info for name, info in tensors.items() if _says_of_positions(name) and _bytes(info) <= _SMALL}
        ends = {name: info.offset + _bytes(info) for name, info in wanted.items()}
        here = {
            name: bytes(start[info.offset : ends[name]]) for name, info in wanted.items() if ends[name] <= len(start)
        }
        missing = [name for name in wanted if name not in here][:_MOST_SMALL]
        found = self._each(missing, lambda name: self._numbers(wanted[name]))
        self.tensors += len(found)
        return here | found

    def _numbers(self, info: TensorInfo) -> bytes:
        count = _bytes(info)
        if not count:
            return b""
        name = info.file.relative_to(self.folder).as_posix()
        data = self._range(name, info.offset, count).data
        if len(data) < count:
            raise NotFetched(f"{name} ends inside {shown(info.name)}.", "Try again.")
        return data

    def _each(self, names: Iterable[str], work: Callable[[str], Done]) -> dict[str, Done]:
        """The result of ``work`` for each name, several at once; failures are left out, with the reason as a note.

        The first one runs alone, so that a hub that only sends whole files gets one request.
        """
        left = list(names)
        done: dict[str, Done] = {}
        reasons: dict[str, None] = {}
        whole = False
        for some in (left[:1], left[1:]):
            with closing(at_once(some, work)) as results:
                for name, made in results:
                    if isinstance(made, NotFetched):
                        reasons[made.message] = None
                        whole = whole or isinstance(made, WholeFilesOnly)
                    elif isinstance(made, Exception):
                        raise made
                    else:
                        done[name] = made
                    self._watch(f"{len(done)} of {len(left)} parts of the weights")
            if whole:
                break
        self.notes += list(reasons)[:1]
        return done


def _hashes(data: bytes) -> tuple[str, str]:
    """The hashes by which the hub may name a file: that of Git, and that of Git LFS."""
    git = hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False)
    return git.hexdigest(), hashlib.sha256(data).hexdigest()


def _says_of_positions(name: str) -> bool:
    """Whether a tensor holds numbers that configs do not determine."""
    return name in (FREQUENCIES, *LISTS.values()) or bool(RATES.search(name) or BUCKETS.search(name))


def _bytes(info: TensorInfo) -> int:
    """The size of a tensor in bytes; larger than any small one if its numbers cannot be read singly."""
    try:
        return info.elements * arrays.number_type(info).itemsize
    except ClockhandsError:
        return _SMALL + 1
