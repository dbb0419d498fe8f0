"""Every row of the table of faults: it can be told, it says what to do, and what shows it exists."""

import json
import re
from string import Formatter
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from tests.testing.written_by_names import RIGHT

from clockhands.auditing import CODES
from clockhands.cli import main
from clockhands.recognition.faults import (
    ADDITIVE,
    ATTENTION,
    BIAS,
    FAULTS,
    GENERATION,
    MODULE,
    POSITIONS,
    ROTARY,
    SHARDING,
    fault_in_words,
    fault_of,
)  # fmt: skip
from clockhands.recognition.token_positions import FAMILIES, prompts_of
from clockhands.testing.kinds import CHECKS, by_names, experiments

THREAD = re.compile(r"[\w.-]+(/[\w.-]+)?#\d+")
# A library with its release, or the readers of one, where a defect was met by running it.
LIBRARY = re.compile(r"[\w][\w. -]*( \d+(\.\d+)+| v\d .*)?(,? [\w'][\w' ]*)?")


@pytest.fixture(scope="module")
def asked():
    """The names of what is asked, by kind."""
    beside = {"arguments stay as they are", "answers stay as they are", "gradient", "tokens of a larger array"}
    named = {kind: {*experiments(kind), *beside} for kind in ("rotary", "additive", "bias")}
    from clockhands.testing._experiments import Unasked
    from clockhands.testing.generation import _prompt_experiments as of_programs
    from clockhands.testing.generation import _text_experiments as generation_experiments
    from clockhands.testing.generation._measured_passes import IN_ONE_PASS

    def unasked():
        raise Unasked("it has no texts")

    named["generation"] = {generation_experiments.ONE_TOKEN, IN_ONE_PASS, *of_programs.EXPERIMENTS} | {
        one.name
        for counting in (True, False)
        for takes in ({"positions"}, set())
        for one in generation_experiments.experiments(
            SimpleNamespace(
                model=SimpleNamespace(takes=takes, counting=counting, chooses=False), fresh=unasked, long_sizes=()
            )
        )
    }
    named["positions"] = beside | {
        prompt.name for rules in FAMILIES.values() for rule in rules for prompt in prompts_of(rule)
    }
    for report in map(by_names, RIGHT):
        named[report.kind] |= {*report.experiments}
    named["rotary"] |= {"cells of a grid"}  # of cosines and sines
    return named


@pytest.fixture(scope="module")
def treated():
    """The names of what is done to modules."""
    pytest.importorskip("torch")
    from clockhands.testing.modules._treatments import treatments

    return {one.name for one in treatments("aot_eager", "float32")} | {"positions matter"}


def test_every_row_is_told_in_words(cases):
    for code, fault in FAULTS.items():
        with cases(code):
            assert fault.code == code
            assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
            assert fault.kind in {"spec", "code"}
            assert fault.about
            assert set(fault.about) <= set(CHECKS)
            # After "It", before the full stop.
            assert re.match(r"[a-z]+s\b", fault.sentence), fault.sentence
            assert not fault.sentence.endswith((".", " "))
            assert fault.hint[0].isupper()
            assert fault.hint.endswith(".")
            assert len(fault.hint.split()) > 2
            assert len(set(fault.cases)) == len(fault.cases)
            assert [case for case in fault.cases if not (THREAD.fullmatch(case) or LIBRARY.fullmatch(case))] == []
            # The sentence is a template over names.
            fields = [name for _, name, _, _ in Formatter().parse(fault.sentence) if name is not None]
            assert all(name.isidentifier() for name in fields)
            assert fault_of(fault)


def test_no_fault_is_explained_with_a_blank_for_what_is_measured(cases):
    kinds = (ROTARY, ADDITIVE, BIAS, SHARDING, MODULE, ATTENTION, GENERATION, POSITIONS)
    for fault in [fault for kind in kinds for fault in kind.values()]:
        with cases(fault.about, fault.code):
            words = fault_in_words(fault)
            assert not re.search(r"[<>{}]", words), words
            # Nothing that leads to a value is left without one.
            assert not re.search(r"  | [,.:;)]|[ (,:;]$|\b(of|to|by|than|the|a|at|from|and|or)$", words)
            assert re.match(r"[a-z]+s\b", words)
            # What is said in general only is not what the sentence says by itself.
            assert fault.general != fault.sentence


def test_every_explanation_of_the_command_is_in_whole_sentences(cases):
    for code in (*CODES, *FAULTS):
        with cases(code):
            result = CliRunner().invoke(main, ["explain", code])
            assert result.exit_code == 0
            assert not re.search(r"<[a-z ]+>|\{\w+(:[^}]*)?\}", result.output), result.output
            told = json.loads(CliRunner().invoke(main, ["explain", code, "--json"]).output)
            assert not any("{" in row["behaves"] for row in told["faults"])


def test_what_shows_a_fault_is_asked(asked, treated, cases):
    from clockhands.testing.modules._attention_check import EXPERIMENTS

    asked = {**asked, "attention": EXPERIMENTS}
    for code, fault in FAULTS.items():
        with cases(code, fault.shown_by):
            if set(fault.about) == {"module"}:
                assert fault.shown_by in treated | asked["rotary"]
            else:
                assert any(fault.shown_by in asked.get(kind, ()) for kind in fault.about)


def test_each_kind_of_code_has_faults_of_both_kinds():
    for kind in ("rotary", "additive", "bias"):
        assert {fault.kind for fault in FAULTS.values() if kind in fault.about} == {"spec", "code"}
    assert {kind for fault in FAULTS.values() for kind in fault.about} == set(CHECKS)


def test_a_code_that_is_a_finding_too_is_one_of_a_loaded_module():
    """Then `clockhands explain` tells both, which is right only where both are about the same thing."""
    for code in set(CODES) & set(FAULTS):
        assert "module" in FAULTS[code].about, code
