"""Attention, models and codes on the explorer's page, in a real browser: what is shown, dropped, picked and shared."""

import json
import re
from itertools import pairwise

import pytest

import clockhands as ch
from browsing import expect, settled, watched
from clockhands.auditing import audit
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page
from clockhands.show.report import report
from exploring import follow, plain, resize

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}
GEMMA = {
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "num_attention_heads": 2,
    "head_dim": 256,
    "num_hidden_layers": 128,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Configs, their audits and two pages: one without a model, one on two models."""
    place = tmp_path_factory.mktemp("pages")
    configs = {
        "sound": LLAMA,
        "hostile": LLAMA | {"model_type": HOSTILE},
        "broken": LLAMA | {"rope_theta": 0},
        "deep": GEMMA,
    }
    audits = {}
    for name, config in configs.items():
        (place / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
        audits[name] = audit(place / f"{name}.json")
        told = json.dumps({"schema": 1, "targets": [audits[name].to_dict()]})
        (place / f"{name}.audit.json").write_text(told, encoding="utf-8")
    (place / "plain.html").write_text(page(data()), encoding="utf-8")
    two = [audits["hostile"], audits["deep"]]
    (place / "two.html").write_text(page(data(two)), encoding="utf-8")
    (place / "report.html").write_text(report(two), encoding="utf-8")
    return place


@pytest.fixture
def opened(chromium, folder):
    """Open a page: opened("plain", "#width=8"); at the end nothing was fetched, nothing complained or popped up."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    heard: list[str] = []

    def go(name, fragment="", **emulated):
        tab = watched(context.new_page())
        if emulated:
            tab.emulate_media(**emulated)
        tab.on("request", lambda request: None if request.url.startswith("file:") else heard.append(request.url))
        tab.on("console", lambda message: heard.append(message.text))
        tab.on("pageerror", lambda error: heard.append(str(error)))
        tab.on("dialog", lambda dialog: heard.append(dialog.message) or dialog.dismiss())
        tab.goto((folder / f"{name}.html").as_uri() + fragment)
        settled(tab)
        return tab

    yield go
    context.close()
    assert heard == []


def answer(tab, view):
    return tab.locator(f"#{view} .answer")


def says(tab, view, words):
    expect(answer(tab, view)).to_contain_text(words)


def field(tab, name):
    return tab.locator(f'.common input[type="number"][data-name="{name}"]')


def choose(tab, path):
    tab.set_input_files("#control-audit", str(path))


def drop(tab, path, onto):
    """Let a file go over an element, as a person does."""
    held = tab.evaluate_handle(
        "([text, name]) => { const held = new DataTransfer(); held.items.add(new File([text], name)); return held; }",
        [path.read_text(encoding="utf-8"), path.name],
    )
    for event in ("dragover", "drop"):
        tab.dispatch_event(onto, event, {"dataTransfer": held})


def test_without_a_code_both_sentences_come_out_the_same_and_with_one_they_do_not(opened):
    tab = opened("plain")
    figures = tab.locator("#attention svg[aria-label*='looks at']")
    weights = [re.findall(r"\w+ (\d\.\d\d)", figures.nth(place).get_attribute("aria-label")) for place in range(4)]
    assert all(len(each) == 9 for each in weights)
    assert weights[0] == weights[1]
    assert weights[2] != weights[3]
    told = plain(answer(tab, "attention").inner_text())
    without, coded = (float(re.search(rf"{words} ([\d.e-]+)", told)[1]) for words in ("differ by", "the means are"))
    assert without < 1e-14
    assert coded > 0.01


def test_alibi_cannot_tell_a_sentence_from_its_mirror_and_rotary_can(opened):
    tab = opened("plain")
    choice = tab.locator('[data-name="code_in_attention"]')
    choice.select_option("alibi")
    says(tab, "attention", "With ALiBi it cannot tell these two either")
    choice.select_option("rotary")
    says(tab, "attention", "With RoPE, which most of today’s models use it can")


def test_other_weights_are_other_numbers_and_the_conclusion_stays(opened):
    tab = opened("plain")
    before = answer(tab, "attention").inner_text()
    tab.locator('#attention input[type="number"][data-name="seed"]').fill("7")
    tab.keyboard.press("Enter")
    expect(answer(tab, "attention")).not_to_have_text(before)
    says(tab, "attention", "With sines and cosines of the position added to each word it can")


def test_of_the_distance_all_is_left_as_it_is_or_where_blocks_commute_and_little_through_drawn_projections(opened):
    tab = opened("plain")
    labels = [each.get_attribute("aria-label") for each in tab.locator("#scores svg[aria-label*='distance']").all()]
    shares = [float(re.search(r"([\d.]+)\s%", label)[1]) for label in labels]
    assert len(shares) == 3
    assert shares[0] == shares[2] == 100
    assert shares[1] < 60


def test_a_page_without_a_model_says_how_to_get_one(opened):
    tab = opened("plain")
    assert answer(tab, "model").inner_text() == "No model is on this page yet."
    assert "clockhands audit MODEL --json" in tab.locator("#model").inner_text()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "it is not JSON"),
        ("a.json", "[1, 2]", "not of an audit"),
        ("config.json", json.dumps(LLAMA), "it is a model's config, not its audit"),
        ("a.html", "<p>nothing</p>", "it is a page, and no audit is in it"),
        (f"{HOSTILE[:7]}.json", "{", f"{HOSTILE[:7]}.json cannot be shown"),
    ],
)
def test_a_file_that_is_no_audit_has_its_own_sentence(opened, tmp_path, name, text, words):
    tab = opened("plain")
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    choose(tab, path)
    says(tab, "model", words)
    settled(tab)
    assert tab.locator("#model .one-model").count() == 0


