"""`module`, which makes the PyTorch module of any position code."""

from typing import Any

import torch

from clockhands.arguments import count
from clockhands.encodings import additive, biases, mixtures, rotary
from clockhands.encodings.protocols import Encoding
from clockhands.encodings.specs import is_own
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.torch._interface import PositionModule, Prepared, PreparedMixture
from clockhands.torch._modules import Additive, Bias, Rotary
from clockhands.torch._own_encodings import OwnEncoding


def module(
    spec: mixtures.LayerCode | mixtures.LayerMixture | Encoding,
    values: Any = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> PositionModule:
    """The module of any position code, all with one interface; see `clockhands.torch.PositionModule`.

    ============================ =========================================
    spec                         module
    ============================ =========================================
    an additive code             `clockhands.torch.Additive`
    a rotary code                `clockhands.torch.Rotary`
    a bias                       `clockhands.torch.Bias`
    `LayerMixture`               `clockhands.torch.Mixture`
    None, `NoPosition`           `clockhands.torch.NoCode`, which does nothing
    an encoding of one's own     `clockhands.torch.OwnEncoding`, see `clockhands.encodings.protocols`
    ============================ =========================================

    Args:
        spec: A position code, a mixture of codes, or None.
        values: Initial values of the parameters; see `clockhands.torch.Additive` and `clockhands.torch.Bias`. For a
            mixture, a list with one entry per code (None for random initialisation).
        device: Device of the parameters.
        dtype: Dtype of the parameters.

    Raises:
        InvalidType: ``spec`` is not a position code.
        InvalidValue: ``values`` do not fit the spec.

    >>> import clockhands as ch
    >>> x = torch.zeros(1, 5, 8)
    >>> for spec in (ch.Sinusoidal(8), ch.Rotary(4), ch.Alibi(heads=2), None):
    ...     code = module(spec)
    ...     mask = code.prepare(5, like=code.embed(x)).mask
    ...     print(type(code).__name__, None if mask is None else list(mask.shape))
    Additive None
    Rotary None
    Bias [1, 2, 5, 5]
    NoCode None
    """
    if isinstance(spec, mixtures.LayerMixture):
        return Mixture(spec, values, device=device, dtype=dtype)
    if isinstance(spec, biases.BiasCode):
        return Bias(spec, values, device=device, dtype=dtype)
    if isinstance(spec, additive.AdditiveCode) and not isinstance(spec, additive.NoPosition):
        return Additive(spec, values, device=device, dtype=dtype)
    if is_own(spec):
        return OwnEncoding([spec]).to(device=device, dtype=dtype)
    if spec is not None and not isinstance(spec, rotary.Rotary | additive.NoPosition):
        raise InvalidType(
            f"`module` takes a position code, a mixture or None, got {type(spec).__name__} {shown(spec)}.",
            f"Write clockhands.preset({shown(spec)})." if isinstance(spec, str) else "Give one of clockhands.specs.",
        )
    if values is not None:
        raise InvalidValue(
            f"{type(spec).__name__} is computed by a formula, so it takes no values.", "Leave `values` out."
        )
    return Rotary(spec) if isinstance(spec, rotary.Rotary) else NoCode(spec)


class NoCode(PositionModule):
    """A module without a position code: it returns its input, has no parameters and an empty state dict.

    Attributes:
        spec: None, or a `clockhands.NoPosition`.

    Raises:
        InvalidType: ``spec`` is something else.

    >>> NoCode()(torch.ones(1, 2, 4)).sum().item()
    8.0
    """

    def __init__(self, spec: additive.NoPosition | None = None) -> None:
        super().__init__()
        if spec is not None and not isinstance(spec, additive.NoPosition):
            raise InvalidType(
                f"`spec` must be None or a NoPosition, got {type(spec).__name__}.",
                "clockhands.torch.module(spec) makes the module of any spec.",
            )
        self.spec = spec

    def extra_repr(self) -> str:
        """The spec, where PyTorch prints the module."""
        return "" if self.spec is None else repr(self.spec)

    def forward(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """``x``, unchanged."""
        return x


class Mixture(PositionModule):
    """A mixture of codes as a module: layers with the same code share one module.

    The state dict holds ``codes.0.…``, ``codes.1.…``, in the order of ``spec.codes``.

    Attributes:
        spec: The mixture.
        codes: The modules of its codes.

    Args:
        spec: A mixture.
        values: None, or a list with one entry for each code.
        device, dtype: Of the parameters.

    Raises:
        InvalidType: ``spec`` is no mixture, or ``values`` no list.
        InvalidValue: ``values`` are not one for each code.

    >>> import clockhands as ch
    >>> mixture = Mixture(ch.mixtures.LayerMixture((ch.Rotary(8), None), pattern=(0, 0, 1)))
    >>> [type(mixture.layer(i)).__name__ for i in range(4)]
    ['Rotary', 'Rotary', 'NoCode', 'Rotary']
    """

    def __init__(
        self,
        spec: mixtures.LayerMixture,
        values: Any = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(spec, mixtures.LayerMixture):
            raise InvalidType(
                f"`spec` must be a LayerMixture, got {type(spec).__name__}.",
                "clockhands.torch.module(spec) makes the module of any spec.",
            )
        values = [None] * len(spec.codes) if values is None else values
        if not isinstance(values, list | tuple):
            raise InvalidType(
                f"`values` of a mixture must be a list, got {type(values).__name__}.", "Give one entry for each code."
            )
        if len(values) != len(spec.codes):
            raise InvalidValue(
                f"`values` must have one entry for each of the {len(spec.codes)} codes, got {len(values)}.",
                "Write None for a code whose values are random at first, or that learns none.",
            )
        self.spec = spec
        made = [module(code, each, device=device, dtype=dtype) for code, each in zip(spec.codes, values, strict=True)]
        self.codes: torch.nn.ModuleList = torch.nn.ModuleList(made)

    def extra_repr(self) -> str:
        """Which layer has which code."""
        return f"pattern={self.spec.pattern}"

    def layer(self, index: int) -> PositionModule:
        """The module of layer ``index``, counted from 0."""
        pattern = self.spec.pattern
        return self.codes[pattern[count("index", index, least=0) % len(pattern)]]  # type: ignore[return-value]

    def embed(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """``x`` [..., seq, width] plus the code of layer 0, if that one is additive; else ``x`` itself.

        The sum enters the residual stream, so the code is added only once, even if later layers have the same code.

        Raises:
            InvalidValue: A later layer has an additive code that layer 0 does not have, so it would never be added.
        """
        pattern = self.spec.pattern
        for index, number in enumerate(pattern):
            code = self.spec.codes[number]
            learns = isinstance(code, additive.AdditiveCode) and not isinstance(code, additive.NoPosition)
            if learns and number != pattern[0]:
                raise InvalidValue(
                    f"Layer {index} has an additive encoding that layer 0 does not have, but `embed` adds only that of "
                    "layer 0.",
                    "In place of code.embed(x), call code.layer(i).embed(x) before each layer where one is added.",
                )
        return self.layer(0).embed(x, positions)

    def prepare(self, queries: Any, keys: Any = None, *, like: torch.Tensor, causal: bool = True) -> PreparedMixture:
        """What attention needs from each code, computed once; ``.layer(i)`` gives that of layer i."""
        made = [code.prepare(queries, keys, like=like, causal=causal) for code in self.codes]  # type: ignore[operator]
        return PreparedMixture(made, self.spec.pattern)

    def forward(self, *_args: Any, **_named: Any) -> Prepared:
        """Raise an error: codes of different kinds are called in different ways.

        Raises:
            InvalidType: Always.
        """
        raise InvalidType(
            "A mixture has no forward: its codes take different inputs.",
            "Use embed, prepare and layer(i), or call layer(i) itself.",
        )
