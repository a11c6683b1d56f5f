# The keys of `fathom bench --json` (DESIGN: the command line is a contract): bench_keys.py TOKENS < LINE
import json
import sys

lines = sys.stdin.read().splitlines()
assert len(lines) == 1, lines
line = json.loads(lines[0])
kinds = {
    "graph": str, "kernel": str, "target": str, "axes": dict, "schedule": str, "schedule_source": str,
    "median_us": (int, float), "spread": (int, float), "bytes": int, "gb_s": (int, float),
    "ceiling_gb_s": (int, float), "of_ceiling": (int, float), "cache": str, "timing": str,
}
for key, kind in kinds.items():
    assert isinstance(line[key], kind), (key, line)
assert line["graph"] == "mix" and line["target"] == "cpu" and line["schedule_source"] == "default", line
assert line["cache"] == "warm" and line["timing"] == "host clock" and "batch" not in line, line
assert line["sets"] == 1, line
tokens = int(sys.argv[1])
assert line["axes"] == {"N": 3, "T": tokens, "D": 4}, line
# Every input once, every output once, f32.
assert line["bytes"] == 4 * (3 * tokens * 4 + 4 + tokens * 4 + 3 * tokens), line
assert line["median_us"] > 0 and line["ceiling_gb_s"] > 0, line
assert abs(line["of_ceiling"] - line["gb_s"] / line["ceiling_gb_s"]) < 1e-3, line