def test_a_dropped_audit_becomes_the_page_s_code_and_a_second_stands_beside_it(opened, folder):
    tab = opened("plain")
    drop(tab, folder / "sound.audit.json", "#clock")
    expect(tab.locator("#model .one-model")).to_have_count(1)
    expect(field(tab, "width")).to_have_value("32")
    says(tab, "model", "in 3 layers")
    drop(tab, folder / "deep.audit.json", "#model")
    expect(tab.locator("#model .one-model")).to_have_count(2)
    says(tab, "model", "width 32 against 256")
    says(tab, "model", "each of its 128 layers is a line of the picture")


@pytest.mark.parametrize("name", ["two.html", "report.html"])
def test_a_page_that_holds_audits_can_be_opened_itself(opened, folder, name):
    tab = opened("plain")
    choose(tab, folder / name)
    expect(tab.locator("#model .one-model")).to_have_count(2)


def test_the_ladder_of_a_layer_becomes_the_page_s_code_with_its_own_numbers(opened, folder):
    tab = opened("two")
    for place, layer in enumerate(audit(folder / "deep.json").layers):
        press = tab.locator(f'#model button[data-code="model-1-{place}"]')
        press.click()
        expect(field(tab, "base")).to_have_value(f"{layer.base:.0f}")
        expect(press).to_have_attribute("aria-pressed", "true")
        pair = tab.locator('#pair input[type="number"][data-name="pair"]')
        expect(pair).to_have_attribute("max", str(len(layer.rates) - 1))
        pair.fill("100")
        pair.press("Enter")
        says(tab, "pair", "pair 100")
        settled(tab)
        rate = tab.locator("#pair dt", has_text="frequency").locator("xpath=following-sibling::dd[1]").inner_text()
        assert float(plain(rate).split("rad")[0]) == pytest.approx(layer.rates[100], rel=1e-5)


def test_from_a_model_s_code_a_button_leads_to_all_that_the_model_is_told(opened):
    tab = opened("two")
    expect(tab.locator("#model .answer")).not_to_be_in_viewport()
    tab.get_by_role("button", name="See all its settings").click()
    expect(tab.locator("#model .answer")).to_be_in_viewport()


def test_findings_stand_beside_the_layers_with_a_shape_for_each_severity(opened, folder):
    tab = opened("plain")
    choose(tab, folder / "broken.audit.json")
    found = audit(folder / "broken.json").findings
    expect(tab.locator("#model .finding")).to_have_count(len(found))
    settled(tab)
    for severity in ("error", "warning", "note"):
        shown = tab.locator(f"#model .finding.{severity} strong").all_inner_texts()
        assert shown == [f"{severity} {each.code}" for each in found if each.severity == severity]
    says(tab, "model", audit(folder / "broken.json").verdict)
    shapes = tab.locator("#model .severity.error")
    assert shapes.count() >= 1
    assert {each.evaluate("mark => mark.localName") for each in shapes.all()} == {"path"}


def test_every_layer_has_a_cell_and_the_chosen_one_is_lit(opened):
    tab = opened("two", "#layer=77")
    strips = tab.locator("#model .layer-strip")
    assert [strips.nth(place).locator(".layer").count() for place in range(2)] == [3, 128]
    chosen = strips.nth(1).locator(".layer.chosen title").text_content()
    assert chosen.startswith("layer 77: RoPE: rotates queries and keys")
    strips.nth(1).locator(".layer").nth(5).dispatch_event("click")
    expect(tab.locator('#model input[type="number"][data-name="layer"]')).to_have_value("5")


def test_a_hostile_model_type_is_text_wherever_it_stands(opened):
    tab = opened("two")
    says(tab, "model", HOSTILE)
    assert tab.locator("script").count() == 2
    assert HOSTILE in tab.locator("#model h3").first.inner_text()


@pytest.mark.parametrize("kind", ["constructor", "__proto__", "toString", "hasOwnProperty"])
def test_a_kind_that_every_object_has_is_a_word_like_any_other(opened, folder, tmp_path, kind):
    told = json.loads((folder / "sound.audit.json").read_text(encoding="utf-8"))
    for layer in told["targets"][0]["layers"]:
        layer["kind"] = kind
    path = tmp_path / "strange.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    tab = opened("plain")
    choose(tab, path)
    says(tab, "model", kind)
    expect(tab.locator("#model .one-model")).to_have_count(1)


