"""Checks the CSV that FATHOM_VERBOSE=1 prints: verbose.py LINES CONDITION ... < CSV

Every line has to meet every condition: COLUMN=TEXT, COLUMN~PART of it, or COLUMN+ for a number above 0.
"""

import csv
import sys

names = ["command", "target", "graph", "kernel", "axes", "rows", "schedule", "source", "tuned_rows", "time_us", "gb_s",
         "of_ceiling", "refused"]
reader = csv.reader(sys.stdin, strict=True)
assert next(reader) == names
lines = list(reader)
assert len(lines) == int(sys.argv[1]), lines
for line in lines:
    assert len(line) == len(names), line
    found = dict(zip(names, line))
    for condition in sys.argv[2:]:
        if "~" in condition:
            name, part = condition.split("~", 1)
            assert part in found[name], (condition, found)
        elif "=" in condition:
            name, text = condition.split("=", 1)
            assert found[name] == text, (condition, found)
        else:
            assert float(found[condition.rstrip("+")]) > 0, (condition, found)
