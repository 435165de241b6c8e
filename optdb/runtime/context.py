"""A device made ready for use: its OpenCL context, one queue, and what it can compute.

All commands of a context go through its one queue, in order, so that whoever uses an array
need not wait for whoever filled it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from optdb.runtime import devices
from optdb.runtime.errors import ForkedContext
from optdb.runtime.library import check_process, cl
from optdb.runtime.turns import Turn

__all__ = ["Context", "ForkedContext"]

_HELD = frozenset(["bool", "float16", "float32", "float64", "complex64", "complex128"]) | frozenset(
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
)
_DOUBLE = frozenset(["float64", "complex128"])


class Context:
    """A device, its OpenCL context and its queue.

    Parameters
    ----------
    spec : str
        Which device; see `optdb.runtime.devices`.

    Attributes
    ----------
    spec : str
        The same.
    device : pyopencl.Device
        The device.
    flavour : {'cpu', 'gpu'}
        What kernels should be written for. Whatever is no processor counts as 'gpu'.
    units : int
        For how many compute units the work is cut.
    float64 : bool
        Whether it computes in double precision.
    float16 : bool
        Whether it computes in half precision. It holds half-precision arrays in any case:
        they are widened and narrowed where they are read and written.
    shares_memory : bool
        Whether its memory is the host's, which then reads arrays where they are.
    kept : dict
        What others keep of the context as long as there is the context, each by the name of its module.
    turn : Turn
        Held by the thread that calls a function on the device.
    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.device = devices.find(spec)
        self._pid = os.getpid()
        self._cl_context = cl.Context([self.device])
        self._queue = cl.CommandQueue(self._cl_context, self.device)
        extensions = self.device.extensions.split()
        self.flavour = "cpu" if self.device.type & cl.device_type.CPU else "gpu"
        self.units = self.device.max_compute_units
        self.float64 = "cl_khr_fp64" in extensions
        self.float16 = "cl_khr_fp16" in extensions
        self.shares_memory = bool(self.device.host_unified_memory)
        self.kept: dict[str, Any] = {}
        self.turn = Turn(self)
        # Only the embedded profile may lack it.
        self._int64 = "EMBEDDED" not in self.device.profile or "cles_khr_int64" in extensions

    @property
    def cl_context(self) -> cl.Context:
        """The OpenCL context."""
        self.check_process()
        return self._cl_context

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue, which works in order."""
        self.check_process()
        return self._queue

    def check_process(self) -> None:
        """Refuse to work in the child of the process that made the context.

        Raises
        ------
        ForkedContext
            Where this is such a child. The driver's threads did not come along, and its calls would hang.
        """
        if os.getpid() != self._pid:
            check_process()

    def supports(self, dtype: object) -> str | None:
        """Tell why arrays of a dtype cannot be held or computed with, None if they can.

        Parameters
        ----------
        dtype : str or numpy.dtype
            The dtype.
        """
        # By its name it is asked for each array of each graph.
        name = dtype if dtype in _HELD else np.dtype(dtype).name
        if name not in _HELD:
            return f"OpenCL has no {name}"
        if name in _DOUBLE and not self.float64:
            return f"{self.device.name.strip()} has no double precision"
        if name.endswith("int64") and not self._int64:
            return f"{self.device.name.strip()} has no 64-bit integers"
        return None

    def __repr__(self) -> str:
        return f"Context({self.spec!r}: {self.device.name.strip()})"
