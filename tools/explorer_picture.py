"""Make docs/pictures/explorer.png and its dark twin: the page of `clockhands explore`, for the README.

Run it after the page has changed its looks. It needs Chromium, Playwright as the tests of pages do, and Pillow. Letters
differ from one system to another, so no test compares pixels: a picture holds the words that it shows as its
description, and a slow test compares these with the page.
"""

import argparse
import io
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
STATE = "#only=pair,clock&position=100&pair=4"
WIDE, TALL = 900, 1000  # CSS pixels of the window: little is made smaller where a README has 880
SHOWN = 1200  # dots across: a README has 880 CSS pixels for it, of which a fine screen makes more
LAST = "#clock"  # the view whose end is the end of the picture
COLOURS = 224
LARGEST = 250_000  # bytes


def words(tab) -> str:
    """What the views of a page say, in the order of the page."""
    written = tab.locator("#explorer section :is(h2, p, dt, dd, th, td, text)")
    return " ".join(" ".join(written.all_text_contents()).split())


def picture(browser, file: Path, theme: str) -> bytes:
    """The page down to its last view to be shown, as a PNG of few colours."""
    tab = browser.new_page(
        viewport={"width": WIDE, "height": TALL},
        device_scale_factor=2,
        color_scheme=theme,
        reduced_motion="reduce",
    )
    tab.goto(file.as_uri() + STATE)
    tab.locator("#clock .answer:not(:empty)").wait_for()
    tab.evaluate("document.fonts.ready")
    tab.wait_for_timeout(1000)
    end = tab.locator(LAST).bounding_box()
    whole = {"x": 0, "y": 0, "width": WIDE, "height": end["y"] + end["height"]}
    taken = Image.open(io.BytesIO(tab.screenshot(full_page=True, clip=whole))).convert("RGB")
    shown = PngInfo()
    shown.add_itxt("Description", words(tab), zip=True)
    tab.close()
    taken = taken.resize((SHOWN, round(taken.height * SHOWN / taken.width)), Image.Resampling.LANCZOS)
    held = io.BytesIO()
    # The rarest colours count as much as the rest; without dither what is flat stays so, and the file small.
    taken.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE).save(
        held, "PNG", optimize=True, pnginfo=shown
    )
    return held.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    too_large = []
    with TemporaryDirectory() as place, sync_playwright() as started:
        file = Path(place, "explorer.html")
        file.write_text(page(data()), encoding="utf-8")
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for theme, name in (("light", "explorer.png"), ("dark", "explorer-dark.png")):
            drawn = picture(browser, file, theme)
            (folder / name).write_bytes(drawn)
            sys.stdout.write(f"{folder / name}: {len(drawn):,} bytes\n")
            if len(drawn) > LARGEST:
                too_large.append(name)
        browser.close()
    if too_large:
        sys.stderr.write(f"more than {LARGEST:,} bytes: {', '.join(too_large)}\n")
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())
