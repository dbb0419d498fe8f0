"""The pages have nothing that assistive technology stumbles over, in light and dark, on narrow and wide screens."""

import pytest

from browsing import settled
from clockhands.show.report import report
from explorer.facts import MODELS, audits_in, shown

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory, explorer):
    """The page without a model, the page of two models, and the report on them."""
    place = tmp_path_factory.mktemp("pages")
    # An error, a warning and notes: a ladder of which most never turns.
    audits = audits_in(place, sound=MODELS["gemma"], broken=MODELS["llama"] | {"rope_theta": 0})
    assert any(finding.severity == "error" for finding in audits["broken"].findings)
    (place / "report.html").write_text(report([*audits.values()]), encoding="utf-8")
    models = shown(place / "models.html", *audits.values())
    return {"plain": explorer, "models": models, "report": place / "report.html"}


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
