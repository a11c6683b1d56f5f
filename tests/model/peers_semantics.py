#!/usr/bin/env python3
"""The reference model computes what published packages do: flash-attn-res and
flash-linear-attention's attnres.

Their own kernels run under Triton's interpreter on the CPU, and beside them their reference
function in PyTorch. What is not installed is skipped with a line that says so; exit status 77: all
of it was. bench/peers/requirements.txt has the versions.

    python3 tests/model/peers_semantics.py
"""

import os
import sys
import warnings

os.environ.setdefault(
    "TRITON_INTERPRET", "1"
)  # read when kernels are defined, whichever package is first
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../bench/peers")]

try:
    import numpy as np

    import reference as ref
except ImportError as reason:
    print(f"skipped: {reason}")
    sys.exit(77)

BOUND = {"bf16": 4e-3, "f32": 2e-6}  # one rounding of the result; f32 arithmetic


class Skip(Exception):
    """Why a comparison cannot be made here."""


def need(load):
    """What `load` returns. A package may also be there and not load, for want of a library, say."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fla warns that there is no GPU
            return load()
    except Exception as reason:
        raise Skip(f"{type(reason).__name__}: {reason}") from reason


def triton_peers():
    import triton_peers

    return triton_peers


def tensor(values, dtype):
    import torch

    return torch.tensor(values, dtype={"bf16": torch.bfloat16, "f32": torch.float32}[dtype])


def check(what, got, expected, bound):
    error = ref.error(got.double().numpy(), expected)
    assert error <= bound, f"{what}: error {error:.1e} is above {bound:.0e}"
    print(f"ok {what}: error {error:.1e}, bound {bound:.0e}")


# ---- flash-linear-attention: one site, a list of sources -----------------------------------------

FLA_SHAPES = [  # dtype, D, N, output norm, scale
    ("f32", 96, 5, True, 1),
    ("f32", 64, 1, True, 1),
    ("f32", 48, 17, True, 1),
    ("bf16", 96, 9, True, 1),
    ("bf16", 1000, 3, False, 1),
    ("bf16", 256, 9, False, 0.5),
]


def compare_fla(name, function):
    """function(query, sources, key gain, output gain, eps, scale) -> mix [T, D], weights [N, T]."""
    for dtype, hidden, sources, output_norm, scale in FLA_SHAPES:
        model = ref.load(
            {
                "schema": 1,
                "hidden": hidden,
                "sublayers": sources - 1 or 1,
                "dtype": dtype,
                "scale": scale,
                "output_norm": "rms" if output_norm else "none",
            }
        )
        parameters, s = ref.random_parameters(model, 1), sources - 1
        outputs = ref.round_to(
            np.random.default_rng(2).standard_normal((sources + 1, 3, hidden)), dtype
        )
        expected = ref.run(model, parameters, outputs[0], lambda j, x: outputs[j + 1])[s]
        gain = tensor(parameters[f"output_gain_{s}"], "f32") if output_norm else None
        x, weights = function(
            tensor(parameters[f"query_{s}"], "f32"),
            [tensor(v, dtype) for v in outputs[:sources]],
            tensor(parameters[f"key_gain_{s}"], "f32"),
            gain,
            model.eps,
            scale,
        )
        what = f"{name} {dtype} D={hidden} N={sources} scale={scale}"
        check(what, x, expected.x, BOUND[dtype])
        check(what + ", weights", weights, expected.weights, BOUND["f32"])


def fla_naive_attnres():
    def load():
        from fla.ops.attnres import naive_attnres

        return naive_attnres

    naive = need(load)
    compare_fla("fla naive_attnres", lambda *arguments: naive(*arguments, return_weights=True))


def fla_fused_attnres():
    def load():
        import fla.ops.attnres

        return triton_peers()

    compare_fla("fla fused_attnres", need(load).fla_fused_attnres)


# ---- flash-attn-res: two phases of one block, then a network -------------------------------------

PLAIN = {
    "schema": 1,
    "gains": {"key": "none", "output": "none"},
    "output_norm": "none",
    "eps": 2.0**-23,
}


def flash_attn_res():
    return (need(triton_peers), need(lambda: triton_peers().flash_attn_res()))[0]


def flash_phases():
    peer = flash_attn_res()
    for hidden, blocks, size in ((64, 1, 3), (128, 5, 4), (1024, 8, 2)):
        sublayers = (
            blocks * size
        )  # so the last block's sites read `blocks` rows: the embedding and all blocks but it
        model = ref.load(
            {**PLAIN, "hidden": hidden, "sublayers": sublayers, "blocks": {"size": size}}
        )
        parameters = ref.random_parameters(model, 1)
        sites = model.sites()[-size:]
        bank = list(
            ref.round_to(np.random.default_rng(2).standard_normal((blocks, 3, hidden)), "bf16")
        )
        partial = ref.round_to(np.random.default_rng(3).standard_normal((3, hidden)), "bf16")
        queries = tensor(np.stack([parameters[f"query_{site.number}"] for site in sites]), "f32")

        mixes, lse = peer.flash_phase_1(tensor(np.stack(bank), "bf16"), queries, model.eps)
        expected = ref.phase_1(model, parameters, sites, bank)
        what = f"flash-attn-res D={hidden} N={blocks} S={size}"
        check(
            what + ", phase 1", mixes, np.stack([mix.o for mix in expected.values()]), BOUND["bf16"]
        )
        check(
            what + ", log-sum-exp",
            lse,
            np.stack([mix.lse[:, 0] for mix in expected.values()]),
            BOUND["f32"],
        )

        merged = peer.flash_phase_2(
            tensor(partial, "bf16"), queries[0], mixes[0], lse[0], model.eps
        )
        h, _ = ref.phase_2(model, parameters, sites[0], expected[sites[0].number], partial)
        check(what + ", phase 2", merged, ref.round_to(h, "bf16"), BOUND["bf16"])
        h, _ = ref.mix(model, parameters, sites[0], bank + [partial])
        check(what + ", both against one phase", merged, ref.round_to(h, "bf16"), 2 * BOUND["bf16"])


def flash_network():
    """A network, block by block as the package does it: a block's first site is phase 1 alone, over
    all that is finished by then. Sublayers give fixed outputs, so that each site's error is its
    own."""
    peer = flash_attn_res()
    import torch

    model = ref.load({**PLAIN, "hidden": 64, "sublayers": 10, "blocks": {"size": 4}})
    parameters = ref.random_parameters(model, 1)
    outputs = ref.round_to(np.random.default_rng(2).standard_normal((11, 3, 64)), "bf16")
    expected = ref.run(model, parameters, outputs[0], lambda j, x: outputs[j + 1])

    queries = tensor(np.stack([parameters[f"query_{s}"] for s in range(11)]), "f32")
    blocks = [tensor(outputs[0], "bf16")]
    for start, end in ((0, 4), (4, 8), (8, 10), (10, 11)):
        mixes, lse = peer.flash_phase_1(torch.stack(blocks), queries[start:end], model.eps)
        partial = None
        for s in range(start, end):
            x = mixes[0]
            if partial is not None:
                x = peer.flash_phase_2(
                    partial, queries[s], mixes[s - start], lse[s - start], model.eps
                )
            check(f"flash-attn-res network, site {s}", x, expected[s].x, 2 * BOUND["bf16"])
            if s < model.sublayers:
                f = tensor(outputs[s + 1], "bf16")
                partial = f if partial is None else partial + f
        blocks.append(partial)


def main():
    comparisons, skipped = (fla_naive_attnres, fla_fused_attnres, flash_phases, flash_network), 0
    for comparison in comparisons:
        try:
            comparison()
        except Skip as reason:
            print(f"skipped {comparison.__name__}: {reason}")
            skipped += 1
    return 77 if skipped == len(comparisons) else 0


if __name__ == "__main__":
    sys.exit(main())
