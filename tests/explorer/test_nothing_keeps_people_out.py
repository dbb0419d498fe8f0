"""The page has nothing that assistive technology stumbles over, in light and dark, on narrow and wide screens."""

import pytest

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_out(quiet_page, explorer, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with quiet_page(explorer, width, scheme) as tab:
        tab.wait_for_timeout(1200)  # the hands arrive
        found = axe.run(tab).response
        assert len(found["passes"]) > 20
        grave = [
            (each["id"], each["impact"], node["html"][:120], node["failureSummary"][:200])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]
        assert grave == []
