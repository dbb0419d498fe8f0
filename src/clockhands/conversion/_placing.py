"""Safe writing of results: files get their final names only when complete, and nothing is overwritten by accident.

Files are first written to a temporary folder, inside the output folder if it exists, else next to it. Giving them their
final names is then a rename, which copies no data and needs no space. Where files of a folder are replaced, the new
folder gets links to the other files of the old one, and the two folders exchange their names: a loader finds the old
files or the new ones, whenever the conversion is killed. A killed conversion leaves the temporary folder behind; a
later one reports it and does not touch it.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from clockhands.errors import InvalidValue
from clockhands.formats import files
from clockhands.formats.shards import out_of_folder
from clockhands.phrases import some_of

WEIGHTS, INDEX = ".safetensors", ".safetensors.index.json"

# Files that are copied with the weights. There are too many weight formats to list, and each keeps its old layout:
# so the files to copy are listed, and all others are named in the notes. Tokenizers: .model and .spm (SentencePiece),
# .tiktoken, .vocab, .bpe and .codes; .jinja are chat templates.
ENDINGS = frozenset([
    ".json", ".jsonl", ".txt", ".model", ".spm", ".tiktoken", ".vocab", ".bpe", ".codes", ".jinja", ".jinja2", ".md",
    ".rst", ".py", ".yaml", ".yml", ".toml",
])  # fmt: skip
NAMES = frozenset(["license", "licence", "notice", "readme", "copying", "authors", "version", ".gitattributes"])
# Weights begin with these whatever their names say; a text or a SentencePiece model never does.
_WEIGHTS = frozenset(["gguf", "npy", "npz", "pickle"])

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{8}\.unfinished", re.DOTALL)
_ASIDE = re.compile(r"\..*\.[0-9a-f]{8}\.replaced", re.DOTALL)


def check_out(out: Path, sources: Collection[Path], is_folder: bool, makes: Collection[str], force: bool) -> None:
    """Refuse an output path over source files, over existing files, or next to weights that a loader may load instead.

    Args:
        out: The output path as the caller wrote it.
        sources: The source files, which must not be overwritten.
        is_folder: Whether the result is a folder.
        makes: Names of the files that the folder will have.
        force: Whether existing files may be replaced.

    Raises:
        InvalidValue: The path is refused, or nothing can be written there.
    """
    is_file = out.name.lower().endswith(WEIGHTS)
    if is_folder and is_file:
        raise InvalidValue(f"{out} is the name of a file, but a folder is converted.", "Name a folder for the result.")
    if not is_folder and not is_file:
        raise InvalidValue(
            f"{out} does not end in .safetensors, but a single file is converted.",
            "Name a .safetensors file for the result.",
        )
    _check_way(out)
    _recover(out)
    targets = [out / name for name in makes] if is_folder else [out]
    folders = {source.parent for source in sources}
    if any(_same(target, source) for target in targets for source in sources) or (
        is_folder and any(_same(out, folder) for folder in folders)
    ):
        raise InvalidValue(
            f"{out} is also the input, which would be lost if the conversion failed.", "Name another output."
        )
    found = [each.name for each in out.iterdir() if not is_unfinished(each.name)] if out.is_dir() else []
    there = out.exists() and (not is_folder or not out.is_dir() or bool(found))
    if there and (not force or out.is_dir() != is_folder):
        raise InvalidValue(f"{out} is already there.", "Give another name, or `--force` to replace its files.")
    folder = next((target for target in targets if target.is_dir()), None)
    if folder is not None:
        raise InvalidValue(
            f"{folder} is a folder, but a file must be written there.", "Remove it, or name another output."
        )
    if is_folder and any(os.path.lexists(target) for target in targets):
        _check_replaceable(out)
    # Replacing files is not removing others, and no rule says which of two sets of weights a loader takes.
    beside = sorted(name for name in found if name.lower().endswith((WEIGHTS, INDEX)) and name not in makes)
    if beside:
        raise InvalidValue(
            f"{out} holds {some_of(beside)}, which would stay next to the new weights; a loader could use the old"
            " ones.",
            "Remove the files that you no longer need, or name another folder.",
        )


def _check_replaceable(out: Path) -> None:
    """Refuse a folder whose place no other folder can take: its files could only be replaced one after the other."""
    place = Path(os.path.realpath(out))
    here = Path.cwd()
    if place == here or place in here.parents:
        why, hint = "the current folder is in it", "Run the command in another folder."
    elif os.path.ismount(place):
        why, hint = "another file system is mounted there", "Name a folder inside it."
    elif not os.access(place.parent, os.W_OK):
        why, hint = f"{place.parent} may not be written", "Get permission to write there, or name another output."
    else:
        return
    raise InvalidValue(
        f"The files of {out} cannot be replaced all at once, since {why}.", f"{hint} Or remove the old files first."
    )


def _recover(out: Path) -> None:
    """Give a folder its name back that a conversion was replacing when it was killed.

    Only where the system cannot exchange two names, and only if nothing has taken the name since.
    """
    place = Path(os.path.realpath(out))
    if not os.path.lexists(place):
        with suppress(OSError):
            for aside in sorted(each for each in place.parent.iterdir() if _is_aside(each.name, place))[:1]:
                aside.rename(place)


def _is_aside(name: str, out: Path) -> bool:
    return name.startswith(_prefix(out)) and _ASIDE.fullmatch(name) is not None


def _check_way(out: Path) -> None:
    """Refuse a broken link, a file in place of a folder, and an invalid file name."""
    for place in (out, *out.parents):
        kind, target = files.place(place), files.link_target(place)
        if kind is None and target is not None:
            raise InvalidValue(
                f"{place} is a link to {target}, which does not exist.",
                "Create the target of the link, or remove the link.",
            )
        if kind == "file" and place != out:
            raise InvalidValue(f"{place} is a file, so it cannot contain the output.", "Name another output.")
    try:
        _look(out)
    except (OSError, ValueError) as error:  # too long, not to be looked at, or with a zero in it
        raise _unwritable(out, error) from None


def _look(place: Path) -> None:
    try:
        place.lstat()
    except FileNotFoundError:
        return


def _unwritable(out: Path, error: OSError | ValueError) -> InvalidValue:
    return InvalidValue(
        f"{out} cannot be written: {getattr(error, 'strerror', None) or error}.",
        "Name another output, or get permission to write there.",
    )


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there
        return False


def is_unfinished(name: str) -> bool:
    """Whether a folder of this name is the temporary folder of a conversion.

    >>> is_unfinished(".out.0f3a99c1.unfinished"), is_unfinished("out")
    (True, False)
    """
    return _UNFINISHED.fullmatch(name) is not None


def whole(out: Path, only: str | None, fill: Callable[[Path], None], *, force: bool) -> tuple[Path, ...]:
    """Write files to a temporary folder and give them their final names when all are complete.

    Args:
        out: The output path, which has passed ``check_out``.
        only: The temporary name of the single file that becomes ``out``; None if ``out`` is a folder.
        fill: A function that writes all files into a given folder.
        force: Whether existing files may be replaced, including those that appeared after ``check_out``.

    Returns:
        The files that were written; those that refer to others come last.

    Raises:
        InvalidValue: Nothing can be written there, or a file has appeared in the meantime.
    """
    # "." and ".." have no name to which something could be added; behind a link ".." is not what it seems.
    out = out.resolve() if out.name in ("", "..") or out.is_dir() else out.parent.resolve() / out.name
    made_parents = [each for each in (out, *out.parents)[1:] if not each.exists()]
    new = only is None and not out.exists()
    unfinished = (out.parent if new or only is not None else out) / f"{_prefix(out)}{secrets.token_hex(4)}.unfinished"
    try:
        unfinished.mkdir(parents=True)
        _look(out)  # the names in a folder that was not there may be shorter: better known now than in an hour
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        _remove_empty(made_parents)
        raise _unwritable(out, error) from None
    done = False
    try:
        fill(unfinished)
        made = sorted(unfinished.iterdir(), key=lambda file: file.name.endswith(".json"))
        for each in (*made, unfinished):  # a rename may reach the disk before the content does
            files.sync(each)
        if new:
            places = _renamed(unfinished, out, made)
        elif only is None and force and any(os.path.lexists(out / file.name) for file in made):
            unfinished = unfinished.rename(out.with_name(unfinished.name))
            places = _swapped(unfinished, out, [file.name for file in made])
        else:
            places = _named(made, out, only, force=force)
        done = True
        return tuple(places)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not done:
            _remove_empty(made_parents)


def _renamed(unfinished: Path, out: Path, made: list[Path]) -> list[Path]:
    try:
        unfinished.rename(out)  # all files at once
    except OSError:
        if not os.path.lexists(out):
            raise
        raise _appeared(out) from None
    return [out / file.name for file in made]


def _appeared(place: Path) -> InvalidValue:
    return InvalidValue(
        f"{place} is already there: it was created during the conversion.",
        "Give another name, or `--force` to replace its files.",
    )


def _swapped(unfinished: Path, out: Path, made: list[str]) -> list[Path]:
    """Put the new folder in the place of the old one, with everything of the old one that is not replaced."""
    shutil.copytree(
        out,
        unfinished,
        symlinks=True,
        ignore=lambda folder, _: made if Path(folder) == out else (),
        copy_function=_linked,
        dirs_exist_ok=True,
    )
    with suppress(OSError, AttributeError):  # who may not give files away, and Windows, have no other owner
        was = out.stat()
        os.chown(unfinished, was.st_uid, was.st_gid)
    files.sync(unfinished)
    files.swap(unfinished, out, unfinished.with_suffix(".replaced"))
    _bring(unfinished, out)
    return [out / name for name in made]


def _bring(old: Path, new: Path) -> None:
    """Move what came into the old folder after it was linked."""
    for each in sorted(old.iterdir()):
        place = new / each.name
        if not os.path.lexists(place):
            each.rename(place)
        elif each.is_dir() and not each.is_symlink():
            _bring(each, place)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copy2(source, target, follow_symlinks=False)


def _named(made: list[Path], out: Path, only: str | None, *, force: bool) -> list[Path]:
    """Name files one by one; of those that are named, all or none stay."""
    if only is None:
        places = {file: out / file.name for file in made}
    else:
        places = {file: out if file.name == only else out.with_name(file.name) for file in made}
        # A config that is there may describe another model, or the one that was read.
        places = {file: place for file, place in places.items() if place == out or not place.exists()}
    done: list[tuple[Path, Path | None]] = []
    try:
        for file, place in places.items():
            kept = file.with_name(f"{file.name}.replaced") if os.path.lexists(place) else None
            if kept is not None:
                with suppress(OSError):  # a file system without links
                    os.link(place, kept, follow_symlinks=False)
            try:
                files.rename(file, place, replace=force)
            except FileExistsError:
                raise _appeared(place) from None
            done.append((place, kept))
    except BaseException:
        for place, kept in reversed(done):
            if kept is None:
                place.unlink()
            elif os.path.lexists(kept):
                kept.replace(place)
        raise
    return [place for place, _ in done]


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders that were created for a failed result, innermost first."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # it was not made, or somebody uses it by now
            return


def interrupted(out: Path) -> tuple[str, ...]:
    """A note for each temporary folder of another conversion to the same path, finished or still running."""
    out = Path(os.path.realpath(out))
    try:
        found = [*out.parent.iterdir(), *(out.iterdir() if out.is_dir() else ())]
    except OSError:  # what may not be listed may still be written to
        return ()
    return tuple(
        f"{each} is of a conversion that is still running or was killed; if it was, remove it."
        for each in sorted(found)
        if is_unfinished(each.name) and each.name.startswith(_prefix(out))
    )


def _prefix(out: Path) -> str:
    return f".{out.name[:50]}."  # a name has at most 255 bytes, and a character up to four


def companions(folder: Path, written: set[str]) -> tuple[list[Path], list[str]]:
    """The files of a folder that are copied with the weights, and the names of the others.

    Args:
        folder: The folder that is converted.
        written: Names of the files that the conversion reads or writes.
    """
    along, left = [], []
    for path in sorted(folder.iterdir()):
        if path.name in written or is_unfinished(path.name):
            continue
        if out_of_folder(path) is not None:
            left.append(f"{path.name} (a link out of the folder)")
        elif path.is_file() and _goes_along(path):
            along.append(path)
        else:
            left.append(path.name + ("/" if path.is_dir() else ""))
    return along, left


def _goes_along(file: Path) -> bool:
    name = file.name.lower()
    # An index of weights that are left would name files that are not there.
    if name.endswith(".index.json") or (file.suffix.lower() not in ENDINGS and name not in NAMES):
        return False
    found = files.signature(files.head(file))
    return found is None or found[0] not in _WEIGHTS
