"""What the check matrix knows of each target: factors of its own, the size of its cells, and the strategies of a GPU.
"""

import re
from typing import NamedTuple


class Target(NamedTuple):
    name: str
    seeds: int
    largest: int  # elements of the largest value, N * T * D * S
    larger: int
    factors: dict  # beside those of all targets
    strategies: list = []  # the values of the factor "schedule"


class Strategy(NamedTuple):
    schedule: str
    sign: str  # what the text of a kernel has, or with a leading ! has not, when the strategy is at work
    variants: int  # at least so many of them it must be at work on


# Residency and load go together, so each that names one names both; what it leaves out is the default's, which depends
# on the graph.
STRATEGIES = [
    Strategy("", "", 48),
    Strategy("residency=1,load=0", r"_held\[", 30),
    Strategy("residency=0,load=0", r"!_held\[", 48),
    Strategy("residency=1,load=0,team=64,working=200,source_tile=2", "in tiles of up to", 22),
    Strategy("residency=1,load=0,team=64,working=200,source_tile=2,online=0,persistent=0,access=4",
             "!in tiles of up to", 48),
    Strategy("residency=1,load=1,stages=2", r"fm_copy_wait<1>", 40),
    Strategy("residency=2,load=2,stages=2,split=1", r"fm_bulk_copy", 40),
    Strategy("residency=1,load=0,split=2,cluster=1", r"fm_cluster_totals", 36),
    Strategy("residency=2,load=1,split=2,cluster=1", r"(?s)fm_copy_async.*fm_cluster_totals", 34),
    Strategy("residency=1,load=0,split=3,cluster=0", r"_step2\(", 36),
    Strategy("residency=1,load=0,split=1,team=64,teams=2,blocks=8", r"fm_thread\(\) / 64", 48),
    Strategy("logits=1", r"fm_logit_tile", 3),
    Strategy("logits=2", r"const product =", 5),
]

# How a strategy that does not apply is refused.
REFUSALS = [
    r"kernel @[\w.]+ needs \d+ bytes of shared memory for a block, but a block of sm_\d+ has at most \d+",
    r"kernel @[\w.]+ reads %[\w.]+ at other elements than it was computed at, so its rows cannot be split over blocks",
    r"kernel @[\w.]+ sums too many sources and queries of a row up together to be split over launches",
    r"kernel @[\w.]+ needs more launches than \d+ to be split without clusters",
    r"@\w+ has no logits for logits=[12]: ",
]

TARGETS = {
    target.name: target
    for target in [
        Target("cpu", 1, 1_000_000, 8_000_000, {
            "cpu": ["host", "x86-64-v3", "x86-64"],
            "schedule": [
                "",
                "lanes=1",
                "vector=1,unroll=1,source_tile=4,query_tile=3,mix_unroll=3,prefetch=0,overlap=0,pair=0,stream=0,rows=1",
                "lanes=1,vector=4,unroll=3,source_tile=16,query_tile=32,mix_unroll=64,rows=7,prefetch=8",
            ],
        }),
        # f8e4m3 under every strategy is what test_f8 and the variant output_fp8 are for.
        Target("cuda-emu", 10, 100_000, 1_000_000, {
            "dtype": ["f32", "bf16", "f16"],
            "schedule": [strategy.schedule for strategy in STRATEGIES],
        }, STRATEGIES),
    ]
}


def is_refusal(output):
    return any(re.search("error: " + sentence, output) for sentence in REFUSALS)


def is_at_work(strategy, text):
    """Whether the text of a kernel shows the strategy."""
    absent = strategy.sign.startswith("!")
    return (re.search(strategy.sign.lstrip("!"), text) is None) == absent


def forms_of(text, wide):
    """Of a file of kernels the text of each in the form for wide accesses, or in that for any strides."""
    forms = {}
    for part in text.split("\n// ---- kernel @")[1:]:
        name, any_strides = re.match(r"([\w.]+)(, for any strides)?\n", part).groups()
        forms.setdefault(name, {})[bool(any_strides)] = part
    return "\n".join(parts.get(not wide) or parts[True] for parts in forms.values())
