"""Pages of the reference that are made from data, and the page of the benchmarks."""

import importlib.util
import json
from pathlib import Path

import pytest

import clockhands as ch
import documentation
import reference_pages
from clockhands.encodings.presets import names

ROOT = Path(__file__).resolve().parents[1]


def test_every_preset_has_a_section(monkeypatch):
    monkeypatch.setattr(reference_pages, "users", lambda: {name: ["a-model"] for name in names()})
    text = reference_pages.presets_page()
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(names())
    assert "\n| in configs | a-model |\n" in text
    assert '| `scaling` | `{"type": "Llama3", "factor": 8.0,' in text


def test_sizes_do_not_tell_encodings_apart_and_all_else_does():
    kind_of = reference_pages.kind_of
    assert kind_of(ch.Rotary(head_width=64)) == kind_of(ch.Rotary(head_width=128))
    assert kind_of(ch.Rotary(head_width=64, rotated=16)) == kind_of(ch.Rotary(head_width=128, rotated=32))
    others = [ch.Rotary(64, rotated=32), ch.Rotary(64, base=500_000), ch.Rotary(64, layout="interleaved")]
    assert len({kind_of(spec) for spec in (ch.Rotary(64), *others)}) == 4


@pytest.mark.slow
def test_published_configs_have_the_encodings_of_their_presets():
    found = reference_pages.users()
    assert "bert-base-uncased" in found["bert"]
    assert "bert-base-uncased" not in found["bart"]
    assert not set(found["llama3"]) & set(found["llama2"])


def test_bounds_are_those_of_the_docstrings():
    text = reference_pages.bounds_page({"clockhands": ["rotate", "preset"]})
    assert (
        "| `clockhands.rotate` | cosine and sine correctly rounded to float32 at every position up to 2\\*\\*63" in text
    )
    assert "`clockhands.preset`" not in text
    assert (
        reference_pages.accuracy_of("What.\n\nAccuracy: within 1 ulp,\n    or so.\n\nMore.") == "within 1 ulp, or so."
    )


def test_every_field_of_a_schema_has_a_row():
    text = reference_pages.schemas_page()
    for path in (ROOT / "docs").glob("*.schema.json"):
        schema = json.loads(path.read_text(encoding="utf-8"))
        for node in (schema, *schema.get("$defs", {}).values()):
            for name in node.get("properties", {}):
                assert f"\n| `{name}` | " in text, (path.name, name)
    assert "\n| `unread[].message` | string | yes |  |\n" in text


def test_a_link_to_a_claim_leads_to_its_page():
    index = ROOT / "docs" / "claims.md"
    page = ROOT / "docs" / "claims" / "longer-texts.md"
    sources = {index: "claims.md", page: "claims/longer-texts.md", ROOT / "docs" / "lab.md": "lab.md"}
    found = documentation.LINK.match("[it](claims.md#sinusoids-extrapolate)")
    assert found is not None
    linked = documentation._link(found, ROOT / "docs" / "lab.md", sources)
    assert linked == "[it](claims/longer-texts.md#sinusoids-extrapolate)"
    plain = documentation.LINK.match("[it](claims.md)")
    assert plain is not None
    assert documentation._link(plain, ROOT / "docs" / "lab.md", sources) == "[it](claims.md)"


def test_figures_of_a_benchmark_are_rows_of_its_page():
    place = ROOT / "benchmarks" / "page.py"
    found = importlib.util.spec_from_file_location("page_of_benchmarks", place)
    assert found is not None
    assert found.loader is not None
    maker = importlib.util.module_from_spec(found)
    found.loader.exec_module(maker)
    target = {"what": "import", "measured": 1.5, "limit": 1.25, "unit": "x", "more": False, "met": False}
    figures = {
        "versions": {"numpy": "2"},
        "machine": "2 cores",
        "units": {"start": "ms"},
        "start": {"a | b": 12345.6},
        "targets": [target],
    }
    text = maker.page(figures | {"tables": [{"name": "us", "ms": 0.5}]}, "make bench")
    assert "| import | 1.50 x | at most 1.25 x | **no** |" in text
    assert "\n## Start (ms)\n" in text
    assert "| a \\| b | 12,346 |" in text
    assert "| us | 0.5 |" in text
    assert "2 cores. numpy 2." in text
