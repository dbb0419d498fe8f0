"""The explorer in a notebook: an anywidget whose spec and position are synchronised with the page."""

import json
import re
from functools import cache
from typing import Any

from clockhands.arguments import count
from clockhands.encodings.clocks import Clock, HasClock
from clockhands.encodings.presets import preset
from clockhands.encodings.specs import from_dict, to_dict
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.show.explorer.data import PLAIN, data, rotates_along_one_axis
from clockhands.show.explorer.page import module, source

FARTHEST = 2**53 - 1
"""The last position that a page can name: the last whole number before a browser's numbers have gaps."""
MOST_PAIRS = 1024
"""The most hands that a page shows."""

_PAGE_RULE = re.compile(r"^(?:html|body|main)[^{}]*\{[^{}]*\}\n?", re.MULTILINE)
_THEMED = re.compile(r"^:root(\[[^\]]*\]|:[^{\s]*)\s*\{", re.MULTILINE)
_ROOT = re.compile(r"^:root\s*\{", re.MULTILINE)
# A notebook's theme may differ from the system's. High contrast on light has both words of VS Code; the last one
# counts.
_NOTEBOOK_THEMES = """
[data-jp-theme-light="false"] .clockhands,
.vscode-dark .clockhands, .vscode-high-contrast .clockhands { color-scheme: dark; }
[data-jp-theme-light="true"] .clockhands,
.vscode-light .clockhands, .vscode-high-contrast-light .clockhands { color-scheme: light; }
"""


def style() -> str:
    """The explorer's style for a page of another program: nothing in it affects elements outside the widget."""
    text = _PAGE_RULE.sub("", source("style.css"))
    return _ROOT.sub(".clockhands {", _THEMED.sub(r":root\1 .clockhands {", text)) + _NOTEBOOK_THEMES


class NotInstalled(InvalidType, ImportError):
    """An optional library is not installed."""


class Explorer:
    """The explorer in a notebook, opened on a code at a position.

    Attributes:
        spec: The code that is shown, with dimension pairs along one axis; it follows the page's controls, and setting
            it changes the page.
        position: The position that is shown, in tokens, from 0 to 2**53 - 1; the same both ways.

    Raises:
        InvalidType, InvalidValue: The code has no dimension pairs along one axis, or the position cannot be used.
        NotInstalled: anywidget is not installed.
    """

    # It replaces the widget if anywidget is not installed, so that the name exists even then.
    spec: Any
    position: int

    def __new__(cls, spec: Any = None, position: int = 0, **traits: Any) -> Any:
        """Create the widget, or raise the reason why there is none."""
        return explorer_class()(spec, position, **traits)


Explorer.__module__ = "clockhands.show"


@cache
def explorer_class() -> Any:
    """The class `clockhands.show.Explorer`; created on first use, since anywidget is an extra.

    Raises:
        NotInstalled: anywidget is not installed.
    """
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise NotInstalled(
            "The explorer in a notebook needs anywidget, which is not installed.",
            "Install it with `pip install 'clockhands[notebook]'`, or open `clockhands explore` in a browser.",
        ) from None

    class Widget(anywidget.AnyWidget):
        __doc__ = Explorer.__doc__
        _esm = module()
        _css = style()
        # A spec is sent as the dictionary of its JSON.
        spec = traitlets.Any().tag(
            sync=True, to_json=lambda value, _: to_dict(value), from_json=lambda value, _: from_dict(value)
        )
        position = traitlets.Int(0).tag(sync=True)
        data = traitlets.Unicode().tag(sync=True)

        def __init__(self, spec: Any = None, position: int = 0, **traits: Any) -> None:
            held = json.dumps(data(), allow_nan=False)
            chosen = preset(PLAIN) if spec is None else spec
            super().__init__(spec=chosen, position=position, data=held, **traits)

        @traitlets.validate("spec")
        def _with_pairs(self, proposal: Any) -> Any:
            spec = proposal["value"]
            pairs = len(spec.rates) if rotates_along_one_axis(spec) else _clock_of(spec).ladder.pairs
            if pairs > MOST_PAIRS:
                raise InvalidValue(
                    f"A page shows at most {MOST_PAIRS:,} pairs, but the encoding has {pairs:,}.",
                    "Show an encoding of smaller width; clockhands.table gives the numbers of any width.",
                )
            return spec

        @traitlets.validate("position")
        def _whole(self, proposal: Any) -> int:
            position = count("position", proposal["value"], 0)
            if position > FARTHEST:
                raise InvalidValue(
                    f"`position` must be at most 2**53 - 1 in a page, got {position:,}.",
                    "For larger positions, use clockhands.table, which is exact up to 2**63.",
                )
            return position

    Widget.__module__ = "clockhands.show"
    Widget.__name__ = Widget.__qualname__ = "Explorer"
    return Widget


def _clock_of(spec: Any) -> Clock:
    """The clock behind a spec, along one axis.

    Raises:
        InvalidType, InvalidValue: It has none; the message gives the reason.
    """
    if isinstance(spec, type) or not isinstance(spec, HasClock):
        raise InvalidType(
            f"The explorer needs an encoding with rotating pairs, got {shown(spec)}.",
            "Give a spec such as Sinusoidal(width=512), Rotary(head_width=64), or a preset with rotating pairs.",
        )
    clock = spec.clock()
    if clock.number_of_axes > 1:
        raise InvalidValue(
            f"The explorer shows positions along one axis, but the encoding has {clock.number_of_axes}.",
            "Show the frequencies of one axis: Sinusoidal(width=…, spacing=…).",
        )
    return clock
