"""Builds HTML and SVG safely: everything that was not built by `element` is escaped."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

from clockhands.show._page import safe

_WITHOUT_END = frozenset({"meta", "link", "br", "wbr"})


class Markup(str):
    """Text that is already markup, and is inserted into other markup unchanged."""

    __slots__ = ()


def element(name: str, /, *children: Markup | str | Iterable[Markup | str] | None, **attributes: object) -> Markup:
    """One element; text is escaped, and characters that could hide or reverse it are made visible.

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


def document(
    title: str, style: str, script: str, held: Mapping[str, Mapping[str, Any]], *body: Markup, worker: bool = False
) -> str:
    """A whole page as one text; its policy allows only this style and this script, and no requests.

    Args:
        title: The window's title.
        style: The style sheet.
        script: One ES module, which runs when the page is there.
        held: Data for the script, by the ids of the elements that hold them as JSON.
        body: What the page shows.
        worker: Whether the script may start a worker from a text of its own.
    """
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data: blob:; "
        f"{'worker-src blob:; ' if worker else ''}base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
    )
    data = (_data_element(name, value) for name, value in held.items())
    shown = element("body", *body, data, element("script", Markup(script), type="module"))
    return f"<!doctype html>\n{element('html', head, shown, lang='en')}\n"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data_element(name: str, value: Mapping[str, Any]) -> Markup:
    """Data in the page; `<` is escaped, so that nothing in it can end the element."""
    text = json.dumps(value, allow_nan=False).replace("<", "\\u003c")
    return element("script", Markup(text), type="application/json", id=name)
