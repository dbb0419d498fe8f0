"""What each runtime (Transformers, vLLM, llama.cpp, ...) computes from the same config.

Each reader is a small function over a copy of the config (`views`), with its facts as data (`readers.json`, where the
release and the files stand that it was read off). A rule that was not read in code is not here.
"""

from collections.abc import Sequence

from clockhands.readers._comparing import Parted, compared
from clockhands.readers._misread import Runtime, Statement, release_order, runtimes, statements
from clockhands.readers._reading import PATTERNS, READERS, Reading, incomparable, misreadings, readings
from clockhands.readers.telling import (
    FAR_OFF,
    code_in_words,
    cosine_in_words,
    lengths_differ,
    listed,
    pairs_in_words,
    parted_in_words,
    parted_to_dict,
    ratio_in_words,
    reach_of,
    reading_to_dict,
    release,
    scaling_in_words,
)
from clockhands.readers.views import NEW, OLD, View, facts, names, positive_number, scaling_name, views
from clockhands.sources.resolved import TEXT

__all__: Sequence[str] = [
    "FAR_OFF", "NEW", "OLD", "PATTERNS", "READERS", "TEXT", "Parted", "Reading", "Runtime", "Statement", "View",
    "code_in_words", "compared", "cosine_in_words", "facts", "incomparable", "lengths_differ", "listed",
    "misreadings", "names", "pairs_in_words", "parted_in_words", "parted_to_dict", "positive_number", "ratio_in_words",
    "reach_of", "reading_to_dict", "readings", "release", "release_order", "runtimes", "scaling_in_words",
    "scaling_name", "statements", "views",
]  # fmt: skip
