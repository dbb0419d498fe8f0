"""What tests of audits share."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def audit_schema(repository: Path) -> Any:
    """What validates the JSON of an audit."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    return validator(json.loads((repository / "docs" / "audit.schema.json").read_text(encoding="utf-8")))
