"""What each runtime (Transformers, vLLM, llama.cpp, ...) computes from the same config.

For a program, a small function changes a copy of the config (a `View`) as that program reads it. Its facts are data in
`runtimes.json`, which also names the release and the source files that they were read from. A rule that was not read
from a runtime's code is not here. A pattern of misreading is a function of the encodings that the config declares.
"""

from collections.abc import Sequence

from clockhands.configs.resolved import TEXT
from clockhands.runtimes._comparing import LayerDifference, compared
from clockhands.runtimes._patterns import PATTERNS
from clockhands.runtimes._reading import CURRENT, READERS, FileReadings, Reading, incomparable, misreadings, readings
from clockhands.runtimes.releases import Runtime, Statement, release_order, runtimes, statements
from clockhands.runtimes.telling import (
    FAR_OFF,
    code_in_words,
    cosine_in_words,
    lengths_differ,
    pairs_in_words,
    parted_in_words,
    parted_to_dict,
    ratio_in_words,
    reach_of,
    reading_to_dict,
    release,
    scaling_in_words,
)
from clockhands.runtimes.views import View, facts, names, positive_number

__all__: Sequence[str] = [
    "CURRENT", "FAR_OFF", "PATTERNS", "READERS", "TEXT", "FileReadings", "LayerDifference", "Reading", "Runtime",
    "Statement", "View",
    "code_in_words", "compared", "cosine_in_words", "facts", "incomparable", "lengths_differ",
    "misreadings", "names", "pairs_in_words", "parted_in_words", "parted_to_dict", "positive_number", "ratio_in_words",
    "reach_of", "reading_to_dict", "readings", "release", "release_order", "runtimes", "scaling_in_words",
    "statements",
]  # fmt: skip
