"""Position encodings: the exact arithmetic, from rates and positions to tables, rotations and biases."""
