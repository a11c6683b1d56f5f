"""What contenders compute, the numbers they are checked with, and what a contender is.

The block: S mix sites read the same N finished blocks and a partial sum that grows by one
sublayer's output a site. Sublayers are identities, so that nothing but the mixing is measured:

    p = none;  x = first                         # the output of the block's first sublayer
    for s in 0 .. S-1:
        p = x  if p is none  else  p + x         # rounded to dtype
        x = mix_s(bank[0 .. N-1], p)             # [T, D], rounded to dtype

with mix_s as in docs/models.md at its defaults: logits query . (RMSNorm(v) * key_gain), softmax
over the N + 1 sources, their weighted sum, RMSNorm * output_gain. One phase or two is a contender's
own business: the result is the same.
"""

import dataclasses
import functools
import os
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/model"))
import reference as ref

EPS = 1e-5
CHECKED_ROWS = 64
# Of the last site's x, S sites deep. Rounding to bf16 inside a site is a contender's choice, as it
# is its user's.
BOUND = {"f32": 1e-5, "f16": 4e-3, "bf16": 2.5e-2}


@dataclasses.dataclass
class Problem:
    """Sizes and inputs. Arrays are f32 and hold what dtype can; parameters are f32 to all
    contenders.
    """

    dtype: str = "bf16"
    rows: int = 1024  # T
    hidden: int = 2048  # D
    bank_rows: int = 8  # N
    sites: int = 16  # S
    threads: int = 2
    tuning_seconds: float = 60

    def __post_init__(self):
        generator = np.random.default_rng(1)

        def normal(*shape):
            return generator.standard_normal(shape, np.float32)

        self.bank = self.rounded(normal(self.bank_rows, self.rows, self.hidden))  # [N, T, D]
        self.first = self.rounded(normal(self.rows, self.hidden))  # [T, D]
        self.query = normal(self.sites, self.hidden) * np.float32(self.hidden**-0.5)  # [S, D]
        self.key_gain = 1 + normal(self.sites, self.hidden) / 10  # [S, D]
        self.output_gain = 1 + normal(self.sites, self.hidden) / 10  # [S, D]

    def rounded(self, x):
        return np.stack([ref.round_to(row, self.dtype).astype(np.float32) for row in x])

    def description(self):
        """A model whose last block this is: its sites are the last S, and N - 1 blocks and the
        embedding precede.

        A host gets that bank by giving row n as the output of block n's first sublayer, and zeros
        for its others.
        """
        return {
            "schema": 1,
            "name": "peers",
            "hidden": self.hidden,
            "sublayers": self.bank_rows * self.sites,
            "blocks": {"size": self.sites},
            "dtype": self.dtype,
            "eps": EPS,
        }

    @functools.cached_property
    def checked(self):
        """Rows that are compared with `expected`."""
        return np.unique(np.linspace(0, self.rows - 1, CHECKED_ROWS).astype(int))

    @functools.cached_property
    def expected(self):
        """x [rows checked, D] of the last site, in f64 and one phase."""
        model = ref.load(self.description())
        bank = list(self.bank[:, self.checked].astype(np.float64))
        x, p = self.first[self.checked].astype(np.float64), None
        for i, site in enumerate(model.sites()[-self.sites :]):
            names = {
                "query": self.query,
                "key_gain": self.key_gain,
                "output_gain": self.output_gain,
            }
            own = {f"{k}_{site.number}": v[i].astype(np.float64) for k, v in names.items()}
            p = x if p is None else ref.round_to(p + x, self.dtype)
            h, _ = ref.mix(model, own, site, bank + [p])
            _, x = ref.finish(model, own, site, h, p)
        return x

    def error_of(self, x):
        """The relative error of a contender's x [T, D]."""
        return ref.error(np.asarray(x, np.float32)[self.checked], self.expected)


class Contender:
    """One way to compute the block. Import what it needs in prepare(), so that a missing package is
    its own matter.
    """

    name = ""  # as in the table
    form = ""  # "one phase" or "two phases"
    note = ""  # what the table should say about this run, such as "96 trials in 60 s"

    def prepare(self, problem):
        """Takes the inputs over, in the layout it likes, compiles and tunes. Not timed."""
        raise NotImplementedError

    def reset(self):
        """Before each run(), untimed: undoes what a run leaves behind, where there is state."""

    def run(self):
        """The block, once, on inputs that are already there. Its result is in memory on return."""
        raise NotImplementedError

    def result(self):
        """x [T, D] of the last site of the latest run, as an f32 array."""
        raise NotImplementedError
