"""What follows from the rates alone: turns, wavelengths, the base that a length needs, and how angles are rounded."""
