#!/usr/bin/env python3
"""The check matrix: every variant of tests/variants under sizes, dtypes, layouts, alignments, CPUs and schedules.

Each cell is one run of `fathom check`; a failing one is printed as the command that repeats it. Two tiers:

  matrix.py --program build/release/bin/fathom                 all pairs of two factors' values
  matrix.py --program ... --shard 4000 [--minutes 60]          one of 4000 parts of the full product, shuffled

Not every combination is run as it stands. The interpreter evaluates op by op in f64, so a cell whose N * T * D * S
exceeds LARGEST (in the full product, and to pair a D with a T, LARGER) takes the next smaller T until it fits; and axes
a variant does not have, or gives a fixed size, are left out of its cells. Every value of every factor still appears;
--list shows the cells and the pairs no cell can have.
"""

import argparse
import concurrent.futures
import itertools
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST = 1_000_000  # elements of the largest value, N * T * D * S
LARGER = 8_000_000
TIME_LIMIT = 130  # seconds of one check

FACTORS = {
    "variant": sorted(name[:-4] for name in os.listdir(os.path.join(HERE, "../variants")) if name.endswith(".fir")),
    "D": [1, 7, 123, 384, 896, 960, 1000, 1168, 1264, 2304, 4096, 7168, 7186],
    "N": [1, 2, 3, 5, 8, 9, 10, 17, 49, 129],
    "T": [0, 1, 2, 7, 63, 64, 65, 1024],
    "S": [1, 2, 6, 16, 24],
    "dtype": ["f32", "bf16", "f16"],
    "layout": ["written", "row-major", "row-inner", "hidden-outer"],
    "strided": [0, 1],
    "misalign": [0, 1, 3],
    "cpu": ["host", "x86-64-v3", "x86-64"],
    "schedule": [
        "",
        "lanes=1",
        "vector=1,unroll=1,source_tile=4,query_tile=3,mix_unroll=3,prefetch=0,overlap=0,pair=0,stream=0,rows=1",
        "lanes=1,vector=4,unroll=3,source_tile=16,query_tile=32,mix_unroll=64,rows=7,prefetch=8",
    ],
}


# ---- variants -----------------------------------------------------------------------------------------------


class Variant:
    """The text of a variant and what its axes allow."""

    def __init__(self, name):
        self.path = os.path.join(HERE, "../variants", name + ".fir")
        with open(self.path) as file:
            self.text = file.read()
        code = re.sub(r"//.*", "", self.text)
        self.axes = set(re.findall(r"\b([A-Z]\w*)\b(?=[^\"]*)", re.sub(r"[%@]\w+", "", code)))
        self.fixed = {axis: int(size) for axis, size in re.findall(r"\b([A-Z]\w*)=(\d+)", code)}
        self.parts = len(re.findall(r"%v\d+: bf16\[T, D\]", code))  # a bank of separate parameters
        match = re.search(r"over D to R\s*\{start = (\d+)\}", code)
        self.low_rank = int(match.group(1)) + 1 if match else self.fixed.get("R", 1)

    def varies(self, factor):
        """Whether different values of the factor make different cells."""
        if factor in "DNS":
            return factor in self.axes and factor not in self.fixed and not (factor == "N" and self.parts)
        if factor == "layout":
            return "layout(" not in self.text
        return True

    def allows(self, cell):
        if cell["D"] < self.low_rank:
            return False
        return cell["N"] >= (2 if "B" in self.axes else 1)

    def sizes(self, cell):
        """The axes to set. N sources are B finished blocks and one more, or a window of M."""
        d, n = cell["D"], cell["N"]
        sizes = {"D": d, "N": n, "S": cell["S"], "H": heads_of(d)}
        if "B" in self.axes:
            sizes["B"] = n - 1
        if "M" in self.axes and "W" in self.axes: # a window beside source 0
            sizes["M"] = n + 1
        elif "M" in self.axes and "slice %all" in self.text:
            sizes["M"] = n + 2
        return {axis: size for axis, size in sizes.items() if axis in self.axes and axis not in self.fixed
                and not (axis == "N" and self.parts)}


