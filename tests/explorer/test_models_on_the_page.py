"""Attention, models and codes on the explorer's page, in a real browser: what is shown, dropped, picked and shared."""

import json
import re

import pytest

from browsing import expect, settled, watched
from clockhands.auditing import audit
from clockhands.show.report import report
from explorer.facts import MODELS, audits_in, shown
from exploring import follow, plain

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>"
LLAMA = MODELS["llama"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Configs, their audits and two pages: one without a model, one on two models."""
    place = tmp_path_factory.mktemp("pages")
    hostile, broken = LLAMA | {"model_type": HOSTILE}, LLAMA | {"rope_theta": 0}
    audits = audits_in(place, sound=LLAMA, hostile=hostile, broken=broken, deep=MODELS["gemma"])
    for name, found in audits.items():
        told = json.dumps({"schema": 1, "targets": [found.to_dict()]})
        (place / f"{name}.audit.json").write_text(told, encoding="utf-8")
    shown(place / "plain.html")
    two = [audits["hostile"], audits["deep"]]
    shown(place / "two.html", *two)
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


def field(tab, name, where=".common"):
    return tab.locator(f'{where} input[type="number"][data-name="{name}"]').first


def enter(tab, name, value, where=".common"):
    field(tab, name, where).fill(str(value))
    field(tab, name, where).press("Enter")


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
    # Other weights are other numbers, and the conclusion stays.
    before = answer(tab, "attention").inner_text()
    enter(tab, "seed", 7, "#attention")
    expect(answer(tab, "attention")).not_to_have_text(before)
    says(tab, "attention", "With sines and cosines of the position added to each word it can")
    # ALiBi cannot tell a sentence from its mirror, and rotary can.
    choice = tab.locator('[data-name="code_in_attention"]')
    choice.select_option("alibi")
    says(tab, "attention", "With ALiBi it cannot tell these two either")
    choice.select_option("rotary")
    says(tab, "attention", "With RoPE, which most of today’s models use it can")


def test_a_page_without_a_model_says_how_to_get_one_and_a_file_that_is_no_audit_has_its_own_sentence(opened, tmp_path):
    tab = opened("plain")
    assert answer(tab, "model").inner_text() == "No model is on this page yet."
    assert "clockhands audit MODEL --json" in tab.locator("#model").inner_text()
    # `audits.test.js` has a sentence for each way to be no audit.
    for name, words in (
        ("config.json", "it is a model's config, not its audit"),
        (f"{HOSTILE[:7]}.json", f"{HOSTILE[:7]}.json cannot be shown"),
    ):
        (tmp_path / name).write_text(json.dumps(LLAMA) if name == "config.json" else "{", encoding="utf-8")
        choose(tab, tmp_path / name)
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


def test_a_page_that_holds_audits_can_be_opened_itself(opened, folder):
    for name in ("two.html", "report.html"):
        tab = opened("plain")
        choose(tab, folder / name)
        expect(tab.locator("#model .one-model")).to_have_count(2)


def test_the_ladder_of_a_layer_becomes_the_page_s_code_with_its_own_numbers(opened, folder):
    tab = opened("two")
    expect(answer(tab, "model")).not_to_be_in_viewport()
    tab.get_by_role("button", name="See all its settings").click()
    expect(answer(tab, "model")).to_be_in_viewport()
    for place, layer in enumerate(audit(folder / "deep.json").layers):
        press = tab.locator(f'#model button[data-code="model-1-{place}"]')
        press.click()
        expect(field(tab, "base")).to_have_value(f"{layer.base:.0f}")
        expect(press).to_have_attribute("aria-pressed", "true")
        expect(field(tab, "pair", "#pair")).to_have_attribute("max", str(len(layer.rates) - 1))
        enter(tab, "pair", 100, "#pair")
        says(tab, "pair", "pair 100")
        settled(tab)
        rate = tab.locator("#pair dt", has_text="frequency").locator("xpath=following-sibling::dd[1]").inner_text()
        assert float(plain(rate).split("rad")[0]) == pytest.approx(layer.rates[100], rel=1e-5)


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
    expect(field(tab, "layer", "#model")).to_have_value("5")


def test_a_hostile_model_type_or_kind_is_text_wherever_it_stands(opened, folder, tmp_path):
    tab = opened("two")
    says(tab, "model", HOSTILE)
    assert tab.locator("script").count() == 2
    assert HOSTILE in tab.locator("#model h3").first.inner_text()
    told = json.loads((folder / "sound.audit.json").read_text(encoding="utf-8"))
    for kind in ("constructor", "__proto__", "toString", "hasOwnProperty"):  # words that every object has
        for layer in told["targets"][0]["layers"]:
            layer["kind"] = kind
        (tmp_path / "strange.json").write_text(json.dumps(told), encoding="utf-8")
        tab = opened("plain")
        choose(tab, tmp_path / "strange.json")
        says(tab, "model", kind)
        expect(tab.locator("#model .one-model")).to_have_count(1)


def test_a_link_opens_the_same_code_and_models_and_one_that_is_typed_is_followed(opened):
    tab = opened("two")
    follow(tab, "position=5")
    expect(field(tab, "position", "#clock")).to_have_value("5")
    assert tab.locator("#control-code").input_value() == "model-0-0"
    follow(tab, "width=8")
    # A model's own frequencies have one width.
    expect(tab.locator("#control-code")).to_have_value("custom")
    expect(field(tab, "width")).to_have_value("8")
    tab.locator('#model button[data-code="model-1-1"]').click()
    expect(tab).to_have_url(re.compile("code=model-1-1"))
    again = opened("two", tab.evaluate("location.hash"))
    assert again.locator("#control-code").input_value() == "model-1-1"
    assert field(again, "base").input_value() == "1000000"
    # Pair and channel of a small code are held to what it has.
    small = opened("plain", "#width=4&channel=8")
    assert field(small, "pair", "#pair").input_value() == "1"
    assert "NaN" not in small.locator("body").inner_text()


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
