"""Makes an encoding of the user's own from a file of code that the user names: ``path/file.py:Name``.

The file is run, as Python runs it. So only commands that the user gave such a name to do this, never for a file of a
model.
"""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockhands.configs.callables import IN_FILE, module_of_source, named_in, text_of_file
from clockhands.configs.targets import given_fields
from clockhands.encodings.protocols import ModelSizes, methods_of
from clockhands.encodings.specs import is_own
from clockhands.errors import ClockhandsError, InvalidValue, Unreadable
from clockhands.phrases import listed, shown


@dataclass(frozen=True)
class NamedEncoding:
    """An encoding in a file of code, by its name; `made` makes it for the sizes of a model.

    Attributes:
        file: The file.
        name: The name in it, of a class, of a function that makes an object, or of an object.
        source: The text of the file.
        fields: Arguments by name.
    """

    file: str
    name: str
    source: str
    fields: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        fields = "".join(f", {name} {value}" for name, value in self.fields)
        return f"{self.name} of {self.file} (SHA-256 {self.sha256[:12]}){fields}"

    @property
    def sha256(self) -> str:
        """The SHA-256 of the source, in hexadecimal."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    def made(self, sizes: ModelSizes, seed: int | None = None) -> Any:
        """The object, new for each call. A class or a function gets the fields, and the sizes that it names.

        Args:
            sizes: The sizes of the model.
            seed: Of numbers that PyTorch draws meanwhile; None leaves its generator as it is.

        Raises:
            Unreadable: Running the file fails, it has no such name, or making the object fails.
            InvalidType: The object has no method of the protocol.
            InvalidValue: It is an object already, but there are fields.
        """
        value = named_in(module_of_source(self.source, Path(self.file)), self.file, self.name)
        if is_own(value):
            if self.fields:
                given = listed(name for name, _ in self.fields)
                raise InvalidValue(f"{self.name} is an object, so it takes no fields.", f"Leave out {given}.")
            return value
        try:
            with seeded(seed):
                made = value(**{**sizes.named_in(value), **dict(self.fields)})
        except ClockhandsError:
            raise
        except Exception as error:
            raise Unreadable(
                f"{self.name} of {self.file} cannot be made: {type(error).__name__}: {error}.",
                f"Give its arguments as fields, or defaults; {listed(vars(sizes))} are given where it names them.",
            ) from error
        methods_of(made)
        return made


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """PyTorch's generator begins at a seed, and is put back afterwards; None leaves it as it is."""
    torch = sys.modules.get("torch")
    if seed is None or torch is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def named_encoding(text: str, **fields: Any) -> NamedEncoding:
    """The encoding ``path/file.py:Name``, or ``path/file.py:Name:field=value,...``.

    Raises:
        Unreadable: There is no such file, or the text is not such a name.
        InvalidValue: A field is not ``name=value``, or is given twice.
    """
    found = IN_FILE.fullmatch(text)
    if found is None:
        raise Unreadable(f"{shown(text)} does not name an encoding.", "Write path/file.py:Name.")
    own = given_fields(found["fields"], text) if found["fields"] else {}
    source = text_of_file(Path(found["file"]))
    return NamedEncoding(found["file"], found["name"], source, tuple({**own, **fields}.items()))
