"""The kernels in a file.

OpenCL does not check kernel arguments: a number passed in place of a pointer would be used as an address. This module
compares a kernel's declared parameters with the driver's information about the built kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from optdb.runtime.build import BuildError, build
from optdb.runtime.context import Context
from optdb.runtime.errors import FileError
from optdb.runtime.exported.manifest import ProgramSpec
from optdb.runtime.exported.sources import NUMBERS, is_handle
from optdb.runtime.expressions import POINTERS, KernelRef, argument_nbytes
from optdb.runtime.library import cl

_OPTIONS = ("-cl-kernel-arg-info",)
#: The exclusive upper bound for the number of work items in one dimension of a launch.
_MOST = 1 << 48


class Kernels:
    """The kernels in a file's programs; errors name the file's `path`."""

    def __init__(self, context: Context, programs: Sequence[ProgramSpec], path: str) -> None:
        self._context = context
        self._programs = programs
        self._path = path
        self._kernels: dict[KernelRef, FileKernel] = {}

    def get(self, kernel: KernelRef) -> FileKernel:
        """Return a kernel; raise FileError if it does not exist or cannot be built."""
        if kernel not in self._kernels:
            program, name = f"program {kernel.program} of {self._path}", kernel.function_name
            spec = self._programs[kernel.program]
            try:
                built = build(self._context, spec.source, _OPTIONS, program)
                self._kernels[kernel] = FileKernel(self._context, cl.Kernel(built, name), spec.kernels[name])
            except BuildError as error:
                raise FileError(str(error)) from None
            except cl.LogicError:
                raise FileError(f"{program} has no kernel {name!r}") from None
        return self._kernels[kernel]

    def source(self, kernel: KernelRef) -> str:
        """Return the source of the program that contains a kernel."""
        return self._programs[kernel.program].source


class FileKernel:
    """A kernel that a file declares with `params`; raises FileError if the driver reports different parameters."""

    def __init__(self, context: Context, kernel: cl.Kernel, params: Sequence[str]) -> None:
        self.program = kernel.program
        self.function_name = kernel.function_name
        self._largest = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, context.device)
        self._profile = context.profile
        if kernel.num_args != len(params) or not all(_agrees(kernel, *param) for param in enumerate(params)):
            raise FileError(
                f"the driver of {self._profile.name} does not accept the kernel {self.function_name} with its "
                "declared parameters"
            )

    def check_sizes(self, items: Sequence[int], group: Sequence[int] | None) -> None:
        """Raise a `FileError` if the kernel cannot be launched with these sizes."""
        if any(not 0 <= n < _MOST for n in items):
            raise FileError(f"the kernel {self.function_name} cannot be launched on {tuple(items)} work items")
        if group is None:
            return
        if any(size < 1 or n % size for n, size in zip(items, group)):
            raise FileError(f"{tuple(items)} work items do not divide into groups of {tuple(group)}")
        if math.prod(group) > self._largest or any(
            size > most for size, most in zip(group, self._profile.max_local_sizes)
        ):
            raise FileError(
                f"the kernel {self.function_name} needs work groups of {tuple(group)}, but {self._profile.name} runs "
                f"at most {self._largest} work items in a group.\n"
                "The cure: export the function for such a device"
            )

    def check_arguments(self, args: Sequence[Any]) -> None:
        """Raise a `FileError` if the arguments need more local memory than the device has."""
        local = sum(arg.size for arg in args if isinstance(arg, cl.LocalMemory))
        available = self._profile.local_memory_bytes
        if local > available:
            raise FileError(
                f"the kernel {self.function_name} needs {local} bytes of local memory, but {self._profile.name} has "
                f"{available}"
            )


def _agrees(kernel: cl.Kernel, index: int, param: str) -> bool:
    """Return whether a parameter's kind agrees with the driver's information; True if the driver provides none."""
    info, qualifiers = cl.kernel_arg_info, cl.kernel_arg_address_qualifier
    try:
        where = kernel.get_arg_info(index, info.ADDRESS_QUALIFIER)
        type_name = cast("str", kernel.get_arg_info(index, info.TYPE_NAME))
    except cl.Error:
        return True
    if is_handle(type_name):
        return False
    if param in POINTERS:
        return bool(where == getattr(qualifiers, param.upper()))
    dtype = NUMBERS.get(type_name)
    return where == qualifiers.PRIVATE and (dtype is None or argument_nbytes(dtype) == argument_nbytes(param))
