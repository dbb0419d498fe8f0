"""The explorer as one HTML page that opens from disk and asks for nothing from anywhere."""

import base64
import hashlib
import html
import json
from typing import Any

from clockhands.show.explorer.bundle import module, source

_START = """
const data = JSON.parse(document.getElementById("data").textContent);
const page = explore(document.getElementById("explorer"), data, {
  fragment: location.hash,
  onfragment: (text) => history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search),
});
addEventListener("hashchange", () => page.follow(location.hash));
addEventListener("resize", () => requestAnimationFrame(page.redraw));
"""


def page(data: dict[str, Any], title: str = "clockhands") -> str:
    """The page: style, module and data in one text; only this script may run, and nothing may be fetched.

    Args:
        data: What `clockhands.show.explorer.data` put together: plain JSON values.
        title: What stands in the window's title.
    """
    script = f"{module()}\n{_START}"
    style = source("style.css")
    # "<" cannot end the script element, whatever a model is called.
    held = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main class="clockhands">
<h1>{html.escape(title)}</h1>
<div id="explorer"></div>
</main>
<script type="application/json" id="data">{held}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
