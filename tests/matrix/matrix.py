#!/usr/bin/env python3
"""The check matrix: every variant of tests/variants under sizes, dtypes, layouts, alignments and schedules.

Each cell is one run of `fathom check`; a failing one is printed as the command that repeats it. Two tiers:

  matrix.py --program build/release/bin/fathom                 all pairs of two factors' values
  matrix.py --program ... --shard 4000 [--minutes 60]          one of 4000 parts of the full product, shuffled

--target cpu adds CPUs to the factors; --target cuda-emu has the strategies for schedules, and ten seeds, each another
order of the threads.

Not every combination is run as it stands. The interpreter evaluates op by op in f64, and the emulator runs thread by
thread, so a cell whose N * T * D * S exceeds the target's `largest` (in the full product, and for pairs that need it,
`larger`) takes the next smaller T until it fits; and axes a variant does not have, or gives a fixed size, are left out
of its cells. Every value of every factor still appears; --list shows the cells and the pairs no cell can have.

A strategy that does not apply is refused, with one of the sentences of strategies.py; such a cell passes. That each
strategy does apply where it should is required as well: see `Applied`.
"""

import argparse
import collections
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

import targets

HERE = os.path.dirname(os.path.abspath(__file__))
TIME_LIMIT = 130  # seconds of one check

# Those of all targets.
SHAPES = {
    "variant": sorted(name[:-4] for name in os.listdir(os.path.join(HERE, "../variants")) if name.endswith(".fir")),
    "D": [1, 7, 123, 384, 896, 960, 1000, 1168, 1264, 2304, 4096, 7168, 7186],
    "N": [1, 2, 3, 5, 8, 9, 10, 17, 49, 129],
    "T": [0, 1, 2, 7, 63, 64, 65, 1024],
    "S": [1, 2, 6, 16, 24],
    "dtype": ["f32", "bf16", "f16", "f8e4m3"],
    "layout": ["written", "row-major", "row-inner", "hidden-outer"],
    "strided": [0, 1],
    "misalign": [0, 1, 3],
}
PLACEMENT = ["layout", "strided", "misalign"]  # their first values let a GPU read many bytes at once


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


VARIANTS = {name: Variant(name) for name in SHAPES["variant"]}


# ---- cells --------------------------------------------------------------------------------------------------


def product_of(cell):
    variant = VARIANTS[cell["variant"]]
    sources = variant.fixed.get("N", variant.parts or cell["N"])
    return sources * max(cell["T"], 1) * cell["D"] * (cell["S"] if "S" in variant.axes else 1)


def is_wide(cell):
    """Whether 16-byte accesses fit its rows, as far as the cell decides that."""
    d = cell["D"] if VARIANTS[cell["variant"]].varies("D") else 0
    return d % 8 == 0 and all(cell[factor] == SHAPES[factor][0] for factor in PLACEMENT)


def is_telling(cell):
    """Whether a strategy has something to work with: wide accesses, and more than one row for each emulated block."""
    return is_wide(cell) and cell["T"] >= 7


