"""Loaded and running models: the position data that they hold and compute, and what it is declared to be."""
