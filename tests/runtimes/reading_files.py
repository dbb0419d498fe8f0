"""A config read by one reader, for the tests."""

import json

from clockhands.configs import open_target
from clockhands.configs.resolve import resolve
from clockhands.runtimes import readings


def read(folder, config, reader, length=None):
    """What a reader makes of a config."""
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    opened = open_target(path)
    (found,) = readings(opened, resolve(opened, length), length, [reader])
    return found
