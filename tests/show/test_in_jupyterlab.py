"""The explorer in JupyterLab: a real server, its own page in a browser, and anywidget's own front end."""

import json
import math
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import clockhands as ch
from browsing import PATIENCE, eventually, expect
from exploring import VIEWS

pytestmark = pytest.mark.slow

CELLS = (
    "import clockhands as ch\nfirst = ch.show.Explorer(ch.preset('llama3.1'), position=7)\nfirst",
    "second = ch.show.Explorer(ch.preset('whisper'), position=21)\nsecond",
    "print(first.position, second.position)",
)
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
NAMES, PIXELS = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("widgets_names.js", "canvas_pixels.js")
)


class Lab:
    """A running server, and where its notebooks lie."""

    def __init__(self, home: Path, browser):
        self.home, self.browser, self.token = home, browser, secrets.token_hex(16)
        self.root = home / "notebooks"
        self.root.mkdir()
        self.set("@jupyterlab/apputils-extension/notification", fetchNews="false", checkForUpdates=False)

    def set(self, name: str, **values) -> None:
        file = self.home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")

    @contextmanager
    def running(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Nothing is read from the user's own folders, and nothing written there.
        names = {
            "HOME": "", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython",
        }  # fmt: skip
        places = {name: str(self.home / place) for name, place in names.items()}
        places["PYTHONPATH"] = str(Path(ch.__file__).parents[1])
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
            f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}",
            "--ServerApp.allow_root=True", "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.extension_manager=readonly",
        ]  # fmt: skip
        with (self.home / "log").open("w", encoding="utf-8") as log:
            server = subprocess.Popen(command, env=os.environ | places, cwd=self.root, stdout=log, stderr=log)
        try:
            self.url = self._address(server)
            yield self
        finally:
            server.terminate()
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def _address(self, server) -> str:
        said = self.home / "runtime" / f"jpserver-{server.pid}.json"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and server.poll() is None:
            if said.exists() and (text := said.read_text(encoding="utf-8")):
                return f"http://127.0.0.1:{json.loads(text)['port']}"
            time.sleep(0.1)
        raise AssertionError((self.home / "log").read_text(encoding="utf-8"))

    def ask(self, path: str, method: str = "GET", told: dict | None = None):
        body = None if told is None else json.dumps(told).encode()
        asked = Request(f"{self.url}/api/{path}", body, {"Authorization": f"token {self.token}"}, method=method)
        with urlopen(asked, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or "null")

    def kernel(self, file: Path) -> None:
        """The notebook's kernel, so that the page need not ask which it should be."""
        told = {"path": file.name, "name": file.name, "type": "notebook", "kernel": {"name": "python3"}}
        self.ask("sessions", "POST", told)

    def write(self, name: str) -> Path:
        """A notebook file that nobody has run."""
        nbformat = pytest.importorskip("nbformat")
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), self.root / name)
        return self.root / name

    @contextmanager
    def shown(self, file: Path, **emulated):
        """The lab's page on a notebook; afterwards nothing was asked of another place, and nothing complained of."""
        self.kernel(file)
        context = self.browser.new_context(viewport={"width": 1400, "height": 1000}, **emulated)
        elsewhere: list[str] = []
        said: list[str] = []

        def through(route) -> None:
            url = route.request.url
            if url.startswith(f"{self.url}/"):
                route.continue_()
            else:
                elsewhere.append(url)
                route.abort()

        context.route(re.compile("^(?!blob:|data:)"), through)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        # What the lab complains of itself is not ours: that its kernel was not ready, say.
        own = (f"{self.url}/static/", f"{self.url}/api/")
        page.on("pageerror", lambda error: said.append(str(error)) if "blob:" in (error.stack or "blob:") else None)

        def heard(message) -> None:
            if message.type == "error" and not message.location["url"].startswith(own):
                said.append(message.text)

        page.on("console", heard)
        try:
            page.goto(f"{self.url}/lab/tree/{file.name}?token={self.token}&reset")
            page.locator(".jp-Notebook .jp-Cell").first.wait_for()
            page.locator(IDLE).wait_for()
            yield page
            assert elsewhere == []
            assert said == []
        finally:
            context.close()


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    pytest.importorskip("jupyterlab")
    with Lab(tmp_path_factory.mktemp("lab"), chromium).running() as started:
        yield started


