"""Compares the outputs of examples/minilm_site.fir with the formula evaluated here. Arguments: DATA A H."""
import sys

import numpy as np

data, weights, mix = sys.argv[1:]
bank = (np.load(f"{data}/minilm_bank.npy").astype("<u4") << 16).view("<f4").astype(np.float64)
query, gain = np.load(f"{data}/minilm_query.npy"), np.load(f"{data}/minilm_gain.npy")

keys = bank / np.sqrt((bank**2).mean(-1, keepdims=True) + 1e-5) * gain
logits = keys @ query.astype(np.float64)
a = np.exp(logits - logits.max(0))
a /= a.sum(0)
h = np.einsum("nt,ntd->td", a, bank)

for name, computed, expected in ("a", np.load(weights), a), ("h", np.load(mix), h):
    assert computed.shape == expected.shape, (name, computed.shape, expected.shape)
    error = np.linalg.norm(computed - expected) / np.linalg.norm(expected)
    print(name, error)
    assert error <= 2e-6 * max(1, abs(logits).max()), (name, error)
