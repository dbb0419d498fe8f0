"""The formula, the sum and the difference of encodings, and the pictures beside the hands, with Python's numbers."""

import math
import re
from decimal import Decimal

import numpy as np
import pytest

import clockhands as ch
from browsing import expect, settled
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from explorer.facts import MODELS, audits_in, shown
from exploring import caption, control, follow, holds, plain, put, says
from seeded_draw import SeededDraw

pytestmark = pytest.mark.slow

FAR = 2**40
CODES = {
    "": (ch.Sinusoidal(512), 4, 100),
    f"code=custom&width=2048&base=2&position={FAR}&pair=1023": (ch.Sinusoidal(2048, 2.0), 1023, FAR),
    "code=custom&width=8&base=100&span=closed&layout=halves&position=77&pair=2": (
        ch.Sinusoidal(8, spacing=Geometric(100.0, "closed"), layout="halves"), 2, 77,
    ),
    "code=fairseq&position=5&pair=3": (ch.preset("fairseq"), 3, 5),
}  # fmt: skip


def steps(tab):
    """The table of the formula's steps: names, sums and values."""
    rows = [plain(row).split("\t") for row in tab.locator("#formula .worked tr").all_inner_texts()]
    return {name: (total, value) for name, total, value in rows}


def phases(spec, position):
    return np.angle(units(spec.ladder, positions_of([position]))[0])


@pytest.mark.parametrize("address", list(CODES))
def test_every_step_of_the_formula_has_its_number(quiet_page, explorer, address):
    spec, pair, position = CODES[address]
    rate, base, multiplier = spec.ladder.exact[pair], spec.spacing.base, spec.spacing.multiplier
    exponent = pair / (spec.width / 2 - (spec.spacing.span == "closed"))
    with quiet_page(explorer) as tab:
        follow(tab, address)
        found = steps(tab)
        assert float(found["exponent"][1]) == pytest.approx(exponent, rel=1e-9)
        assert float(found["divisor"][1]) == pytest.approx(base**exponent, rel=1e-9)
        assert float(found["divisor"][1]) == pytest.approx(float(Decimal(multiplier) / rate), rel=1e-9)
        assert Decimal(found["angle θ"][1].removesuffix(" rad")) == round(rate * position, 8)
        angle = phases(spec, position)[pair]
        for name, want in (("sine", math.sin(angle)), ("cosine", math.cos(angle))):
            assert float(found[name][1]) == pytest.approx(want, abs=6e-9)
        row = ch.table(spec, [position], "float64")[0]
        held = {int(name.split(", ")[1][:-1]): float(value) for name, (_, value) in found.items() if "PE(" in name}
        assert len(held) == 2
        assert held == {channel: pytest.approx(row[channel], abs=6e-9) for channel in held}
        answer = caption(tab, "formula")
        assert f"position {position} and pair {pair} " in answer
        assert all(f"in dimension {channel}" in answer for channel in held)
        text = plain(tab.locator("#formula .symbols").inner_text())
        assert f"Here {position}." in text
        assert f"Here {spec.width}, that is {spec.width // 2} pair" in text
        assert float(re.search(r"same again\. Here ([\d.]+(?:e\d+)?) tokens", text)[1]) == pytest.approx(
            2 * math.pi / float(rate), rel=6e-6
        )
        if address == "code=fairseq&position=5&pair=3":
            says(tab, "#formula > .figure > .note", "divides by # .*the paper's formula divides 2i by d", 255)


