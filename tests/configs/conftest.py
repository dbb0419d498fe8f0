"""The library whose classes configs are held to."""

import pytest


@pytest.fixture(scope="session")
def library():
    """Transformers with PyTorch, which says nothing of the configs that it reads."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    return transformers
