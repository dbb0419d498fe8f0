"""Everything on the explorer's page that a pointer can do, keys can: sliders, cells, hands and waves."""

import math

import pytest

from browsing import settled
from exploring import VIEWS, holds

pytestmark = pytest.mark.slow

KEYS = (("ArrowRight", 1), ("Shift+ArrowUp", 10), ("ArrowLeft", -1), ("Shift+ArrowDown", -10))
FINE = (("Alt+ArrowUp", 0.1), ("Alt+ArrowLeft", -0.1))
REAL = {"base", "factor"}  # what a slider sets that is no whole number, and not on a grid
WHOLE = {"length", "served"}  # of those that move in ratios


def press(tab, key):
    tab.keyboard.press(key)
    settled(tab)


def ends(field):
    return [float(field.get_attribute(end)) for end in ("min", "max")]


def stepped(value, steps, ends, grid):
    """Where so many arrow keys lead: in ratios where there is no grid, a hundred of them from end to end."""
    least, most = ends
    want = value + steps * float(grid) if grid != "any" else value * math.exp(steps * math.log(most / least) / 100)
    return min(max(want, least), most)


@pytest.mark.parametrize("where", ["common", *VIEWS])
def test_keys_move_every_slider_and_it_stands_where_its_number_says(quiet_page, explorer, where):
    """Arrows by a step, with Shift by ten and with Alt by a tenth, pages by a tenth of the way, and to the ends."""
    inside = ".common" if where == "common" else f"#{where}"
    with quiet_page(explorer) as tab:
        for slider in tab.locator(f'{inside} input[type="range"]:visible').all():
            name = slider.get_attribute("data-name")
            field = slider.locator('xpath=following-sibling::input[@type="number"]')
            grid, title = field.get_attribute("step"), slider.get_attribute("title")
            assert field.get_attribute("data-name") == name
            for word in ("Arrow keys", "Shift", "Page Up", "Page Down", "Home", "End"):
                assert word in title
            assert ("Alt" in title) == (name in REAL)
            slider.focus()
            tenth = 10 if grid == "any" else max(1, round((ends(field)[1] - ends(field)[0]) / float(grid) / 10))
            pages = ("PageUp", tenth), ("PageDown", -tenth)
            far = (("Home", -math.inf), pages[0], *pages, ("End", math.inf), pages[1])
            for key, steps in (*KEYS, *far, *(FINE if name in REAL else ())):
                value, bounds = float(field.input_value()), ends(field)
                want = bounds[steps > 0] if math.isinf(steps) else stepped(value, steps, bounds, grid)
                want = float(round(want)) if name in WHOLE else want
                press(tab, key)
                assert float(field.input_value()) == pytest.approx(want, rel=1e-9), (name, key)
                assert slider.evaluate("slider => slider === document.activeElement")
                # And says it to those who do not see it.
                ratio = slider.get_attribute("step") == "any"
                assert float(slider.input_value()) == pytest.approx(math.log(want) if ratio else want, rel=1e-6)
                assert float(slider.get_attribute("aria-valuetext").split(" ")[0]) == pytest.approx(want, rel=1e-9)


