"""Batches of prepared calls, which one call of C makes without Python's lock.

Python takes about a microsecond to go from one prepared call (``driver_calls``) to the next, and keeps its lock
meanwhile. A driver whose queue is full lets the caller wait: then no other thread could feed another device. So a list
of commands that is enqueued often becomes a `Batch`, and a script (``scripts``) is one.

The loop over the calls is C code. The first process that wants it compiles it in the background, and keeps the library
in optdb's folder in the user's cache; meanwhile, and where no C compiler is found, Python makes the calls.
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

from optdb import trace_log
from optdb.files import is_truncated, replace_file
from optdb.runtime.driver_calls import PreparedCall
from optdb.user_cache import cache_dir, warn_unwritable

__all__ = ["Batch", "CallRecord", "build_loop", "call_records", "loop_library"]

_logger = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_suffix(".c")
#: No contraction: devices that C serves get the same bits as those that Python serves.
_OPTIONS = ("-O2", "-shared", "-fPIC", "-ffp-contract=off")
_COMPILER_TIMEOUT_S = 60.0
#: The functions of records, in the order of ``enum kind`` in the C code.
_FUNCTIONS = (
    *("clEnqueueNDRangeKernel", "clEnqueueCopyBuffer", "clEnqueueFillBuffer"),
    *("clEnqueueWriteBuffer", "clEnqueueReadBuffer", "clEnqueueBarrierWithWaitList"),
    *("clWaitForEvents", "clFlush", "optdb_agree", "optdb_note_time", "optdb_all_reduce"),
)
_KINDS = {name: kind for kind, name in enumerate(_FUNCTIONS)}
#: It has the prototype of the barrier.
_KINDS["clEnqueueMarkerWithWaitList"] = _KINDS["clEnqueueBarrierWithWaitList"]
#: How many arguments a record holds, and what stands for those that a call does not have.
_WORDS = 9
_PADDING = (0,) * _WORDS
#: A record of no kind.
_NO_CALL = (len(_FUNCTIONS), 0, *_PADDING)


class CallRecord(ctypes.Structure):
    """A ``struct call`` of the C code."""

    _fields_ = (("kind", ctypes.c_uint64), ("function", ctypes.c_void_p), ("words", ctypes.c_uint64 * _WORDS))


_RECORD_NBYTES = ctypes.sizeof(CallRecord)


class Batch:
    """Work in order, most of it prepared calls: one call of C makes them, and Python does the rest.

    Parameters
    ----------
    calls : sequence of PreparedCall or None
        None is for work that C cannot do. The batch keeps the calls, and not what their handles name.
    fallbacks : sequence of callable
        For each call, what does the same work in Python: where there is no call, or where the call fails.
    """

    def __init__(self, calls: Sequence[PreparedCall | None], fallbacks: Sequence[Callable[[], object]]) -> None:
        self._kept: Sequence[Any] = calls
        self._fallbacks = fallbacks
        self.records = call_records(calls)
        #: How many calls C makes.
        self.calls = sum(call is not None for call in calls)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Return one batch that does the work of several."""
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
        """Whether C does all of the work."""
        return self.calls == len(self._fallbacks)

    def run(self) -> None:
        """Do the work; raise what a fallback raises."""
        library, done = loop_library(), 0
        while done < len(self._fallbacks):
            if library is not None:
                rest = ctypes.byref(self.records, done * _RECORD_NBYTES)
                done += library.optdb_call(rest, len(self._fallbacks) - done)
            if done < len(self._fallbacks):
                self._fallbacks[done]()
                done += 1


def call_records(calls: Sequence[PreparedCall | None]) -> ctypes.Array[CallRecord]:
    """Return the records of prepared calls, which are to be kept with them; that of None fails."""
    # A call of the function waits for this: one array is filled in a third of the time that single records take.
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


class _Loading:
    """The library, which is loaded, or else built in the background, when it is first asked for."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._building = threading.Lock()
        self._begun = False
        self.library: ctypes.CDLL | None = None

    def begin(self) -> None:
        """Load the library; if it is not there, let another thread compile it. Later calls do nothing."""
        with self._mutex:
            if self._begun:
                return
            self._begun = True
        try:
            self.library = _loaded(_path())
        except OSError:
            # No daemon: a program that ends at once waits for the compiler, which takes a tenth of a second.
            threading.Thread(target=self.build, name="optdb-batches").start()

    def build(self) -> None:
        """Compile the library, unless it is there, and load it."""
        compiler = os.environ.get("CC") or "cc"
        with self._building:
            try:
                self.library = _loaded(_path()) if _is_whole(_path()) else _build(compiler, _path())
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                details = getattr(error, "stderr", None) or ""
                _logger.info("Python enqueues all commands: %s compiles no loop: %s %s", compiler, error, details)


_loading = _Loading()


def loop_library() -> ctypes.CDLL | None:
    """Return the compiled loop over calls; None while it is being compiled, and where it cannot be."""
    if _loading.library is None:
        _loading.begin()
    return _loading.library


def build_loop() -> bool:
    """Wait for the compiled loop; return whether there is one."""
    if loop_library() is None:
        _loading.build()
    return _loading.library is not None


@functools.cache
def _path() -> Path:
    """Return where the library is kept: a name that says what it was compiled from, and for."""
    words = _SOURCE.read_bytes(), repr(_OPTIONS).encode(), sys.platform.encode(), platform.machine().encode()
    digest = hashlib.sha256(b"\0".join(words)).hexdigest()[:20]
    return cache_dir() / "loops" / f"{_SOURCE.stem}-{digest}.so"


def _is_whole(path: Path) -> bool:
    return path.is_file() and not is_truncated(path)


def _loaded(path: Path) -> ctypes.CDLL:
    if not _is_whole(path):
        raise FileNotFoundError(path)
    library = ctypes.CDLL(str(path))
    library.optdb_call.argtypes = ctypes.c_void_p, ctypes.c_size_t
    library.optdb_call.restype = ctypes.c_size_t
    library.optdb_agree.argtypes = ctypes.c_void_p, ctypes.c_uint64
    library.optdb_give_up.argtypes = library.optdb_all_reduce.argtypes = (ctypes.c_void_p,)
    return library


def _build(compiler: str, path: Path) -> ctypes.CDLL:
    """Compile the library and load it; other processes see it whole, or not at all."""
    with (
        tempfile.TemporaryDirectory(prefix="optdb-") as folder,
        trace_log.compiler_run("C compiler", lambda: "the loop over commands"),
    ):
        made = Path(folder, path.name)
        command = [*shlex.split(compiler), *_OPTIONS, str(_SOURCE), "-o", str(made)]
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_COMPILER_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
        try:
            replace_file(path, made.read_bytes())
        except OSError as error:
            warn_unwritable("the compiled loop", path.parent, error, "compiles it anew")
            return _loaded(made)  # it stays mapped when its file is removed
        return _loaded(path)
