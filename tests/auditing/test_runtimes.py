"""What an audit says of the runtime that the caller names, and of common mistakes of runtimes."""

import json
from pathlib import Path

import pytest

import clockhands as ch
from auditing.published_fields import LLAMA3
from clockhands.auditing import Audit
from clockhands.auditing.baselines import baseline_of, known_in, without_known
from clockhands.errors import InvalidValue
from clockhands.runtimes import Statement, releases
from clockhands.runtimes.releases import runtime_of

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
}  # fmt: skip
OLD = LLAMA | {"rope_theta": 500000.0, "rope_scaling": LLAMA3}
NEW = LLAMA | {"rope_parameters": LLAMA3 | {"rope_theta": 500000.0}}


@pytest.fixture
def audited(tmp_path: Path):
    def write(config: dict, **how) -> Audit:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return ch.audit(path, **how)

    return write


@pytest.fixture
def stated(monkeypatch):
    """A statement of the tests' own in place of those of the data, which change with the runtimes."""

    def state(*made: Statement) -> None:
        monkeypatch.setattr("clockhands.runtimes.releases.statements", lambda: made)

    return state


def found(audit: Audit, code: str):
    return [each for each in audit.findings if each.code == code]


def says(pattern: str, runtime: str, **more) -> Statement:
    return Statement(pattern, runtime, "It reads rope_theta only.", "owner/name#1", **{"basis": "read"} | more)


def test_a_named_release_is_answered_by_the_releases_that_were_read(cases):
    for text, readers, exact in (
        ("vllm", ("vllm",), True),
        ("vLLM@0.33", ("vllm",), True),
        ("vllm@0.33.2", ("vllm",), True),
        ("vllm@0.11.0", ("vllm-0.11",), True),
        ("vllm-0.11", ("vllm-0.11",), True),
        ("vllm@0.25", ("vllm-0.11", "vllm"), False),
        ("vllm@0.9.1", ("vllm-0.11",), False),
        ("vllm@0.34", ("vllm",), False),
        ("vllm@1.0", (), False),
        ("transformers@4", ("transformers-4",), True),
        ("transformers@4.40", ("transformers-4",), False),
        ("transformers@5.3", ("transformers-5",), False),
        ("transformers@3", (), False),
        ("llama.cpp@b6000", ("llama.cpp",), False),
        ("deepspeed", (), False),
    ):
        runtime = runtime_of(text)
        with cases(text):
            assert (runtime.readers, runtime.exact) == (readers, exact)


def test_what_names_no_release_is_refused(cases):
    for text in ("", "vlm", "no-scaling", "vllm@", "vllm@newest", "@0.11", "vllm-0.11@0.11"):
        with cases(text), pytest.raises(InvalidValue, match="is not a"):
            runtime_of(text)


def test_a_release_that_was_read_and_misreads_is_an_error_with_an_edit_that_mends_it(audited):
    audit = audited(NEW, runtime="transformers@4.57")
    (misread,) = audit.problems
    assert (misread.code, misread.severity) == ("misread-by-runtime", "error")
    assert "base 10,000 and no scaling instead of base 500,000 and the scaling llama3 with factor 8" in misread.message
    assert misread.evidence["off by a radian from"] == 8
    assert misread.edit is not None
    assert {step["path"] for step in misread.edit.patch} == {"/rope_theta", "/rope_scaling"}
    both = NEW | {"rope_theta": 500000.0, "rope_scaling": NEW["rope_parameters"]}
    assert not audited(both, runtime="transformers@4.57").problems
    assert audited(both).layers[0].rates == audit.layers[0].rates


def test_a_release_between_two_that_disagree_is_a_warning_and_says_which_reads_right(audited, stated):
    stated()
    (misread,) = audited(NEW, runtime="vllm@0.25").problems
    assert misread.severity == "warning"
    assert misread.message.startswith("vLLM 0.11.0 uses base 10,000 and no scaling")
    assert "The code of release 0.25 was not read as a whole. vLLM 0.33.0 reads the file right." in misread.message


def test_what_was_mended_before_the_named_release_is_not_held_against_it(audited, stated):
    stated(says("default-base-no-scaling", "vllm", until="0.12", has=("rope_parameters",)))
    audit = audited(NEW, runtime="vllm@0.25")
    assert not audit.problems
    assert [each.reader for each in audit.readings] == ["vllm"]
    (note,) = found(audit, "runtime-not-known")
    assert note.message.endswith("Older releases misread such files, which is fixed in 0.12.")
    assert audited(NEW, runtime="vllm@0.11.1").errors


