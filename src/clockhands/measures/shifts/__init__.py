"""What a shift of all positions does: the rotation or the best linear map that makes it, and what dot products keep."""
