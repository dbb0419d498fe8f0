"""The colours of the pictures, read from the explorer's style sheet, so that a page and a figure show the same.

The map of signed values is computed in OKLab, where equal steps look equally large: neutral at 0, and symmetric around
it.

Source: Björn Ottosson, "A perceptual color space for image processing", 2020.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import one_of
from clockhands.show.explorer.page import source

Theme = Literal["light", "dark"]
THEMES = ("light", "dark")

_FIRST_BLOCK = re.compile(r":root\s*\{([^}]*)\}")
_COLOUR = re.compile(r"--([\w-]+):\s*(?:light-dark\(\s*(#\w+)\s*,\s*(#\w+)\s*\)|(#\w+))\s*;")

# Lightness of the middle and of both ends, chroma, and the hues of -1 and +1 in degrees, as in `js/colours.js`.
_SIGNED = {"light": (0.965, 0.44, 0.11, 325, 155), "dark": (0.24, 0.84, 0.12, 325, 155)}
_LMS = np.array([[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.291485548]])
_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.707614701],
    ]
)


def colours(theme: Theme) -> Mapping[str, str]:
    """The colours of a theme by their purpose: ``ink``, ``paper``, ``sine``, ``error`` and so on, as ``#rrggbb``.

    Raises:
        InvalidValue: The theme is neither light nor dark.

    >>> colours("light")["paper"], colours("dark")["paper"] != "#ffffff"
    ('#ffffff', True)
    """
    return _colours(one_of("theme", theme, THEMES, "There are two sets of colours."))


@cache
def _colours(theme: Theme) -> Mapping[str, str]:
    block = _FIRST_BLOCK.search(source("style.css"))
    found: dict[str, str] = {}
    for name, light, dark, both in _COLOUR.findall(block[1] if block else ""):
        found[name] = both or (light if theme == "light" else dark)
    return MappingProxyType(found)


def signed_colours(values: NDArray[np.float64], theme: Theme) -> NDArray[np.float64]:
    """The colours of values from -1 to 1, red, green and blue from 0 to 1, float64 [..., 3].

    >>> signed_colours(np.array([0.0]), "light").round(3).tolist()
    [[0.954, 0.954, 0.954]]
    """
    middle, end, chroma, below, above = _SIGNED[theme]
    size = np.minimum(np.abs(values), 1)
    hue = np.radians(np.where(values < 0, below, above))
    spread = chroma * size
    lab = np.stack([middle + (end - middle) * size, spread * np.cos(hue), spread * np.sin(hue)], axis=-1)
    linear = (lab @ _LMS.T) ** 3 @ _RGB.T
    raised = np.maximum(linear, 0) ** (1 / 2.4)
    return np.clip(np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * raised - 0.055), 0, 1)
