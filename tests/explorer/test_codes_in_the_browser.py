"""Every code that the page offers, in a real browser: what its views say of it is what the library says."""

import math
import re

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Proportional
from clockhands.encodings.specs import to_dict
from clockhands.errors import InvalidValue
from clockhands.show.explorer.data import codes, data
from clockhands.show.explorer.page import page
from exploring import caption, plain, put, says

pytestmark = pytest.mark.slow

NO_SHIFT = "[Nn]o (?:one|single) rotation is a shift of this"
ORDERS = {
    "falling": r"high frequencies left(?: of each half)? \(# tokens\), low ones right \(#\)",
    "rising": r"low frequencies left(?: of each half)? \(# tokens\), high ones right \(#\)",
}
WHY = {
    "xpos": "grow or shrink with the position",
    "deepseek-v3-transformers": "written to other dimensions",
    "funnel-phi": "both dimensions of a pair hold the same function",
    "funnel-pi": "both dimensions of a pair hold the same function",
    "patchtst": "the mean of the table is subtracted from every value",
}


def refusal(ask, *asked):
    """What the library says where it refuses, or None."""
    try:
        ask(*asked)
    except InvalidValue as refused:
        return str(refused)
    return None


def has_none_of_these(tab):
    """What no caption, label or number may read."""
    text = plain(tab.locator("body").inner_text())
    found = re.search(r"NaN|undefined|Infinity|\[object|never tokens|\(never\)", text)
    assert found is None, text[max(found.start() - 80, 0) : found.end() + 80]


def ordered(rates):
    """How rates run from the first pair on, and the waves as the caption names them: the left ones first."""
    waves = [2 * math.pi / rate for rate in rates]
    order = "falling" if waves == sorted(waves) else "rising"
    assert order == "falling" or waves == sorted(waves, reverse=True)
    return ORDERS[order], waves[0], waves[-1]


def test_every_code_is_told_as_the_library_tells_it(quiet_page, explorer):
    k, start = 3, 40
    refused = []
    with quiet_page(explorer) as tab:
        for name, code in codes().items():
            spec = ch.preset(name)
            put(tab, "common", code=name)
            rates, waves = spec.rates, [2 * math.pi / rate for rate in spec.rates]
            fast, slow = min(waves), max(waves)
            says(
                tab,
                "clock",
                r"fast hand \(pair \d+, # tokens per rotation\).*slow one \(pair \d+, # tokens per rotation",
                fast,
                slow,
            )
            says(tab, "table", *ordered(rates))
            given = (
                "^Nothing is added to a token" if code["kind"] == "rotary" else f"^{code['width']} numbers a position"
            )
            says(tab, "table", given)
            says(tab, "table", "# (?:sines and cosines per|numbers a) position", code["width"])
            turned = k * rates[4]
            says(tab, "shift", "rotates pair 4 by # rad from position # and by # rad", turned, start, turned)
            without = refusal(ch.shift, spec, k)
            assert (without is None) == (refusal(ch.kernel, spec, [k]) is None)
            if without is None:
                says(tab, "shift", "So one matrix, R₃, .* on all # dimensions", code["width"])
                share = ch.kernel(spec, [k])[0] / len(rates)
                says(
                    tab,
                    "distance",
                    "^How far apart they are, roughly; not .* 3 tokens ahead and one 3 tokens behind both give # of",
                    share,
                    rel=6e-3,
                )
                assert not re.search(NO_SHIFT, caption(tab, "clock") + caption(tab, "pair"))
            else:
                refused.append(name)
                for view in ("shift", "distance", "pair", "clock"):
                    says(tab, view, WHY[name])
                says(tab, "shift", "no single rotation is a shift of this encoding")
                hands = sum(math.cos(k * rate) for rate in rates) / len(rates)
                says(
                    tab,
                    "distance",
                    "its rows have no kernel .* only the sines and cosines of its pairs, # of a row with itself",
                    hands,
                    rel=6e-3,
                )
                assert "ne matrix, R" not in caption(tab, "shift")
                assert "ahead" not in caption(tab, "distance")
            has_none_of_these(tab)
    assert sorted(refused) == sorted(WHY)


def test_what_one_matrix_misses_is_what_the_rows_say(quiet_page, explorer):
    spec = ch.preset("fairseq")
    shift = ch.shift(spec, 3)
    off = [
        np.abs(shift @ row - there).max()
        for row, there in ch.table(spec, [[1, 4], [100, 103]], "float64").swapaxes(0, 1).swapaxes(0, 1)
    ]
    with quiet_page(explorer) as tab:
        put(tab, "common", code="fairseq")
        put(tab, "shift", start=1, position=100)
        says(tab, "shift", "moves every row but row #, which is all zeros: there it is off by #", 1, max(off), rel=6e-2)
        put(tab, "shift", start=2)
        says(tab, "shift", "So one matrix, R₃, .* on all # dimensions", 512)
        within = float(re.search(r"within ([\d.e-]+), on all", caption(tab, "shift"))[1])
        assert 0 < within < 1e-14


