"""Contexts: a context combines a device, its OpenCL context, its queue, and the dtypes that it supports.

A context has one in-order queue, so commands run in order without waiting for events.
"""

from __future__ import annotations

import atexit
import functools
import gc
import logging
import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.runtime import devices, library
from optdb.runtime.context_options import ContextOptions
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.errors import DeviceError
from optdb.runtime.grid_failures import forget_words
from optdb.runtime.library import check_process, cl
from optdb.runtime.records import DTYPES

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_DOUBLE = frozenset(["float64", "complex128"])

#: The default options.
_USUAL = ContextOptions()
#: Maps a queue's handle to its context; the queue may outlive the context.
_contexts: weakref.WeakValueDictionary[int, Context] = weakref.WeakValueDictionary()


class Context:
    """A device, its OpenCL context and its queue; `options` select among implementations.

    Raises DeviceError if no device matches `spec` (`optdb.runtime.devices`), or if the device's driver refuses to
    create another context.
    """

    def __init__(self, spec: str, options: ContextOptions = _USUAL, device: cl.Device | None = None) -> None:
        self.spec = spec
        self.device = device or devices.find(spec)
        #: The device's profile, which tests and exports replace before they compile kernels.
        self.profile = profile_of(self.device)
        #: The options may be replaced between calls, but compiled functions keep the kernels and batches that were made
        #: with the earlier options.
        self.options = options
        self._pid = os.getpid()
        try:
            self._cl_context, self._queue = _made(self.device)
        except cl.Error as error:
            raise DeviceError(
                f"{self.device.name.strip()} accepts no further process: {error}. The cure: end other processes that "
                "use it, or choose another device from the list of `python -m optdb devices`"
            ) from error
        #: State that other modules keep for the context's lifetime, keyed by module name.
        self.kept: dict[str, Any] = {}
        #: The lock that a thread holds while it calls a function on the device.
        self.turn = Turn(self)
        _contexts[self._queue.int_ptr] = self
        # Finish the queue when the context is garbage collected; `_finish_all` finishes the remaining queues at exit.
        end = weakref.finalize(self, _finish, self._pid, self._queue, self.profile.name)
        end.atexit = False  # type: ignore[misc]  # a property that can be set

    @functools.cached_property
    def in_caller(self) -> Context | None:
        """The context that runs small functions in the calling thread; None if the driver has no device that does this.

        The returned context has its own memory and queue, but shares the lock (`turn`) with this context.
        """
        # A context whose profile was replaced represents a different device.
        is_plain = self.profile is profile_of(self.device)
        device = devices.in_caller(self.device) if is_plain else None
        if device is None:
            return None
        context = Context(self.spec, self.options, device)
        context.turn = self.turn
        return context

    @property
    def cl_context(self) -> cl.Context:
        self.check_process()
        return self._cl_context

    @property
    def queue(self) -> cl.CommandQueue:
        """The in-order queue."""
        self.check_process()
        return self._queue

    def check_process(self) -> None:
        """Raise ForkedContext in a fork of the context's process, because a fork lacks the driver's threads."""
        if os.getpid() != self._pid:
            check_process()

    def unsupported_reason(self, dtype: DTypeLike) -> str | None:
        """Return why the device does not support arrays of a dtype; None if it does."""
        # Use a name as it is: finding a dtype's name is slow, and this function is called for each array in each graph.
        name = dtype if isinstance(dtype, str) and dtype in DTYPES else np.dtype(dtype).name
        if name not in DTYPES:
            return f"OpenCL has no type {name}"
        if name in _DOUBLE and not self.profile.float64:
            return f"{self.profile.name} has no double precision"
        if name.endswith("int64") and not self.profile.int64:
            return f"{self.profile.name} has no 64-bit integers"
        return None

    def __repr__(self) -> str:
        return f"Context({self.spec!r}: {self.profile.name})"


class Turn:
    """Returns the lock that a thread holds while it calls functions on a device.

    A thread acquires the lock before it sets inputs, and releases the lock after it has read outputs. There is one lock
    per device, because functions with their own locks could deadlock when they call each other through the host. The
    lock is reentrant. The lock's methods are written in C, because an interrupt in a Python ``__enter__`` or
    ``__exit__`` could leave the lock held.
    """

    def __init__(self, context: Context) -> None:
        # Do not refer to the context: a reference cycle would delay the release of its memory.
        self._pid = context._pid
        self._lock = threading.RLock()

    def __call__(self) -> AbstractContextManager[object]:
        """Return the lock for a ``with`` statement; raise ForkedContext in a child of the context's process."""
        # In a forked child, the lock may be held by a thread that does not exist there.
        if library.is_fork and os.getpid() != self._pid:
            check_process()
        return self._lock


def context_of_queue(queue: cl.CommandQueue) -> Context | None:
    """Return the context that owns a queue; None if there is none."""
    return _contexts.get(queue.int_ptr)


def options_of(queue: cl.CommandQueue) -> ContextOptions:
    """Return the options of a queue's context; the defaults for a queue without a context."""
    context = context_of_queue(queue)
    return _USUAL if context is None else context.options


def _made(device: cl.Device) -> tuple[cl.Context, cl.CommandQueue]:
    try:
        context = cl.Context([device])
    except cl.Error:
        gc.collect()
        context = cl.Context([device])
    return context, cl.CommandQueue(context, device)


@atexit.register
def _finish_all() -> None:
    """Wait for queued commands at exit, because PoCL's threads would otherwise crash when LLVM shuts down."""
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
