"""The explorer's figures without a browser: for a notebook, or as SVG, PNG or PDF by ``savefig``.

Each has a question as its heading and the answer below it, with the code's own numbers, and is a matplotlib figure
that belongs to no window. All take ``theme="dark"`` for the other set of colours. They need
``pip install 'clockhands[figures]'``.

>>> from clockhands.additive import Sinusoidal
>>> heatmap(Sinusoidal(width=64), 128).savefig("table.svg")  # doctest: +SKIP
"""

from clockhands.show._figures_of_hands import clock, heatmap, pair, shift
from clockhands.show._figures_of_scores import attention, bias, kernel, ladder, precision

__all__ = ["attention", "bias", "clock", "heatmap", "kernel", "ladder", "pair", "precision", "shift"]
