#!/usr/bin/env python3
"""Fathom beside PyTorch, torch.compile and installed peers on this GPU: one JSON object a line for each.

    compare.py LIBFATHOM SHAPES [--device cuda|cpu] [--target cuda] [--seconds S] [--budget S]

All contenders of a shape take the same tensors in one process and are measured in turns: the level 2 cache is filled
with something else, then one run lies between two CUDA events; medians over the rounds. A contender whose launches can
be captured is replayed as a CUDA graph, as servers do ("launch": "graph"), so that a median is the GPU's time and not
that of Python. "error" is against f64. Exit status 77: there is no PyTorch or no GPU.

Kinds: mix, N sources to one mix; site, the same after the residual add and before the output norm; phase1 and phase2
of two-phase inference. What a peer cannot do is in its "error" text, with "status": "failed".
"""

import argparse
import functools
import json
import os
import statistics
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
EPS = 1e-5
REFERENCE_ROWS = 16

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"no comparison: {missing}", file=sys.stderr)
    sys.exit(77)

import fathom_library as fathom


# ---- kinds ------------------------------------------------------------------------------------------------------
# Each: the graph; its tensors' axes and dtypes, results last; and the function, written as one would in PyTorch.


def norm(x, gain):
    return F.rms_norm(x, x.shape[-1:], gain.to(x.dtype), EPS)


def mix(bank, query, gain):
    logits = torch.einsum("d,ntd->nt", query.to(bank.dtype), norm(bank, gain))
    return (torch.einsum("nt,ntd->td", logits.softmax(0), bank),)


def site(bank, prefix, delta, query, gain, out_gain):
    p = prefix + delta
    sources = torch.cat([bank, p[None]])
    return norm(mix(sources, query, gain)[0], out_gain), p


def phase1(bank, query, gain):
    logits = torch.einsum("sd,ntd->nts", query.to(bank.dtype), norm(bank, gain))
    return torch.einsum("nts,ntd->tsd", logits.softmax(0), bank), logits.logsumexp(0)


def phase2(partial, delta, mix, lse, query, gain, out_gain):
    b = partial + delta
    p = torch.sigmoid(norm(b, gain) @ query.to(b.dtype) - lse)
    return norm(mix + p[:, None].to(b.dtype) * (b - mix), out_gain), b


KINDS = {
    "mix": (mix, "norm_gain", {"bank": "NTD", "query": "D", "gain": "D", "h": "TD"}, 1),
    "site": (site, "site", {"bank": "BTD", "prefix": "TD", "delta": "TD", "query": "D", "gain": "D", "out_gain": "D",
                            "y": "TD", "p": "TD"}, 2),
    "phase1": (phase1, "phase1", {"bank": "NTD", "query": "SD", "gain": "D", "mix": "TSD", "lse": "TS"}, 2),
    "phase2": (phase2, "phase2", {"partial": "TD", "delta": "TD", "mix": "TD", "lse": "T", "query": "D", "gain": "D",
                                  "out_gain": "D", "y": "TD", "b": "TD"}, 2),
}
F32 = {"query", "gain", "lse"}  # the others are bf16


