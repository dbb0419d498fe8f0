"""What is drawn change by change is what a page draws that opens on the last state."""

import json

import pytest

from browsing import settled, watched
from explorer.facts import fact
from exploring import follow

pytestmark = pytest.mark.slow

STATES = (
    "position=700&pair=90&channel=180&shift=-7&heads=3&seed=5&served=3000",
    "code=custom&width=64&base=300&span=closed&length=500&position=499&pair=31&warp=square&scaling=yarn&factor=3&heads=40&head=39",
    "code=custom&width=6&length=12&position=3&served=5&heads=1&warp=log&dtype=float16&code_in_attention=alibi",
    "code=custom&width=2&length=2&position=1&served=2&shift=0&other=",
    "code=custom&width=1024&base=100&length=100000&position=99999&rowsShown=16&columnsShown=16&pair=511&layout=halves",
    "position=9007199254740991&dtype=float32&served=1048576&scaling=llama3&other=base100",
)
# What names a code, or only some fields of one: of these the answers are compared.
NAMED = (
    *("code=llama2", "width=4&position=4&length=5", "kind=rotary&width=128", "code=custom&width=128"),
    *("code=llama3.1&position=9", "kind=rotary", "base=500&layout=halves", "code=whisper&width=64"),
)


def drawn(tab):
    """What stands in each view once nothing is under way, the values of all controls, and the encoding's name."""
    settled(tab)
    name = tab.locator("#control-code option:checked").text_content()
    return dict(fact(tab, "drawn")), fact(tab, "values"), name


def test_pictures_that_were_changed_are_those_that_were_made_at_once(chromium, explorer):
    size = {"width": 1440, "height": 900}
    changed_in_place, opened_anew = (watched(chromium.new_page(viewport=size)) for _ in range(2))
    changed_in_place.goto(explorer.as_uri())
    for address in (*STATES, *reversed(STATES[:-1]), *NAMED, ""):
        follow(changed_in_place, address)
        changed, *controls = drawn(changed_in_place)
        opened_anew.goto("about:blank")
        opened_anew.goto(f"{explorer.as_uri()}#{address}")
        made, *own = drawn(opened_anew)
        assert list(changed) == list(made)
        for part, text in made.items():
            if address not in NAMED or part.endswith(".answer"):
                assert json.loads(changed[part]) == json.loads(text), (part, address)
        assert controls == own, address
    for page in (changed_in_place, opened_anew):
        page.close()
