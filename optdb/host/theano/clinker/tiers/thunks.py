"""Thunks that run a node in Python until its C code is built."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from theano.gof.graph import Apply, Variable
from theano.gof.utils import MethodNotDefined
from theano.tensor import TensorType

from optdb.host.theano.clinker.tiers.background import FAILED, Background, Job

NoPython = (NotImplementedError, MethodNotDefined)


class CompilerWarning(UserWarning):
    """Warns that C code does not compile, and that the function therefore continues to run in Python."""


class ChangingThunk:
    """Runs a node in Python until the node's job is done, and then in C with the thunk from `make_in_c`.

    `cells` maps variables to their storage.
    """

    def __init__(
        self,
        node: Apply,
        in_python: Any,
        job: Job,
        make_in_c: Callable[[], Any],
        cells: dict[Variable, list[Any]],
        queue: Background,
    ) -> None:
        self.node = node
        self.job = job
        self.seconds = 0.0
        self.current: Any = in_python
        #: Whether a virtual machine replaces this thunk; if not, the thunk itself switches to C code.
        self.has_machine = False
        self.inputs = in_python.inputs
        self.outputs = in_python.outputs
        self.lazy = False
        self._queue = queue
        self._make_in_c: Callable[[], Any] | None = make_in_c
        self._arrays = [
            (cells[var], np.dtype(var.type.dtype)) for var in node.outputs if isinstance(var.type, TensorType)
        ]
        job.add(self)

    def __getattr__(self, name: str) -> Any:
        # Attributes that Theano's thunks have, such as ``perform`` or ``cthunk``.
        if name.startswith("__") or "current" not in vars(self):
            raise AttributeError(name)
        return getattr(self.current, name)

    @property
    def is_pending(self) -> bool:
        """Whether the node's C code is not built yet."""
        return self._make_in_c is not None

    @property
    def failed_module(self) -> str | None:
        """The module whose build failed, so that the node stays in Python; None if no build failed."""
        return self.job.name if self.job.state == FAILED and not self.is_pending else None

    def change_over(self) -> bool:
        """Use the C code if it is ready; warn if it does not compile. Return whether the thunk changed.

        Drop the outputs, because C code reuses their memory, which Python code may share with other values.
        """
        if self._make_in_c is None or not self.job.is_over:
            return False
        if self.job.state != FAILED:
            try:
                self.current = self._make_in_c()
            except Exception as error:
                # If, for example, a library cannot be loaded, the node continues to run in Python.
                self.job.state, self.job.reason = FAILED, f"{type(error).__name__}: {error}"
        self._make_in_c = None
        if self.job.state == FAILED:
            _warn(self.job)
            return True
        for cell in self.outputs:
            cell[0] = None
        return True

    def __call__(self) -> Any:
        if self._make_in_c is None:
            return self.current()
        if self._queue.is_stalled:
            self._queue.start()
        if not self.has_machine and self.change_over():
            return self.current()
        begin = time.perf_counter()
        try:
            result = self.current()
        except NoPython:
            return self._compute_in_c()
        finally:
            self.seconds += time.perf_counter() - begin
        for cell, dtype in self._arrays:
            _keep_to_type(cell, dtype)
        return result

    def _compute_in_c(self) -> Any:
        """Wait for the C code of a node without a Python implementation, and run it."""
        self.seconds = float("inf")  # makes this job the next to be built
        self._queue.wait([self.job])
        self.change_over()
        return self.current()


def _keep_to_type(cell: list[Any], dtype: np.dtype) -> None:
    """Replace an output that is a scalar, a broadcast view or of another dtype by an array that C code accepts."""
    value = cell[0]
    if value is None:
        return
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        cell[0] = np.asarray(value, dtype)
    elif not value.flags.writeable and 0 in value.strides:
        cell[0] = value.copy()


_warned: set[str] = set()


def _warn(job: Job) -> None:
    if job.name in _warned:
        return
    _warned.add(job.name)
    ops = ", ".join(job.ops)
    why = f": {job.reason}" if job.reason else ", since its C code does not compile"
    warnings.warn(
        f"optdb.tiered: module {job.name[:12]} ({ops}) was not built{why}. Functions that use it keep computing in "
        "Python.\n"
        "The cure: compile with THEANO_FLAGS=optdb.tiered=False, which raises the compiler's error",
        CompilerWarning,
        stacklevel=2,
    )
