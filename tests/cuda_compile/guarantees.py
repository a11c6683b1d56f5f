#!/usr/bin/env python3
"""What the default schedules of the cuda target promise for the shapes that matter, on every architecture.

  guarantees.py --program FATHOM spills    no bytes of spills and of stack, in every function (needs NVRTC)
  guarantees.py --program FATHOM bytes     each input read once, each result written once; what is read more
                                           often is what the report says (needs a C++ compiler: the emulator)
  guarantees.py --program FATHOM sass      the machine code of the K3 site for sm_90a: wide accesses, no local
                                           memory, no f64 (needs NVRTC and nvdisasm)

--schedule K=V,... puts another schedule in place of the default: to see a test fail, or to look at a strategy.
Exits with 77, after the reason, where something is missing.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
ARCHS = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"]
SKIPPED = 77
TOKENS = 5  # more than the emulator has multiprocessors, so that some block works on two
BLOCKS = 3  # as many as it has; each runs one block
TOLERANCE = 0.02
SCALARS = 64  # bytes a token of an argument that every warp reads for itself

# A site with n sources: n - 1 finished blocks and the running prefix.
SITE = """graph @site({bank}%prefix: bf16[T, D], %delta: bf16[T, D],
            %query: f32[D], %gain: f32[D], %out_gain: bf16[D]) {{
  %p = add %prefix, %delta                        : bf16[T, D]
  %v = concat {sources} over B to N               : bf16[N={n}, T, D]
  %k = rms_norm %v, %gain over D {{eps = 1e-5}}     : f32[N, T, D]
  %z = dot %k, %query over D                      : f32[N, T]
  %a = softmax %z over N                          : f32[N, T]
  %h = weighted_sum %a, %v over N                 : f32[T, D]
  %y = rms_norm %h, %out_gain over D {{eps = 1e-5}} : bf16[T, D]
  return %y, %p
}}
"""


class Case:
    """A graph and the sizes of its axes."""

    def __init__(self, name, path, **sizes):
        self.name, self.path, self.sizes = name, path, sizes

    def arguments(self):
        return [self.path, *(word for axis, size in self.sizes.items() for word in ("--set", f"{axis}={size}"))]


def write_site(folder, n):
    path = os.path.join(folder, f"site{n}.fir")
    with open(path, "w") as file:
        bank = f"%bank: bf16[B={n - 1}, T, D], " if n > 1 else ""
        file.write(SITE.format(n=n, bank=bank, sources="%bank, %p" if n > 1 else "%p"))
    return path


def make_cases(folder):
    k3 = os.path.join(ROOT, "examples/k3_site.fir")
    cases = [Case(f"K3 site, {n} sources", k3 if n == 9 else write_site(folder, n), D=7168) for n in range(1, 10)]
    cases.append(Case("Kimi Linear site, 10 sources", write_site(folder, 10), D=2304))
    phase1 = os.path.join(ROOT, "tests/variants/phase1.fir")
    cases += [Case(f"phase 1, {s} queries", phase1, N=8, D=7168, S=s) for s in (6, 16, 24)]
    cases.append(Case("phase 2", os.path.join(ROOT, "examples/phase2.fir"), D=7168))
    return cases


class Program:
    """The fathom program, with a cache of its own."""

    def __init__(self, path, folder, schedule, nvrtc):
        self.path = path
        self.environment = {**os.environ, "FATHOM_CACHE": os.path.join(folder, "cache")}
        if not nvrtc:  # reports are quicker without
            self.environment["FATHOM_LIBNVRTC"] = os.path.join(folder, "none")
        self.schedule = ["--schedule", schedule] if schedule else []

    def run(self, *words):
        done = subprocess.run([self.path, *words], env=self.environment, text=True, capture_output=True)
        if done.returncode:
            raise Broken(f"fathom {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def emit(self, case, arch, what, *more):
        return self.run("compile", *case.arguments(), "--target", f"cuda:{arch}", "--emit", what, *self.schedule, *more)

    def check(self, case, arch, *more):
        return self.run("check", *case.arguments(), "--target", f"cuda-emu:{arch}", "--seeds", "1", "--size",
                        str(TOKENS), *self.schedule, *more)


class Broken(Exception):
    """A promise that is not kept; says which."""


def demand(true, text):
    if not true:
        raise Broken(text)


# ---- reports ------------------------------------------------------------------------------------------------


def forms_of(report):
    """The text about each form of each kernel, by the function's name."""
    return {re.search(r"function (\S+)", text)[1]: text for text in re.split(r"^kernel: ", report, flags=re.M)[1:]}


