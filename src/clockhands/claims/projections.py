"""Claims about adding a code to a token, and about what projections make of it."""
