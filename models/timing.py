"""Times training steps in Theano's C code and on a device in turn, and divides the device's time into parts."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict
from typing import Any

import theano

from models import registry
from models.records import Times
from models.ways import SIMULATOR, STOCK, WAYS
from optdb.opencl.registry import context_of, get_context
from profiles import stopwatch

REPEAT = 7
"""Turns of each way; the median counts."""

TURN_S = 0.05
"""Seconds that a turn takes at least."""

SETTLE_S = 0.3
"""Seconds for which each way is called before: plans are made, and small launches merged."""

PROFILED = 3
"""Calls that the profile of a step is made of."""


def measure(name: str, ways: list[str]) -> dict[str, Any]:
    """Build a model; time its training steps in some ways and in Theano's C code; return `Times` as a dictionary."""
    entry = registry.entry(name)
    model = registry.build(name)
    with theano.change_flags(**dict(entry.flags)):
        compiled = {way: WAYS[way].compile(model, True) for way in dict.fromkeys([STOCK, *ways])}
        contenders = {way: lambda call=each.call: call(*model.data) for way, each in compiled.items()}
        turns = stopwatch.race(contenders, REPEAT, TURN_S, SETTLE_S)
        medians = {way: statistics.median(seconds) for way, seconds in turns.items()}
        times = Times(medians, device=get_context(context_of()).profile.name)
        if SIMULATOR in compiled:
            profiler = compiled[SIMULATOR].profile
            assert profiler is not None  # simulators have one
            profile = profiler(*model.data, n=PROFILED)
            times.launches = sum(row.kind == "launch" for row in profile.rows)
            times.kernels = profile.device_seconds
            hosts: Counter[str] = Counter()
            for row in profile.rows:
                if row.where == "host":
                    hosts[row.op] += row.host
            times.host_ops = [[op, seconds] for op, seconds in hosts.most_common(3)]
            times.host = sum(hosts.values())
    return asdict(times)