def reads_of(form):
    """How many bytes more than its own are read of each argument: by a token, before the tokens by each block, and
    before them all."""
    reads = {"token": {}, "block": {}, "launch": {}}
    for items, how in re.findall(r"^    (%.*): (.*)$", form, flags=re.M):
        kind = "token" if "before" not in how else "block" if "block" in how else "launch"
        for name, size in re.findall(r"%(\S+) (\d+)", items):
            reads[kind][name] = reads[kind].get(name, 0) + int(size)
    return reads


# ---- spills -------------------------------------------------------------------------------------------------


def check_spills(program, case, arch):
    report = program.emit(case, arch, "report")
    lines = re.findall(r"^  (registers.*)$", report, flags=re.M)
    demand(len(lines) >= len(forms_of(report)) > 0, f"the report lacks registers:\n{report}")
    for line in lines:
        numbers = re.search(r": (\d+), spills: (\d+) bytes stored, (\d+) loaded, stack: (\d+) bytes$", line)
        demand(numbers and not any(int(n) for n in numbers.groups()[1:]), line)


# ---- bytes --------------------------------------------------------------------------------------------------


def traffic_of(text):
    """Of each argument bytes read and written, those that are distinct, and those that must move."""
    traffic = {}
    for name, ways in re.findall(r"^traffic %(\S+): (.*)$", text, flags=re.M):
        traffic[name] = {way: tuple(map(float, numbers)) for way, *numbers in
                         re.findall(r"(read|written) (\d+) \(([\d.]+) of the minimum\), distinct (\d+)", ways)}
    return traffic


def check_traffic(traffic, form):
    reads, moved, least = reads_of(form), 0, 0
    shared = set().union(*reads.values())
    for name, ways in traffic.items():
        for way, (number, ratio, distinct) in ways.items():
            minimum = number / ratio
            if way == "read" and name in shared:
                said = (TOKENS * reads["token"].get(name, 0) + BLOCKS * reads["block"].get(name, 0)
                        + reads["launch"].get(name, 0))
                own = distinct if re.search(rf"%{name} \d+[^:]*: again", form) else 0
                demand(number == own + said, f"%{name}: {number:.0f} bytes are read; the report says {own + said:.0f}")
                continue
            moved, least = moved + number, least + minimum
            if distinct > TOKENS * SCALARS:
                demand(number == distinct, f"%{name}: {number:.0f} bytes {way}, {distinct:.0f} of them distinct")
                demand(abs(ratio - 1) <= TOLERANCE, f"%{name}: {way} {ratio} of the minimum")
    demand(0 < moved <= least * (1 + TOLERANCE), f"{moved / max(least, 1):.3f} of the minimum in all")


def check_bytes(program, case, arch):
    forms = list(forms_of(program.emit(case, arch, "report")).values())
    check_traffic(traffic_of(program.check(case, arch)), forms[0])
    demand("again for another use" not in forms[0], f"reads its sources more than once:\n{forms[0]}")


def check_bytes_any(program, case, arch):
    """Rows that are not aligned go to the form for any strides."""
    form = list(forms_of(program.emit(case, arch, "report")).values())[-1]
    traffic = traffic_of(program.check(case, arch, "--misalign", "1"))
    rereads = {name for items in re.findall(r"^    (%.*): again", form, flags=re.M)
               for name in re.findall(r"%(\S+) \d+", items)}
    demand(rereads <= set(traffic), f"unknown arguments in the report: {rereads}")
    check_traffic(traffic, form)


# ---- machine code -------------------------------------------------------------------------------------------


def find_disassembler():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for path in (os.path.join(ROOT, "build/tools/nvdisasm"), shutil.which("nvdisasm"),
                 os.path.join(home, "bin/nvdisasm")):
        if path and os.access(path, os.X_OK):
            return path
    return None


