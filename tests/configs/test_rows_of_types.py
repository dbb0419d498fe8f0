"""Rows of the table of model types: those of people say why, and those read from classes are what the tool writes."""

import json
from pathlib import Path

import pytest

from clockhands.configs import model_types as known
from configs.expected import resolved

CONFIGS = Path(known.__file__).parent


def rows(file, key):
    return json.loads((CONFIGS / file).read_text(encoding="utf-8"))[key]


def test_a_row_by_a_person_says_why_and_no_other_does(cases):
    by_hand, read = rows("model_types.json", "types"), rows("types_of_classes.json", "types_of_classes")
    confirmed, causes = rows("confirmed_types.json", "confirmed_types"), rows("model_types.json", "causes")
    assert len(by_hand.keys() | read.keys() | confirmed.keys()) == len(by_hand) + len(read) + len(confirmed)
    for name, row in by_hand.items():
        with cases(name):
            assert row["why"] in causes
            assert bool(row.get("unseen")) == (row["why"] == "unseen")
    assert [
        name for name, row in (read | confirmed).items() if {"why", "unseen"} & row.keys() or "class" not in row
    ] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the classes; PyTorch warns once in a process, so the order would matter
@pytest.mark.usefixtures("library")
def test_a_class_confirms_each_field_of_the_rows_that_it_is_said_to_confirm(cases, draw):
    import confirmed_rows as tool

    held = tool.confirmed_rows()
    for name in draw(sorted(held), 8):
        with cases(name):
            assert tool.confirmed_row(name, held[name]) == (held[name], [])


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_a_class_contradicts_a_row_with_another_number_and_does_not_show_a_field_that_it_has_not():
    import confirmed_rows as tool

    row = tool.by_hand()["smollm3"]
    wrong = {**row, "defaults": {**row["defaults"], "still_period": 5}}
    _, differs = tool.confirmed_row("smollm3", wrong)
    assert any(each.startswith("differs: layers without rotation") for each in differs)
    more = {**row, "reads": {**row["reads"], "score_switch": ["attn_temperature_tuning"]}}
    assert tool.confirmed_row("smollm3", more)[1] == ["reads.score_switch"]


def test_remarks_are_about_types_whose_rows_were_read(cases):
    read = rows("types_of_classes.json", "types_of_classes") | rows("types_of_mlx_lm.json", "types_of_mlx_lm")
    remarks = rows("type_details.json", "remarks")
    named = [name for remark in remarks for name in remark["types"]]
    assert len(named) == len(set(named))
    for name in named:
        with cases(name):
            found = known.model_type(name)
            assert name in read
            assert found is not None
            assert found.remark in [remark["says"] for remark in remarks]


@pytest.mark.slow
def test_rows_read_from_classes_are_what_the_tool_writes(cases, draw, library):
    import model_types as tool

    read = rows("types_of_classes.json", "types_of_classes")
    assert known.table()["library_of_classes"] == f"transformers {library.__version__}"
    for name in draw(sorted(read), 12):
        with cases(name):
            reasons = []
            assert tool.row_of(name, reasons) == read[name], reasons


@pytest.mark.slow
def test_code_without_a_name_about_positions_is_that_of_types_without_positions(cases, draw, library):
    from absent_positions import position_names
    from class_sources import own_classes
    from clockhands.models.class_modules import position_modules
    from copied_types import built

    silent, speaking = ["segformer", "zamba", "sam_mask_decoder"], ["gptj", "bloom", "mpt", "swinv2", "vits", "xlm"]
    for name in (*silent, *speaking, *draw(sorted(known.table()["types_of_classes"]), 8)):
        try:
            config = library.CONFIG_MAPPING[name]()
            found = position_modules(name, config, built(config))
        except ValueError:  # a class that refuses the default config of its type, such as Granite 4's vision
            assert name not in silent + speaking
            continue
        of_type = known.model_type(name)
        assert of_type is not None
        encoded = {row.kind for row in of_type.rows} - {"none"}
        if own_classes(found) and not found.inner and isinstance(found.model, library.PreTrainedModel):
            with cases(name):
                assert bool(position_names(found)) or not encoded
                assert name not in silent or not position_names(found)


def test_layers_are_counted_by_the_stages_of_a_file():
    for name, key in (("glpn", "depths"), ("pvt_v2", "depths"), ("swiftformer", "depths"), ("cvt", "depth")):
        (code,) = resolved({"model_type": name, key: [1, 2, 3]}).codes
        assert (code.kind, code.layers) == ("none", "0-5")


def test_the_text_of_vits_has_distances_and_a_file_of_jamba_no_base():
    (code,) = resolved({"model_type": "vits"}).codes
    assert (code.part, code.kind) == ("text", "relative")
    assert {fact.code for fact in resolved({"model_type": "jamba", "rope_theta": 1e4}).facts} >= {"ignored-key"}


@pytest.mark.slow
def test_the_tool_reads_on_what_layers_rotate_and_which_keys_a_config_class_takes(library, cases):
    """A type whose layers rotate on a condition is no copy of one whose layers all rotate, and the other way round."""
    from class_sources import rotating_conditions, taken_keys
    from clockhands.models.class_modules import position_modules
    from copied_types import built

    conditions = {
        "afmoe": {"self.is_local_attention"},
        "cohere2": {"self.sliding_window is not None"},
        "smollm3": {"self.use_rope"},
        "gemma2": set(),
        "kyutai_speech_to_text": set(),
    }
    for name, expected in conditions.items():
        with cases(name):
            config = library.CONFIG_MAPPING[name]()
            assert rotating_conditions(position_modules(name, config, built(config))) == expected
    periods = {"gemma3_text": "sliding_window_pattern", "qwen3_next": "full_attention_interval"}
    for name, key in periods.items():
        with cases(name, key):
            assert taken_keys(library.CONFIG_MAPPING[name])[key] in (6, 4)


def test_every_layer_of_muse_glimmers_assistant_rotates():
    """``MuseGlimmerAssistantAttention`` rotates on no condition, and its config has no bases of single layers."""
    kinds = ["sliding_attention", "full_attention"]
    found = resolved({"model_type": "muse_glimmer_assistant", "num_hidden_layers": 2, "layer_types": kinds})
    assert [(code.kind, code.layers) for code in found.codes] == [("rotary", "0"), ("rotary", "1")]
    assert {code.base for code in found.codes} == {500_000.0}
