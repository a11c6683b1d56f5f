#!/usr/bin/env python3
"""Attention residuals of a whole network in f64 NumPy: the oracle that shares nothing with Fathom
but the formulas.

Written from docs/models.md and the published definition alone. It reads the same YAML descriptions,
loops over sites and sources in plain sight, computes in f64 and rounds only where a model says so:
the running sum p, the input x of a sublayer and the mix h before the output norm; with
two_phase=True also the bank's mix o of phase 1.

    model = load("model.yaml")                   # or a dict with the same keys
    parameters = random_parameters(model, seed=1)
    embedding = random_embedding(model, rows=3, seed=2)
    sites = run(model, parameters, embedding, toy_sublayers(model))
    sites[4].x                                   # [T, D], the input of sublayer 4
    sites[-1].x                                  # what leaves the network

As a program it writes all that as .npy files, for tests in other languages:

    reference.py MODEL.yaml OUT_DIR [--rows T] [--seed K] [--two-phase] [--extras]
"""

import argparse
import dataclasses
import os

import numpy as np

# ---- dtypes: values are f64 arrays that hold what the dtype can ----------------------------------


def to_bf16(x):
    """f64 -> f32 -> bf16, to nearest even by integer arithmetic; as f64. NaN stays NaN."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.nan, rounded.view(np.float32)).astype(np.float64)


def round_to(x, dtype):
    """What is left of f64 values `x` in dtype bf16, f16 or f32: rounded to f32, then to it."""
    x = np.asarray(x, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bf16":
            return to_bf16(x)
        narrow = {"f16": np.float16, "f32": np.float32}[dtype]
        return x.astype(np.float32).astype(narrow).astype(np.float64)


E4M3_MAX, E4M3_NAN = 448.0, 0x7F


def quantise_e4m3(x):
    """[T, D] -> codes [T, D] u8 (e4m3: 4 exponent bits, bias 7, no infinities) and scales [T] f32.

    The scale of a token is max(amax, 1e-10) / 448; a code is x / scale to nearest even, saturated.
    """
    amax = np.abs(x).max(axis=-1)
    scale = (np.maximum(amax, 1e-10) / E4M3_MAX).astype(np.float32)
    y = x / scale.astype(np.float64)[:, None]
    size = np.minimum(np.abs(y), E4M3_MAX)
    exponent = np.floor(
        np.log2(np.maximum(size, 2.0**-6))
    )  # below 2^-6 values are subnormal: steps of 2^-9
    steps = np.rint(
        size / 2.0 ** (exponent - 3)
    )  # np.rint goes to even; 16 steps are the next exponent's first
    with np.errstate(invalid="ignore"):
        codes = np.where(np.isnan(y), E4M3_NAN, (exponent + 6) * 8 + steps).astype(np.uint8)
    return codes | np.where(np.signbit(y), 0x80, 0).astype(np.uint8), scale


def decode_e4m3(codes):
    """codes u8 -> f64."""
    exponent, fraction = ((codes >> 3) & 15).astype(np.float64), (codes & 7).astype(np.float64)
    value = np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
    value = np.where(codes & 0x7F == E4M3_NAN, np.nan, value)
    return np.where(codes & 0x80, -value, value)


# ---- descriptions --------------------------------------------------------------------------------

DEFAULTS = {
    "name": "model",
    "blocks": "full",
    "dtype": "bf16",
    "query_dtype": "f32",
    "gains": {"key": "f32", "output": "f32"},
    "eps": 1e-5,
    "key_norm": "rms",
    "scale": 1,
    "normaliser": "softmax",
    "bias": "none",
    "null_source": "none",
    "delta_form": False,
    "gate": "none",
    "heads": 1,
    "window": 0,
    "output_norm": "rms",
    "mix_dtype": "f32",
    "addends": 1,
    "two_phase": "auto",
}
NEEDED = {"schema", "hidden", "sublayers"}
CHOICES = {
    "schema": {1},
    "dtype": {"bf16", "f16", "f32"},
    "query_dtype": {"bf16", "f16", "f32"},
    "mix_dtype": {"bf16", "f16", "f32"},
    "key_norm": {"rms", "none", "query_and_key"},
    "normaliser": {"softmax", "sigmoid", "uniform", "static"},
    "null_source": {"none", "zero", "learned"},
    "delta_form": {True, False},
    "gate": {"none", "newest", "channel"},
    "output_norm": {"rms", "none"},
    "two_phase": {"on", "off", "auto"},
}
OF_LOGITS = (
    "key_norm",
    "scale",
    "bias",
    "heads",
    "null_source",
)  # uniform and static weights have none


@dataclasses.dataclass
class Site:
    """Where a site stands: its sources as the numbers of sublayers summed in them."""

    number: int
    counts: list  # of the window's sources; the embedding counts 1, the newest source is the last
    begins_block: bool
    block: (
        int  # the sublayer that began the block whose sum is the newest source; -1: the embedding's
    )

    @property
    def sources(self):
        return len(self.counts)


class Model:
    """A description with its defaults filled in: every key of docs/models.md is an attribute."""

    def __init__(self, description):
        def require(condition, text):
            if not condition:
                raise ValueError(f"{description.get('name', 'model')}: {text}")

        unknown = set(description) - set(DEFAULTS) - NEEDED
        require(not unknown, f"unknown keys {sorted(unknown)}")
        require(NEEDED <= set(description), f"needs {sorted(NEEDED - set(description))}")
        for key, value in {**DEFAULTS, **description}.items():
            if key == "two_phase" and isinstance(value, bool):
                value = "on" if value else "off"  # YAML 1.1 reads on and off as booleans
            require(
                key not in CHOICES or value in CHOICES[key],
                f"{key}: {value!r} is none of {CHOICES.get(key)}",
            )
            setattr(self, key, value)
        self.eps = float(self.eps)  # to PyYAML 1e-5 is a text: YAML 1.1 wants 1.0e-5
        if self.bias not in ("none", "count"):
            self.bias = {"recency": float(self.bias["recency"])}
        self.gains = {**DEFAULTS["gains"], **self.gains}
        self.starts = block_starts(self.blocks, self.sublayers)
        require(self.hidden % self.heads == 0, f"{self.heads} heads do not divide {self.hidden}")
        require(
            self.null_source == "none" or self.normaliser == "softmax", "null_source is softmax's"
        )
        if not self.has_logits:
            said = [key for key in OF_LOGITS if getattr(self, key) != DEFAULTS[key]]
            require(not said, f"{self.normaliser} weights have no {' and no '.join(said)}")

    @property
    def has_logits(self):
        return self.normaliser in ("softmax", "sigmoid")

    def addends_of(self, j):
        """1 or 2: how many tensors sublayer j gives."""
        return (
            self.addends if isinstance(self.addends, int) else self.addends[j % len(self.addends)]
        )

    def sites(self):
        """The L + 1 sites in order."""
        sites, bank, block, count = [], [], -1, 1
        for s in range(self.sublayers + 1):
            if s > 0:
                count += 1
            newest = (bank + [count])[-self.window :]  # [-0:] is all
            sites.append(Site(s, newest, s in self.starts, block))
            if s in self.starts:
                bank, block, count = bank + [count], s, 0
        return sites

    def parameters(self):
        """{name: (shape, dtype)}, site by site."""
        table = {}
        for site in self.sites():
            s, d = site.number, (self.hidden,)
            if self.has_logits:
                table[f"query_{s}"] = (d, self.query_dtype)
                if self.key_norm != "none" and self.gains["key"] != "none":
                    table[f"key_gain_{s}"] = (d, self.gains["key"])
            if self.output_norm == "rms" and self.gains["output"] != "none":
                table[f"output_gain_{s}"] = (d, self.gains["output"])
            if self.gate != "none":
                table[f"gate_{s}"] = (d, self.query_dtype)
            if self.null_source == "learned":
                table[f"null_{s}"] = ((self.heads,) if self.heads > 1 else (), "f32")
            if self.normaliser == "static":
                table[f"weights_{s}"] = ((site.sources,), "f32")
        return table


def block_starts(blocks, sublayers):
    """The sublayers that begin a block."""
    if blocks == "full":
        blocks = {"size": 1}
    ((kind, value),) = blocks.items()
    if kind == "starts":
        starts = list(value)
        if starts[:1] != [0] or sorted(set(starts)) != starts or starts[-1] >= sublayers:
            raise ValueError(f"blocks: starts {starts} do not rise from 0 to below {sublayers}")
        return starts
    size = {"size": value, "count": -(-sublayers // value)}[kind]
    return list(range(0, sublayers, size))


def load(description):
    """A Model from a path to a YAML file or from a dict."""
    if isinstance(description, dict):
        return Model(description)
    import yaml  # here, so that models from dicts need NumPy only

    with open(description) as file:
        name = os.path.splitext(os.path.basename(description))[0]
        return Model({"name": name, **yaml.safe_load(file)})


# ---- random inputs -------------------------------------------------------------------------------


def random_parameters(model, seed):
    """{name: f64 array, already rounded}. Queries make logits of about 1."""
    generator = np.random.default_rng(seed)
    parameters = {}
    for name, (shape, dtype) in model.parameters().items():
        values = generator.standard_normal(shape)
        if name.startswith("query_"):
            values = values / (np.sqrt(model.hidden / model.heads) * scale_of(model))
        elif name.startswith("gate_") and model.gate == "newest":
            values = values / np.sqrt(model.hidden)
        elif "gain" in name:
            values = 1 + values / 10
        elif name.startswith("weights_"):
            values = (1 + values / 2) / len(values)
        parameters[name] = round_to(values, dtype)
    return parameters


def random_embedding(model, rows, seed):
    """[T, D], rounded to the model's dtype."""
    return round_to(np.random.default_rng(seed).standard_normal((rows, model.hidden)), model.dtype)


