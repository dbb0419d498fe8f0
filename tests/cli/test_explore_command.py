"""`clockhands explore`: the page that it writes, what it holds, and how it says that it cannot."""

import importlib.metadata
import json
import re
import tempfile
import webbrowser
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.presets import presets
from clockhands.encodings.specs import from_dict
from clockhands.show.explorer.data import codes
from show.pages import Parts

from .conftest import LLAMA, LLAMA3

HOSTILE = "</script><script>alert(1)</script><!-- \u2028"


class Page(Parts):
    """The elements of a page, what Python put in, its title, and all that it would fetch."""

    def __init__(self, text):
        super().__init__(text)
        self.tags = [tag for tag, _ in self.elements]
        self.data = json.loads(self.scripts["data"])
        self.title = unescape(re.search("<title>(.*?)</title>", text)[1])
        fetching = {"src", "href", "srcset", "data", "action"}
        self.fetched = [value for _, held in self.elements for name, value in held.items() if name in fetching]


@pytest.fixture
def written(run, tmp_path):
    """The page that a command line writes: written("vaswani2017")."""

    def write(*targets):
        out = tmp_path / "page.html"
        done = run("explore", *targets, "--out", out, "--force")
        # Nothing but where the page is: it is no data, so it is said beside it.
        assert (done.code, done.out, done.err) == (0, "", f"note: {out} holds the page.\n")
        return out.read_text(encoding="utf-8")

    return write


@pytest.fixture
def config(tmp_path):
    def write(name="config.json", **fields):
        path = tmp_path / name
        path.write_text(json.dumps(LLAMA | fields), encoding="utf-8")
        return path

    return write


def test_a_page_without_a_model_is_small_and_fetches_nothing(written):
    text = written()
    assert len(text.encode()) <= 600_000
    page = Page(text)
    assert page.fetched == []
    assert [script["type"] for script in page.of("script")] == ["application/json", "module"]
    assert "default-src 'none'" in unescape(text)
    assert page.data["models"] == []
    assert page.data["start"] == {}
    assert page.title == "clockhands"


def test_every_preset_that_turns_along_one_axis_is_on_the_page(written):
    found = Page(written()).data["codes"]
    turning = {
        each.name
        for each in presets()
        if isinstance(each.spec, ch.Sinusoidal) or (isinstance(each.spec, ch.Rotary) and each.spec.axes is None)
    }
    assert set(found) == turning
    assert len(turning) > 60
    assert {name: from_dict(code["spec"]) for name, code in found.items()} == {
        name: ch.preset(name) for name in turning
    }


def test_width_base_and_span_make_the_ladder_wherever_a_base_is_given():
    told = [(name, code) for name, code in codes().items() if code["base"] is not None]
    for name, code in told:
        spec = ch.preset(name)
        assert code["width"] == 2 * len(spec.rates)
        again = ch.Sinusoidal(code["width"], spacing=Geometric(code["base"], code["span"])).rates
        scaled = getattr(spec, "scaling", None) is not None
        assert np.allclose(again, spec.rates, rtol=1e-12) is not scaled, name
    without = {name for name, code in codes().items() if code["base"] is None}
    assert {"flux-timestep", "stable-audio-3-timestep"} <= without
    assert len(told) > 10 * len(without) > 0


def test_the_page_opens_on_the_first_ladder_and_shows_two_models_side_by_side(written, config, run):
    path = config(rope_scaling=LLAMA3 | {"original_max_position_embeddings": 512})
    bert = config("bert.json", model_type="bert", rope_theta=None)
    data = Page(written(bert, path)).data
    assert data["start"] == {"code": "model-1-0", "beside": 1, "code_in_attention": "rotary"}
    audited = json.loads(run("audit", bert, path, "--json").out)["targets"]
    assert data["models"] == audited


def test_a_model_without_a_ladder_opens_at_its_context_as_far_as_a_control_reaches(written, config):
    for context, length in ((300, 300), (2**40, 2**24), (1, 2)):
        data = Page(written(config(model_type="bert", rope_theta=None, max_position_embeddings=context))).data
        assert data["start"] == {"length": length, "served": length}


