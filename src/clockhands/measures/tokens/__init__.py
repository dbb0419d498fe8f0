"""Properties of the rows of a code: their size, whether each is unique, steps between neighbours, directions used."""
