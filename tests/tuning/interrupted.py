#!/usr/bin/env python3
"""Tuners that are killed, and many at once.

  interrupted.py --program FATHOM kill    kill -9 at random moments, then --resume: what was remembered can always be
                                          read, no finished trial is done again, and in the end there is a winner
  interrupted.py --program FATHOM many    eight tuners and readers of one database: no record is lost, and one
                                          tuner times at a time
  interrupted.py --program FATHOM suite   Ctrl-C in the second search of three: the best so far stays, the next run
                                          goes on there, and the third has nothing left to do. Two at once share
                                          the work
"""

import argparse
import collections
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

GRAPH = """graph @mix(%bank: f32[N=3, T, D=64], %query: f32[D]) {
  %z = dot %bank, %query over D : f32[N, T]
  %a = softmax %z over N : f32[N, T]
  %h = weighted_sum %a, %bank over N : f32[T, D]
  return %h
}
"""
KILLS, TUNERS = 20, 8


class Place:
    """A folder with the graph and a cache of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.graph = os.path.join(folder, "mix.fir")
        with open(self.graph, "w") as file:
            file.write(GRAPH)
        self.environment = dict(os.environ, FATHOM_CACHE=os.path.join(folder, "cache"))

    def start(self, *words):
        return subprocess.Popen([self.program, *words], env=self.environment, text=True, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def tune(self, rows, *words, budget="200s"):
        return self.start("tune", self.graph, "--size", str(rows), "--threads", "1", "--budget", budget, *words)

    def bench(self, rows):
        return subprocess.run([self.program, "bench", self.graph, "--size", str(rows), "--threads", "1", "--seconds",
                               "0.01"], env=self.environment, text=True, capture_output=True)

    def files(self, pattern):
        return glob.glob(os.path.join(self.folder, "cache", "tuned", pattern))


def finish(process):
    out, err = process.communicate(timeout=280)
    if process.returncode:
        sys.exit(f"exit {process.returncode}\n{out}{err}")
    return out


def workers():
    """Processes of `fathom tune-worker`, and whose child each is."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
            parent = re.search(r"^PPid:\s+(\d+)", open(path.replace("cmdline", "status")).read(), re.M)
        except OSError:
            continue
        if b"tune-worker" in words and parent:
            found[int(path.split("/")[2])] = int(parent.group(1))
    return found


def trials(place):
    """(schedule, level) of each whole line of the journal."""
    found = []
    for path in place.files("*journal*"):
        for line in open(path, errors="replace").read().split("\n")[:-1]:
            schedule, level = re.search(r"schedule: '?([^'}\s]+)", line), re.search(r"level: (\d+)", line)
            if schedule and level:
                found.append((schedule.group(1).rstrip(","), int(level.group(1))))
    return found


