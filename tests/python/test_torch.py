"""fathom.torch: results against the reference, torch.compile, decode, threads, faults, and the time of a call.

    PYTHONPATH=bindings/python:tests/model python tests/python/test_torch.py [NAME ...]

Each check prints a line; the first that fails ends the program with its traceback and status 1. Without
PyTorch it says so, and ends with status 77, which ctest takes for skipped.
"""

import copy
import gc
import itertools
import os
import statistics
import sys
import threading
import time

import numpy as np

try:
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; pip install torch")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"))
import reference

import fathom
from fathom.torch import AttnRes, DepthMixer

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# ||out - ref|| / ||ref||: one rounding of the dtype and f32 arithmetic; two phases round once more.
BOUNDS = {"f32": 3e-6, "bf16": 4e-3, "f16": 6e-4}


def description(**more):
    return {
        "name": "toy",
        "schema": 1,
        "hidden": 64,
        "sublayers": 10,
        "blocks": {"size": 4},
        "dtype": "f32",
        **more,
    }


def tensor(values, dtype):
    return torch.from_numpy(np.array(values, np.float64, order="C")).to(DTYPES[dtype])


def numbers(tensor):
    return tensor.detach().to(torch.float64).numpy()


def load(mixer, model, parameters):
    """Copies the reference's parameters into the mixer's."""
    with torch.no_grad():
        for name, values in parameters.items():
            kind, site = name.rsplit("_", 1)
            stacked = getattr(mixer, kind)
            row = stacked[int(site)]
            row = row[: len(values)] if kind == "weights" else row
            row.copy_(torch.from_numpy(np.array(values)))


def build(spec, **options):
    """(mixer, reference model, parameters)."""
    model = reference.load(spec)
    mixer = DepthMixer(spec, **options)
    parameters = reference.random_parameters(model, seed=1)
    assert {n for n, _ in mixer.named_parameters()} == {n.rsplit("_", 1)[0] for n in parameters}
    load(mixer, model, parameters)
    return mixer, model, parameters


def rotate(mixer):
    """Sublayers in PyTorch with which every token counts for itself."""
    return [
        lambda x, j=j: torch.roll(x, j + 1, dims=-1) * ((-1) ** j * (1 + j % 5) / 8)
        for j in range(mixer.sublayers)
    ]


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"expected {text!r} in: {error}"
        return
    raise AssertionError(f"expected {kind.__name__}: {text}")


# ---- results ------------------------------------------------------------------------------------


def compare(spec, phases, outputs=(), batch=False):
    mixer, model, parameters = build(spec, phases=phases, outputs=outputs)
    rows = 6
    embedding = reference.random_embedding(model, rows, seed=2)
    expected = reference.run(model, parameters, embedding, reference.toy_sublayers(model), phases == "two")
    shape = (2, 3, model.hidden) if batch else (rows, model.hidden)
    worst, toy = 0.0, reference.toy_sublayers(model)

    def check(got, wanted, what):
        nonlocal worst
        wanted = np.asarray(wanted)
        error = reference.error(numbers(got).reshape(wanted.shape), wanted)
        assert error <= BOUNDS[model.dtype], f"{what}: {error}"
        worst = max(worst, error)

    with torch.no_grad():
        depth = mixer.begin(tensor(embedding, model.dtype).reshape(shape))
        for s, site in enumerate(expected):
            if s > 0:
                given = toy(s - 1, expected[s - 1].x)  # the reference's, so that errors do not add up
                given = given if isinstance(given, tuple) else (given,)
                depth.add(*(tensor(f, model.dtype).reshape(shape) for f in given))
            x = depth.end() if s == model.sublayers else depth.input
            assert x.shape == shape
            if depth.scale is not None:
                assert x.dtype is torch.float8_e4m3fn and s < model.sublayers
                codes, scales = site.fp8
                same = np.mean(x.reshape(rows, -1).view(torch.uint8).numpy() == codes)
                assert same > 0.98, same
                check(depth.scale, scales, f"scale_{s}")
            else:
                check(x, site.x, f"x_{s}")
            for name, wanted in (("weights", site.weights), ("entropy", site.entropy), ("mix", site.mix)):
                if name in outputs:
                    check(getattr(depth, name), wanted, f"{name}_{s}")
                else:
                    assert getattr(depth, name) is None
    return worst


def test_reference():
    for dtype, phases, batch in itertools.product(BOUNDS, ("one", "two"), (False, True)):
        worst = compare(description(dtype=dtype), phases, batch=batch)
        print(f"  {dtype}, {phases} phase(s), {'[B, T, D]' if batch else '[T, D]'}: worst site {worst:.1e}")


