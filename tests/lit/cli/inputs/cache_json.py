"""Checks what `fathom cache show|list --json` prints: the record of GRAPH in this machine's file.

Usage: cache_json.py GRAPH usable|unusable < JSON
"""

import json
import sys

graph, wanted = sys.argv[1:]
files = [file for file in json.load(sys.stdin)["files"] if file["this_machine"]]
(record,) = [record for file in files for record in file["records"] if record["graph"] == graph]
assert record["usable"] == (wanted == "usable"), record
assert (record["why_not"] == "") == record["usable"], record
assert record["differs"] == [], record
assert record["median_us"] > 0 and record["speed_up"] > 0, record
assert record["rows"] == 64 and record["axes"] == "N=3 D=4", record
if "key" in record:
    assert record["key"]["rows"] == 64 and record["key"]["layout"] == "dense", record
    assert record["best"]["outcome"] == record["default"]["outcome"] == "timed", record
    assert record["outcomes"]["timed"] >= 1, record
