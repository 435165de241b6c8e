"""Warnings about functions that gain little from a device, because host nodes take long or calls are very short."""

from __future__ import annotations

import atexit
import hashlib
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from optdb.callers import caller_level
from optdb.device.functions.function import TracedFunction
from optdb.device.functions.shared_values import Cell
from optdb.pytensor.host_groups import HostNodes, op_name

#: The number of untimed first calls, in which code is compiled.
_COMPILING_CALLS = 5
_TIMED_HOST_CALLS = 20
#: The share of a call's time that host nodes may take without a warning.
LARGE_SHARE = 0.2
_NAMED = 5


class HostNodesWarning(UserWarning):
    """Warns that nodes on the host take a large share of the time of a function's calls."""


class HostNote:
    """Times some calls to a function, and warns if nodes on the host take a large share of the time."""

    def __init__(self, function: TracedFunction, host: HostNodes) -> None:
        self._function = function
        self._host = host
        self._calls = 0
        self._total_s = self._host_s = 0.0

    def __call__(self, cells: Sequence[Cell]) -> list[Any]:
        if self._calls == _COMPILING_CALLS + _TIMED_HOST_CALLS or not self._host.reasons:
            return self._function.run(cells)
        self._calls += 1
        begin, host_before_s = time.perf_counter(), self._on_host_s()
        results = self._function.run(cells)
        if self._calls > _COMPILING_CALLS:
            self._total_s += time.perf_counter() - begin
            self._host_s += self._on_host_s() - host_before_s
        if self._calls == _COMPILING_CALLS + _TIMED_HOST_CALLS and self._host_s > LARGE_SHARE * self._total_s:
            self._warn(self._host_s / self._total_s)
        return results

    def _on_host_s(self) -> float:
        return sum(step.total_s for _, plan in self._function.traced_calls for step in plan.host_steps)

    def _warn(self, share: float) -> None:
        names = list(dict.fromkeys(map(op_name, self._host.reasons)))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        numba = "" if find_spec("numba") else " To compile them, install numba: pip install numba."
        warnings.warn(
            f"Nodes on the host take {share:.0%} of the time of a call of this function in mode OPENCL: "
            f"{', '.join(names[:_NAMED])}{more}. The cure: mode='OPENCL_AUTO' runs the function by PyTensor's "
            "default linker where that is faster; optdb.pytensor.explain(function) shows why they are not on the "
            f"device.{numba}",
            HostNodesWarning,
            stacklevel=caller_level(),
        )


#: The number of untimed first calls, after which small launches are merged.
_WARMUP_CALLS = 500
_TIMED_CALLS = 20
#: On any device, calls shorter than this many seconds mostly consist of Python code, launches and waiting.
SMALL_CALL_S = 8e-5


class TooSmallWarning(UserWarning):
    """Warns that PyTensor's default mode is likely to be faster, because calls are very short."""


def _mark() -> Path:
    """Return the path of a file that exists if any process of this program has issued the warning."""
    key = bytes(multiprocessing.current_process().authkey)
    return Path(tempfile.gettempdir(), f"optdb-too-small-{hashlib.sha256(key).hexdigest()[:32]}")


def _is_first() -> bool:
    """Record a warning; return whether it is the first in any process of this program."""
    try:
        _mark().touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@atexit.register
def _forget() -> None:
    if multiprocessing.parent_process() is None:
        _mark().unlink(missing_ok=True)


class SizeNote:
    """Times some calls to a function, and warns if they are short."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._calls = 0
        self._times_s: list[float] = []
        self.done = False

    def call(self, args: Any) -> Any:
        self._calls += 1
        if self._calls <= _WARMUP_CALLS:
            return self._function(args)
        start = time.perf_counter()
        result = self._function(args)
        self._times_s.append(time.perf_counter() - start)
        if len(self._times_s) == _TIMED_CALLS:
            self.done = True
            self._decide(median(self._times_s))
        return result

    def _decide(self, call_s: float) -> None:
        if call_s >= SMALL_CALL_S or not _is_first():
            return
        warnings.warn(
            f"A call of this function in mode OPENCL takes {call_s * 1e6:.0f} microseconds, most of them "
            "outside of kernels. A device pays off from about 20,000 elements on; for smaller models, omit "
            "mode='OPENCL' to use PyTensor's default mode.",
            TooSmallWarning,
            stacklevel=caller_level(),
        )
