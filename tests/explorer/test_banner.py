"""What comes first on the explorer's page of a model: its worst problem with the lines that fix it, or a sentence."""

import pytest

from browsing import expect
from clockhands.auditing import audit
from clockhands.show.explorer.data import data
from explorer.facts import MODELS, audits_in, shown
from exploring import follow, plain


@pytest.fixture
def audits(tmp_path):
    """Of two folders with a config each: a sound one and one without its scaling."""
    large = MODELS["llama large"]
    for name, config in {"sound": large | {"max_position_embeddings": 8192}, "broken": large}.items():
        (tmp_path / name).mkdir()
        audits_in(tmp_path / name, config=config)
    return {name: audit(tmp_path / name) for name in ("sound", "broken")}


def test_the_page_holds_the_changed_lines_of_each_fix(audits):
    (told,) = data([audits["broken"]])["models"]
    (problem,) = [each for each in told["findings"] if each["severity"] != "note"]
    assert problem["code"] == "missing-scaling"
    assert '+  "rope_scaling": {' in problem["edit"]["lines"]
    assert all(line[0] in "+-" for line in problem["edit"]["lines"])
    # What `clockhands audit --json` prints is as it was.
    printed = next(each for each in audits["broken"].to_dict()["findings"] if each["edit"])
    assert "lines" not in printed["edit"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_a_broken_model_shows_its_worst_problem_and_its_fix_before_all_else(quiet_page, audits, tmp_path, width):
    with quiet_page(shown(tmp_path / "page.html", audits["broken"]), width) as tab:
        banner = tab.locator("#explorer > :first-child .banner")
        expect(banner).to_have_count(1)
        expect(banner).to_be_in_viewport()
        text = plain(banner.inner_text())
        assert f"broken (llama): {audits['broken'].verdict}" in text
        assert "warning missing-scaling The context length is 131072" in text
        assert "Fix: Set rope_scaling to" in text
        lines = banner.locator("pre").inner_text().splitlines()
        assert {'+  "rope_scaling": {', '-  "rope_theta": 500000.0'} <= set(lines)
        # Nothing of the page lies above it or over it, and it is no wider than the window.
        box, controls = banner.bounding_box(), tab.locator(".bar").bounding_box()
        assert box["y"] + box["height"] <= controls["y"]
        button = tab.locator(".theme").bounding_box()
        assert button["y"] + button["height"] <= box["y"] or button["y"] >= box["y"] + box["height"]
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_the_banner_follows_the_models_that_are_shown_and_of_a_sound_one_is_one_line(quiet_page, audits, tmp_path):
    with quiet_page(shown(tmp_path / "page.html", *audits.values()), 1440) as tab:
        banner = tab.locator(".banner")
        assert banner.first.inner_text() == "sound (llama): The position settings look correct."
        assert banner.first.bounding_box()["height"] < 40
        assert banner.last.inner_text().startswith("broken (llama):")
        expect(banner).to_have_count(2)
        follow(tab, "#model=1&beside=-1")
        expect(banner).to_have_count(1)
        expect(banner).to_contain_text("broken (llama)")
