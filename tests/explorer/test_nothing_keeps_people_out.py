"""The pages have nothing that assistive technology stumbles over, in light and dark, on narrow and wide screens."""

import json

import pytest

from browsing import settled
from clockhands.auditing import audit
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page
from clockhands.show.report import report

pytestmark = pytest.mark.slow

SOUND = {
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "num_attention_heads": 2,
    "head_dim": 256,
    "num_hidden_layers": 26,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}
# An error, a warning and notes: a key that no reader knows, and a ladder of which most never turns.
BROKEN = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 2048,
    "rope_theta": 0,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory, explorer):
    """The page without a model, the page of two models, and the report on them."""
    place = tmp_path_factory.mktemp("pages")
    audits = []
    for name, config in (("sound", SOUND), ("broken", BROKEN)):
        (place / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
        audits.append(audit(place / f"{name}.json"))
    assert any(finding.severity == "error" for finding in audits[1].findings)
    (place / "models.html").write_text(page(data(audits)), encoding="utf-8")
    (place / "report.html").write_text(report(audits), encoding="utf-8")
    return {"plain": explorer, "models": place / "models.html", "report": place / "report.html"}


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["plain", "models", "report"])
def test_nothing_keeps_people_out(quiet_page, pages, name, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with quiet_page(pages[name], width, scheme) as tab:
        if name == "report":
            tab.locator("#turn > summary").click()
            tab.locator("#explorer #model .one-model").first.wait_for()
            settled(tab)
        found = axe.run(tab).response
        assert len(found["passes"]) > 20
        grave = [
            (each["id"], each["impact"], node["html"][:120], node["failureSummary"][:200])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]
        assert grave == []


def test_what_keeps_people_out_would_be_seen(quiet_page, explorer):
    """A field that loses its label, and words that lose their contrast."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with quiet_page(explorer) as tab:
        tab.evaluate("""() => {
            document.querySelector('input[type=number]').removeAttribute('aria-label');
            document.querySelector('#clock .answer').style.setProperty('color', '#ccc');
        }""")
        found = {each["id"] for each in axe.run(tab).response["violations"]}
        assert found >= {"label", "color-contrast"}