def test_variants():
    for more in (
        {"blocks": "full"},
        {"addends": [1, 2]},
        {"gains": {"key": "none", "output": "bf16"}, "query_dtype": "bf16"},
        {"normaliser": "static"},
        {"null_source": "learned", "gate": "newest", "heads": 4, "bias": "count"},
        {"gate": "channel", "delta_form": True, "output_norm": "none"},
    ):
        print(f"  {more}: worst site {compare(description(**more), 'two'):.1e}")


def test_outputs():
    outputs = ("weights", "entropy", "mix")
    for more, batch in itertools.product(({}, {"heads": 4}), (False, True)):
        worst = compare(description(**more), "two", outputs, batch)
        print(f"  weights, entropy, mix {more}: worst {worst:.1e}")
    worst = compare(description(dtype="bf16"), "one", ("fp8", "weights"))
    print(f"  fp8 and weights: worst {worst:.1e}")
    mixer = DepthMixer(description(), outputs=("fp8",))
    with torch.no_grad():
        y = mixer(torch.randn(3, 64), [lambda x, s: x.float() * s[:, None]] * 10)
    assert y.dtype is torch.float32


def test_initial():
    mixer = DepthMixer(description(null_source="learned", gate="newest"))
    assert not mixer.query.any() and not mixer.null.any() and not mixer.gate.any()
    assert (mixer.key_gain == 1).all() and (mixer.output_gain == 1).all()
    static = DepthMixer(description(normaliser="static"))
    sums = static.weights.sum(dim=1)
    assert torch.allclose(sums, torch.ones_like(sums)), sums
    named = DepthMixer("gpt-small")
    assert named.query.shape == (named.sublayers + 1, named.hidden)
    raises(TypeError, "a description or its keys", lambda: DepthMixer())
    raises(fathom.Error, "0 is not from 1", lambda: DepthMixer(hidden=8, sublayers=0))
    print("  zeros, ones, 1 / N; shipped names; faulty descriptions")


def test_parameters():
    """State, copies, in-place changes, exchanged memory."""
    mixer, model, parameters = build(description())
    embedding = torch.randn(5, 64)
    with torch.no_grad():
        y = mixer(embedding, rotate(mixer))
        twin = copy.deepcopy(mixer)
        assert torch.equal(twin(embedding, rotate(twin)), y)
        mixer.query.zero_()
        changed = mixer(embedding, rotate(mixer))
        assert not torch.equal(changed, y)
        mixer.load_state_dict(twin.state_dict())
        assert torch.equal(mixer(embedding, rotate(mixer)), y)
        mixer.query = torch.nn.Parameter(torch.zeros(11, 64))
        assert torch.equal(mixer(embedding, rotate(mixer)), changed)
        depth = mixer.begin(embedding)
        mixer.query = torch.nn.Parameter(torch.zeros(11, 64))
        raises(RuntimeError, "under way", lambda: mixer.begin(embedding))
        del depth
        mixer.begin(embedding)
        mixer.key_gain = torch.nn.Parameter(torch.ones(11, 64, dtype=torch.bfloat16))
        raises(TypeError, "key_gain is torch.bfloat16", lambda: mixer.begin(embedding))
    print("  state_dict, deepcopy, changes in place, exchanged memory, and that under way")


# ---- compile, decode, threads -------------------------------------------------------------------


def test_compile():
    for outputs in ((), ("weights", "entropy")):
        mixer, _, _ = build(description(), outputs=outputs)
        layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(10))

        def loop(embedding):
            depth, seen = mixer.begin(embedding), []
            for layer in layers:
                depth.add(torch.relu(layer(depth.input)))
                if depth.entropy is not None:
                    seen.append(depth.entropy)
            return depth.end(), seen

        with torch.no_grad():
            # The default backend takes long; once is enough.
            backend = "aot_eager" if outputs else "inductor"
            compiled = torch.compile(loop, fullgraph=True, backend=backend)
            module = torch.compile(mixer, fullgraph=True, backend="aot_eager")
            for shape in ((5, 64), (2, 3, 64), (9, 64), (1, 64)):
                embedding = torch.randn(shape)
                y, seen = loop(embedding)
                z, also = compiled(embedding)
                assert torch.allclose(y, z, rtol=1e-4, atol=1e-5)
                assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(seen, also))
                assert len(seen) == len(also) == (10 if outputs else 0)
            z = module(embedding, list(layers))
            assert torch.equal(z, mixer(embedding, list(layers)))
            both = lambda e: (mixer(e, rotate(mixer)), mixer(e, [lambda x: x] * 10))
            two = torch.compile(both, fullgraph=True, backend="aot_eager")
            for got, sublayers in zip(two(embedding), (rotate(mixer), [lambda x: x] * 10)):
                assert torch.allclose(got, mixer(embedding, sublayers), rtol=1e-4, atol=1e-5)
        print(f"  fullgraph, {backend}, outputs {outputs}: [T, D], [B, T, D], other T, two depths of one embedding")
    site = AttnRes(64)
    sources = [torch.randn(4, 64) for _ in range(5)]
    with torch.no_grad():
        assert torch.equal(torch.compile(site, fullgraph=True, backend="aot_eager")(sources), site(sources))
    print("  AttnRes, fullgraph")


