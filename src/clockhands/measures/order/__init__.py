"""Tests whether attention can distinguish two orders of the same words, without a position code and with each kind."""

from clockhands.measures.order.permuting import CodeOrder, OrderMatters, order

__all__ = ["CodeOrder", "OrderMatters", "order"]
