"""Positional encodings, exactly: make them, apply them, read them out of a real model."""
