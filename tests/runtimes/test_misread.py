"""Statements about runtimes that misread files: each is whole, and holds for the releases and files that it names."""

import json
import re
from importlib import resources
from itertools import combinations

import pytest

from clockhands.errors import InvalidValue
from clockhands.runtimes import PATTERNS, Statement, release_order, runtimes, statements
from clockhands.runtimes.releases import BASES, FORMS

THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")
OF_A_RELEASE = re.compile(r"\d+\.\d+|\bb\d{3,}\b|\bat [0-9a-f]{12}\b")


def made(**more):
    return Statement("default-base", "vllm", "It takes 10,000.", "vllm 0.12.0: config.py", **more)


def test_a_statement_is_whole(cases):
    for each in statements():
        with cases(each.runtime, each.pattern):
            check(each)


def check(each):
    assert each.pattern in PATTERNS
    assert each.runtime in runtimes()
    assert each.form in FORMS
    assert each.says.endswith(".")
    assert each.basis in BASES
    assert OF_A_RELEASE.search(each.source) if each.basis != "thread" else THREAD.search(each.source)
    assert THREAD.search(each.source) or OF_A_RELEASE.search(each.source)
    assert each.types is None or (each.types and list(each.types) == sorted(set(each.types)))
    assert each.mended is None or (each.until is None and THREAD.fullmatch(each.mended))
    bounds = [release_order(version) for version in (each.since, each.until) if version is not None]
    assert bounds == sorted(set(bounds))


def about_the_same(first, second):
    def meet(one, other):
        return not one or not other or not set(one).isdisjoint(other)

    def before(one, other):
        return None not in (one.until, other.since) and release_order(one.until) <= release_order(other.since)

    names = ("pattern", "runtime", "form", "has", "lacks")
    same = all(getattr(first, name) == getattr(second, name) for name in names)
    apart = before(first, second) or before(second, first)
    return same and meet(first.types, second.types) and meet(first.scalings, second.scalings) and not apart


def test_no_statement_is_made_twice():
    assert not [pair for pair in combinations(statements(), 2) if about_the_same(*pair)]
    assert about_the_same(made(types=("gemma3", "llama")), made(since="0.12.0"))
    assert not about_the_same(made(until="0.12.0"), made(since="0.12.0"))


def test_every_runtime_has_a_statement_and_its_releases_in_order():
    assert set(runtimes()) == {each.runtime for each in statements()}
    for runtime in runtimes().values():
        order = [release_order(version) for version in runtime.releases]
        assert order == sorted(set(order))


def test_no_key_of_the_data_is_without_a_meaning():
    held = json.loads(resources.files("clockhands.runtimes").joinpath("misread.json").read_text(encoding="utf-8"))
    assert set(held) == {"says", "runtimes", "statements"}
    assert {key for row in held["runtimes"].values() for key in row} <= {"title", "releases"}


def test_a_statement_holds_from_a_release_until_another():
    versions = {"0.11.2": False, "0.12.0": True, "0.23.9": True, "0.24.0rc1": True, "0.24": False, None: False}
    assert {each: made(since="0.12.0", until="0.24.0").covers(each) for each in versions} == versions
    # Without bounds it holds from the first release that was read for it to the last; a thread shows no release.
    read = made(basis="read")
    assert [read.covers(each) for each in ("0.9", "0.11.0", "0.26", "0.33.0", "0.99", None)] == [
        False, True, True, True, False, True
    ]  # fmt: skip
    assert not any(made().covers(each) for each in ("0.11.0", "0.26", None))
    assert made().releases == "some release of vLLM"


def test_what_a_thread_mended_is_said_of_no_release():
    reported = made(mended="vllm-project/vllm#1")
    assert not reported.covers(None)
    assert not reported.covers("0.11.0")
    assert reported.releases == "vLLM before vllm-project/vllm#1"


def test_a_statement_is_about_the_files_that_have_its_keys(cases):
    statement = made(has=("rope_parameters",), lacks=("rope_theta",), scalings=("llama3",))
    for values, fits in (
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}, True),
        ({"rope_parameters": {"full_attention": {"rope_type": "llama3", "rope_theta": 5e5}}}, True),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, False),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}, "rope_theta": 5e5}, False),
        ({"rope_scaling": {"rope_type": "llama3"}}, False),
    ):
        with cases(values):
            assert statement.fits(values) is fits
    # A block without a type has the default scaling.
    assert made(scalings=("default",)).fits({"rope_parameters": {"rope_theta": 5e5}})


def test_one_of_the_types_of_a_file_is_enough():
    about = made(types=("gemma3",))
    assert about.is_about(("gemma3", "gemma3_text"))
    assert not about.is_about("gemma3_text")
    assert not about.is_about(None)
    assert not about.is_about("gemma3", "gguf")


def test_a_release_that_there_is_not_is_refused():
    with pytest.raises(InvalidValue, match=r"'newest' is not a release\."):
        made(since="0.12").covers("newest")


def test_a_statement_without_code_of_the_type_says_that_no_line_is_known():
    said = next(each for each in statements() if each.unread and each.within is None)
    assert said.evidence("a type of no release") == said.evidence(None) == f"{said.source}; no line is known"
