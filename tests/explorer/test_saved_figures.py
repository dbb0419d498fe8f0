"""Every figure is saved as a picture that stands alone, with the numbers that Python computes."""

import re
import struct
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import clockhands as ch
from browsing import settled
from explorer.facts import fact
from exploring import DRAWN, caption, control, plain, put

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"
PAPER = ch.preset("vaswani2017")
HELD_BY_THE_PAGE = {"class", "style", "tabindex", "role"}  # what means nothing outside of it


def saved(tab, view, kind, folder):
    save = tab.locator(f"#{view} .save")
    if save.get_attribute("open") is None:
        save.locator("summary").click()
    with tab.expect_download() as waiting:
        save.locator("button", has_text=kind).click()
    assert waiting.value.suggested_filename == f"clockhands-{view}.{kind.lower()}"
    place = folder / waiting.value.suggested_filename
    waiting.value.save_as(place)
    return place


def texts_of(root):
    return [plain("".join(each.itertext())) for each in root.iter(f"{SVG}text")]


def box(root):
    return [float(root.get(name)) for name in ("width", "height")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_is_a_file_that_stands_alone(quiet_page, explorer, tmp_path, scheme):
    with quiet_page(explorer, 1280, scheme) as tab:
        assert tab.locator("#model .save:visible").count() == 0  # an empty state has nothing to save
        for view in DRAWN:
            tab.locator(f"#{view} .save").scroll_into_view_if_needed()
            settled(tab)
            shown = [plain(text) for text in tab.locator(f"#{view} .figure svg:not(.swatch) text").all_text_contents()]
            root = ET.parse(saved(tab, view, "SVG", tmp_path)).getroot()
            # Title, answer and every label of the page.
            assert set(shown) <= set(texts_of(root))
            assert texts_of(root)[0] == root.find(f"{SVG}title").text == tab.locator(f"#{view} h2").inner_text()
            assert texts_of(root)[0].endswith("?")
            assert plain(root.find(f"{SVG}desc").text) == caption(tab, view)
            for each in root.iter():
                assert not HELD_BY_THE_PAGE & set(each.attrib)
                assert not [name for name in each.attrib if name.startswith(("on", "aria-", "data-"))]
            images = [each.get("href") for each in root.iter(f"{SVG}image")]
            assert all(image.startswith("data:image/png;base64,") for image in images)
            assert len(images) == tab.locator(f"#{view} .figure canvas:visible").count()
            # The paper is the page's, and no mark is left to a style sheet that is not there.
            paper = root.find(f"{SVG}rect").get("fill")
            assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 600) == (scheme == "light"), paper
            assert len({each.get("fill") for each in root.iter(f"{SVG}text")} - {None}) >= 1
            width, height = struct.unpack(">II", saved(tab, view, "PNG", tmp_path).read_bytes()[16:24])
            assert [width, height] == [pytest.approx(2 * size, abs=2) for size in box(root)]


def test_a_saved_table_holds_the_numbers_of_python(tab, tmp_path):
    """The dots of the picture, read back by their colours: the rows and columns that Python makes."""
    # As many dots as cells: each has the colour of one number.
    put(tab, "table", rowsShown=64, columnsShown=64)
    assert tab.locator("#table canvas.cells.large").count() == 1
    first_row, first_column = (int(control(tab, "table", name).input_value()) for name in ("firstRow", "firstColumn"))
    root = ET.parse(saved(tab, "table", "SVG", tmp_path)).getroot()
    (image,) = [each.get("href") for each in root.iter(f"{SVG}image")]
    columns, rows, held = fact(tab, "pixels", image)
    assert (columns, rows) == (64, 64)
    colours = np.array(held).reshape(rows, columns, 4)
    wanted = ch.table(PAPER, range(first_row, first_row + rows), dtype="float64")[:, first_column:][:, :columns]
    # Purple below zero, green above it, paler towards it: which of the two leads, and how far from neutral a colour is.
    sign = np.sign(colours[..., 1].astype(int) - (colours[..., 0].astype(int) + colours[..., 2]) / 2)
    clear = np.abs(wanted) > 0.1
    assert clear.sum() > 3000
    assert np.array_equal(sign[clear], np.sign(wanted[clear]))
    # Larger numbers are darker, in proportion, on both sides alike.
    lightness = colours[..., :3].sum(axis=-1)
    for side in (wanted > 0, wanted < 0):
        assert np.corrcoef(np.abs(wanted[side]), lightness[side])[0, 1] < -0.995
