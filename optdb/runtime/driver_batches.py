"""Calls to the OpenCL library without events, and batches of such calls that C code makes without the GIL.

PyOpenCL creates an event for each command and converts the command's arguments each time. A bound command converts its
arguments once: it prepares a call, which is a library function with the converted arguments. The call returns OpenCL's
status. If the status is not 0, PyOpenCL enqueues the command again. A prepared call contains the handles of objects,
but does not keep the objects alive. If a driver's queue is full, a call blocks; a call that held the GIL would keep
other threads from feeding other devices. The first process compiles the C code into the user's cache, which takes a
tenth of a second.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optdb import trace_log
from optdb.files import is_truncated, replace_file
from optdb.numpy_types import HostArray
from optdb.runtime.library import cl
from optdb.user_cache import cache_dir, warn_unwritable

_logger = logging.getLogger(__name__)


class PreparedCall(functools.partial[int]):
    """A library function with its arguments; the call enqueues a command and returns OpenCL's status."""


_Handle, _Size, _Count = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
_NOT_BLOCKING = _Count(0)
#: The trailing arguments that make an OpenCL function wait for no events and return no event.
_NO_EVENTS = (_Count(0), None, None)


class DriverCalls:
    """Prepares calls to the OpenCL library; raises AttributeError or OSError if the library cannot be called."""

    def __init__(self) -> None:
        loader = icd_loader()
        self._launch = loader.clEnqueueNDRangeKernel
        self._copy = loader.clEnqueueCopyBuffer
        self._fill = loader.clEnqueueFillBuffer
        self._read, self._write = loader.clEnqueueReadBuffer, loader.clEnqueueWriteBuffer
        self._flush, self._mark = loader.clFlush, loader.clEnqueueMarkerWithWaitList

    def launch(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, global_size: Sequence[int], local_size: Sequence[int] | None
    ) -> PreparedCall:
        """Prepare the launch of a kernel whose arguments are set before each call."""
        sizes = _Size * len(global_size)
        group = None if local_size is None else sizes(*local_size)
        args = _handle(kernel), _Count(len(global_size)), None, sizes(*global_size), group
        return PreparedCall(self._launch, _handle(queue), *args, *_NO_EVENTS)

    def copy(
        self,
        queue: cl.CommandQueue,
        target: cl.MemoryObject,
        target_offset: int,
        source: cl.MemoryObject,
        source_offset: int,
        nbytes: int,
    ) -> PreparedCall:
        """Prepare a copy between buffers."""
        sizes = _Size(source_offset), _Size(target_offset), _Size(nbytes)
        return PreparedCall(self._copy, _handle(queue), _handle(source), _handle(target), *sizes, *_NO_EVENTS)

    def fill(
        self, queue: cl.CommandQueue, target: cl.MemoryObject, offset: int, nbytes: int, pattern: Any
    ) -> PreparedCall:
        """Prepare a call that fills a buffer with a NumPy value."""
        value = np.asarray(pattern).tobytes()
        content = ctypes.create_string_buffer(value, len(value))
        sizes = _Size(len(value)), _Size(offset), _Size(nbytes)
        return PreparedCall(self._fill, _handle(queue), _handle(target), content, *sizes, *_NO_EVENTS)

    def fetch(
        self,
        queue: cl.CommandQueue,
        source: cl.MemoryObject,
        offset: int,
        out: HostArray,
        event: int,
        after: int | None = None,
    ) -> PreparedCall:
        """Prepare a non-blocking copy to a host array; the copy waits for the event whose handle is at address `after`.

        The call writes its event's handle to the address `event`; the owner of that memory releases the event.
        """
        args = _NOT_BLOCKING, _Size(offset), _Size(out.nbytes), _Handle(out.ctypes.data)
        waits = _Count(after is not None), _Handle(after)
        return PreparedCall(self._read, _handle(queue), _handle(source), *args, *waits, _Handle(event))

    def mark(self, queue: cl.CommandQueue, event: int) -> PreparedCall:
        """Prepare a marker after a queue's commands; the call writes the marker event's handle to address `event`."""
        return PreparedCall(self._mark, _handle(queue), _Count(0), None, _Handle(event))

    def flush(self, queue: cl.CommandQueue) -> PreparedCall:
        """Prepare a flush of a queue."""
        return PreparedCall(self._flush, _handle(queue))

    def write(self, queue: cl.CommandQueue, target: cl.MemoryObject, offset: int, value: HostArray) -> PreparedCall:
        """Prepare a non-blocking copy of a host array into a buffer."""
        args = _handle(target), _NOT_BLOCKING, _Size(offset), _Size(value.nbytes), _Handle(value.ctypes.data)
        return PreparedCall(self._write, _handle(queue), *args, *_NO_EVENTS)


