"""What comes first on the explorer's page of a model: its worst problem with the lines that fix it, or a sentence."""

import json

import pytest

from browsing import expect, settled
from clockhands.auditing import audit
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page
from exploring import follow, plain

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
SOUND = LLAMA | {"max_position_embeddings": 8192}


@pytest.fixture
def audited(tmp_path):
    def made(name, config):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        return audit(tmp_path / name)

    return made


@pytest.fixture
def written(tmp_path):
    def made(*audits):
        file = tmp_path / "page.html"
        file.write_text(page(data(audits)), encoding="utf-8")
        return file

    return made


def test_the_page_holds_the_changed_lines_of_each_fix(audited):
    found = audited("broken", LLAMA)
    (told,) = data([found])["models"]
    (problem,) = [each for each in told["findings"] if each["severity"] != "note"]
    assert problem["code"] == "missing-scaling"
    assert '+  "rope_scaling": {' in problem["edit"]["lines"]
    assert all(line[0] in "+-" for line in problem["edit"]["lines"])
    # What `clockhands audit --json` prints is as it was.
    assert "lines" not in next(each for each in found.to_dict()["findings"] if each["edit"])["edit"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_a_broken_model_shows_its_worst_problem_and_its_fix_before_all_else(quiet_page, audited, written, width):
    found = audited("broken", LLAMA)
    with quiet_page(written(found), width) as tab:
        banner = tab.locator("#explorer > :first-child .banner")
        expect(banner).to_have_count(1)
        expect(banner).to_be_in_viewport()
        text = plain(banner.inner_text())
        assert f"broken (llama): {found.verdict}" in text
        assert "warning missing-scaling The context length is 131072" in text
        assert "Fix: Set rope_scaling to" in text
        lines = banner.locator("pre").inner_text().splitlines()
        assert '+  "rope_scaling": {' in lines
        assert '-  "rope_theta": 500000.0' in lines
        # Nothing of the page lies above it or over it, and it is no wider than the window.
        box, controls = banner.bounding_box(), tab.locator(".bar").bounding_box()
        assert box["y"] + box["height"] <= controls["y"]
        button = tab.locator(".theme").bounding_box()
        assert button["y"] + button["height"] <= box["y"] or button["y"] >= box["y"] + box["height"]
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_a_sound_model_shows_one_line(quiet_page, audited, written):
    with quiet_page(written(audited("sound", SOUND)), 1440) as tab:
        banner = tab.locator(".banner")
        assert banner.inner_text() == "sound (llama): The position settings look correct."
        assert banner.bounding_box()["height"] < 40


@pytest.mark.slow
def test_the_banner_follows_the_models_that_are_shown(quiet_page, audited, written):
    with quiet_page(written(audited("sound", SOUND), audited("broken", LLAMA)), 1440) as tab:
        assert [text.split(":")[0] for text in tab.locator(".banner").all_inner_texts()] == [
            "sound (llama)", "broken (llama)",
        ]  # fmt: skip
        follow(tab, "#model=1&beside=-1")
        expect(tab.locator(".banner")).to_have_count(1)
        expect(tab.locator(".banner")).to_contain_text("broken (llama)")


@pytest.mark.slow
def test_a_page_without_a_model_has_no_banner(quiet_page, written):
    with quiet_page(written(), 1440) as tab:
        expect(tab.locator(".banner")).to_have_count(0)


@pytest.mark.slow
def test_a_short_text_has_no_position_beyond_its_length(quiet_page, written):
    with quiet_page(written(), 1440) as tab:
        field = tab.locator('.common input[type="number"][data-name="length"]')
        field.fill("10")
        field.press("Enter")
        settled(tab)
        for view in ("clock", "pair"):
            assert "position 9" in plain(tab.locator(f"#{view} .answer").inner_text())
        assert "position 100" not in plain(tab.locator("#explorer").inner_text())