def test_a_dropped_model_brings_its_own_lengths_and_a_published_scaling_the_one_that_it_starts_from(opened, folder):
    tab = opened("plain", "#length=512&served=1024")
    lengths = [tab.locator(f'input[type="number"][data-name="{name}"]').first for name in ("length", "served")]
    choose(tab, folder / "deep.audit.json")
    for place, layer in enumerate(audit(folder / "deep.json").layers):
        tab.locator(f'#model button[data-code="model-0-{place}"]').click()
        for each in lengths:
            expect(each).to_have_value(str(layer.window or 131072))
    tab.locator("#control-code").select_option("llama3.1")
    spec = ch.preset("llama3.1")
    expect(lengths[0]).to_have_value(str(spec.scaling.original))
    expect(lengths[1]).to_have_value(str(int(spec.scaling.original * spec.scaling.factor)))
    # What is set by hand afterwards is what a link shares.
    lengths[0].fill("2048")
    lengths[0].press("Enter")
    expect(tab).to_have_url(re.compile("length=2048"))
    again = opened("plain", tab.evaluate("location.hash"))
    expect(again.locator('input[type="number"][data-name="length"]').first).to_have_value("2048")


def test_a_picked_code_brings_its_fields_and_a_changed_field_makes_one_s_own(opened):
    tab = opened("plain")
    codes = tab.locator("#control-code")
    spec = ch.preset("ctrl")
    codes.select_option("ctrl")
    expect(field(tab, "width")).to_have_value(str(spec.width))
    expect(tab.locator('.common [data-name="layout"]')).to_have_value(spec.layout)
    field(tab, "base").fill("500")
    field(tab, "base").press("Enter")
    expect(codes).to_have_value("custom")
    expect(tab.locator('.common [data-name="layout"]')).to_have_value(spec.layout)


def test_a_code_at_another_width_keeps_its_name_and_a_link_opens_it_so(opened):
    tab = opened("plain")
    for name, width in (("ctrl", 64), ("llama2", 32), ("vaswani2017", 512), ("vaswani2017", 64)):
        tab.locator("#control-code").select_option(name)
        field(tab, "width").fill(str(width))
        field(tab, "width").press("Enter")
        expect(tab.locator("#control-code")).to_have_value(name)
        says(tab, "table", f"{width} ")
        told = tab.locator(".further .says").first
        if ch.preset(name).rates and width != 512:
            expect(told).to_contain_text(f"{name} with width {width}, where it was published with")
    expect(tab).to_have_url(re.compile("width=64"))
    again = opened("plain", tab.evaluate("location.hash"))
    assert again.locator("#control-code").input_value() == "vaswani2017"
    assert field(again, "width").input_value() == "64"
    # A code whose dimensions rotate in part has no other width.
    again.locator("#control-code").select_option("gpt-neox")
    field(again, "width").fill("48")
    field(again, "width").press("Enter")
    expect(again.locator("#control-code")).to_have_value("custom")


def test_a_link_opens_the_same_code_and_models(opened):
    tab = opened("two")
    tab.locator('#model button[data-code="model-1-1"]').click()
    expect(tab).to_have_url(re.compile("code=model-1-1"))
    again = opened("two", tab.evaluate("location.hash"))
    assert again.locator("#control-code").input_value() == "model-1-1"
    assert field(again, "base").input_value() == "1000000"


def test_an_address_that_is_typed_is_followed(opened):
    tab = opened("two")
    follow(tab, "position=5")
    expect(tab.locator('#clock input[type="number"][data-name="position"]')).to_have_value("5")
    assert tab.locator("#control-code").input_value() == "model-0-0"
    follow(tab, "width=8")
    # A model's own frequencies have one width.
    expect(tab.locator("#control-code")).to_have_value("custom")
    expect(field(tab, "width")).to_have_value("8")


def test_pair_and_channel_of_a_small_code_are_held_to_what_it_has(opened):
    tab = opened("plain", "#width=4&channel=8")
    assert tab.locator('#pair input[type="number"][data-name="pair"]').input_value() == "1"
    assert "NaN" not in tab.locator("body").inner_text()


def test_the_theme_follows_the_system_until_the_button_is_pressed(opened):
    tab = opened("plain", color_scheme="dark")
    paper = "() => getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(paper)
    tab.emulate_media(color_scheme="light")
    settled(tab)
    light = tab.evaluate(paper)
    assert light != dark
    tab.get_by_role("button", name="Dark", exact=True).click()
    settled(tab)
    assert tab.evaluate(paper) == dark
    assert tab.evaluate("() => localStorage.length + document.cookie.length") == 0


def test_the_story_is_one_column_at_every_width(opened):
    tab = opened("plain")
    for width in (1280, 360):
        resize(tab, width, 800)
        boxes = tab.evaluate(
            "() => [...document.querySelectorAll('#explorer section')].map((each) => each.getBoundingClientRect())"
            ".map(({ left, top, bottom }) => [left, top, bottom])"
        )
        assert len({left for left, *_ in boxes}) == 1
        assert all(above[2] <= below[1] + 1 for above, below in pairwise(boxes))
        assert tab.evaluate("() => document.documentElement.scrollWidth") == width