class Case:
    def __init__(self, name, kind, size, axes, device):
        self.name, self.kind, self.size, self.axes, self.device = name, kind, size, axes, device
        self.function, self.graph, layout, results = KINDS[kind]
        sizes = dict(axes, T=size)
        generator = torch.Generator(device).manual_seed(1)
        self.inputs, self.outputs = {}, {}
        for i, (tensor, letters) in enumerate(layout.items()):
            shape = tuple(sizes[letter] for letter in letters)
            dtype = torch.float32 if tensor in F32 else torch.bfloat16
            if i >= len(layout) - results:
                self.outputs[tensor] = torch.full(shape, float("nan"), dtype=dtype, device=device)
                continue
            values = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
            if tensor == "query":
                values *= shape[-1] ** -0.5  # logits of about 1
            self.inputs[tensor] = (values if tensor != "gain" else 1 + values / 10).to(dtype)
        tensors = [*self.inputs.values(), *self.outputs.values()]
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @functools.cached_property
    def expected(self):
        """The first rows of the first result, in f64."""
        layout, count = KINDS[self.kind][2], min(REFERENCE_ROWS, self.size)
        rows = {name: (tensor.narrow(layout[name].index("T"), 0, count) if "T" in layout[name] else tensor).double()
                for name, tensor in self.inputs.items()}
        for name in ("prefix", "partial"):  # the sum is rounded
            if name in rows:
                rows[name] = (rows[name] + rows["delta"]).bfloat16().double()
                rows["delta"] = torch.zeros_like(rows["delta"])
        return self.function(**rows)[0]

    def error_of(self, result):
        got = result[:REFERENCE_ROWS].double().reshape(self.expected.shape)
        return ((got - self.expected).norm() / self.expected.norm()).item()


# ---- contenders -------------------------------------------------------------------------------------------------
# Each makes a function without arguments that returns its first result.


def fathom_contender(case, settings):
    executable = settings.library.compile(os.path.join(ROOT, "tests/variants", case.graph + ".fir"), case.axes,
                                          settings.target)
    kept = []

    def allocate(size):
        kept.append(torch.empty(size + 128, dtype=torch.uint8, device=case.device))
        return (kept[-1].data_ptr() + 127) // 128 * 128

    device = fathom.KDLCUDA if case.device == "cuda" else fathom.KDLCPU
    names = {torch.float32: "f32", torch.bfloat16: "bf16"}
    tensors = {name: fathom.Memory(tensor.data_ptr(), tuple(tensor.shape), names[tensor.dtype], device)
               for name, tensor in (case.inputs | case.outputs).items()}
    run = executable.bind(tensors, allocate)
    result = next(iter(case.outputs.values()))

    def call():
        run(torch.cuda.current_stream().cuda_stream if case.device == "cuda" else None)
        return result

    call.kept = kept
    return call


def eager_contender(case, settings):
    return lambda: case.function(**case.inputs)[0]


def compiled_contender(case, settings):
    torch._dynamo.reset()
    compiled = torch.compile(case.function, dynamic=False)
    return lambda: compiled(**case.inputs)[0]


def fla_contender(case, settings):
    """flash-linear-attention: a list of sources, the output norm inside; the residual add is PyTorch's."""
    from fla.ops.attnres import fused_attnres
    x = {name: tensor if tensor.ndim > 1 else tensor.bfloat16() for name, tensor in case.inputs.items()}
    bank = [source[None] for source in x["bank"].unbind(0)]
    if case.kind == "mix":
        return lambda: fused_attnres(x["query"], bank, x["gain"], rms_eps=EPS)
    return lambda: fused_attnres(x["query"], bank + [(x["prefix"] + x["delta"])[None]], x["gain"], x["out_gain"], EPS)


def fast_attnres_contender(case, settings):
    """fast-attnres has no gain: it goes into the query, as servers do."""
    from attnres import attnres
    query = (case.inputs["query"] * case.inputs["gain"]).bfloat16()
    bank = case.inputs["bank"][:, None]
    return lambda: attnres(bank, query, eps=EPS)


def flash_attn_res_contender(case, settings):
    """flash-attn-res: no gain, results as [S, 1, T, D]; only powers of two for D."""
    from flash_attn_res import phase_1_batched_attention_triton_op
    query = case.inputs["query"] * case.inputs["gain"]
    bank = case.inputs["bank"][:, None]
    return lambda: phase_1_batched_attention_triton_op(bank, query, EPS)[0][:, 0].transpose(0, 1)


