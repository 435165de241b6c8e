"""Records which kernels the ops of a run have, and which of these kernels are launched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from optdb.opencl.kernel_ops import CompiledKernel, OpenCLKernelBase

#: A pair of names that identifies a kernel: the full name of its op's class, and the kernel's name.
Named = tuple[str, str]
#: Stands for all kernels of an op that has none before it runs.
_SCHEDULED = "scheduled kernels"


@dataclass
class Launches:
    """The kernels that the ops of a run compile (`declared`) and that they launch with work items (`launched`)."""

    declared: set[Named] = field(default_factory=set)
    launched: set[Named] = field(default_factory=set)


def class_name(op_class: type) -> str:
    """Return the name of a class with its module."""
    return f"{op_class.__module__}.{op_class.__qualname__}"


@contextlib.contextmanager
def noted() -> Iterator[Launches]:
    """Record, within the block, which kernels are compiled and launched."""
    notes = Launches()
    compiled_kernels = OpenCLKernelBase.compiled_kernels

    def noting(op: OpenCLKernelBase, node: Any) -> dict[str, _Noting]:
        kernels = compiled_kernels(op, node)
        owner = class_name(type(op))
        notes.declared.update((owner, name) for name in kernels)
        if op.schedules_kernels:
            notes.declared.add((owner, _SCHEDULED))
            notes.launched.add((owner, _SCHEDULED))
        return {name: _Noting(kernel, (owner, name), notes) for name, kernel in kernels.items()}

    with mock.patch.object(OpenCLKernelBase, "compiled_kernels", noting):
        yield notes


class _Noting:
    """Records the launches of a kernel by one op; other ops with an equal kernel have their own objects."""

    def __init__(self, kernel: CompiledKernel, named: Named, notes: Launches) -> None:
        self._kernel = kernel
        self._named = named
        self._notes = notes

    def call(self, global_size: Any, local_size: Any, *args: Any) -> None:
        self._kernel.call(global_size, local_size, *args)
        self._note(global_size)

    def scall(self, n: Any, *args: Any) -> None:
        self._kernel.scall(n, *args)
        self._note(n)

    def automatic_grid(self, n: Any) -> Any:
        return self._kernel.automatic_grid(n)

    def bound(self, global_size: Any, local_size: Any, args: Any) -> Any:
        """Record the launch when arguments are bound, because the launch is then enqueued immediately."""
        self._note(global_size)
        return self._kernel.bound(global_size, local_size, args)

    def _note(self, size: Any) -> None:
        sizes = size if hasattr(size, "__iter__") else (size,)
        if 0 not in sizes:
            self._notes.launched.add(self._named)
