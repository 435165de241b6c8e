"""Runs repeated calls of a function as one call, and makes calls that return before the device is done."""

from __future__ import annotations

import functools
from typing import Any

from optdb.device.futures import Future
from optdb.device.progress import calls_in_chunks, checked_times, in_chunks, shows_progress
from optdb.pytensor.compiled import device_function
from optdb.pytensor.linker import DeviceThunk
from optdb.pytensor.shared_variables import let_hosts_fetch
from optdb.runtime.timing import CommandRange

__all__ = ["call_n_times", "run_async"]


def call_n_times(f: Any, times: int, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function several times with the same arguments, and return the results of the last call.

    The arguments are copied to the device once, and only the outputs of the last call are copied back. If no node needs
    the host, a step consists of its device commands alone. Ctrl-C stops the run after a whole step. A long run shows a
    progress bar on standard error, if that is a terminal.

    Parameters
    ----------
    f : pytensor.compile.executor.Function
        A function compiled in mode OPENCL.
    times : int
        The number of calls, 1 or more.
    *args, **kwargs : array_like
        The arguments of each call.

    Returns
    -------
    ndarray, list or None
        The results of the last call.

    Raises
    ------
    ValueError
        If `times` is not positive.
    TypeError
        If `f` was compiled in another mode, or if the arguments are not valid for a call of `f` in PyTensor.
    """
    compiled = device_function(f)
    times = checked_times(times)
    with_bar = shows_progress(None)
    if any(given.update is not None and not given.implicit for given in f.maker.inputs):
        # Each call reads the value that was passed, and stores the next value in the input.
        return calls_in_chunks(functools.partial(f, *args, **kwargs), times, with_bar)

    def repeat(cells: Any) -> Any:
        return in_chunks(functools.partial(compiled.call_n_times, cells), times, with_bar)

    return _called_by(f.vm, repeat, f, args, kwargs)


def run_async(f: Any, /, *args: Any, **kwargs: Any) -> Future:
    """Begin a call, and return before the device is done with it, unless nodes need the host.

    Later calls run after this call, and see its updates. The caller may change the arguments immediately.

    Parameters
    ----------
    f : pytensor.compile.executor.Function
        A function compiled in mode OPENCL.
    *args, **kwargs : array_like
        The arguments, as for a call.

    Returns
    -------
    Future
        ``wait()`` returns the results. Results on the host have no values before that.

    Raises
    ------
    TypeError
        If `f` was compiled in another mode, or if the arguments are not valid for a call of `f` in PyTensor.
    """
    compiled = device_function(f)
    let_hosts_fetch()
    events: list[Any] = []

    def begin(cells: Any) -> Any:
        outputs, pending = compiled.begin(cells)
        events.extend(pending)
        return outputs

    with compiled.function.context.turn():
        span = CommandRange(compiled.function.context)
        returned = _called_by(f.vm, begin, f, args, kwargs)
        span.stop()
    return Future(returned, span, events)


def _called_by(thunk: DeviceThunk, run: Any, f: Any, args: Any, kwargs: Any) -> Any:
    """Call a function so that its thunk runs `run` instead of the thunk's usual function."""
    usual, thunk.run = thunk.run, run
    try:
        return f(*args, **kwargs)
    finally:
        thunk.run = usual
