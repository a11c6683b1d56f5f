"""Compiles every variant and checks what fusion promises of each.

usage: one_kernel.py FATHOM MATRIX_DIRECTORY

One kernel, no temporary in memory, every input row read once and every result row written once, and of what a kernel
keeps on the side nothing has both the source axis and a hidden axis: no [N, T, D] value is ever stored.
"""

import re
import subprocess
import sys

fathom, matrix_directory = sys.argv[1:]
sys.path.insert(0, matrix_directory)
import matrix  # noqa: E402  (the variants and their sizes)

CELL = {"D": 384, "N": 5, "S": 3}
ROWS = {"T", "U"}
SOURCES = {"N", "B", "M", "W"}
HIDDEN = {"D", "C", "R"}
BYTES = {"f32": 4, "bf16": 2, "f16": 2, "f8e4m3": 1}


def emit(variant, what):
    command = [fathom, "compile", variant.path, "--emit", what]
    for axis, size in variant.sizes(CELL).items():
        command += ["--set", f"{axis}={size}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def row_bytes(kernel, kind, sizes):
    """Bytes of one row of the kernel's arguments that have rows, from their types."""
    total = 0
    for dtype, axes in re.findall(rf"^  {kind} +%\S+ : (\w+)\[([^\]]*)\]", kernel, re.M):
        axes = axes.split(", ") if axes else []
        if ROWS & set(axes):
            count = 1
            for axis in axes:
                count *= 1 if axis in ROWS else sizes[axis]
            total += count * BYTES[dtype]
    return total


def faults(name):
    variant = matrix.VARIANTS[name]
    report, kernel = emit(variant, "report"), emit(variant, "kernel")
    sizes = {**variant.sizes(CELL), **variant.fixed}
    if "kernels: 1\n" not in report:
        yield re.search(r"kernels: .*", report).group()
    if "temporaries in memory: 0\n" not in report:
        yield re.search(r"temporaries in memory: .*", report).group()
    read, written = (int(n) for n in re.search(r"bytes per token: \d+ \((\d+) read, (\d+) written\)", report).groups())
    sliced = "= slice " in kernel  # a window needs only part of its parameter
    if read > row_bytes(kernel, "read", sizes) or (read < row_bytes(kernel, "read", sizes) and not sliced):
        yield f"{read} bytes read per row, the parameters have {row_bytes(kernel, 'read', sizes)}"
    if written != row_bytes(kernel, "write", sizes):
        yield f"{written} bytes written per row, the results have {row_bytes(kernel, 'write', sizes)}"
    for axes in re.findall(r"-> (?:scratch|shared)\[([^\]]*)\]", kernel):
        axes = set(axes.split(", "))
        if axes & SOURCES and axes & HIDDEN:
            yield f"keeps a value with axes {', '.join(sorted(axes))}"


wrong = 0
for name in matrix.VARIANTS:
    for fault in faults(name):
        wrong += 1
        print(f"{name}: {fault}")
print(f"{len(matrix.VARIANTS)} variants, {wrong} faults")