@functools.cache
def driver_calls() -> DriverCalls | None:
    """Return the calls to the OpenCL library; None if the library cannot be called."""
    try:
        return DriverCalls()
    except (AttributeError, OSError) as error:  # for example on Windows, where PyOpenCL exports no OpenCL functions
        _logger.info(
            "commands are enqueued by PyOpenCL, which is slower, since its library cannot be called: %s", error
        )
        return None


@functools.cache
def icd_loader() -> ctypes.PyDLL:
    """Return the OpenCL library that PyOpenCL is linked to.

    As in PyOpenCL, a call keeps the GIL, because reacquiring it takes as long as the call.
    """
    return ctypes.PyDLL(cl._cl.__file__)


def _handle(value: Any) -> ctypes.c_void_p:
    return _Handle(value.int_ptr)


_SOURCE = Path(__file__).with_suffix(".c")
#: The compiler options; without floating-point contraction, C and Python compute the same bits.
_OPTIONS = ("-O2", "-shared", "-fPIC", "-ffp-contract=off")
_COMPILER_TIMEOUT_S = 10.0
#: The functions that a record can call, in the order of ``enum kind`` in the C code.
_FUNCTIONS = (
    *("clEnqueueNDRangeKernel", "clEnqueueCopyBuffer", "clEnqueueFillBuffer"),
    *("clEnqueueWriteBuffer", "clEnqueueReadBuffer", "clEnqueueBarrierWithWaitList"),
    *("clWaitForEvents", "clFlush", "optdb_agree", "optdb_note_time", "optdb_all_reduce"),
)
_KINDS = {name: kind for kind, name in enumerate(_FUNCTIONS)}
#: C code calls the marker function like the barrier function, because both have the same prototype.
_KINDS["clEnqueueMarkerWithWaitList"] = _KINDS["clEnqueueBarrierWithWaitList"]
#: The prepared functions that enqueue a command and return immediately, unless the queue is full.
_ENQUEUE = frozenset(_FUNCTIONS[:5])
#: The number of arguments in a record, and the padding for missing arguments.
_WORDS = 9
_PADDING = (0,) * _WORDS
#: A record that makes no call.
_NO_CALL = (len(_FUNCTIONS), 0, *_PADDING)


class CallRecord(ctypes.Structure):
    """The C struct ``call``."""

    _fields_ = (("kind", ctypes.c_uint64), ("function", ctypes.c_void_p), ("words", ctypes.c_uint64 * _WORDS))


_RECORD_NBYTES = ctypes.sizeof(CallRecord)


