"""Properties of the frequencies alone: full rotations, wavelengths, valid bases for a length, rounding of angles."""
