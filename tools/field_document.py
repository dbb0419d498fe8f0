"""Write docs/state-of-the-field.md: the methods of the field, which models have them, and what is known past a length.

The methods lie in field.toml beside this file. Counted are the configs in tests/published/configs, as the audit reads
them, and the model types that it knows. Our figures are those of the stored studies, and verdicts those of the claims.
"""

import textwrap
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import clockhands as ch
import published_findings
from clockhands.auditing import Audit
from clockhands.configs.model_types import model_type, model_types
from clockhands.configs.resolved import LayerEncoding
from clockhands.measures.claims import CLAIMS
from clockhands.measures.claims.studies import measured

ROOT = Path(__file__).resolve().parents[1]
METHODS = Path(__file__).with_name("field.toml")
DOCUMENT = ROOT / "docs" / "state-of-the-field.md"
EXAMPLES = ROOT / "examples" / "encodings"

# A base above that of Su et al. 2021 is one that somebody chose for longer texts.
FIRST_BASE = 10_000
TEXT = ("text", "decoder")


class Counts(NamedTuple):
    """How many configs, and how many model types, have a method."""

    configs: int
    types: int | None


def of_kind(kind: str) -> Callable[[Audit], bool]:
    """Whether some layers of a model have a kind of code."""
    return lambda audit: any(layer.kind == kind for layer in audit.layers)


def of_layer(holds: Callable[[LayerEncoding], bool]) -> Callable[[Audit], bool]:
    """Whether something holds of the rotary code of some layers."""
    return lambda audit: any(layer.kind == "rotary" and holds(layer) for layer in audit.layers)


def scaled_by(*names: str) -> Callable[[Audit], bool]:
    """Whether some layers declare one of these scalings."""
    return of_layer(lambda layer: (layer.scaling or {}).get("type") in names)


def hybrid(audit: Audit) -> bool:
    """Whether some layers of a text part rotate and others have no code."""
    kinds = {layer.kind for layer in audit.layers if layer.part in TEXT and layer.layers != "input"}
    return {"rotary", "none"} <= kinds


KINDS = ("sinusoidal", "learned", "relative", "buckets", "rotary", "alibi", "none")
COUNTED: Mapping[str, Callable[[Audit], bool]] = {
    **{kind: of_kind(kind) for kind in KINDS},
    "partial": of_layer(lambda layer: None not in (layer.rotated, layer.width) and layer.rotated != layer.width),
    "larger base": of_layer(lambda layer: (layer.base or 0) > FIRST_BASE),
    "linear": scaled_by("linear"),
    "ntk": scaled_by("ntk", "dynamic"),
    "yarn": scaled_by("yarn"),
    "longrope": scaled_by("longrope", "su"),
    "llama3": scaled_by("llama3"),
    "proportional": scaled_by("proportional"),
    "axes": of_layer(lambda layer: layer.sections is not None),
    "hybrid": hybrid,
    "temperature": lambda audit: any(layer.score_scale is not None for layer in audit.layers),
}
NUMBERS = {"position": "the position", "learned": "learned numbers", "content": "the tokens", "none": "nothing"}


def counts(name: str, audits: list[Audit]) -> Counts:
    """How many of the published configs have a method, and for a kind of code how many of the known types."""
    types = None
    if name in KINDS:
        known = [found for found in map(model_type, model_types()) if found is not None]
        types = sum(any(row.kind == name for row in found.rows) for found in known)
    return Counts(sum(map(COUNTED[name], audits)), types)


def document(audits: list[Audit]) -> str:
    """The whole page."""
    methods = tomllib.loads(METHODS.read_text(encoding="utf-8"))
    rows = [row(method, audits) for method in methods["methods"]]
    scope = textwrap.fill(f"range. {measured('extrapolation').data['scope']}", 118, subsequent_indent="  ")
    return f"""# The state of the field, {methods["as_of"]}

Made by `tools/field_document.py` from data; a test holds the page to them.

- **In models**: of {len(audits)} published configs that are audited in the tests, and, for kinds of codes, of
  {len(model_types())} model types that the audit knows. A sample of what was published, not a census.
- **Depends on**: what the rotation, the rows or the bias are made of. Where it is the tokens, positions cannot be
  computed once for all texts.
- **Measured by others**: a published figure past the trained length, in its own unit; a dash where none was read.
- **Measured here**: loss at 4 times the trained length over that at the length, with sliding windows: the mean over
  seeds, and their {scope}
- **Here**: what of it clockhands has. An example is a file that goes through `check`, `properties`, `explore` and the
  lab ([your own encoding](guides/your-own-encoding.md)).
- **Claims**: statements on the method, each with its verdict ([all claims](claims.md)).

| year | method | depends on | in models | measured by others | measured here | here | claims |
|---|---|---|---|---|---|---|---|
{"".join(rows)}
The same methods, each in a sentence:

{"".join(map(sentence, methods["methods"]))}"""


def sentence(method: Mapping[str, Any]) -> str:
    """What a method does, and its source."""
    return "- **{name}** ({year}). {idea} {source}.\n".format_map(method)


def row(method: Mapping[str, Any], audits: list[Audit]) -> str:
    """One method as a row of the table."""
    found = counts(method["counted"], audits) if "counted" in method else None
    models = "–" if found is None else f"{found.configs} configs"
    if found is not None and found.types is not None:
        models += f", {found.types} types"
    cells = (
        method["year"],
        method["name"],
        NUMBERS[method["numbers"]],
        models,
        method.get("past", "–"),
        past_the_length(method),
        here(method),
        "; ".join(map(verdict, method.get("claims", ()))) or "–",
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def past_the_length(method: Mapping[str, Any]) -> str:
    """The loss at 4 times the trained length over that at the length, with the range of its seeds."""
    if "study" not in method:
        return "–"
    study = method["study"]
    variant = {"variant": study["variant"]} if "variant" in study else {}
    trained = measured(study["name"])
    longer, own = (
        trained.value("language", study["arm"], length=length, protocol="sliding", **given)
        for length, given in ((256, variant), (64, {}))
    )
    ratios = [longer.seeds[seed] / own.seeds[seed] for seed in longer.seeds]
    remark = f"; {method['remark']}" if "remark" in method else ""
    return f"× {sum(ratios) / len(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}){remark}"


def here(method: Mapping[str, Any]) -> str:
    """What clockhands has of a method."""
    for name in method.get("in_code", ()):
        found: Any = ch
        for part in name.split("."):
            found = getattr(found, part)
    for name in method.get("presets", ()):
        ch.preset(name)
    for name in method.get("example", ()):
        if not (EXAMPLES / name).exists():
            raise FileNotFoundError(f"{name} is not in {EXAMPLES}.")
    parts = [
        *(f"`ch.{name}`" for name in method.get("in_code", ())),
        *(f"preset `{name}`" for name in method.get("presets", ())),
        *(f"example [{name}](../examples/encodings/{name})" for name in method.get("example", ())),
    ]
    if "study" in method:
        study = method["study"]
        parts.append(f"[lab](studies/{study['name']}.md): `{study.get('variant') or study['arm']}`")
    return ", ".join(parts) or "not here"


def verdict(name: str) -> str:
    """A claim with its verdict."""
    return f"[{name}](claims.md#{name}): {CLAIMS[name].verdict}"


def main() -> None:
    """Write the page."""
    audits = [found.audit for found in published_findings.audits(published_findings.CONFIGS)]
    DOCUMENT.write_text(document(audits), encoding="utf-8")


if __name__ == "__main__":
    main()
