"""Whether attention can tell one order of the same words from another, without a position code and with each."""

from clockhands.measures.order.permuting import CodeOrder, OrderMatters, order

__all__ = ["CodeOrder", "OrderMatters", "order"]