def test_what_is_typed_beyond_an_end_is_held_to_it_and_nothing_typed_changes_nothing(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        fields = tab.locator('#explorer input[type="number"]:visible')
        assert fields.count() > 20
        for place in range(fields.count()):
            field = fields.nth(place)
            before = field.input_value()
            for end, beyond in enumerate(("-1e300", "1e300")):
                for typed in (beyond, ""):
                    field.fill(typed)
                    press(tab, "Enter")
                    assert float(field.input_value()) == pytest.approx(ends(field)[end], rel=1e-9)
            field.fill(before)
            press(tab, "Enter")
            assert float(field.input_value()) == pytest.approx(float(before), rel=1e-9)


def test_arrow_keys_move_the_cell_of_the_table(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        tab.locator("#table canvas").focus()
        for key, position, channel in (
            ("ArrowDown", 101, 8),
            ("Shift+ArrowDown", 111, 8),
            ("ArrowRight", 111, 9),
            ("Shift+ArrowRight", 111, 19),
            ("End", 111, 511),
            ("ArrowRight", 111, 511),
            ("Home", 111, 0),
            ("ArrowUp", 110, 0),
            ("PageDown", 366, 0),
            ("PageUp", 110, 0),
        ):
            press(tab, key)
            holds(tab, "table", "position", position)
            holds(tab, "table", "channel", channel)
        # A hand and a channel are one pair.
        press(tab, "Shift+ArrowRight")
        holds(tab, "pair", "pair", 5)


def test_keys_choose_and_turn_the_hands_of_every_picture(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        hand = tab.locator("#clock .hand").nth(2)
        pair = int(hand.get_attribute("data-pair"))
        hand.focus()
        press(tab, "Enter")
        holds(tab, "pair", "pair", pair)
        for key, position in (("ArrowLeft", 99), ("Shift+ArrowUp", 109), ("ArrowUp", 110)):
            press(tab, key)
            holds(tab, "clock", "position", position)
            # The picture was drawn anew, and whoever held a hand still does.
            assert tab.evaluate("document.activeElement.getAttribute('data-pair')") == str(pair)
        # An eighth of a turn of this hand, and back.
        wavelength = 2 * math.pi * 10000 ** (pair / 256)
        press(tab, "PageUp")
        holds(tab, "clock", "position", 110 + round(wavelength / 8))
        press(tab, "PageDown")
        holds(tab, "clock", "position", 110)
        tab.locator("#pair .waves svg").focus()
        press(tab, "Shift+ArrowRight")
        holds(tab, "clock", "position", 120)
        tab.locator("#pair .circle svg").focus()
        press(tab, "ArrowDown")
        holds(tab, "clock", "position", 119)
        # What was out of sight follows as it comes into sight.
        tab.locator("#shift .shift-faces").scroll_into_view_if_needed()
        settled(tab)
        assert tab.locator(f'#shift .hand.chosen[data-hand^="{pair} "]').count()
        arrow = tab.locator("#shift .hand:not(.chosen)").last
        pair = int(arrow.get_attribute("data-hand").split(" ")[0])
        arrow.focus()
        press(tab, " ")
        holds(tab, "pair", "pair", pair)
        assert tab.evaluate("document.activeElement.getAttribute('data-hand')").split(" ")[0] == str(pair)


NAMES = """() => [...document.querySelectorAll("button, select, input, a[href], summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled)
  .map((each) => [each.ariaLabel, ...Array.from(each.labels ?? [], (label) => label.textContent), each.textContent])
  .map((names) => names.filter(Boolean).join(" ").trim())"""


def test_every_control_has_a_name_and_tab_reaches_it(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        names = tab.evaluate(NAMES)
        assert len(names) > 100
        assert [place for place, name in enumerate(names) if len(name) < 1] == []
        tab.evaluate("() => { window.seen = new Set(); }")
        note = "() => { const at = document.activeElement; if (at !== document.body) seen.add(at); return seen.size; }"
        reached = 0
        for _ in range(len(names) + 2):
            tab.keyboard.press("Tab")
            reached = tab.evaluate(note)
        assert reached == len(names)


def test_where_the_focus_is_can_be_seen(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        tab.evaluate("() => { window.unseen = []; window.seen = 0; }")
        look = """() => {
          const at = document.activeElement, look = getComputedStyle(at);
          if (at === document.body) return;
          seen += 1;
          const ring = look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 1.5;
          if (!ring) unseen.push(`${at.localName}.${at.getAttribute("class")} in ${at.closest("section")?.id}`);
        }"""
        for _ in range(60):
            tab.keyboard.press("Tab")
            tab.evaluate(look)
        assert tab.evaluate("seen") == 60
        assert tab.evaluate("unseen") == []