def toy_sublayers(model):
    """Sublayers that any program repeats bit by bit: (j, x [T, D]) -> [T, D], or a pair of them.

        first  addend  f_j[t, d] = round(c_j * x[t, (d + 7 j + 1) mod D])
        second addend  g_j[t, d] = round(c_{j+2} / 4 * x[t, (d + 11 j + 3) mod D])
        with c_j = (-1)^j (1 + j mod 5) / 8

    A factor is a small integer times a power of two, so the f32 product of an f16 or bf16 x is
    exact and `round` (to the model's dtype, nearest even) is the only rounding; in f32 the product
    is rounded once, by the multiplication.
    """

    def factor(j):
        return (-1) ** j * (1 + j % 5) / 8

    def sublayers(j, x):
        d = np.arange(model.hidden)
        f = round_to(factor(j) * x[:, (d + 7 * j + 1) % model.hidden], model.dtype)
        if model.addends_of(j) == 1:
            return f
        return f, round_to(factor(j + 2) / 4 * x[:, (d + 11 * j + 3) % model.hidden], model.dtype)

    return sublayers


# ---- the mathematics of a site -------------------------------------------------------------------


def rms_norm(x, eps):
    """x / sqrt(mean(x^2) + eps) over the last axis."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def sigmoid(z):
    return np.exp(-np.logaddexp(0, -z))


def scale_of(model):
    return (
        (model.hidden / model.heads) ** -0.5
        if model.scale == "rsqrt_hidden"
        else float(model.scale)
    )


def logit(model, parameters, site, i, v):
    """[T, H]: what the site's query makes of its i-th source v [T, D], bias and all."""
    s = site.number
    query, key = parameters[f"query_{s}"], v
    if model.key_norm == "query_and_key":
        query = rms_norm(query, model.eps)
    if model.key_norm != "none":
        key = rms_norm(v, model.eps) * parameters.get(f"key_gain_{s}", 1.0)
    z = scale_of(model) * (query * key).reshape(len(v), model.heads, -1).sum(axis=-1)
    if model.bias == "count":
        return z + np.log(site.counts[i])
    if model.bias != "none":
        return z - model.bias["recency"] * (site.sources - 1 - i)
    return z


