"""Oracles: the same numbers by other ways, and numbers that others published. Each must be able to fail."""
