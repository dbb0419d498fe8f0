"""JSON as the field writes it is read; what is no config is refused in one sentence."""

import io
import math
from pathlib import Path

import pytest

from clockhands.errors import Unreadable
from clockhands.sources import documents
from clockhands.sources.yaml_documents import read_stream
from written_files import refusal, written


def refused(data: bytes, where: str = "config.json", **named):
    return refusal(documents.parse, data, where, error=Unreadable, **named)


def test_an_object_is_read():
    document = documents.parse(b'{"a": {"b": [1, 2.5, "x", null, true]}}', "config.json")
    assert document.fields == {"a": {"b": [1, 2.5, "x", None, True]}}
    assert document.duplicates == ()


def test_infinity_nan_and_a_byte_order_mark_are_read():
    fields = documents.parse(b'\xef\xbb\xbf{"a": Infinity, "b": -Infinity, "c": NaN}', "config.json").fields
    assert fields["a"] == math.inf
    assert fields["b"] == -math.inf
    assert math.isnan(fields["c"])


def test_keys_given_twice_are_recorded_and_the_last_counts():
    document = documents.parse(b'{"a": 1, "in": {"b": 1, "b": 2}, "a": 3, "a": 4}', "config.json")
    assert document.fields == {"a": 4, "in": {"b": 2}}
    assert sorted(document.duplicates) == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", "config.json is empty, but a JSON object is expected.", "written or piped completely"),
        (b" \n", "config.json is empty, but a JSON object is expected.", "written or piped completely"),
        (b"[1]", "config.json holds a list at the top level, but a config must be a JSON object.", "begins with `{`"),
        (b'"x"', "config.json holds a string at the top level, but a config must be a JSON object.", "begins with `{`"),
        (b"12", "config.json holds 12 at the top level, but a config must be a JSON object.", "begins with `{`"),
        (b"null", "config.json holds null at the top level, but a config must be a JSON object.", "begins with `{`"),
        (b"true", "config.json holds true at the top level, but a config must be a JSON object.", "begins with `{`"),
        (
            b'{\n"a": 1,\n}',
            "config.json is not JSON: Expecting property name enclosed in double quotes at line 3, column 1.",
            "comments and trailing commas are not JSON",
        ),
        (b'{"a": 1', "config.json is not JSON: Expecting ',' delimiter at line 1, column 8.", "Correct the file there"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
            "config.json is not JSON: Expecting value at line 1, column 1.",
            "git lfs pull",
        ),
        (b"<!DOCTYPE html>", "config.json is not JSON: Expecting value at line 1, column 1.", "download the raw file"),
        (
            b'{"a": "\xff"}',
            "config.json is not UTF-8 text: byte 7 is 0xff, and it starts like JSON text.",
            "save this file as UTF-8",
        ),
        (
            b"GGUF\xff",
            "config.json is not UTF-8 text: byte 4 is 0xff, and it starts like a GGUF file.",
            "Name a JSON file",
        ),
        (b"\xff\xfe{\0}\0", "config.json is UTF-16 text, but JSON must be UTF-8.", "as UTF-8"),
        (
            b'{"a": "\\ud83d"}',
            "config.json holds an unpaired surrogate escape (\\ud800 to \\udfff), which is not text.",
            "both halves",
        ),
    ],
)
def test_what_is_no_config_is_refused(data, message, hint):
    said, way_out = refused(data)
    assert said == message
    assert hint in way_out


def test_a_pair_of_surrogates_is_text():
    assert documents.parse(b'{"a": "\\ud83d\\ude00"}', "config.json").fields == {"a": "\N{GRINNING FACE}"}


def test_a_number_of_too_many_digits_is_refused():
    for digits in (301, 5000):
        message, hint = refused(b'{"a": -' + b"1" * digits + b"}")
        assert message == f"config.json holds a whole number of {digits:,} digits, which no config has."
        assert hint == "Check that this is the file you mean."
    assert documents.parse(b'{"a": ' + b"1" * 300 + b"}", "config.json").fields["a"] > 1e299
    # An index has no numbers that are computed with.
    message, hint = refused(b'{"a": ' + b"1" * 5000 + b"}", many=True)
    assert message.startswith("config.json holds a number that cannot be read: Exceeds the limit (4300 digits)")
    assert "1e" in hint


@pytest.mark.parametrize(("data", "name"), [(b'{"a": NaN}', "NaN"), (b'{"a": -Infinity}', "-Infinity")])
def test_strict_json_has_no_such_numbers(data, name):
    message, _ = refused(data, strict=True)
    assert message == f"config.json holds {name}, which is not JSON."


