"""Frames per second of the explorer's page while something is dragged, in headless Chromium, by a real mouse.

Width 512 and 2,048 positions, all of them in the table: about as much as the page is meant to keep up with. A frame
counts where the state changed in it, and lasts until the next one begins; frames in which the mouse only waits do not
count. Main-thread time is processor time, so other work on this machine lengthens frames but hardly that.
"""

import asyncio
import json
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from timing import Target, say_free_cores

from clockhands.auditing import audit
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
LEAST = 30.0  # frames per second, to be exceeded
START = "code=vaswani2017&width=512&base=10000&length=2048&served=8192&position=100"
WHOLE, PART = f"{START}&rowsShown=2048", f"{START}&rowsShown=256&columnsShown=256&firstRow=900&firstColumn=128"
LAYOUTS = {  # CSS pixels, and dots of the screen in each
    "phone": (360, 780, 2),
    "wide": (1440, 900, 1),
    "wide, fine screen": (1440, 900, 2),
}
MOVES, WAITING = 125, 4  # a second, as a mouse sends them, and how many the page may be behind
ENOUGH, PATIENCE = 30, 10.0  # frames that tell something, and seconds to wait for them
SETTLED = 600  # ms in which views out of sight follow before anything is measured
DEEP = {  # a model for the slider of layers
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "num_attention_heads": 2,
    "head_dim": 256,
    "num_hidden_layers": 128,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}

# The name in the contents of the view that something is in.
_VIEW_OF = """place => {
  const view = place.closest("section")?.id;
  return view ? document.querySelector(`.contents a[href="#${view}"]`).textContent : "all views";
}"""

# When each frame began, and whether any slider came to say something else in it.
_WATCH = """
() => {
  const held = { times: [], changed: [], running: true };
  const onward = () => {
    if (!held.running) return;
    held.times.push(performance.now());
    held.changed.push(false);
    requestAnimationFrame(onward);
  };
  const says = (slider) => slider.getAttribute("aria-valuetext");
  const watcher = new MutationObserver((records) => {
    if (!held.times.length || records.every((each) => each.oldValue === says(each.target))) return;
    held.changed[held.changed.length - 1] = true;
  });
  for (const slider of document.querySelectorAll("input[type=range]")) {
    watcher.observe(slider, { attributes: true, attributeFilter: ["aria-valuetext"], attributeOldValue: true });
  }
  globalThis.countWatched = () => held.changed.filter(Boolean).length;
  globalThis.endWatch = () => {
    held.running = false;
    watcher.disconnect();
    return [held.times, held.changed];
  };
  requestAnimationFrame(onward);
}
"""

Way = Callable[[int, dict], tuple[float, float]]  # where the mouse is at a step, on something with such a box


@dataclass(frozen=True)
class Dragged:
    """What one drag came to.

    Attributes:
        layout, what: Which page, and what was moved on it.
        frames: How many frames the state changed in.
        median: Frames per second, by the median of their lengths.
        slowest: The same of the slowest tenth of them, by its mean.
        busy: Milliseconds of main-thread time a frame.
    """

    layout: str
    what: str
    frames: int
    median: float
    slowest: float
    busy: float


def frames(seconds: float, show: Console) -> tuple[list[dict], list[Target]]:
    """Every slider dragged for so long, and a hand, the table and the clock's play, in each layout."""
    try:
        import playwright.async_api as api
    except ImportError:
        show.print("frames: left out, since playwright is not installed (it comes with the extra bench)")
        return [], []
    if (binary := shutil.which("chromium")) is None:
        show.print("frames: left out, since there is no Chromium on the path as 'chromium'")
        return [], []

    async def everything(file: Path) -> list[Dragged]:
        found: list[Dragged] = []
        async with api.async_playwright() as started:
            browser = await started.chromium.launch(executable_path=binary, args=list(FLAGS))
            for layout in LAYOUTS:
                say_free_cores(show)
                here = [each async for each in drags(browser, file, layout, seconds)]
                draw(show, here, layout)
                found += here
            await browser.close()
        return found

    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(everything(explorer_page(Path(folder))))
    return [asdict(each) for each in found], [target for layout in LAYOUTS for target in targets(layout, found)]


def targets(layout: str, found: list[Dragged]) -> Iterator[Target]:
    here = [each for each in found if each.layout == layout]
    for name, speed in (("median", lambda each: each.median), ("slowest tenth", lambda each: each.slowest)):
        worst = min(here, key=speed)
        what = f"explorer, {layout}: frames per second, {name}, of the slowest ({worst.what})"
        yield Target(what, speed(worst), LEAST, "fps", more=True)


def draw(show: Console, rows: list[Dragged], title: str) -> None:
    width, _, dots = LAYOUTS[title]
    drawn = Table(title=f"{title}: {width} px, {dots} dots a pixel, 512 x 2,048", title_justify="left")
    drawn.add_column("dragged")
    for column in ("frames", "per second", "slowest tenth", "main thread, ms", "target"):
        drawn.add_column(column, justify="right")
    for row in rows:
        met = row.median > LEAST and row.slowest > LEAST
        drawn.add_row(
            row.what,
            str(row.frames),
            f"{row.median:.0f}",
            f"{row.slowest:.0f}",
            f"{row.busy:.1f}",
            f"> {LEAST:.0f}" if met else f"[red]> {LEAST:.0f}[/red]",
        )
    show.print(drawn)


