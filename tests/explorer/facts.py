"""Pages of models, addresses, and what the tests ask a page: `facts.js` holds the questions, each by its name."""

import json
from pathlib import Path
from typing import Any

from clockhands.auditing import Audit, audit
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page

FACTS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
MODELS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
ADDRESSES: dict[str, str] = json.loads(Path(__file__).with_name("addresses.json").read_text(encoding="utf-8"))


def fact(tab: Any, name: str, *given: object) -> Any:
    """The answer of a page, as JSON."""
    return tab.evaluate(f"(given) => ({FACTS.rstrip().rstrip(';')})[{name!r}](...given)", list(given))


def audits_in(folder: Path, **configs: dict[str, Any]) -> dict[str, Audit]:
    """The audit of each config, which is written into a folder under its name."""
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return {name: audit(folder / f"{name}.json") for name in configs}


def shown(file: Path, *audits: Audit) -> Path:
    """The explorer's page of some audits, as a file."""
    file.write_text(page(data(audits)), encoding="utf-8")
    return file