def test_a_release_that_was_not_read_is_not_said_to_read_the_file_right(audited, stated):
    stated()
    for text, said in [("vllm@0.34", "vLLM 0.33.0 reads"), ("llama.cpp@b5000", "llama.cpp reads")]:
        audit = audited(NEW | {"num_hidden_layers": 5}, runtime=text)
        (note,) = found(audit, "runtime-not-known")
        assert f"was not read as a whole. {said} the file right." in note.message
        assert audit.verdict.endswith("computes is not known.")


def test_a_statement_is_certain_between_two_releases_for_which_it_is_known():
    open_ended = says("no-scaling", "mlx-lm")  # its code was read in 0.28.4 and 0.32.2
    assert [open_ended.certain(release) for release in ("0.28.4", "0.30", "0.32.2", "0.99", "0.2", None)] == [
        True, True, True, False, False, True
    ]  # fmt: skip
    bounded = says("no-scaling", "mlx-lm", since="0.2", until="0.31")
    assert [bounded.certain(release) for release in ("0.2", "0.30", "0.31")] == [True, True, False]
    assert not says("no-scaling", "mlx-lm", only_if="Transformers 4 is installed").certain("0.30")


def test_what_holds_under_a_condition_is_a_warning_that_says_it(audited, stated):
    stated(says("default-base", "deepspeed", since="0.17", until="0.19", only_if="Transformers 4 is installed"))
    (misread,) = audited(NEW, runtime="deepspeed@0.18").problems
    assert misread.severity == "warning"
    assert misread.message.endswith("The runtime makes this mistake only if Transformers 4 is installed.")


def test_a_mistake_of_the_code_and_of_a_statement_is_told_once(audited, stated):
    stated(says("default-base-no-scaling", "vllm", since="0.5", until="0.12"))
    (misread,) = audited(NEW, runtime="vllm@0.10").problems
    assert misread.severity == "error"
    assert misread.message.startswith("vLLM 0.10 uses base 10,000 and no scaling")


def test_a_baseline_of_one_runtime_does_not_hide_what_another_computes(audited, tmp_path):
    known = tmp_path / "known.json"
    known.write_text(json.dumps(baseline_of([audited(NEW, runtime="vllm@0.11")])))
    assert not without_known(audited(NEW, runtime="vllm@0.11"), known_in(known)).problems
    assert without_known(audited(NEW, runtime="transformers@4"), known_in(known)).errors


def test_a_window_longer_than_the_context_is_no_difference(audited):
    windowed = {**LLAMA, "model_type": "mistral", "rope_theta": 1e4, "num_key_value_heads": 8, "num_hidden_layers": 5}
    short = audited(windowed | {"sliding_window": 4096}, runtime="llama.cpp").readings[0]
    assert [group.says for group in short.parted] == [("the last 4,096 positions against all positions",)]
    assert audited(windowed | {"sliding_window": 262144}, runtime="llama.cpp").readings[0].verdict == "same"


def test_frequencies_that_differ_under_the_same_words_are_named(audited):
    """llama.cpp takes 32 and 1 for the betas of YaRN."""
    block = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192, "beta_fast": 4.0}
    (misread,) = found(
        audited(LLAMA | {"rope_theta": 5e5, "rope_scaling": block}, runtime="llama.cpp"), "misread-by-runtime"
    )
    assert "uses other RoPE frequencies (pairs " in misread.message


def test_a_statement_holds_for_its_releases_types_and_keys_alone(audited, stated):
    stated(says("default-base", "deepspeed", since="0.17", until="0.18.3", types=("llama",), lacks=("rope_theta",)))
    (misread,) = audited(NEW, runtime="deepspeed@0.18").problems
    assert misread.severity == "error"
    assert "base 10,000 instead of base 500,000" in misread.message
    assert "It reads rope_theta only. Source: owner/name#1." in misread.message
    # With the values in the old format too, the statement is about the file no more.
    assert misread.edit is not None
    assert {step["path"] for step in misread.edit.patch} == {"/rope_theta", "/rope_scaling"}
    for config, release in [(NEW, "0.16"), (NEW, "0.18.3"), (OLD, "0.18"), (NEW | {"model_type": "qwen2"}, "0.18")]:
        audit = audited(config, runtime=f"deepspeed@{release}")
        assert not found(audit, "misread-by-runtime")
        (unknown,) = found(audit, "runtime-not-known")
        assert unknown.message.startswith(f"clockhands does not know what DeepSpeed inference {release} computes")


