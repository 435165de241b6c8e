"""Reports how much of a function runs in C, and waits for its C code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from theano.scan_module.scan_op import Scan

from optdb.host.api.scans import inner_function
from optdb.host.theano.clinker.progress import progress
from optdb.host.theano.clinker.tiers.background import background
from optdb.host.theano.clinker.tiers.machines import exchange_of
from optdb.host.theano.clinker.tiers.thunks import ChangingThunk


@dataclass(frozen=True)
class Tier:
    """How much of a function runs in C, including the inner functions of its Scans.

    Parameters
    ----------
    in_c : int
        Number of nodes that run in C.
    in_python : int
        The number of nodes that run in Python, because their C code is not built yet or because they have no C code.
    modules_left : int
        The number of modules that are not built yet.
    modules_failed : int
        Number of modules that could not be built; their nodes run in Python.
    done : bool
        Whether the function uses all C code that could be built for it.
    """

    in_c: int
    in_python: int
    modules_left: int
    modules_failed: int
    done: bool

    def __str__(self) -> str:
        failed = f", {self.modules_failed} not built" if self.modules_failed else ""
        left = "" if self.done else f", {self.modules_left} modules to build"
        return f"{self.in_c} nodes in C, {self.in_python} in Python{left}{failed}"


def tier(function: Any) -> Tier:
    """Return how much of a function runs in C.

    Parameters
    ----------
    function : theano.compile.function_module.Function
        The function.

    Returns
    -------
    Tier
        Counts of nodes and modules.

    Raises
    ------
    TypeError
        If `function` is not a Theano function.
    """
    machines = list(_machines(function))
    thunks = [thunk for machine in machines for thunk in getattr(machine, "thunks", ())]
    changing = [thunk for thunk in thunks if isinstance(thunk, ChangingThunk)]
    in_c = sum(_is_in_c(thunk) for thunk in thunks)
    pending = {thunk.job for thunk in changing if thunk.is_pending}
    failed = {getattr(thunk, "failed_module", None) for thunk in thunks} - {None}
    left = sum(not job.is_over for job in pending)
    return Tier(in_c, len(thunks) - in_c, left, len(failed), not pending)


def wait(function: Any, timeout: float | None = None) -> Tier:
    """Wait until a function uses its C code, and show progress as compilation does.

    Parameters
    ----------
    function : theano.compile.function_module.Function
        The function.
    timeout : float, optional
        The maximum time to wait, in seconds.

    Returns
    -------
    Tier
        The result of `tier`.

    Raises
    ------
    TimeoutError
        If the C code is not built in time. The function continues in Python, and switches to C later.
    TypeError
        If `function` is not a Theano function.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    pending = [thunk for thunk in _pending(function) if thunk.is_pending]
    jobs = list({thunk.job.name: thunk.job for thunk in pending}.values())
    if jobs:
        with progress.phase("compiling"):
            is_over = background.wait(jobs, deadline, lambda done: progress.count(done, len(jobs)))
        if not is_over:
            left = sum(not job.is_over for job in jobs)
            raise TimeoutError(
                f"optdb.wait: {left} of {len(jobs)} modules are not built after {timeout} s. The function computes "
                "in Python until they are.\n"
                "The cure: call optdb.wait with a longer timeout, or without one"
            )
    # Switch the machines of outer functions first, because the machines of inner functions are found through them.
    for machine in list(_machines(function)):
        _change_over(machine)
    return tier(function)


def _change_over(machine: Any) -> None:
    exchange = exchange_of(machine)
    if exchange is not None:
        with machine.turn():
            exchange.change_over_between_calls()
        return
    # If the function runs on a device, the machine has its own ``turn``, which is None if no arrays are on the device.
    with (getattr(machine, "turn", None) or nullcontext)():
        for thunk in getattr(machine, "thunks", ()):
            if isinstance(thunk, ChangingThunk):
                thunk.change_over()


def _pending(function: Any) -> list[ChangingThunk]:
    thunks = (thunk for machine in _machines(function) for thunk in getattr(machine, "thunks", ()))
    return [thunk for thunk in thunks if isinstance(thunk, ChangingThunk)]


def _machines(function: Any) -> Iterator[Any]:
    if not hasattr(function, "fn") or not hasattr(function, "maker"):
        raise TypeError(f"expected a function compiled by theano.function, not {type(function).__name__}")
    yield function.fn
    for node in function.maker.fgraph.apply_nodes:
        if isinstance(node.op, Scan):
            inner = getattr(node.op, "fn", None) or _inner(node)
            if inner is not None:
                yield from _machines(inner)


def _inner(node: Any) -> Any:
    try:
        return inner_function(node)
    except AttributeError:
        return None  # the Scan has no thunk yet


def _is_in_c(thunk: Any) -> bool:
    perform = getattr(thunk, "perform", None)
    is_scan_loop = perform is not None and getattr(perform, "__qualname__", "").startswith("Scan.make_thunk.")
    return hasattr(thunk, "cthunk") or is_scan_loop
