"""PyOpenCL, or an error that says how to get it.

The modules here take `cl` and `cl_array` from this one, so that all of them say the same
where PyOpenCL is missing. It also knows whether this process may use OpenCL at all: what
an OpenCL driver has set up (threads, locks) does not survive a fork.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Iterator
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

#: OpenCL's option to inhibit warnings. PoCL and NVIDIA's driver print how many there were.
_NO_WARNINGS = "-w"

_first_user: int | None = None

# Without it, a cache of PyOpenCL that cannot be written is a KeyError; with it, a warning.
os.environ.setdefault("PYOPENCL_CACHE_FAILURE_FATAL", "")


class _Invokers(dict[Any, Any]):
    """Stands for PyOpenCL's database of the Python code that launches kernels: keeps it for this process."""

    def store_if_not_present(self, key: Any, value: Any) -> None:
        """Keep what launches a kernel of this name with arguments of these types."""
        self.setdefault(key, value)


def _generate_invokers() -> None:
    """Let PyOpenCL generate the code that launches a kernel once in each process.

    Its database raises errors on a full disk and where it is damaged, and waits without end where another process has
    locked it. Opening it takes as long as generating the code of 18 kernels.
    """
    no_cache = getattr(cl, "_PYOPENCL_NO_CACHE", False)
    cl._PYOPENCL_NO_CACHE = True  # as by the variable of this name: the module opens no database
    try:
        from pyopencl import invoker
    finally:
        cl._PYOPENCL_NO_CACHE = no_cache
    invoker.invoker_cache = _Invokers()  # type: ignore[assignment]  # has what PyOpenCL uses of its database


_generate_invokers()


class _Unheard:
    """Switches PyOpenCL's warnings off, for all threads, while any of them is in a block."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._blocks = 0
        self._kept = warnings.catch_warnings()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Switch them off until the last thread leaves its block."""
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


#: Suppresses PyOpenCL's warnings about compiler messages for programs that build, in a ``with`` block.
compilers_unheard = _Unheard().block


def build_quietly(program: cl.Program, options: Iterable[str] = ()) -> cl.Program:
    """Build a program so that its compiler tells errors alone, and without PyOpenCL's cache of binaries."""
    with compilers_unheard():
        built: cl.Program = program.build(
            options=[*options, _NO_WARNINGS],
            cache_dir=False,  # type: ignore[arg-type]  # None is PyOpenCL's own folder
        )
        return built


def check_process() -> None:
    """Note that this process uses OpenCL; raise ForkedContext in the child of one that did, where calls would hang."""
    global _first_user
    here = os.getpid()
    if _first_user is None:
        _first_user = here
    elif _first_user != here:
        raise ForkedContext(
            f"process {here} was forked from process {_first_user}, which had used OpenCL; OpenCL drivers do not "
            "survive that.\nThe cure: start processes before the first use of OpenCL, or by "
            "multiprocessing.set_start_method('spawn'). With PyMC3, write pymc3.sample(cores=1), or mp_ctx='spawn'"
        )
