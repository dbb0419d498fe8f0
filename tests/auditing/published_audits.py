"""The tool that audits all published configs, for tests of what it finds and of the document that it writes."""

from functools import cache
from pathlib import Path

import published_findings


@cache
def audits(published: Path) -> list:
    return published_findings.audits(published / "configs")