def heads_of(d):
    """The smallest number of heads above one that divides D."""
    return next((h for h in range(2, d + 1) if d % h == 0), 1)


VARIANTS = {name: Variant(name) for name in FACTORS["variant"]}


# ---- cells --------------------------------------------------------------------------------------------------


def product_of(cell):
    variant = VARIANTS[cell["variant"]]
    sources = variant.fixed.get("N", variant.parts or cell["N"])
    return sources * max(cell["T"], 1) * cell["D"] * (cell["S"] if "S" in variant.axes else 1)


def settle(cell, limit=LARGEST):
    """The cell as it can be run: factors without effect at their first value, T within the limit. None: cannot be."""
    variant = VARIANTS[cell["variant"]]
    cell = {factor: cell[factor] if variant.varies(factor) else FACTORS[factor][0] for factor in FACTORS}
    if not variant.varies("N"):
        cell["N"] = FACTORS["N"][1]
    if not variant.allows(cell):
        return None
    while product_of(cell) > limit and cell["T"] > 1:
        cell["T"] = FACTORS["T"][FACTORS["T"].index(cell["T"]) - 1]
    return cell


def pairs_of(cell):
    return set(itertools.combinations(sorted(cell.items(), key=lambda item: item[0]), 2))


def all_pairs(rng):
    """Greedy selection: each new cell is the best of a few drawn around a pair that is still open."""
    names = sorted(FACTORS)
    open_pairs = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2)
                  for x in FACTORS[a] for y in FACTORS[b]}
    out_of_reach, cells = [], []
    order = sorted(open_pairs, key=str)
    rng.shuffle(order)
    for pair in order:
        if pair not in open_pairs:
            continue
        best, gain = None, 0
        limit = LARGER if {pair[0][0], pair[1][0]} == {"D", "T"} else LARGEST
        for tried in range(400):
            if best and tried >= 40:
                break
            drawn = {factor: rng.choice(values) for factor, values in FACTORS.items()}
            drawn.update(pair)
            if rng.random() < 0.5:
                shrink(drawn, pair, limit, rng)
            cell = settle(drawn, limit)
            if cell is None or pair not in pairs_of(cell):
                continue
            covered = len(pairs_of(cell) & open_pairs)
            if covered > gain:
                best, gain = cell, covered
        if best is None:
            out_of_reach.append(pair)
            open_pairs.discard(pair)
            continue
        cells.append(best)
        open_pairs -= pairs_of(best)
    return cells, out_of_reach


def shrink(cell, pair, limit, rng):
    """Makes the factors the pair does not fix small enough for the others to stay as drawn."""
    kept = {pair[0][0], pair[1][0]}
    for factor in ("S", "N", "D"):
        while product_of(cell) > limit and factor not in kept and FACTORS[factor].index(cell[factor]) > 0:
            cell[factor] = FACTORS[factor][FACTORS[factor].index(cell[factor]) - 1]
            if rng.random() < 0.2:
                break


def full_product(shard, shards):
    """Every cell whose number, in an order that mixes all factors, is `shard` modulo `shards`."""
    total = 1
    for values in FACTORS.values():
        total *= len(values)
    # A step that shares no divisor with the total visits every index once, far apart from one to the next.
    step = int(total * 0.6180339887) | 1
    while any(total % p == 0 and step % p == 0 for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)):
        step += 2
    seen = set()
    for position in range(shard, total, shards):
        index, cell = position * step % total, {}
        for factor, values in FACTORS.items():
            cell[factor] = values[index % len(values)]
            index //= len(values)
        cell = settle(cell, LARGER)
        key = cell and tuple(cell.values())
        if cell and key not in seen:
            seen.add(key)
            yield cell


# ---- running ------------------------------------------------------------------------------------------------


