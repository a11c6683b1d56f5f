"""JAX: the block in one jit, arithmetic in f32, left to XLA to fuse."""

from problem import EPS, Contender


def inverse_rms(v):
    """v [..., D] -> [...]."""
    import jax
    import jax.numpy as jnp

    return jax.lax.rsqrt(jnp.mean(v * v, axis=-1) + EPS)


def logit(v, weight):
    """v [..., D], query * key gain [D] -> [...]. Both sums are of v: one pass over it."""
    return (v * weight).sum(-1) * inverse_rms(v)


def weighted_sum(weights, bank):
    """weights [N, ...], bank [N, ...] -> their sum over N. In Python: a few rows are summed element
    by element, which XLA fuses; jnp.sum over axis 0 takes three times as long on a CPU."""
    return sum(a * v for a, v in zip(weights, bank))


def one_phase(bank, first, weights, gains):
    """bank [N, T, D], first [T, D], weights [S, D], gains [S, D] -> x [T, D]."""
    import jax
    import jax.numpy as jnp

    x, p, b = first, None, bank.astype(jnp.float32)
    for weight, gain in zip(weights, gains):
        p = x if p is None else p + x
        newest = p.astype(jnp.float32)
        logits = jnp.concatenate([logit(b, weight), logit(newest, weight)[None]])
        a = jax.nn.softmax(logits, axis=0)[..., None]
        h = weighted_sum(a[:-1], b) + a[-1] * newest
        x = (h * inverse_rms(h)[:, None] * gain).astype(first.dtype)
    return x


def two_phases(bank, first, weights, gains):
    import jax
    import jax.numpy as jnp

    b = bank.astype(jnp.float32)
    logits = jnp.einsum("sd,ntd->nst", weights, b) * inverse_rms(b)[:, None]
    lse = jax.nn.logsumexp(logits, axis=0)  # [S, T]
    mixes = weighted_sum(jnp.exp(logits - lse)[..., None], b[:, None]).astype(first.dtype)
    x, p = first, None
    for weight, gain, o, bank_lse in zip(weights, gains, mixes, lse):
        p = x if p is None else p + x
        newest = p.astype(jnp.float32)
        h = o + jax.nn.sigmoid(logit(newest, weight) - bank_lse)[:, None] * (newest - o)
        x = (h * inverse_rms(h)[:, None] * gain).astype(first.dtype)
    return x


class Jax(Contender):
    name, form, block = "JAX jit", "one phase", staticmethod(one_phase)

    def prepare(self, problem):
        import jax
        import jax.numpy as jnp

        dtype = {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32}[problem.dtype]
        self.inputs = [
            jnp.asarray(problem.bank, dtype),
            jnp.asarray(problem.first, dtype),
            jnp.asarray(problem.query * problem.key_gain),
            jnp.asarray(problem.output_gain),
        ]
        self.compiled = jax.jit(self.block).lower(*self.inputs).compile()

    def run(self):
        self.x = self.compiled(*self.inputs).block_until_ready()

    def result(self):
        import numpy as np

        return np.asarray(self.x).astype(np.float32)


class JaxTwoPhases(Jax):
    form, block = "two phases", staticmethod(two_phases)
