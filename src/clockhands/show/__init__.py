"""Output: text, JSON, SARIF, HTML pages and figures. Nothing is computed here.

Only the explorer computes what it shows, in the browser; tests compare its numbers with those of this library.

>>> from clockhands import preset, show
>>> show.heatmap(preset("vaswani2017"))  # doctest: +SKIP
>>> show.Explorer(preset("llama"), position=100)  # doctest: +SKIP

The figures need ``pip install 'clockhands[figures]'``, the explorer in a notebook ``clockhands[notebook]``; the command
line needs neither, so both are imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.show._figures import attention, bias, clock, heatmap, kernel, ladder, pair, precision, shift
    from clockhands.show._widget import Explorer

__all__ = [
    "Explorer",
    "attention",
    "bias",
    "clock",
    "heatmap",
    "kernel",
    "ladder",
    "pair",
    "precision",
    "shift",
]


def __getattr__(name: str) -> Any:
    if name == "Explorer":
        from clockhands.show import _widget as widget

        try:
            return widget.explorer_class()
        except widget.NotInstalled:
            return widget.Explorer  # which says so when it is made: a name that is listed is there
    if name in __all__:
        from clockhands.show import _figures as figures

        return getattr(figures, name)
    raise AttributeError(f"module 'clockhands.show' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
