"""Probes: what a trained model does with its positions, measured on the running model."""
