"""Build the documentation as HTML pages, with a reference of every public name and command: `make docs`.

The pages of `docs/`, the README and the page for contributors are brought together, with links between them; a page is
made for each public module, one for all commands, and those of `tools/reference_pages.py`. A warning of Sphinx is an
error: a link that leads nowhere, a docstring that cannot be read, a page that no index names.
"""

import argparse
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click

import clockhands
import reference_pages
from clockhands.cli import main as commands

ROOT = Path(__file__).resolve().parents[1]
# Pages by the files that they are made of; the others of `docs/` keep their names.
PAGES = {"README.md": "index.md", "docs/README.md": "tasks.md", "CONTRIBUTING.md": "contributing.md",
         "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}  # fmt: skip
# Folders of pages, by the page that names the others.
FOLDERS = ["course/index", "guides/index"]
# Below the picture of the front page: the lesson, a page of its own.
LESSON = '\n\n<p><a href="explorer.html">The lesson: How transformers know where words are</a></p>\n\n**'
# An anchor in a line of an index, and the page that the line leads to.
LEADS_TO = re.compile(r'<a id="(?P<anchor>[^"]+)"></a>.*?\]\((?P<target>[^)\s]+)\)')
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<text>\[[^][]*\])\((?P<target>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")


def stage(folder: Path) -> None:
    """Bring the pages together in a folder that did not exist."""
    folder.mkdir(parents=True)
    docs = ROOT / "docs"
    pages = [path for path in docs.rglob("*.md") if path != docs / "README.md"]
    notebooks = list(docs.glob("*.ipynb"))
    sources = {path: str(path.relative_to(docs)) for path in (*pages, *notebooks)}
    sources |= {ROOT / path: name for path, name in PAGES.items()}
    for path, name in sources.items():
        if path in notebooks:
            shutil.copy(path, folder)
            continue
        parts = FENCED.split(path.read_text(encoding="utf-8"))
        parts[::2] = [LINK.sub(lambda found, path=path: _link(found, path, sources), part) for part in parts[::2]]
        text = "".join(parts)
        if (below := path.with_suffix("")).is_dir():
            text += _below(sorted(below.glob("*.md")))
        if name == "index.md":
            text = text.replace("docs/pictures/", "pictures/").replace("\n\n**", LESSON, 1) + _contents(sources)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures")
    for schema in docs.glob("*.json"):
        shutil.copy(schema, folder)
    for beside in (docs / "course").iterdir():  # what the cells of the course read
        if beside.suffix in (".py", ".toml"):
            shutil.copy(beside, folder / "course")
    _reference(folder / "reference")


def _link(found: re.Match[str], page: Path, sources: dict[Path, str]) -> str:
    """A link of a page, to where its target is among the pages; the text alone where it is none of them."""
    target = (page.parent / found["target"]).resolve()
    place = sources.get(target) or (target.name if target.parent == ROOT / "docs" and target.exists() else None)
    if place is not None:
        if found["anchor"] and target.suffix == ".md":
            for line in LEADS_TO.finditer(target.read_text(encoding="utf-8")):
                if f"#{line['anchor']}" == found["anchor"]:
                    further = os.path.relpath((target.parent / line["target"]).resolve(), page.parent)
                    return _link(LINK.match(f"{found['text']}({further})") or found, page, sources)
        here = os.path.relpath(place, Path(sources[page]).parent)
        return f"{found['text']}({here}{found['anchor'] or ''})"
    # What does not exist stays a link, of which Sphinx complains.
    return found["text"][1:-1] if target.exists() else found[0]


def _contents(sources: dict[Path, str]) -> str:
    """What Sphinx makes its navigation of: the pages by the headings of the index of tasks, then those it lacks."""
    pages = [name.rpartition(".")[0] for name in sources.values() if name not in PAGES.values()]
    above = {page for page in pages if "/" not in page} | set(FOLDERS)
    groups: list[tuple[str, list[str]]] = [("Every task", ["tasks"])]
    for part in (ROOT / "docs" / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        linked = [found["target"].rpartition(".")[0] for found in LINK.finditer(part)]
        groups.append((part.splitlines()[0], [page for page in dict.fromkeys(linked) if page in above]))
        above -= set(linked)
    groups.append(("More", [*sorted(above), "reference/index", "contributing", "security", "changelog"]))
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{chr(10).join(listed)}\n```\n"
        for caption, listed in groups
    )


def _below(pages: list[Path]) -> str:
    """What Sphinx makes its navigation of, where the pages of a folder belong to the page of the same name."""
    listed = "\n".join(f"{page.parent.name}/{page.stem}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _reference(folder: Path) -> None:
    """A page for each public module, one for all commands, and their index."""
    folder.mkdir()
    modules = _public_modules()
    for name, public in modules.items():
        # What the package itself offers is described where it lives.
        again = "   :no-index:\n" if name == "clockhands" else ""
        text = f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members: {', '.join(public)}\n{again}```\n"
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    made = {
        "commands": _commands(),
        "presets": reference_pages.presets_page(),
        "bounds": reference_pages.bounds_page(modules),
        "schemas": reference_pages.schemas_page(),
    }
    for name, text in made.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    listed = "\n".join([*made, *modules])
    head = "# Reference\n\nEvery command, preset, bound and JSON field, and every public name by module."
    index = f"{head}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    (folder / "index.md").write_text(index, encoding="utf-8")


def _public_modules() -> dict[str, list[str]]:
    """Every public module that says what is public in it, with those names."""
    found = {"clockhands": list(clockhands.__all__)}
    rooms = [f"clockhands.{each.name}" for each in pkgutil.iter_modules(clockhands.__path__) if each.name != "cli"]
    parts = [f"clockhands.encodings.{each.name}" for each in pkgutil.iter_modules(clockhands.encodings.__path__)]
    for name in (*rooms, *parts, "clockhands.measures.claims"):
        if "._" in name:
            continue
        names = list(getattr(importlib.import_module(name), "__all__", []))
        if names:
            found[name] = names
    return found


def _commands() -> str:
    """The help of every command."""
    lines = ["# Commands", ""]

    def add(command: click.Command, context: click.Context, level: int) -> None:
        lines.extend([f"{'#' * level} {context.command_path}", "", "```text", command.get_help(context), "```", ""])
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                add(below, click.Context(below, info_name=name, parent=context), min(level + 1, 4))

    add(commands, click.Context(commands, info_name="clockhands", max_content_width=100), 2)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation as HTML pages.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="a folder, which is replaced")
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    stage(out / "pages")
    # The pages of the course show views of this one page.
    explorer = out / "beside" / "explorer.html"
    explorer.parent.mkdir()
    # Sphinx copies no picture that stands in HTML, as that of the front page does.
    shutil.copytree(ROOT / "docs" / "pictures", explorer.parent / "pictures")
    written = [sys.executable, "-m", "clockhands", "explore", "--out", explorer]
    subprocess.run(written, check=True, stderr=subprocess.PIPE)
    build = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    build += ["-D", f"html_extra_path={explorer.parent}"]
    done = subprocess.run([*build, "-c", ROOT / "tools" / "pages", out / "pages", out / "html"], check=False)
    if done.returncode == 0:
        print(f"the documentation is in {out / 'html' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