def choose(page, menu: str, command: str) -> None:
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.locator(f'.lm-Menu-item[data-command="{command}"]').click()


def run_all(page):
    """Both widgets, after all cells have run."""
    end = time.monotonic() + PATIENCE
    prompts = page.locator(".jp-Cell .jp-InputArea-prompt")
    asked = -math.inf
    while not all(re.fullmatch(r"\[\d+\]:", each) for each in prompts.all_text_contents()):
        assert time.monotonic() < end
        # A lab whose kernel is not ready yet forgets what it was asked to run, and says nothing of it.
        if prompts.all_text_contents() == ["[ ]:"] * len(CELLS) and time.monotonic() > asked + 5:
            choose(page, "Run", "runmenu:run-all")
            asked = time.monotonic()
        page.wait_for_timeout(100)
    widgets = [page.locator(".jp-Cell").nth(place).locator(".clockhands") for place in (0, 1)]
    for widget in widgets:
        widget.locator("section").last.wait_for(state="attached")
    return widgets


def run(page, text: str) -> str:
    """What the last cell prints, after this has been typed into it."""
    cell = page.locator(".jp-Cell").last
    prompt = cell.locator(".jp-InputArea-prompt")
    before = int(re.search(r"\d+", prompt.text_content())[0])
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    page.keyboard.press("Control+Enter")
    expect(prompt).to_have_text(f"[{before + 1}]:")
    outputs = cell.locator(".jp-OutputArea-output")
    return outputs.inner_text().strip() if outputs.count() else ""


def prints(page, text: str, wanted: str) -> None:
    """A message of the page may still be on its way to the kernel."""

    def check() -> None:
        assert run(page, f"print({text})") == wanted

    eventually(page, check)


def field(widget, name: str):
    return widget.locator(f'input[type="number"][data-name="{name}"]').first


def code(widget):
    """The preset that is chosen."""
    return ch.preset(widget.locator('select[data-name="code"]').input_value())


def holds(widget, name: str, value: int) -> None:
    expect(field(widget, name)).to_have_value(str(value))


def put(widget, name: str, value: int) -> None:
    field(widget, name).fill(str(value))
    field(widget, name).press("Tab")


def names_are_their_own(page) -> None:
    found = page.evaluate(NAMES)
    assert (found["strays"], found["twice"], len(found["labels"])) == ([], [], 2)
    assert min(found["labels"]) > 20


def test_two_widgets_and_python_follow_each_other(lab):
    with lab.shown(lab.write("both.ipynb")) as page:
        first, second = run_all(page)
        names_are_their_own(page)
        for widget, name, position in ((first, "llama3.1", 7), (second, "whisper", 21)):
            assert widget.locator("section h2").count() == len(VIEWS)
            assert code(widget) == ch.preset(name)
            holds(widget, "position", position)
            assert widget.locator("button.theme").count() == 0

        drawn_table(page, first)

        # From Python to the page.
        run(page, "first.position = 42\nsecond.spec = ch.Rotary(head_width=64, base=1e6)")
        holds(first, "position", 42)
        holds(second, "width", 64)
        holds(second, "base", 1000000)
        holds(second, "position", 21)
        assert code(first) == ch.preset("llama3.1")

        # From each page to its own.
        put(first, "position", 1000)
        put(second, "position", 11)
        prints(page, "first.position, second.position", "1000 11")
        second.locator('select[data-name="code"]').select_option("whisper")
        prints(page, "second.spec == ch.preset('whisper')", "True")
        put(second, "base", 500)
        # The page has a word of its own for odd widths, of which this is none.
        prints(page, "second.spec == ch.preset('whisper', base=500, odd='extra')", "True")
        prints(page, "first.spec == ch.preset('llama3.1')", "True")

        # What turns queries and keys still does when its base is moved.
        run(page, "second.spec = ch.Rotary(head_width=64, base=1e6, layout='interleaved')")
        holds(second, "base", 1000000)
        put(second, "base", 500000)
        prints(page, "second.spec == ch.Rotary(head_width=64, base=5e5, layout='interleaved')", "True")

        # Labels lead to the controls of their own.
        label = second.locator("label", has_text=re.compile("^Position$")).first
        label.click()
        assert page.evaluate("document.activeElement.dataset.name") == "position"
        assert second.evaluate("widget => widget.contains(document.activeElement)")
        names_are_their_own(page)


