"""There is room for everything at 360, 768 and 1440 pixels, and nothing moves for those who asked that nothing move."""

import pytest

from browsing import eventually, expect, settled, watched
from exploring import VIEWS, control, follow, resize, says

pytestmark = pytest.mark.slow

ADDRESSES = {
    "start": "",
    "long": "length=1000000&position=999999&served=1048576&width=1024&pair=511&heads=128&head=127&warp=log&other=even",
    "short": "width=2&length=2&position=1&served=2&heads=1&shift=1",
    "far": "position=9007199254740991&dtype=float16&scaling=yarn&layout=halves&code_in_attention=rotary",
    "chosen": "position=1234&pair=100&channel=200&scaling=llama3&factor=8&warp=square&rowsShown=16&columnsShown=16",
}
CLIPPED = """() => {
  const found = [];
  for (const text of document.querySelectorAll("#explorer svg text")) {
    const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
    if (!box.width || !svg.height) continue;
    const out = Math.max(svg.left - box.left, box.right - svg.right, svg.top - box.top, box.bottom - svg.bottom);
    if (out > 1) found.push([text.closest("section").id, text.textContent, Math.round(10 * out) / 10]);
  }
  return found;
}"""
BEYOND = """() => [...document.querySelectorAll("#explorer *")]
  .filter((each) => !each.closest("svg svg, select, .scrolled *") && !each.closest("svg *") && each.checkVisibility())
  .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    || each.getBoundingClientRect().left < -1)
  .map((each) => `${each.closest("section")?.id} ${each.localName}.${each.getAttribute("class")}`)"""
# Words that their own box cuts off.
CUT = """() => [...document.querySelectorAll("#explorer :is(p, h2, h3, label, button, li, figcaption, dt, dd, th)")]
  .filter((each) => each.checkVisibility() && each.clientWidth && each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.closest("section")?.id} ${each.localName}: ${each.textContent.slice(0, 60)}`)"""
SMALL = """() => [...document.querySelectorAll("#explorer :is(button, select, input, summary)")]
  .filter((each) => each.checkVisibility())
  .map((each) => [each, each.getBoundingClientRect()]).filter(([, box]) => box.width < 24 || box.height < 24)
  .map(([each, box]) => [each.closest("section")?.id, each.dataset.name ?? each.textContent, box.width, box.height])"""


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("name", list(ADDRESSES))
def test_nothing_is_wider_than_the_screen_and_no_label_is_cut(quiet_page, explorer, name, width):
    with quiet_page(explorer, width) as tab:
        follow(tab, ADDRESSES[name])
        assert tab.locator("#explorer svg text").count() > 100
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(CLIPPED) == []
        assert tab.evaluate(BEYOND) == []
        assert tab.evaluate(CUT) == []


def test_what_is_pressed_is_large_enough_to_be_hit(quiet_page, explorer):
    with quiet_page(explorer, 360) as tab:
        assert tab.evaluate(SMALL) == []


def test_a_window_that_changes_its_width_is_filled_again(quiet_page, explorer):
    with quiet_page(explorer, 1440) as tab:
        for width in (360, 1440, 768):
            resize(tab, width, 900)
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            assert tab.evaluate(CLIPPED) == []
            assert tab.evaluate(BEYOND) == []
            # And no narrower than there is room for: the plots of a column are as wide as it is.
            for view in ("naive", "ladder", "precision"):
                spare = "svg => svg.parentElement.clientWidth - svg.getBoundingClientRect().width"
                assert 0 <= tab.locator(f"#{view} svg.plot").last.evaluate(spare) < 2
            assert tab.evaluate("document.querySelector('#explorer').classList.contains('workbench')") == (
                width == 1440
            )


def test_letters_of_twice_the_size_find_room(quiet_page, explorer):
    with quiet_page(explorer, 1280) as tab:
        # What a browser's own zoom does: half as many CSS pixels on twice the device's.
        resize(tab, 640, 450)
        assert tab.evaluate("document.documentElement.scrollWidth") == 640
        assert tab.evaluate(CUT) == []


def test_every_picture_says_what_it_is(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        nameless = """() => [...document.querySelectorAll("#explorer :is(svg, canvas)")]
          .filter((each) => each.checkVisibility() && !each.parentElement.closest("svg"))
          .filter((each) => !each.closest("[aria-hidden=true]"))
          .map((each) => [each.closest("section").id, each.getAttribute("role"), each.ariaLabel ?? ""])"""
        pictures = tab.evaluate(nameless)
        assert {view for view, *_ in pictures} >= set(VIEWS) - {"model"}
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
            tab.goto(explorer.as_uri())
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
