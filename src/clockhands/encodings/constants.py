"""Objects from which PyTorch's compiler takes constants: it knows them by their identity, and passes on a number.

The compilers of PyTorch 2.5 to 2.11 cannot pass a frozen dataclass to a function that they run while they compile. They
can run a method of the object, and take ``id(object)`` as a number that is compared before each later run. So the
method `Source._enrol` notes the object under that number, and `enrolled` finds it again.
"""

from typing import Any
from weakref import WeakValueDictionary

_ENROLLED: WeakValueDictionary[int, Any] = WeakValueDictionary()


class Source:
    """Base class of the objects from which constants of a graph are computed: specs, ladders and grids."""

    def _enrol(self) -> bool:
        """Make `enrolled` find this object for as long as it lives."""
        _ENROLLED[id(self)] = self
        return True


def enrolled(number: int) -> Any:
    """The object whose ``id`` is this number, after its `Source._enrol`."""
    return _ENROLLED[number]
