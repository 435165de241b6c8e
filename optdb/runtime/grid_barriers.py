"""Grid barriers, which synchronize all groups of a launch, and the trial that tests whether a device supports them.

OpenCL does not guarantee progress for groups that wait for each other. If all groups are resident at once, they can
synchronize through atomics; :func:`usable_barrier` tests this once for each device, in a child process. A fence in
OpenCL C 1.2 orders memory accesses only within a group, so barriers use device-scope atomics of OpenCL C 3.0, or inline
PTX. A group that polls for too long sets the failure flag, which ends all groups (``grid_failures``).
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optdb.runtime import binaries, children, tuning
from optdb.runtime.background import in_background
from optdb.runtime.context import Context

_logger = logging.getLogger(__name__)

#: Increase this version when the barriers or the trial change.
_VERSION = "2"
_TRIAL_TIMEOUT_S = 12.0
#: The module that the child process runs.
_CHILD = "optdb.runtime.grid_barriers_trial"


@dataclass(frozen=True)
class GridBarrier:
    """The code of a barrier for kernels with the parameters ``words``, ``groups`` and ``polls``.

    A kernel's phases are numbered from ``first``. A group *arrives* when it has finished a phase, and waits before it
    reads results of other groups. ``words`` contains the number of arrivals, the number of groups that have ended, and
    whether a launch has failed.
    """

    name: str
    functions: str = ""
    locals: str = ""
    at_start: str = ""
    arrival: str = ""
    wait: str = ""
    at_end: str = ""
    options: tuple[str, ...] = ()  #: Compiler options.
    #: Whether the barrier synchronizes several groups.
    meets: bool = True
    #: Whether the code defines ``its_meet(number, size)``, a barrier for `size` items in a group.
    has_teams: bool = False


_BOTH = "CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE"
#: A waiting group checks once every 256 polls whether another group has failed.
_FUNCTIONS = f"""
static void optdb_arrive(volatile __global uint *words)
{{
    barrier({_BOTH});
    if (get_local_id(0) == 0) {{
        RELEASE
        ARRIVE
    }}
}}

static bool optdb_meet(volatile __global uint *words, uint goal, uint polls, volatile __local uint *stopped)
{{
    if (get_local_id(0) == 0) {{
        uint left = polls, stop = 0;
        while (ARRIVED < goal)
            if (--left == 0 || (left % 256 == 0 && FAILED)) {{
                stop = 1;
                atomic_or(words + 2, 1u);
                break;
            }}
        ACQUIRE
        *stopped = stop;
    }}
    barrier({_BOTH});
    return !*stopped;
}}
"""
_AT_START = f"""
    if (get_local_id(0) == 0)
        its_stopped = words[2];
    barrier({_BOTH});
    if (its_stopped)
        stop = end = 0;
"""
_ARRIVAL = """
            optdb_arrive(words);
"""
_WAIT = """
            if (!optdb_meet(words, (phase - first + 1) * groups, polls, &its_stopped))
                break;
"""
_AT_END = """
    /* The last group leaves the counters as it found them. */
    if (get_local_id(0) == 0 && !its_stopped && atomic_inc(words + 1) == groups - 1)
        words[0] = words[1] = 0;
