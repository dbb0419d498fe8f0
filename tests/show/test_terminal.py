"""The report as people read it: in a pipe, on 80 columns, without colour."""

import io
import json
import re
from itertools import product
from pathlib import Path

from clockhands.auditing import audit
from clockhands.auditing._audits import judged
from clockhands.auditing.findings import Finding
from clockhands.configs.resolved import Fact, LayerEncoding, Resolved
from clockhands.configs.targets import Opened
from clockhands.encodings.presets import names
from clockhands.show.findings import evidence_to_show
from clockhands.show.sarif import annotations_of, sarif_of
from clockhands.show.terminal import print_audit

REPORTS = Path(__file__).parent / "reports"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
C = "config.json:"


AUDITED = json.loads((REPORTS / "audits.json").read_text(encoding="utf-8"))


def rates(base, pairs, factor):
    return tuple(base ** (-pair / pairs) / factor for pair in range(pairs))


def audited(name):
    """An audit of what a file of data says was read: the reports are not those of the readers' newest findings."""
    told = AUDITED[name]
    codes = tuple(
        LayerEncoding(**code | ({"rates": rates(*code["rates"])} if "rates" in code else {})) for code in told["codes"]
    )
    facts = tuple(Fact(*fact) for fact in told["facts"])
    return judged(Opened(*told["opened"]), Resolved(*told["resolved"], codes, facts, told["places"]))


def printed(audit, width=80, *, verbose=True):
    stream = io.StringIO()
    print_audit(audit, stream, width, verbose=verbose)
    return stream.getvalue()


def test_the_report_is_the_frozen_one(cases):
    for name in AUDITED:
        with cases(name):
            assert printed(audited(name), verbose=False) == (REPORTS / f"{name}.txt").read_text(encoding="utf-8")
            assert printed(audited(name)) == (REPORTS / f"{name}-verbose.txt").read_text(encoding="utf-8")
    assert {path.stem.removesuffix("-verbose") for path in REPORTS.glob("*.txt")} == set(AUDITED), (
        "nothing is left over"
    )


def test_a_long_name_of_a_part_has_a_line_of_its_own():
    """It does not run into what is said of it, and leaves that half of the width."""
    code = LayerEncoding(
        "vision", "0-6", "rotary", rates=rates(10000.0, 8, 1.0), component="detector vision backbone of frames"
    )
    told = judged(Opened("model", "config"), Resolved("llama", 4096, 4096, (code,), ()))
    lines = printed(told, verbose=False).splitlines()
    at = lines.index("  detector vision backbone of frames layers 0-6")
    assert lines[at + 1].startswith(" " * 40 + "RoPE")


def test_no_line_is_longer_than_it_must_be_and_no_key_is_broken(cases):
    for name, width in product(AUDITED, (40, 60, 80, 120)):
        audit = audited(name)
        text = printed(audit, width)
        for line in text.splitlines():
            with cases(name, width, line):
                assert line == line.rstrip()
                # Only a word that is too long by itself may pass the edge: it stands alone on its line.
                assert len(line) <= width or len(line.split()) <= 3
        for key in {place for code in audit.layers for place in code.source.values() if place.startswith((C, GGUF))}:
            for word in key.replace(",", "").split():
                if ":" in word and "rope_scaling" not in word:  # keys of one block are told together
                    with cases(name, width, word):
                        assert word.replace(f"{GGUF}:", "gguf:") in text


def test_every_preset_has_a_report(draw, cases):
    """A sample of them, and those whose codes have a way of their own to be told."""
    special = "bloom t5 edm2 fire kimi-k2.5-time qwen2-vl"
    for name in {*draw(names(), 20), *FIRST, *special.split()}:
        with cases(name):
            found = audit(name)
            assert " ".join(printed(found).split()).startswith(f"{name} {found.verdict}")


NEW = {"rope_type": "default", "rope_theta": 1e6}
BLAMED = [
    ({"rope_theta": "500000"}, "text-number", "", "Write 500,000, without the quotes."),
    ({"rope_parameters": NEW}, "new-shape-only", "The config is correct, but some runtimes misread it.",
     "Write the same values in the old format as well, under rope_theta."),
    ({"rope_theta": 5e5, "rope_parameters": NEW}, "conflicting-shapes", "The file can be read in two ways.",
     "If the model was trained with the values of rope_parameters.rope_theta"),
]  # fmt: skip


def test_a_finding_says_whom_it_blames_and_what_mends_it(cases):
    whole = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 4096}
    for config, code, blamed, edit in BLAMED:
        with cases(code):
            found = audit("-", stdin=io.BytesIO(json.dumps(whole | config).encode()))
            (finding,) = found.warnings
            assert finding.code == code
            words = " ".join(printed(found).split())
            assert f"{finding.message} {blamed}".rstrip() in words
            assert f"fix: {edit}" in words
            for text in (annotations_of([found]), [json.dumps(sarif_of([found], []))]):
                (line,) = [line for line in text if code in line]
                assert blamed in line
                assert edit in line


LLAMA3 = {
    "model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 64,
    "max_position_embeddings": 131072, "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
}  # fmt: skip


def test_only_a_file_with_a_long_name_gets_a_short_one(tmp_path):
    # The rows of a tower are computed: their source begins with a bracket.
    tower = {"model_type": "mllama", "vision_config": {"model_type": "mllama_vision_model", "image_size": 560}}
    for change in ({}, {"rope_theta": None}, tower):
        for name, short in (("a-long-name1.json", ""), ("a-model-with-a-long-name.json", "json")):
            path = tmp_path / name
            path.write_text(json.dumps(LLAMA3 | change), encoding="utf-8")
            rows = [line.strip() for line in printed(audit(path)).splitlines() if line.startswith("  sources")]
            assert rows == ([f"sources      {short}: is {name}"] if short else [])


