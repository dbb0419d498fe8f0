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


def drawn(tab):
    """What stands in each view once nothing is under way."""
    settled(tab)
    return dict(fact(tab, "drawn"))


def first_difference(one, other):
    if type(one) is list and type(other) is list:
        for a, b in zip(one, other, strict=False):
            if a != b:
                return first_difference(a, b)
    return one, other


def test_pictures_that_were_changed_are_those_that_were_made_at_once(chromium, explorer):
    size = {"width": 1440, "height": 900}
    changed_in_place, opened_anew = (watched(chromium.new_page(viewport=size)) for _ in range(2))
    changed_in_place.goto(explorer.as_uri())
    for address in (*STATES, *reversed(STATES[:-1]), ""):
        follow(changed_in_place, address)
        changed = drawn(changed_in_place)
        opened_anew.goto("about:blank")
        opened_anew.goto(f"{explorer.as_uri()}#{address}")
        made = drawn(opened_anew)
        assert list(changed) == list(made)
        for part, text in made.items():
            if changed[part] != text:
                found = first_difference(json.loads(changed[part]), json.loads(text))
                pytest.fail(f"{part} at {address}: {str(found[0])[:600]} for {str(found[1])[:600]}")
    for page in (changed_in_place, opened_anew):
        page.close()
