"""Usual names of what functions and models are given, and which argument each of them means."""

from clockhands.packaged import packaged


def usual_names(quantity: str) -> tuple[str, ...]:
    """The other usual names of what may be given."""
    names = packaged(__file__, "usual_names.toml")[quantity]
    return (names, *usual_names(names)) if isinstance(names, str) else tuple(names)


def meanings(*quantities: str) -> dict[str, str]:
    """The quantity that each name means, of those that a check gives; of two with one name, the first.

    >>> meanings("rank", "ranks")
    {'rank': 'rank', 'ranks': 'ranks', 'cp_rank': 'rank', 'sp_rank': 'rank', 'cp_size': 'ranks', 'sp_size': 'ranks'}
    """
    found = {quantity: quantity for quantity in quantities}
    for quantity in quantities:
        for name in usual_names(quantity):
            found.setdefault(name, quantity)
    return found
