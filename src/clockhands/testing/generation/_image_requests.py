"""Requests with an image to a model of Transformers, whose own `get_rope_index` numbers their tokens."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.models.opened_modules import token_numbering
from clockhands.testing._experiments import Unasked
from clockhands.testing.generation._causal_models import CausalModel, TransformersModel
from clockhands.testing.generation.texts import GenerationSubject

_BEFORE = 2  # tokens of the text before the image


@dataclass(frozen=True)
class ImageRequest:
    """A text with an image in it.

    Attributes:
        tokens: [1, tokens].
        start: Those of the first call, which hold the image.
        model: The model, which is given the image with the first call of the text.
    """

    tokens: np.ndarray
    start: int
    model: TransformersModel


def takes_images(model: CausalModel) -> bool:
    """Whether images move the positions of what follows."""
    return isinstance(model, TransformersModel) and token_numbering(model.model) is not None


def image_requests(it: GenerationSubject) -> list[ImageRequest]:
    """Texts with images of two sizes.

    Raises:
        Unasked: No small image is known that the model takes.
    """
    from clockhands.models.tower_inputs import images, other_image, takes_any

    if not isinstance(it.model, TransformersModel):
        raise Unasked("single passes say nothing of images")
    module, config = it.model.model, it.model.model.config
    numbering = token_numbering(module)
    sized = [part for part in module.modules() if hasattr(part, "config") and takes_any(part, ("grid_thw",))]
    image = getattr(config, "image_token_id", None)
    if not sized or image is None or numbering is None:
        raise Unasked("no small image is known that it takes")
    small = next(images(sized[0], [], of_any_size=True))
    assert small.image is not None
    start = getattr(config, "vision_start_token_id", None)
    special = [value for name, value in vars(config).items() if name.endswith("token_id") and value is not None]
    ordinary = next(token for token in range(it.model.vocabulary) if token not in special)
    made = []
    for given, text in zip((small, other_image(sized[0], small.image)), it.texts, strict=False):
        pixels, grid = given.given(0).values()
        assert given.image is not None
        cells = [image] * (given.image.rows * given.image.columns // given.image.block**2)
        plain = np.where(np.isin(text, special), ordinary, text)
        tokens = np.array([[*plain[:_BEFORE], *([] if start is None else [start]), *cells, *plain[_BEFORE:]]])
        ids = it.model.library.positions(tokens)
        about = {"image_grid_thw": grid, "mm_token_type_ids": (ids == image).long()}
        positions, _ = numbering.call(input_ids=ids, **_taken(numbering.call, about))
        first = {"pixel_values": pixels, **_taken(module.forward, about)}
        model = replace(it.model, first_call=first, numbering=positions.cpu().numpy())
        made.append(ImageRequest(tokens, tokens.shape[1] - len(text) + _BEFORE + 1, model))
    return made


def _taken(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in inspect.signature(function).parameters}
