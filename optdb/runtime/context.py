"""A device that is ready for use: its OpenCL context, its queue, and the dtypes that it supports.

All commands of a context go through one in-order queue, so that a command that reads an
array need not wait explicitly for the command that fills it.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.runtime import devices
from optdb.runtime.context_options import ContextOptions
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.errors import DeviceError, ForkedContext
from optdb.runtime.grid_failures import forget_words
from optdb.runtime.library import check_process, cl

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Context", "ForkedContext", "Turn", "options_of"]

_DTYPES = frozenset(["bool", "float16", "float32", "float64", "complex64", "complex128"]) | frozenset(
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
)
_DOUBLE = frozenset(["float64", "complex128"])

#: The default options.
_USUAL = ContextOptions()
#: The contexts in use, by the handle of the queue, which outlives its context.
_contexts: weakref.WeakValueDictionary[int, Context] = weakref.WeakValueDictionary()


class Context:
    """A device, its OpenCL context and its queue.

    Parameters
    ----------
    spec : str
        The device; see `optdb.runtime.devices`.
    options : ContextOptions
        The choice among kernels that compute the same, and the thresholds for batches of commands.

    Raises
    ------
    DeviceError
        If there is no such device, or its driver refuses another context, for example if many processes have one.
    """

    def __init__(self, spec: str, options: ContextOptions = _USUAL) -> None:
        self.spec = spec
        self.device = devices.find(spec)
        #: The device's capabilities, and the kernels that suit it. Tests and exports replace the profile
        #: (`DeviceProfile.as_kind`) before anything is compiled for the context.
        self.profile = profile_of(self.device)
        #: Options may be replaced as a whole, between calls. Compiled functions and recorded calls keep the kernels and
        #: batches of earlier options.
        self.options = options
        self._pid = os.getpid()
        try:
            self._cl_context, self._queue = _made(self.device)
        except cl.Error as error:
            raise DeviceError(
                f"{self.device.name.strip()} accepts no further process: {error}. The cure: end other processes that "
                "use it, or choose another device from the list of `python -m optdb devices`"
            ) from error
        #: State that other modules keep for the lifetime of the context, by module name.
        self.kept: dict[str, Any] = {}
        #: Held by the thread that calls a function on the device.
        self.turn = Turn(self)
        _contexts[self._queue.int_ptr] = self
        # For a context that is collected before the program ends; see `_finish_all`.
        end = weakref.finalize(self, _finish, self._pid, self._queue, self.profile.name)
        end.atexit = False  # type: ignore[misc]  # a property that can be set

    @property
    def cl_context(self) -> cl.Context:
        """The OpenCL context."""
        self.check_process()
        return self._cl_context

    @property
    def queue(self) -> cl.CommandQueue:
        """The in-order queue."""
        self.check_process()
        return self._queue

    def check_process(self) -> None:
        """Raise ForkedContext in a fork of the process that made the context: the driver's threads do not exist."""
        _check_process(self._pid)

    def unsupported_reason(self, dtype: DTypeLike) -> str | None:
        """Return why arrays of a dtype are not supported; None if they are."""
        # Names need no conversion, which takes time: this is called for each array of each graph.
        name = dtype if isinstance(dtype, str) and dtype in _DTYPES else np.dtype(dtype).name
        if name not in _DTYPES:
            return f"OpenCL has no type {name}"
        if name in _DOUBLE and not self.profile.float64:
            return f"{self.profile.name} has no double precision"
        if name.endswith("int64") and not self.profile.int64:
            return f"{self.profile.name} has no 64-bit integers"
        return None

    def __repr__(self) -> str:
        return f"Context({self.spec!r}: {self.profile.name})"


class Turn:
    """Returns a lock: while a thread holds it, no other thread calls functions on a device.

    A function keeps its arguments, results and intermediate values in its own storage, and functions on one device
    share arrays. So a thread holds the lock for a whole call, from before inputs are set until outputs are read. All
    functions of mode OPENCL on a device share one lock: with a lock per function, two functions that call each other
    through the host could deadlock. The lock is reentrant: a function may call itself in the same thread.

    The lock's methods are C code: an interrupt in a Python ``__enter__`` or ``__exit__`` would leave it locked.
    """

    def __init__(self, context: Context) -> None:
        # No reference to the context: without a cycle, its memory is freed with the last reference.
        self._pid = context._pid
        self._lock = threading.RLock()

    def __call__(self) -> AbstractContextManager[object]:
        """Return the lock, for a ``with`` statement; raise ForkedContext in a child of the context's process."""
        # In a forked child, a thread that no longer exists may hold the lock.
        _check_process(self._pid)
        return self._lock


def options_of(queue: cl.CommandQueue) -> ContextOptions:
    """Return the options of the context of a queue; the defaults if no context has the queue."""
    context = _contexts.get(queue.int_ptr)
    return _USUAL if context is None else context.options


def _made(device: cl.Device) -> tuple[cl.Context, cl.CommandQueue]:
    """Return a context and its queue; if the driver refuses, collect garbage and try again."""
    try:
        context = cl.Context([device])
    except cl.Error:
        gc.collect()
        context = cl.Context([device])
    return context, cl.CommandQueue(context, device)


def _check_process(pid: int) -> None:
    if os.getpid() != pid:
        check_process()


@atexit.register
def _finish_all() -> None:
    """Wait for the commands that are still in queues when the program ends.

    A program may end without waiting for its last updates. PoCL's threads may then still be compiling kernels, and
    crash when the process shuts LLVM down.
    """
    for context in list(_contexts.values()):
        _finish(context._pid, context._queue, context.profile.name)


def _finish(pid: int, queue: cl.CommandQueue, name: str) -> None:
    if os.getpid() != pid:
        return
    try:
        queue.finish()
        forget_words(queue)
    except cl.Error as error:
        logging.getLogger(__name__).error("the last commands on %s failed: %s", name, error)
