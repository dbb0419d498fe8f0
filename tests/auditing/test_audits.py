"""From what was resolved to findings: hand-made codes, so that each case is one that the test names."""

import json
import math

import pytest

import clockhands as ch
from clockhands.auditing import CODES
from clockhands.auditing._audits import LAYER_FIELDS, judged
from clockhands.configs.resolved import Fact, LayerEncoding, Resolved
from clockhands.configs.targets import Opened
from clockhands.errors import ClockhandsError

RATES = tuple(100_000.0 ** (-pair / 32) for pair in range(32))
ROTARY = LayerEncoding(
    "text", "0-29", "rotary", layout="halves", width=64, rotated=64, base=100_000.0, rates=RATES, attention_factor=1.0,
    source={"base": "config.json:rope_theta", "layout": "architecture of llama"},
)  # fmt: skip
PLACES = {"context": "config.json:max_position_embeddings", "length": "asked for"}


def audited(*codes, context=8192, length=None, facts=()):
    resolved = Resolved("llama", context, length or context, codes, facts, PLACES, asked=length)
    return judged(Opened("config.json", "config"), resolved)


def found(audit, code):
    return [finding for finding in audit.findings if finding.code == code]


def replaced(code, **fields):
    return LayerEncoding(**(vars(code) | fields))


def test_smollm2_has_twelve_pairs_that_never_complete_a_turn():
    (finding,) = found(audited(ROTARY), "never-turning")
    assert finding.severity == "note"
    assert finding.layers == "0-29"
    assert finding.message.startswith("12 of 32 pairs never complete a rotation within 8,192 positions")
    assert finding.evidence == {
        "pairs that never complete a turn": 12,
        "pairs": 32,
        "length": 8192,
        "longest wavelength": pytest.approx(2 * math.pi / RATES[-1], rel=1e-15),
        "config.json:rope_theta": 100_000.0,
        "config.json:max_position_embeddings": 8192,
    }


def test_a_pair_that_completes_its_turn_is_not_counted():
    for length, slow in ((6, 1), (7, 0)):
        audit = audited(replaced(ROTARY, rates=(1.0,)), context=length)
        assert len(found(audit, "never-turning")) == slow


def test_a_turn_completed_at_the_last_position_is_complete_whatever_the_rounding():
    assert not found(audited(replaced(ROTARY, rates=(2 * math.pi / 4096,)), context=4096), "never-turning")


def test_pairs_stopped_on_purpose_are_told_apart():
    (finding,) = found(audited(replaced(ROTARY, rates=(1.0, 1e-5, 0.0, 0.0))), "never-turning")
    assert finding.evidence["pairs that never complete a turn"] == 1
    assert finding.evidence["pairs that stand still on purpose"] == 2
    assert not found(audited(replaced(ROTARY, rates=(1.0, 0.0))), "never-turning")


def test_turns_of_an_extended_model_are_counted_at_the_context_it_is_served_at():
    place = "config.json:rope_scaling.original_max_position_embeddings"
    scaled = replaced(
        ROTARY,
        scaling={"type": "yarn", "factor": 4.0, "original": 2048},
        source={"scaling": f"config.json:rope_scaling.type, {place}"},
    )
    (finding,) = found(audited(scaled), "never-turning")
    assert finding.evidence["length"] == finding.evidence["config.json:max_position_embeddings"] == 8192
    # Without a context the original length is the only one that is known.
    (finding,) = found(audited(scaled, context=None), "never-turning")
    assert finding.evidence["length"] == finding.evidence[place] == 2048


def test_a_table_is_judged_by_its_own_rows_and_other_parts_not_by_the_text_s_context():
    table = LayerEncoding("encoder", "input", "sinusoidal", rates=(1.0, 0.01), rows=1500)
    assert not found(audited(table, context=448), "never-turning")
    assert not found(audited(LayerEncoding("vision", "0-3", "rotary", rates=(1.0, 1e-9))), "never-turning")


def test_parts_with_the_same_layers_are_told_apart():
    parts = [replaced(ROTARY, part=part, layers="input", kind="sinusoidal") for part in ("encoder", "decoder")]
    first, second = found(audited(*parts), "never-turning")
    assert first.message.startswith("12 of 32 pairs of the encoder never complete a rotation")
    assert second.message.startswith("12 of 32 pairs of the decoder never complete a rotation")
    assert (first.evidence["part"], second.evidence["part"]) == ("encoder", "decoder")


def test_a_learned_table_shorter_than_the_context_is_an_error():
    table = LayerEncoding("text", "input", "learned", rows=514, offset=2, source={"rows": "model.safetensors:wpe"})
    assert not audited(table, context=512).errors
    (finding,) = audited(table, context=513).errors
    assert (finding.code, finding.severity) == ("short-table", "error")
    assert finding.evidence["model.safetensors:wpe"] == 514
    assert finding.evidence["config.json:max_position_embeddings"] == 513
    assert not audited(replaced(table, part="vision"), context=513).errors


