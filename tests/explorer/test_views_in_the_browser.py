"""Clock, pair, table and shift in a real browser: each control changes what it should, to the numbers of Python."""

import math
import re

import numpy as np
import pytest

import clockhands as ch
from browsing import PATIENCE, expect, settled
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from exploring import caption, control, holds, plain, put, says

pytestmark = pytest.mark.slow

PAPER = ch.Sinusoidal(512)
WARPS = {"square": np.square, "log": np.log, "reciprocal": np.reciprocal}


def angle(spec, pair, position):
    return float(np.angle(units(spec.ladder, positions_of([position]))[0, pair]))


def on_circle(turned):
    return turned - 2 * math.pi * np.round(np.asarray(turned) / (2 * math.pi))


def never_turning(spec, length):
    return sum(rate * length < 2 * math.pi for rate in spec.rates)


@pytest.mark.parametrize("position", [0, 777, 2047])
def test_the_hands_of_the_clock_stand_at_their_angles(quiet_page, explorer, position):
    with quiet_page(explorer) as tab:
        put(tab, "clock", position=position)
        says(tab, "clock", "At position # the fast hand", position)
        says(tab, "clock", r"tokens per rotation\) has completed # rotations, the slow", position / (2 * math.pi))
        says(tab, "clock", "give the position back: #", position)
        hands = tab.locator("#clock .hand")
        assert hands.count() >= 6
        for hand in hands.all():
            pair, shown = int(hand.get_attribute("data-pair")), math.radians(float(hand.get_attribute("aria-valuenow")))
            assert abs(on_circle(shown - angle(PAPER, pair, position))) < math.radians(0.051)
        # Their tips are drawn where the angles say.
        tips = hands.evaluate_all(
            "all => all.map((hand) => [hand.querySelector('.arm'), +hand.dataset.pair]).map(([arm, pair]) =>"
            " [pair, Math.atan2(arm.y1.baseVal.value - arm.y2.baseVal.value,"
            " arm.x2.baseVal.value - arm.x1.baseVal.value)])"
        )
        for pair, drawn in tips:
            assert abs(on_circle(drawn - angle(PAPER, pair, position))) < 1e-4
        bits = "".join(tab.locator("#clock .digit").all_text_contents())
        assert int(bits, 2) == position


# What the clock's field says in each frame, and when that frame began in ms, until it says so many tokens.
FRAMES = """([tokens, patience]) => {
  const field = document.querySelector('#clock input[type="number"][data-name="position"]'), frames = [];
  window.frames = new Promise((done) => {
    const look = (now) => {
      frames.push([now, Number(field.value)]);
      if (Number(field.value) >= tokens || now > frames[0][0] + patience) done(frames);
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}"""