"""


_TEAMS = """
static void its_meet(uint number, uint size)
{
    asm volatile("bar.sync %0, %1;" : : "r"(number), "r"(size) : "memory");
}
"""
_LOAD = """
static uint its_load(volatile __global uint *word)
{
    uint value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
"""


_ARRIVE = """
static void its_arrive(volatile __global uint *word)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(word) : "memory");
}
"""


def _grid_barrier(
    name: str, words: Mapping[str, str], beside: str = "", has_teams: bool = False, options: tuple[str, ...] = ()
) -> GridBarrier:
    functions = beside + _FUNCTIONS
    for word, code in words.items():
        functions = functions.replace(word, code)
    stopped = "__local uint its_stopped;"
    return GridBarrier(name, functions, stopped, _AT_START, _ARRIVAL, _WAIT, _AT_END, options, has_teams=has_teams)


_ATOMIC = "(volatile __global atomic_uint *)"
_DEVICE = "memory_scope_device"
_FENCE = f"atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, {_DEVICE});"
_BY_RELEASE = {
    "RELEASE": "",
    "ACQUIRE": "",
    "ARRIVED": "its_load(words)",
    "ARRIVE": "its_arrive(words);",
    "FAILED": "its_load(words + 2)",
}
_BY_ATOMICS = {
    "RELEASE": _FENCE,
    "ACQUIRE": _FENCE,
    "ARRIVED": f"atomic_load_explicit({_ATOMIC}words, memory_order_acquire, {_DEVICE})",
    "ARRIVE": f"atomic_fetch_add_explicit({_ATOMIC}words, 1u, memory_order_release, {_DEVICE});",
    "FAILED": f"atomic_load_explicit({_ATOMIC}(words + 2), memory_order_relaxed, {_DEVICE})",
}


#: The work-group barrier, for launches of one group and for phases that run as separate launches.
GROUP_BARRIER = GridBarrier("group", wait=f"barrier({_BOTH});", meets=False)
#: The barriers for several groups, in order of preference.
GRID_BARRIERS = {
    barrier.name: barrier
    for barrier in (
        _grid_barrier("PTX release", _BY_RELEASE, _LOAD + _ARRIVE + _TEAMS, has_teams=True),
        _grid_barrier("atomics", _BY_ATOMICS, options=("-cl-std=CL3.0",)),
    )
}


def is_tried(context: Context) -> bool:
    """Return whether `usable_barrier` would return immediately; if not, start the trial in the background."""
    if __name__ in context.kept or tuning.load(_key_of(context)) is not None:
        return True
    trial = context.kept.get(_CHILD)
    if trial is None:
        trial = context.kept[_CHILD] = in_background(functools.partial(usable_barrier, context), "optdb-trial")
    return trial is not None and trial.done()


def usable_barrier(context: Context) -> GridBarrier | None:
    """Return a grid barrier that works on a device, according to the trial; None if no barrier works."""
    if __name__ not in context.kept:
        found = kept_findings(context)
        right = {name for name, finding in found.items() if finding.get("right") is True}
        context.kept[__name__] = next((GRID_BARRIERS[name] for name in GRID_BARRIERS if name in right), None)
    barrier: GridBarrier | None = context.kept[__name__]
    return barrier


def kept_findings(context: Context) -> dict[str, dict[str, Any]]:
    """Return the trial's finding for each barrier, from disk if possible."""
    key = _key_of(context)
    found = tuning.load(key)
    if found is None:
        found = try_barriers(context)
        if found:
            try:
                tuning.save(key, found)
            except OSError as error:
                binaries.current().warn_unwritable(error)
    return {name: finding for name, finding in found.items() if isinstance(finding, dict)}


def _key_of(context: Context) -> dict[str, Any]:
    return tuning.key_of(context.device, "grid barrier", "uint32", _VERSION)


def try_barriers(context: Context, until_right: bool = True) -> dict[str, dict[str, Any]]:
    """Try barriers in child processes, either all of them or until one works; return the findings.

    A barrier whose trial times out is treated as not working. If no process can be started, there are no findings.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in GRID_BARRIERS:
        try:
            child = subprocess.run(
                children.command(_CHILD, context.spec, name),
                env=children.environment(),
                capture_output=True,
                timeout=_TRIAL_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            found[name] = {"right": False, "reason": f"the trial did not finish in {_TRIAL_TIMEOUT_S:g} s"}
            continue
        except OSError as error:
            # Store nothing: the next process tries again.
            _logger.info("grid barriers are not tried, since no child process starts: %s", error)
            return {}
        found[name] = _finding(child)
        _logger.info("trial of grid barriers by %s on %s: %s", name, context.profile.name, found[name])
        if until_right and found[name].get("right") is True:
            break
    return found


def _finding(child: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    # A driver may also write to the child's standard output, even after the child's last line.
    with contextlib.suppress(ValueError, IndexError):
        finding = json.loads(child.stdout.decode(errors="replace").strip().split("\n")[-1])
        if isinstance(finding, dict):
            return finding
    last = child.stderr.decode(errors="replace").strip().split("\n")[-1]
    return {"right": False, "reason": f"the trial ended with status {child.returncode}: {last[:200]}"}
