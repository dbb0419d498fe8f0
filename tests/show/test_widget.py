"""The explorer in a notebook: a real kernel holds it, and what the page and Python say of it is one."""

import json
import re
import time
from pathlib import Path
from queue import Empty

import pytest

import clockhands as ch
from browsing import PATIENCE, eventually, settled
from clockhands.errors import InvalidType, InvalidValue
from clockhands.show._widget import FARTHEST, style
from clockhands.show.explorer.data import codes
from clockhands.show.explorer.page import module
from clockhands.specs import from_dict, to_dict

pytest.importorskip("anywidget")
nbclient = pytest.importorskip("nbclient")

# What a Jupyter client's own libraries say of each other is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

VIEW = "application/vnd.jupyter.widget-view+json"


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


def test_who_looks_on_is_told():
    made, told = ch.show.Explorer(position=1), []
    made.observe(lambda change: told.append((change["old"], change["new"])), "position")
    made.position = 5
    made.set_state({"position": 6})
    assert told == [(1, 5), (5, 6)]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"spec": ch.Alibi(heads=8)}, InvalidType),
        ({"spec": 3}, InvalidType),
        ({"spec": ch.preset("qwen2-vl")}, InvalidValue),
        ({"spec": ch.Sinusoidal(width=4096)}, InvalidValue),
        ({"spec": ch.Sinusoidal(width=9, odd="extra")}, InvalidValue),
        ({"position": -1}, InvalidValue),
        ({"position": FARTHEST + 1}, InvalidValue),
    ],
)
def test_what_a_page_cannot_show_is_refused_and_leaves_it_as_it_was(fields, error):
    made = ch.show.Explorer(position=3)
    ((name, value),) = fields.items()
    with pytest.raises(error) as refused:
        setattr(made, name, value)
    assert refused.value.hint
    assert (made.spec, made.position) == (ch.preset("vaswani2017"), 3)
    with pytest.raises(error):
        ch.show.Explorer(**fields)


def test_every_code_of_the_page_can_be_set_from_either_side():
    made = ch.show.Explorer()
    for name, code in codes().items():
        made.set_state({"spec": code["spec"]})
        assert made.spec == ch.preset(name)
        made.spec = ch.preset("vaswani2017")
        made.spec = ch.preset(name)
        assert made.get_state("spec")["spec"] == code["spec"]
    # Some of them have no shift, and a page shows their hands all the same.
    for name in ("xpos", "funnel-phi", "patchtst", "deepseek-v3-transformers"):
        assert name in codes()
        with pytest.raises(InvalidValue):
            ch.shift(ch.preset(name), 1)


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
    "ch.show.kernel(held.spec, length=64)",
)


@pytest.fixture(scope="module")
def executed():
    """A notebook of these cells, after a real kernel has run them."""
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    return nbclient.NotebookClient(book, timeout=PATIENCE, kernel_name="python3").execute()


def test_a_real_kernel_shows_it_and_keeps_its_state(executed):
    shown = executed.cells[0].outputs[0]["data"][VIEW]["model_id"]
    kept = executed.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"][shown]["state"]
    assert kept["position"] == 21
    assert from_dict(kept["spec"]) == ch.Rotary(head_width=64, base=1e6)
    assert kept["_esm"] == module()
    assert kept["_css"] == style()


def test_a_figure_is_a_picture_in_the_notebook(executed):
    assert "image/png" in executed.cells[2].outputs[0]["data"]


HOST = """<!doctype html><meta charset="utf-8"><div id="here"></div><script>
// What a notebook's page does for an anywidget: its module from a blob, and a model that the kernel answers to.
window.held = {
  state: {}, pending: {}, calls: {},
  get(name) { return this.state[name]; },
  set(name, value) { this.state[name] = value; this.pending[name] = value; },
  save_changes() { const state = this.pending; this.pending = {}; window.toKernel(JSON.stringify(state)); },
  on(event, call) { (this.calls[event] ??= []).push(call); },
  off(event, call) { this.calls[event] = (this.calls[event] ?? []).filter((each) => each !== call); },
  fromKernel(state) {
    for (const [name, value] of Object.entries(state)) {
      if (JSON.stringify(this.state[name]) === JSON.stringify(value)) continue;
      this.state[name] = value;
      for (const call of this.calls[`change:${name}`] ?? []) call();
    }
  },
};
window.show = async (state) => {
  held.state = state;
  const sheet = document.createElement("style");
  sheet.textContent = state._css;
  document.head.append(sheet);
  const { default: widget } = await import(URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" })));
  window.letGo = widget.render({ model: held, el: document.getElementById("here") });
};
</script>"""