def lay_out(text, layout):
    """Gives every parameter with several axes a memory order."""
    if layout == "written":
        return text
    head, body = text.split("{", 1)

    def order(match):
        axes = [axis.split("=")[0].strip() for axis in match.group(2).split(",")]
        first = {"row-major": "T", "hidden-outer": "D"}.get(layout)
        if layout == "row-inner":
            axes = [axis for axis in axes if axis != "T"] + ["T"] * ("T" in axes)
        elif first in axes:
            axes = [first] + [axis for axis in axes if axis != first]
        return f"{match.group(1)}[{match.group(2)}] layout({', '.join(axes)})"

    return re.sub(r"(%\w+: \w+)\[([^\]]*,[^\]]*)\]", order, head) + "{" + body


def text_of(cell):
    text = VARIANTS[cell["variant"]].text
    if cell["dtype"] != "bf16":
        text = re.sub(r"\bbf16\b", cell["dtype"], text)
    return lay_out(text, cell["layout"])


def command_of(cell, program):
    variant = VARIANTS[cell["variant"]]
    command = [program, "check", "-", "--seeds=1", f"--misalign={cell['misalign']}", f"--mcpu={cell['cpu']}"]
    for axis, size in variant.sizes(cell).items():
        command += ["--set", f"{axis}={size}"]
    rows = cell["T"]
    if "U" in variant.axes:  # two dynamic axes of this size
        rows = min(rows, 24)
    command.append(f"--size={rows}")
    if cell["strided"]:
        command.append("--strided")
    if cell["schedule"]:
        command.append(f"--schedule={cell['schedule']}")
    return command


def run(cell, program):
    command, text = command_of(cell, program), text_of(cell)
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=TIME_LIMIT)
        passed, output = done.returncode == 0, done.stdout + done.stderr
        if done.returncode < 0:
            output += f"ended by signal {-done.returncode}\n"
    except subprocess.TimeoutExpired:
        passed, output = False, f"no result after {TIME_LIMIT} seconds\n"
    return cell, passed, output


def report(cell, output, program, folder):
    """Leaves the text of a failing cell in a file and prints the command that repeats it."""
    os.makedirs(folder, exist_ok=True)
    name = "-".join(str(cell[factor]) for factor in FACTORS if factor != "schedule")
    path = os.path.join(folder, name + f"-{FACTORS['schedule'].index(cell['schedule'])}.fir")
    with open(path, "w") as file:
        file.write(text_of(cell))
    command = [path if word == "-" else word for word in command_of(cell, program)]
    print(f"FAILED: {shlex.join(command)}\n{output}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the fathom program")
    parser.add_argument("--shard", metavar="K", type=int,
                        help="one of K parts of the full product: number $FATHOM_MATRIX_SHARD, from 0 (default: 0)")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0: when all is done")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1, help="of the selection of pairs")
    parser.add_argument("--failures", default=os.path.join(tempfile.gettempdir(), "fathom-matrix"),
                        help="folder for the text of failing cells")
    parser.add_argument("--list", action="store_true", help="print the cells, run nothing")
    options = parser.parse_args()

    rng = random.Random(options.seed)
    if options.shard:
        shard = int(os.environ.get("FATHOM_MATRIX_SHARD", "0"))
        cells, unreachable = full_product(shard, options.shard), []
    else:
        cells, unreachable = all_pairs(rng)
        print(f"matrix: {len(cells)} cells cover all pairs but the {len(unreachable)} that none can have", flush=True)
    if options.list:
        for cell in cells:
            print(*cell.values())
        for (a, x), (b, y) in unreachable:
            print(f"beyond: {a}={x} {b}={y}")
        return 0

    os.environ["FATHOM_CACHE_DIR"] = ""  # every cell is compiled
    start, done, failed, cells = time.monotonic(), 0, 0, iter(cells)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run, cell, options.program) for cell in itertools.islice(cells, 2 * options.jobs)}
        while running:
            finished, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                cell, passed, output = future.result()
                done += 1
                if not passed:
                    failed += 1
                    report(cell, output, options.program, options.failures)
                late = options.minutes and time.monotonic() - start > 60 * options.minutes
                for following in [] if late else itertools.islice(cells, 1):
                    running.add(pool.submit(run, following, options.program))
    print(f"matrix: {done - failed} of {done} cells within bounds, {time.monotonic() - start:.0f} s")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
