#!/usr/bin/env python3
"""The reference model against itself and against numbers worked out by hand. Needs NumPy and
PyYAML; exit status 77: they are not there.

    python3 tests/model/test_reference.py [PART_OF_A_NAME]      # or pytest
"""

import inspect
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import numpy as np
    import yaml

    import reference as ref
except ImportError as reason:
    print(f"skipped: {reason}")
    sys.exit(77)

SMALL = {"schema": 1, "hidden": 48, "sublayers": 10, "blocks": {"size": 4}}  # blocks of 4, 4 and 2
TWO_PHASE_BOUND = {"f32": 3e-7, "f16": 2e-3, "bf16": 8e-3}  # one more rounding of the bank's mix

VARIANTS = {
    "plain": {},
    "no gains": {"gains": {"key": "none", "output": "none"}},
    "gains of bf16": {"gains": {"key": "bf16", "output": "bf16"}},
    "keys as they are": {"key_norm": "none", "scale": 0.25},
    "query and key": {"key_norm": "query_and_key", "scale": "rsqrt_hidden"},
    "sigmoid": {"normaliser": "sigmoid"},
    "uniform": {"normaliser": "uniform"},
    "static": {"normaliser": "static"},
    "count": {"bias": "count"},
    "recency": {"bias": {"recency": 0.5}},
    "null zero": {"null_source": "zero"},
    "null learned": {"null_source": "learned", "heads": 4},
    "delta": {"delta_form": True},
    "gate newest": {"gate": "newest"},
    "gate channel": {"gate": "channel", "query_dtype": "bf16"},
    "heads": {"heads": 6, "scale": "rsqrt_hidden"},
    "window": {"window": 2},
    "window of one": {"window": 1, "bias": "count"},
    "no output norm": {"output_norm": "none"},
    "mix in bf16": {"mix_dtype": "bf16"},
    "addends": {"addends": [1, 2]},
    "list of starts": {"blocks": {"starts": [0, 1, 5]}},
    "three blocks": {"blocks": {"count": 3}},
    "full": {"blocks": "full"},
}


def example(description, rows=5, **options):
    model = ref.load({**SMALL, **description})
    parameters = ref.random_parameters(model, 1)
    embedding = ref.random_embedding(model, rows, 2)
    return (
        model,
        parameters,
        embedding,
        ref.run(model, parameters, embedding, ref.toy_sublayers(model), **options),
    )


def same(a, b):
    return all(
        np.array_equal(x.x, y.x) and np.array_equal(x.p, y.p) for x, y in zip(a, b, strict=True)
    )


# ---- blocks and sites ----------------------------------------------------------------------------


def test_starts():
    assert ref.block_starts({"size": 24}, 186) == [0, 24, 48, 72, 96, 120, 144, 168]
    assert ref.block_starts({"count": 3}, 10) == [0, 4, 8]
    assert ref.block_starts({"starts": [0, 3]}, 10) == [0, 3]
    assert ref.block_starts("full", 3) == [0, 1, 2]
    for starts in ([1, 2], [0, 3, 3], [0, 10], []):
        raises(lambda: ref.block_starts({"starts": starts}, 10))


def test_sites_of_ragged_blocks():
    counts = [site.counts for site in ref.load({**SMALL, "sublayers": 6}).sites()]
    assert counts == [[1], [1, 1], [1, 2], [1, 3], [1, 4], [1, 4, 1], [1, 4, 2]]
    k3 = ref.load({"schema": 1, "hidden": 7168, "sublayers": 186, "blocks": {"size": 24}}).sites()
    assert len(k3) == 187 and max(site.sources for site in k3) == 9 and k3[-1].counts[-1] == 18


def test_full_sees_every_output():
    counts = [site.counts for site in ref.load({**SMALL, "blocks": "full", "window": 3}).sites()]
    assert counts == [[1], [1, 1]] + [[1, 1, 1]] * 9


def test_bad_descriptions():
    for wrong in (
        {"normaliser": "uniform", "heads": 2},
        {"normaliser": "sigmoid", "null_source": "zero"},
        {"heads": 5},
        {"dtype": "f64"},
        {"hiden": 3},
        {"schema": 2},
    ):
        raises(lambda: ref.load({**SMALL, **wrong}))
    raises(lambda: ref.load({"schema": 1, "hidden": 3}))


