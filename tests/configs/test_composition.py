"""Configs that take values from other files or from other keys: what is read, what is refused, what stays unknown."""

import json

import pytest

from clockhands import audit
from clockhands.configs import open_target
from clockhands.configs.composition import composed, unread_parents
from clockhands.configs.resolve import resolve
from clockhands.errors import Unreadable
from configs.expected import resolved

CHILD = {"extends": ["grok_base.yaml"], "num_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
CHILD |= {"max_position_embeddings": 512, "rotary_base": 1000000}
PARENTS = {
    "grok_base.yaml": {"extends": "llama_base.yaml", "rotary_base": 5000},
    "llama_base.yaml": {
        "position_embedding_type": "rope",
        "rotary_base": 10000,
        "rotary_percent": 0.5,
        "rotary_interleaved": False,
    },
}

NEOX = {"extends": "x.yml", "num_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "pos_emb": "rotary"}
NEOX |= {"rotary_pct": 1.0, "rotary_emb_base": 10000}


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "models"
    inside.mkdir()

    def written(**contents):
        for name, held in {"child.yaml": CHILD, **contents}.items():
            path = inside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(held))
        return inside / "child.yaml"

    return written


def test_a_file_has_the_values_of_those_that_it_extends(folder):
    """Its own values have priority, then those of the nearest file; each is reported with its file."""
    found = resolve(open_target(folder(**PARENTS)))
    (code,) = found.codes
    assert (code.kind, code.layout, code.base, code.rotated) == ("rotary", "halves", 1e6, 16)
    assert code.source["base"] == "child.yaml:rotary_base"
    assert "llama_base.yaml:rotary_percent" in code.source["rotated"]
    assert code.rates is not None


def test_what_a_file_leaves_out_is_unknown_without_those_that_it_extends(folder, cases):
    """The default of the program is not what counts then, and a scaling may be in the other file."""
    for name, contents, kind in (
        ("the file itself", {}, None),
        ("its parent", {"grok_base.yaml": PARENTS["grok_base.yaml"]}, None),
        ("all but one", PARENTS | {"llama_base.yaml": PARENTS["llama_base.yaml"] | {"extends": "x.yaml"}}, None),
        ("no scaling", {"child.yaml": NEOX}, "rotary"),
    ):
        with cases(name):
            opened = open_target(folder(**contents))
            (code,) = resolve(opened).codes
            assert (code.kind, code.rates, code.layout) == (kind, None, None)
            assert any("what child.yaml leaves out is not known" in note for note in opened.notes)


def test_files_outside_the_folder_are_not_read(folder, tmp_path, cases):
    (tmp_path / "secret.yaml").write_text(json.dumps({"position_embedding_type": "rope", "rotary_base": 7}))
    (tmp_path / "models" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (tmp_path / "models" / "out").symlink_to(tmp_path)
    for name in (
        "../secret.yaml",
        str(tmp_path / "secret.yaml"),
        "link.yaml",
        "out/secret.yaml",
        "\0.yaml",
        "/dev/zero",
    ):
        with cases(name):
            opened = open_target(folder(**{"child.yaml": CHILD | {"extends": [name]}}))
            assert unread_parents(opened.config) == (name,)
            assert "position_embedding_type" not in opened.config


def test_files_in_a_circle_or_without_an_end_are_refused(folder):
    looped = folder(**{"grok_base.yaml": {"extends": ["child.yaml"], "rotary_percent": 0.5}})
    assert unread_parents(open_target(looped).config) == ("child.yaml",)
    many = {f"{number}.yaml": {"extends": [f"{number + 1}.yaml"]} for number in range(80)}
    with pytest.raises(Unreadable, match="takes values from more than 64 files"):
        open_target(folder(**many, **{"grok_base.yaml": {"extends": "0.yaml"}}))
    with pytest.raises(Unreadable, match=r"child.yaml takes values from more than 64 files"):
        open_target(folder(**{"child.yaml": CHILD | {"extends": ["no.yaml"] * 10_000}}))
    damaged = folder(**PARENTS)
    damaged.with_name("llama_base.yaml").write_text("a: [")
    opened = open_target(damaged)
    assert unread_parents(opened.config) == ("llama_base.yaml",)
    assert any("llama_base.yaml is not read:" in note for note in opened.notes)


def test_groups_of_hydra_go_under_their_name(folder):
    model = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "encoder_seq_length": 128}
    own = {"defaults": ["_self_", {"model": "gpt"}, {"override hydra/launcher": "x"}], "model": {"rotary_base": 5}}
    opened = open_target(folder(**{"child.yaml": own, "model/gpt.yaml": model | {"rotary_base": 7}}))
    assert opened.config == {"model": model | {"rotary_base": 7}}
    own["defaults"] = [{"model": "gpt"}, "_self_"]
    assert open_target(folder(**{"child.yaml": own})).config == {"model": model | {"rotary_base": 5}}


def test_self_in_a_list_of_hydra_stands_between_the_files_before_and_after_it(folder, cases):
    files = {"first.yaml": {"rope_theta": 1.5, "head_dim": 8}, "last.yaml": {"head_dim": 32, "vocab_size": 9}}
    own = {"defaults": ["first", "_self_", "last"], "model_type": "llama", "rope_theta": 2.5, "vocab_size": 7}
    for name, contents in {
        "the file itself": {"child.yaml": own},
        "a file that it names": {"child.yaml": {"defaults": ["middle"]}, "middle.yaml": own},
    }.items():
        with cases(name):
            path = folder(**files, **contents)
            made = composed(contents["child.yaml"], path, "child.yaml")
            assert made.fields == {"model_type": "llama", "rope_theta": 2.5, "head_dim": 32, "vocab_size": 9}
            read = {key: made.places.get(key, key) for key in made.fields}
            place = "" if name == "the file itself" else "middle:"
            assert read == {
                "model_type": f"{place}model_type",
                "rope_theta": f"{place}rope_theta",
                "head_dim": "last:head_dim",
                "vocab_size": "last:vocab_size",
            }
    late = open_target(folder(**{"child.yaml": {**own, "defaults": ["first", "_self_", "elsewhere"]}}))
    assert any("nor whether they replace what child.yaml sets" in note for note in late.notes)


def test_a_file_that_was_not_read_is_a_doubt(folder, cases):
    whole = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    whole |= {"max_position_embeddings": 64, "rope_theta": 1e4}
    assert audit(folder(**{"child.yaml": whole})).correct
    for named in (
        {"defaults": ["_self_", "elsewhere"]},
        {"defaults": ["elsewhere", "_self_"]},
        {"extends": "elsewhere"},
    ):
        with cases(str(named)):
            found = audit(folder(**{"child.yaml": whole | named}))
            assert "clockhands does not read elsewhere, which the file takes values from" in found.doubts
            assert not found.correct


def test_references_lead_into_lists_and_those_that_lead_nowhere_are_no_impossible_values(cases):
    held = {"bases": [1.5, 2.5], "a": "${bases[1]}", "b": "${bases.0}", "c": "${bases[2]}", "d": "${bases.x}"}
    made = composed(held, None, "x.yaml").fields
    assert [made[key] for key in "abcd"] == [2.5, 1.5, "${bases[2]}", "${bases.x}"]
    for written in ("???", "${max_position_embeddings}", "${oc.env:LENGTH}"):
        with cases(written):
            config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
            found = resolved(config | {"max_position_embeddings": written})
            assert (found.context, [fact.code for fact in found.facts if fact.code == "impossible-value"]) == (None, [])
            assert found.ignored == {"config.json:max_position_embeddings": written}
            assert resolved(config | {"hidden_size": written}).ignored == {"config.json:hidden_size": written}


def test_references_cost_no_more_than_the_file(cases):
    chain = {f"k{number}": f"${{k{number + 1}}}" for number in range(20_000)} | {"k20000": 1}
    many = {"big": {str(number): number for number in range(1000)}, **dict.fromkeys(map(str, range(1000)), "${big}")}
    nested = {"deep": "${deep.deep}", "a": {"a": "${..a}"}, "s": "${s}", "t": "x${s}", "u": "${k.1}", "k": [1]}
    for name, config in {"chain": chain, "many": many, "nested": nested, "dots": {"x": "${....x}"}}.items():
        with cases(name):
            made = composed(config, None, "x.yaml").fields
            kept = {key: value for key, value in config.items() if made[key] != value}
            assert len(kept) == (8 if name == "chain" else 0)
