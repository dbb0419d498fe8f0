"""Each figure of a report is computed at one length, which stands beside it: in text, JSON and on the page."""

import html
import io
import re

import pytest

from auditing.model_files import audit_of
from auditing.published_fields import LLAMA3
from clockhands.auditing import audit
from clockhands.auditing._audits import judged
from clockhands.configs.resolved import LayerEncoding, Resolved
from clockhands.configs.targets import Opened
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Proportional
from clockhands.runtimes.telling import release
from clockhands.show.report import report
from clockhands.show.terminal import print_audit

SMALL = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 6}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
LONG = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [8.0] * 64}


def config(kind, context, **more):
    return SMALL | {"model_type": kind, "max_position_embeddings": context} | more


CONFIGS = {
    "llama": config("llama", 4096, rope_theta=1e4),
    "llama3": config("llama", 131072, rope_theta=5e5, rope_scaling=LLAMA3),
    "yarn": config("qwen2", 32768, rope_theta=1e6, rope_scaling=YARN),
    "linear": config("llama", 16384, rope_theta=1e4, rope_scaling={"type": "linear", "factor": 4.0}),
    "dynamic": config("llama", 4096, rope_theta=1e4, rope_scaling={"type": "dynamic", "factor": 2.0}),
    "longrope": config("phi3", 32768, rope_theta=1e4, original_max_position_embeddings=4096, rope_scaling=LONG),
    "a window": config("mistral", 32768, rope_theta=1e4, sliding_window=4096),
    "mRoPE": config("qwen2_vl", 32768, rope_theta=1e6, rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}),
}  # fmt: skip
PRESETS = ("llama3.1", "roformer", "vaswani2017")

# Counts of pairs that do not complete a rotation, each with its length, in every wording of a report.
ROTATIONS = (
    re.compile(r"(?P<count>\w+) of (?P<pairs>\d+) pairs never completes? a (?:rotation|turn) within"
               r"(?: the window of)? (?P<length>[\d,]+) (?:positions|tokens)"),
    re.compile(r"over (?P<length>[\d,]+) tokens(?:(?! over ).)*? incomplete rotations"
               r" (?P<count>\w+) of (?P<pairs>\d+) pairs"),
)  # fmt: skip
SCORES = (
    re.compile(r"over (?P<length>[\d,]+) tokens(?:(?! over ).)*? matching token wins no: fails at distance"
               r" (?P<count>[\d,]+)"),
    re.compile(r"low for the context length: at distance (?P<count>[\d,]+), within the (?P<length>[\d,]+) positions"),
)  # fmt: skip


def audited(target, length=None):
    if isinstance(target, str):
        return audit(target, length)
    return audit_of(target, length)


def printed(found, *, verbose=True):
    stream = io.StringIO()
    print_audit(found, stream, 80, verbose=verbose)
    return " ".join(stream.getvalue().split())


def seen(page):
    """What a page shows, without its scripts."""
    bare = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", bare)).split())


def answers(text, question):
    """Count and length of each answer to a question."""
    return {(found["count"], found["length"]) for each in question for found in each.finditer(text)}