def functions_of(disassembler, cubin):
    """The opcodes of each function, with their modifiers."""
    text = subprocess.run([disassembler, "-c", cubin], text=True, capture_output=True, check=True).stdout
    functions = {}
    for name, body in re.findall(r"^\.text\.(\S+):\n(.*?)(?=^\s*\.section|\Z)", text, flags=re.M | re.S):
        functions[name] = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", body, flags=re.M)
    return functions


def check_sass(program, case, arch, disassembler, folder, schedule=""):
    cubin = os.path.join(folder, f"code{schedule}.cubin")
    more = ["--schedule", schedule] if schedule and not program.schedule else []
    program.emit(case, arch, "cubin", "-o", cubin, *more)
    functions = functions_of(disassembler, cubin)
    demand({"k3_site", "k3_site_any"} <= set(functions), f"functions {sorted(functions)}")
    for name, codes in functions.items():
        demand(len(codes) > 100, f"{name}: only {len(codes)} instructions were recognised")
        local = [code for code in codes if re.match(r"(LDL|STL)\b", code)]
        double = [code for code in codes if re.match(r"D(ADD|MUL|FMA|SETP|MNMX|MMA)\b|.*(F64|64H)", code)]
        demand(not local, f"{name} uses local memory: {local[:4]}")
        demand(not double, f"{name} computes in f64: {double[:4]}")
    rows = [code for code in functions["k3_site"] if re.match(r"(LDG|LDGSTS|STG)\b", code)]
    narrow = [code for code in rows if not re.search(r"\.128\b", code)]
    loads = sum(code.startswith("LDG") for code in rows)
    demand(not narrow, f"k3_site has accesses of less than 16 bytes: {sorted(set(narrow))}")
    demand(loads >= 10, f"k3_site has {loads} loads; its sources, delta and prefix alone take 10")


# ---- running ------------------------------------------------------------------------------------------------


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def need_nvrtc(program):
    info = program.run("info")
    if not re.search(r"^nvrtc: ", info, flags=re.M):
        missing = re.search(r"^missing: (.*nvrtc.*)$", info, flags=re.M | re.I)
        skip(missing[1] if missing else "there is no NVRTC here (`fathom info` says what was looked for)")


def jobs_of(what, program, cases, folder):
    """(what it is about, function, arguments) of each check."""
    everywhere = [(f"{case.name}, {arch}", case, arch) for case in cases for arch in ARCHS]
    if what == "spills":
        need_nvrtc(program)
        return [(name, check_spills, (program, case, arch)) for name, case, arch in everywhere]
    if what == "bytes":
        some = [case for case in cases if case.name in ("K3 site, 9 sources", "phase 1, 6 queries", "phase 2")]
        return [(name, check_bytes, (program, case, arch)) for name, case, arch in everywhere] + [
            (f"{case.name}, sm_90a, any strides", check_bytes_any, (program, case, "sm_90a")) for case in some]
    need_nvrtc(program)
    disassembler = find_disassembler()
    if not disassembler:
        skip("there is no nvdisasm here: tools/setup installs it")
    site = next(case for case in cases if case.name == "K3 site, 9 sources")
    return [(f"{site.name}, sm_90a, {schedule or 'default schedule'}", check_sass,
             (program, site, "sm_90a", disassembler, folder, schedule)) for schedule in ("", "load=0,source_tile=16")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the fathom program")
    parser.add_argument("--schedule", default="", help="instead of the default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("what", choices=["spills", "bytes", "sass"])
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="fathom-guarantees-") as folder:
        program = Program(os.path.realpath(options.program), folder, options.schedule, options.what != "bytes")
        jobs = jobs_of(options.what, program, make_cases(folder), folder)
        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            for name, future in [(name, pool.submit(function, *arguments)) for name, function, arguments in jobs]:
                try:
                    future.result()
                except Broken as broken:
                    failures += 1
                    print(f"{name}: {broken}", flush=True)
    print(f"{options.what}: {len(jobs) - failures} of {len(jobs)} as promised")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
