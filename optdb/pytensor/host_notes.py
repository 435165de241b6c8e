"""Warns, once per function, if host nodes take a large share of its calls."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from optdb.callers import caller_level
from optdb.device.functions.function import TracedFunction
from optdb.device.functions.shared_values import Cell
from optdb.pytensor.host_groups import HostNodes, op_name

__all__ = ["HostNodesWarning", "HostNote"]

#: Untimed calls, which compile.
_WARMUP_CALLS = 5
_TIMED_CALLS = 20
#: A warning is due if host nodes take a larger share of a call.
LARGE_SHARE = 0.2
#: The maximum number of nodes that a warning names.
_NAMED = 5


class HostNodesWarning(UserWarning):
    """Nodes that run on the host take a large share of a function's calls."""


class HostNote:
    """Calls a function, times some calls, and warns if nodes on the host take a large share.

    Parameters
    ----------
    function : TracedFunction
        Computes a call.
    host : HostNodes
        The function's nodes that run on the host.
    """

    def __init__(self, function: TracedFunction, host: HostNodes) -> None:
        self._function = function
        self._host = host
        self._calls = 0
        self._total_s = self._host_s = 0.0

    def __call__(self, cells: Sequence[Cell]) -> list[Any]:
        """Return the results of a call."""
        if self._calls == _WARMUP_CALLS + _TIMED_CALLS or not self._host.reasons:
            return self._function.run(cells)
        self._calls += 1
        begin, host_before_s = time.perf_counter(), self._on_host_s()
        results = self._function.run(cells)
        if self._calls > _WARMUP_CALLS:
            self._total_s += time.perf_counter() - begin
            self._host_s += self._on_host_s() - host_before_s
        if self._calls == _WARMUP_CALLS + _TIMED_CALLS and self._host_s > LARGE_SHARE * self._total_s:
            self._warn(self._host_s / self._total_s)
        return results

    def _on_host_s(self) -> float:
        return sum(step.total_s for _, plan in self._function.traced_calls for step in plan.host_steps)

    def _warn(self, share: float) -> None:
        names = list(dict.fromkeys(map(op_name, self._host.reasons)))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        numba = "" if find_spec("numba") else " Where numba is installed, it compiles them: pip install numba."
        warnings.warn(
            f"Nodes that run on the host take {share:.0%} of a call of this function in mode OPENCL: "
            f"{', '.join(names[:_NAMED])}{more}. The cure: mode='OPENCL_AUTO' runs the function by PyTensor's default "
            f"linker where that is faster; optdb.pytensor.explain(function) says why the device does not run them."
            f"{numba}",
            HostNodesWarning,
            stacklevel=caller_level(),
        )
