"""What an audit says that each code can and cannot do: the same as its findings say, and as `ch.properties` says."""

import io

import clockhands as ch
from auditing.model_files import audit_of as audited
from clockhands.auditing.main_properties import MainProperties, main_properties
from clockhands.configs.resolved import LayerEncoding, Resolved
from clockhands.measures import QUESTIONS
from clockhands.show.terminal import SHORT, print_audit

LLAMA = {
    "model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "num_hidden_layers": 30,
    "max_position_embeddings": 8192, "rope_theta": 100000.0,
}  # fmt: skip
GEMMA3 = LLAMA | {
    "model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 512,
    "rope_local_base_freq": 10000.0,
}  # fmt: skip


def printed(audit, width=80):
    stream = io.StringIO()
    print_audit(audit, stream, width, verbose=True)
    return stream.getvalue()


def test_the_section_says_what_the_findings_say():
    audit = audited(LLAMA)
    (one,) = audit.properties
    assert (one.part, one.layers, one.length) == ("text", "0-29", 8192)
    assert one.properties["turning"].numbers["never_completing"] == 12
    assert one.properties["base_bound"].numbers["first_failing_distance"] == 3616
    messages = {finding.code: finding.message for finding in audit.findings}
    assert messages["never-turning"].startswith("12 of 32 pairs never complete a rotation within 8,192 positions")
    assert "3,616" in messages["base-below-bound"]


def test_it_is_what_properties_says_of_the_spec():
    (one,) = audited(LLAMA).properties
    whole = dict(ch.properties(ch.Rotary(head_width=64, base=100_000.0), 8192))
    for name in one.properties.keys() - {"base_bound", "precision"}:
        assert one.properties[name] == whole[name]
    # Of angles only the last position is looked at.
    angles, all_of_them = one.properties["precision"].numbers, whole["precision"].numbers
    assert angles["position"] == 8191
    for dtype in ("float32", "bfloat16"):
        place = all_of_them["positions"].index(8191)
        assert angles[f"{dtype}_throughout"] == all_of_them[f"{dtype}_throughout"][place] > 0
    # The audit looks for no other bases.
    assert one.properties["base_bound"].brief == whole["base_bound"].brief
    assert one.properties["base_bound"].numbers["searched"] is False
    assert whole["base_bound"].numbers["searched"] is True


def test_layers_that_see_a_window_are_told_over_it():
    found = {one.layers: one.length for one in audited(GEMMA3).properties}
    assert found == {"0-4": 512, "5": 8192}
    text = printed(audited(GEMMA3))
    assert "  layers 0-4, over 512 tokens\n" in text
    assert "  layer 5, over 8,192 tokens\n" in text


def test_layers_that_are_alike_are_told_once():
    code = LayerEncoding("encoder", "0-5", "rotary", ch.Rotary(head_width=64), usable_length=512)
    both = Resolved(None, 512, 512, (code, LayerEncoding("decoder", "0-5", "rotary", code.spec)), ())
    twice = main_properties(both.with_lengths())
    assert [one.part for one in twice] == ["encoder", "decoder"]
    audit = ch.audit("vaswani2017")
    object.__setattr__(audit, "properties", twice)
    assert "encoder, layers 0-5; decoder, layers 0-5, over 512 tokens" in printed(audit)


def test_what_is_not_known_is_left_out(cases):
    for code in (
        LayerEncoding("text", "0-3", "none"),
        LayerEncoding("text", "0-3", None),
        LayerEncoding("text", "0-3", "rotary", width=64, rotated=64),
        LayerEncoding("text", "input", "learned", ch.Learned(8, 16), rows=16, offset=0),
    ):
        with cases(code.kind):
            assert main_properties(Resolved(None, 512, 512, (code,), ())) == ()


def test_biases_have_their_own_questions():
    (one,) = ch.audit("alibi").properties
    assert {"reach", "told_apart"} <= one.properties.keys()
    assert one.length == 2048
    assert isinstance(one, MainProperties)


def test_every_property_has_a_short_name_that_fits_a_column():
    assert SHORT.keys() == QUESTIONS.keys()
    assert max(map(len, SHORT.values())) <= 27
    assert len(set(SHORT.values())) == len(SHORT)


def test_the_section_fits_its_columns(cases):
    audit = audited(GEMMA3)
    for width in (40, 60, 80):
        section = printed(audit, width).partition("properties (all")[2].partition("\n\n")[0]
        with cases(width):
            assert all(len(line) <= width for line in section.splitlines())
            assert "incomplete rotations" in section
