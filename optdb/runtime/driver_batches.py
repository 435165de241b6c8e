"""Batches of prepared calls that C code makes without the GIL.

If a driver's queue is full, a call blocks; with the GIL, no other thread could feed another device. The first process
that needs the loop compiles it in the background into the user's cache. Until then, or without a C compiler, Python
makes the calls.
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

_logger = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_suffix(".c")
#: The compiler options; without contraction, C computes the same bits as Python.
_OPTIONS = ("-O2", "-shared", "-fPIC", "-ffp-contract=off")
_COMPILER_TIMEOUT_S = 60.0
#: The functions that a record can call, in the order of ``enum kind`` in the C code.
_FUNCTIONS = (
    *("clEnqueueNDRangeKernel", "clEnqueueCopyBuffer", "clEnqueueFillBuffer"),
    *("clEnqueueWriteBuffer", "clEnqueueReadBuffer", "clEnqueueBarrierWithWaitList"),
    *("clWaitForEvents", "clFlush", "optdb_agree", "optdb_note_time", "optdb_all_reduce"),
)
_KINDS = {name: kind for kind, name in enumerate(_FUNCTIONS)}
#: The marker function has the same prototype as the barrier function.
_KINDS["clEnqueueMarkerWithWaitList"] = _KINDS["clEnqueueBarrierWithWaitList"]
#: The number of arguments in a record, and the padding for missing ones.
_WORDS = 9
_PADDING = (0,) * _WORDS
#: A record that makes no call.
_NO_CALL = (len(_FUNCTIONS), 0, *_PADDING)


class CallRecord(ctypes.Structure):
    """The C struct ``call``."""

    _fields_ = (("kind", ctypes.c_uint64), ("function", ctypes.c_void_p), ("words", ctypes.c_uint64 * _WORDS))


_RECORD_NBYTES = ctypes.sizeof(CallRecord)


class Batch:
    """A sequence of work items: C makes the prepared calls, and Python does the other work.

    The batch keeps the `calls` alive, but not the objects whose handles they contain. Each has a fallback in Python,
    for None and for calls that fail.
    """

    def __init__(self, calls: Sequence[PreparedCall | None], fallbacks: Sequence[Callable[[], object]]) -> None:
        self._kept: Sequence[Any] = calls
        self._fallbacks = fallbacks
        self.records = call_records(calls)
        #: The number of calls that C makes.
        self.calls = sum(call is not None for call in calls)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Return one batch that does the work of several batches in sequence."""
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
        """Do the work; raise the errors of fallbacks."""
        library, done = loop_library(), 0
        while done < len(self._fallbacks):
            if library is not None:
                rest = ctypes.byref(self.records, done * _RECORD_NBYTES)
                done += library.optdb_call(rest, len(self._fallbacks) - done)
            if done < len(self._fallbacks):
                self._fallbacks[done]()
                done += 1


def call_records(calls: Sequence[PreparedCall | None]) -> ctypes.Array[CallRecord]:
    """Return a record for each prepared call, which the caller keeps alive; None becomes a record that always fails."""
    # Filling one array takes a third of the time of creating single records, and function calls wait for this.
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
    """Loads the library on first use, or builds it in the background if it does not exist."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._building = threading.Lock()
        self._begun = False
        self.library: ctypes.CDLL | None = None

    def begin(self) -> None:
        with self._mutex:
            if self._begun:
                return
            self._begun = True
        try:
            self.library = _loaded(_path())
        except OSError:
            # This is not a daemon thread, so a program that ends at once first waits a tenth of a second for the
            # compiler.
            threading.Thread(target=self.build, name="optdb-batches").start()

    def build(self) -> None:
        compiler = os.environ.get("CC") or "cc"
        with self._building:
            try:
                self.library = _loaded(_path()) if _is_whole(_path()) else _build(compiler, _path())
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                details = getattr(error, "stderr", None) or ""
                _logger.info(
                    "commands are enqueued by Python, which is slower, since %s could not compile the "
                    "native command loop: %s %s",
                    compiler,
                    error,
                    details,
                )


_loading = _Loading()


def loop_library() -> ctypes.CDLL | None:
    """Return the library with the loop over calls; None if it is not compiled yet or cannot be compiled."""
    if _loading.library is None:
        _loading.begin()
    return _loading.library


def build_loop() -> bool:
    """Wait until the loop is compiled; return whether it exists."""
    if loop_library() is None:
        _loading.build()
    return _loading.library is not None


@functools.cache
def _path() -> Path:
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
            return _loaded(made)  # it stays mapped when its file is removed
        return _loaded(path)