def test_the_page_asks_attention_with_the_model_s_own_kind_of_code(written, config):
    for kind, model_type, fields in (
        ("rotary", "llama", {}),
        ("alibi", "bloom", {"n_head": 8, "n_layer": 2, "rope_theta": None}),
        (None, "bert", {"rope_theta": None}),
    ):
        data = Page(written(config(model_type=model_type, **fields))).data
        assert data["start"].get("code_in_attention") == kind
        assert ("code" in data["start"]) == (kind == "rotary"), "without a ladder the page keeps the paper's"
        assert [layer["kind"] for layer in data["models"][0]["layers"]] == [kind or "learned"]


def test_hostile_names_stay_text(written, config, tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    path = config(f"{folder.name}/config.json", model_type=HOSTILE, architectures=[HOSTILE])
    text = written(path)
    page = Page(text)
    # The elements are those of any page, and what was hostile is a string among the data.
    assert page.tags == Page(written_plain(text)).tags
    assert page.data["models"][0]["model_type"] == HOSTILE
    assert "<script>alert" not in text
    assert "<img" not in text


def written_plain(text):
    """The same page with no data at all: what elements it has by itself."""
    start = text.index('<script type="application/json"')
    begin, end = text.index(">", start) + 1, text.index("</script>", start)
    return text[:begin] + "{}" + text[end:]


def test_a_name_in_the_title_is_text(written, config):
    path = config("<b>&amp;.json")
    page = Page(written(path))
    assert page.title == f"clockhands: {path.parent.name}/<b>&amp;.json"
    assert "b" not in page.tags


def test_a_name_that_no_text_can_hold_is_shown_by_its_bytes(written, config):
    try:
        path = config("m\udcff.json")
    except OSError:
        pytest.skip("this file system takes no such names")
    page = Page(written(path))
    assert page.title == f"clockhands: {path.parent.name}/m\\udcff.json"
    assert page.data["models"][0]["target"].endswith("m\udcff.json")


def test_what_cannot_be_read_is_said_and_what_can_is_shown(run, config, tmp_path):
    out = tmp_path / "page.html"
    done = run("explore", tmp_path / "missing.json", config(), "--out", out)
    assert done.code == 2
    assert "missing.json does not exist" in done.err
    data = Page(out.read_text(encoding="utf-8")).data
    assert [audit["target"] for audit in data["models"]] == [str(tmp_path / "config.json")]


def test_a_trained_model_is_on_the_page_if_its_package_is_installed(run, written, monkeypatch, tmp_path):
    try:
        importlib.metadata.distribution("glassllm")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package glassllm is not installed")
    text = written("--model", "glassllm")
    assert len(text.encode()) < 3_000_000
    page = Page(text)
    assert (page.fetched, page.data["models"]) == ([], [])
    assert sum(page.data["trained"]["parameters"].values()) == 852_608

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    done = run("explore", "--model", "glassllm", "--out", tmp_path / "none.html")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        'error: "glassllm" needs the package glassllm, which is not installed.\n'
        "hint: Run `pip install --no-deps glassllm`: only the package's files are needed.\n"
    )
    assert not (tmp_path / "none.html").exists()


@pytest.fixture
def browser(monkeypatch, tmp_path):
    """A browser that notes what it is asked to open; `can` says whether it does."""
    opened = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def be(can):
        monkeypatch.setattr(webbrowser, "open", lambda url, *_: opened.append(url) or can)
        return opened

    return be


def test_without_a_file_a_browser_opens_the_page(run, browser):
    opened = browser(can=True)
    done = run("explore", "vaswani2017:width=8")
    (url,) = opened
    path = Path(unquote(urlparse(url).path))
    assert (done.code, done.out, done.err) == (0, "", f"note: the page is {path}\n")
    layer = Page(path.read_text(encoding="utf-8")).data["models"][0]["layers"][0]
    assert layer["rates"] == pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-15)


def test_where_no_browser_is_the_page_can_still_be_found(run, browser, tmp_path):
    browser(can=False)
    done = run("explore")
    (path,) = tmp_path.glob("clockhands-*.html")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: No browser could be opened.\nhint: Open {path} yourself, or pass a file for the page with --out.\n"
    )
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
