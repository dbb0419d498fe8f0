"""YAML configs: plain values with the lines of their keys, within bounds, and nothing that a file could run."""

import pytest

from clockhands.errors import Unreadable
from clockhands.formats.key_lines import line_in
from clockhands.formats.yaml_documents import LARGEST, key_lines, parse, read


def fields(text):
    return parse(text.encode(), "f.yaml").fields


PLAIN = {
    """
    {"pos-emb": "rotary",  # a comment, and a comma before the end
     a: 1_000, b: 1.5, c: true, d: ~, e: [1, x], f: 2024-01-01,}
    """: {"pos-emb": "rotary", "a": 1000, "b": 1.5, "c": True, "d": None, "e": [1, "x"], "f": "2024-01-01"},
    '{"rope_scaling": {"factor": 4.0, "list": [1, null, "x"]}, "n": 1}': {
        "rope_scaling": {"factor": 4.0, "list": [1, None, "x"]}, "n": 1
    },
    # Aliases and merges stand for what they name.
    "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\nz: {<<: [{a: 5}, *x]}\nl: &l [1]\nm: *l": {
        "x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}, "z": {"a": 5, "b": 2}, "l": [1], "m": [1],
    },
    "---\na: 1\n---\n": {"a": 1},  # an empty document beside it is no second one
}  # fmt: skip


def test_values_are_plain(cases):
    for text, held in PLAIN.items():
        with cases(text):
            assert fields(text) == held


def test_a_number_with_an_exponent_is_a_number_and_in_quotes_a_text(cases):
    for text in ("1e6", "1E+6", "1_000e3", "+1e6", "1.0e6", "1.e6", "1.0e+6", "1000000.0"):
        with cases(text):
            assert fields(f"rope_theta: {text}") == {"rope_theta": 1e6}
    assert fields("rope_theta: '1e6'") == {"rope_theta": "1e6"}
    assert fields("a: 08\nb: 0b2") == {"a": "08", "b": "0b2"}


def test_the_last_of_two_equal_keys_counts_and_both_are_told():
    document = parse(b"a: 1\nb: {c: 2, c: 3}\na: 4", "f.yaml")
    assert (document.fields, document.duplicates) == ({"a": 4, "b": {"c": 3}}, ("c", "a"))


def laughs():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


def test_what_no_config_has_is_refused(refused, snapshot, cases):
    for name, text in {
        "code": "a: !!python/object/apply:os.system ['x']",
        "own tag": "a: 1\nb: !own x",
        "binary": "a: !!binary aGk=",
        "laughs": laughs(),
        "alias in itself": "a: &a [*a]",
        "levels": "[" * 1100,
        "two documents": "a: 1\n---\nb: 2",
        "a list": "- 1",
        "half": "a: [1,",
        "control characters": "a: \x07",
        "a comment": "# nothing",
        "nothing": "",
        "digits": f"a: {'9' * 400}",
        "a list as a key": "? [1]\n: 2",
        "a merge of a number": "x: 1\ny: {<<: 1}",
        "a long key": f"{'k' * 5000}: 1",  # PyYAML allows a key of 1,024 characters
        "keys twice": "\n".join(f"k{n}: 1\nk{n}: 2" for n in range(101)),
    }.items():
        with cases(name):
            assert refused(fields, text) == snapshot(name=name)


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
