"""Batches of prepared calls, which one call of C makes without Python's lock.

Python takes about a microsecond to go from one prepared call (``driver_calls``) to the next, and keeps its lock
meanwhile. A driver whose queue is full lets the caller wait: then no other thread could feed another device. So a list
of commands that is enqueued often becomes a `Batch`.

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

__all__ = [
    "Batch",
    "CallRecord",
    "build_loop",
    "call_all",
    "call_records",
    "loop_library",
]

_logger = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_suffix(".c")
_OPTIONS = ("-O2", "-shared", "-fPIC")
_COMPILER_TIMEOUT_S = 60.0
#: The functions of records, in the order of ``enum kind`` in the C code.
_FUNCTIONS = (
    *("clEnqueueNDRangeKernel", "clEnqueueCopyBuffer", "clEnqueueFillBuffer"),
    *("clEnqueueWriteBuffer", "clEnqueueReadBuffer", "clEnqueueBarrierWithWaitList"),
    *("clWaitForEvents", "clFlush", "optdb_agree", "optdb_note_time"),
)
_KINDS = {name: kind for kind, name in enumerate(_FUNCTIONS)}
#: How many arguments a record holds, and what stands for those that a call does not have.
_WORDS = 9
_PADDING = (0,) * _WORDS


class CallRecord(ctypes.Structure):
    """A ``struct call`` of the C code."""

    _fields_ = (("kind", ctypes.c_uint64), ("function", ctypes.c_void_p), ("words", ctypes.c_uint64 * _WORDS))

    @classmethod
    def of(cls, function: Any, *args: Any) -> CallRecord:
        """Return the record of a call.

        Parameters
        ----------
        function : ctypes function
            One of the OpenCL library or of the loop's. It returns a status, 0 if it has done its work.
        *args
            At most nine numbers and pointers of ctypes, arrays of ctypes, whose addresses are passed, or None. The
            record keeps none of them.
        """
        words = (ctypes.c_uint64 * _WORDS)(*map(_word, args))
        return cls(*_function_words(function), words)


def _function_words(function: Any) -> tuple[int, int]:
    """Return the kind of a function, and its address."""
    return _KINDS[function.__name__], ctypes.cast(function, ctypes.c_void_p).value or 0


def _word(arg: Any) -> int:
    if arg is None:
        return 0
    return ctypes.addressof(arg) if isinstance(arg, ctypes.Array) else arg.value or 0


class Batch:
    """Prepared calls that are made together.

    Parameters
    ----------
    calls : sequence of PreparedCall
        In the order of the queue. The batch keeps them; what their handles name is kept by their commands.
    library : ctypes.CDLL
        As `loop_library` returns it.
    """

    def __init__(self, calls: Sequence[PreparedCall], library: ctypes.CDLL) -> None:
        self._calls = list(calls)
        self._records = call_records(calls)
        self._call = library.optdb_call

    def __len__(self) -> int:
        return len(self._calls)

    def enqueue(self, start: int = 0) -> int:
        """Make the calls from number `start` on; return the number of the first that fails, or else their count."""
        return call_all(self._call, self._records, start)


def call_records(calls: Sequence[PreparedCall]) -> ctypes.Array[CallRecord]:
    """Return the records of prepared calls, which are to be kept with them."""
    # A call of the function waits for this: one array is filled in a third of the time that single records take.
    words: list[int] = []
    functions: dict[int, tuple[int, int]] = {}
    for call in calls:
        function = id(call.func)
        if function not in functions:
            functions[function] = _function_words(call.func)
        words += functions[function]
        words += map(_word, call.args)
        words += _PADDING[len(call.args) :]
    return (CallRecord * len(calls)).from_buffer(array("Q", words))


def call_all(loop: Callable[..., int], records: ctypes.Array[CallRecord], start: int) -> int:
    """Make the calls of records from number `start` on; return the number of the first that fails, or their count."""
    rest = ctypes.byref(records, start * ctypes.sizeof(CallRecord))
    return start + loop(rest, len(records) - start)


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
    library.optdb_give_up.argtypes = (ctypes.c_void_p,)
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
