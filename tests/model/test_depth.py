#!/usr/bin/env python3
"""Whole depths on a target against reference.py, which was written from the formulas: every option of a model's
description, one and two phases, extra outputs, chunks, decode, bundles.

    test_depth.py [--target cpu] [--models K3,...] [--quick]

Needs NumPy, PyYAML, and the package `fathom` on PYTHONPATH. Errors are ||got - expected|| / ||expected|| of each
site's x. Sublayers give what the reference's gave, so that errors of one site do not reach the next.

Bounds are those of docs/ir.md, 2e-6, 1e-3 and 4e-3, for two phases as well, though they round the bank's mix once
more. Only weights that do not add up to one, of which the bank's part may be larger than the whole, have twice that.
"""

import argparse
import os
import sys
import tempfile

import numpy as np

import depth
import fathom
import reference

BOUNDS = {"f32": 2e-6, "bf16": 4e-3, "f16": 1e-3}
SMALL = {"schema": 1, "name": "small", "hidden": 64, "sublayers": 11, "blocks": {"size": 4}}

OPTIONS = [
    {},
    {"dtype": "f32"},
    {"dtype": "f16"},
    {"blocks": "full"},
    {"blocks": {"count": 3}},
    {"blocks": {"starts": [0, 1, 5, 6]}},
    {"blocks": {"size": 11}},
    {"sublayers": 1},
    {"query_dtype": "bf16"},
    {"gains": {"key": "none", "output": "bf16"}},
    {"gains": {"key": "bf16", "output": "none"}},
    {"eps": 1e-3},
    {"key_norm": "none"},
    {"key_norm": "query_and_key"},
    {"scale": 0.5},
    {"scale": "rsqrt_hidden"},
    {"bias": "count"},
    {"bias": {"recency": 0.25}},
    {"null_source": "zero"},
    {"null_source": "learned"},
    {"delta_form": True},
    {"gate": "newest"},
    {"gate": "channel"},
    {"heads": 4},
    {"heads": 4, "null_source": "learned", "bias": "count", "dtype": "f32"},
    {"window": 3},
    {"window": 1},
    {"output_norm": "none"},
    {"mix_dtype": "bf16"},
    {"addends": 2},
    {"addends": [1, 2]},
    {"normaliser": "sigmoid"},
    {"normaliser": "sigmoid", "bias": {"recency": 0.5}, "dtype": "f32"},
    {"normaliser": "uniform"},
    {"normaliser": "uniform", "dtype": "f32"},
    {"normaliser": "static"},
    {"normaliser": "static", "dtype": "f16"},
    {"hidden": 123},
    {
        "hidden": 96,
        "heads": 3,
        "key_norm": "query_and_key",
        "scale": "rsqrt_hidden",
        "gate": "newest",
        "delta_form": True,
        "addends": 2,
        "bias": "count",
    },
]

failures = 0
checks = 0


def expect(condition, text):
    global failures, checks
    checks += 1
    if not condition:
        failures += 1
        print("FAILED:", text, flush=True)


def describe(options):
    return {**SMALL, **options}, " ".join(f"{k}={v}" for k, v in options.items()) or "as it is"


def outputs_of(model):
    if model.normaliser == "softmax":
        return ("weights", "entropy", "mix")
    return ("weights", "mix") if model.normaliser == "sigmoid" else ("mix",)


def two_phase_bound(model):
    return BOUNDS[model.dtype] * (1 if model.normaliser == "softmax" else 2)


def compare(label, model, compiled, got, expected, bound):
    worst = 0.0
    for s, (site, wanted) in enumerate(zip(got, expected)):
        fp8 = "fp8" in compiled.outputs and s < compiled.sublayers
        values = depth.from_bits(site.x)
        if fp8:
            values = values * site.extras["scale"][:, None]
        error = reference.error(values, wanted.x)
        worst = max(worst, error)
        expect(error <= (5e-2 if fp8 else bound), f"{label}: x of site {s} has an error of {error:.2e}")
        for name in depth.extra_names(compiled, s):
            if name == "scale":
                exact = wanted.fp8[1]
            else:
                exact = getattr(wanted, name)
            values = depth.from_bits(site.extras[name])
            error = reference.error(values, exact)
            if name == "entropy":  # lse - sum a z: near 0 what counts is the size of the logits
                error = np.abs(values - exact).max()
            # Weights follow the logits, which two phases do not round.
            limit = bound if name == "mix" else 1e-5
            if name == "scale":  # the largest channel of a token, which may be rounded the other way
                limit = 2 * bound
            expect(error <= limit, f"{label}: {name} of site {s} has an error of {error:.2e}")
    return worst


def check_options(target, rows, options):
    description, label = describe(options)
    for phases in ("one", "two", "auto"):
        model = reference.load(description)
        outputs = outputs_of(model) if phases != "auto" else ()
        model, compiled, parameters = depth.open_model(
            description, target=target, phases=phases, outputs=outputs
        )
        embedding = reference.random_embedding(model, rows, seed=2)
        toy = reference.toy_sublayers(model)
        exact = reference.run(model, parameters, embedding, toy)
        got = depth.run(model, compiled, embedding, depth.recorded(model, exact))
        bound = BOUNDS[model.dtype] if phases == "one" else two_phase_bound(model)
        worst = compare(f"{label}, {phases}", model, compiled, got, exact, bound)
        print(f"{label}, {phases}: {worst:.2e} of {bound:.1e}, {compiled.kernels} kernels", flush=True)


