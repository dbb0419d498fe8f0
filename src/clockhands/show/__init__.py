"""Show what was judged: nothing here computes, everything here draws."""
