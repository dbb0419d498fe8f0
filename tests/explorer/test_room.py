"""There is room for everything at 360, 768 and 1440 pixels, and nothing moves for those who asked that nothing move."""

import pytest

from browsing import eventually, expect, settled, watched
from explorer.facts import ADDRESSES, fact
from exploring import DRAWN, control, follow, resize, says

pytestmark = pytest.mark.slow


def has_room(tab, width):
    """Nothing is wider than the screen, and no label is cut."""
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert [fact(tab, each) for each in ("clipped", "beyond", "cut")] == [[], [], []]


def test_nothing_is_wider_than_the_screen_and_no_label_is_cut(tab, cases):
    for width in (360, 768, 1440):
        resize(tab, width, 900)
        for name, address in ADDRESSES.items():
            with cases(name, width):
                follow(tab, address)
                assert tab.locator("#explorer svg text").count() > 100
                has_room(tab, width)


def test_a_window_that_changes_its_width_is_filled_again(tab):
    for width in (1440, 360, 1440, 768):
        resize(tab, width, 900)
        has_room(tab, width)
        # And no narrower than there is room for: the plots of a column are as wide as it is.
        for view in ("naive", "ladder", "precision"):
            spare = "svg => svg.parentElement.clientWidth - svg.getBoundingClientRect().width"
            assert 0 <= tab.locator(f"#{view} svg.plot").last.evaluate(spare) < 2
        # The contents are beside the story where there is room, and a line above it elsewhere.
        contents, story = (tab.locator(f"#explorer {each}").bounding_box() for each in (".contents", ".story"))
        assert (contents["x"] + contents["width"] <= story["x"]) == (width == 1440)
        assert (contents["height"] < 45) == (width != 1440)
        # What is pressed is large enough to be hit.
        assert width != 360 or fact(tab, "small") == []
    # What a browser's own zoom does: half as many CSS pixels on twice the device's.
    resize(tab, 640, 450)
    assert tab.evaluate("document.documentElement.scrollWidth") == 640
    assert fact(tab, "cut") == []


def test_every_picture_says_what_it_is(tab):
    pictures = fact(tab, "pictures")
    assert {view for view, *_ in pictures} >= set(DRAWN)
    assert [each for each in pictures if each[1] is None or len(each[2]) < 10] == []


def test_where_no_motion_is_wanted_hands_are_where_they_belong_at_once(chromium, explorer):
    for wish in ("no-preference", "reduce"):
        tab = watched(chromium.new_page(viewport={"width": 1280, "height": 900}, reduced_motion=wish))
        # Each place that the first hand has had since the page was there.
        tab.add_init_script("""{
          window.places = new Set();
          new MutationObserver(() => {
            const tip = document.querySelector("#clock .hand .tip");
            if (tip?.hasAttribute("cx")) places.add(`${tip.getAttribute("cx")} ${tip.getAttribute("cy")}`);
          }).observe(document, { subtree: true, childList: true, attributeFilter: ["cx", "cy"] });
        }""")

        def opens(tab=tab, wish=wish):
            tab.goto(f"{explorer.as_uri()}#only=clock")  # in sight from the first frame
            settled(tab)
            assert (tab.evaluate("places.size") == 1) == (wish == "reduce")

        if wish == "reduce":
            opens()
        else:
            eventually(tab, opens)  # a machine may be so busy that there is no frame while the hands arrive
        # Played, the position still moves on, from token to token, without hands between two of them.
        tab.locator("#clock button", has_text="Play").click()
        says(tab, "clock", r"At position (?!100 )\d+ ")
        if wish == "reduce":
            tab.locator("#clock button", has_text="Pause").click()
            expect(tab.locator("#clock button", has_text="Play")).to_be_visible()
            settled(tab)
            tab.evaluate("places.clear()")
            before = control(tab, "clock", "position").input_value()
            tab.wait_for_timeout(300)  # long enough for what still moved to show it
            assert control(tab, "clock", "position").input_value() == before
            assert tab.evaluate("places.size") == 0
            running = "document.getAnimations().filter((each) => each.playState === 'running').length"
            assert tab.evaluate(running) == 0
        tab.close()