def kill(place, seed):
    random.seed(seed)
    known = 0
    for number in range(KILLS):
        process = place.tune(64, "--trials", "400", *(["--resume"] if number else []))
        time.sleep(random.uniform(0.02, 2.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        done = trials(place)
        repeated = [trial for trial, count in collections.Counter(done).items() if count > 1]
        if repeated:
            sys.exit(f"after kill {number}: done again: {repeated[:3]}")
        if len(done) < known:
            sys.exit(f"after kill {number}: {known} trials were there, now {len(done)}")
        known = len(done)
        if place.bench(64).returncode:
            sys.exit(f"after kill {number}: nothing can be compiled")
    time.sleep(0.5)
    left = [pid for pid, parent in workers().items() if parent == 1 and place.folder in open(f"/proc/{pid}/environ").read()]
    if left:
        sys.exit(f"workers without a tuner: {left}")
    out = finish(place.tune(64, "--trials", "400", "--resume"))
    resumed = int(re.search(r"resumed\s+(\d+)", out).group(1))
    if resumed != known or known == 0:
        sys.exit(f"{known} trials were there, {resumed} were taken over")
    if "(tuned)" not in place.bench(64).stdout:
        sys.exit("the winner is not used")
    print(f"{KILLS} kills, {known} trials kept, none repeated")


def many(place, _):
    tuners = {number: place.tune(2 ** number, "--trials", "3", "--seed", str(number), budget="10s") for number in range(TUNERS)}
    most, reads = 0, 0
    while any(process.poll() is None for process in tuners.values()):
        parents = {process.pid for process in tuners.values()}
        most = max(most, sum(parent in parents for parent in workers().values()))
        if place.bench(2 ** (reads % TUNERS)).returncode:
            sys.exit("a reader failed")
        reads += 1
    for process in tuners.values():  # those that waited for the device have had their time as well
        if "that many measurements were allowed" not in finish(process):
            sys.exit("a tuner ran out of time")
    for part in open(place.files("*.yaml")[0]).read().split("\n---\n"):  # the records, and their timings
        rows = sorted(int(number) for number in re.findall(r"^\s+rows: (\d+)$", part, re.M))
        if rows != [2 ** number for number in range(TUNERS)]:
            sys.exit(f"records of {rows}")
    if most != 1:
        sys.exit(f"{most} workers at once")
    print(f"{TUNERS} tuners, {reads} readers: all records there, one worker at a time")


def suite(place, _):
    path = os.path.join(place.folder, "mix.yaml")
    with open(path, "w") as file:
        file.write("schema: 1\nrows: [16, 32, 64]\nkernels:\n- {name: mix, file: mix.fir}\n")

    def start(*words):
        return place.start("tune", "--suite", path, "--threads", "1", "--json", "--budget", "12s", *words)

    def states(out):
        return [search["state"] for search in json.loads(out)["searches"]]

    first = finish(start("--trials", "8", "--dry"))
    if states(first) != ["tuned"] * 3 or place.files("*"):
        sys.exit(f"dry: {first}")
    process = start()
    # The first search is ended by hand too, without a trace of the others.
    for number, interrupted in ((1, ["interrupted"] + ["not reached"] * 2), (2, ["tuned", "interrupted", "not reached"])):
        if number > 1:
            finish(place.tune(16, "--trials", "8", budget="10s"))
            process = start()
        while f"[{number}/3]" not in process.stderr.readline():
            pass
        until = time.time() + 60
        while len(trials(place)) < 4 and time.time() < until:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        found = states(finish(process))
        if [("tuned" if state == "known" else state) for state in found] != interrupted:
            sys.exit(f"after Ctrl-C in search {number}: {found}")
    known = len(trials(place))
    last = json.loads(finish(start("--trials", "12")))["searches"]
    if [search["state"] for search in last] != ["known", "tuned", "tuned"]:
        sys.exit(f"the second run: {last}")
    if last[1]["resumed"] != known or known == 0 or last[2]["resumed"]:
        sys.exit(f"{known} trials were there, {last[1]['resumed']} were taken over")
    if "(tuned)" not in place.bench(32).stdout or place.files("*journal*"):
        sys.exit("the winner is not used, or a journal is left")
    if states(finish(start())) != ["known"] * 3:
        sys.exit("something was searched a third time")
    again = finish(start("--again", "--trials", "2"))
    if states(again) != ["tuned"] * 3 or '"measurements": 2' not in again:
        sys.exit(f"again: {again}")
    os.mkdir(os.path.join(place.folder, "other"))
    other = Place(place.program, os.path.join(place.folder, "other"))
    words = ["tune", "--suite", path, "--threads", "1", "--json", "--budget", "5s", "--trials", "3"]
    both = [states(finish(process)) for process in [other.start(*words), other.start(*words)]]
    if any(sorted(pair) != ["known", "tuned"] for pair in zip(*both)):
        sys.exit(f"two at once: {both}")
    print(f"interrupted twice, {known} trials taken over, known in the end")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("what", choices=["kill", "many", "suite"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"kill": kill, "many": many, "suite": suite}[options.what](Place(options.program, folder), options.seed)


if __name__ == "__main__":
    main()
