"""Kernel, simple codes, ladders, precision and biases in a real browser: each control, to the numbers of Python."""

import math
import re
from decimal import Decimal

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from browsing import expect, settled
from clockhands.encodings.additive import EvenlySpaced, SineOnly, SingleFrequency
from clockhands.encodings.heads import margin
from clockhands.encodings.ladders import geometric
from clockhands.encodings.scaling import Dynamic, Linear, Llama3, Ntk, Yarn
from clockhands.measures import first_negative, first_rise, kernel_bound, kernel_by_distance
from clockhands.measures.tokens._unique import distinct_positions
from exploring import control, holds, plain, put, says

pytestmark = pytest.mark.slow

PAPER = ch.Sinusoidal(512)
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
BESIDE = {
    "even": ("evenly spaced frequencies", EvenlySpaced(512)),
    "single": ("one frequency", SingleFrequency(512)),
    "base100": ("base 100", ch.Sinusoidal(512, 100)),
    "base1000000": ("base 1000000", ch.Sinusoidal(512, 1e6)),
}


def told(spec, farthest):
    """What is told of a kernel: its values, where it first rises and is first below 0."""
    values = kernel_by_distance(spec.ladder, farthest + 1)
    error = kernel_bound(spec.ladder.pairs)
    return values / spec.ladder.pairs, first_rise(values, error), first_negative(values, error)


def kernel_words(rise, below, farthest):
    """The words of both, with # for what can be compared, and the numbers."""
    words, numbers = [], []
    if rise is None:
        words.append("only falls up to #")
        numbers.append(farthest)
    elif rise == 0:
        words.append("rises at once")
    else:
        words.append("falls to distance # and then rises")
        numbers.append(rise)
    words.append("is nowhere below 0 up to #" if below is None else "is first below 0 at #")
    numbers.append(farthest if below is None else below)
    return ".*".join(words), numbers


@pytest.mark.parametrize("served", [64, 8192])
def test_the_kernel_is_told_for_both_codes_at_the_distance(quiet_page, explorer, served):
    values, rise, below = told(PAPER, served)
    with quiet_page(explorer) as tab:
        put(tab, "distance", served=served, other="")
        words, numbers = kernel_words(rise, below, served)
        says(
            tab, "distance", rf"in both directions\. It {words}; distances are shown to #, the served", *numbers, served
        )
        for k in (3, -40, 64):
            put(tab, "distance", shift=k)
            says(tab, "distance", "A row # tokens ahead and one # tokens behind", abs(k), abs(k))
            says(tab, "distance", "both give # of what a row gives with itself", values[abs(k)], rel=6e-3)
            tip = tab.locator("#distance .tip")
            assert tip.get_attribute("data-distance") == str(abs(k))
            assert float(tip.get_attribute("data-share")) == pytest.approx(values[abs(k)], abs=1e-12)
        for other, (name, spec) in BESIDE.items():
            put(tab, "distance", other=other)
            _, rise, below = told(spec, served)
            words, numbers = kernel_words(rise, below, served)
            says(tab, "distance", f"With {name} it {words}", *numbers)
            marks = tab.locator("#distance .mark-rise.beside-it")
            assert [int(mark.get_attribute("data-rise")) for mark in marks.all()] == ([rise] if rise else [])
            marks = tab.locator("#distance .mark-below.beside-it")
            assert [int(mark.get_attribute("data-below")) for mark in marks.all()] == ([] if below is None else [below])


def test_how_many_queries_a_head_built_by_hand_serves(quiet_page, explorer):
    """`lookback.test.js` holds the share to Python's head."""
    apart = margin(ch.Sinusoidal(64, order="cos-sin"), 200)
    with quiet_page(explorer) as tab:
        put(tab, "common", width=64)
        for back, deviation, seed in ((3, 0.3, 0), (7, 0.15, 4)):
            put(tab, "lookback", shift=back, deviation=deviation, seed=seed)
            says(tab, "lookback", "Of # queries in random texts of 200 tokens, #% find", 4 * (200 - back), 100)
            share = 100 * float(tab.locator("#lookback [data-right]").get_attribute("data-right"))
            assert 5 < share < 95
            says(
                tab,
                "lookback",
                r"and #% if words whose numbers have a deviation \(a typical size\) of #",
                share,
                deviation,
                rel=6e-3,
            )
            says(tab, "lookback", "the right score is #, and the next best is only # below it", 32, apart)
        put(tab, "lookback", deviation=0)
        says(tab, "lookback", r"and #% if words whose numbers have a deviation \(a typical size\) of 0 ", 100)


def distances_to(rows, place):
    return np.linalg.norm(rows - rows[place], axis=1)