def test_operators():
    """Schemas, fake functions and autograd as torch.library wants them."""
    mixer, _, _ = build(description(), outputs=("weights",))
    key, parameters = mixer._engine.key, list(mixer.parameters())
    checks = ("test_schema", "test_faketensor")
    embedding = torch.randn(3, 64)
    torch.library.opcheck(torch.ops.fathom.begin.default, (embedding, parameters, key), test_utils=checks[:1])
    site = AttnRes(64)
    given = ([torch.randn(3, 64)] * 4, site.query, site.key_gain, None, 1e-5)
    given = ([torch.randn(3, 64) for _ in range(4)], *given[1:])
    torch.library.opcheck(torch.ops.fathom.attn_res.default, given, test_utils=checks)
    from torch._functorch.compile_utils import fx_graph_cse
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.no_grad():
        ticket, real = torch.ops.fathom.begin(embedding, parameters, key)
        _, real_1 = torch.ops.fathom.site(ticket, [embedding], key, 1)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            ticket, fake = torch.ops.fathom.begin(mode.from_tensor(embedding), parameters, key)
            _, fake_1 = torch.ops.fathom.site(ticket, [mode.from_tensor(embedding)], key, 1)
    for a, b in zip(real + real_1, fake + fake_1):
        assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
    # Two begins that look alike stay two: they stand for different tokens under way.
    graph = torch.fx.Graph()
    given = (graph.placeholder("embedding"), [], key)
    begun = [graph.call_function(torch.ops.fathom.begin.default, given) for _ in range(2)]
    graph.output(begun)
    kept = fx_graph_cse(graph).find_nodes(op="call_function", target=torch.ops.fathom.begin.default)
    assert len(kept) == 2, kept
    print("  opcheck; fake results are like real ones; begins are never put together")


def test_decode():
    for dtype, phases in itertools.product(("f32", "bf16"), ("one", "two")):
        mixer, model, _ = build(description(dtype=dtype), phases=phases)
        embedding = torch.randn(17, 64).to(DTYPES[dtype])
        with torch.inference_mode():
            whole = mixer(embedding, rotate(mixer))
            for size in (1, 2, 5, 16):
                pieces = [mixer(part, rotate(mixer)) for part in embedding.split(size)]
                assert torch.equal(torch.cat(pieces), whole), (dtype, phases, size)
            assert mixer(embedding[:0], rotate(mixer)).shape == (0, 64)
            # Two depths, one step at a time.
            a, b = mixer.begin(embedding[:4]), mixer.begin(embedding[4:])
            for sublayer in rotate(mixer):
                a.add(sublayer(a.input))
                b.add(sublayer(b.input))
            assert torch.equal(torch.cat([a.end(), b.end()]), whole)
            # Rows with space between them.
            wide = torch.zeros(17, 100, dtype=DTYPES[dtype])
            wide[:, :64] = embedding
            assert torch.equal(mixer(wide[:, :64], rotate(mixer)), whole)
            padded = [lambda x, f=f: torch.nn.functional.pad(f(x), (0, 36))[:, :64] for f in rotate(mixer)]
            assert torch.equal(mixer(embedding, padded), whole)
    print("  chunks of 1, 2, 5, 16, none and all, interleaved depths, padded rows: equal bit for bit")


def test_threads():
    mixer, _, _ = build(description())
    inputs = [torch.randn(1 + i % 5, 64) for i in range(24)]
    with torch.no_grad():
        expected = [mixer(e, rotate(mixer)) for e in inputs]
    failed = []

    def work(first):
        try:
            with torch.no_grad():
                for _ in range(10):
                    for i in range(first, len(inputs), 4):
                        assert torch.equal(mixer(inputs[i], rotate(mixer)), expected[i])
                        mixer.begin(inputs[i])  # and one that is let go
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed, failed
    pools = mixer._engine._pools.values()
    assert sum(map(len, pools)) <= 9, "sequences are given back"
    print(f"  4 threads, 240 depths ended and 240 let go: equal; {sum(map(len, pools))} sequences in all")


