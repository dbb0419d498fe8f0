"""Study files: what is refused, with the nearest valid name; the published schema; what the shipped studies hold."""

import dataclasses
import importlib.util
import re
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from clockhands.encodings.biases import Alibi, bias
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Linear
from clockhands.encodings.specs import SPECS
from clockhands.errors import ClockhandsError, InvalidValue, TooLarge, Unreadable
from clockhands.lab import arms, study
from clockhands.lab.sections import GRID_CODES, Model
from clockhands.lab.store import Key

HERE = Path(__file__).parent
STUDY = Path(__file__).with_name("small_study.toml").read_text(encoding="utf-8")


def changed(old: str, new: str) -> str:
    assert old in STUDY
    return STUDY.replace(old, new, 1)


@cache
def refused(*parts: str) -> list[tuple[str, str, str]]:
    """Parts of `refused_studies.txt`: each case is a changed text, and the message and hint that refuse it."""
    found = []
    for body in (HERE / "refused_studies.txt").read_text(encoding="utf-8").split("## ")[1:]:
        name, *given = body.strip().split("\n\n")
        for case in given if name.startswith(parts) else ():
            change, *said = case.splitlines()
            old, new = (each.replace("\\n", "\n") for each in change.split(" => "))
            found.append((changed(old, new), *said))
    return found


def refuses(cases, check, *parts: str) -> None:
    """Whether a check of studies refuses every case of some parts, each with its message and hint."""
    for text, message, hint in refused(*parts):
        with cases(message):
            with pytest.raises(ClockhandsError) as caught:
                check(study.parse(text))
            assert (caught.value.message, caught.value.hint) == (message, hint)


@cache
def valid():
    import jsonschema

    return jsonschema.Draft202012Validator(study.schema()).is_valid


def test_a_wrong_study_is_refused(cases):
    arms.check(study.parse(STUDY))  # or each refusal below might have another reason
    refuses(cases, lambda _: None, "schema", "parse")
    refuses(cases, arms.check, "arms")


def test_the_sizes_of_a_packaged_model_are_those_of_a_study(cases):
    pytest.importorskip("glassllm")
    refuses(cases, arms.check, "packaged")


def test_the_schema_refuses_what_a_schema_can():
    """The rest follows from other fields, or is a rule of the code."""
    assert valid()(tomllib.loads(STUDY))
    for text, message, _ in refused("schema"):
        assert not valid()(tomllib.loads(text)), message
    for text, message, _ in refused("parse", "arms", "codes", "packaged"):
        assert valid()(tomllib.loads(text)) or "type" in text, message


MEMORY = """\
question = "How much?"
model = {{ width = {width}, layers = {layers} }}
training = {{ sequences = {sequences}, length = {length} }}
evaluation = {{ lengths = {lengths}, sequences = {evaluated} }}
tasks.copy = {{ kind = "copy", vocabulary = {vocabulary} }}
arms.none = {{ code = "none" }}
"""
SIZES = {"width": 16, "layers": 2, "sequences": 32, "length": 16, "vocabulary": 32, "evaluated": 32}


def test_what_does_not_fit_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch, cases):
    monkeypatch.setattr("clockhands.encodings.memory.available", lambda: 32 << 30)
    for change, what in (
        ({"width": 1 << 20}, "The activations of a training step"),
        ({"lengths": [16, 10_000_000]}, "The attention bias of the longest sequence"),
        ({"sequences": 10**9}, "The evaluation of the training curve|The logits of a training step"),
        ({"sequences": 1, "evaluated": 10**9}, "The evaluation at length 16"),
        ({"sequences": 1, "vocabulary": 10**8}, "The logits of an evaluation"),
        ({"sequences": 1, "length": 4, "lengths": [4], "width": 1 << 17, "layers": 200}, "The parameters"),
    ):
        with cases(what):
            words = rf"In `arms.none` for `tasks.copy`: {what}.*; 32 GiB are available"
            with pytest.raises(TooLarge, match=words) as caught:
                arms.check(study.parse(MEMORY.format(**{**SIZES, "lengths": [16, 32], **change})))
            assert caught.value.hint in {"Use fewer sequences, or shorter ones.", "Use a smaller model."}


def test_what_is_no_study_or_not_there_is_refused(tmp_path: Path):
    for text in ("[[gates", "seeds = " + "9" * 5000, "a = " + "[" * 5000):
        with pytest.raises(Unreadable, match=r"^The study is not TOML: .*\nhint: See docs/lab.md for the format\.$"):
            study.parse(text)
    for name, said in (
        ("qiuck", "There is no study 'qiuck'.\n"
         "hint: Did you mean quick? To run your own study, name a file that ends in .toml."),
        (tmp_path / "x.toml", f"The study {tmp_path}/x.toml cannot be read: No such file or directory.\n"
         "hint: Name a TOML file, or a study that comes with clockhands."),
    ):  # fmt: skip
        with pytest.raises(Unreadable) as caught:
            study.read(name)
        assert str(caught.value) == said
    (tmp_path / "latin.toml").write_bytes(b'question = "\xe9"')
    with pytest.raises(Unreadable, match="cannot be read: 'utf-8' codec"):
        study.read(tmp_path / "latin.toml")
    # A byte order mark is read over.
    (tmp_path / "marked.toml").write_text(STUDY, encoding="utf-8-sig")
    assert study.read(tmp_path / "marked.toml").hash == study.parse(STUDY).hash


