"""Which kernels the ops of a run have, and which of them they launch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from optdb.opencl.kernels import CompiledKernel, OpenCLKernelBase

#: The class of an op, by its full name, and the name of a kernel.
Named = tuple[str, str]


@dataclass
class Launches:
    """Kernels of ops.

    Parameters
    ----------
    declared : set of (str, str)
        The op's class and the kernel's name, for each kernel that was compiled.
    launched : set of (str, str)
        The same for each that was launched, on one work item at least.
    """

    declared: set[Named] = field(default_factory=set)
    launched: set[Named] = field(default_factory=set)


def class_name(op_class: type) -> str:
    """Return the full name of a class."""
    return f"{op_class.__module__}.{op_class.__qualname__}"


@contextlib.contextmanager
def noted() -> Iterator[Launches]:
    """Note down, for a while, what is compiled and launched."""
    notes = Launches()
    compiled_kernels = OpenCLKernelBase.compiled_kernels

    def noting(op: OpenCLKernelBase, node: Any) -> dict[str, CompiledKernel]:
        kernels = compiled_kernels(op, node)
        for name, kernel in kernels.items():
            named = (class_name(type(op)), name)
            notes.declared.add(named)
            kernel.call = _noting_call(kernel.call, named, notes)
        return kernels

    OpenCLKernelBase.compiled_kernels = noting
    try:
        yield notes
    finally:
        OpenCLKernelBase.compiled_kernels = compiled_kernels


def _noting_call(call: Callable[..., None], named: Named, notes: Launches) -> Callable[..., None]:
    def noting(global_size: Any, local_size: Any, *args: Any) -> None:
        call(global_size, local_size, *args)
        sizes = global_size if hasattr(global_size, "__iter__") else (global_size,)
        if 0 not in sizes:
            notes.launched.add(named)

    return noting
