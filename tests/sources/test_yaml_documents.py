"""YAML configs: plain values with the lines of their keys, within bounds, and nothing that a file could run."""

import json

import pytest

from clockhands.errors import Unreadable
from clockhands.sources.key_lines import line_in
from clockhands.sources.yaml_documents import LARGEST, key_lines, parse, read


def fields(text):
    return parse(text.encode(), "f.yaml").fields


def test_values_are_plain():
    text = """
    {"pos-emb": "rotary",  # a comment, and a comma before the end
     a: 1_000, b: 1.5, c: true, d: ~, e: [1, x], f: 2024-01-01,}
    """
    held = {"pos-emb": "rotary", "a": 1000, "b": 1.5, "c": True, "d": None, "e": [1, "x"], "f": "2024-01-01"}
    assert fields(text) == held


@pytest.mark.parametrize("text", ["1e6", "1E+6", "1_000e3", "+1e6", "1.0e6", "1.e6", "1.0e+6", "1000000.0"])
def test_a_number_with_an_exponent_is_a_number(text):
    assert fields(f"rope_theta: {text}") == {"rope_theta": 1e6}


def test_in_quotes_it_is_a_text():
    assert fields("rope_theta: '1e6'") == {"rope_theta": "1e6"}
    assert fields("a: 08\nb: 0b2") == {"a": "08", "b": "0b2"}


def test_json_is_yaml_too():
    config = {"rope_scaling": {"factor": 4.0, "list": [1, None, "x"]}, "n": 1}
    assert fields(json.dumps(config)) == config


def test_aliases_and_merges_stand_for_what_they_name():
    text = "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\nz: {<<: [{a: 5}, *x]}\nl: &l [1]\nm: *l"
    assert fields(text) == {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}, "z": {"a": 5, "b": 2}, "l": [1], "m": [1]}


def test_the_last_of_two_equal_keys_counts_and_both_are_told():
    document = parse(b"a: 1\nb: {c: 2, c: 3}\na: 4", "f.yaml")
    assert (document.fields, document.duplicates) == ({"a": 4, "b": {"c": 3}}, ("c", "a"))


def laughs():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!python/object/apply:os.system ['x']", "f.yaml holds the tag !!python/object/apply:os.system in line 1"),
        ("a: 1\nb: !own x", "f.yaml holds the tag !own in line 2, and only plain values are read."),
        ("a: !!binary aGk=", "f.yaml holds the tag !!binary in line 1"),
        (laughs(), "f.yaml holds more than 131,072 values, those that aliases repeat among them"),
        ("a: &a [*a]", "f.yaml nests objects or lists deeper than 100 levels."),
        ("[" * 5000, "f.yaml nests objects or lists deeper than 100 levels."),
        ("a: 1\n---\nb: 2", "f.yaml holds 2 YAML documents, parted by ---, but a config is one."),
        ("- 1", "f.yaml is YAML without keys at the top level"),
        ("a: [1,", "f.yaml is not YAML: expected the node content, but found '<stream end>' at line 1, column 7."),
        ("a: \x07", "f.yaml is not YAML: it holds control characters."),
        ("# nothing", "f.yaml is YAML without any value."),
        ("", "f.yaml is empty, but a YAML file is expected."),
        (f"a: {'9' * 400}", "f.yaml holds a number of 400 characters, which no config has."),
        ("? [1]\n: 2", "f.yaml holds a list or a mapping as a key in line 1, which no config has."),
        ("x: 1\ny: {<<: 1}", "f.yaml holds << without a mapping in line 2"),
        (f"{'k' * 5000}: 1", "f.yaml is not YAML"),  # PyYAML allows a key of 1,024 characters
        ("\n".join(f"k{n}: 1\nk{n}: 2" for n in range(101)), "more than 100 keys that are given more than once"),
    ],
)
def test_what_no_config_has_is_refused(text, said):
    with pytest.raises(Unreadable) as refused:
        fields(text)
    assert said in refused.value.message
    assert refused.value.hint


def test_an_empty_document_beside_it_is_no_second_one():
    assert fields("---\na: 1\n---\n") == {"a": 1}


def test_a_file_that_is_too_large_is_not_parsed(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (LARGEST + 1))
    with pytest.raises(Unreadable, match="has more than 1,048,576 bytes"):
        read(path)


def test_every_key_has_its_line(tmp_path):
    text = "name: x\nmodel:\n  rotary_base: 1\n  --a-b: 2\n  list:\n  - c: 3\n"
    lines = {"name": 1, "model": 2, "model.rotary_base": 3, "model.--a-b": 4, "model.list": 5, "model.list.0.c": 6}
    assert key_lines(text) == lines
    path = tmp_path / "f.yml"
    path.write_text(text)
    assert (line_in(path, "model.rotary_base"), line_in(path, "nothing")) == (3, None)
    assert key_lines("a: [") == {}