def test_what_the_simple_codes_lose(quiet_page, explorer):
    """`simple.test.js` holds what each panel says to the rows of its code."""
    width, length, position = 32, 300, 250
    beside, from_first = (
        distances_to(ch.table(spec, length, "float64"), 0) for spec in (SingleFrequency(width), ch.Sinusoidal(width))
    )
    twin, even = 1 + int(np.argmin(beside[1:])), EvenlySpaced(width).rates
    gained = round(2 * math.pi / (even[0] - even[1]))
    with quiet_page(explorer) as tab:
        put(tab, "common", width=width, length=length)
        put(tab, "clock", position=position)
        waves = [2 * math.pi / rate for rate in ch.Sinusoidal(width).rates]
        words = "same factor, here #, from # tokens to #:"
        says(tab, "spacing", words, waves[1] / waves[0], waves[0], waves[-1], rel=6e-3)
        panel = '[data-naive="{}"] figcaption'
        says(tab, panel.format("counter"), "at position # its numbers are # times", length - 1, length - 1)
        says(tab, panel.format("normalised"), "grows by # in a text of # tokens", 1 / (length - 1), length, rel=6e-3)
        says(tab, panel.format("single"), "positions 0 and #, or any two # apart", twin, twin)
        says(tab, panel.format("even"), "after # tokens all hands", gained)
        steps = np.linalg.norm(np.diff(ch.table(SineOnly(width), length, "float64"), axis=0), axis=1)
        says(tab, panel.format("sine"), "step is # in one place and # in another", steps.min(), steps.max(), rel=6e-3)
        jump = 2 ** (length - 1).bit_length() // 2
        says(tab, panel.format("binary"), "from # to # all # digits flip", jump - 1, jump, jump.bit_length())
        even_length, never = math.sqrt(width / 2), sum(length < wave for wave in waves)
        says(tab, panel.format("paper"), "one length, #, and one step, #;", even_length, from_first[1], rel=6e-3)
        assert from_first[1:].min() == from_first[1]
        says(tab, panel.format("paper"), "neighbours are the nearest rows of all")
        says(tab, panel.format("paper"), "price: # of # pairs never", never, width // 2)
        # The curves are the distances from the position that all views share, and the twin is marked on one.
        for view in ("naive", "spacing"):
            says(tab, f"#{view} .naive-panel .plot .name:last-child", "distance from row #", position)
        marks = tab.locator('#spacing [data-naive="single"] [data-marked]').all()
        assert {each.get_attribute("data-marked") for each in marks} in ({str(position + twin)}, {str(position - twin)})


def test_whether_a_ladder_is_fit_for_a_length(quiet_page, explorer):
    before = geometric(256)
    never = [pair for pair, rate in enumerate(before.rates) if rate * 2048 < 2 * math.pi]
    with quiet_page(explorer) as tab:
        for served, factor in ((8192, 4), (5000, 2)):
            put(tab, "ladder", served=served, factor=factor)
            for name, scaling in (
                ("none", None),
                ("linear", Linear(factor)),
                ("ntk", Ntk(factor)),
                ("dynamic", Dynamic(factor, 2048)),
                ("yarn", Yarn(factor, 2048)),
                ("llama3", Llama3(factor, 2048)),
            ):
                put(tab, "ladder", scaling=name)
                after = scaling(before, served) if scaling else before
                beyond = [i for i in never if after.rates[i] * served > before.rates[i] * 2048 * (1 + 1e-9)]
                kept = sum(abs(new - old) <= 1e-9 * old for new, old in zip(after.rates, before.rates, strict=True))
                says(tab, "ladder", "^[^.]*, some hands go beyond" if beyond else "^[^.]*, nothing new, as far")
                says(tab, "ladder", "Of # pairs #, from pair # on", 256, len(never), never[0])
                if scaling:
                    says(tab, "ladder", "# of # pairs keep", kept, 256)
                if after.attention_factor != 1:
                    says(tab, "ladder", "multiplied by #", after.attention_factor, rel=6e-5)
                says(tab, f'#ladder .band[data-scaling="{name}"] .band-words', f": {len(beyond) or 'none'} ")
                near = sum(map(math.cos, after.rates)) / 256 * after.attention_factor**2
                note_holds(tab, near)
                for pair in (0, 128, 255):
                    put(tab, "ladder", pair=pair)
                    served_turns = after.rates[pair] * served / (2 * math.pi)
                    says(
                        tab,
                        "#ladder .note",
                        "Pair #: # tokens per rotation, # rotations in training.* # (?:rotations )?at the served",
                        pair,
                        2 * math.pi / before.rates[pair],
                        before.rates[pair] * 2048 / (2 * math.pi),
                        served_turns,
                        rel=6e-3,
                    )


def note_holds(tab, wanted):
    text = plain(tab.locator("#ladder .note").last.text_content())
    numbers = [float(each) for each in re.findall(r"-?\d+\.\d+", text)]
    assert any(each == pytest.approx(wanted, rel=6e-4) for each in numbers), text


def test_a_band_that_is_pressed_chooses_its_scaling_and_pair(quiet_page, explorer):
    with quiet_page(explorer) as tab:
        put(tab, "ladder", pair=0)
        svg, words = (
            tab.locator("#ladder .ladder-bands svg"),
            tab.locator('#ladder .band[data-scaling="yarn"] text').first,
        )
        svg.scroll_into_view_if_needed()
        settled(tab)
        box, band = svg.bounding_box(), words.bounding_box()
        tab.mouse.click(box["x"] + 0.5 * box["width"], band["y"] + 25)
        holds(tab, "ladder", "scaling", "yarn")
        settled(tab)
        pair = int(control(tab, "ladder", "pair").input_value())
        assert 60 < pair < 200
        says(tab, "pair", "sine of pair #", pair)


@pytest.mark.parametrize("length", [2048, 4096, 100_000])
def test_how_many_rows_a_dtype_leaves(quiet_page, explorer, length):
    with quiet_page(explorer) as tab:
        put(tab, "common", length=length)
        for name, dtype in DTYPES.items():
            put(tab, "precision", dtype=name)
            left = distinct_positions(range(length), np.dtype(dtype))
            if left < length:
                first = next(each for each in range(length) if float(np.asarray(each, dtype)) != each)
                words = f"^In {name} from position # on: .* # positions become # rows"
                says(tab, "precision", words, first, length, left)
            else:
                says(tab, "precision", f"^In {name} nowhere within # tokens", length)
            says(tab, f'#precision .boxes[data-dtype="{name}"] text', f"^{name}: # of # rows left", left, length)


def error_of(text):
    return math.inf if text == "none" else float(text)


def test_how_far_angles_are_off_at_each_position(quiet_page, explorer):
    exact, rates = geometric(256).exact, np.array(geometric(256).rates)
    with quiet_page(explorer) as tab:
        for position in (999, 99_999, 999_999_999, 123_456):
            put(tab, "precision", position=position)
            row = tab.locator(f'#precision tr[data-position="{position}"]')
            expect(row).to_have_class("here")
            cells = {
                each.get_attribute("data-error"): error_of(plain(each.inner_text())) for each in row.locator("td").all()
            }
            whole = Decimal(position)
            product = np.float32(position) * rates.astype(np.float32)
            wanted = {
                "float64": max(
                    abs(float(Decimal(position * float(r)) - whole * e)) for r, e in zip(rates, exact, strict=True)
                ),
                "float32": max(abs(float(Decimal(float(p)) - whole * e)) for p, e in zip(product, exact, strict=True)),
                "float16": off(position, np.float16) if position < 65_520 else math.inf,
                "bfloat16": off(position, ml_dtypes.bfloat16),
            }
            assert cells == {name: pytest.approx(each, rel=0.06) for name, each in wanted.items()}
        put(tab, "precision", position=10**15)
        says(tab, "#precision .far", "beyond 2⁴⁰ = #", 2**40)
        says(tab, "#precision .far", "put in by Python")
        for press in tab.locator("#precision .places button").all():
            press.click()
            holds(tab, "precision", "position", int(press.get_attribute("data-position")))


def off(position, dtype):
    """By how much the fastest hand, of one radian a token, is off where only positions are rounded."""
    return abs(float(dtype(position)) - position)


@pytest.mark.parametrize("heads", [1, 8, 12, 112])
def test_how_far_each_head_looks(quiet_page, explorer, heads):
    slopes, half = ch.Alibi(heads).slopes, math.log(2)
    head = min(3, heads - 1)
    with quiet_page(explorer) as tab:
        put(tab, "bias", heads=heads, head=head)
        assert not tab.locator('#bias select[data-name="biasOf"]').is_visible()  # of a model, and there is none
        says(tab, "bias", "With ALiBi on # heads?, .* halved after # tokens", heads, half / max(slopes), rel=6e-3)
        if heads > 1:
            says(tab, "bias", "and after # in the one that looks furthest", half / min(slopes), rel=6e-3)
        edges = ch.Buckets(heads).boundaries
        words = "all distances from # on share one value: of # distances they distinguish #"
        says(tab, "bias", words, edges[-1], 2048, 1 + len(edges))
        words = "Head #: slope # a token, half the weight at distance #, a hundredth at #"
        note = "#bias .half:first-child .note"
        says(tab, note, words, head, slopes[head], half / slopes[head], math.log(100) / slopes[head], rel=6e-3)
        lines = tab.locator("#bias .half:first-child .head-line")
        assert lines.count() == heads
        chosen = tab.locator("#bias .half:first-child .head-line.chosen-head")
        assert [each.get_attribute("data-head") for each in chosen.all()] == [str(head)]
