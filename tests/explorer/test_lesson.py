"""The lesson with which a page without a model opens: its first screen, its words, its answers, and its motion."""

import math
import re

import numpy as np
import pytest

import clockhands as ch
from browsing import eventually, expect, settled, watched
from clockhands.encodings.ladders import Geometric
from explorer.facts import fact
from exploring import plain, resize

pytestmark = pytest.mark.slow

STEPS = 12
TURN = 2 * math.pi
HEAD = np.array([float(rate) for rate in Geometric(base=10000).ladder(32, 64).rates])


def step(tab, name):
    return tab.locator(f"#lesson-{name}")


def told(tab, name, guess=0):
    """What a step says once an answer is guessed."""
    step(tab, name).locator(".guesses button").nth(guess).click()
    return plain(step(tab, name).locator(".told").inner_text())


def test_the_first_screen_has_the_title_a_field_and_the_whole_picture(tab):
    for width, height in ((390, 844), (768, 1024), (1440, 900), (2560, 1440)):
        resize(tab, width, height)
        tab.evaluate("scrollTo(0, 0)")
        opening = tab.locator("#lesson-opening")
        expect(opening.locator("h1")).to_have_text("How transformers know where words are")
        # The picture is the largest thing on it.
        assert opening.locator(".picture svg").bounding_box()["height"] > 0.25 * height
        for part in ("h1", "#lesson-sentence", ".picture svg", ".onward"):
            expect(opening.locator(part)).to_be_in_viewport(ratio=1)
        # Text and pictures keep to the width of the lesson.
        assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_a_typed_sentence_has_clocks_over_each_word_and_stays_text(tab):
    tab.locator("#lesson-sentence").fill("we <b>read</b> & see")
    words = tab.locator("#lesson-opening .word")
    expect(words).to_have_text(["we", "<b>read</b>", "&", "see"])
    assert tab.locator("#lesson-opening .dial").count() == 4 * 4
    assert tab.locator("#lesson-opening svg b").count() == 0
    expect(step(tab, "order").locator("svg")).to_contain_text("<b>read</b>")
    told(tab, "count")  # what is answered follows the words, also where there are none
    tab.locator("#lesson-sentence").fill("")
    expect(words).to_have_count(0)
    tab.locator("#lesson-sentence").fill("the dog bites the man today")


def test_every_step_asks_before_it_answers_in_few_words(tab):
    steps = tab.locator(".lesson .step:not(.last)")
    assert steps.count() == STEPS
    for each in steps.all():
        assert each.locator(".picture svg").count() == 1
    for each in steps.all():
        each.locator(".guesses button").first.click()
        assert each.locator(".told").inner_text().split(" ")[0] in ("Right.", "Not")
        words = len(each.locator(".said").inner_text().split())
        assert words <= 85, (words, each.locator(".said").inner_text())
    written = tab.locator(".lesson :is(h1, .lead, .said)").all_inner_texts()
    assert sum(len(text.split()) for text in written) <= 900
    lesson, page = fact(tab, "words")  # with every answer open
    assert 500 < lesson <= 900
    assert 2500 < page <= 3500
    # What counts is what is in view, and every word of it.
    tab.evaluate("document.querySelector('.opening').append(' three more words 1 2')")
    assert fact(tab, "words") == [lesson, page + 3]
    tab.evaluate("document.querySelector('.opening').lastChild.remove()")


def test_answers_hold_the_numbers_that_python_computes(tab):
    assert "largest difference is" in told(tab, "order", 1)
    largest = float(re.search(r"largest difference is (\S+)\. ", told(tab, "order", 1))[1])
    assert largest < 1e-14
    # Two tokens three apart in the code of width 16.
    rows = ch.table(ch.Sinusoidal(16), 64)
    assert f"{rows[47] @ rows[50]:.2f}" in told(tab, "product", 1)
    assert f"({np.linalg.norm(rows[7] - rows[8]):.2f} away)" in told(tab, "row", 1)
    # Hands that have not come round over 2,048 tokens may stand where they never were.
    partial = TURN > HEAD * 2048
    standing = int((partial & (HEAD * 5000 % TURN > HEAD * 2048)).sum())
    assert 0 < standing < partial.sum()  # some are back where training has seen them
    assert f"At distance 5000, {standing} of 32 hands" in told(tab, "beyond", 1)
    red = step(tab, "beyond").locator(".dial.unseen")
    assert red.count() == standing
    ntk = HEAD * 4.0 ** (-np.arange(32) / 31)
    left = int((partial & (ntk * 8192 > HEAD * 2048 * (1 + 1e-12))).sum())
    assert f"leaves {left} at new angles" in told(tab, "slower", 0)
    declared = np.array([float(rate) for rate in Geometric(base=500000).ladder(32, 64).rates])
    read, trained = (float(np.cos(rates * 1000).mean()) for rates in (HEAD, declared))
    said = told(tab, "base", 1)
    assert [float(each) for each in re.search(r"score is (\S+) in place of (\S+)\.", said).groups()] == pytest.approx(
        [read, trained], abs=6e-3
    )
    # In each of the three ways every hand but NTK's stays where training has seen it.
    marks = step(tab, "slower").locator(".mark")
    fresh = [mark.get_attribute("class") == "mark fresh" for mark in marks.all()]
    assert [sum(fresh[row * 32 : row * 32 + 32]) for row in range(4)] == [partial.sum(), 0, left, 0]


def test_a_picture_that_holds_the_answer_shows_it_once_it_is_guessed(chromium, explorer):
    tab = watched(chromium.new_page(viewport={"width": 1280, "height": 900}))
    tab.goto(explorer.as_uri())
    settled(tab)
    for name, answer in (("row", "text.where"), ("curve", ".score"), ("slower", "rect.column")):
        before = step(tab, name).locator(answer).count()
        told(tab, name)
        assert step(tab, name).locator(answer).count() > before, name
    tab.close()


def test_a_hand_and_an_arrow_follow_the_pointer(tab):
    resize(tab, 1440, 900)
    for name in ("wave", "rope"):
        picture = step(tab, name).locator("svg")
        picture.scroll_into_view_if_needed()
        face = step(tab, name).locator(".face").first.bounding_box()
        x, y = face["x"] + face["width"] / 2, face["y"] + face["height"] / 2
        before = step(tab, name).locator("output").all_inner_texts()
        tab.mouse.move(x + 60, y - 40)
        tab.mouse.down()
        tab.mouse.move(x - 60, y - 60, steps=4)
        tab.mouse.up()
        after = step(tab, name).locator("output").all_inner_texts()
        assert after != before, name
    assert plain(step(tab, "wave").locator("output").inner_text()) == "135°, sine 0.71, cosine -0.71"


def test_hands_run_when_the_page_opens_and_stand_still_for_those_who_want_no_motion(chromium, explorer):
    for wish in ("no-preference", "reduce"):
        tab = watched(chromium.new_page(viewport={"width": 1280, "height": 900}, reduced_motion=wish))
        tab.add_init_script("""{
          window.places = new Set();
          new MutationObserver(() => {
            const tip = [...document.querySelectorAll("#lesson-opening .tip")].at(-4);
            if (tip) places.add(`${tip.getAttribute("cx")} ${tip.getAttribute("cy")}`);
          }).observe(document, { subtree: true, childList: true, attributeFilter: ["cx", "cy"] });
        }""")

        def opens(tab=tab, wish=wish):
            tab.goto(explorer.as_uri())
            settled(tab)
            tab.wait_for_timeout(600)
            assert (tab.evaluate("places.size") == 1) == (wish == "reduce")

        eventually(tab, opens)
        tab.close()
