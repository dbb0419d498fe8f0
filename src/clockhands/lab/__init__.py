"""The lab: train small models with each position code, and compare them."""
