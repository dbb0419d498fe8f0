"""The explorer in a notebook: a real kernel holds it, and what the page and Python say of it is one."""

import json
import re

import pytest

import clockhands as ch
from browsing import PATIENCE
from clockhands.encodings.specs import from_dict, to_dict
from clockhands.errors import InvalidType, InvalidValue
from clockhands.show._widget import FARTHEST, style
from clockhands.show.explorer.data import codes
from clockhands.show.explorer.page import module

# What a Jupyter client's own libraries say of each other is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def _anywidget():
    pytest.importorskip("anywidget")


def test_it_opens_on_the_papers_code():
    made = ch.show.Explorer()
    assert (made.spec, made.position) == (ch.preset("vaswani2017"), 0)
    assert type(made).__name__ == "Explorer"
    assert "vaswani2017" in json.loads(made.data)["codes"]


def test_a_spec_travels_as_its_dictionary():
    made = ch.show.Explorer(ch.preset("llama3.1"), position=7)
    state = json.loads(json.dumps(made.get_state(["spec", "position"])))
    assert state == {"spec": to_dict(ch.preset("llama3.1")), "position": 7}
    # A browser writes 10000.0 as 10000, and its fields in an order of its own.
    back = to_dict(ch.Rotary(head_width=8, base=20000)) | {
        "spacing": {"base": 20000, "multiplier": 1, "span": "open", "type": "Geometric"}
    }
    made.set_state({"spec": back, "position": 2**53 - 1})
    assert (made.spec, made.position) == (ch.Rotary(head_width=8, base=20000), FARTHEST)


def test_what_a_page_cannot_show_is_refused_and_leaves_it_as_it_was(cases):
    made = ch.show.Explorer(position=3)
    for name, value, error in (
        ("spec", ch.Alibi(heads=8), InvalidType),
        ("spec", 3, InvalidType),
        ("spec", ch.preset("qwen2-vl"), InvalidValue),
        ("spec", ch.Sinusoidal(width=4096), InvalidValue),
        ("spec", ch.Sinusoidal(width=9, odd="extra"), InvalidValue),
        ("position", -1, InvalidValue),
        ("position", FARTHEST + 1, InvalidValue),
    ):
        with cases(name, value):
            with pytest.raises(error) as refused:
                setattr(made, name, value)
            assert refused.value.hint
            assert (made.spec, made.position) == (ch.preset("vaswani2017"), 3)
            with pytest.raises(error):
                ch.show.Explorer(**{name: value})


def test_every_code_of_the_page_can_be_set_from_either_side():
    made = ch.show.Explorer()
    for name, code in codes().items():
        made.set_state({"spec": code["spec"]})
        assert made.spec == ch.preset(name)
        made.spec = ch.preset("vaswani2017")
        made.spec = ch.preset(name)
        assert made.get_state("spec")["spec"] == code["spec"]


def test_its_style_reaches_nothing_else_of_the_notebook():
    text = re.sub(r"/\*.*?\*/", "", style(), flags=re.DOTALL)
    text = re.sub(r"@(media|container|supports)[^{]*\{", "", text)
    text = re.sub(r"\([^()]*\)", "", text)  # commas inside brackets part no selectors
    selectors = [part.strip() for rule in re.findall(r"([^{}]+)\{[^{}]*\}", text) for part in rule.split(",")]
    strangers = [each for each in selectors if ".clockhands" not in each and not each.startswith("@")]
    assert len(selectors) > 30
    assert strangers == []


CELLS = (
    "import clockhands as ch\nheld = ch.show.Explorer(ch.preset('whisper'), position=7)\nheld",
    "held.position = 21\nheld.spec = ch.Rotary(head_width=64, base=1e6)",
)


@pytest.mark.slow
def test_a_real_kernel_shows_it_and_keeps_its_state():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    executed = nbclient.NotebookClient(book, timeout=PATIENCE, kernel_name="python3").execute()
    shown = executed.cells[0].outputs[0]["data"][VIEW]["model_id"]
    kept = executed.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"][shown]["state"]
    assert kept["position"] == 21
    assert from_dict(kept["spec"]) == ch.Rotary(head_width=64, base=1e6)
    assert kept["_esm"] == module()
    assert kept["_css"] == style()