def test_the_clock_is_stepped_and_plays_at_its_speed(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        tab.get_by_role("button", name="Forward", exact=True).click()
        holds(tab, "clock", "position", 101)
        tab.get_by_role("button", name="Back", exact=True).click(click_count=2)
        holds(tab, "clock", "position", 99)
        for speed, tokens in ((2, 4), (512, 768)):
            put(tab, "clock", speed=speed, position=0)
            holds(tab, "clock", "position", 0)
            tab.evaluate(FRAMES, [tokens, 1000 * PATIENCE])
            tab.get_by_role("button", name="Play", exact=True).click()
            times, places = zip(*tab.evaluate("window.frames"), strict=True)
            assert places[-1] >= tokens
            # A frame shows where the clock was when one of the last two began, in whole tokens.
            first, last = next(at for at, place in enumerate(places) if place), len(places) - 1
            least = (times[last - 2] - times[first]) * speed / 1000 - 1
            most = (times[last] - times[max(first - 2, 0)]) * speed / 1000 + 1
            assert least <= places[last] - places[first] <= most, (speed, times[first:], places[first:])
            stop = tab.get_by_role("button", name="Pause", exact=True)
            expect(stop).to_have_attribute("aria-pressed", "true")
            stop.click()
            expect(tab.get_by_role("button", name="Play", exact=True)).to_have_attribute("aria-pressed", "false")
            settled(tab)
            reached = control(tab, "clock", "position").input_value()
            tab.wait_for_timeout(300)  # long enough for a clock that still ran to show it
            assert control(tab, "clock", "position").input_value() == reached


def test_the_code_above_all_views_is_the_code_of_the_table(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        for name, value, spec, length in (
            ("width", 64, ch.Sinusoidal(64), 2048),
            ("base", 100, ch.Sinusoidal(64, 100), 2048),
            ("length", 300, ch.Sinusoidal(64, 100), 300),
        ):
            put(tab, "common", **{name: value})
            says(tab, "table", "# numbers a position", spec.width)
            ends = [2 * math.pi / spec.rates[place] for place in (0, -1)]
            says(tab, "table", r"high frequencies left \(# tokens\), low ones right \(#\)", *ends)
            never = never_turning(spec, length)
            if never:
                words = "# of # pairs .* never completes? a rotation in # tokens"
                says(tab, "table", words, never, spec.width // 2, length)
            else:
                says(tab, "table", "Every pair rotates at least once in # tokens", length)
        put(tab, "common", layout="halves")
        says(tab, "table", "left of each half")
        put(tab, "table", position=7, channel=40)
        want = ch.table(ch.Sinusoidal(64, 100, layout="halves"), [7], "float64")[0, 40]
        says(tab, "#table .readout strong", "^#$", want, rel=1e-8)
        put(tab, "common", code="ctrl")
        says(tab, "table", "# numbers a position", ch.preset("ctrl").width)


@pytest.mark.parametrize(("pair", "position"), [(4, 100), (0, 3), (200, 2047)])
def test_the_two_waves_of_a_pair(quiet_page, explorer, pair, position):
    rate = PAPER.rates[pair]
    phase = angle(PAPER, pair, position)
    twin = position + ((math.pi - 2 * phase) % (2 * math.pi)) / rate
    with quiet_page(explorer) as tab:
        put(tab, "pair", pair=pair, position=position)
        says(tab, "pair", "sine of pair # is # at position #", pair, round(math.sin(phase), 3), position)
        says(
            tab,
            "pair",
            "again at #, between the tokens # and #",
            twin,
            math.floor(twin),
            math.floor(twin) + 1,
            rel=1e-3,
        )
        says(
            tab,
            "pair",
            "The cosine distinguishes the two: it is # at the first, # at",
            round(math.cos(phase), 3),
            round(-math.cos(phase), 3),
        )
        facts = dict(
            zip(
                map(plain, tab.locator("#pair dt").all_inner_texts()),
                map(plain, tab.locator("#pair dd").all_inner_texts()),
                strict=True,
            )
        )
        assert facts["dimensions"] == f"{2 * pair} (sine), {2 * pair + 1} (cosine)"
        for name, want in (("frequency", rate), ("wavelength", 2 * math.pi / rate)):
            assert float(re.match(r"[\d.]+(?:e[+-]\d+)?", facts[name])[0]) == pytest.approx(want, rel=6e-6)
        rotations = float(re.match(r"[\d.]+", facts["in 2048 tokens"])[0])
        assert rotations == pytest.approx(2048 * rate / (2 * math.pi), rel=6e-4)
        rows = [plain(row).split("\t") for row in tab.locator("#pair tbody tr:not(.twin)").all_inner_texts()]
        table = ch.table(PAPER, [int(row[0]) for row in rows], "float64")[:, 2 * pair : 2 * pair + 2]
        np.testing.assert_allclose([[float(row[1]), float(row[2])] for row in rows], table, atol=6e-7)
        assert [row[3] for row in rows] == ["1"] * 5


def test_the_pair_is_turned_on_its_circle_and_moved_on_its_waves(quiet_page, explorer):
    with quiet_page(explorer, 1440) as tab:
        put(tab, "pair", pair=100, position=0)
        holds(tab, "clock", "position", 0)
        circle = tab.locator("#pair .circle svg")
        circle.scroll_into_view_if_needed()
        settled(tab)
        box = circle.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 6
        tab.mouse.move(x + 60, y)
        tab.mouse.down()
        tab.mouse.move(x + 50, y - 50, steps=4)
        tab.mouse.move(x, y - 60, steps=4)
        tab.mouse.up()
        quarter = round(math.pi / 2 / PAPER.rates[100])
        settled(tab)
        near(tab, quarter, 2)
        waves = tab.locator("#pair .waves svg").bounding_box()
        left, right = waves["x"] + 52, waves["x"] + waves["width"] - 64
        turn = 2 * math.pi / PAPER.rates[100]
        tab.mouse.click(left + 0.5 * (right - left), waves["y"] + 120)
        settled(tab)
        near(tab, turn, 0.01 * turn)


def near(tab, wanted, most):
    assert abs(int(control(tab, "clock", "position").input_value()) - wanted) <= most


def test_every_control_of_the_table_moves_what_is_read(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        for position, channel in ((100, 9), (2047, 511), (0, 0)):
            put(tab, "table", position=position, channel=channel)
            want = ch.table(PAPER, [position], "float64")[0, channel]
            says(tab, "#table .readout span", "^position #, dimension #$", position, channel)
            says(tab, "#table .readout strong", "^#$", want, rel=1e-8)
            says(tab, "#table .readout", "of pair #, in float32", channel // 2)
        put(tab, "table", rowsShown=64, columnsShown=16)
        # Now there is more than is in view, and fields say from where.
        put(tab, "table", firstRow=640, firstColumn=160)
        ticks = "#table .over .axis text"
        in_view(tab.locator(ticks).all_text_contents(), (160, 176), (640, 704))
        put(tab, "table", position=1000, channel=300)  # the window follows what is moved out of it
        in_view(tab.locator(ticks).all_text_contents(), (285, 301), (937, 1001))
        put(tab, "table", columnsShown=0)
        expect(tab.locator('#table input[data-name="firstColumn"]').first).to_be_hidden()


def in_view(ticks, columns, rows):
    numbers = [int(plain(tick)) for tick in ticks]
    assert len(numbers) >= 4
    for number in numbers:
        assert columns[0] <= number < columns[1] or rows[0] <= number < rows[1], numbers
    assert any(columns[0] <= number < columns[1] for number in numbers)
    assert any(rows[0] <= number < rows[1] for number in numbers)


def test_a_cell_that_is_pressed_moves_position_and_pair_everywhere(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        put(tab, "table", position=0, channel=0, rowsShown=16, columnsShown=16)
        in_view(tab.locator("#table .over .axis text").all_text_contents(), (0, 16), (0, 16))
        canvas = tab.locator("#table canvas")
        canvas.scroll_into_view_if_needed()
        settled(tab)
        box = canvas.bounding_box()
        row, channel = 11, 6
        tab.mouse.click(box["x"] + (channel + 0.5) / 16 * box["width"], box["y"] + (row + 0.5) / 16 * box["height"])
        tab.mouse.move(2, 2)
        settled(tab)
        pair, sine = channel // 2, ch.table(PAPER, [row], "float64")[0, channel]
        says(tab, "#table .readout strong", "^#$", sine, rel=1e-8)
        says(tab, "clock", "At position # the fast hand", row)
        says(tab, "pair", "sine of pair # is # at position #", pair, round(float(sine), 3), row)
        says(tab, "shift", "rotates pair # by", pair)
        says(tab, "shift", "and by # rad from position #", 3 * PAPER.rates[pair], row)
        says(tab, "#naive .naive-panel .plot .name:last-child", "distance from row #", row)
        says(tab, "#ladder .note", "Pair #: # tokens per rotation", pair, 2 * math.pi / PAPER.rates[pair])
        holds(tab, "precision", "position", row)
        chosen = tab.locator("#clock .hand.chosen")
        assert [each.get_attribute("data-pair") for each in chosen.all()] == [str(pair)]


@pytest.mark.parametrize("asked", [(3, 40, 100, 4), (-7, 500, 2000, 0), (200, 0, 1000, 90)])
def test_a_shift_turns_each_hand_by_k_times_its_rate(quiet_page, explorer, asked):
    k, start, position, pair = asked
    with quiet_page(explorer) as tab:
        put(tab, "shift", shift=k, start=start, position=position)
        put(tab, "pair", pair=pair)
        turned = k * PAPER.rates[pair]
        where = f"tokens (?:further|back) rotates pair {pair} by # rad from position # and by # rad from position #"
        says(tab, "shift", where, turned, start, turned, position)
        says(tab, "shift", r"\. # tokens (?:further|back) rotates", abs(k))
        sine, cosine = math.sin(turned), math.cos(turned)
        formula = plain(tab.locator("#shift .formula").inner_text())
        found = re.findall(r"= (-?[\d.e-]+) sin pω ([+-]) ([\d.e-]+) cos pω", formula)
        assert [(float(a), float(sign + b)) for a, sign, b in found] == [
            (pytest.approx(cosine, rel=6e-4), pytest.approx(sine, rel=6e-4)),
            (pytest.approx(-sine, rel=6e-4), pytest.approx(cosine, rel=6e-4)),
        ]
        # The arrows that are drawn from both starts end where Python's matrix moves the rows.
        matrix = ch.shift(PAPER, k)
        for at, begin in enumerate((start, position)):
            row = ch.table(PAPER, [begin], "float64")[0]
            hand = tab.locator(f'#shift [data-hand="{pair} {at}"]')
            for name, (up, across) in (
                ("shift-before", row[2 * pair : 2 * pair + 2]),
                ("shift-after", (matrix @ row)[2 * pair : 2 * pair + 2]),
            ):
                drawn = hand.evaluate(
                    "(hand, name) => { const { x1, y1, x2, y2 } = hand.querySelector('.' + name);"
                    " const radius = hand.querySelector('.face').r.baseVal.value;"
                    " return [(y1.baseVal.value - y2.baseVal.value) / radius,"
                    " (x2.baseVal.value - x1.baseVal.value) / radius]; }",
                    name,
                )
                assert drawn == pytest.approx([up, across], abs=1e-5), (name, begin)
        within = float(
            re.search(r"from both of these within ([\d.e-]+), on all 512 dimensions", caption(tab, "shift"))[1]
        )
        rows = ch.table(PAPER, [[start, start + k], [position, position + k]], "float64")
        misses = max(float(np.abs(matrix @ row - there).max()) for row, there in rows)
        # Both are rounding: sums of two products of numbers that are within an ulp or two of 1.
        assert max(within, misses) < 2e-15


@pytest.mark.parametrize("warp", list(WARPS))
def test_without_equal_steps_no_one_angle_serves_all_starts(quiet_page, explorer, warp):
    pair, k, clocked = 4, 3, WARPS[warp]
    starts = np.arange(1, 1024 - k)
    steps = PAPER.rates[pair] * (clocked(starts + float(k)) - clocked(starts.astype(float)))
    # Nearest on average is the direction of the mean of all arrows.
    best = np.angle(np.exp(1j * steps).sum())
    misses = math.degrees(np.abs(on_circle(steps - best)).max())
    with quiet_page(explorer) as tab:
        put(tab, "shift", warp=warp)
        one, two = (PAPER.rates[pair] * float(clocked(p + 3.0) - clocked(float(p))) for p in (40, 100))
        says(tab, "shift", "by # rad from position 40 but by # rad from position 100", one, two)
        says(tab, "shift", "starts from # to # still misses by up to #°", 1, starts[-1], misses, rel=6e-3)
        fan = float(tab.locator(f'#shift button[data-warp="{warp}"] [data-degrees]').get_attribute("data-degrees"))
        assert fan == pytest.approx(misses, rel=1e-9)
        pressed = tab.locator("#shift .shift-fans button[aria-pressed=true]")
        assert [each.get_attribute("data-warp") for each in pressed.all()] == [warp]
        tab.locator('#shift button[data-warp="none"]').click()
        holds(tab, "shift", "warp", "none")
        says(tab, "shift", "rotates pair 4 by # rad", 3 * PAPER.rates[pair])