def test_strict_json_has_no_byte_order_mark():
    message, _ = refused(b"\xef\xbb\xbf{}", strict=True)
    assert message.startswith("config.json is not JSON: Unexpected UTF-8 BOM")


@pytest.mark.parametrize("depth", [10**2, 10**4, 10**6])
@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting_is_refused(depth, opening, closing, closed):
    data = b'{"a":' + opening * depth + b"1" + (closing * depth + b"}" if closed else b"")
    message, hint = refused(data)
    if closed or depth > 10**4:
        assert message == "config.json nests objects or lists deeper than 100 levels."
        assert hint == "No config does; check that this is the file you mean."


def test_what_is_just_not_too_deep_is_read():
    data = b'{"a":' * 100 + b"1" + b"}" * 100
    assert documents.parse(data, "config.json").fields["a"]


def test_a_large_file_is_refused_without_being_read_whole(tmp_path):
    path = written(tmp_path / "config.json", b'{"a": "' + b"x" * 100 + b'"}')
    message, hint = refusal(documents.read, path, 50, error=Unreadable)
    assert message == f"{path} has more than 50 bytes, which no config has."
    assert hint == "Check that this is the file you mean."


def test_a_missing_file_a_directory_and_a_dangling_link(tmp_path):
    message, hint = refusal(documents.read, tmp_path / "none.json", error=Unreadable)
    assert message == f"{tmp_path / 'none.json'} does not exist."
    assert hint == f"Check the spelling; the current folder is {Path.cwd()}."
    message, hint = refusal(documents.read, tmp_path, error=Unreadable)
    assert message == f"{tmp_path} is a directory, but a file is expected."
    assert hint == "Name a file inside it, or the model folder itself."
    (tmp_path / "link.json").symlink_to("gone.json")
    message, hint = refusal(documents.read, tmp_path / "link.json", error=Unreadable)
    assert message == f"{tmp_path / 'link.json'} is a link to gone.json, which does not exist."
    assert hint == "Download or copy the file it points to."


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (PermissionError(13, "Permission denied"), "cannot be read: Permission denied.", "read permission"),
        (OSError(5, "Input/output error"), "cannot be read: Input/output error.", "Check the path and the disk."),
    ],
)
def test_what_the_system_refuses_is_said(tmp_path, monkeypatch, error, message, hint):
    path = written(tmp_path / "config.json", b"{}")

    def fail(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", fail)
        said, way_out = refusal(documents.read, path, error=Unreadable)
    assert said == f"{path} {message}"
    assert hint in way_out


def test_streams_of_bytes_and_of_text_are_read():
    assert read_stream(io.BytesIO(b'{"a": 1}'), "<stdin>").fields == {"a": 1}
    assert read_stream(io.StringIO('{"a": "\u00e9"}'), "<stdin>").fields == {"a": "\u00e9"}
    wrapped = io.TextIOWrapper(io.BytesIO('{"a": "\u00e9"}'.encode()), encoding="ascii")
    assert read_stream(wrapped, "<stdin>").fields == {"a": "\u00e9"}


def test_a_closed_stream_is_refused():
    message, hint = refusal(read_stream, None, "<stdin>", error=Unreadable)
    assert (message, hint) == ("<stdin> is closed.", "Pipe a config.json into the command.")
    closed = io.BytesIO()
    closed.close()
    message, _ = refusal(read_stream, closed, "<stdin>", error=Unreadable)
    assert message == "<stdin> cannot be read: I/O operation on closed file."


def test_the_published_configs_are_read(published):
    configs = sorted((published / "configs").glob("*.json"))
    assert len(configs) > 200
    for path in configs:
        document = documents.read(path)
        assert document.fields
        assert document.duplicates == ()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"{" + b",".join(b'"%d":0' % number for number in range(2**17 + 1)) + b"}", "more than 131,072 keys"),
        (b'{"a": {"' + b"k" * 4097 + b'": 1}}', "a key of more than 4,096 characters"),
        (
            b"{" + b",".join(b'"%d":0,"%d":1' % (number, number) for number in range(101)) + b"}",
            "more than 100 keys that are given more than once",
        ),
    ],
)
def test_more_keys_than_any_config_are_refused_where_it_is_one(data, told):
    assert refused(data) == (
        f"config.json holds {told}, which no config has.",
        "Check that this is the file you mean.",
    )
    assert documents.parse(data, "an index", many=True).fields