class Cells:
    """The cells of a target."""

    def __init__(self, target):
        self.target = target
        self.factors = {**SHAPES, **target.factors}

    def settle(self, cell, limit):
        """The cell as it can be run: factors without effect at their first value, T within the limit. None: cannot."""
        variant = VARIANTS[cell["variant"]]
        cell = {factor: cell[factor] if variant.varies(factor) else values[0]
                for factor, values in self.factors.items()}
        if not variant.varies("N"):
            cell["N"] = SHAPES["N"][1]
        if not variant.allows(cell):
            return None
        while product_of(cell) > limit and cell["T"] > 1:
            cell["T"] = SHAPES["T"][SHAPES["T"].index(cell["T"]) - 1]
        return cell

    def typical(self, cell):
        """A cell of the same variant and schedule in which nothing is too large, or too small, for the strategy."""
        return self.settle(cell | {"N": 9, "D": 896, "T": 7, "S": 2}, self.target.largest)

    def pairs_of(self, cell):
        """The pairs that the cell covers; a strategy with a variant only where it has something to work with."""
        pairs = set(itertools.combinations(sorted(cell.items(), key=lambda item: item[0]), 2))
        if self.target.strategies and not is_telling(cell):
            pairs.discard((("schedule", cell["schedule"]), ("variant", cell["variant"])))
        return pairs

    def draw(self, pair, limit, rng):
        cell = {factor: rng.choice(values) for factor, values in self.factors.items()}
        cell.update(pair)
        if rng.random() < 0.5:
            self.shrink(cell, pair, limit, rng)
        if self.target.strategies and rng.random() < 0.5:
            cell.update((factor, SHAPES[factor][0]) for factor in PLACEMENT)
            cell.update(pair)
        return self.settle(cell, limit)

    def shrink(self, cell, pair, limit, rng):
        """Makes the factors the pair does not fix small enough for the others to stay as drawn."""
        kept = {pair[0][0], pair[1][0]}
        for factor in ("S", "N", "D"):
            while product_of(cell) > limit and factor not in kept and SHAPES[factor].index(cell[factor]) > 0:
                cell[factor] = SHAPES[factor][SHAPES[factor].index(cell[factor]) - 1]
                if rng.random() < 0.2:
                    break

    def best_of_draws(self, pair, limit, open_pairs, rng):
        drawn = (self.draw(pair, limit, rng) for _ in range(400))
        fitting = (cell for cell in drawn if cell and pair in self.pairs_of(cell))
        return max(itertools.islice(fitting, 40), key=lambda cell: len(self.pairs_of(cell) & open_pairs), default=None)

    def all_pairs(self, rng):
        """Greedy selection: each new cell is the best of a few drawn around a pair that is still open."""
        names = sorted(self.factors)
        open_pairs = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2)
                      for x in self.factors[a] for y in self.factors[b]}
        out_of_reach, cells = [], []
        order = sorted(open_pairs, key=str)
        rng.shuffle(order)
        for pair in order:
            if pair not in open_pairs:
                continue
            best = (self.best_of_draws(pair, self.target.largest, open_pairs, rng) or
                    self.best_of_draws(pair, self.target.larger, open_pairs, rng))
            if best is None:
                out_of_reach.append(pair)
                open_pairs.discard(pair)
                continue
            cells.append(best)
            open_pairs -= self.pairs_of(best)
        return cells, out_of_reach

    def full_product(self, shard, shards):
        """Every cell whose number, in an order that mixes all factors, is `shard` modulo `shards`."""
        total = 1
        for values in self.factors.values():
            total *= len(values)
        # A step that shares no divisor with the total visits every index once, far apart from one to the next.
        step = int(total * 0.6180339887) | 1
        while any(total % p == 0 and step % p == 0 for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)):
            step += 2
        seen = set()
        for position in range(shard, total, shards):
            index, cell = position * step % total, {}
            for factor, values in self.factors.items():
                cell[factor] = values[index % len(values)]
                index //= len(values)
            cell = self.settle(cell, self.target.larger)
            key = cell and tuple(cell.values())
            if cell and key not in seen:
                seen.add(key)
                yield cell


# ---- texts and commands -------------------------------------------------------------------------------------


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


def options_of(cell):
    """What both checking and compiling take."""
    options = []
    for axis, size in VARIANTS[cell["variant"]].sizes(cell).items():
        options += ["--set", f"{axis}={size}"]
    if cell["schedule"]:
        options.append(f"--schedule={cell['schedule']}")
    return options


def command_of(cell, target, program):
    command = [program, "check", "-", f"--seeds={target.seeds}", f"--misalign={cell['misalign']}"]
    command += [f"--mcpu={cell['cpu']}"] if "cpu" in cell else [f"--target={target.name}"]
    rows = cell["T"]
    if "U" in VARIANTS[cell["variant"]].axes:  # two dynamic axes of this size
        rows = min(rows, 24)
    command.append(f"--size={rows}")
    if cell["strided"]:
        command.append("--strided")
    return command + options_of(cell)


# ---- running ------------------------------------------------------------------------------------------------


