"""Properties of attention biases: their size, how far a head sees, bucket edges, and which distances are equal."""