def test_yaml():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.yaml")
        with open(path, "w") as file:
            yaml.safe_dump(
                {"schema": 1, "hidden": 8, "sublayers": 2, "blocks": {"starts": [0]}}, file
            )
            file.write("eps: 1e-5\ntwo_phase: on\n")
        model = ref.load(path)
    assert (model.name, model.starts, model.eps, model.two_phase) == ("tiny", [0], 1e-5, "on")


def raises(function):
    try:
        function()
    except ValueError:
        return
    raise AssertionError("no ValueError")


# ---- rounding ------------------------------------------------------------------------------------


def test_bf16():
    pairs = {
        1 + 2**-8: 1,
        1 + 3 * 2**-8: 1 + 2**-6,
        1 + 2**-8 + 2**-20: 1 + 2**-7,
        -1 - 2**-8: -1,
        3.4e38: math.inf,
        2.0**-133: 2.0**-133,
        2.0**-134: 0,
        3 * 2.0**-134: 2.0**-132,
        math.inf: math.inf,
        0: 0,
    }
    assert ref.round_to(np.array(list(pairs)), "bf16").tolist() == list(pairs.values())
    assert np.isnan(ref.round_to(np.array([np.nan]), "bf16")).all()


def test_e4m3():
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)
    values = ref.decode_e4m3(codes)
    assert (
        values.max() == 448 and values[1] == 2.0**-9 and values[0x38] == 1 and values[0x39] == 1.125
    )
    assert np.array_equal(
        ref.quantise_e4m3(values[None])[0][0], codes
    )  # amax is 448: the scale is 1
    between = np.sort(values[:127])
    middle = (between[1:] + between[:-1]) / 2  # ties go to the even code
    got = ref.quantise_e4m3(np.append(middle, 448)[None])[0][0][:-1]
    assert np.array_equal(got, [code + code % 2 for code in range(126)])
    codes, scale = ref.quantise_e4m3(np.array([[0.0, 0.0], [1.0, -3.0]]))
    assert scale[0] == np.float32(1e-10 / 448) and codes[0].tolist() == [0, 0]
    assert (
        np.allclose(ref.decode_e4m3(codes[1]) * scale[1], [1, -3], rtol=0.05)
        and codes[1, 1] == 0xFE
    )


# ---- the mathematics -----------------------------------------------------------------------------


def test_by_hand():
    """D = 2, one sublayer that doubles its input, eps 0: every number worked out on paper."""
    model = ref.load({"schema": 1, "hidden": 2, "sublayers": 1, "dtype": "f32", "eps": 0})
    ln3 = math.log(3)
    parameters = {
        "query_0": np.array([5.0, 6.0]),
        "key_gain_0": np.array([1.0, 1.0]),
        "output_gain_0": np.array([1.0, 2.0]),
        "output_gain_1": np.array([1.0, 1.0]),
        "query_1": np.array([ln3, 0.0]),
        "key_gain_1": np.array([0.5, 7.0]),
    }
    embedding = np.array([[3.0, 3.0]])
    first, last = ref.run(model, parameters, embedding, lambda j, x: x * np.array([0.0, 4.0]))
    assert first.weights.tolist() == [[1]] and first.x.tolist() == [
        [1, 2]
    ]  # one source; rms 3; gain (1, 2)
    # sources (3, 3) and (0, 8): keys (1, 1) and (0, sqrt 2), logits ln 3 / 2 and 0, weights sqrt 3
    # : 1
    a = math.sqrt(3) / (math.sqrt(3) + 1)
    h = np.array([3 * a, 3 * a + 8 * (1 - a)])
    assert np.allclose(last.weights[:, 0], [a, 1 - a], rtol=1e-15)
    assert np.allclose(last.mix, h, rtol=1e-7) and last.p.tolist() == [[0, 8]]
    assert np.allclose(last.x, h / math.sqrt((h * h).mean()), rtol=1e-7)
    assert np.allclose(last.entropy, -a * math.log(a) - (1 - a) * math.log(1 - a))


