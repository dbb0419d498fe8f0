"""Encodings of the user's own in a study: ``code = { python = "my_codes.py:Mine" }``, and the code of their files.

When a study is read from its file, the text of each file that it names is added to the text of the study, in the table
``sources``. So the identity of a study covers this code, a store keeps it, and each worker gets it.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.configs.callables import IN_FILE, text_of_file
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

SOURCES = "sources"
"""The table of the code of encodings of the user's own, by file."""


def with_sources(text: str, data: Mapping[str, Any], folder: Path) -> str:
    """The text of a study, followed by the code of the files that it names.

    Args:
        text: The study file.
        data: The same, parsed.
        folder: Where the files are.

    Raises:
        Unreadable: A file cannot be read.
        InvalidValue: ``python`` does not name an encoding in a file, or a file imports another one beside it.
    """
    files = dict.fromkeys(file_of(each) for each in own_codes(data.get("arms", {})))
    found = {file: text_of_file(folder / file) for file in files if file not in data.get(SOURCES, {})}
    if not found:
        return text
    for file, source in found.items():
        _refuse_helpers(folder / file, source)
    rows = [f"{json.dumps(file)} = {json.dumps(source, ensure_ascii=False)}" for file, source in found.items()]
    return "\n".join([text.rstrip(), "", f"[{SOURCES}]", *rows, ""]).replace("\x7f", "\\u007F")


def _refuse_helpers(path: Path, source: str) -> None:
    """Refuse code that imports files beside it: they would be no part of the study."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return  # told when it is run
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    for each in imports:
        names = [each.module or "."] if isinstance(each, ast.ImportFrom) else [one.name for one in each.names]
        for name in names:
            top = path.parent / name.partition(".")[0]
            if (isinstance(each, ast.ImportFrom) and each.level) or top.with_suffix(".py").is_file() or top.is_dir():
                raise InvalidValue(
                    f"{path} imports {name} from beside it, which would be no part of the study.",
                    "Put the code of an encoding into one file, or install what it imports.",
                )


def add_sources(data: Mapping[str, Any]) -> None:
    """Put the code of its file beside each name of an encoding.

    Raises:
        InvalidValue: The code of a file is missing.
    """
    sources = data.get(SOURCES, {})
    for code in own_codes(data.get("arms", {})):
        if not isinstance(sources, Mapping) or not isinstance(sources.get(file_of(code)), str):
            raise InvalidValue(
                f"The code of {file_of(code)} is not in `{SOURCES}`.",
                "Read the study from its file: the code of files beside it is added then.",
            )
        code["source"] = sources[file_of(code)]


def refuse_other_code(data: Mapping[str, Any], folder: Path) -> None:
    """Refuse code of a store that is not also in a file here: what a store holds is run only where the user has it.

    Raises:
        InvalidValue: A file is missing, or holds other code.
    """
    for file, source in data.get(SOURCES, {}).items():
        path = folder / file
        if not path.is_file() or path.read_text(encoding="utf-8") != source:
            raise InvalidValue(
                f"The store holds code of {file}, which {'differs from' if path.is_file() else 'is not in'} {path}.",
                "Code is run only from a file that you have: go to the folder that holds it, or run the study again.",
            )


def own_codes(given: Any) -> Iterator[dict[str, Any]]:
    """The tables that name an encoding in a file of code."""
    if isinstance(given, dict) and isinstance(given.get("python"), str):
        yield given
    elif isinstance(given, list | dict):
        for each in given.values() if isinstance(given, dict) else given:
            yield from own_codes(each)


def file_of(code: Mapping[str, Any]) -> str:
    """The file that a table names.

    Raises:
        InvalidValue: It names none.
    """
    found = IN_FILE.fullmatch(code["python"])
    if found is None or found["fields"]:
        raise InvalidValue(
            f"`python` must name an encoding in a file, got {shown(code['python'])}.",
            'Write python = "my_codes.py:Mine"; its arguments are fields beside it.',
        )
    return found["file"]
