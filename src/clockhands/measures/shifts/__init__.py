"""Properties under a shift of all positions: the rotation or best linear map that performs it, and dot products."""
