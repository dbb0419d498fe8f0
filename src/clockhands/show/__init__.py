"""Output: text, JSON, SARIF, HTML pages and the explorer. Nothing is computed here.

Only the explorer computes what it shows, in the browser; tests compare its numbers with those of this library.

>>> from clockhands import preset, show
>>> show.Explorer(preset("llama"), position=100)  # doctest: +SKIP

The explorer in a notebook needs ``pip install 'clockhands[notebook]'``; the command line does not, so it is imported on
first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.show._widget import Explorer

__all__ = ["Explorer"]


def __getattr__(name: str) -> Any:
    if name == "Explorer":
        from clockhands.show import _widget as widget

        try:
            return widget.explorer_class()
        except widget.NotInstalled:
            return widget.Explorer  # which says so when it is made: a name that is listed is there
    raise AttributeError(f"module 'clockhands.show' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
