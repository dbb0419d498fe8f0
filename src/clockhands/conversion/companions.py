"""The files of a model folder that go along with converted weights: tokenizers, texts, code; never other weights.

Weights come in more formats than can be listed, and each is in the layout that it was saved in. So what goes along is
listed instead, and what does not is named.
"""

from pathlib import Path

from clockhands.conversion.placing import is_unfinished
from clockhands.sources import files

# Tokenizers: .model and .spm (SentencePiece), .tiktoken, .vocab, .bpe and .codes; .jinja are chat templates.
ENDINGS = frozenset([
    ".json", ".jsonl", ".txt", ".model", ".spm", ".tiktoken", ".vocab", ".bpe", ".codes", ".jinja", ".jinja2", ".md",
    ".rst", ".py", ".yaml", ".yml", ".toml",
])  # fmt: skip
NAMES = frozenset(["license", "licence", "notice", "readme", "copying", "authors", "version", ".gitattributes"])
# Weights begin with these whatever their names say; a text or a SentencePiece model never does.
_WEIGHTS = frozenset(["gguf", "npy", "npz", "pickle"])


def companions(folder: Path, written: set[str]) -> tuple[list[Path], list[str]]:
    """The files of a folder that go along, and the names of what is left there.

    Args:
        folder: The folder that is converted.
        written: Names of the files that the conversion reads or writes.
    """
    along, left = [], []
    for path in sorted(folder.iterdir()):
        if path.name in written or is_unfinished(path.name):
            continue
        if path.is_file() and _goes_along(path):
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