class Batch:
    """A sequence of calls: C code makes the prepared calls, and Python calls the fallbacks of the remaining calls.

    The batch keeps the `calls` alive, but not the objects whose handles they contain. Each call has a fallback in
    Python, which runs if the call fails or is None.
    """

    def __init__(self, calls: Sequence[PreparedCall | None], fallbacks: Sequence[Callable[[], object]]) -> None:
        self._kept: Sequence[Any] = calls
        self._fallbacks = fallbacks
        self.records = call_records(calls)
        #: The number of calls that C code makes.
        self.calls = sum(call is not None for call in calls)
        #: Whether C code makes all calls, and all calls only enqueue commands, so that no call waits for another
        #: thread.
        self.only_enqueues = all(call is not None and call.func.__name__ in _ENQUEUE for call in calls)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Return a batch that makes the calls of several batches in sequence."""
        whole = cls((), [fallback for batch in batches for fallback in batch._fallbacks])
        whole._kept = batches
        whole.calls = sum(batch.calls for batch in batches)
        whole.records = (CallRecord * len(whole._fallbacks))()
        address = ctypes.addressof(whole.records)
        for batch in batches:
            ctypes.memmove(address, batch.records, ctypes.sizeof(batch.records))
            address += ctypes.sizeof(batch.records)
        return whole

    @property
    def is_native(self) -> bool:
        """Whether C code makes all calls."""
        return self.calls == len(self._fallbacks)

    def run(self, done: int = 0) -> None:
        """Make all calls except the first `done` calls; propagate errors that fallbacks raise."""
        library = loop_library()
        while done < len(self._fallbacks):
            if library is not None:
                rest = ctypes.byref(self.records, done * _RECORD_NBYTES)
                done += library.optdb_call(rest, len(self._fallbacks) - done)
            if done < len(self._fallbacks):
                self._fallbacks[done]()
                done += 1

    def run_with_gil(self) -> None:
        """Run a short batch that only enqueues commands; releasing the GIL for it would take as long as the calls."""
        done = self._call_with_gil()
        if done < self.calls:
            self._fallbacks[done]()
            self.run(done + 1)

    @functools.cached_property
    def _call_with_gil(self) -> Callable[[], int]:
        function = _loop_with_gil().optdb_call
        function.restype = ctypes.c_size_t
        return functools.partial(function, _Handle(ctypes.addressof(self.records)), _Size(len(self._fallbacks)))


def call_records(calls: Sequence[PreparedCall | None]) -> ctypes.Array[CallRecord]:
    """Return a record for each call; None becomes a record that always fails. The caller must keep the calls alive."""
    # Filling one array takes a third of the time of creating the records one by one.
    words: list[int] = []
    functions: dict[int, tuple[int, int]] = {}
    for call in calls:
        if call is None:
            words += _NO_CALL
            continue
        function: Any = call.func
        if id(function) not in functions:
            functions[id(function)] = _KINDS[function.__name__], ctypes.cast(function, ctypes.c_void_p).value or 0
        words += functions[id(function)]
        words += map(_word, call.args)
        words += _PADDING[len(call.args) :]
    return (CallRecord * len(calls)).from_buffer(array("Q", words))


def _word(arg: Any) -> int:
    if arg is None:
        return 0
    return ctypes.addressof(arg) if isinstance(arg, ctypes.Array) else arg.value or 0


_loading = threading.Lock()


@functools.cache
def loop_library() -> ctypes.CDLL | None:
    """Return the library with the loop over calls, compiled on first use; None if it cannot be compiled."""
    compiler = os.environ.get("CC") or "cc"
    with _loading:
        try:
            return _loaded(_path()) if _is_whole(_path()) else _build(compiler, _path())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            details = getattr(error, "stderr", None) or ""
            _logger.info(
                "commands are enqueued by Python, which is slower, since %s could not compile the "
                "native command loop: %s %s",
                compiler,
                error,
                details,
            )
            return None


@functools.cache
def _loop_with_gil() -> ctypes.PyDLL:
    """Return the compiled library with the loop over calls, loaded for calls that keep the GIL."""
    library = loop_library()
    assert library is not None, "the caller has checked it"
    return ctypes.PyDLL(library._name, handle=library._handle)


@functools.cache
def _path() -> Path:
    words = _SOURCE.read_bytes(), repr(_OPTIONS).encode(), sys.platform.encode(), platform.machine().encode()
    digest = hashlib.sha256(b"\0".join(words)).hexdigest()[:20]
    return cache_dir() / "loops" / f"{_SOURCE.stem}-{digest}.so"


def _is_whole(path: Path) -> bool:
    return path.is_file() and not is_truncated(path)


def _loaded(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.optdb_call.argtypes = ctypes.c_void_p, ctypes.c_size_t
    library.optdb_call.restype = ctypes.c_size_t
    library.optdb_agree.argtypes = ctypes.c_void_p, ctypes.c_uint64
    library.optdb_give_up.argtypes = library.optdb_all_reduce.argtypes = (ctypes.c_void_p,)
    return library


def _build(compiler: str, path: Path) -> ctypes.CDLL:
    """Compile and load the library; other processes never see an incomplete file."""
    with (
        tempfile.TemporaryDirectory(prefix="optdb-") as folder,
        trace_log.compiler_run("C compiler", lambda: "the native command loop"),
    ):
        made = Path(folder, path.name)
        command = [*shlex.split(compiler), *_OPTIONS, str(_SOURCE), "-o", str(made)]
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_COMPILER_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
        try:
            replace_file(path, made.read_bytes())
        except OSError as error:
            warn_unwritable("the compiled loop", path.parent, error, "compiles it again")
            return _loaded(made)  # the library stays mapped when its file is removed
        return _loaded(path)
