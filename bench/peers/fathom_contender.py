"""Fathom, as a host uses it: a model's last block through fathom.Sequence.

The block's bank is there after its first site has been called, and phase 1 runs in that call. So run() of two phases
has that site as well, one more than the others compute; one phase leaves it out. The package is looked for in
bindings/python, the library as it says there ($FATHOM_LIBRARY, or `fathom` on PATH).
"""

import os
import sys
import tempfile

import numpy as np

from problem import Contender

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bindings/python"))


def to_dtype(x, dtype):
    """f32 values that the dtype holds, as the library takes them."""
    if dtype == "bf16":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(np.float16) if dtype == "f16" else x


class Fathom(Contender):
    name, form, phases = "Fathom", "one phase", "one"

    def prepare(self, problem):
        import fathom
        import yaml

        self.dtype, self.sites = problem.dtype, problem.sites
        context = fathom.Context(threads=problem.threads)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "peers.yaml")
            with open(path, "w") as file:
                yaml.safe_dump(problem.description(), file)
            model = fathom.Model(path, phases=self.phases, context=context)
        blocks = problem.bank_rows
        last = {  # [S, D] of the last block's sites; those before are not looked at
            "query": problem.query,
            "key_gain": problem.key_gain,
            "output_gain": problem.output_gain,
        }
        # Site 0 and the blocks before get anything.
        model.bind(
            {
                name: np.concatenate([value[:1]] + [value] * blocks).astype(np.float32)
                for name, value in last.items()
            }
        )
        self.model, self.sequence = model, fathom.Sequence(model)
        self.bank = [to_dtype(row, self.dtype) for row in problem.bank]
        self.first = to_dtype(problem.first, self.dtype)
        self.zeros = np.zeros_like(self.first)
        self.x = [np.empty_like(self.first) for _ in range(2)]

    def given(self, site):
        """What sublayer site - 1 gives before the measured block: its block's row, once."""
        block, within = divmod(site - 1, self.sites)
        return self.bank[block + 1] if within == 0 else self.zeros

    def call(self, site, addend, x):
        if site == self.model.sublayers:
            self.sequence.end([addend], x)
        else:
            self.sequence.site(site, [addend], x)

    @property
    def start(self):
        """The first site that is measured."""
        return self.model.sublayers - self.sites + 1

    def reset(self):
        self.sequence.reset()
        self.sequence.begin(self.bank[0], self.x[0])
        for site in range(1, self.start):
            self.call(site, self.given(site), self.x[0])

    def run(self):
        if self.start == self.model.sublayers - self.sites:
            self.call(self.start, self.given(self.start), self.x[1])
        x = self.first
        for i in range(self.sites):
            self.call(self.model.sublayers - self.sites + 1 + i, x, self.x[i % 2])
            x = self.x[i % 2]
        self.last = x

    def result(self):
        if self.last.dtype == np.uint16:
            return (self.last.astype(np.uint32) << 16).view(np.float32)
        return self.last.astype(np.float32)


class FathomTwoPhases(Fathom):
    form, phases = "two phases", "two"
    note = "with the site before the block, which launches phase 1"

    @property
    def start(self):
        return self.model.sublayers - self.sites
