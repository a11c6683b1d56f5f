#!/usr/bin/env python3
"""One block of depth-wise attention on this CPU, as users of several packages would compute it: one
table.

    peers.py                                   all contenders, bf16 and f32, D=2048 N=8 S=16 T=1024
    peers.py --only eager,compile --rows 64    some of them, fewer tokens
    peers.py --tune 600 --json > peers.jsonl   ten minutes of tuning for those that tune
    peers.py --numerics                        Triton kernels of published packages, checked and not
    timed

The block is S mix sites over N finished blocks and a growing partial sum, with identities for
sublayers; problem.py says it exactly. Each contender is prepared (compiled, tuned), checked against
f64 and dropped with its reason if it fails; then all of them take turns in one process, in another
order each round.

Columns: median time of the block; spread, the quartiles' distance over the median; ratio, how many
times as long as the first contender; error of the last site's x against f64. Timings say little
while other programs run: the load when the rounds began is printed. Exit status: 0, or 1 if a
contender that is installed fails.
"""

import argparse
import contextlib
import importlib
import json
import os
import statistics
import sys
import time

CONTENDERS = {  # key: (module, class); the first that works is what the ratio is to
    "fathom": ("fathom_contender", "Fathom"),
    "fathom-two-phases": ("fathom_contender", "FathomTwoPhases"),
    "eager": ("torch_contenders", "Eager"),
    "eager-two-phases": ("torch_contenders", "EagerTwoPhases"),
    "compile": ("torch_contenders", "Compiled"),
    "compile-two-phases": ("torch_contenders", "CompiledTwoPhases"),
    "jax": ("jax_contenders", "Jax"),
    "jax-two-phases": ("jax_contenders", "JaxTwoPhases"),
    "tvm": ("tvm_contenders", "Tvm"),
    "tvm-two-phases": ("tvm_contenders", "TvmTwoPhases"),
}
MISSING = "not installed"
LONG_RUN = 0.25  # seconds; shorter runs are preceded by one that is not timed
PAUSE = 0.02  # seconds between turns, so that the last one's threads stop waiting for work


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1024, help="tokens T (default: %(default)s)")
    parser.add_argument(
        "--hidden", type=int, default=2048, help="hidden size D (default: %(default)s)"
    )
    parser.add_argument(
        "--bank", type=int, default=8, help="finished blocks N (default: %(default)s)"
    )
    parser.add_argument(
        "--sites", type=int, default=16, help="sites S of the block (default: %(default)s)"
    )
    parser.add_argument(
        "--dtype",
        action="append",
        choices=["bf16", "f16", "f32"],
        help="again for more (default: bf16 and f32)",
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="of each contender (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=11, help="turns of each contender (default: %(default)s)"
    )
    parser.add_argument(
        "--tune",
        type=float,
        default=180,
        metavar="SECONDS",
        help="for each contender that tunes (default: %(default)s)",
    )
    parser.add_argument("--only", metavar="KEYS", help="of: " + ", ".join(CONTENDERS))
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")
    parser.add_argument(
        "--numerics", action="store_true", help="check Triton kernels in its interpreter, and stop"
    )
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ["bf16", "f32"]
    arguments.only = arguments.only.split(",") if arguments.only else list(CONTENDERS)
    unknown = [key for key in arguments.only if key not in CONTENDERS]
    if unknown:
        parser.error(f"no contender {unknown[0]}; there are {', '.join(CONTENDERS)}")
    for name in ("rows", "hidden", "bank", "sites", "threads", "rounds"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return arguments


def limit_threads(threads):
    """Before any package is imported: the same processors for all of them, and thread pools of that
    size.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ[name] = str(threads)
    for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
        del os.environ[name]
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if hasattr(os, "sched_setaffinity"):  # XLA makes a thread for each processor it may use
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def say(text):
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def chatter_to_stderr():
    """What packages print while they compile and tune is no result."""
    sys.stdout.flush()
    results = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(results, 1)
        os.close(results)


# ---- measuring -----------------------------------------------------------------------------------


def prepare(keys, problem):
    """{key: contender} of those that are right, and {key: reason} of the others."""
    from problem import BOUND

    ready, failed = {}, {}
    for key in keys:
        module, name = CONTENDERS[key]
        start = time.monotonic()
        try:
            contender = getattr(importlib.import_module(module), name)()
            contender.prepare(problem)
            contender.reset()
            contender.run()
            contender.error = problem.error_of(contender.result())
            if not contender.error <= BOUND[problem.dtype]:
                raise ArithmeticError(
                    f"error {contender.error:.1e} is above {BOUND[problem.dtype]:.0e}"
                )
            ready[key] = contender
            took = time.monotonic() - start
            say(f"{problem.dtype} {key}: ready in {took:.0f} s, error {contender.error:.1e}")
        except Exception as reason:
            lines = str(reason).strip().splitlines() or [""]
            kind = MISSING if isinstance(reason, ImportError) else type(reason).__name__
            failed[key] = f"{kind}: {lines[-1][:200]}"
            say(f"{problem.dtype} {key}: left out, {failed[key]}")
    return ready, failed


def take_turn(contender, lasts):
    """Seconds of one run."""
    time.sleep(PAUSE)
    if lasts < LONG_RUN:
        contender.reset()
        contender.run()
    contender.reset()
    start = time.perf_counter()
    contender.run()
    return time.perf_counter() - start


def measure(contenders, rounds):
    """{key: seconds of each round}. Each round begins with another contender."""
    keys, seconds = list(contenders), {key: [] for key in contenders}
    for turn in range(rounds):
        first = turn % len(keys)
        for key in keys[first:] + keys[:first]:
            lasts = seconds[key][-1] if seconds[key] else LONG_RUN / 2
            seconds[key].append(take_turn(contenders[key], lasts))
    return seconds


def quartile_spread(values):
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def rows_of(problem, contenders, failed, seconds):
    """What --json prints."""
    sizes = {"T": problem.rows, "D": problem.hidden, "N": problem.bank_rows, "S": problem.sites}
    common = {"dtype": problem.dtype, **sizes, "threads": problem.threads}
    base, rows = None, []
    for key, contender in contenders.items():
        median = statistics.median(seconds[key])
        base = base or median
        rows.append(
            {
                "contender": key,
                "name": contender.name,
                "form": contender.form,
                **common,
                "median_ms": round(median * 1e3, 3),
                "spread": round(quartile_spread(seconds[key]), 4),
                "ratio": round(median / base, 4),
                "error": contender.error,
                "note": contender.note,
            }
        )
    return rows + [{"contender": key, **common, "failed": reason} for key, reason in failed.items()]


# ---- printing ------------------------------------------------------------------------------------


def machine(threads):
    with open("/proc/cpuinfo") as file:
        model = next(
            (line.split(":")[1].strip() for line in file if line.startswith("model name")),
            "unknown",
        )
    return f"{model}, {threads} of {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"


def versions():
    from importlib import metadata

    found = []
    for package in ("torch", "jax", "apache-tvm", "apache-tvm-ffi", "numpy"):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            pass
    return ", ".join(found)


COLUMNS = "{:<18} {:<11} {:>10} {:>7} {:>6} {:>8}  {}"


def print_table(problem, rows, where):
    sizes = f"T={problem.rows} D={problem.hidden} N={problem.bank_rows} S={problem.sites}"
    print(f"\n{problem.dtype}: {sizes}\n{where}")
    print(COLUMNS.format("contender", "form", "median ms", "spread", "ratio", "error", "note"))
    for row in rows:
        if "failed" in row:
            print(f"{row['contender']:<30} left out: {row['failed']}")
            continue
        time_ms, spread = f"{row['median_ms']:.2f}", f"{row['spread']:.1%}"
        ratio, error = f"{row['ratio']:.2f}", f"{row['error']:.1e}"
        cells = (row["name"], row["form"], time_ms, spread, ratio, error, row["note"])
        print(COLUMNS.format(*cells).rstrip(), flush=True)


# ---- numerics ------------------------------------------------------------------------------------


def numerics():
    """The comparisons of tests/model/peers_semantics.py, which run these packages' kernels."""
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/model"))
    import peers_semantics

    return peers_semantics.main()


def main():
    arguments = parse()
    limit_threads(arguments.threads)
    if arguments.numerics:
        return numerics()
    from problem import Problem

    broken = False
    for dtype in arguments.dtype:
        problem = Problem(
            dtype,
            arguments.rows,
            arguments.hidden,
            arguments.bank,
            arguments.sites,
            arguments.threads,
            arguments.tune,
        )
        with chatter_to_stderr():
            contenders, failed = prepare(arguments.only, problem)
        where = f"{machine(arguments.threads)}; {versions()}"
        seconds = measure(contenders, arguments.rounds) if contenders else {}
        rows = rows_of(problem, contenders, failed, seconds)
        if arguments.json:
            for row in rows:
                print(json.dumps({**row, "machine": where}), flush=True)
        else:
            print_table(problem, rows, where)
        broken |= any(not reason.startswith(MISSING) for reason in failed.values())
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
