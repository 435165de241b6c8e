"""Imports PyOpenCL; if it is not installed, raises an error that says how to install it.

This module also checks that the process was not forked from a process that used OpenCL: a driver's threads do not
survive a fork.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from optdb.runtime.errors import DeviceError, ForkedContext

try:
    import pyopencl as cl
    import pyopencl.array as cl_array
except ImportError as error:
    raise DeviceError(
        f"OpenCL needs PyOpenCL, which cannot be imported ({error}).\nThe cure: pip install 'optdb[opencl]'"
    ) from error

__all__ = ["build_quietly", "check_process", "cl", "cl_array", "compilers_unheard"]

#: The compiler option that suppresses warnings; without it, PoCL and NVIDIA's driver print the number of warnings.
_NO_WARNINGS = "-w"

_first_user: int | None = None

# If this variable is empty, PyOpenCL only warns if its cache is not writable. Without the variable, PyOpenCL raises
# KeyError.
os.environ.setdefault("PYOPENCL_CACHE_FAILURE_FATAL", "")


class _Invokers(dict[Any, Any]):
    """Replaces PyOpenCL's database of generated launch code with a dict in this process."""

    def store_if_not_present(self, key: Any, value: Any) -> None:
        self.setdefault(key, value)


def _generate_invokers() -> None:
    """Make PyOpenCL generate launch code in each process, without its database on disk.

    The database fails if it is damaged or the disk is full, and blocks if another process has locked it.
    """
    no_cache = getattr(cl, "_PYOPENCL_NO_CACHE", False)
    cl._PYOPENCL_NO_CACHE = True  # keeps PyOpenCL from opening its database
    try:
        from pyopencl import invoker
    finally:
        cl._PYOPENCL_NO_CACHE = no_cache
    invoker.invoker_cache = _Invokers()  # type: ignore[assignment]  # has the methods that PyOpenCL uses
    generate: Callable[..., Any] = invoker.generate_enqueue_and_set_args
    lock = threading.Lock()

    @functools.wraps(generate)
    def generate_once(*args: Any, **kwargs: Any) -> Any:
        with lock:  # Python warns if two threads generate code at the same time
            return generate(*args, **kwargs)

    invoker.generate_enqueue_and_set_args = generate_once


_generate_invokers()


class _Unheard:
    """Suppresses PyOpenCL's compiler warnings in all threads while any thread is inside a `block`."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._blocks = 0
        self._kept = warnings.catch_warnings()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Suppress the warnings until all threads have left their blocks."""
        with self._mutex:
            if not self._blocks:
                self._kept = warnings.catch_warnings()
                self._kept.__enter__()
                warnings.simplefilter("ignore", cl.CompilerWarning)
            self._blocks += 1
        try:
            yield
        finally:
            with self._mutex:
                self._blocks -= 1
                if not self._blocks:
                    self._kept.__exit__(None, None, None)


#: A context manager that suppresses PyOpenCL's warnings about successful builds with compiler messages.
compilers_unheard = _Unheard().block


def build_quietly(program: cl.Program, options: Iterable[str] = ()) -> cl.Program:
    """Build a program without compiler warnings and without PyOpenCL's cache of binaries."""
    with compilers_unheard():
        built: cl.Program = program.build(
            options=[*options, _NO_WARNINGS],
            cache_dir=False,  # type: ignore[arg-type]  # None means PyOpenCL's own folder
        )
        return built


#: Whether this process was forked from a process that had imported this module.
is_fork = False


def _note_fork() -> None:
    global is_fork
    is_fork = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def check_process() -> None:
    """Record that this process uses OpenCL; raise ForkedContext if it was forked from a process that used OpenCL."""
    global _first_user
    here = os.getpid()
    if _first_user is None:
        _first_user = here
    elif _first_user != here:
        raise ForkedContext(
            f"process {here} was forked from process {_first_user}, which had used OpenCL; OpenCL drivers do not "
            "work in forked processes.\n"
            "The cure: start processes before the first use of OpenCL, or call "
            "multiprocessing.set_start_method('spawn'). With PyMC3, write pymc3.sample(cores=1), or mp_ctx='spawn'"
        )