def test_rates_that_are_the_same_at_every_length_are_not_said_to_hold_at_one(cases):
    for kind, asked, row in (
        ("llama3", None, []),
        ("llama3", 20000, ["20,000"]),
        ("dynamic", None, []),
        ("dynamic", 20000, ["20,000, for which the frequencies are computed"]),
    ):
        config = LLAMA3 | {"rope_scaling": LLAMA3["rope_scaling"] | {"rope_type": kind}}
        report = printed(audit("-", length=asked, stdin=io.BytesIO(json.dumps(config).encode())))
        with cases(kind, asked):
            assert [line[15:] for line in report.splitlines() if line.startswith("  length ")] == row


def test_what_the_caller_sets_is_not_blamed_on_the_file():
    found = audit("-", stdin=io.BytesIO(b'{"model_type": "llama"}'), overrides={"rope_theta": "500000"})
    assert "text-number" in [finding.code for finding in found.warnings]
    assert "The config is correct" not in printed(found)


def test_evidence_that_the_message_has_said_is_not_said_again():
    evidence = {f"{C}a": 1, "b": 2, "c": 3, "d": "words", "e": True}
    finding = Finding("x", "note", "There are 3.", "Do.", evidence)
    assert list(evidence_to_show(finding)) == [(f"{C}a", "1"), ("b", "2")]


def test_what_a_file_holds_cannot_move_the_cursor_or_pass_for_markup():
    code = LayerEncoding(
        "text", "0", "rotary\x1b[2J", layout="[red]halves", source={"layout": "a.json:k\nerror forged"}
    )
    fact = Fact("unknown-model-type", {"a.json:model_type": "x\x1b]0;title\x07\r"})
    text = printed(judged(Opened("evil\x1b[1m", "config"), Resolved("m\u202e", 1, 1, (code,), (fact,))))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert r"evil\x1b[1m" in text
    assert "[red]halves" in text
    assert not re.search(r"^error", text, re.MULTILINE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    piped, coloured, plain = io.StringIO(), Terminal(), Terminal()
    print_audit(audit("vaswani2017:width=4"), piped)
    print_audit(audit("vaswani2017:width=4"), coloured)
    monkeypatch.setenv("NO_COLOR", "1")
    print_audit(audit("vaswani2017:width=4"), plain)
    assert "\x1b[1;32m" in coloured.getvalue(), "the verdict is green"
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain.getvalue()), "no hue"
    words = [re.sub(r"\x1b\[[0-9;]*m", "", each.getvalue()) for each in (coloured, plain)]
    assert [*words, piped.getvalue()] == [piped.getvalue()] * 3


FIRST = {
    "vaswani2017": "interleaved: sin, cos, sin, ...",
    "vaswani2017:order=cos-sin": "interleaved: cos, sin, cos, ...",
    "ddpm": "half-split: all sines, all cosines",
    "dit": "half-split: all cosines, all sines",
    "funnel-pi": "half-split: all cosines, all cosines",
    "funnel-phi": "half-split: all sines, all sines",
    "funnel-omega": "half-split: all sines with a minus, all cosines",
}


def test_which_of_sine_and_cosine_comes_first(cases):
    for target, layout in FIRST.items():
        with cases(target):
            assert f"  layout       {layout}" in printed(audit(target))


def test_what_was_not_read_is_told_where_neither_type_nor_context_is_known(tmp_path):
    params = {
        "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
        "vocab_size": 32768, "rope_theta": 1e6,
    }  # fmt: skip
    file = tmp_path / "params.json"
    shown = []
    for more in ({}, {"rope_style": {"kind": 2}}):
        file.write_text(json.dumps(params | more), encoding="utf-8")
        stream = io.StringIO()
        print_audit(audit(file), file=stream, width=80, verbose=True)
        shown.append("  not read     params.json:rope_style\n" in stream.getvalue())
    assert shown == [False, True]


def test_a_number_that_follows_from_two_keys_names_both(tmp_path, cases):
    config = {"model_type": "deepseek_v3", "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for overrides, source in (
        ({"qk_nope_head_dim": 64}, "--set:qk_nope_head_dim + config.json:qk_rope_head_dim"),
        ({"qk_rope_head_dim": 32}, "config.json:qk_nope_head_dim + --set:qk_rope_head_dim"),
    ):
        with cases(source):
            assert f"per head from {source} base" in " ".join(printed(audit(tmp_path, overrides=overrides)).split())


def test_what_runtimes_are_not_compared_on_is_said_beside_their_number(tmp_path):
    scaling = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "rope_theta": 1e6}
    config = {"model_type": "ministral3", "rope_parameters": scaling | {"llama_4_scaling_beta": 0.1}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = " ".join(printed(audit(tmp_path), verbose=False).split())
    assert "4 runtimes whose code was read compute these values (scores not compared)" in text


def test_a_long_file_name_is_short_behind_a_sign_too():
    """`--set:hidden_size / config` is no name of a file."""
    config = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2}
    long = Opened("x", "config", config=config, config_name="a-config-of-a-very-long-name.json")
    source = {"width": "--set:hidden_size / a-config-of-a-very-long-name.json:num_attention_heads"}
    code = LayerEncoding("text", "0", "rotary", width=64, rotated=64, source=source)
    lines = printed(judged(long, Resolved("llama", 8, 8, (code,), (), {})))
    assert "--set:hidden_size / json:num_attention_heads" in " ".join(lines.split())