def test_a_runtime_that_refuses_a_file_is_an_error(audited):
    audit = audited(LLAMA | {"rope_theta": 1e4, "rope_scaling": {"rope_type": "unheard-of"}}, runtime="transformers@5")
    (refused,) = found(audit, "refused-by-runtime")
    assert refused.severity == "error"
    assert refused.message.startswith("Transformers 5.23.0 does not load this file (")


def test_what_was_not_compared_is_said_beside_what_is_the_same(audited):
    windowed = LLAMA | {"num_hidden_layers": 5, "rope_theta": 1e4, "sliding_window": 4096}
    # The attention of Granite has no window, but the cache of Transformers takes it from any config.
    said = audited(windowed | {"model_type": "granite"}, runtime="vllm").verdict
    assert said == "No problem was found, but sliding_window is not read."
    # Whether vLLM uses the window of this type is not known to clockhands.
    said = audited(windowed | {"model_type": "granite_swa"}, runtime="vllm").verdict
    assert said == "The position settings look correct, and vLLM computes these values (windows not compared)."
    # For Llama it is known: vLLM uses the window.
    said = audited(windowed, runtime="vllm").verdict
    assert said == "The config is correct, but vLLM may misread it."


def test_a_preset_is_read_by_no_runtime():
    (unknown,) = found(ch.audit("vaswani2017", runtime="vllm"), "runtime-not-known")
    assert "This target is a spec of clockhands, which runtimes do not read." in unknown.message
    verdict = ch.audit("vaswani2017", runtime="vllm").verdict
    assert verdict == "The position settings look correct. What vLLM computes is not known."


def test_common_mistakes_are_one_folded_note_that_names_who_is_known_to_make_them(audited, stated):
    stated(says("default-base", "deepspeed", until="0.18.3"))
    audit = audited(OLD)
    assert not audit.problems
    (note,) = found(audit, "often-misread")
    assert note.severity == "note"
    first, *others = note.evidence["mistakes"]
    assert "; made by DeepSpeed inference from 0.17.6 on, before 0.18.3 (owner/name#1)" in note.evidence[first]
    assert "off by 1 radian from distance 8 on" in note.evidence[first]
    assert others
    assert not any("known:" in note.evidence[name] for name in others)
    assert not found(audited(OLD, runtime="vllm"), "often-misread")


def test_a_file_that_no_common_mistake_changes_has_no_note(audited):
    assert not found(audited(LLAMA | {"rope_theta": 10000.0}), "often-misread")


def test_what_a_thread_reports_of_an_unknown_release_is_said_and_is_no_problem(audited, stated):
    stated(says("no-scaling", "ollama", basis="thread", mended="ollama/ollama#2"))
    for runtime in ("ollama", "ollama@0.5"):
        audit = audited(OLD, runtime=runtime)
        (note,) = found(audit, "runtime-not-known")
        assert "A mistake of some release is known from owner/name#1, fixed by ollama/ollama#2 (no line" in note.message
        assert not audit.problems


def test_every_statement_of_the_data_can_be_asked_for(cases):
    for each in releases.statements():
        read = releases.runtimes()[each.runtime].releases
        release = next(filter(each.covers, read), each.since)
        runtime = runtime_of(each.runtime if release is None else f"{each.runtime}@{release}")
        with cases(each.runtime, each.pattern):
            assert each.covers(runtime.release) or each.of_some_release


def test_a_window_of_an_eagle_draft_is_told_and_no_other_window(audited, cases):
    sliding = {"layer_types": ["sliding_attention"], "sliding_window": 2048, "use_sliding_window": True}
    layer = {"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 1}
    draft = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"}
    for told, config in (
        (True, draft | {"transformer_layer_config": layer | sliding}),
        (False, draft | {"transformer_layer_config": layer}),
        (False, layer | sliding),
    ):
        with cases(config):
            notes = found(audited(config), "draft-window")
            assert bool(notes) == told
            if told:
                assert (notes[0].layers, notes[0].evidence["window"]) == ("0", 2048)
                assert "a sliding window of 2,048 tokens" in notes[0].message