def explorer_page(folder: Path) -> Path:
    """The page with a deep model on it, as a file."""
    (folder / "deep.json").write_text(json.dumps(DEEP), encoding="utf-8")
    file = folder / "explorer.html"
    file.write_text(page(data([audit(folder / "deep.json")])), encoding="utf-8")
    return file


async def drags(browser: Any, file: Path, layout: str, seconds: float) -> AsyncIterator[Dragged]:
    """Drag what a layout has, one after another, each from the same state."""
    width, height, dots = LAYOUTS[layout]
    tab = await browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=dots)
    session = await tab.context.new_cdp_session(tab)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def measured(what: str, place: Any, state: str, path: Way | None, press: bool = True) -> Dragged:
        await tab.evaluate("state => { location.hash = state; }", state)
        await place.scroll_into_view_if_needed()
        await tab.wait_for_timeout(SETTLED)
        if path is None:
            await place.click()
            found = await watched(tab, session, seconds, None)
            await place.click()
        else:
            box = await place.bounding_box()
            await tab.mouse.move(*path(0, box))
            if press:
                await tab.mouse.down()
            found = await watched(tab, session, seconds, lambda step: path(step, box))
            await tab.mouse.up()
        return dragged(layout, f"{await place.evaluate(_VIEW_OF)}: {what}", *found)

    seen: set[tuple[str, str]] = set()
    for state in (WHOLE, PART):
        await tab.goto("about:blank")
        await tab.goto(f"{file.as_uri()}#{state}")
        await tab.wait_for_timeout(2 * SETTLED)
        for slider in await tab.locator("input[type=range]").all():
            view = await slider.evaluate(_VIEW_OF)
            name = await slider.get_attribute("data-name")
            # What the table's window hides while it shows all is dragged where it shows a part.
            if (view, name) in seen or not await slider.is_visible():
                continue
            seen.add((view, name))
            span = await slider.evaluate("slider => [slider.min, slider.max, slider.step].map(Number)")
            yield await measured(name, slider, state, along(span))
        canvas = tab.locator("#table canvas")
        if state == WHOLE:
            yield await measured("cells pointed at", canvas, state, around, press=False)
            yield await measured("a hand", tab.locator("#clock .hand .face").nth(2), state, turning)
            yield await measured("play", tab.locator("#clock button[aria-pressed]"), f"{state}&speed=512", None)
        else:
            yield await measured("moved under the mouse", canvas, state, around)
    await tab.close()


def along(span: list[float]) -> Way:
    """To and fro on a slider, once a second; each step is at least one of its values."""
    least, most, by = span
    values = (most - least) / by if by > 0 else math.inf
    share = max(2 / MOVES, 1.02 / max(values, 1))

    def place(step: int, box: dict) -> tuple[float, float]:
        part = abs((0.5 + step * share + 1) % 2 - 1)
        return box["x"] + 8 + (box["width"] - 16) * part, box["y"] + box["height"] / 2

    return place


def around(step: int, box: dict) -> tuple[float, float]:
    """Round the middle of something."""
    angle = step * math.tau / MOVES
    return (
        box["x"] + box["width"] * (0.5 + 0.4 * math.cos(angle)),
        box["y"] + box["height"] * (0.5 + 0.4 * math.sin(angle)),
    )


def turning(step: int, box: dict) -> tuple[float, float]:
    """Along a clock's edge."""
    angle, radius = step * math.tau / MOVES, 0.45 * box["width"]
    return (
        box["x"] + box["width"] / 2 + radius * math.cos(angle),
        box["y"] + box["height"] / 2 - radius * math.sin(angle),
    )


async def watched(
    tab: Any, session: Any, seconds: float, place: Callable[[int], tuple[float, float]] | None
) -> tuple[list[float], list[bool], float]:
    """Move the mouse for so long: when frames began, which of them changed the state, seconds of main-thread time."""

    async def used() -> float:
        told = (await session.send("Performance.getMetrics"))["metrics"]
        return next(each["value"] for each in told if each["name"] == "TaskDuration")

    await tab.evaluate(_WATCH)
    before, start = await used(), time.monotonic()
    moves: set[asyncio.Task] = set()
    step = 0
    while (now := time.monotonic()) < start + seconds or (
        # A machine that is busy with something else takes longer to show as much.
        now < start + PATIENCE and await tab.evaluate("countWatched()") < ENOUGH
    ):
        step += 1
        if place:
            moves.add(asyncio.create_task(tab.mouse.move(*place(step))))
        await asyncio.sleep(max(0.0, start + step / MOVES - time.monotonic()))
        if len(moves) >= WAITING:
            _, moves = await asyncio.wait(moves, return_when=asyncio.FIRST_COMPLETED)
    if moves:
        await asyncio.wait(moves)
    busy = await used() - before
    times, changed = await tab.evaluate("endWatch()")
    return times, changed, busy


def dragged(layout: str, what: str, times: list[float], changed: list[bool], busy: float) -> Dragged:
    """Frames a second of the frames that changed something; each lasts until the next one begins."""
    lengths = [after - start for start, after, counts in zip(times, times[1:], changed, strict=False) if counts]
    if len(lengths) < 5:
        raise RuntimeError(f"{layout}, {what}: the state changed in {len(lengths)} frames only; nothing was dragged")
    slow = sorted(lengths)[-math.ceil(len(lengths) / 10) :]
    fps = [1e3 / statistics.median(lengths), 1e3 / statistics.mean(slow)]
    return Dragged(layout, what, len(lengths), *fps, 1e3 * busy / len(lengths))
