"""What people read is said in the terms of the field: messages, hints, helps, labels and documents."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import clockhands
from auditing.test_rules import CASES as FINDINGS
from clockhands.auditing.findings import CODES, make_finding
from clockhands.cli import main
from clockhands.cli.group import COMMANDS
from clockhands.measures import QUESTIONS
from clockhands.measures.claims import CLAIMS, SUBJECTS
from clockhands.recognition.faults import ADDITIVE, BIAS, GENERATION, MODULE, ROTARY
from clockhands.show.terminal import SHORT

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path(clockhands.__file__).parent

# Words that only this project uses for a thing that has a common name.
RETIRED = re.compile(
    r"\b(turn(s|ed|ing)?|hands|stands?|told|who(ever)?|nobody|sound|mend(s|ed|ing)?|readers?|go(es)? by|gone by"
    r"|of its own|like token|left open|first training|rates?|ladders?|without a word|grave|asked|anew|in words)\b",
    re.IGNORECASE,
)
# Where such a word is the right one: names that people type or search for, and learning rates.
ALLOWED = re.compile(
    r"\blearning[ _]rates?\b|\brates? (\(|with the lowest|is at the end|of an arm failed)|× rates ×"
    r"|\bevery rate (of|failed)|\bThe rates that are tried\b|\bThe best rate is\b|--readers?\b|\breaders="
    r"|\bladder -> ladder\b|\bfunction ladder, length -> ladder|clockhands\.ladders|scaling\(ladder, length\)"
    r"|a ladder and a length|a ladder of|shrinks the turns|\"turns\"|`rates`|share of the nyquist rate",
    re.IGNORECASE,
)
# The course and the explorer define the hands of a clock.
DEFINES_HANDS = re.compile(r"docs/(seeing|lab|benchmarks|course/[\w-]+)\.md")
# The header of a page with cells: identifiers.
HEADER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
# Texts that are data: identifiers of evidence, an example sentence, a script.
NOT_READ = re.compile(
    r"mended (at|with)|readers of the|layout of readers|z as they stand|stands on|who let the cat"
    r"|never complete a turn|stand still on purpose|^in turns"
)
# In documents: code, links to files, addresses, headings that are names, and rows of a claim's named numbers.
NOT_PROSE = re.compile(
    r"`[^`\n]*`|\[[\w-]+\.md\]\([^)]*\)|\]\([^)]*\)|<[^>]*>|\*\*\w+\*\*|^#+ [a-z0-9., -]+$"
    r"|^\| [^|\n]* \| [^|\n]* \|$",
    re.MULTILINE,
)
# Documents made from the lab's stored results, and those for people who change the code.
OF_RECORDS = ("docs/studies", "docs/architecture.md", "CONTRIBUTING.md")
DOCUMENTS = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not str(path.relative_to(ROOT)).startswith(OF_RECORDS)
]


def in_the_terms_of_the_field(text, given=()):
    """Hold a text to common terms, apart from what it was given."""
    for each in sorted(given, key=len, reverse=True):
        text = re.sub(re.escape(each), "", text, flags=re.IGNORECASE)
    found = RETIRED.search(ALLOWED.sub(" ", text))
    assert not found, (found[0], text)


def test_a_retired_word_is_found():
    for text in ("Every pair turns.", "The ladder of 64 pairs.", "Asked again, it differs.", "A rate of 1 rad/token."):
        with pytest.raises(AssertionError):
            in_the_terms_of_the_field(text)
    in_the_terms_of_the_field("A learning rate of 0.003, see --readers A,B.")


def test_findings_explained(cases):
    for code, rule in CODES.items():
        with cases(code):
            in_the_terms_of_the_field(f"{rule.title}. {rule.means} {rule.unmended} {rule.advice}")


def test_findings(cases):
    for code, evidence in FINDINGS:
        found = make_finding(code, evidence)
        given = [str(text) for entry in evidence.items() for text in entry if isinstance(text, str) and len(text) > 3]
        with cases(code, evidence):
            in_the_terms_of_the_field(found.message, given)
            in_the_terms_of_the_field(found.hint)
            if found.edit is not None:
                in_the_terms_of_the_field(found.edit.says, given)


def test_faults(cases):
    for kind in (ROTARY, ADDITIVE, BIAS, MODULE, GENERATION):
        for code, fault in kind.items():
            with cases(code):
                sentence = re.sub(r"\{[^}]*\}", "", fault.sentence)
                in_the_terms_of_the_field(f"{sentence}. {fault.hint} {fault.shown_by}")


def test_claims(cases):
    for name, told in CLAIMS.items():
        with cases(name):
            texts = (told.statement, told.condition, told.argument, told.source, told.waits_for)
            in_the_terms_of_the_field(" ".join(map(str, texts)))


def test_sentences_of_measures(cases):
    def texts(name, row):
        for key, each in row.items():
            yield from texts(f"{name}.{key}", each) if isinstance(each, dict) else [(f"{name}.{key}", each)]

    for name, text in texts("", tomllib.loads((SOURCES / "measures" / "sentences.toml").read_text(encoding="utf-8"))):
        with cases(name):
            in_the_terms_of_the_field(re.sub(r"\{\w+", "", text))


def test_labels():
    for label in (*QUESTIONS.values(), *SHORT.values(), *SUBJECTS):
        in_the_terms_of_the_field(label)


def test_helps(cases):
    groups = [
        (name, below) for name in COMMANDS for below in ("", *getattr(main.get_command(None, name), "commands", ()))
    ]
    for words in ((), *groups):
        with cases(*words):
            shown = CliRunner().invoke(main, [*filter(None, words), "--help"], env={"COLUMNS": "80"})
            assert shown.exit_code == 0
            in_the_terms_of_the_field(re.sub(r'"who let .*"', "", shown.stdout))


def texts_of(source):
    """The texts of a module with more than one word: no docstrings, and nothing that is filled in."""
    skipped = set()
    for node in ast.walk(ast.parse(source)):  # a node comes before what is in it
        if node in skipped:
            continue
        body = getattr(node, "body", None)
        if isinstance(body, list):
            skipped |= {statement.value for statement in body if isinstance(statement, ast.Expr)}
        if isinstance(node, ast.JoinedStr):
            skipped |= set(ast.walk(node))
            yield " ".join(part.value if isinstance(part, ast.Constant) else "" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("some", [150, pytest.param(10**6, marks=pytest.mark.slow)], ids=["some", "all"])
def test_messages_and_hints(some, cases, draw):
    for path in draw(sorted(SOURCES.rglob("*.py")), some):
        with cases(path.relative_to(SOURCES)):
            for text in texts_of(path.read_text(encoding="utf-8")):
                script = "document.getElementById" in text or NOT_READ.search(text)
                if re.search(r"[a-z,] [a-z]", text) and not script:
                    in_the_terms_of_the_field(text)


def test_documents(cases):
    for path in DOCUMENTS:
        text = HEADER.sub("", path.read_text(encoding="utf-8"))
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        text = NOT_PROSE.sub(" ", text)
        if DEFINES_HANDS.fullmatch(path.relative_to(ROOT).as_posix()):
            text = text.replace("hands", "")
        with cases(path.name):
            for paragraph in text.split("\n\n"):
                in_the_terms_of_the_field(paragraph)


# Names of the interface, of laws and of claims, which keep working: the documents explain what they say.
PUBLIC_WORDS = re.compile(r"rates?|ladders?", re.IGNORECASE)
PUBLIC_NAMES = {
    "Turns", "turns", "turn", "sound", "turning", "turned_beyond", "turned_through", "told_apart", "sound_bases",
    "smallest_sound_base", "masked_only_when_asked", "told_apart_in_either_order", "_sound_plain_ladders",
    "turning_backward", "wavelengths_to_ten_thousand_turns",
}  # fmt: skip


def words_of(name):
    return [word for word in re.split(r"_+|(?<=[a-z])(?=[A-Z])", name) if word]


def test_definitions(cases):
    held = 0
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name in PUBLIC_NAMES:
                continue
            held += 1
            with cases(f"{path.relative_to(SOURCES)}:{node.lineno} {node.name}"):
                retired = [word for word in words_of(node.name) if RETIRED.fullmatch(word)]
                assert [word for word in retired if not PUBLIC_WORDS.fullmatch(word)] == []
    assert held > 5000
