"""Claims that only training can decide: what the lab's studies measured on trained models."""

import math

from clockhands.measures.claims.claim import Numbers, claim


@claim("counter-harms-training")
def counter_harms_training() -> Numbers:
    """The loss of guessing one of 32 tokens."""
    return {"loss_of_copies_by_guessing": math.log(32)}
