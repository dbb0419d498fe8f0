"""The explorer's figures without a browser: for a notebook, or as SVG, PNG or PDF by ``savefig``.

Each has a question as its heading and below it the answer with the numbers of the code. It is a matplotlib figure
without a window. All take ``theme="dark"`` for dark colours. They need ``pip install 'clockhands[figures]'``.

>>> from clockhands.encodings.additive import Sinusoidal
>>> heatmap(Sinusoidal(width=64), 128).savefig("table.svg")  # doctest: +SKIP
"""

from clockhands.show._figures_of_hands import clock, heatmap, pair, shift
from clockhands.show._figures_of_scores import attention, bias, kernel, ladder, precision

__all__ = ["attention", "bias", "clock", "heatmap", "kernel", "ladder", "pair", "precision", "shift"]
