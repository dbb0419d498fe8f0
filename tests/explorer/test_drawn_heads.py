"""What is drawn from a seed on the page in a browser: the numbers of Python's own rotations, and of its figure."""

import math
import re

import pytest

import clockhands as ch
from exploring import put, says
from seeded_draw import SeededDraw

pytestmark = pytest.mark.slow


def share(spec, seed, distance):
    """A drawn query, a distance after a drawn key, both turned: their product by that of their lengths."""
    query, key = SeededDraw(seed).normal(2, spec.head_width)
    start = max(0, -distance)
    turned = ch.rotate(query[None], spec, [start + distance])[0] @ ch.rotate(key[None], spec, [start])[0]
    return float(turned) / math.sqrt(query @ query * (key @ key))


def test_a_drawn_query_and_key_have_the_product_of_what_rotate_gives(tab, cases):
    for code, spec in (
        ("vaswani2017", ch.Rotary(512)),
        ("llama3.1", ch.preset("llama3.1")),
        ("gpt-j", ch.preset("gpt-j")),  # three quarters of its channels stand still
        ("esm2", ch.preset("esm2")),
    ):
        put(tab, "common", code=code)
        for seed, k in ((0, 3), (7, 3), (7, 500)):
            with cases(code, seed, k):
                put(tab, "distance", seed=seed, shift=k)
                behind, ahead = share(spec, seed, k), share(spec, seed, -k)
                assert abs(behind - ahead) > 1e-4
                words = (
                    f"a key of # random values.* is # with the key {k} tokens behind the query, and # with it as far "
                )
                says(tab, "#distance .figure .says", f"{words}ahead", spec.head_width, behind, ahead, rel=6e-3)
                shown = float(tab.locator("#distance .tip-drawn").get_attribute("data-score"))
                assert shown == pytest.approx(behind, abs=1e-9)


def test_a_query_and_a_key_turn_with_their_positions_and_keep_their_angle(tab, cases):
    for code, spec, pair in (("vaswani2017", ch.Rotary(512), 4), ("llama3.1", ch.preset("llama3.1"), 10)):
        put(tab, "common", code=code)
        put(tab, "scores", pair=pair, shift=3)
        rate = float(spec.rates[pair])
        words = []
        for position in (0, 7, 100):
            with cases(code, position):
                put(tab, "scores", position=position)
                for role, before, at in (("query", 0.5, position + 3), ("key", 1.2, position)):
                    apart = turned(tab, role) - before - rate * at
                    assert math.remainder(apart, math.tau) == pytest.approx(0, abs=1e-6)
                read = tab.locator("#scores .reading").all_text_contents()
                assert read[:2] == [f"query at {position + 3}", f"key at {position}"]
                words.append(read[2:])
        with cases(code, "stays"):
            between = abs(math.remainder(3 * rate + 0.5 - 1.2, math.tau))
            assert words[0] == words[1] == words[2]
            assert words[0][0] == f"angle between: {round(math.degrees(between))}°"


def turned(tab, role):
    """The angle of an arrow after its rotation, counted as angles are: up is positive."""
    path = tab.locator(f"#scores .arrow.{role}:not(.before)").get_attribute("d")
    x0, y0, x1, y1 = map(float, re.findall(r"-?[\d.]+(?:e-?\d+)?", path)[:4])
    return math.atan2(y0 - y1, x1 - x0)