def test_options_by_hand():
    """Two sources (3, 3), (0, 8), logits 0 by a query of zeros; the last site's mix, one option a
    time.
    """

    def last(query=(0, 0), **option):
        model = ref.load(
            {
                "schema": 1,
                "hidden": 2,
                "sublayers": 1,
                "dtype": "f32",
                "eps": 0,
                "output_norm": "none",
                **option,
            }
        )
        parameters = {name: np.zeros(shape) for name, (shape, _) in model.parameters().items()}
        for name, value in {
            "query_0": query,
            "query_1": query,
            "weights_1": [2, -1],
            "null_1": math.log(2),
            "gate_1": [math.log(3), 0],
        }.items():
            if name in parameters:
                parameters[name] = np.broadcast_to(np.array(value, float), parameters[name].shape)
        return ref.run(
            model, parameters, np.array([[3.0, 3.0]]), lambda j, x: np.array([[0.0, 8.0]])
        )[-1]

    third, root = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-math.sqrt(2)))
    no_gain = {"key": "none"}
    expected = {
        "plain": ({}, [1.5, 5.5]),
        "sigmoid": ({"normaliser": "sigmoid"}, [1.5, 5.5]),
        "static": ({"normaliser": "static"}, [6, -2]),
        "uniform": ({"normaliser": "uniform"}, [1.5, 5.5]),
        "recency": ({"bias": {"recency": 1}}, [3 * (1 - third), 3 * (1 - third) + 8 * third]),
        "sigmoid recency": (
            {"normaliser": "sigmoid", "bias": {"recency": 1}},
            [3 - 3 * third, 3 - 3 * third + 4],
        ),
        "query and key": (
            {"query": (9, 0), "key_norm": "query_and_key", "gains": no_gain},
            [3 * root, 8 - 5 * root],
        ),
        "mix in bf16": ({"bias": {"recency": 1}, "mix_dtype": "bf16"}, [207 / 2**8, 213 / 2**5]),
        "zero": ({"null_source": "zero"}, [1, 11 / 3]),
        "learned": ({"null_source": "learned"}, [0.75, 2.75]),
        "null a head": ({"null_source": "learned", "heads": 2}, [0.75, 2.75]),
        "delta": ({"delta_form": True}, [1.5, 13.5]),
        "channel": ({"gate": "channel"}, [1.5 * 0.75, 5.5 * 0.5]),
        "newest": ({"gate": "newest"}, [0.75, 2.75]),  # the newest is (0, 8): its gate's logit is 0
        "window": ({"window": 1}, [0, 8]),
    }
    for name, (option, h) in expected.items():
        assert np.allclose(last(**option).x, [h], rtol=1e-6), name


def test_count_prior_is_a_mean_over_sublayers():
    """With logits 0, weights are as the numbers of sublayers summed."""
    model = ref.load({**SMALL, "bias": "count"})
    parameters = ref.random_parameters(model, 1)
    for name in parameters:
        if name.startswith("query_"):
            parameters[name] = np.zeros(model.hidden)
    results = ref.run(
        model, parameters, ref.random_embedding(model, 2, 2), ref.toy_sublayers(model)
    )
    assert np.allclose(results[-1].weights, np.array([[1], [4], [4], [2]]) / 11)


def test_heads_are_models_of_their_own():
    """Without norms a head knows nothing of the others: two are two models of half the size."""
    options = {"key_norm": "none", "output_norm": "none", "dtype": "f32", "scale": "rsqrt_hidden"}
    both, parameters, embedding, _ = example({**options, "heads": 2})

    def sublayers(j, x):
        return x / (j + 2)

    whole = ref.run(both, parameters, embedding, sublayers)
    single = ref.load({**SMALL, **options, "hidden": 24})
    for head, part in enumerate((slice(0, 24), slice(24, 48))):
        alone = ref.run(
            single,
            {name: value[part] for name, value in parameters.items()},
            embedding[:, part],
            sublayers,
        )
        for a, b in zip(alone, whole):
            assert np.array_equal(a.x, b.x[:, part]) and np.allclose(
                a.weights, b.weights[:, :, head], rtol=1e-12
            )


def test_one_source_weighs_exactly_one():
    for options in ({}, {"window": 1}, {"heads": 4}):
        *_, results = example(options)
        assert (results[0].weights == 1).all()
    *_, results = example({"window": 1}, two_phase=True)
    assert all((site.weights == 1).all() and (site.entropy == 0).all() for site in results)


def test_large_logits():
    model, parameters, embedding, _ = example({"dtype": "f32"})
    for name in parameters:
        if name.startswith("query_"):
            parameters[name] = parameters[name] * 1e4
    for two_phase in (False, True):
        results = ref.run(model, parameters, embedding, ref.toy_sublayers(model), two_phase)
        assert all(
            np.isfinite(site.x).all() and np.allclose(site.weights.sum(axis=0), 1)
            for site in results
        )


