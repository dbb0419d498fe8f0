"""The explorer's page in a browser: what it says as plain numbers, its fields and its address."""

import re
from pathlib import Path
from typing import Any

import pytest

from browsing import eventually, settled
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page

VIEWS = (
    "attention", "naive", "pair", "clock", "spacing", "table", "formula", "shift", "lookback", "distance", "scores",
    "added", "precision", "ladder", "bias", "model", "difference",
)  # fmt: skip
DRAWN = tuple(view for view in VIEWS if view != "model")  # the views with a figure on a page without a model
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
EXPONENTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


@pytest.fixture(scope="module")
def explorer(tmp_path_factory) -> Path:
    """The page without a model, as a file."""
    file = tmp_path_factory.mktemp("explorer") / "explorer.html"
    file.write_text(page(data()), encoding="utf-8")
    return file


def plain(text: str) -> str:
    """Without the thin spaces, the true minus sign and the powers of ten that pages are set in."""
    narrow = re.sub("[\u2009\u202f\u2060\xa0]", "", text).replace("\u2212", "-")
    return re.sub("·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: f"e{power[1].translate(EXPONENTS)}", narrow)


def caption(tab: Any, view: str) -> str:
    return plain(tab.locator(f"#{view} .answer").inner_text())


def says(tab: Any, where: str, pattern: str, *wanted: float, rel: float = 6e-4) -> None:
    """The first place of a selector, or a view's caption, has the words; each # is the number wanted."""
    place = tab.locator(f"#{where} .answer" if where in VIEWS else where).first

    def check() -> None:
        text = plain(place.text_content())
        found = re.search(pattern.replace("#", NUMBER), text)
        assert found, f"{pattern!r} is not in: {text}"
        assert [float(each) for each in found.groups()] == pytest.approx(list(wanted), rel=rel, abs=1e-12), text

    eventually(tab, check)


def control(tab: Any, where: str, name: str) -> Any:
    """A field or a list, in a view or in what all share."""
    inside = ".common" if where == "common" else f"#{where}"
    return tab.locator(f'{inside} input[type="number"][data-name="{name}"], {inside} select[data-name="{name}"]').first


def put(tab: Any, where: str, **values: float | str) -> None:
    """Type numbers and choose words, as a person does, who waits until all views have followed."""
    for name, value in values.items():
        held = control(tab, where, name)
        if held.evaluate("field => field.localName") == "select":
            held.select_option(str(value))
        else:
            held.fill(str(value))
            held.press("Enter")
        settled(tab)


def follow(tab: Any, address: str) -> None:
    """Type another address of the same page, and wait until all views have followed."""
    tab.evaluate(
        "address => new Promise((done) => { const before = location.href; location.hash = address;"
        " if (location.href === before) done(); else addEventListener('hashchange', () => done(), { once: true }); })",
        address,
    )
    settled(tab)


def resize(tab: Any, width: int, height: int) -> None:
    """Make the window as large as this, and wait until the page fills it."""
    tab.set_viewport_size({"width": width, "height": height})

    def check() -> None:
        assert tab.evaluate("[innerWidth, innerHeight]") == [width, height]

    eventually(tab, check)
    settled(tab)


def holds(tab: Any, where: str, name: str, value: float | str) -> None:
    def check() -> None:
        held = control(tab, where, name).input_value()
        assert held == str(value) or (not isinstance(value, str) and float(held) == pytest.approx(value, rel=1e-9)), (
            held
        )

    eventually(tab, check)
