"""Published configs: the library's own numbers and facts written by hand, against what is resolved.

Where ours and theirs part, the reason stands here; an exception that is none any more fails.
"""

import json
from pathlib import Path

import pytest

from resolution.expected import fact_gaps, library_gaps, resolved

CASES = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))["cases"]

# What the facts are of, where a file has a text part and they are of another.
TOWER = {"siglip-so400m-patch14-384": "vision"}

NO_TYPE = "the file names no type, and no key says it: that it is so follows from the name of its folder alone"
NOT_A_MODEL = "the form is a training repository's own, without a type: what it means stands in that repository"
ELSEWHERE = "the numbers are the code's: the file turns the scaling on and does not hold them in a block"
# Config, and quantity in which its facts part from what is resolved, to who is right and why.
PARTED = {
    "clap-htsat-fused": {
        "kind": "the facts count the biases of the sound tower too; the text part has its table alone, as resolved"
    },
    "cogvideox-2b-transformer": dict.fromkeys(("kind", "rows and offset"), NO_TYPE),
    "cogvideox-5b-i2v-transformer": dict.fromkeys(("kind", "rows and offset"), NO_TYPE),
    "cogvideox-5b-transformer": {"kind": NO_TYPE},
    "deberta-v3-small-rtd": dict.fromkeys(("kind", "context"), NOT_A_MODEL),
    "deepseek-v4-pro": {
        "base": "both are right: the base of layers without compression, of which this file has none",
        "window": "both are right: the window of layers without compression, of which this file has none",
    },
    "eva02-clip-l-14-336": dict.fromkeys(("kind", "rows and offset"), NOT_A_MODEL),
    "gemma-3-1b-executorch-mediatek": {
        "window": "the file has sliding_window_attention_size, which the Gemma 3 class does not read"
    },
    "gpt-j-6b-as-gpt-neo": {
        "kind": "the facts are of GPT-J, whose weights these were; the type that is named adds a learned table"
    },
    "llama-3.2-11b-vision-text-executorch": {"scaling": ELSEWHERE},
    "modernbert-large": {"window": "the facts repeat the key; the class sees half of it on either side, and itself"},
    "phi-4-mini-executorch": {"scaling": ELSEWHERE},
    "qwen2-audio-7b-sophgo": {
        "window": "the file has a sliding_window and no use_sliding_window, and the Qwen 2 class takes false"
    },
    "qwen3.5-27b-ome": dict.fromkeys(
        ("width", "rotated", "layers without position"),
        "the file was written by hand for a test and leaves it out, where the class has a default",
    ),
    "roberta-base-no-model-type": dict.fromkeys(("kind", "rows and offset"), NO_TYPE),
    "samba-1b": {"kind": "the facts are right; its fields stand in attn, where no common reader looks: left open"},
    "swin-base-384-ram": {"kind": NOT_A_MODEL},
    "wavlm-base-plus": {"kind": "the facts are right; a convolution and gated buckets are no code of the project's"},
}
# Config to why the library computes another ladder from it than is resolved.
LIBRARY_PARTED = {
    "deepseek-v4-pro": "the library makes the ladder of layers without compression too, of which this file has none",
    "glm-4.1v-9b": (
        "the library is wrong of this file: it reads text_config alone, and drops the share of the rotated channels"
        " that stands flat"
    ),
}


@pytest.fixture(scope="module")
def cases(published):
    paths = sorted((published / "configs").glob("*.json"))
    assert len(paths) > 200
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def library_tables(case):
    tables = case["library"].get("tables")
    if tables is None:
        return case["library"]
    return {f"{kind}.{name}": table for kind, held in tables.items() for name, table in held.items()}


def case_gaps(case):
    return fact_gaps(resolved(case["config"]), case["facts"], TOWER.get(case["name"]))


def test_the_library_computes_the_same_ladders(cases, capsys):
    held = [case for case in cases if "library" in case]
    parted = {}
    for case in held:
        gaps = list(library_gaps(resolved(case["config"]), library_tables(case)))
        if gaps:
            parted[case["name"]] = gaps
    with capsys.disabled():
        print(f"\n{len(held)} configs with the library's own numbers, {len(parted)} exceptions: {', '.join(parted)}")
    assert {name: gaps for name, gaps in parted.items() if name not in LIBRARY_PARTED} == {}
    assert set(parted) == set(LIBRARY_PARTED)
    assert len(held) >= 114


def test_facts_written_by_hand_agree(cases, capsys):
    parted = {}
    for case in cases:
        gaps = {gap.partition(":")[0]: gap for gap in case_gaps(case)}
        if gaps:
            parted[case["name"]] = gaps
    with capsys.disabled():
        print(f"\n{len(cases)} configs with facts, {len(parted)} exceptions: {', '.join(parted)}")
    unnamed = [
        f"{name}: {gap}"
        for name, gaps in parted.items()
        for quantity, gap in gaps.items()
        if quantity not in PARTED.get(name, {})
    ]
    assert not unnamed, "\n".join(unnamed)
    assert {name: set(gaps) for name, gaps in parted.items()} == {name: set(gaps) for name, gaps in PARTED.items()}
    assert len(cases) >= 232


def test_every_published_config_is_read_without_an_exception(cases):
    for case in cases:
        found = resolved(case["config"])
        assert found.codes, case["name"]
        assert found.model_type == case["config"].get("model_type")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_own_cases(case):
    found = resolved(case["config"])
    gaps = [gap for gap in fact_gaps(found, case["facts"]) if gap.partition(":")[0] not in PARTED.get(case["name"], {})]
    if "library" in case and case["name"] not in LIBRARY_PARTED:
        gaps += library_gaps(found, library_tables(case))
    assert not gaps


def test_own_cases_name_a_public_source():
    for case in CASES:
        assert case["source"]["repo"].count("/") == 1
        assert case["source"]["path"]
        assert len(case["source"]["commit"]) == 40


@pytest.mark.parametrize("wrong", [{"first": 0.5}, {"last": 1e-4}, {"mid": 0.02}, {"factor": 1.1}, {"pairs": 32}])
def test_the_oracle_can_fail(wrong):
    case = next(case for case in CASES if case["name"] == "llama-3.1-8b")
    tables = {name: {**table, **wrong} for name, table in library_tables(case).items()}
    assert list(library_gaps(resolved(case["config"]), tables))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rotated": 64},
        {"head_dim": 64},
        {"base": 10000.0},
        {"scaling": None},
        {"layers": 31},
        {"sections": [16, 24, 24]},
        {"per_layer_type": {"full_attention": {"head_dim": 128, "rotated": 128, "base": 1e6, "scaling": None}}},
        {"window": 4096},
        {"layers_without_position": [3]},
        {"max_length": 8192},
        {"kind": "learned"},
        {"rows": 512, "offset": 0},
    ],
)
def test_the_facts_can_fail(wrong):
    case = next(case for case in CASES if case["name"] == "llama-3.1-8b")
    assert list(fact_gaps(resolved(case["config"]), {**case["facts"], **wrong}))
