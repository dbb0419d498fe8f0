"""Conventions drawn at random, and tables made of them with long doubles: nothing of the library is used.

Not drawn: a ladder that rises, in float64. Its base lies below 1, and a base of float64 says its rates to 2**-53 of
themselves, which is more than four roundings of the table where phases are long.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

# Half a unit in the last place of 1.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True)
class Drawn:
    """A convention and a table of it."""

    seed: int
    pairs: int
    base: float
    span: str
    layout: str
    order: str
    odd: str
    start: float
    step: float
    scale: float
    dtype: str
    rows: int
    rising: bool
    zeroed: int | None
    prepended: int

    @property
    def hands(self):
        """Pairs, with one that may lack its second channel."""
        return self.pairs + (self.odd in ("extra", "cut"))

    @property
    def rates(self):
        """Radians per token, long doubles."""
        channels = {"extra": 2 * self.pairs + 1, "cut": 2 * self.pairs + 2}.get(self.odd, 2 * self.pairs)
        den = np.longdouble(channels) / 2 if self.span == "open" else np.longdouble(channels // 2 - 1)
        rates = np.exp(-np.log(np.longdouble(self.base)) * np.arange(self.hands, dtype=np.longdouble) / den)
        return rates[::-1] if self.rising else rates

    @property
    def positions(self):
        """Where the rows stand, float64."""
        return self.start + self.step * np.arange(self.rows)

    def table(self):
        """The table, rounded once to the dtype (bfloat16 by way of float64)."""
        phases = np.multiply.outer(self.positions.astype(np.longdouble), self.rates)
        waves = [np.sin(phases), np.cos(phases)]
        first, second = waves if self.order == "sin-cos" else waves[::-1]
        if self.layout == "interleaved":
            table = np.stack([first, second], axis=-1).reshape(self.rows, -1)
        else:
            table = np.concatenate([first, second], axis=1)
        if self.odd in ("extra", "cut"):
            table = table[:, :-1]
        if self.odd == "zero":
            table = np.concatenate([table, np.zeros((self.rows, 1), table.dtype)], axis=1)
        table = table * np.longdouble(self.scale)
        if self.zeroed is not None:
            table[self.zeroed] = 0
        table = np.concatenate([np.zeros((self.prepended, table.shape[1]), table.dtype), table])
        kind = np.dtype(ml_dtypes.bfloat16) if self.dtype == "bfloat16" else np.dtype(self.dtype)
        return table.astype(np.float64).astype(kind)


def drawn(seed):
    """One convention: 4 to 256 pairs, base 20 to 10**7, start -50 to 50, step 0.1 to 4 either way, 24 to 2,000 rows."""
    rng = np.random.default_rng([2026, seed])

    def log(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    dtype = str(rng.choice(list(ROUNDING)))
    rows = round(log(24, 2000))
    way = rng.random()
    return Drawn(
        seed=seed,
        pairs=round(log(4, 256)),
        base=log(20, 1e7),
        span=str(rng.choice(["open", "closed"])),
        layout=str(rng.choice(["interleaved", "halves"])),
        order=str(rng.choice(["sin-cos", "cos-sin"])),
        odd=str(rng.choice(["even", "even", "zero", "extra", "cut"])),
        start=float(rng.uniform(-50, 50)) if rng.random() < 0.5 else float(rng.integers(-50, 51)),
        step=(log(0.1, 4) if rng.random() < 0.6 else float(rng.integers(1, 5))) * (-1 if rng.random() < 0.2 else 1),
        scale=1.0 if rng.random() < 0.4 else log(0.02, 30),
        dtype=dtype,
        rows=rows,
        rising=dtype != "float64" and rng.random() < 0.15,
        zeroed=int(rng.integers(0, rows)) if 0.1 < way < 0.2 else None,
        prepended=int(rng.integers(1, 4)) if way < 0.1 else 0,
    )
