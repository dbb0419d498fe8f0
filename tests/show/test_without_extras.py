"""Without matplotlib and anywidget every name is there, can be looked at, and says what to install when it is used."""

import subprocess
import sys

import pytest

# What is not installed is what nothing can import.
MISSING = (
    "import sys\nfor name in ('matplotlib', 'anywidget', 'traitlets', 'ipywidgets'):\n    sys.modules[name] = None\n"
)


def run(text):
    """What a program prints in an environment without the extras."""
    done = subprocess.run([sys.executable, "-c", MISSING + text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_star_import_and_hasattr_work():
    told = run(
        "import clockhands as ch\n"
        "from clockhands.show import *\n"
        "print(sorted(set(ch.show.__all__) - set(globals())))\n"
        "print(all(hasattr(ch.show, name) for name in dir(ch.show)), hasattr(ch.show, 'histogram'))\n"
    )
    assert told == "[]\nTrue False\n"


def test_help_tells_of_every_name():
    told = run("import clockhands as ch, pydoc\nprint(pydoc.plain(pydoc.render_doc(ch.show)))\nhelp(ch.show.Explorer)")
    for name in ("class Explorer", "heatmap(", "attention("):
        assert name in told
    assert "anywidget is not installed" in told


@pytest.mark.parametrize(
    ("call", "extra"), [("ch.show.Explorer(position=3)", "notebook"), ("ch.show.heatmap(ch.Sinusoidal(8))", "figures")]
)
def test_what_is_used_says_what_to_install(call, extra):
    told = run(
        "import clockhands as ch\nfrom clockhands.errors import InvalidType\n"
        f"try:\n    {call}\nexcept (InvalidType, ImportError) as error:\n    print(type(error).__mro__, error)\n"
    )
    assert "ImportError" in told
    assert "InvalidType" in told
    assert f"pip install 'clockhands[{extra}]'" in told


def test_with_anywidget_it_is_the_widget():
    anywidget = pytest.importorskip("anywidget")
    import clockhands as ch
    from clockhands.show import _widget as widget

    assert issubclass(ch.show.Explorer, anywidget.AnyWidget)
    assert isinstance(ch.show.Explorer(), ch.show.Explorer)
    # Whoever took the name before it was installed gets the widget too.
    assert isinstance(widget.Explorer(position=3), ch.show.Explorer)
    assert ch.show.Explorer.__doc__ == widget.Explorer.__doc__