def test_a_rotary_code_rotates_by_the_same_angle(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        follow(tab, "code=custom&kind=rotary&width=64&base=500000&position=12&pair=3")
        rate = 500000 ** (-3 / 32)
        found = steps(tab)
        assert float(found["angle θ"][1].removesuffix(" rad")) == pytest.approx(12 * rate, abs=6e-9)
        c, s = math.cos(12 * rate), math.sin(12 * rate)
        numbers = re.findall(r"(-? ?[\d.]+) q\((\d)\)", f"{found['q′(6)'][1]}|{found['q′(7)'][1]}".replace("- ", "-"))
        want = [(c, 6), (-s, 7), (s, 6), (c, 7)]
        assert [(float(value), int(channel)) for value, channel in numbers] == [
            (pytest.approx(value, abs=6e-5), channel) for value, channel in want
        ]
        assert "Nothing is added" in caption(tab, "formula")
        assert "Nothing is added" in caption(tab, "added")
        assert "its length stays" in caption(tab, "added")
        # One with a scaling: no base makes its frequencies, and the page has those in use.
        follow(tab, "code=llama3.1&position=1000&pair=40")
        spec = ch.preset("llama3.1")
        assert "do not follow the formula with a base" in caption(tab, "formula")
        text = plain(tab.locator("#formula .symbols").inner_text())
        in_use, without = map(
            float, re.search(r"Here ([\d.e-]+); without the scaling it would be ([\d.e-]+)\.", text).groups()
        )
        assert in_use == pytest.approx(spec.rates[40], rel=1e-7)
        assert without == pytest.approx(500000 ** (-40 / 64), rel=1e-7)
        assert Decimal(steps(tab)["angle θ"][1].removesuffix(" rad")) == round(spec.ladder.exact[40] * 1000, 8)


def test_what_is_pointed_at_in_the_formula_is_explained(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        for name in ("p", "i", "d", "base"):
            sign = tab.locator(f"#formula .typeset .reached[data-symbol='{name}']").first
            sign.focus()
            marked = tab.locator("#formula .symbols dd.marked")
            assert marked.get_attribute("data-symbol") == name
            assert marked.inner_text().startswith(sign.get_attribute("aria-description"))
            assert sign.get_attribute("aria-description")
        sign.hover()
        assert tab.locator("#formula .symbols dd.marked").count() == 1
        waves = tab.locator("#formula svg.plot")
        waves.focus()
        for key, pair in (("ArrowRight", 5), ("Shift+ArrowUp", 15), ("ArrowLeft", 14)):
            tab.keyboard.press(key)
            settled(tab)
            holds(tab, "formula", "pair", pair)
        want = 2 * math.pi * 10000 ** (14 / 256)
        assert float(waves.locator(".tip").get_attribute("data-wavelength")) == pytest.approx(want)


@pytest.mark.parametrize("asked", [(512, 1e4, 0.05, 2048), (8, 1e8, 0.6, 300), (2, 2.0, 1.0, 2)])
def test_how_long_rows_tokens_and_sums_are_and_how_many_are_found_again(quiet_page, explorer, asked):
    """`added.test.js` holds the share to Python's."""
    width, base, deviation, length = asked
    spec = ch.Sinusoidal(width, base)
    row, token = ch.table(spec, [length - 1], "float64")[0], deviation * SeededDraw(3).normal(64, width)[0]
    with quiet_page(explorer) as tab:
        follow(
            tab,
            f"code=custom&width={width}&base={base:.0f}&length={length}&position={length - 1}&seed=3"
            f"&deviation={deviation}",
        )
        lengths = [np.linalg.norm(each) for each in (row, token, row + token)]
        assert lengths[0] == pytest.approx(math.sqrt(width / 2))
        says(tab, "added", r"Every row is √\(#/2\) = # long", width, lengths[0])
        says(tab, "added", r"dimensions is # long, and their sum #\.", *lengths[1:])
        says(tab, "added", r"the cosine of their angle is #;", row @ token / lengths[0] / lengths[1], rel=6e-3)
        share = float(tab.locator("#added circle.tip").get_attribute("data-share"))
        says(tab, "added", "Of 64 random tokens .*, #% are still nearest", 100 * share, rel=6e-3)
        says(tab, "#added .note", r"deviation of 1/√# = #\.", width, 1 / math.sqrt(width), rel=6e-3)


def test_the_first_visible_difference_and_the_phases_are_those_of_python(quiet_page, explorer):
    one, other = ch.Sinusoidal(512), ch.preset("fairseq")
    at = [units(each.ladder, positions_of(range(4096))) for each in (one, other)]
    off = np.abs(np.angle(at[0] * at[1].conj()))
    first = int((off > 0.1).any(1).argmax())
    pair = int(off[first].argmax())
    with quiet_page(explorer) as tab:
        put(tab, "difference", other="fairseq")
        says(tab, "difference", "From position # on vaswani2017 and fairseq visibly differ", first)
        says(tab, "difference", "the phases of pair # are # rad apart", pair, off[first, pair], rel=6e-3)
        mark = tab.locator("#difference circle[data-first]")
        assert [mark.get_attribute("data-first"), mark.get_attribute("data-pair")] == [str(first), str(pair)]
        cells = tab.locator("#difference canvas.cells")
        cells.focus()
        for key, position, chosen in (
            ("Shift+ArrowRight", 110, 4),
            ("ArrowLeft", 109, 4),
            ("ArrowDown", 109, 5),
            ("Shift+ArrowDown", 109, 15),
            ("ArrowUp", 109, 14),
        ):
            tab.keyboard.press(key)
            settled(tab)
            holds(tab, "pair", "position", position)
            holds(tab, "pair", "pair", chosen)
        words = r"of pair # at position #: # rad in vaswani2017, # rad in fairseq; they differ by # rad"
        says(
            tab,
            "#difference .readout",
            words,
            14,
            109,
            *(phases(each, 109)[14] for each in (one, other)),
            off[109, 14],
            rel=2e-3,
        )
        # A press on the picture chooses what is there.
        box = cells.bounding_box()
        tab.mouse.click(
            box["x"] + box["width"] * math.log(500) / math.log(8191), box["y"] + box["height"] * 100.5 / 256
        )
        settled(tab)
        holds(tab, "pair", "pair", 100)
        assert abs(int(control(tab, "clock", "position").input_value()) - 500) < 10
        put(tab, "difference", other="")
        assert caption(tab, "difference") == "There is no second encoding: choose one to compare with."
        assert cells.count() == 0
        put(tab, "difference", other="vaswani2017")
        says(tab, "difference", "^Nowhere: vaswani2017 and vaswani2017 have the same frequencies")
        follow(tab, "code=custom&width=2&length=2&other=vaswani2017")
        says(tab, "difference", "They have # and # pairs; the first # of both", 1, 256, 1)


def test_two_models_are_compared_by_their_frequencies(quiet_page, tmp_path):
    audits = audits_in(tmp_path, one=MODELS["llama"], two=MODELS["llama"] | {"rope_theta": 10100.0})
    place = shown(tmp_path / "page.html", *audits.values())
    first, second = (10000.0 ** -(np.arange(16) / 16), 10100.0 ** -(np.arange(16) / 16))
    apart = np.abs(first - second)
    with quiet_page(place) as tab:
        says(tab, "difference", "From position # on", math.floor(0.1 / apart.max()) + 1)
        says(tab, "difference", "the phases of pair # are", int(apart.argmax()))
        expect(tab.locator("#difference select")).to_be_hidden()
        put(tab, "model", beside="-1")
        says(tab, "difference", "and evenly spaced frequencies visibly differ")


def test_a_pair_is_looked_at_between_two_tokens(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        put(tab, "pair", pair=0)
        field = tab.locator('#pair input[data-name="fraction"]')
        field.fill("0.52")
        field.press("Enter")
        settled(tab)
        says(
            tab,
            "pair",
            r"is # at position #, and # again at #",
            0.497,
            0.52,
            0.497,
            2.62,
            rel=1e-3,
        )
        says(tab, "#pair tr.here th", "^#$", 0.52)
        assert tab.evaluate("location.hash") == "" or "fraction" in tab.evaluate("location.hash")
        # A position that is set anywhere is a whole one.
        put(tab, "clock", position=7)
        assert field.input_value() == "7"
        says(tab, "pair", r"is # at position #, and", math.sin(7), 7, rel=1e-3)
        # The point of a fast pair follows the pointer, and stays where it is let go.
        circle = tab.locator("#pair .circle svg")
        circle.scroll_into_view_if_needed()
        settled(tab)
        box = circle.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 6
        angle = 7 + 0.3
        tab.mouse.move(x + 60 * math.cos(7), y - 60 * math.sin(7))
        tab.mouse.down()
        tab.mouse.move(x + 60 * math.cos(angle), y - 60 * math.sin(angle), steps=4)
        tab.mouse.up()
        settled(tab)
        assert float(field.input_value()) == pytest.approx(7.3, abs=0.03)
        holds(tab, "clock", "position", 7)


def test_the_other_token_with_nearly_the_same_sine_is_named(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        for pair, position in ((4, 100), (0, 1), (90, 1000)):
            put(tab, "pair", pair=pair, position=position)
            at = np.angle(units(ch.Sinusoidal(512).ladder, positions_of(range(2048)))[:, pair])
            # On the other side of the wave the cosine has the other sign.
            off = np.where(np.cos(at) * np.cos(at[position]) < 0, np.abs(np.sin(at) - np.sin(at[position])), np.inf)
            other = int(off.argmin())
            apart = abs(math.cos(at[other]) - math.cos(at[position]))
            says(
                tab,
                "#pair .note",
                "on the other side of the wave the nearest is #: its sine differs by # only, its cosine by #",
                other,
                off[other],
                apart,
                rel=6e-2,
            )


def test_the_small_table_is_read_cell_by_cell(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        cells = tab.locator("#table td[role=gridcell]")
        shown = [float(plain(text)) for text in cells.all_text_contents()]
        np.testing.assert_allclose(shown, ch.table(ch.Sinusoidal(10), 16, "float64").ravel(), atol=5.1e-4)
        heads = [row.split("\t")[1:] for row in tab.locator("#table thead tr").all_inner_texts()]
        assert heads == [list("0123456789"), list("0011223344"), ["sin", "cos"] * 5]
        tab.locator("#table td[tabindex='0']").focus()
        for key, row, channel in (
            ("ArrowDown", 1, 0),
            ("ArrowRight", 1, 1),
            ("End", 1, 9),
            ("ArrowUp", 0, 9),
            ("ArrowUp", 0, 9),
            ("Home", 0, 0),
        ):
            tab.keyboard.press(key)
            settled(tab)
            value = ch.table(ch.Sinusoidal(10), 16, "float64")[row, channel]
            says(
                tab,
                "#table .scrolled + .note",
                "Position #, dimension #: .*, is #",
                row,
                channel,
                round(float(value), 6),
            )
            holds(tab, "clock", "position", row)
            assert tab.locator("#table tr.here th").inner_text() == f"p = {row}"
        assert tab.locator("#table td[tabindex='0']").count() == 1
        # An encoding that is narrow is there itself, and one of ten tokens has ten rows.
        follow(tab, "code=custom&width=8&base=100&length=10&layout=halves")
        assert cells.count() == 80
        shown = [float(plain(text)) for text in cells.all_text_contents()]
        want = ch.table(ch.Sinusoidal(8, 100.0, layout="halves"), 10, "float64")
        np.testing.assert_allclose(shown, want.ravel(), atol=5.1e-4)
        cells.nth(8 * 3 + 5).click()
        settled(tab)
        holds(tab, "table", "position", 3)
        holds(tab, "table", "channel", 5)


@pytest.mark.parametrize(
    "address", ["", f"code=custom&width=8&base=2&position={FAR}", "code=custom&width=2&length=2&position=1"]
)
def test_the_three_waves_are_at_the_heights_of_their_pairs(quiet_page, explorer, address):
    with quiet_page(explorer) as tab:
        follow(tab, address)
        spec = ch.Sinusoidal(
            int(control(tab, "common", "width").input_value()), float(control(tab, "common", "base").input_value())
        )
        position = int(control(tab, "clock", "position").input_value())
        plot = tab.locator("#clock svg.plot").last
        waves, points = plot.locator("path.wave"), plot.locator("circle.at")
        pairs = [int(wave.get_attribute("data-pair")) for wave in waves.all()]
        assert pairs == sorted(pairs)
        assert pairs[0] == 0
        assert pairs[-1] == spec.width // 2 - 1
        zeros = [float(line.get_attribute("y1")) for line in plot.locator("line.zero").all()]
        sines = np.sin(phases(spec, position))[pairs]
        boxes = [wave.bounding_box() for wave in waves.all()]
        for place, (zero, sine) in enumerate(zip(zeros, sines, strict=True)):
            above = zero - float(points.nth(place).get_attribute("cy"))
            assert above == pytest.approx(sine * half_height(plot, len(pairs)), abs=0.02)
            assert boxes[place]["width"] > 200


def half_height(plot, rows):
    """Pixels from the middle of a wave to its top: its row less the room for its name."""
    return ((float(plot.get_attribute("height")) - 60) / rows - 22) / 2
