"""The page is read from top to bottom: its opening, the order of its views, the contents, and what stays in view."""

import re

import pytest

from browsing import expect, settled, watched
from explorer.facts import fact
from exploring import VIEWS, caption, control, follow, holds, plain, put, resize

pytestmark = pytest.mark.slow

# A term, and the words that say what it is.
EXPLAINED = {
    "tokens?": "the tokens of a text (words or parts of words)",
    "rows?": "gives each position a row of numbers",
    "pairs?": "A sine and a cosine of one speed are a pair",
    "hands?": "drawn here as the hand of a clock",
    "dimensions?": "numbers in a row, each a dimension",
    "base": "Base: how slow the slow waves are",
    "positional encodings?": "Something must say where each word stands: a positional encoding",
    "query|queries": "a query, with which it looks",
    "keys?": "a key, by which it is found",
    "weights?": "How much one word looks at another, a weight",
    "scores?": "the better the numbers of two words fit (their score)",
    "dot products?": "dot product: multiply them number by number, and add up",
    "served length": "the served length (how many tokens the model is used with)",
    "variance": "variance of the scores (how much they differ)",
    "projections?": "by multiplying tokens with matrices, its projections",
    "scalings?": "Each band is a scaling: a way to slow hands down for texts longer by a factor",
    "dtypes?": "A dtype is the format in which a computer keeps a number",
    "heads?": "A model attends several times side by side; each time is a head",
    "buckets?": "one for each range of distances, a bucket",
}


def test_what_the_reference_says_first_needs_no_knowledge_of_positions(tab):
    resize(tab, 1440, 900)
    first = tab.locator("#explorer > .opening")
    sentences = first.locator("p").all_inner_texts()
    assert len(sentences) == 2
    assert "does not see their order" in sentences[0]
    assert "row of numbers: sines and cosines of waves" in sentences[1]


def test_every_term_is_explained_where_it_is_first_read(tab):
    # An encoding whose hands need no exception, and whose sentences are those that most people read.
    text = fact(tab, "sentences")
    for term, words in EXPLAINED.items():
        first = re.search(rf"\b(?:{term})\b", text, re.IGNORECASE)
        begins = text.find(words)
        assert begins >= 0, words
        assert begins <= first.start() < begins + len(words), (
            term,
            text[max(0, first.start() - 80) : first.end() + 40],
        )


def test_the_contents_name_every_view_in_the_order_of_the_page(tab):
    assert fact(tab, "shown") == list(VIEWS)
    links = tab.locator(".contents a")
    assert [link.get_attribute("href") for link in links.all()] == [f"#{view}" for view in VIEWS]
    names = [link.inner_text() for link in links.all()]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 24
    parts = tab.locator(".story > .part-name").all_inner_texts()
    assert len(parts) == 5
    assert parts == [each.text_content() for each in tab.locator(".contents .part-name").all()]


def test_what_stays_in_view_is_low_and_covers_no_section_that_a_link_leads_to(tab, cases):
    for width in (360, 768, 1440):
        resize(tab, width, 900)
        for view in (*VIEWS, *reversed(VIEWS[:-1])):
            with cases(width, view):
                before = tab.evaluate("location.href")
                tab.locator(f'.contents a[href="#{view}"]').click()
                settled(tab)
                current = tab.locator('.contents a[aria-current="location"]')
                expect(current).to_have_attribute("href", f"#{view}")
                assert tab.evaluate("location.href") == before
                bar, contents = (tab.locator(each).bounding_box() for each in (".bar", ".contents"))
                stays = bar["height"] + (0 if width == 1440 else contents["height"])
                assert bar["y"] == 0
                assert stays < (70 if width == 1440 else 130)
                heading = tab.locator(f"#{view} h2").bounding_box()
                assert stays <= heading["y"] < stays + 40
                # And where the contents are a column, all of it is in view.
                assert contents["y"] >= bar["height"] - 1
                assert contents["y"] + contents["height"] <= 900
                assert tab.evaluate("document.activeElement.id") == view
                for name in ("code", "width", "base", "position"):
                    expect(control(tab, "common", name)).to_be_in_viewport(ratio=1)
    resize(tab, 390, 900)  # and the contents follow the reader
    for view in ("pair", "precision", "naive"):
        tab.evaluate(
            "view => { const at = document.getElementById(view).getBoundingClientRect().top;"
            " scrollBy(0, at - innerHeight / 4 + 40); }",
            view,
        )
        settled(tab)
        current = tab.locator('.contents a[aria-current="location"]')
        expect(current).to_have_attribute("href", f"#{view}")
        expect(current).to_be_in_viewport(ratio=1)


