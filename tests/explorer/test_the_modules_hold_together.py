"""The explorer's modules can be joined into one: names are unique and used, and nothing of it ends a page's script."""

import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from clockhands.show import report
from clockhands.show.explorer import page
from explorer.test_golden_numbers import node

FOLDER = Path(page.__file__).parent
SCRIPTS = {str(PurePosixPath(path.relative_to(FOLDER))): path for path in sorted((FOLDER / "js").rglob("*.js"))}
TEXTS = {name: path.read_text("utf-8") for name, path in SCRIPTS.items()}

IMPORT = re.compile(r'^import \{ ([^}]*) \} from "(\.[^"]+)";$', re.MULTILINE)
DECLARED = re.compile(r"^(export )?(?:async )?(const|let|var|class|function\*?) (.*)$", re.MULTILINE)
FIRST_NAMES = re.compile(r"\s*([\w$]+)")
# What calls the explorer from outside: the start of a page, and the notebook's front end.
ENTRANCES = {"explore", "default"}


def declared(text: str) -> Iterator[tuple[str, bool]]:
    """The names that a module declares at its top, and whether each is exported."""
    for exported, kind, rest in DECLARED.findall(text):
        if kind in ("class", "function", "function*"):
            name = FIRST_NAMES.match(rest)
            assert name, rest
            yield name[1], bool(exported)
            continue
        for part in declarators(rest):
            if part.lstrip().startswith(("[", "{")):
                yield from ((each, bool(exported)) for each in re.findall(r"[\w$]+", part.split("=")[0]))
                continue
            name = FIRST_NAMES.match(part)
            assert name, part
            yield name[1], bool(exported)


def declarators(text: str) -> list[str]:
    """The parts of `a = 1, b = f(2, 3)` between commas that are inside nothing."""
    text = re.sub(r"//.*$", "", text)
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'`":
            quote = sign
        depth += (sign in "([{") - (sign in ")]}") if not quote else 0
        if sign == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for part in parts if part.strip()]


def imported(name: str) -> Iterator[tuple[str, str]]:
    """What a module imports: the module and the name."""
    for names, place in IMPORT.findall(TEXTS[name]):
        at = (SCRIPTS[name].parent / place).resolve().relative_to(FOLDER.resolve())
        yield from ((str(PurePosixPath(at)), each.strip()) for each in names.split(","))


def checked(text: str, path: Path) -> subprocess.CompletedProcess[str]:
    path.write_text(text, "utf-8")
    return subprocess.run([node(), "--check", path], capture_output=True, text=True, check=False, timeout=60)


def test_the_joined_module_is_one_that_node_takes(tmp_path):
    text = page.module()
    done = checked(text, tmp_path / "module.mjs")
    assert done.returncode == 0, done.stderr
    name = next(name for name, _ in declared(TEXTS["js/state.js"]))
    twice = checked(f"{text}\nconst {name} = 0;\n", tmp_path / "twice.mjs")
    assert f"'{name}' has already been declared" in twice.stderr


def test_every_import_names_what_is_exported():
    exported = {name: {each for each, public in declared(text) if public} for name, text in TEXTS.items()}
    wrong = [(name, *asked) for name in TEXTS for asked in imported(name) if asked[1] not in exported.get(asked[0], ())]
    assert wrong == []
    # Any other form would be left in the joined module.
    for name, text in TEXTS.items():
        assert len(re.findall(r"^import\b", text, re.MULTILINE)) == len(IMPORT.findall(text)), name
        assert not re.search(r"^export (\{|\*)", text, re.MULTILINE), name


def test_every_name_is_used_outside_tests():
    asked = {each for name in TEXTS for each in imported(name)}
    unused = {
        (name, each)
        for name, text in TEXTS.items()
        for each, _ in declared(text)
        if (name, each) not in asked and each not in ENTRANCES and not used(each, text)
    }
    assert unused == set()
    assert not used("a", "const a = 1; // a is one\nconst b = c.a;")
    assert used("a", "const a = 1;\nconst b = `${a}`;")


def used(name: str, text: str) -> bool:
    """Whether a module names something that it declares once more, outside comments."""
    return len(re.findall(rf"(?<![\w$])(?<![\w$)\]]\.){re.escape(name)}(?![\w$])", re.sub(r"(?m)//.*$", "", text))) > 1


def test_nothing_in_the_module_ends_or_opens_the_script_that_holds_it():
    for text in (page.module(), *re.findall(r'_START = f?"""(.*?)"""', python("page", "report"), re.DOTALL)):
        assert not re.search(r"</script|<!--", text, re.IGNORECASE)


def python(*names: str) -> str:
    modules = {"page": page, "report": report}
    return "\n".join(Path(str(modules[name].__file__)).read_text("utf-8") for name in names)


def test_the_foreign_files_are_those_that_were_published():
    sums = dict(reversed(line.split()) for line in (FOLDER / "vendor" / "SHA256SUMS").read_text("utf-8").splitlines())
    held = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (FOLDER / "vendor").iterdir()}
    del held["SHA256SUMS"]
    listed = {name.lstrip("*").removeprefix("./"): digest for name, digest in sums.items()}
    assert listed.items() <= held.items()
    assert {name for name in held if name.endswith(".js")} <= listed.keys()
    assert {f"d3-{name}.min.js" for name in page.D3} == {name for name in held if name.endswith(".js")}