def null_logit(model, parameters, site):
    """[] or [H]: the logit of a source that adds nothing; minus infinity where there is none."""
    kinds = {"none": -np.inf, "zero": 0.0}
    return (
        kinds[model.null_source]
        if model.null_source in kinds
        else parameters[f"null_{site.number}"]
    )


def log_sum_exp(z, null):
    """[T, H] of logits z [N, T, H] and the null source's."""
    top = np.maximum(z.max(axis=0), null)
    return top + np.log(np.exp(z - top).sum(axis=0) + np.exp(null - top))


def weights_of(model, parameters, site, sources):
    """[N, T, H] of the first N of the site's sources, and what turns softmax weights of some
    sources into those of all: their log-sum-exp [T, H], or None where weights do not depend on one
    another."""
    n, rows = len(sources), len(sources[0])
    if model.normaliser == "uniform":
        return np.full((n, rows, 1), 1 / site.sources), None
    if model.normaliser == "static":
        return np.repeat(parameters[f"weights_{site.number}"][:n, None, None], rows, axis=1), None
    z = np.stack([logit(model, parameters, site, i, v) for i, v in enumerate(sources)])
    if model.normaliser == "sigmoid":
        return sigmoid(z), None
    lse = log_sum_exp(z, null_logit(model, parameters, site))
    return np.exp(z - lse), lse