def test_trials_come_seed_by_seed_and_a_changed_text_is_another_study():
    found = study.parse(changed('kind = "copy"', 'kind = "copy"\nseeds = [1, 5]\n[tasks.order]\nkind = "order"'))
    names = [(key.task, key.arm, key.seed) for key in found.trial_keys()]
    assert names == [
        ("order", "rotary", 0), ("order", "learned", 0),
        ("copy", "rotary", 1), ("copy", "learned", 1), ("order", "rotary", 1), ("order", "learned", 1),
        ("copy", "rotary", 5), ("copy", "learned", 5),
    ]  # fmt: skip
    assert study.parse(STUDY).hash != study.parse(STUDY + "\n").hash
    assert study.parse(STUDY).hash == study.parse(STUDY, "another name").hash


def test_an_arm_has_its_own_training_model_and_lengths():
    own = """
training = { duration = "150 %", sequences = 8 }
learning_rate = { copy = 0.5 }
model = { layers = 3 }
lengths = { copy = [64] }
"""
    found = study.parse(changed('code = { type = "Rotary" }\n', f'code = {{ type = "Rotary" }}{own}').split("[[")[0])
    rotary, learned = Key("copy", "rotary", 0), Key("copy", "learned", 0)
    assert [found.training_of(key).steps for key in (rotary, learned)] == [15, 10]
    assert [found.training_of(key).sequences for key in (rotary, learned)] == [8, 32]
    assert [found.training_of(key).learning_rate for key in (rotary, learned)] == [0.5, 3e-3]
    assert [found.model_of(key).layers for key in (rotary, learned)] == [3, 2]
    assert [found.lengths_of(key) for key in (rotary, learned)] == [(64,), (16,)]


def test_a_duration_has_a_unit(cases):
    """A step has 32 sequences of 16 tokens."""
    for duration, steps in {
        "7": 7, '"7 steps"': 7, '"1 step"': 1, '"1_000 tokens"': 2, '"1,025 tokens"': 3, '"0 steps"': 0,
    }.items():  # fmt: skip
        with cases(duration):
            found = study.parse(changed('"10 steps"', duration))
            assert found.training_of(Key("copy", "rotary", 0)).steps == steps


def test_the_grid_has_every_arm_at_every_rate():
    found = study.parse(STUDY + "\n[tuning]\nlearning_rates = [0.1, 0.001]\nseeds = [7, 8]\n[grid]\n")
    assert list(found.arms) == ["rotary at 0.1", "rotary at 0.001", "learned at 0.1", "learned at 0.001"]
    assert {key.seed for key in found.trial_keys()} == {7, 8}
    assert len(found.trial_keys()) == 8
    key = Key("copy", "learned at 0.1", 7)
    assert (found.training_of(key).learning_rate, found.lengths_of(key), found.gates) == (0.1, (16,), ())
    own = study.parse(changed("lengths = [16]\n", "lengths = [8]\ntraining = { length = 8 }\n") + "[grid]\n")
    assert own.lengths_of(Key("copy", "learned at 0.001", 1000)) == (8,)


# What a code says


def test_every_code_is_made_or_refused_with_a_sentence(cases):
    """It gets the sizes of the model. Those that need more than a line of tokens say so."""
    for code, made in (
        ("none", None),
        ({"type": "NoPosition"}, None),
        ({"type": "Rotary"}, Rotary(4)),
        ({"type": "Rotary", "base": 100, "share": 0.5}, Rotary(4, base=100, rotated=2)),
        ("llama2", Rotary(4)),
    ):
        assert arms.spec_of(code, Model(width=16), 16) == made
    words = r"is an encoding of grids|cannot be a mixture of layers in a study"
    for kind in SPECS:
        with cases(kind):
            code = {"type": kind.__name__}
            if kind.__name__ in {*GRID_CODES, "LayerMixture"}:
                with pytest.raises(ClockhandsError, match=words):
                    arms.spec_of(code, Model(width=32), 16)
            else:
                made = arms.spec_of(code, Model(width=32), 16)
                assert made is None or isinstance(made, kind)


