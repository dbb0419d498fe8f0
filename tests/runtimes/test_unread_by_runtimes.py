"""Statements that a runtime does not read a key: each is shown by code of a release, or says that no line is known."""

import hashlib
import importlib.metadata
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import released_code as tool
from clockhands import audit
from clockhands.configs.released_code import class_in, definition_in
from clockhands.runtimes import runtimes, statements

UNREAD = re.compile(
    r"\b(not read|not use|not pass|not copy|not take|ignores?|ignored|drops?|(?<!file )(has|had) (no|neither))\b"
)
LINE = re.compile(r"\w+ in [\w.-]+ \d+\.\d+\.\d+, (vendor/)?[\w/.]+\.py:\d+")
NO_LINE = "no line is known"
CASES = json.loads(Path(__file__).with_name("misread.json").read_text(encoding="utf-8"))["cases"]
RELEASES = tool.written()["releases"]


def shown():
    """Each statement with each release and each model type, or definition, whose code was read for it."""
    for said in statements():
        for version in said.read_in(said.runtime) if said.unread else ():
            for name in (said.types or (None,)) if said.within is None else (None,):
                code = said.code(name, version)
                if code is not None:
                    yield said, version, name, code


def test_every_statement_of_an_unread_key_names_the_key_or_is_a_report(cases):
    found = 0
    for said in statements():
        if UNREAD.search(said.says):
            with cases(said.runtime, said.says):
                assert said.unread or said.of_some_release
            found += 1
    assert found > 30


def test_every_unread_key_has_a_release_with_file_and_line_or_says_that_none_is_known(cases):
    without = set()
    for said in statements():
        for name in (said.types or (None,)) if said.unread else ():
            with cases(said.runtime, name, said.unread):
                evidence = said.evidence(name)
                assert LINE.match(evidence) or evidence.endswith(NO_LINE)
                without |= {said.runtime} if evidence.endswith(NO_LINE) else set()
    # The code of two runtimes is in no registry as Python that can be read, and one type is only a name of another.
    assert without <= {"deepspeed", "tensorrt-llm", "transformers"}


def test_fifty_statements_against_the_code_that_they_name(draw, cases):
    """The definition lacks the keys, mentions others, and is in a file that the data holds to its SHA-256."""
    found = list(shown())
    assert len(found) > 150
    assert {said.runtime for said, *_ in found} >= {"vllm", "sglang", "mlx-lm", "mlx-vlm", "megatron-bridge"}
    for said, version, name, code in draw(found, 50):
        with cases(said.runtime, version, name, said.unread):
            of_type = said.within is None or said.library is not None
            again = class_in(code.release, name or "") if of_type else definition_in(code.release, said.within or "")
            assert again == code
            assert code.mentions.isdisjoint(said.unread)
            assert set(said.unread) <= code.known
            assert code.mentions, "code that reads no key at all is not the code that reads configs"
            held = RELEASES[code.release].get("files", {})
            assert re.fullmatch("[0-9a-f]{64}", held[code.place.rpartition(":")[0]])


def test_the_text_of_each_release_that_is_installed(cases):
    """Its files are those that were read, and the line is that of the definition; others are checked by the tool."""
    for release, held in RELEASES.items():
        program, _, version = release.partition(" ")
        try:
            distribution = importlib.metadata.distribution(program)
        except importlib.metadata.PackageNotFoundError:
            continue
        if distribution.version != version:
            continue
        for owner, _ in (*held["types"].values(), *held.get("definitions", {}).values()):
            name, place = owner.split(" ")
            file, _, line = place.rpartition(":")
            text = Path(str(distribution.locate_file(file))).read_bytes()
            with cases(release, place):
                assert re.match(rf"(class|def|async def) {name}\b", text.decode().splitlines()[int(line) - 1])
                assert held.get("files", {}).get(file) in (None, hashlib.sha256(text).hexdigest())


def test_a_key_that_the_code_mentions_has_no_line(draw):
    """The same statements with a key that their code does mention: none is shown."""
    for said, version, name, code in draw(list(shown()), 50):
        wrong = replace(said, unread=(min(code.mentions),))
        assert wrong.code(name, version) is None, (code, wrong.unread)


@pytest.mark.parametrize("named", [True, False])
def test_what_the_report_says_names_the_line_and_the_releases(tmp_path, draw, cases, named):
    """Of a release that a user names, and of mistakes that are listed without a name."""
    told = 0
    for case in draw(CASES, 25):
        (tmp_path / "config.json").write_text(json.dumps(case["config"]))
        found = audit(tmp_path / "config.json", runtime=f"{case['runtime']}@{case['version']}" if named else None)
        for each in found.findings:
            if each.code == "misread-by-runtime" and UNREAD.search(each.message):
                with cases(case["runtime"], case["version"], each.message):
                    assert LINE.search(each.message) or NO_LINE in each.message
                    assert "and of no other release." in each.message
                told += 1
            if each.code == "often-misread" and each.evidence["known"]:
                with cases(each.message):
                    assert "known of no other releases than those that are named" in each.message
                told += 1
    assert told


def test_the_releases_of_a_statement_are_those_that_were_read_for_it(cases):
    for said in statements():
        if said.mended is None and not said.of_some_release:
            with cases(said.runtime, said.releases):
                bounds = [each for each in (said.since, said.until, *runtimes()[said.runtime].releases) if each]
                named = re.findall(r"\d+(?:\.\d+)+", said.releases)
                assert named, "no release is named"
                assert set(named) <= set(bounds)