CONTENDERS = {
    "fathom": (fathom_contender, {"mix", "site", "phase1", "phase2"}),
    "eager": (eager_contender, {"mix", "site", "phase1", "phase2"}),
    "torch.compile": (compiled_contender, {"mix", "site", "phase1", "phase2"}),
    "fla": (fla_contender, {"mix", "site"}),
    "fast-attnres": (fast_attnres_contender, {"mix"}),
    "flash-attn-res": (flash_attn_res_contender, {"phase1"}),
}


# ---- measuring --------------------------------------------------------------------------------------------------


class Gpu:
    """Times of a GPU's events."""

    timing, cache = "device events", "cold"

    def __init__(self):
        size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
        self.other = torch.ones(max(size, 64 << 20) // 4, dtype=torch.int32, device="cuda")

    def prepare(self, call):
        """The call as a graph's replay, where it can be captured."""
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            graph.replay()
            torch.cuda.synchronize()
            return graph.replay, "graph"
        except Exception as reason:
            print(f"not captured: {reason}", file=sys.stderr)
            torch.cuda.synchronize()
            return call, "calls"

    def time(self, call):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.other.sum()  # reading it leaves nothing that is still to be written
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3


class Host:
    """For trying this without a GPU."""

    timing, cache = "host clock", "warm"

    def prepare(self, call):
        call()
        return call, "calls"

    def time(self, call):
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6


def report(case, contender, status, **fields):
    line = {"step": "compare", "shape": case.name, "size": case.size, "contender": contender, "status": status,
            "kind": case.kind, "axes": ",".join(f"{axis}={size}" for axis, size in case.axes.items()), **fields}
    print(json.dumps(line), flush=True)


def compare(case, settings):
    ready = {}
    for name, (make, kinds) in CONTENDERS.items():
        if case.kind not in kinds:
            continue
        if time.monotonic() > settings.end and name != "fathom":
            report(case, name, "skipped", error="the time was up")
            continue
        try:
            call = make(case, settings)
            error = case.error_of(call())
            ready[name] = (*settings.clock.prepare(call), error, call)
        except ImportError as missing:
            report(case, name, "absent", error=str(missing))
        except Exception as reason:  # of any kind: it is other people's code
            report(case, name, "failed", error=f"{type(reason).__name__}: {reason}"[:600])
    times = {name: [] for name in ready}
    end = time.monotonic() + settings.seconds * len(ready)
    while ready and (time.monotonic() < end or len(times["fathom" if "fathom" in times else name]) < 5):
        for name, (call, *_) in ready.items():
            times[name].append(settings.clock.time(call))
    for name, (_, launch, error, _) in ready.items():
        median = statistics.median(times[name])
        quartiles = statistics.quantiles(times[name], n=4)
        report(case, name, "ok" if error < 0.05 else "failed", median_us=median, minimum_us=min(times[name]),
               spread=(quartiles[2] - quartiles[0]) / median, runs=len(times[name]), bytes=case.bytes,
               gb_s=case.bytes / median * 1e-3, relative_error=error, launch=launch, cache=settings.clock.cache,
               timing=settings.clock.timing, torch=torch.__version__)


def read_shapes(path):
    with open(path) as file:
        rows = [line.split("#")[0].split() for line in file]
    for name, kind, sizes, axes in filter(None, rows):
        for size in sizes.split(","):
            yield name, kind, int(size), {axis: int(value) for axis, value in
                                          (pair.split("=") for pair in axes.split(","))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("shapes")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.15, help="of measuring, for each contender")
    parser.add_argument("--budget", type=float, default=80, help="seconds after which only Fathom is measured")
    settings = parser.parse_args()
    if settings.device == "cuda" and not torch.cuda.is_available():
        print("no comparison: PyTorch sees no GPU", file=sys.stderr)
        return 77
    settings.end = time.monotonic() + settings.budget
    settings.library = fathom.Library(settings.library)
    settings.clock = Gpu() if settings.device == "cuda" else Host()
    with torch.no_grad():
        for name, kind, size, axes in read_shapes(settings.shapes):
            compare(Case(name, kind, size, axes, settings.device), settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
