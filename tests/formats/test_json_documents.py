"""JSON as the field writes it is read; what is no config is refused in one sentence."""

import io
import math
from itertools import product
from pathlib import Path

import pytest

from clockhands.errors import Unreadable
from clockhands.formats import documents
from clockhands.formats.yaml_documents import read_stream
from written_files import refusal, written


@pytest.fixture
def refused(refused):
    """What bytes of a config.json are refused with."""
    return lambda data, **named: refused(documents.parse, data, "config.json", **named)


READ = {
    b'{"a": {"b": [1, 2.5, "x", null, true]}}': {"a": {"b": [1, 2.5, "x", None, True]}},
    b'\xef\xbb\xbf{"a": Infinity, "b": -Infinity}': {"a": math.inf, "b": -math.inf},
    b'{"a": "\\ud83d\\ude00"}': {"a": "\N{GRINNING FACE}"},  # a pair of surrogates
}


def test_an_object_is_read(cases):
    for data, fields in READ.items():
        with cases(data):
            document = documents.parse(data, "config.json")
            assert (document.fields, document.duplicates) == (fields, ())
    assert math.isnan(documents.parse(b'{"c": NaN}', "config.json").fields["c"])
    assert documents.parse(b'{"a":' * 100 + b"1" + b"}" * 100, "config.json").fields["a"], "just not too deep"


def test_keys_given_twice_are_recorded_and_the_last_counts():
    document = documents.parse(b'{"a": 1, "in": {"b": 1, "b": 2}, "a": 3, "a": 4}', "config.json")
    assert document.fields == {"a": 4, "in": {"b": 2}}
    assert sorted(document.duplicates) == ["a", "b"]


NO_CONFIGS = {
    "nothing": b"",
    "white space": b" \n",
    "a list": b"[1]",
    "a string": b'"x"',
    "a number": b"12",
    "null": b"null",
    "true": b"true",
    "a trailing comma": b'{\n"a": 1,\n}',
    "half": b'{"a": 1',
    "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
    "a web page": b"<!DOCTYPE html>",
    "Latin 1": b'{"a": "\xff"}',
    "GGUF": b"GGUF\xff",
    "UTF-16": b"\xff\xfe{\0}\0",
    "a surrogate": b'{"a": "\\ud83d"}',
}


def test_what_is_no_config_is_refused(refused, snapshot, cases):
    for name, data in NO_CONFIGS.items():
        with cases(name):
            assert refused(data) == snapshot(name=name)


def test_a_number_of_too_many_digits_is_refused(refused, snapshot):
    for digits in (301, 5000):
        assert refused(b'{"a": -' + b"1" * digits + b"}") == snapshot(name=f"{digits}")
    assert documents.parse(b'{"a": ' + b"1" * 300 + b"}", "config.json").fields["a"] > 1e299
    # An index has no numbers that are computed with.
    message, hint = refused(b'{"a": ' + b"1" * 5000 + b"}", many=True)
    assert message.startswith("config.json holds a number that cannot be read: Exceeds the limit (4300 digits)")
    assert "1e" in hint


def test_strict_json_has_no_such_numbers_and_no_byte_order_mark(refused):
    for data, name in ((b'{"a": NaN}', "NaN"), (b'{"a": -Infinity}', "-Infinity")):
        assert refused(data, strict=True)[0] == f"config.json holds {name}, which is not JSON."
    assert refused(b"\xef\xbb\xbf{}", strict=True)[0].startswith("config.json is not JSON: Unexpected UTF-8 BOM")


def test_deep_nesting_is_refused(refused, cases):
    for depth, (opening, closing) in product((10**2, 10**4, 10**6), ((b'{"a":', b"}"), (b"[", b"]"))):
        data = b'{"a":' + opening * depth + b"1"
        with cases(depth, opening):
            told = refused(data + closing * depth + b"}")
            assert told == (
                "config.json nests objects or lists deeper than 100 levels.",
                "No config does; check that this is the file you mean.",
            )
            unclosed = refused(data)
            assert depth <= 10**4 or unclosed == told


def test_large_missing_and_dangling_files_and_directories_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(Path("config.json"), b'{"a": "' + b"x" * 100 + b'"}')
    Path("folder").mkdir()
    Path("link.json").symlink_to("gone.json")
    for asked, told in {
        (path, 50): (
            "config.json has more than 50 bytes, which no config has.",
            "Check that this is the file you mean.",
        ),
        (Path("none.json"),): ("none.json does not exist.", f"Check the spelling; the current folder is {tmp_path}."),
        (Path("folder"),): (
            "folder is a directory, but a file is expected.",
            "Name a file inside it, or the model folder itself.",
        ),
        (Path("link.json"),): (
            "link.json is a link to gone.json, which does not exist.",
            "Download or copy the file it points to.",
        ),
    }.items():
        assert refusal(documents.read, *asked, error=Unreadable) == told


def test_streams_of_bytes_and_of_text_are_read():
    assert read_stream(io.BytesIO(b'{"a": 1}'), "<stdin>").fields == {"a": 1}
    assert read_stream(io.StringIO('{"a": "\u00e9"}'), "<stdin>").fields == {"a": "\u00e9"}
    wrapped = io.TextIOWrapper(io.BytesIO('{"a": "\u00e9"}'.encode()), encoding="ascii")
    assert read_stream(wrapped, "<stdin>").fields == {"a": "\u00e9"}


def test_a_closed_stream_is_refused():
    told = ("<stdin> is closed.", "Pipe a config.json into the command.")
    assert refusal(read_stream, None, "<stdin>", error=Unreadable) == told
    closed = io.BytesIO()
    closed.close()
    message, _ = refusal(read_stream, closed, "<stdin>", error=Unreadable)
    assert message == "<stdin> cannot be read: I/O operation on closed file."


def test_more_keys_than_any_config_are_refused_where_it_is_one(refused, cases):
    for told, data in {
        "more than 131,072 keys": b"{" + b",".join(b'"%d":0' % number for number in range(2**17 + 1)) + b"}",
        "a key of more than 4,096 characters": b'{"a": {"' + b"k" * 4097 + b'": 1}}',
        "more than 100 keys that are given more than once": b"{"
        + b",".join(b'"%d":0,"%d":1' % (number, number) for number in range(101))
        + b"}",
    }.items():
        with cases(told):
            assert refused(data) == (
                f"config.json holds {told}, which no config has.",
                "Check that this is the file you mean.",
            )
            assert documents.parse(data, "an index", many=True).fields