class Kernel:
    """A running kernel, and the widget in it as a notebook's page sees it: by messages alone."""

    def __init__(self, client):
        self.client = client
        self.id = self.state = None
        self.updates: list[dict] = []

    def run(self, text: str) -> str:
        """What the code prints; what it says of the widget on the way is kept."""
        asked = self.client.execute(text)
        printed, end = "", time.monotonic() + PATIENCE

        def of_this(message) -> bool:
            return message["parent_header"].get("msg_id") == asked

        while time.monotonic() < end:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "comm_open" and "_esm" in content["data"]["state"]:
                self.id, self.state = content["comm_id"], content["data"]["state"]
            elif kind == "comm_msg" and content["comm_id"] == self.id and content["data"]["method"] == "update":
                self.updates.append(content["data"]["state"])
            elif kind == "stream":
                printed += content["text"]
            elif kind == "error":
                raise AssertionError("\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle" and of_this(message):
                return printed.strip()
        raise AssertionError(f"no answer to {text}")

    def told(self, state: str) -> None:
        """What the page says of the widget, sent as a notebook sends it."""
        data = {"method": "update", "state": json.loads(state), "buffer_paths": []}
        message = self.client.session.msg("comm_msg", {"comm_id": self.id, "data": data})
        self.client.shell_channel.send(message)


@pytest.fixture
def kernel():
    manager = pytest.importorskip("jupyter_client.manager")
    held, client = manager.start_new_kernel(kernel_name="python3", startup_timeout=PATIENCE)
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        held.shutdown_kernel(now=True)


@pytest.mark.slow
def test_page_and_python_follow_each_other(kernel, quiet_page, tmp_path: Path):
    kernel.run("import clockhands as ch\nheld = ch.show.Explorer(ch.preset('whisper'), position=7)\nheld")
    file = tmp_path / "host.html"
    file.write_text(HOST, encoding="utf-8")
    with quiet_page(file) as page:
        page.expose_function("toKernel", kernel.told)
        page.evaluate("state => show(state)", kernel.state)
        settled(page)

        def field(name):
            return page.locator(f"input[type=number][data-name={name}]").first

        def prints(text, wanted):
            """A message of the page may still be on its way to the kernel."""
            settled(page)

            def check():
                assert kernel.run(f"print({text})") == wanted

            eventually(page, check)

        def answer(kernel):
            for state in kernel.updates:
                page.evaluate("state => held.fromKernel(state)", state)
            kernel.updates.clear()
            settled(page)

        assert page.locator("section h2").count() >= 9
        assert field("position").input_value() == "7"
        assert ch.preset(page.locator("select[data-name=code]").input_value()) == ch.preset("whisper")
        assert page.locator("button.theme").count() == 0

        field("position").fill("42")
        field("position").press("Enter")
        prints("held.position, held.spec == ch.preset('whisper')", "42 True")

        field("base").fill("500")
        field("base").press("Tab")  # a field that is being typed in is left alone
        # The page has a word of its own for odd widths, of which this is none.
        prints("held.spec == ch.preset('whisper', base=500, odd='extra')", "True")

        kernel.updates.clear()
        kernel.run("held.position = 9\nheld.spec = ch.Rotary(head_width=64, base=1e6, layout='interleaved')")
        answer(kernel)
        assert field("position").input_value() == "9"
        assert field("width").input_value() == "64"
        assert field("base").input_value() == "1000000"
        prints("held.spec == ch.Rotary(head_width=64, base=1e6, layout='interleaved'), held.position", "True 9")

        # What turns queries and keys still does when its base is moved.
        field("base").fill("500000")
        field("base").press("Tab")
        prints("held.spec == ch.Rotary(head_width=64, base=5e5, layout='interleaved')", "True")

        kernel.updates.clear()
        kernel.run("held.spec = ch.preset('llama3.1')")
        answer(kernel)
        assert ch.preset(page.locator("select[data-name=code]").input_value()) == ch.preset("llama3.1")

        page.evaluate("letGo()")
        kernel.updates.clear()
        kernel.run("held.position = 1000")
        answer(kernel)
        assert field("position").input_value() == "9"
