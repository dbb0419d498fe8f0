"""What a page that was made holds: its elements, its words line by line, and nothing from elsewhere."""

import base64
import hashlib
from html.parser import HTMLParser
from pathlib import Path

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"


class Parts(HTMLParser):
    """The elements of a page and the text in them; what stands in scripts and styles apart."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self.style = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = dict(attrs).get("id") or tag
            self.scripts.setdefault(self._inside, "")
        if tag in ("tr", "h1", "h2", "h3", "h4", "p", "li", "svg", "dt", "table"):
            self.texts.append("\n")

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside = ""
        if tag in ("td", "th", "h1", "h2", "h3", "h4", "svg", "text", "title", "dt", "caption", "summary"):
            self.texts.append(" ")

    def handle_data(self, data):
        if self._inside == "style":
            self.style += data
        elif self._inside:
            self.scripts[self._inside] += data
        else:
            self.text += data
            self.texts.append(data)

    @property
    def lines(self) -> list[str]:
        """The words of each row, heading, paragraph and item."""
        return [" ".join(line.split()) for line in "".join(self.texts).split("\n") if line.strip()]

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def check_nothing_comes_from_elsewhere(page: str) -> None:
    """Only the page's own script and style are allowed, no element has a style or a script of its own."""
    parts = Parts(page)
    policy = next(meta["content"] for meta in parts.of("meta") if meta.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    for text, kind in ((parts.scripts["script"], "script-src"), (parts.style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    for _, attributes in parts.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href", "action"):
            assert attributes.get(name) is None or str(attributes[name]).startswith("#")


def written(page: str, folder: Path) -> Path:
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    return file
