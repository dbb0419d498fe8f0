"""Fixes: the edit of a finding made in the text of a file gives the ladder of the release, and changes nothing else."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clockhands as ch
from auditing.model_files import audit_of, findings
from auditing.published_fields import LLAMA_31, QWEN2, block_with, without
from clockhands.auditing import Audit
from clockhands.auditing._edits import applied
from clockhands.auditing.fixes import fix_of, patched, unified
from clockhands.errors import InvalidValue


def yarn(context: int, original: int | None) -> dict:
    block = {"type": "yarn", "factor": 4.0} | (
        {} if original is None else {"original_max_position_embeddings": original}
    )
    return QWEN2 | {"max_position_embeddings": context, "rope_scaling": block}


LLAMA = LLAMA_31 | {"vocab_size": 128256}
# A faulty config, and the one that it should have been.
FAULTY = {
    "original length 65,536 beside 131,072": (yarn(131072, 65536), yarn(131072, 32768)),
    "original length 131,072 beside 131,072": (yarn(131072, 131072), yarn(131072, 32768)),
    "original length 8,192 beside 32,768": (yarn(32768, 8192), yarn(32768, 32768)),
    "original length 16,384 beside 32,768": (yarn(32768, 16384), yarn(32768, 32768)),
    "no original length": (yarn(131072, None), yarn(131072, 32768)),
    "a base that has lost a zero": (LLAMA | {"rope_theta": 50000.0}, LLAMA),
    "the factor of Llama 3.2": (block_with(LLAMA, factor=32.0), LLAMA),
    "equal frequency factors": (block_with(LLAMA, low_freq_factor=4.0), LLAMA),
    "linear scaling": (LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, LLAMA),
    "no scaling": (without(LLAMA, "rope_scaling"), LLAMA),
    "no base": (without(LLAMA, "rope_theta"), LLAMA),
    "a base of null": (LLAMA | {"rope_theta": None}, LLAMA),
}


def rates(found: Audit) -> tuple[float, ...]:
    (code,) = found.layers
    return code.rates


def test_a_fix_gives_the_ladder_of_the_release(cases, tmp_path):
    path = tmp_path / "config.json"
    for name, (faulty, right) in FAULTY.items():
        path.write_text(json.dumps(faulty, indent=2), encoding="utf-8")
        found = ch.audit(path)
        fix = fix_of(found, "config.json", ch.audit)
        with cases(name):
            assert found.problems, "it is noticed"
            assert rates(found) != pytest.approx(rates(audit_of(right)), rel=1e-6)
            assert fix.left.problems == ()
            mended = audit_of(json.loads(fix.after))
            assert mended.problems == ()
            assert rates(mended) == pytest.approx(rates(audit_of(right)), rel=1e-6)


def test_a_documented_extension_is_not_reported():
    codes = {found.code for found in findings(yarn(131072, 32768))}
    assert not codes & {"differs-from-release", "wrong-original", "missing-scaling"}


# One after the other


def fixed(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return fix_of(ch.audit(path), "config.json", ch.audit)


def test_a_key_that_another_fix_needs_is_not_taken_away(tmp_path):
    wrong = LLAMA["rope_scaling"] | {"rope_type": "yarn", "factor": 16.0}
    fix = fixed(tmp_path, LLAMA | {"rope_scaling": wrong})
    assert json.loads(fix.after)["rope_scaling"] == LLAMA["rope_scaling"]
    assert fix.left.problems == ()


def test_a_copy_is_made_of_what_another_fix_has_left(tmp_path):
    short = {key: value for key, value in LLAMA["rope_scaling"].items() if "freq_factor" not in key}
    fix = fixed(tmp_path, LLAMA | {"rope_scaling": short, "rope_parameters": {"rope_type": "default"}})
    assert not {found.code for found in fix.left.problems} & {"conflicting-shapes", "incomplete-scaling"}


def test_fixes_that_contradict_each_other_are_refused_with_the_key(tmp_path):
    shape = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 100352}
    config = {"model_type": "olmo2", "max_position_embeddings": 4096, "rope_theta": "5e4"} | shape
    found = ch.audit(written(tmp_path, config))
    assert [each.code for each in found.problems if each.edit] == ["differs-from-release", "text-number"]
    # The number of the release is no text either.
    fix = fix_of(found, "config.json", ch.audit)
    assert ([each.code for each in fix.made], json.loads(fix.after)["rope_theta"]) == (["differs-from-release"], 5e5)
    assert fix.left.problems == ()
    # Where the other one is still there, whichever is made, a person decides.
    with pytest.raises(InvalidValue, match="set rope_theta to different values"):
        fix_of(found, "config.json", lambda _: found)


# Each makes one fault; whatever two of them do to a config, in one format or both, the fixes end in the config itself.
FAULTS = {
    "a lost zero": lambda config: config | {"rope_theta": config["rope_theta"] / 10},
    "no base": lambda config: without(config, "rope_theta"),
    "a misspelt base": lambda config: without(config, "rope_theta") | {"rope_tetha": config["rope_theta"]},
    "a base as text": lambda config: config | {"rope_theta": str(config["rope_theta"])},
    "a context as text": lambda config: config | {"max_position_embeddings": "131072"},
    "the wrong case": lambda config: block_with(config, rope_type="LLAMA3"),
    "a factor as text": lambda config: block_with(config, factor="8"),
    "a wrong factor": lambda config: block_with(config, factor=32.0),
    "a wrong frequency factor": lambda config: block_with(config, low_freq_factor=4.0),
    "a misspelt block": lambda config: without(config, "rope_scaling") | {"rope_scalling": config["rope_scaling"]},
}


@pytest.mark.parametrize("both", [False, True], ids=["one format", "both formats"])
def test_what_belongs_together_is_fixed_together(cases, draw, tmp_path, both):
    values = {"a lost zero", "a wrong factor", "a wrong frequency factor"}  # two of them are another model
    pairs = [pair for pair in itertools.combinations(FAULTS, 2) if not values.issuperset(pair)]
    for pair in draw(pairs, 12):
        try:
            config = FAULTS[pair[1]](FAULTS[pair[0]](LLAMA))
        except (KeyError, TypeError):  # the first fault took away what the second changes
            continue
        if both:
            base = {key: config[key] for key in ("rope_theta",) if key in config}
            config |= {"rope_parameters": config.get("rope_scaling", {}) | base}
        fix = fixed(tmp_path, config)
        mended = json.loads(fix.after)
        if both and "a misspelt block" in pair:  # which format is right is for a person, and no number is lost
            with cases(*pair):
                assert mended.get("rope_scalling", mended.get("rope_scaling", {}))["low_freq_factor"] in (1.0, 4.0)
            continue
        with cases(*pair):
            assert fix.left.problems == ()
            blocks = [mended["rope_scaling"], *([mended["rope_parameters"]] if both else [])]
            for block in blocks:
                assert {key: block[key] for key in LLAMA["rope_scaling"]} == LLAMA["rope_scaling"]
            assert {mended["rope_theta"], *(block.get("rope_theta", 5e5) for block in blocks)} == {5e5}


def written(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def test_problems_of_other_files_of_the_folder_are_seen_after_a_fix(tmp_path):
    written(tmp_path, LLAMA | {"rope_theta": 50000.0})
    other = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "rope_theta": 1e4}
    (tmp_path / "params.json").write_text(json.dumps(other), encoding="utf-8")
    found = ch.audit(tmp_path)
    assert "files-disagree" in {each.code for each in found.problems}
    assert "files-disagree" in {each.code for each in fix_of(found, "config.json", ch.audit).left.problems}


def test_a_block_is_added_with_the_line_ends_of_the_file():
    text = '{\r\n  "a": 1,\r\n  "b": 2\r\n}\r\n'
    after = patched(text, [{"op": "add", "path": "/c", "value": {"d": 1, "e": 2}}])
    assert "\n" not in after.replace("\r\n", "")
    assert json.loads(after) == {"a": 1, "b": 2, "c": {"d": 1, "e": 2}}


# The text

keys = st.text(st.sampled_from('ab"\\/~.,:{}[]é \u2028'), min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


def pointer(*path: str) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)


@given(
    document=st.dictionaries(keys, values, min_size=1, max_size=4),
    value=values,
    indent=st.sampled_from([None, 2, 4, "\t"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    draw=st.data(),
)
def test_the_text_holds_the_edited_document_and_nothing_else_is_changed(document, value, indent, newline, draw):
    text = json.dumps(document, indent=indent, ensure_ascii=draw.draw(st.booleans())).replace("\n", newline)
    inside = [[]] + [[key] for key, held in document.items() if isinstance(held, dict)]
    path = draw.draw(st.sampled_from(inside))
    held = document[path[0]] if path else document
    operation = draw.draw(st.sampled_from(["add", "replace", "remove"] if held else ["add"]))
    key = "new" if operation == "add" else draw.draw(st.sampled_from(sorted(held)))
    step = {"op": operation, "path": pointer(*path, key)} | ({} if operation == "remove" else {"value": value})
    after = patched(text, [step])
    assert json.loads(after) == applied(step, document)
    if operation == "replace" and not isinstance(held[key], dict | list | str):
        back = {"op": "replace", "path": step["path"], "value": held[key]}
        assert patched(after, [back]) == text


def test_of_a_key_that_is_there_twice_the_last_is_changed_and_both_are_removed():
    text = '{"a": 1, "b": 2, "a": 3}'
    assert patched(text, [{"op": "replace", "path": "/a", "value": 4}]) == '{"a": 1, "b": 2, "a": 4}'
    assert json.loads(patched(text, [{"op": "remove", "path": "/a"}])) == {"b": 2}


def test_a_byte_order_mark_and_the_spelling_of_other_numbers_stay():
    text = '\ufeff{"rope_theta": 1e4, "eps": 1.0E-05}\n'
    after = patched(text, [{"op": "replace", "path": "/rope_theta", "value": 500000.0}])
    assert after == '\ufeff{"rope_theta": 500000.0, "eps": 1.0E-05}\n'


def test_words_are_written_as_people_read_them():
    for value in ("é 中", {"a": "é 中"}):
        assert "é 中" in patched('{"b": 1}', [{"op": "replace", "path": "/b", "value": value}])


def test_a_line_of_a_diff_ends_where_a_line_of_the_file_does():
    before, after = '{\n "a": "\u2028",\n "b": 1\n}', '{\n "a": "\u2028",\n "b": 2\n}'
    assert unified(before, after, "c.json").splitlines()[0] == "--- a/c.json"
    assert '-\u0020"b": 1\n' in unified(before, after, "c.json")
    assert "\\ No newline at end of file\n" in unified(before, after + "x", "c.json")
