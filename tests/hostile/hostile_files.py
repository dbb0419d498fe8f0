"""Small programs that make hostile files: each is at the bound of its reader, or costs more than its size explains.

``FILES`` holds them all: a name, and what makes the files of a folder. What a file costs is its reader's promise: 5
seconds of the processor and 500 MB.
"""

from . import hostile_texts, hostile_weights
from .hostile_rows import FILES

assert hostile_texts.FILES is hostile_weights.FILES is FILES
__all__ = ["FILES"]
