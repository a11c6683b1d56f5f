"""Pipes what opt prints back into opt, for every .fir of a folder and every prefix of the pipeline.

usage: round_trip.py FATHOM FOLDER
"""

import os
import subprocess
import sys

fathom, folder = sys.argv[1:]
PIPELINE = ["canonicalize", "factor-norm", "online-softmax", "canonicalize", "fuse"]


def opt(text, passes):
    command = [fathom, "opt", "-", "--verify-each", "--passes=" + ",".join(passes)]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


dumps = differ = 0
for name in sorted(os.listdir(folder)):
    with open(os.path.join(folder, name)) as file:
        text = opt(file.read(), [])
    for step in range(len(PIPELINE) + 1):
        dump = opt(text, PIPELINE[:step])
        again = opt(dump, [])
        dumps += 1
        if again != dump:
            differ += 1
            print(f"{name} after {PIPELINE[:step]} reads back as\n{again}")
    if opt(dump, ["canonicalize", "fuse"]) != dump:
        differ += 1
        print(f"{name}: the fused graph changes when canonicalize and fuse run again")
print(f"{dumps} dumps, {differ} differ")