@pytest.mark.parametrize("some", [5, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_report_answers_a_question_at_one_length(cases, draw, some):
    for name in draw([*CONFIGS, *PRESETS], some or 99):
        (paged,) = draw((None, 8192, 65536), 1)
        for length in (None, 8192, 65536):
            found = audited(CONFIGS.get(name, name), length)
            for text in (printed(found), *([seen(report([found]))] if length == paged else [])):
                rotations, scores = answers(text, ROTATIONS), answers(text, SCORES)
                with cases(name, length):
                    assert rotations or name == "vaswani2017"
                    assert len(rotations) <= 1, text
                    assert len(scores) <= 1, text


def test_pairs_that_stand_still_are_counted_alike_by_the_finding_and_the_property():
    code = Rotary(64, base=1e6, scaling=Proportional(0.5, 1.0))
    held = LayerEncoding("text", "0-3", "rotary", code, width=64, rotated=64, rates=code.rates, usable_length=2048)
    found = judged(Opened("config.json", "config"), Resolved("gemma4", 2048, 2048, (held,), ()))
    still = code.rates.count(0.0)
    assert still
    assert f"{still} of them because they do not rotate at all" in printed(found)
    slow = sum(rate * 2048 < 6.283185307179586 for rate in code.rates)
    for text in (printed(found), seen(report([found]))):
        assert answers(text, ROTATIONS) == {(str(slow), "2,048")}, text


def test_two_lengths_in_a_report_would_be_seen():
    text = "over 4,096 tokens small steps yes incomplete rotations 18 of 64 pairs"
    assert answers(text, ROTATIONS) == {("18", "4,096")}
    other = "4 of 64 pairs never complete a rotation within 32,768 positions"
    assert answers(f"{text} {other}", ROTATIONS) == {("18", "4,096"), ("4", "32,768")}


def test_the_length_of_a_code(cases):
    for name, asked, length in (
        ("llama", None, 4096),
        ("llama", 65536, 65536),
        ("llama3", None, 131072),  # what it serves, with the frequencies in use; not the length before the extension
        ("llama3", 8192, 8192),
        ("longrope", None, 32768),
        ("a window", None, 4096),
        ("a window", 65536, 4096),
        ("a window", 1024, 1024),
        ("llama3.1", None, 8192),  # a preset declares no context
        ("roformer", None, None),
    ):
        found = audited(CONFIGS.get(name, name), asked)
        told = found.to_dict()
        with cases(name, asked):
            assert told["layers"][0]["length"] == found.layers[0].length == length
            assert told["properties"][0]["length"] == (length or 2048)


def test_frequencies_that_depend_on_the_length_are_those_of_the_length():
    found = audited(CONFIGS["longrope"])
    (one,) = found.properties
    (code,) = found.layers
    assert "over 32,768 tokens, with the frequencies of that length" in printed(found)
    slow = sum(rate * 32768 < 6.283185307179586 for rate in code.rates_at(32768))
    assert one.properties["turning"].numbers["never_completing"] == slow
    assert slow != sum(rate * 32768 < 6.283185307179586 for rate in code.rates or ())


def test_runtimes_are_compared_at_the_length_that_was_asked_for():
    text = printed(audited(CONFIGS["llama3"], 16384))
    assert re.search(r"mean cosine -?[\d.]+ at 16,384", text)
    assert re.search(r"mean cosine -?[\d.]+ at 131,072", printed(audited(CONFIGS["llama3"])))


# Several axes


def test_sections_stand_in_text_json_and_page():
    found = audited(CONFIGS["mRoPE"])
    for text in (printed(found), printed(found, verbose=False), seen(report([found]))):
        assert "temporal 16, height 24, width 24 pairs, consecutive" in text
    layer = found.to_dict()["layers"][0]
    assert layer["sections"] == {
        "axes": ["temporal", "height", "width"], "pairs": [16, 24, 24], "order": "consecutive",
    }  # fmt: skip
    assert audited(CONFIGS["llama"]).to_dict()["layers"][0]["sections"] is None


def test_sections_in_turns_are_told_from_those_in_a_row():
    block = {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    text = {**SMALL, "model_type": "qwen3_vl_text", "head_dim": 128, "max_position_embeddings": 32768,
            "rope_theta": 5e6, "rope_scaling": block}  # fmt: skip
    found = audited({"model_type": "qwen3_vl", "text_config": text})
    assert found.layers[0].sections is not None
    assert found.layers[0].sections["order"] == "interleaved"
    assert "temporal 24, height 20, width 20 pairs, interleaved" in printed(found)


def test_several_axes_are_measured_as_text_meets_them():
    plain = config("qwen2", 32768, rope_theta=1e6)
    sections, one = audited(CONFIGS["mRoPE"]).properties[0], audited(plain).properties[0]
    assert sections.properties == one.properties
    assert "base_bound" in sections.properties
    assert sections.to_dict()["notes"] == ["all sections advancing together"]
    assert "over 32,768 tokens, all sections advancing together" in printed(audited(CONFIGS["mRoPE"]))


def test_runtimes_that_cannot_be_compared_are_named_with_the_reason():
    found = audited(CONFIGS["mRoPE"])
    unknown = [each for each in found.readings if each.verdict == "unknown" and each.reader != "no-scaling"]
    assert "llama.cpp" in {each.reader for each in unknown}
    for text in (printed(found), seen(report([found]))):
        for each in unknown:
            assert re.search(rf"not compared [^()]*{re.escape(release(each))}[^()]* \({each.because}\)", text), text
    assert "not compared (--verbose says why): vLLM 0.11.0, llama.cpp" in printed(found, verbose=False)
    # A pattern of ports is no runtime: that it leaves out no scaling where there is none is no news.
    assert "declares no scaling" not in printed(found)
