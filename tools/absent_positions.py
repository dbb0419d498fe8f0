"""Classes whose code does not speak of positions: no name in it is about them."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator

from class_sources import own_classes, source_of
from clockhands.models.class_modules import PositionModules, modeling_code

# Words of names that are about positions.
_ABOUT = {
    *("pos", "position", "positions", "positional", "sin", "cos", "sine", "sinusoidal", "sinusoids", "fourier"),
    *(
        "rope",
        "rotary",
        "rot",
        "rotate",
        "rel",
        "relative",
        "alibi",
        "slope",
        "slopes",
        "biases",
        "coords",
        "coordinates",
    ),
}
# Names of what every model has; these say where tokens are, and are used by what is named otherwise.
_OF_ALL = {"position_ids", "cache_position", "max_position_embeddings"}

# Classes that treat each token alone.
_ALONE = re.compile(r"MLP|Expert|Router|Norm")


def position_names(found: PositionModules) -> set[str]:
    """The names about positions in the code of the modules of a model, but for what it is given from outside."""
    kinds = {kind for own in own_classes(found) if not _ALONE.search(own.__name__) for kind in own.__mro__}
    code = modeling_code(found.config)
    functions = dict(inspect.getmembers(code, inspect.isfunction))
    waiting = [source_of(kind) for kind in kinds if kind.__module__ == code.__name__]
    done, names = set(), set()
    while waiting:
        source = waiting.pop()
        if source not in done:
            done.add(source)
            called = set(_names(ast.parse(textwrap.dedent(source))))
            waiting += [source_of(functions[name]) for name in called & functions.keys()]
            names |= called
    given = inspect.signature(found.model.forward).parameters.keys()
    return {name for name in names - given - _OF_ALL if _words(name) & _ABOUT}


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name)}


def _names(node: ast.AST) -> Iterator[str]:
    """The names in some code, without those in decorators, which are of other implementations."""
    for each in ast.iter_child_nodes(node):
        if each not in getattr(node, "decorator_list", ()):
            named = (getattr(each, key, None) for key in ("id", "attr", "arg"))
            yield from (name for name in named if isinstance(name, str))
            yield from _names(each)
