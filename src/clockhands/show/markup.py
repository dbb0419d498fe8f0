"""HTML and SVG from strings that stay text: whatever is not made by `element` is escaped."""

import html
from collections.abc import Iterable

from clockhands.show.page import safe

_WITHOUT_END = frozenset({"meta", "link", "br", "wbr"})


class Markup(str):
    """Text that is markup already, and goes into other markup as it is."""

    __slots__ = ()


def element(name: str, /, *children: Markup | str | Iterable[Markup | str] | None, **attributes: object) -> Markup:
    """One element; text is escaped, with whatever could hide or turn it made visible.

    Args:
        name: The element's name.
        children: Markup, text, several of them, or None for nothing.
        attributes: By name, without a trailing underscore and with ``-`` for each ``_``; None leaves one out.

    >>> element("p", "a < b", class_="answer", data_code=None)
    '<p class="answer">a &lt; b</p>'
    >>> element("p", element("b", "bold"), " & plain")
    '<p><b>bold</b> &amp; plain</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(safe(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _WITHOUT_END:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: Markup | str | Iterable[Markup | str] | None) -> Markup:
    """Several pieces one after the other.

    >>> joined("<", element("i", "x"), None, ["&", element("wbr")])
    '&lt;<i>x</i>&amp;<wbr>'
    """
    return Markup("".join(_text(child) for child in children))


def _text(child: Markup | str | Iterable[Markup | str] | None) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    return html.escape(safe(child), quote=False) if isinstance(child, str) else "".join(map(_text, child))