def test_given_up():
    """Depths that are let go, also those that operators began, give their sequences back."""
    mixer, _, _ = build(description())
    embedding = torch.randn(2, 64)
    pools = mixer._engine._pools
    for grad in (False, True):
        for _ in range(5):
            with torch.set_grad_enabled(grad):
                depth = mixer.begin(embedding)
                depth.add(embedding)
                del depth
        gc.collect()
        assert [len(pool) for pool in pools.values()] == [1], pools

    def stop(x):
        raise KeyError("stop")

    with torch.no_grad():
        raises(KeyError, "stop", lambda: mixer(embedding, [stop] * 10))
    gc.collect()
    assert [len(pool) for pool in pools.values()] == [1]
    print("  let go with and without gradients, and by an exception: one sequence serves all")


# ---- faults -------------------------------------------------------------------------------------


def test_faults():
    mixer, _, _ = build(description(addends=[1, 2]))
    good = torch.randn(3, 64)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            raises(TypeError, "torch.bfloat16, expected torch.float32", lambda: mixer.begin(good.bfloat16()))
            raises(ValueError, "device meta", lambda: mixer.begin(good.to("meta")))
            raises(ValueError, "expected [T, 64]", lambda: mixer.begin(torch.randn(3, 63)))
            raises(ValueError, "expected [T, 64]", lambda: mixer.begin(torch.randn(64)))
            raises(ValueError, "stride 3 along", lambda: mixer.begin(torch.randn(64, 3).t()))
            depth = mixer.begin(good)
            raises(TypeError, "sublayer 0 is torch.float16", lambda: depth.add(good.half()))
            raises(ValueError, "on meta" if not grad else "device meta", lambda: depth.add(good.to("meta")))
            raises(ValueError, "shape [2, 64], expected [3, 64]", lambda: depth.add(good[:2]))
            raises(ValueError, "stride 3 along", lambda: depth.add(torch.randn(64, 3).t()))
            raises(ValueError, "gives 1 tensors", lambda: depth.add(good, good))
            depth.add(good)
            raises(ValueError, "gives 2 tensors", lambda: depth.add(good))
            raises(RuntimeError, "2 sublayers, 1 have", lambda: short(good))
            for i in range(1, 10):
                depth.add(*[good] * (1 + i % 2))
            raises(RuntimeError, "have been added", lambda: depth.add(good))
            depth.end()
            raises(RuntimeError, "has ended", depth.end)
    print("  dtype, device, shape, stride, addends, order: each an exception, and the depth goes on")


def short(embedding):
    depth = DepthMixer(hidden=64, sublayers=2, dtype="f32").begin(embedding)
    depth.add(embedding)
    depth.end()


def test_order():
    """Operators that are called by hand out of order."""
    mixer, _, _ = build(description())
    key, e = mixer._engine.key, torch.randn(3, 64)
    ops = torch.ops.fathom
    with torch.no_grad():
        ticket, _ = ops.begin(e, list(mixer.parameters()), key)
        raises(RuntimeError, "site 2 is out of order", lambda: ops.site(ticket, [e], key, 2))
        raises(RuntimeError, "out of order", lambda: ops.end(ticket, [e], key))
        for s in range(1, 10):
            ticket, _ = ops.site(ticket, [e], key, s)
        raises(RuntimeError, "out of order", lambda: ops.site(ticket, [e], key, 9))
        ops.end(ticket, [e], key)
        raises(RuntimeError, "ended", lambda: ops.end(ticket, [e], key))
        raises(RuntimeError, "no mixer", lambda: ops.begin(e, [], "nobody.1"))
    print("  sites out of order and after the end, unknown mixers")


def test_one_depth_two_threads():
    mixer, _, _ = build(description())
    with torch.no_grad():
        depth = mixer.begin(torch.randn(3, 64))
        with depth._flight.lock:  # as another thread has it while it is in the library
            raises(RuntimeError, "two threads", lambda: depth.add(torch.randn(3, 64)))
        depth.add(torch.randn(3, 64))
    print("  a depth that two threads use at once")