def test_a_pair_that_holds_one_wave_is_not_told_apart_by_the_other(quiet_page, explorer):
    position, pair = 100, 4
    phase = position * ch.preset("funnel-pi").rates[pair]
    with quiet_page(explorer) as tab:
        for name, wave, other, height in (
            ("funnel-phi", "sine", "cosine", math.sin(phase)),
            ("funnel-pi", "cosine", "sine", math.cos(phase)),
        ):
            row = ch.table(ch.preset(name), [position], "float64")[0]
            assert np.isclose(row, height, atol=1e-12).sum() >= 2  # both channels of the pair
            put(tab, "common", code=name)
            says(tab, "pair", f"[Tt]he {wave} of pair # is # at position #", pair, round(height, 3), position)
            says(tab, "pair", f"The {other} could(?: distinguish the two)?, but this encoding does not have it")
            assert f"The {other} distinguishes" not in caption(tab, "pair")
            again = float(re.search(r"again at ([\d.]+)", caption(tab, "pair"))[1])
            turned = again * ch.preset(name).rates[pair]
            assert (math.sin(turned) if wave == "sine" else math.cos(turned)) == pytest.approx(height, abs=6e-3)
            says(tab, "clock", "would give the position back")


@pytest.mark.parametrize("name", ["patchtst", "vaswani2017", "xpos"])
def test_the_colours_of_the_table_span_its_numbers(quiet_page, explorer, name):
    spec = ch.preset(name)
    most = 1.0 if name == "xpos" else float(np.abs(ch.table(spec, 4096, "float64")).max())
    with quiet_page(explorer) as tab:
        put(tab, "common", code=name)
        ends = [float(plain(each)) for each in tab.locator("#table .legend text").all_text_contents()]
        assert ends == [pytest.approx(-most, rel=1e-2), 0, pytest.approx(most, rel=1e-2)]
        # The strongest colours are there, whatever the numbers: the darkest dot is as dark as that of the plain code.
        strong(tab)


def strong(tab):
    spread = tab.locator("#table canvas").first.evaluate(
        "canvas => { const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        " let least = 255, most = 0; for (let at = 0; at < data.length; at += 4) {"
        " least = Math.min(least, data[at]); most = Math.max(most, data[at]); } return most - least; }"
    )
    assert spread > 100


STILL = {
    "last-still": ch.Sinusoidal(8, spacing=Explicit((1.0, 0.1, 0.01, 0.0))),
    "first-still": ch.Sinusoidal(8, spacing=Explicit((0.0, 1.0, 0.1, 0.01))),
    "all-still": ch.Sinusoidal(8, spacing=Explicit((0.0, 0.0, 0.0, 0.0))),
    "rising": ch.Sinusoidal(8, spacing=Explicit((0.01, 0.1, 1.0, 2.0))),
    "no-order": ch.Sinusoidal(8, spacing=Explicit((0.1, 2.0, 0.01, 1.0))),
    "part": Rotary(16, scaling=Proportional(0.5, 1.0)),
}


@pytest.fixture(scope="module")
def still(tmp_path_factory):
    """A page with codes some of whose hands stand still."""
    held = data()
    for name, spec in STILL.items():
        held["codes"][name] = held["codes"]["vaswani2017"] | {
            "kind": "rotary" if isinstance(spec, Rotary) else "sinusoidal",
            "width": 2 * len(spec.rates), "base": None, "spec": to_dict(spec), "layout": spec.layout,
        }  # fmt: skip
    file = tmp_path_factory.mktemp("still") / "still.html"
    file.write_text(page(held), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", list(STILL))
def test_hands_that_stand_still_or_rise_are_told_as_they_are(quiet_page, still, name):
    rates = STILL[name].rates
    moving = [rate for rate in rates if rate]
    with quiet_page(still) as tab:
        put(tab, "common", code=name)
        before = [rate or 10_000 ** (-pair / 8) for pair, rate in enumerate(rates)] if name == "part" else rates
        for pair, (rate, old) in enumerate(zip(rates, before, strict=True)):
            put(tab, "ladder", pair=pair)
            if old == 0:
                says(tab, "#ladder .note", f"^Pair {pair} never rotates")
            else:
                after = "" if rate else ".* after scaling it never rotates"
                says(tab, "#ladder .note", f"^Pair {pair}: # tokens per rotation{after}", 2 * math.pi / old)
            has_none_of_these(tab)
        if not moving:
            told = "Position # is the same as every other: all # hands of this encoding never rotate"
            says(tab, "clock", told, 100, len(rates))
            says(tab, "table", "the same at every position")
            return
        fast, slow = 2 * math.pi / max(moving), 2 * math.pi / min(moving)
        says(
            tab,
            "clock",
            r"fast hand \(pair \d+, # tokens per rotation\).*slow one \(pair \d+, # tokens per rotation",
            fast,
            slow,
        )
        says(tab, "clock", "give the position back: #", 100)
        if name == "no-order":
            says(tab, "table", "wavelengths of # to # tokens, unordered", fast, slow)
        else:
            says(tab, "table", *ordered(moving))
        idle = len(rates) - len(moving)
        if idle:
            says(tab, "table", r"# of # pairs never rotates?\.", idle, len(rates))
            says(tab, "clock", r"# of # hands never rotates?\.", idle, len(rates))
        for place in tab.locator("#clock .hand").all():
            label = plain(place.text_content())
            rate = rates[int(place.get_attribute("data-pair"))]
            assert label.startswith("fast: ") == (rate == max(moving))
            assert label.startswith("slow: ") == (rate == min(moving))