def test_a_nan_stays_in_its_token():
    model, parameters, embedding, results = example({})
    embedding = embedding.copy()
    embedding[2, 7] = np.nan
    with np.errstate(invalid="ignore"):
        poisoned = ref.run(model, parameters, embedding, ref.toy_sublayers(model))
    others = [0, 1, 3, 4]
    for a, b in zip(results, poisoned):
        assert np.array_equal(a.x[others], b.x[others]) and np.isnan(b.x[2]).all()


# ---- forms of the same ---------------------------------------------------------------------------


def test_chunks_equal_the_whole():
    for name, option in VARIANTS.items():
        for two_phase in (False, True):
            model, parameters, embedding, whole = example(option, rows=7, two_phase=two_phase)
            for cuts in ([0, 1, 7], [0, 3, 4, 7], list(range(8))):
                parts = [
                    ref.run(model, parameters, embedding[a:b], ref.toy_sublayers(model), two_phase)
                    for a, b in zip(cuts, cuts[1:])
                ]
                for s, site in enumerate(whole):
                    assert np.array_equal(site.x, np.concatenate([part[s].x for part in parts])), (
                        name,
                        cuts,
                        s,
                    )


def test_two_phases_equal_one():
    for name, option in VARIANTS.items():
        for dtype, bound in TWO_PHASE_BOUND.items():
            model, parameters, embedding, one = example({**option, "dtype": dtype})
            # Outputs of sublayers are fixed, so that a site's error is its own and not what
            # sublayers made of others'.
            outputs = iter([ref.toy_sublayers(model)(j, one[j].x) for j in range(model.sublayers)])
            two = ref.run(model, parameters, embedding, lambda j, x: next(outputs), two_phase=True)
            for s, (a, b) in enumerate(zip(one, two)):
                assert np.array_equal(a.p, b.p), (name, dtype, s)
                assert ref.error(b.x, a.x) <= bound, (name, dtype, s, ref.error(b.x, a.x))
                assert np.allclose(a.weights, b.weights, rtol=1e-12, atol=1e-15), (name, dtype, s)


def test_full_is_blocks_of_one():
    assert same(example({"blocks": "full"})[-1], example({"blocks": {"size": 1}})[-1])
    assert same(
        example({"blocks": "full"})[-1], example({"blocks": {"starts": list(range(10))}})[-1]
    )
    assert not same(example({"blocks": "full"})[-1], example({"blocks": {"size": 2}})[-1])


def test_a_wide_window_sees_all():
    assert same(example({"window": 4})[-1], example({})[-1])
    assert not same(example({"window": 3})[-1], example({})[-1])


def test_full_by_the_published_formula():
    """h_l = sum_i softmax_i(w_l . RMSNorm(v_i)) v_i with v_0 the embedding, without this module's
    helpers.
    """
    model, parameters, embedding, results = example(
        {"blocks": "full", "dtype": "f32", "output_norm": "none"}
    )
    v = [embedding]
    for layer in range(model.sublayers + 1):
        stack = np.stack(v)
        k = (
            stack
            / np.sqrt(np.mean(stack**2, axis=2, keepdims=True) + 1e-5)
            * parameters[f"key_gain_{layer}"]
        )
        e = np.exp(k @ parameters[f"query_{layer}"])
        h = np.einsum("nt,ntd->td", e / e.sum(axis=0), stack)
        assert np.allclose(h, results[layer].x, rtol=2e-6, atol=1e-6), layer
        if layer < model.sublayers:
            v.append(ref.toy_sublayers(model)(layer, results[layer].x))


def test_sums_are_bit_exact():
    """p is the sum of the block's outputs in order, rounded at each step."""
    model, _, embedding, results = example({"addends": [1, 2]})
    toy = ref.toy_sublayers(model)
    total = embedding
    for s in range(1, model.sublayers + 1):
        addends = toy(s - 1, results[s - 1].x)
        f = addends[0] + addends[1] if isinstance(addends, tuple) else addends
        total = ref.round_to(f if s - 1 in model.starts else total + f, "bf16")
        assert np.array_equal(total, results[s].p)


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    tests = [
        (name, test)
        for name, test in globals().items()
        if name.startswith("test_") and inspect.isfunction(test)
    ]
    for name, test in tests:
        if wanted in name:
            test()
            print(f"ok {name}")


if __name__ == "__main__":
    main()
