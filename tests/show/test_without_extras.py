"""Without anywidget every name is there, can be looked at, and says what to install when it is used."""

import subprocess
import sys

import pytest

# What is not installed is what nothing can import; what is used says what to install, as an error of either kind.
PROGRAM = """
import sys
for name in ("anywidget", "traitlets", "ipywidgets"):
    sys.modules[name] = None
import pydoc
import clockhands as ch
from clockhands.errors import InvalidType
from clockhands.show import *
print(sorted(set(ch.show.__all__) - set(globals())))
print(all(hasattr(ch.show, name) for name in dir(ch.show)), hasattr(ch.show, "histogram"))
try:
    ch.show.Explorer(position=3)
except (InvalidType, ImportError) as error:
    print(isinstance(error, InvalidType), isinstance(error, ImportError), error)
print(pydoc.plain(pydoc.render_doc(ch.show)))
help(ch.show.Explorer)
"""


def test_every_name_is_there_and_says_what_to_install_when_it_is_used():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lost, there, explorer, *_ = done.stdout.splitlines()
    assert (lost, there) == ("[]", "True False")
    assert explorer.startswith("True True ")
    assert done.stdout.count("True True ") == 1
    for words in ("pip install 'clockhands[notebook]'", "class Explorer", "anywidget is not installed"):
        assert words in done.stdout


def test_with_anywidget_it_is_the_widget():
    anywidget = pytest.importorskip("anywidget")
    import clockhands as ch
    from clockhands.show import _widget as widget

    assert issubclass(ch.show.Explorer, anywidget.AnyWidget)
    assert isinstance(ch.show.Explorer(), ch.show.Explorer)
    # Whoever took the name before it was installed gets the widget too.
    assert isinstance(widget.Explorer(position=3), ch.show.Explorer)
    assert ch.show.Explorer.__doc__ == widget.Explorer.__doc__