def test_backward():
    mixer, _, _ = build(description())
    embedding = torch.randn(3, 64, requires_grad=True)
    y = mixer(embedding, rotate(mixer))
    raises(NotImplementedError, "no backward pass", lambda: y.sum().backward())
    x = AttnRes(64)([embedding, embedding])
    raises(NotImplementedError, "no backward pass", lambda: x.sum().backward())
    with torch.no_grad():
        depth = mixer.begin(embedding)
    for sublayer in rotate(mixer):  # begun without, gone on with gradients
        depth.add(sublayer(depth.input.clone().requires_grad_()))
    y = depth.end()
    raises(NotImplementedError, "no backward pass", lambda: y.sum().backward())
    print("  backward says that training is to come")


# ---- one site -----------------------------------------------------------------------------------


def site_in_torch(site, sources):
    def norm(x):
        return x / (x.square().mean(-1, keepdim=True) + site.eps).sqrt()

    v = torch.stack([s.double() for s in sources])
    key = norm(v) if site.key_gain is None else norm(v) * site.key_gain.double()
    a = torch.softmax((key * site.query.double()).sum(-1), dim=0)
    x = norm((a[..., None] * v).sum(0))
    return x if site.output_gain is None else x * site.output_gain.double()


def test_attn_res():
    for dtype, gains in itertools.product(DTYPES, (True, False)):
        site = AttnRes(64, key_gain=gains, output_gain=gains)
        with torch.no_grad():
            for parameter in site.parameters():
                parameter.normal_()
            for count, shape in ((1, (5, 64)), (4, (2, 3, 64)), (9, (1, 64)), (4, (0, 64)), (4, (7, 64))):
                sources = [torch.randn(shape).to(DTYPES[dtype]) for _ in range(count)]
                x = site(sources)
                assert x.shape == shape and x.dtype is DTYPES[dtype]
                assert torch.equal(site(torch.stack(sources)), x)
                error = reference.error(numbers(x), numbers(site_in_torch(site, sources)))
                assert error <= BOUNDS[dtype], (dtype, count, shape, error)
    e = torch.randn(3, 64)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            raises(ValueError, "no source", lambda: site([]))
            raises(ValueError, "source 1 has shape", lambda: site([e, e[:2]]))
            raises(TypeError, "source 1 is", lambda: site([e, e.half()]))
            raises(TypeError, "expected float32, bfloat16", lambda: site([e.double()]))
            raises(ValueError, "device meta", lambda: site([e.to("meta")]))
            raises(ValueError, "stride 3", lambda: site([torch.randn(64, 3).t()]))
    print("  1 to 9 sources, lists and stacks, with and without gains, three dtypes; faults")


# ---- time ---------------------------------------------------------------------------------------


def test_overhead():
    """A site at T = 1 beside the bare call of the library."""
    mixer = DepthMixer(hidden=8, sublayers=64, blocks={"size": 8}, dtype="f32", phases="one")
    e, f = torch.randn(1, 8), torch.randn(1, 8)
    lib = fathom._library
    times, bare = [], []
    with torch.inference_mode():
        for _ in range(100):
            depth = mixer.begin(e)
            start = time.perf_counter()
            for _ in range(64):
                depth.add(f)
            times.append((time.perf_counter() - start) / 64)
            depth.end()
        slot = mixer.begin(e)._flight.slot
        x = torch.empty(1, 8)
        slot.taken[0].struct.data, slot.views["input"].struct.data = f.data_ptr(), x.data_ptr()
        for _ in range(100):
            lib.fathom_sequence_reset(slot.handle)
            lib.fathom_sequence_begin(
                slot.handle, slot.taken[0].pointer, slot.outputs_at, slot.address, slot.needed, None
            )
            start = time.perf_counter()
            for s in range(1, 64):
                lib.fathom_sequence_site(slot.handle, s, slot.addends, 1, slot.outputs_at)
            bare.append((time.perf_counter() - start) / 63)
    one, sources = AttnRes(8), [torch.randn(1, 8) for _ in range(9)]
    alone = []
    with torch.inference_mode():
        for _ in range(1000):
            start = time.perf_counter()
            one(sources)
            alone.append(time.perf_counter() - start)
    site, call = (statistics.median(t) * 1e6 for t in (times, bare))
    print(f"  a site at T = 1: {site:.1f} us, of which the library takes {call:.1f} us")
    print(f"  AttnRes of 9 sources: {statistics.median(alone) * 1e6:.1f} us")
    assert site - call < 25, "more than 25 us in Python"


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)  # small tensors; more only wait for one another
    names = sys.argv[1:] or [name for name in globals() if name.startswith("test_")]
    for name in names:
        start = time.perf_counter()
        print(name, flush=True)
        globals()[name]()
        print(f"  ok, {time.perf_counter() - start:.1f} s", flush=True)
    print(f"all {len(names)} passed, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
