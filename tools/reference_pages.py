"""Pages of the reference that are made from data when the documentation is built: presets, bounds, JSON schemas.

`tools/documentation.py` puts them beside the pages of the public modules; no file keeps their text.
"""

import inspect
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import clockhands as ch
from clockhands.encodings.presets import presets
from clockhands.encodings.specs import to_dict

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "tests" / "published" / "configs"
# Fields in which models with one encoding differ: their sizes.
SIZES = {"width", "head_width", "rotated", "heads", "rows", "padding"}
# Modules that derive the bounds of others, and are not public themselves.
DERIVING = ("phases", "traces", "ladders", "scores", "clocks")
ACCURACY = re.compile(r"^(?:\*\*Accuracy\.\*\*|Accuracy:|Shapes:[^.]*\. Accuracy:)\s+", re.MULTILINE)


def presets_page() -> str:
    """Every preset: what it is, its settings, its source, and the published configs that have it."""
    used = users()
    parts = [
        "# Presets\n",
        f"{len(presets())} published encodings by name: `ch.preset(NAME)` in Python, `NAME` or `NAME:field=value,…` in "
        "every command. *In configs* lists which of the published configs that the tests keep have the encoding: the "
        "audit of the config gives the preset in everything but sizes.\n",
        "| preset | what it is |\n|---|---|",
        *(f"| [`{each.name}`](#{slug(each.name)}) | {escaped(each.says)} |" for each in presets()),
    ]
    for each in presets():
        rows = {f"`{field}`": shown(value) for field, value in to_dict(each.spec).items()}
        rows |= {"source": escaped(each.source)}
        if used[each.name]:
            rows["in configs"] = escaped(", ".join(used[each.name]))
        parts.append(f"\n## {each.name}\n\n{escaped(each.says)}\n\n| setting | value |\n|---|---|")
        parts += [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(parts) + "\n"


def users() -> Mapping[str, list[str]]:
    """The published configs that have the encoding of each preset, by its name."""
    names = defaultdict(list)
    for each in presets():
        names[kind_of(each.spec)].append(each.name)
    found = defaultdict(list)
    for path in sorted(CONFIGS.glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        kinds = {kind_of(layer.spec) for layer in ch.audit(case["config"]).layers if layer.spec is not None}
        for name in sorted({name for kind in kinds for name in names[kind]}):
            found[name].append(case["name"])
    return found


def kind_of(spec: Any) -> str:
    """A spec without its sizes; of those that rotate a part of each head, how large the part is."""
    fields = to_dict(spec)
    share = fields["rotated"] / fields["head_width"] if fields.get("rotated") else 1
    return json.dumps([share, {name: value for name, value in fields.items() if name not in SIZES}], sort_keys=True)


def bounds_page(modules: Mapping[str, list[str]]) -> str:
    """How accurate the numbers of each public name are, as its docstring says, and what the deriving modules say."""
    parts = [
        "# Bounds\n",
        "How far a number may be from the real number that its formula defines: what the docstring of each name says "
        "below *Accuracy*. `u` is the unit roundoff, and an ulp is a unit in the last place.\n",
        "| name | accuracy |\n|---|---|",
    ]
    rows: dict[str, str] = {}
    for module, names in modules.items():
        for name, text in documented(module, names):
            rows.setdefault(text, name)
    parts += [f"| `{name}` | {cell(text)} |" for text, name in rows.items()]
    parts.append("\nThe modules in which these bounds are derived:\n")
    for name in DERIVING:
        text = inspect.getdoc(import_module(f"clockhands.encodings.{name}")) or ""
        parts.append(f"## clockhands.{name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts) + "\n"


def documented(module: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """What docstrings of a module's public names, and of their methods, say of their accuracy."""
    for name in names:
        public = getattr(import_module(module), name)
        inside = vars(public).items() if inspect.isclass(public) else ()
        for label, each in ((name, public), *((f"{name}.{key}", value) for key, value in inside if key[0] != "_")):
            if callable(each) and (text := accuracy_of(inspect.getdoc(each) or "")):
                yield f"{module}.{label}", text


def accuracy_of(docstring: str) -> str:
    """The paragraph about accuracy, without its heading; empty where there is none."""
    found = ACCURACY.search(docstring)
    return "" if found is None else " ".join(docstring[found.end() :].split("\n\n", maxsplit=1)[0].split())


def schemas_page() -> str:
    """The JSON schemas as tables, a section for each object."""
    parts = ["# JSON schemas\n", "The documents that `--json` prints, as [JSON output](../json.md) explains them.\n"]
    for path in sorted((ROOT / "docs").glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        parts += [
            f"## {schema['title']}\n",
            f"{escaped(schema.get('description', ''))}\n",
            fields_of(schema, schema, ""),
        ]
        for name, each in schema.get("$defs", {}).items():
            if "properties" in each:
                said = f"{escaped(each['description'])}\n\n" if "description" in each else ""
                parts.append(f"### {schema['title'].split()[1]}: {name}\n\n{said}{fields_of(each, schema, '')}")
    return "\n".join(parts)


def fields_of(node: Mapping[str, Any], schema: Mapping[str, Any], before: str) -> str:
    """Rows of one object; those of objects inside follow with their path."""
    head = "" if before else "| field | type | always | what it is |\n|---|---|---|---|\n"
    rows = []
    for name, each in node["properties"].items():
        path, inner = f"{before}{name}", each.get("items", each)
        always = "yes" if name in node.get("required", ()) else ""
        said = each.get("description") or inner.get("description", "")
        rows.append(f"| `{path}` | {type_of(each)} | {always} | {escaped(said)} |\n")
        if "properties" in inner:
            rows.append(fields_of(inner, schema, f"{path}{'[]' if 'items' in each else ''}."))
    return head + "".join(rows)


def type_of(node: Mapping[str, Any]) -> str:
    """The type of a field, as short as a table needs."""
    if "$ref" in node:
        return node["$ref"].rpartition("/")[2]
    if "const" in node:
        return shown(node["const"])
    if "enum" in node:
        return ", ".join(map(shown, node["enum"]))
    if "anyOf" in node:
        return " or ".join(map(type_of, node["anyOf"]))
    names = node.get("type", "any")
    said = " or ".join(names) if isinstance(names, list) else names
    return f"{said} of {type_of(node['items'])}" if "items" in node else said


def shown(value: Any) -> str:
    """A value as JSON, as code in a table."""
    text = json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= 200 else f"{text[:200]}…"
    return f"`{text}`".replace("|", r"\|")


def cell(text: str) -> str:
    """A docstring's text in a table: its code stays code."""
    parts = re.split(r"(`[^`]*`)", text.replace("``", "`").replace("|", r"\|"))
    parts[::2] = [part.replace("<", "&lt;").replace("*", r"\*") for part in parts[::2]]
    return "".join(parts)


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    return re.sub(r"([*_|<`])", r"\\\1", text)


def slug(heading: str) -> str:
    """What a heading is linked by."""
    return "".join(char for char in heading.lower() if char.isalnum() or char in "-_")