class Runner:
    """Runs cells of a target and keeps what is found."""

    def __init__(self, cells, program, folder):
        self.cells = cells
        self.cut_short = False  # time ran out
        self.target = cells.target
        self.program = program
        self.folder = folder  # for the texts of cells that fail
        self.counts = collections.Counter()
        self.ran = collections.defaultdict(set)  # variants, for each strategy
        self.at_work = collections.defaultdict(set)

    def run(self, cell):
        """The cell; "passed", "refused" or "failed"; what was printed or, when it passed, whether a strategy was at work
        (None: the target has none)."""
        command, text = command_of(cell, self.target, self.program), text_of(cell)
        try:
            done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=TIME_LIMIT,
                                  start_new_session=True)  # an interrupt is for this program alone
        except subprocess.TimeoutExpired:
            return cell, "failed", f"no result after {TIME_LIMIT} seconds\n"
        output = done.stdout + done.stderr
        if done.returncode < 0:
            output += f"ended by signal {-done.returncode}\n"
        if done.returncode == 1 and self.target.strategies and targets.is_refusal(output):
            return cell, "refused", output
        if done.returncode != 0:
            return cell, "failed", output
        return cell, "passed", self.is_at_work(cell) if self.target.strategies else None

    def is_at_work(self, cell):
        if cell["variant"] in self.at_work[cell["schedule"]]:
            return True  # as is known
        command = [self.program, "compile", "-", "--target=cuda:sm_90", "--emit=cuda"] + options_of(cell)
        text = subprocess.run(command, input=text_of(cell), text=True, capture_output=True, check=True).stdout
        strategy = next(strategy for strategy in self.target.strategies if strategy.schedule == cell["schedule"])
        return targets.is_at_work(strategy, targets.forms_of(text, is_wide(cell)))

    def note(self, cell, outcome, output):
        """Counts the cell; returns another one that should be run now, or None."""
        self.counts[outcome] += 1
        if outcome == "failed":
            self.report(cell, output)
            return None
        if outcome == "passed":
            self.ran[cell["schedule"]].add(cell["variant"])
            if output:
                self.at_work[cell["schedule"]].add(cell["variant"])
        known = cell["variant"] in self.at_work[cell["schedule"]]
        if not self.target.strategies or known or not is_telling(cell) or cell == self.cells.typical(cell):
            return None
        return self.cells.typical(cell)

    def report(self, cell, output):
        """Leaves the text of a failing cell in a file and prints the command that repeats it."""
        os.makedirs(self.folder, exist_ok=True)
        name = "-".join(str(cell[factor]) for factor in cell if factor != "schedule")
        number = self.target.factors["schedule"].index(cell["schedule"])
        path = os.path.join(self.folder, f"{name}-{number}.fir")
        with open(path, "w") as file:
            file.write(text_of(cell))
        command = [path if word == "-" else word for word in command_of(cell, self.target, self.program)]
        print(f"FAILED: {shlex.join(command)}\n{output}", flush=True)

    def run_all(self, cells, jobs, seconds):
        start, cells = time.monotonic(), iter(cells)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(self.run, cell) for cell in itertools.islice(cells, 2 * jobs)}
            stopped = False
            while running:
                try:
                    finished, running = concurrent.futures.wait(running,
                                                                return_when=concurrent.futures.FIRST_COMPLETED)
                except KeyboardInterrupt:  # ends as when the time is up
                    stopped, finished = True, []
                for future in finished:
                    again = self.note(*future.result())
                    late = stopped or (seconds and time.monotonic() - start > seconds)
                    self.cut_short |= bool(late)
                    following = [again] if again else itertools.islice(cells, 1)
                    running |= {pool.submit(self.run, cell) for cell in following if not late}
        done, refused = self.counts.total(), self.counts["refused"]
        print(f"matrix: {self.counts['passed']} of {done} cells within bounds" +
              (f", {refused} refused" if refused else "") + f", {time.monotonic() - start:.0f} s")
        return done > 0 and self.counts["failed"] == 0

    def strategies_apply(self):
        """Prints how many variants each strategy ran on, and was at work on. False: on too few."""
        good = True
        for schedule, _, least in self.target.strategies:
            ran, at_work = len(self.ran[schedule]), len(self.at_work[schedule])
            enough = at_work >= least
            good &= enough
            print(f"{schedule or 'default':44} ran on {ran:2} of {len(VARIANTS)} variants, at work on {at_work:2}" +
                  ("" if enough else f", EXPECTED {least}"))
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the fathom program")
    parser.add_argument("--target", choices=targets.TARGETS, default="cpu")
    parser.add_argument("--shard", metavar="K", type=int,
                        help="one of K parts of the full product: number $FATHOM_MATRIX_SHARD, from 0 (default: 0)")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0: when all is done")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1, help="of the selection of pairs")
    parser.add_argument("--failures", default=os.path.join(tempfile.gettempdir(), "fathom-matrix"),
                        help="folder for the text of failing cells")
    parser.add_argument("--list", action="store_true", help="print the cells, run nothing")
    options = parser.parse_args()

    all_cells = Cells(targets.TARGETS[options.target])
    if options.shard:
        shard = int(os.environ.get("FATHOM_MATRIX_SHARD", "0"))
        cells, unreachable = all_cells.full_product(shard, options.shard), []
    else:
        cells, unreachable = all_cells.all_pairs(random.Random(options.seed))
        print(f"matrix: {len(cells)} cells cover all pairs but the {len(unreachable)} that none can have", flush=True)
    if options.list:
        for cell in cells:
            print(*cell.values())
        for (a, x), (b, y) in unreachable:
            print(f"beyond: {a}={x} {b}={y}")
        return 0

    os.environ["FATHOM_CACHE"] = ""  # every cell is compiled
    runner = Runner(all_cells, options.program, options.failures)
    good = runner.run_all(cells, options.jobs, 60 * options.minutes)
    if runner.target.strategies and not options.shard and not runner.cut_short:
        good &= runner.strategies_apply()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
