"""What other readers compute from the same config, and where they part from the audit's own reading.

Each reader is a small function over a copy of the config (`views`), with its facts as data (`readers.json`, where the
release and the files stand that it was read off). A rule that was not read in code is not here.
"""

from collections.abc import Sequence

from clockhands.readers.comparing import Parted, compared
from clockhands.readers.reading import READERS, Reading, readings
from clockhands.readers.views import TEXT

__all__: Sequence[str] = ["READERS", "TEXT", "Parted", "Reading", "compared", "readings"]