def spread(a, v):
    """a [T, H] times v [T, D]: each head's number for its D / H neighbouring channels."""
    return np.repeat(a, v.shape[1] // a.shape[1], axis=1) * v


def weighted_sum(weights, sources):
    """sum_i a_i v_i: [T, D] of weights [N, T, H] and N sources [T, D]."""
    h = np.zeros_like(sources[0])
    for a, v in zip(weights, sources):
        h = h + spread(a, v)
    return h


def mix(model, parameters, site, sources):
    """h [T, D] and weights [N, T, H] of all sources at once."""
    weights, _ = weights_of(model, parameters, site, sources)
    return weighted_sum(weights, sources), weights


@dataclasses.dataclass
class BankMix:
    """What phase 1 leaves for one site."""

    o: np.ndarray  # [T, D], rounded to the model's dtype
    lse: np.ndarray  # [T, H], or None
    weights: np.ndarray  # [N - 1, T, H], of the finished blocks among themselves


def phase_1(model, parameters, sites, bank):
    """{site's number: BankMix} of all sites that read the same finished blocks [T, D]."""
    mixes = {}
    for site in sites:
        seen = bank[len(bank) - (site.sources - 1) :]
        if seen:
            weights, lse = weights_of(model, parameters, site, seen)
            mixes[site.number] = BankMix(
                round_to(weighted_sum(weights, seen), model.dtype), lse, weights
            )
    return mixes


def phase_2(model, parameters, site, bank_mix, b):
    """h [T, D] and weights [N, T, H]: the bank's mix merged with the newest source b [T, D]."""
    o = bank_mix.o
    if bank_mix.lse is not None:  # softmax
        z = logit(model, parameters, site, site.sources - 1, b)
        p = sigmoid(z - bank_mix.lse)
        return o + spread(p, b - o), np.concatenate([bank_mix.weights * (1 - p), p[None]])
    if model.normaliser == "sigmoid":
        p = sigmoid(logit(model, parameters, site, site.sources - 1, b))
    elif model.normaliser == "uniform":
        p = np.full((len(b), 1), 1 / site.sources)
    else:
        p = np.full((len(b), 1), parameters[f"weights_{site.number}"][-1])
    return o + spread(p, b), np.concatenate([bank_mix.weights, p[None]])


def finish(model, parameters, site, h, newest):
    """The mix before the output norm and the sublayer's input x, both [T, D] and rounded."""
    s = site.number
    if model.delta_form:
        h = h + newest
    if model.gate == "newest":
        h = (
            sigmoid(
                (parameters[f"gate_{s}"] * rms_norm(newest, model.eps)).sum(axis=-1, keepdims=True)
            )
            * h
        )
    if model.gate == "channel":
        h = sigmoid(parameters[f"gate_{s}"]) * h
    h = round_to(h, model.mix_dtype)
    x = h
    if model.output_norm == "rms":
        x = rms_norm(h, model.eps) * parameters.get(f"output_gain_{s}", 1.0)
    return h, round_to(x, model.dtype)


# ---- the network ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    """What a site gives."""

    x: np.ndarray  # [T, D], the input of the sublayer, or of what follows the network
    p: np.ndarray  # [T, D], the newest source
    mix: np.ndarray  # [T, D], before the output norm
    weights: (
        np.ndarray
    )  # [N, T], with heads [N, T, H]; oldest source first, without the null source

    @property
    def entropy(self):
        """[T], with heads [T, H]: -sum_i a_i log a_i over the weights as they are."""
        a = self.weights
        return -(a * np.log(np.where(a > 0, a, 1))).sum(axis=0)

    @property
    def fp8(self):
        """Codes [T, D] u8 and scales [T] f32 of x as it was rounded."""
        return quantise_e4m3(self.x)


def run(model, parameters, embedding, sublayers, two_phase=False):
    """Results of all L + 1 sites, for an embedding [T, D].

    sublayers(j, x [T, D]) gives the output of sublayer j, [T, D], or a tuple of addends; they are
    rounded to the model's dtype. With two_phase the finished blocks are mixed for all sites that
    read them when the last of them becomes finished, and merged with the newest source at each
    site.
    """
    sites, results = model.sites(), []
    bank, p, mixes = [], round_to(embedding, model.dtype), {}
    for site in sites:
        if site.number > 0:
            addends = sublayers(site.number - 1, results[-1].x)
            addends = addends if isinstance(addends, tuple) else (addends,)
            f = sum(round_to(addend, model.dtype) for addend in addends)
            p = round_to(f if p is None else p + f, model.dtype)
        if site.number in mixes:
            h, weights = phase_2(model, parameters, site, mixes[site.number], p)
        else:
            h, weights = mix(model, parameters, site, (bank + [p])[-site.sources :])
        h, x = finish(model, parameters, site, h, p)
        results.append(Result(x, p, h, weights if model.heads > 1 else weights[:, :, 0]))
        if site.begins_block:
            bank, p = bank + [p], None
            if two_phase:
                readers = [reader for reader in sites if reader.block == site.number]
                mixes = phase_1(model, parameters, readers, bank)
    return results


def error(got, expected):
    """||got - expected|| / ||expected||, the measure of all tolerances."""
    norm = np.linalg.norm(expected)
    return np.linalg.norm(np.asarray(got, np.float64) - expected) / (norm if norm > 0 else 1)


# ---- the program ---------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a description in YAML")
    parser.add_argument(
        "out", help="the folder to write to: each parameter, embedding, x_S and p_S of each site S"
    )
    parser.add_argument("--rows", type=int, default=3, help="tokens (default: 3)")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of parameters; the embedding's is one more (default: 1)",
    )
    parser.add_argument(
        "--two-phase", action="store_true", help="phase 1 at each block's start, then merge"
    )
    parser.add_argument(
        "--extras",
        action="store_true",
        help="also mix_S, weights_of_S, entropy_S, fp8_S, fp8_scale_S",
    )
    arguments = parser.parse_args()

    model = load(arguments.model)
    parameters = random_parameters(model, arguments.seed)
    embedding = random_embedding(model, arguments.rows, arguments.seed + 1)
    files = {**parameters, "embedding": embedding}  # f32 holds what any of the dtypes does
    results = run(model, parameters, embedding, toy_sublayers(model), arguments.two_phase)
    for s, site in enumerate(results):
        files.update({f"x_{s}": site.x, f"p_{s}": site.p})
        if arguments.extras:
            files.update(
                {
                    f"mix_{s}": site.mix,
                    f"weights_of_{s}": site.weights,
                    f"entropy_{s}": site.entropy,
                }
            )
            files[f"fp8_{s}"], files[f"fp8_scale_{s}"] = site.fp8
    os.makedirs(arguments.out, exist_ok=True)
    for name, values in files.items():
        values = values if values.dtype == np.uint8 else values.astype(np.float32)
        np.save(os.path.join(arguments.out, name + ".npy"), values)


if __name__ == "__main__":
    main()