def test_an_address_leads_to_a_view(tab, chromium, explorer):
    put(tab, "common", position=77)
    for address, view, position in (("distance", "distance", 77), ("shift&position=5", "shift", 5)):
        follow(tab, address)
        expect(tab.locator(f"#{view} h2")).to_be_in_viewport()
        holds(tab, "common", "position", position)
    opened = watched(chromium.new_page())
    opened.goto(f"{explorer.as_uri()}#ladder")
    settled(opened)
    expect(opened.locator("#ladder h2")).to_be_in_viewport()
    holds(opened, "common", "position", 100)
    opened.close()


def test_a_page_of_some_views_alone(chromium, explorer):
    tab = chromium.new_page(viewport={"width": 700, "height": 600})
    said = []
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(f"{explorer.as_uri()}#only=clock,nonsense,pair&position=7")
    tab.locator("#clock .hand").first.wait_for()
    assert fact(tab, "shown") == ["pair", "clock"]
    for gone in (".contents", ".opening", ".story > .part-name", ".further .says", "h1"):
        assert tab.locator(f"{gone}:visible").count() == 0, gone
    assert tab.locator(".bar").bounding_box()["y"] < 20
    expect(control(tab, "common", "position")).to_have_value("7")
    # What the page says of itself keeps to the views that were asked for, and opens on them.
    control(tab, "common", "position").fill("9")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("only=pair,clock&position=9"))
    tab.reload()
    expect(tab.locator("#explorer section")).to_have_count(2)
    expect(control(tab, "common", "position")).to_have_value("9")
    # Another list is another page; one without a view that there is is the whole page.
    for address, views in (("only=ladder&position=9", ["ladder"]), ("only=nonsense", list(VIEWS))):
        tab.evaluate("address => { location.hash = address; }", address)
        expect(tab.locator("#explorer .story section")).to_have_count(len(views))
        assert fact(tab, "shown") == views
    tab.close()
    assert said == []


def test_a_length_of_ten_is_ten_everywhere(tab):
    put(tab, "common", length=10)
    put(tab, "distance", served=10)
    for view, words in (
        ("lookback", "Of 28 queries in random texts of 10 tokens"),
        ("distance", "shown to 10, the served length"),
        ("precision", "nowhere within 10 tokens"),
        ("ladder", "within the trained 10 tokens"),
        ("bias", "10 distances"),
    ):
        assert re.search(words, caption(tab, view)), (view, caption(tab, view))
    panels = {
        "counter": "position 9 its numbers are 9 times",
        "normalised": "0.111 in a text of 10 tokens",
        "paper": "rotation in 10 tokens",
    }
    for name, words in panels.items():
        assert words in plain(tab.locator(f'[data-naive="{name}"] figcaption').inner_text())
    assert "10 queries with 10 keys" in plain(tab.locator("#scores .says").first.inner_text())
    assert "10 tokens across" in plain(tab.locator("#naive .naive-note").inner_text())
    assert "last 10 of the 10 positions" in plain(tab.locator("#precision").inner_text())
    # No axis and no sentence of what is drawn over positions goes beyond.
    for view in ("naive", "spacing"):
        axes = tab.locator(f"#{view} .naive-panel .axis[transform^='translate(0,'] text").all_text_contents()
        assert axes
        assert max(float(plain(each)) for each in axes) <= 9
    put(tab, "lookback", shift=12)
    assert "A text of 10 tokens has no token 12 back" in caption(tab, "lookback")
    put(tab, "common", length=2048)
    assert "Of 752 queries in random texts of 200 tokens" in caption(tab, "lookback")


def test_saving_a_figure_is_one_small_word_until_it_is_pressed_and_sliders_are_as_wide_as_their_column(tab):
    resize(tab, 1440, 900)
    widths = fact(tab, "sliders")
    assert len(widths) > 20
    assert all(width == column and width > 230 for width, column in widths), widths
    save = tab.locator("#pair .save")
    box = save.bounding_box()
    assert box["width"] < 60
    assert box["height"] < 30
    assert save.locator("button:visible").count() == 0
    save.locator("summary").click()
    assert save.locator("button:visible").all_inner_texts() == ["SVG", "PNG"]
    save.locator("summary").click()