def test_a_length_past_the_context_is_a_warning():
    (finding,) = found(audited(ROTARY, length=8193), "beyond-context")
    assert (finding.severity, finding.evidence["length"], finding.evidence["context"]) == ("warning", 8193, 8192)
    assert not found(audited(ROTARY, length=8192), "beyond-context")
    table = LayerEncoding("text", "input", "learned", rows=512)
    (finding,) = found(audited(table, context=512, length=600), "beyond-context")
    assert "The table has no rows for later positions" in finding.message


FACTS = (
    Fact("unknown-model-type", {"config.json:model_type": "foo"}),
    Fact("unknown-key", {"config.json:rope_scaling.factr": 8}),
    Fact("impossible-value", {"config.json:rope_theta": 0}, "0-3"),
)


def test_the_grave_findings_come_first_and_the_verdict_names_them():
    audit = audited(ROTARY, facts=FACTS)
    assert [finding.severity for finding in audit.findings] == ["error", "warning", "note", "note", "note"]
    told = "2 problems: a value in the file is impossible; a RoPE key is not known to some or all runtimes."
    assert audit.verdict == told
    assert [finding.code for finding in audit.errors] == ["impossible-value"]
    assert [finding.code for finding in audit.warnings] == ["unknown-key"]
    assert audit.errors[0].layers == "0-3"


NOT_COMPUTED = "No problem was found, but the RoPE frequencies cannot be computed"
LACKS_HEADS = Fact("missing-value", {"missing": "n_head, n_embd", "needed for": "the width of a head"})
# The library fails without the value, and the frequencies follow from others.
LACKS_WIDTH = Fact("missing-value", {"missing": "head_dim", "needed for": "the scaling", "without it": "it fails"})


def test_the_verdict_in_a_sentence(cases):
    unrated = replaced(ROTARY, rates=None)
    lacks = "n_head and n_embd are not in the file."
    ignored = "1 problem: a RoPE key is not known to some or all runtimes."
    unknown = "No position encoding was recognised."
    for codes, facts, verdict in (
        ((unrated,), FACTS[:1], f'{NOT_COMPUTED} from the files; the model type "foo" is not known.'),
        ((ROTARY,), FACTS[:1], 'No problem was found, but the model type "foo" is not known.'),
        ((unrated,), (LACKS_HEADS,), f"{NOT_COMPUTED}: {lacks}"),
        ((unrated, ROTARY), (LACKS_WIDTH,), f"{NOT_COMPUTED} from the files."),
        ((replaced(ROTARY, rates=None, part="vision"), ROTARY), (), "The position settings look correct."),
        (
            (ROTARY, LayerEncoding("vision", None, None)),
            (),
            "No problem was found, but the position encoding of the vision part is not known.",
        ),
        ((unrated,), FACTS[1:2], ignored),
        ((ROTARY,), FACTS[1:2], ignored),
        ((LayerEncoding("other", None, None),), FACTS[:1], unknown),
        ((), (), unknown),
    ):
        with cases(verdict):
            assert audited(*codes, facts=facts).verdict == verdict


def test_findings_can_be_left_out():
    audit = audited(ROTARY, facts=FACTS).without(["impossible-value", "never-turning", "base-below-bound"])
    assert [finding.code for finding in audit.findings] == ["unknown-key", "unknown-model-type"]
    assert not audit.errors


def test_an_audit_is_one_target_of_the_schema():
    told = audited(ROTARY, facts=FACTS).to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert list(told)[:6] == ["target", "model_type", "context", "length", "layers", "findings"]
    assert told["source"] == PLACES
    (layer,) = told["layers"]
    assert tuple(layer) == LAYER_FIELDS
    assert layer["rates"] == list(RATES)
    assert layer["scaling"] is layer["rows"] is layer["offset"] is layer["window"] is None
    for finding in told["findings"]:
        assert list(finding) == ["code", "severity", "message", "evidence", "hint", "layers", "blames", "edit"]
        assert finding["code"] in CODES


def test_the_schema_of_a_position_code_is_the_code_without_its_specs():
    assert set(LAYER_FIELDS) == (set(vars(ROTARY)) | {"order", "sections"}) - {
        "spec",
        "rotation",
        "layer_kind",
        "either",
    }


def test_cosine_first_is_told_from_sine_first():
    for preset, order in (("dit", "cos-sin"), ("ctrl", "sin-cos")):
        (layer,) = ch.audit(preset).to_dict()["layers"]
        assert (layer["layout"], layer["order"]) == ("halves", order)


def test_a_length_that_is_no_length(cases):
    for length in (0, -5, 2.5, "many", True):
        with cases(length), pytest.raises(ClockhandsError, match="`length` must be"):
            ch.audit("vaswani2017", length)
