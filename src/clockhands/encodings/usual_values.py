"""Usual values of published models and of implementations: bases, factors, lengths and units, as they are tried."""

import math

# Bases of published models: if a ladder has several descriptions, these come first.
USUAL_BASES = (1e4, 5e5, 1e6, 1e5, 1.5e5, 1.6e5, 5e6, 1e7, 1e8, 1e2, 2.5e5, 8e6, 1.1e7)
# Bases of tables of positions, the usual one first.
TABLE_BASES = (1e4, 5e5, 1e6, 20.0, 100.0, 1000.0)
# Bases that a wrong implementation may have.
ROTARY_BASES = (1e2, 1e3, 1e4, 2.5e4, 5e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6, 1.5e6, 2e6, 5e6, 8e6, 1e7)
ADDITIVE_BASES = (1e2, 1e3, 1e4, 1e5, 5e5, 1e6)

# Factors of scalings, and the context lengths that they extend.
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0)
YARN_FACTORS = (*FACTORS, 128.0)
ORIGINAL_LENGTHS = tuple(2**power for power in range(9, 21))

# Wrong units of positions: rotations instead of radians, thousandths of steps, pixels instead of half pixels.
UNITS = (2 * math.pi, math.pi, 1 / (2 * math.pi), 1 / math.pi, 2.0, 0.5, 1000.0, 0.001)
# Rows of a table that is built anew for a longer call.
FIRST_TABLES = (512, 1024, 2048, 4096, 8192)
# Numbers of buckets, and the distances at which they end.
BUCKETS = (8, 16, 32, 64, 128, 256, 320, 512, 800, 1024)
# The largest distances of a table of distances.
LAST_DISTANCES = tuple(2**power - less for power in range(4, 14) for less in (0, 1))
