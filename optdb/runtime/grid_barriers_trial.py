"""The trial of a grid barrier, as a program with the arguments SPEC and NAME.

First, teams of items in a group synchronize, if the barrier supports teams. Then each group repeatedly writes values,
waits at the barrier, reads other groups' values, and waits again. The last line of the output is the finding as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from optdb.runtime.build import BuildError, make
from optdb.runtime.context import Context
from optdb.runtime.grid_barriers import GRID_BARRIERS, GridBarrier
from optdb.runtime.library import cl
from optdb.runtime.timing import seconds_of, timed_beside

_ROUNDS = 1000
_REPEATS = 4
_POLLS = 1 << 22

_SOURCE = """
FUNCTIONS
__kernel void trial(
    __global uint *values, __global uint *wrong, __global uint *words, uint groups, uint rounds, uint polls)
{
    LOCALS
    const uint item = get_global_id(0), all = get_global_size(0), first = 0;
    uint stop = 1, end = 2 * rounds + 1, found = 0;
    TEAMS
    AT_START
    for (uint phase = 0; phase + 1 < end; ++phase) {
        if (phase % 2 == 0)
            values[item] = item + phase;
        else
            for (uint i = 1; i < 8; ++i) {
                const uint other = (item + i * 257 * get_local_size(0) + i) % all;
                found += values[other] != other + phase - 1;
            }
        ARRIVAL
        WAIT
    }
    wrong[item] = found;
    AT_END
}
"""


#: Teams of 64 items; each team synchronizes a different number of times.
_TEAMS = """
    __local uint seats[1024];
    const uint its = get_local_id(0), team = its / 64, next = team * 64 + (its + 1) % 64;
    for (uint round = 0; round < 20 + 3 * team; ++round) {
        seats[its] = round + its;
        its_meet(team + 1, 64);
        found += seats[next] != round + next;
        its_meet(team + 1, 64);
    }
"""


def tried(context: Context, barrier: GridBarrier) -> dict[str, Any]:
    """Try a barrier and return the finding."""
    words = {
        "FUNCTIONS": barrier.functions,
        "LOCALS": barrier.locals,
        "TEAMS": _TEAMS if barrier.has_teams else "",
        "AT_START": barrier.at_start,
        "ARRIVAL": barrier.arrival,
        "WAIT": barrier.wait,
        "AT_END": barrier.at_end,
    }
    source = _SOURCE
    for word, code in words.items():
        source = source.replace(word, code)
    try:
        kernel = cl.Kernel(make(context, source, barrier.options, name="a grid barrier"), "trial")
    except BuildError as error:
        return {"right": False, "reason": f"it does not build: {error.log[:300]}"}
    groups, items = context.device.max_compute_units, min(256, context.profile.max_local_size)
    flags = cl.mem_flags.READ_WRITE
    values = cl.Buffer(context.cl_context, flags, 4 * groups * items)
    wrong = cl.Buffer(context.cl_context, flags, 4 * groups * items)
    state = cl.Buffer(context.cl_context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(3, np.uint32))
    kernel.set_args(values, wrong, state, *map(np.uint32, (groups, _ROUNDS, _POLLS)))
    queue = timed_beside(context.queue)
    count, left, seconds = np.zeros(groups * items, np.uint32), np.zeros(3, np.uint32), []
    for _ in range(_REPEATS):
        event = cl.enqueue_nd_range_kernel(queue, kernel, (groups * items,), (items,))
        cl.enqueue_copy(queue, count, wrong)
        cl.enqueue_copy(queue, left, state)
        seconds.append(seconds_of(event))
        if left[2]:
            return {"right": False, "reason": "the groups of a launch do not wait for each other"}
        if count.any() or left.any():
            return {"right": False, "reason": f"{count.sum()} values were stale, and the counters are {left.tolist()}"}
    return {"right": True, "groups": groups, "us": min(seconds) * 1e6 / (2 * _ROUNDS)}


def main() -> None:
    """Try the barrier on the device that the command-line arguments name."""
    spec, name = sys.argv[1:]
    print(json.dumps(tried(Context(spec), GRID_BARRIERS[name])))


if __name__ == "__main__":
    main()
