"""Angles that Python puts into the page, beyond what the page's own double precision reaches, against many digits."""

import json
from typing import Any

import mpmath

from clockhands.auditing import audit
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.presets import preset
from clockhands.show.explorer.data import POSITIONS, data, precise
from explorer.facts import MODELS, audits_in

BOUND = 2.0**-50  # rad, as documented

# A rate is 10,000 to the power of minus the pair over this.
DENOMINATORS = {"vaswani2017": 256, "fairseq": 255, "whisper": 255}


def hands(name: str) -> dict[str, Any]:
    """What the page holds of a preset."""
    return precise({name: preset(name).ladder})["codes"][name]  # type: ignore[union-attr]


def real(position: int, pair: int, denominator: int) -> Any:
    """The angle of a hand in rad, from -pi to pi."""
    with mpmath.workdps(60):
        phase = position * mpmath.power(10000, -mpmath.mpf(pair) / denominator)
        return mpmath.atan2(mpmath.sin(phase), mpmath.cos(phase))


def test_angles_against_sixty_digits(cases):
    for name, denominator in DENOMINATORS.items():
        found = precise({name: preset(name).ladder})
        held = found["codes"][name]
        assert len(held["angles"]) == len(found["positions"]) == len(POSITIONS)
        for position, angles in zip(found["positions"], held["angles"], strict=True):
            for pair, angle in zip(held["pairs"], angles, strict=True):
                with cases(name, position, pair):
                    assert abs(real(position, pair, denominator) - angle) <= BOUND


def test_hands_hold_the_ends_of_the_ladder_at_positions_where_the_page_trusts_itself_no_more():
    assert hands("vaswani2017")["pairs"] == [0, 51, 102, 153, 204, 255]
    assert hands("gpt-neox")["pairs"] == [0, 2, 4, 7, 9, 11]  # a short ladder has each once
    assert min(POSITIONS) == 2**40
    assert max(POSITIONS) == 2**53 - 1  # as far as a browser can say them
    assert list(POSITIONS) == sorted(set(POSITIONS))
    held = json.loads(json.dumps(data()))["precise"]  # of the code that the page opens on
    assert held == precise({"vaswani2017": preset("vaswani2017").ladder})


def test_the_page_holds_every_ladder_of_its_models_by_the_name_that_it_has_there(tmp_path):
    found = audits_in(tmp_path, config=MODELS["gemma small"])["config"]
    held = data([audit("llama"), found])["precise"]["codes"]
    assert set(held) == {"vaswani2017", "model-0-0", "model-1-0", "model-1-1"}
    for place, base in ((0, 1e4), (1, 1e6)):
        ladder = Geometric(base).ladder(16, 32)
        assert held[f"model-1-{place}"] == precise({"": ladder})["codes"][""]
    assert held["model-1-0"] != held["model-1-1"]


def test_the_angles_of_a_models_scaled_ladder_are_those_of_its_real_numbers_and_not_of_doubles(tmp_path):
    """Rates as doubles are off by up to 2^-54 of themselves: at 2^53 that is half a radian for the fastest."""
    found = audits_in(tmp_path, config=MODELS["llama scaled"])["config"]
    held = data([found])["precise"]["codes"]["model-0-0"]
    with mpmath.workdps(60):
        for pair, angle in zip(held["pairs"], held["angles"][-1], strict=True):
            rate = mpmath.power(500000, -mpmath.mpf(pair) / 16)
            turn = 2 * mpmath.pi
            # Wavelengths below 1,024 / 4 stay, above 1,024 / 1 are 8 times as long, and between the rates are mixed.
            share = max(mpmath.mpf(0), min(mpmath.mpf(1), (1024 * rate / turn - 1) / 3))
            phase = POSITIONS[-1] * rate * (share + (1 - share) / 8)
            assert abs(mpmath.atan2(mpmath.sin(phase), mpmath.cos(phase)) - angle) <= BOUND, pair
