"""The kernels of a file on a device, and what each of them takes.

OpenCL trusts whoever sets a kernel's arguments: a number where a pointer is wanted is taken for one. So kernels are
built in a way that they tell of their arguments, and these are compared with what a file gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.runtime.build import BuildError, build
from optdb.runtime.context import Context
from optdb.runtime.exported.errors import FileError
from optdb.runtime.exported.sources import is_handle
from optdb.runtime.library import cl
from optdb.runtime.recording import Memory

__all__ = ["Kernels"]

_OPTIONS = ("-cl-kernel-arg-info",)
#: Items of a launch in one dimension are fewer than these.
_MOST = 1 << 48

_POINTERS = ("GLOBAL", "CONSTANT")


class Kernels:
    """The kernels of a file's programs.

    Parameters
    ----------
    context : Context
        Where they run.
    programs : sequence of str
        The sources.
    path : str
        Of the file, for errors.
    """

    def __init__(self, context: Context, programs: Sequence[str], path: str) -> None:
        self._context = context
        self._sources = programs
        self._path = path
        self._found: dict[tuple[int, str], FileKernel] = {}

    def get(self, program: int, name: str) -> FileKernel:
        """Return a kernel.

        Raises
        ------
        FileError
            If it does not build, or is not there.
        """
        if (program, name) not in self._found:
            self._found[program, name] = self._make(program, name)
        return self._found[program, name]

    def _make(self, program: int, name: str) -> FileKernel:
        try:
            built = build(self._context, self._sources[program], _OPTIONS, f"program {program} of {self._path}")
            return FileKernel(self._context, cl.Kernel(built, name))
        except BuildError as error:
            raise FileError(str(error)) from None
        except cl.LogicError:
            raise FileError(f"program {program} of {self._path} has no kernel {name!r}") from None


class FileKernel:
    """A kernel of a file.

    Parameters
    ----------
    context : Context
        Where it runs.
    kernel : pyopencl.Kernel
        The kernel.
    """

    def __init__(self, context: Context, kernel: cl.Kernel) -> None:
        device = context.device
        self.program = kernel.program
        self.function_name = kernel.function_name
        self._largest = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
        self._limits = device.max_work_item_sizes
        self._local = device.local_mem_size
        self._device = device.name.strip()
        self._params = [_param(kernel, place) for place in range(kernel.num_args)]

    def check_sizes(self, items: Sequence[int], group: Sequence[int] | None) -> None:
        """Do nothing if the kernel can be launched so.

        Raises
        ------
        FileError
            If not.
        """
        if any(not 0 <= n < _MOST for n in items):
            raise FileError(f"the kernel {self.function_name} cannot be launched on {tuple(items)} work items")
        if group is None:
            return
        if any(size < 1 or n % size for n, size in zip(items, group)):
            raise FileError(f"{tuple(items)} work items do not divide into groups of {tuple(group)}")
        if math.prod(group) > self._largest or any(size > most for size, most in zip(group, self._limits)):
            raise FileError(
                f"the kernel {self.function_name} is to be launched in groups of {tuple(group)}, and {self._device} "
                f"takes {self._largest} work items at most.\nThe cure: export the function for such a device"
            )

    def check_arguments(self, args: Sequence[Any]) -> None:
        """Do nothing if arguments are those that the kernel takes.

        Raises
        ------
        FileError
            If not.
        """
        if len(args) != len(self._params):
            raise FileError(
                f"the kernel {self.function_name} takes {len(self._params)} arguments, and is given {len(args)}"
            )
        for place, (arg, param) in enumerate(zip(args, self._params)):
            if not _fits(arg, *param):
                raise FileError(f"argument {place} of the kernel {self.function_name} is not what it takes")
        local = sum(arg.size for arg in args if isinstance(arg, cl.LocalMemory))
        if local > self._local:
            raise FileError(
                f"the kernel {self.function_name} needs {local} bytes of local memory, and {self._device} has "
                f"{self._local}"
            )


def _param(kernel: cl.Kernel, place: int) -> tuple[str, str]:
    """Return where a parameter of a kernel points to, PRIVATE if it is no pointer, and its type."""
    info = cl.kernel_arg_info
    try:
        where = kernel.get_arg_info(place, info.ADDRESS_QUALIFIER)
        kind = kernel.get_arg_info(place, info.TYPE_NAME)
    except cl.Error as error:
        raise FileError(f"the driver does not tell what the kernel {kernel.function_name} takes ({error})") from None
    return cl.kernel_arg_address_qualifier.to_string(where), kind


#: The types of numbers that kernels take, as OpenCL C and as the file calls them.
_TYPES = {
    **{"char": "int8", "uchar": "uint8", "unsigned char": "uint8", "short": "int16", "ushort": "uint16"},
    **{"unsigned short": "uint16", "int": "int32", "uint": "uint32", "unsigned int": "uint32", "long": "int64"},
    **{"ulong": "uint64", "unsigned long": "uint64", "half": "float16", "float": "float32", "double": "float64"},
}
_SIZES = {"long16": 128, "ulong16": 128}


def _fits(arg: Any, where: str, kind: str) -> bool:
    """Tell whether a parameter can be given something: as much of it, if its type has another name than is known."""
    if is_handle(kind):
        return False
    if arg is None or isinstance(arg, Memory):
        return where in _POINTERS
    if isinstance(arg, cl.LocalMemory):
        return where == "LOCAL"
    if where != "PRIVATE" or kind.endswith("*"):
        return False
    value = np.asarray(arg)
    known = _SIZES.get(kind) or (np.dtype(_TYPES[kind]).itemsize if kind in _TYPES else None)
    return known is None or known == value.nbytes