def check_fp8(target, rows):
    for phases in ("one", "two"):
        model, compiled, parameters = depth.open_model(
            SMALL, target=target, phases=phases, outputs=("fp8",)
        )
        embedding = reference.random_embedding(model, rows, seed=2)
        exact = reference.run(model, parameters, embedding, reference.toy_sublayers(model))
        got = depth.run(model, compiled, embedding, depth.recorded(model, exact))
        worst = compare(f"fp8, {phases}", model, compiled, got, exact, two_phase_bound(model))
        print(f"fp8, {phases}: {worst:.2e}", flush=True)


def bits_of(sites):
    return [np.ascontiguousarray(site.x).view(np.uint8) for site in sites]


def check_chunks(target, rows):
    """Chunks of any size, and decode token by token, give the bits of one chunk."""
    for phases in ("one", "two"):
        for dtype in ("bf16", "f32"):
            description, _ = describe({"dtype": dtype, "blocks": {"size": 3}})
            model, compiled, parameters = depth.open_model(description, target=target, phases=phases)
            embedding = reference.random_embedding(model, rows, seed=3)
            live = depth.live(model)
            whole = bits_of(depth.run(model, compiled, embedding, live))
            for chunks in ([1] * rows, [rows - 1, 1], [2, 0, rows - 2], [1, rows - 1]):
                pieces = bits_of(depth.run(model, compiled, embedding, live, chunks=chunks))
                same = all(np.array_equal(a, b) for a, b in zip(whole, pieces))
                expect(same, f"{phases}, {dtype}: chunks {chunks} give other bits than one")
    print("chunks and decode: the same bits", flush=True)


def check_many_in_flight(target, rows):
    """Sequences whose sites take turns do not disturb each other."""
    model, compiled, parameters = depth.open_model(SMALL, target=target, phases="two")
    toy = reference.toy_sublayers(model)
    embeddings = [reference.random_embedding(model, rows + i, seed=5 + i) for i in range(3)]
    alone = [bits_of(depth.run(model, compiled, e, depth.live(model))) for e in embeddings]
    sequences = [fathom.Sequence(compiled) for _ in embeddings]
    states = [[depth.empty(model.dtype, *e.shape)] for e in embeddings]
    for sequence, state, embedding in zip(sequences, states, embeddings):
        sequence.begin(depth.to_bits(embedding, model.dtype), state[0])
    for s in range(1, compiled.sites):
        for sequence, state in zip(sequences, states):
            x = np.empty_like(state[-1])
            addends = [depth.to_bits(toy(s - 1, depth.from_bits(state[-1])), model.dtype)]
            sequence.end(addends, x) if s == compiled.sublayers else sequence.site(s, addends, x)
            state.append(x)
    for i, (state, wanted) in enumerate(zip(states, alone)):
        same = all(np.array_equal(x.view(np.uint8), w) for x, w in zip(state, wanted))
        expect(same, f"sequence {i} of several gives other bits than alone")
    print("three sequences in turns: the same bits", flush=True)


def check_bundle(rows):
    """A loaded bundle gives the bits of the compiled model."""
    program = os.environ.get("FATHOM_PROGRAM")
    if not program:
        print("skipped: bundles, as $FATHOM_PROGRAM names no program")
        return
    with tempfile.TemporaryDirectory() as folder:
        path, bundle = depth.write_description(SMALL, folder), os.path.join(folder, "small.fathom")
        assert os.spawnl(os.P_WAIT, program, "fathom", "compile", path, "-o", bundle) == 0
        model, compiled, parameters = depth.open_model(SMALL)
        loaded = fathom.Model(bundle)
        table = model.parameters()
        loaded.bind({n: depth.to_bits(v, table[n][1]) for n, v in parameters.items()})
        embedding = reference.random_embedding(model, rows, seed=4)
        a = bits_of(depth.run(model, compiled, embedding, depth.live(model)))
        b = bits_of(depth.run(model, loaded, embedding, depth.live(model)))
        expect(all(np.array_equal(x, y) for x, y in zip(a, b)), "a bundle gives other bits")
    print("bundle: the same bits", flush=True)


def check_models(names, target, rows):
    for name in names:
        for phases in ("one", "two", "auto"):
            model, compiled, parameters = depth.open_model(name, target=target, phases=phases)
            embedding = reference.random_embedding(model, rows, seed=2)
            exact = reference.run(model, parameters, embedding, reference.toy_sublayers(model))
            got = depth.run(model, compiled, embedding, depth.recorded(model, exact))
            bound = BOUNDS[model.dtype] if phases == "one" else two_phase_bound(model)
            worst = compare(f"{name}, {phases}", model, compiled, got, exact, bound)
            print(
                f"{model.name}, {phases}: {compiled.sites} sites, D = {model.hidden}, T = {rows}: worst "
                f"{worst:.2e} of {bound:.1e}, {compiled.kernels} kernels",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="cpu", help="cpu, interp or cuda-emu")
    parser.add_argument("--rows", type=int, default=5, help="tokens (default: 5)")
    parser.add_argument("--models", default="", help="paths of models to run as well, with commas")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th option")
    arguments = parser.parse_args()
    for options in OPTIONS[:: arguments.every]:
        check_options(arguments.target, arguments.rows, options)
    check_fp8(arguments.target, arguments.rows)
    check_chunks(arguments.target, arguments.rows)
    check_many_in_flight(arguments.target, arguments.rows)
    if arguments.target == "cpu":
        check_bundle(arguments.rows)
    check_models([m for m in arguments.models.split(",") if m], arguments.target, 3)
    print(f"{checks - failures} of {checks} checks passed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
