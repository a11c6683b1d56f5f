"""A small byte-level transformer with attention over its depth: trained in PyTorch, run with Fathom.

    PYTHONPATH=bindings/python python examples/tiny_lm.py [--steps 150] [--tokens 160]

Each sublayer (attention with a KV cache, or an MLP) reads a learned mix of what is summed so far instead of
the running sum alone. For training the mix is written in PyTorch, from the formulas of docs/models.md. Then
text is generated with that, and with fathom.torch.DepthMixer, whose fused kernels do the same: in one
prefill, in a prefill of chunks, and token by token. All have to give the same tokens.
"""

import argparse
import pathlib
import sys
import time

try:
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; pip install torch")
    sys.exit(77)  # to ctest: skipped
from torch import nn
from torch.nn import functional as F

from fathom.torch import DepthMixer

HIDDEN, HEADS, LAYERS, BLOCK, EPS = 64, 4, 3, 2, 1e-5
SUBLAYERS = 2 * LAYERS
CONTEXT = 64  # of training


class Cache:
    """Keys and values of each attention, of the tokens so far."""

    def __init__(self):
        self.kept = {}

    def extend(self, layer, key, value):
        if layer in self.kept:
            old_key, old_value = self.kept[layer]
            key, value = torch.cat([old_key, key], dim=-2), torch.cat([old_value, value], dim=-2)
        self.kept[layer] = key, value
        return key, value


class Attention(nn.Module):
    """Causal attention of the tokens at hand to themselves and those in the cache; far ones count less."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.register_buffer("slope", 2.0 ** -torch.arange(1, HEADS + 1)[:, None, None])

    def forward(self, x, cache=None):
        *batch, rows, _ = x.shape
        split = self.qkv(x).reshape(*batch, rows, 3, HEADS, HIDDEN // HEADS)
        query, key, value = split.movedim(-3, 0).transpose(-3, -2)
        if cache is not None:
            key, value = cache.extend(self, key, value)
        seen = key.shape[-2]
        distance = torch.arange(seen - rows, seen)[:, None] - torch.arange(seen)
        bias = (-self.slope * distance).masked_fill(distance < 0, float("-inf"))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.out(mixed.transpose(-3, -2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x, cache=None):
        return self.down(F.gelu(self.up(x)))


class PureMixer(nn.Module):
    """The mix sites in PyTorch. Parameters are named as those of DepthMixer."""

    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(SUBLAYERS + 1, HIDDEN))
        self.key_gain = nn.Parameter(torch.ones(SUBLAYERS + 1, HIDDEN))
        self.output_gain = nn.Parameter(torch.ones(SUBLAYERS + 1, HIDDEN))

    def site(self, s, sources):
        v = torch.stack(sources)  # [N, ..., T, D]
        logits = (F.rms_norm(v, (HIDDEN,), self.key_gain[s], EPS) * self.query[s]).sum(-1)
        mixed = (torch.softmax(logits, dim=0)[..., None] * v).sum(0)
        return F.rms_norm(mixed, (HIDDEN,), self.output_gain[s], EPS)

    def forward(self, embedding, sublayers):
        bank, total = [], embedding
        for s in range(SUBLAYERS + 1):
            x = self.site(s, bank + [total])
            if s == SUBLAYERS:
                return x
            if s % BLOCK == 0:  # a block begins: what is summed so far is finished
                bank, total = bank + [total], None
            f = sublayers[s](x)
            total = f if total is None else total + f


class TinyLM(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.embed = nn.Embedding(256, HIDDEN)
        self.sublayers = nn.ModuleList(Mlp() if j % 2 else Attention() for j in range(SUBLAYERS))
        self.mixer = mixer
        self.head = nn.Linear(HIDDEN, 256, bias=False)

    def forward(self, tokens, cache=None):
        bound = [lambda x, layer=layer: layer(x, cache) for layer in self.sublayers]
        return self.head(self.mixer(self.embed(tokens), bound))


def train(model, text, steps):
    """Teaches the model bytes of the text; returns the last loss."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.tensor(float("nan"))
    for step in range(steps):
        starts = torch.randint(len(text) - CONTEXT - 1, (16,))
        batch = torch.stack([text[i : i + CONTEXT + 1] for i in starts])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.2f}")
    return loss.item()


@torch.inference_mode()
def generate(model, prompt, count, chunk=None):
    """(tokens, seconds a token): the prompt in chunks of so many bytes, or whole, then one byte at a time."""
    cache, out = Cache(), []
    for part in prompt.split(chunk or len(prompt)):
        logits = model(part, cache)
    start = time.perf_counter()
    for _ in range(count):
        out.append(logits[-1].argmax())
        logits = model(out[-1][None], cache)
    return torch.stack(out), (time.perf_counter() - start) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150, help="of training; 0: random parameters")
    parser.add_argument("--tokens", type=int, default=160, help="to generate")
    arguments = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)  # small tensors; more threads only wait for one another
    readme = pathlib.Path(__file__).resolve().parent.parent / "README.md"
    text = torch.tensor(list(readme.read_bytes()))
    pure = TinyLM(PureMixer())
    train(pure, text, arguments.steps)

    mixer = DepthMixer(hidden=HIDDEN, sublayers=SUBLAYERS, blocks={"size": BLOCK}, dtype="f32", eps=EPS)
    fused = TinyLM(mixer)
    fused.load_state_dict(pure.state_dict())  # names, shapes and dtypes are the same

    prompt = text[:40]
    expected, pure_time = generate(pure, prompt, arguments.tokens)
    fused_time = 0.0
    for chunk in (None, 16, 7, 1):
        tokens, fused_time = generate(fused, prompt, arguments.tokens, chunk)
        assert torch.equal(tokens, expected), f"prefill in chunks of {chunk}: other tokens"
    print(bytes(prompt.tolist()).decode(), end="|")
    print(bytes(expected.tolist()).decode(errors="replace"))
    print(
        f"\n{len(expected)} tokens: PyTorch and Fathom agree, prefill whole and in chunks of 16, 7, 1; "
        f"a token takes {pure_time * 1e3:.2f} ms and {fused_time * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    main()