def test_a_scaling_at_test_time_is_the_ratio_of_the_lengths_or_its_own_factor(cases):
    for scaling in ("Linear", "Ntk", "Dynamic", "Yarn"):
        with cases(scaling):
            found = study.parse(changed('{ type = "Yarn" }', f'{{ type = "{scaling}" }}')).arms["rotary"]
            at = {length: arms.setting(found, Model(width=16), 16, length, "yarn").spec for length in (8, 16, 32)}
            for length in (8, 16):
                assert np.array_equal(at[length].rates, Rotary(4).rates)
                assert at[length].attention_factor == 1
            made = at[32].scaling
            assert type(made).__name__ == scaling
            assert getattr(made, "factor", 2.0) == 2.0
            assert getattr(made, "original", 16) == 16
            assert not np.array_equal(at[32].rates, at[16].rates)
    found = study.parse(changed('{ type = "Yarn" }', '{ type = "Linear", factor = 4 }')).arms["rotary"]
    for length in (8, 16, 32):
        assert arms.setting(found, Model(width=16), 16, length, "yarn").spec.scaling == Linear(4)


def test_a_bias_in_an_encoder_knows_later_keys(cases):
    """One-sided, it would give all later keys one number, or prefer them."""
    for code, field, causal, both_sides in (
        ({"type": "Alibi"}, "form", "distance", "symmetric"),
        ("bloom", "form", "key", "symmetric"),
        ({"type": "Buckets"}, "bidirectional", False, True),
        ({"type": "Kerple"}, "symmetric", False, True),
    ):
        with cases(code):
            assert getattr(arms.spec_of(code, Model(width=32, heads=32), 16), field) == causal
            made = arms.spec_of(code, Model(width=32, heads=32), 16, causal=False)
            assert getattr(made, field) == both_sides
            rng = np.random.default_rng(0)
            values = {name: rng.uniform(0.5, 1, shape) for name, shape in getattr(made, "shapes", {}).items()}
            assert len(set(bias(made, 4, 4, values=values or None)[0, 0].tolist())) == 4
    # What is written in the study is not replaced.
    made = arms.spec_of({"type": "Alibi", "form": "past"}, Model(width=16), 16, causal=False)
    assert made == Alibi(4, form="past")
    for code in ({"type": "Fire"}, {"type": "Decay"}, {"codes": ["none", {"type": "Fire"}]}):
        with cases(code):
            with pytest.raises(InvalidValue, match="is defined for keys up to the query only"):
                arms.spec_of(code, Model(width=16), 16, causal=False)
            arms.spec_of(code, Model(width=16), 16)
    text = changed('kind = "copy"', 'kind = "order"').replace("scaling", "#")
    arms.check(study.parse(text.replace('{ type = "Rotary" }', '{ type = "Alibi" }')))
    with pytest.raises(InvalidValue, match=r"In `arms\.rotary` for `tasks\.copy`: Fire is defined for keys up to"):
        arms.check(study.parse(text.replace('{ type = "Rotary" }', '{ type = "Fire" }')))


def test_after_a_drop_there_is_neither_code_nor_fault():
    arm = dataclasses.replace(study.parse(STUDY).arms["rotary"], fault="other-layout")
    kept, dropped = (arms.setting(arm, Model(width=16), 16, 32, dropped=each) for each in (False, True))
    assert (kept.spec, kept.fault, kept.scaled_by) == (Rotary(4), "other-layout", 2.0)
    assert (dropped.spec, dropped.fault) == (None, "")
    again = dataclasses.replace(arm.at_test["yarn"], scaling=None, code={"type": "Rotary"})
    arm = dataclasses.replace(arm, at_test={"again": again})
    assert arms.setting(arm, Model(width=16), 16, 32, "again", dropped=True).spec == Rotary(4)
    # A learned table may end where it is dropped.
    arms.check(study.parse(changed("lengths = [16]\n", 'drop = { at = "50 %" }\n')))


# The shipped studies


def shipped(limit: int = 100_000) -> list[study.Study]:
    """The shipped studies, of at most so many bytes of text; without the one whose package is absent."""
    folder, packaged = Path(study.__file__).parent / "studies", importlib.util.find_spec("glassllm")
    texts = {name: (folder / f"{name}.toml").read_text(encoding="utf-8") for name in study.shipped()}
    texts = {name: re.sub(r"(?m)^limit = .*$", f"limit = {limit}", text) for name, text in texts.items()}
    return [study.parse(text, name) for name, text in texts.items() if packaged or "glassllm" not in text]


def test_a_shipped_study_is_valid(cases):
    assert study.read("quick").text == next(each.text for each in shipped() if each.name == "quick")
    for found in shipped():
        with cases(found.name):
            assert valid()(tomllib.loads(found.text))
            assert found.gates
            arms.check(found)


@pytest.mark.slow
def test_the_shipped_studies_can_be_trained_on_their_whole_texts(cases):
    for name in study.shipped():
        with cases(name):
            arms.check(study.read(name))
