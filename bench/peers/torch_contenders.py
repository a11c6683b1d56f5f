"""PyTorch, as one writes it: eager and under torch.compile, each in the form that was fastest
there.

Eager wants few, large operators: matrix products in the model's dtype, and no copy of the bank in
f32. torch.compile wants plain arithmetic in f32, which it fuses, and no concatenation, which it
would store.
"""

from problem import EPS, Contender

# ---- eager: v is one buffer [N + 1, T, D] whose last row is the partial sum ----------------------


def inverse_rms(torch, v):
    """[..., D] -> [...] f32."""
    norm = torch.linalg.vector_norm(v, dim=-1, dtype=torch.float32)
    return torch.rsqrt(norm.square() / v.shape[-1] + EPS)


def eager_site(torch, v, weight, gain):
    """v [N + 1, T, D], query * key gain [D] -> x [T, D]."""
    logits = (v @ weight).float() * inverse_rms(torch, v)
    h = torch.einsum("nt,ntd->td", logits.softmax(0).to(v.dtype), v)
    return torch.nn.functional.rms_norm(h, gain.shape, gain, EPS)


def eager_phase_1(torch, bank, weights):
    """bank [N, T, D], weights [S, D] -> mixes [S, T, D] and log-sum-exp [S, T, 1] f32."""
    logits = (bank @ weights.T).float() * inverse_rms(torch, bank)[..., None]
    lse = logits.logsumexp(0)
    mixes = torch.einsum("nts,ntd->std", (logits - lse).exp().to(bank.dtype), bank)
    return mixes, lse.T[..., None]


def eager_phase_2(torch, p, mix, lse, weight, gain):
    """Partial sum [T, D], phase 1's mix [T, D] and log-sum-exp [T, 1] -> x [T, D]."""
    z = (p @ weight).float() * inverse_rms(torch, p)
    share = torch.sigmoid(z[:, None] - lse).to(p.dtype)
    return torch.nn.functional.rms_norm(torch.lerp(mix, p, share), gain.shape, gain, EPS)


class Eager(Contender):
    name, form = "PyTorch eager", "one phase"

    def prepare(self, problem):
        import torch

        torch.set_num_threads(problem.threads)
        self.torch, self.sites, self.bank_rows = torch, problem.sites, problem.bank_rows
        self.dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[
            problem.dtype
        ]
        self.first = torch.from_numpy(problem.first).to(self.dtype)
        self.bank = torch.from_numpy(problem.bank).to(self.dtype)
        self.weights = torch.from_numpy(problem.query * problem.key_gain)
        self.gains = torch.from_numpy(problem.output_gain)
        self.set_up()

    def set_up(self):
        self.weights, self.gains = self.weights.to(self.dtype), self.gains.to(self.dtype)
        self.sources = self.torch.cat([self.bank, self.torch.zeros_like(self.first)[None]])

    def run(self):
        with self.torch.inference_mode():
            self.x = self.block(self.first)

    def block(self, x):
        v = self.sources
        v[-1].zero_()
        for weight, gain in zip(self.weights, self.gains):
            v[-1] += x
            x = eager_site(self.torch, v, weight, gain)
        return x

    def result(self):
        return self.x.float().numpy()


class EagerTwoPhases(Eager):
    form = "two phases"

    def set_up(self):
        self.weights, self.gains = self.weights.to(self.dtype), self.gains.to(self.dtype)

    def block(self, x):
        mixes, lse = eager_phase_1(self.torch, self.bank, self.weights)
        p = self.torch.zeros_like(x)
        for s in range(self.sites):
            p += x
            x = eager_phase_2(self.torch, p, mixes[s], lse[s], self.weights[s], self.gains[s])
        return x


# ---- torch.compile -------------------------------------------------------------------------------


def logit(torch, v, weight):
    """v [..., D] f32, query * key gain [D] -> [...]. Both sums are of v: one pass over it."""
    return (v * weight).sum(-1) * torch.rsqrt(v.square().mean(-1) + EPS)


def rms_norm(torch, h):
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS)


def compiled_site(bank, p, x, weight, gain):
    """bank [N, T, D], p [T, D] or None, x [T, D] -> p + x and the next x."""
    import torch

    p = x if p is None else p + x
    b, newest = bank.float(), p.float()
    logits = torch.cat([logit(torch, b, weight), logit(torch, newest, weight)[None]])
    a = logits.softmax(0)[..., None]
    h = (a[:-1] * b).sum(0) + a[-1] * newest
    return p, (rms_norm(torch, h) * gain).to(x.dtype)


def compiled_phase_1(bank, weights):
    """bank [N, T, D], weights [S, D] of its dtype -> mixes [T, S, D], log-sum-exp [T, S] f32."""
    import torch

    b = bank.float()
    logits = (bank @ weights.T).float() * torch.rsqrt(b.square().mean(-1) + EPS)[..., None]
    lse = logits.logsumexp(0)
    a = (logits - lse).exp()
    # Over n in Python: a few rows are summed element by element, which is fused. A sum over axis 0
    # is a reduction.
    return sum(a[n, :, :, None] * b[n, :, None] for n in range(len(bank))).to(bank.dtype), lse


def compiled_phase_2(p, x, mix, lse, weight, gain):
    """p [T, D] or None, x [T, D], mix [T, D], lse [T] -> p + x and the next x."""
    import torch

    p = x if p is None else p + x
    newest, o = p.float(), mix.float()
    h = o + torch.sigmoid(logit(torch, newest, weight) - lse)[:, None] * (newest - o)
    return p, (rms_norm(torch, h) * gain).to(x.dtype)


class Compiled(Eager):
    name = "torch.compile"

    def set_up(self):
        self.site = self.torch.compile(compiled_site, dynamic=False, fullgraph=True)

    def block(self, x):
        p = None
        for weight, gain in zip(self.weights, self.gains):
            p, x = self.site(self.bank, p, x, weight, gain)
        return x


class CompiledTwoPhases(Compiled):
    form = "two phases"

    def set_up(self):
        options = {"dynamic": False, "fullgraph": True}
        self.phase_1 = self.torch.compile(compiled_phase_1, **options)
        self.phase_2 = self.torch.compile(compiled_phase_2, **options)
        self.weights_in_dtype = self.weights.to(self.dtype)

    def block(self, x):
        mixes, lse = self.phase_1(self.bank, self.weights_in_dtype)
        p = None
        for s in range(self.sites):
            p, x = self.phase_2(p, x, mixes[:, s], lse[:, s], self.weights[s], self.gains[s])
        return x