def drawn_table(page, widget):
    """The canvas of the table, which is drawn once it is in sight."""
    table = widget.locator("section").nth(VIEWS.index("table")).locator("canvas").first
    table.scroll_into_view_if_needed()

    def check() -> None:
        assert table.evaluate(PIXELS)["other"] > 0.2

    eventually(page, check)
    return table


def test_a_control_s_keys_are_not_the_notebook_s_commands(lab):
    with lab.shown(lab.write("keys.ipynb")) as page:
        first, _ = run_all(page)
        first.locator('select[data-name="layout"]').first.focus()
        for key in "dd":  # which in a notebook deletes the cell
            page.keyboard.press(key)
        slider = first.locator('input[type="range"][data-name="position"]').first
        slider.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+ArrowUp")
        for key in "ab":  # a cell above, a cell below
            page.keyboard.press(key)
        holds(first, "position", 16)
        expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(3)
        assert slider.evaluate("slider => slider === document.activeElement")
        # A chord is the notebook's, wherever one is.
        page.keyboard.press("Control+s")
        eventually(page, lambda: check_saved(saved(lab.root / "keys.ipynb")))


def saved(file: Path) -> dict:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise AssertionError("it is just being written") from error


def check_saved(book: dict) -> None:
    cells = book["cells"]
    assert ["".join(cell["source"]) for cell in cells] == list(CELLS)
    assert all(cell["execution_count"] for cell in cells)
    assert [len(cell["outputs"]) for cell in cells] == [1, 1, 1]


def lightness(colour: str) -> float:
    """The mean of red, green and blue as a browser writes them."""
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_lab_s_theme_is_the_widget_s_whatever_the_system_s_is(lab, system):
    with lab.shown(lab.write(f"{system}.ipynb"), color_scheme=system) as page:
        first, _ = run_all(page)
        table = drawn_table(page, first)

        def looks(paper, ink, between) -> None:
            assert page.locator("body").get_attribute("data-jp-theme-light") == ("true" if paper > ink else "false")
            colours = first.evaluate(
                "widget => [getComputedStyle(widget).backgroundColor, getComputedStyle(widget).color]"
            )
            assert [round(lightness(each)) for each in colours] == [paper, ink]
            assert between[0] < table.evaluate(PIXELS)["light"] < between[1]

        for theme in ("Dark", "Light"):
            page.get_by_role("menuitem", name="Settings", exact=True).click()
            page.locator(".lm-Menu-item", has_text=re.compile("^Theme$")).hover()
            page.locator(".lm-Menu-item", has_text=re.compile(f"^JupyterLab {theme}$")).click()
            page.locator(f'body[data-jp-theme-name="JupyterLab {theme}"]').wait_for(state="attached")
            look = (23, 236, (20, 130)) if theme == "Dark" else (255, 26, (130, 250))
            eventually(page, lambda look=look: looks(*look))


def test_a_saved_notebook_is_shown_again_where_its_state_was_saved(lab):
    file = lab.write("saved.ipynb")
    lab.set("@jupyter-widgets/jupyterlab-manager/plugin", saveState=True)
    with lab.shown(file) as page:
        first, _ = run_all(page)
        put(first, "position", 99)
        prints(page, "first.position, second.position", "99 21")
        choose(page, "File", "docmanager:save")
        eventually(page, lambda: check_state(saved(file)))
    # While the kernel runs, the page is its own again.
    with lab.shown(file) as page:
        holds(page.locator(".clockhands").first, "position", 99)
        prints(page, "first.position", "99")
    for session in lab.ask("sessions"):
        lab.ask(f"sessions/{session['id']}", "DELETE")
    # After that it is what was saved, and can be turned, though no Python follows.
    with lab.shown(file) as page:
        first = page.locator(".clockhands").first
        holds(first, "position", 99)
        assert code(first) == ch.preset("llama3.1")
        put(first, "position", 5)
        clock = first.locator("section").nth(VIEWS.index("clock"))
        expect(clock.locator(".answer")).to_contain_text("At position 5 ")


def check_state(book: dict) -> None:
    assert "widgets" in book["metadata"]
    states = book["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    assert sorted(each["state"]["position"] for each in states if "position" in each["state"]) == [21, 99]
