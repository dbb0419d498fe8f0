"""Every address of the explorer in a document shows the encoding, the views and the values that it names."""

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from browsing import settled, watched
from clockhands.show.explorer.data import data
from explorer.facts import fact
from explorer.test_golden_numbers import ROOT, node
from exploring import VIEWS, caption

DOCS = ROOT / "docs"
ADDRESS = re.compile(r"(?:explorer|page)\.html#([^\s\"'`<>()\[\]{}]+)")
PICTURE = re.compile(r'^STATE = "#(.+)"$', re.MULTILINE)  # what the README's picture is taken of
# Of each document, in the order of its addresses: the encoding, what it does, and what the captions say.
NAMED = json.loads(Path(__file__).with_name("embedded.json").read_text(encoding="utf-8"))
JS = (ROOT / "src" / "clockhands" / "show" / "explorer" / "js").as_uri()
# The page's own reader of addresses, without a model.
READER = f"""
import {{ Codebook }} from "{JS}/codebook.js";
import {{ DEFAULTS, fromFragment }} from "{JS}/state.js";
let text = "";
for await (const part of process.stdin) text += part;
const {{ codes, addresses }} = JSON.parse(text), book = new Codebook(codes), start = book.opened({{ ...DEFAULTS }});
console.log(JSON.stringify(addresses.map((each) => {{
  const state = book.opened(fromFragment(each, start), new Set(new URLSearchParams(each).keys()));
  return {{ ...state, kind: book.code(state).kind }};
}})));
"""


def embedded() -> dict[str, list[str]]:
    """The addresses in each document, and the one of the README's picture."""
    files = [ROOT / "README.md", *sorted(each for each in DOCS.rglob("*") if each.suffix in {".md", ".ipynb"})]
    addresses = {each.relative_to(ROOT).as_posix(): ADDRESS.findall(each.read_text(encoding="utf-8")) for each in files}
    picture = PICTURE.findall((ROOT / "tools" / "explorer_picture.py").read_text(encoding="utf-8"))
    return {name: each for name, each in addresses.items() if each} | {"docs/pictures/explorer.png": picture}


def told(address: str) -> dict[str, str]:
    """The values that an address names; the views are none."""
    return {name: value for name, value in parse_qsl(address, keep_blank_values=True) if name not in ("only", *VIEWS)}


def read(addresses: list[str]) -> list[dict[str, object]]:
    """The state that the page opens each address on."""
    given = json.dumps({"codes": data()["codes"], "addresses": addresses})
    words = [node(), "--input-type=module", "--eval", READER]
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_an_address_in_a_document_is_read_whole(cases):
    found = embedded()
    assert {name: len(each) for name, each in found.items()} == {name: len(each) for name, each in NAMED.items()}
    every = [(name, place, each) for name, addresses in found.items() for place, each in enumerate(addresses)]
    states = read([address for *_, address in every])
    for (name, place, address), state in zip(every, states, strict=True):
        with cases(name, address):
            assert (state["code"], state["kind"]) == tuple(NAMED[name][place][:2])
            assert {key: str(state.get(key)) for key in told(address)} == told(address)


@pytest.mark.slow
def test_a_page_at_an_address_of_a_document_shows_what_it_names(chromium, explorer, cases):
    tab = watched(chromium.new_page(viewport={"width": 1024, "height": 900}))
    for name, addresses in embedded().items():
        for address, (code, _, says) in zip(addresses, NAMED[name], strict=True):
            with cases(name, address):
                tab.goto("about:blank")
                tab.goto(f"{explorer.as_uri()}#{address}")
                settled(tab)
                only = dict(parse_qsl(address)).get("only")
                views = only.split(",") if only else list(VIEWS)
                assert fact(tab, "shown") == views
                assert tab.locator("#control-code").input_value() == code
                for key, value in told(address).items():
                    fields = tab.locator(f'#explorer :is(input[type="number"], select)[data-name="{key}"]')
                    assert {each.input_value() for each in fields.all()} == {value}, key
                text = "\n".join(caption(tab, view) for view in views)
                assert [each for each in says if each not in text] == [], text
                if only:  # a frame begins with its picture; the page around it has the words
                    tops = [
                        tab.locator(f"#{views[0]} {part}").bounding_box()
                        for part in (".figure", ".answer", ".controls")
                    ]
                    assert tops[0]["y"] < 140
                    assert tops[0]["y"] < tops[1]["y"] < tops[2]["y"] < tab.locator(".further").bounding_box()["y"]
    image = pytest.importorskip("PIL.Image")
    from explorer_picture import STATE, words

    tab.goto("about:blank")
    tab.goto(f"{explorer.as_uri()}{STATE}")
    settled(tab)
    for name in ("explorer.png", "explorer-dark.png"):
        with cases(name), image.open(DOCS / "pictures" / name) as picture:
            picture.load()
            assert picture.text["Description"] == words(tab), "run tools/explorer_picture.py"
