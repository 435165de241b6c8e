"""Kernels: described by their code and parameters, compiled for a context, launched.

A list of :class:`Kernel` goes to :func:`compile_kernels`, which builds one program of them all, after it has seen to
it that the device can do what they ask for. Out come objects to launch them with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from optdb.opencl.kernels.params import KernelArgumentError, Param, as_param
from optdb.opencl.kernels.prelude import PRELUDE
from optdb.runtime.build import build
from optdb.runtime.library import cl

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: What each flag asks of a device, as the dtype that it has to support.
FLAGS = {
    "GA_USE_SMALL": "int16",
    "GA_USE_HALF": "float16",
    "GA_USE_DOUBLE": "float64",
    "GA_USE_COMPLEX": "complex64",
}

#: How many work items a group is given where the caller does not say, by the number of dimensions.
GROUPS = {"cpu": {1: (64,), 2: (8, 8), 3: (4, 4, 4)}, "gpu": {1: (256,), 2: (16, 16), 3: (8, 8, 4)}}

_THEANO_HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]cluda\.h[">].*$', re.MULTILINE)


class UnsupportedKernel(RuntimeError):
    """A device lacks what a kernel needs. The message says what, and which kernel."""


class Kernel:
    """A kernel's code, and how it is to be called.

    Parameters
    ----------
    code : str
        OpenCL C, in the words of the prelude (see :mod:`optdb.opencl.kernels.prelude`). The kernels of a node are
        built as one program, to which equal codes are added once.
    name : str
        The kernel function's name in the code.
    params : sequence
        What it is launched with: a dtype for each number, or SIZE, SSIZE, ARRAY (two parameters in the code, a
        pointer and its offset in bytes), BUFFER (a pointer alone), or LOCAL.
    flags : str or iterable of str
        What the device must have, see `get_flags`; in one string, they are separated by '|'.
    """

    def __init__(
        self, code: str, name: str, params: Sequence[Param | DTypeLike], flags: str | Iterable[str] = ()
    ) -> None:
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a kernel: it is no identifier")
        self.code = _THEANO_HEADER.sub("", code)
        self.name = name
        self.params = tuple(as_param(param) for param in params)
        self.flags = _flags(flags, name)

    def __repr__(self) -> str:
        return f"Kernel({self.name}: {', '.join(map(repr, self.params))}: {'|'.join(self.flags)})"

    @staticmethod
    def get_flags(*dtypes: DTypeLike) -> tuple[str, ...]:
        """Return the flags of a kernel that works with these dtypes."""
        return tuple(dict.fromkeys(flag for dtype in dtypes for flag in _flags_of(np.dtype(dtype))))

    def require(self, context: Context) -> None:
        """Do nothing if a context's device has what the kernel needs.

        Raises
        ------
        UnsupportedKernel
            If not.
        """
        for flag in self.flags:
            reason = context.supports(FLAGS[flag])
            if reason is not None:
                device = context.device.name.strip()
                raise UnsupportedKernel(f"kernel {self.name} needs {flag}, which {device} cannot give: {reason}")


class CompiledKernel:
    """A kernel that can be launched on one context's queue.

    Not for several threads at a time: OpenCL keeps the arguments in the kernel until it is launched.
    """

    def __init__(self, kernel: Kernel, program: cl.Program, context: Context) -> None:
        self.name = kernel.name
        self.params = kernel.params
        self._context = context
        self._kernel = _find(kernel, program)
        slots = [slot for param in self.params for slot in param.slots]
        in_code = self._kernel.num_args
        if in_code != len(slots):
            raise KernelArgumentError(
                f"kernel {self.name} takes {in_code} parameters in its code, but its params {self.params} stand for "
                f"{len(slots)} (an array, '*', stands for two: a pointer, and its offset in bytes)"
            )
        # PyOpenCL need not find out each time: a launch takes half as long.
        self._kernel.set_scalar_arg_dtypes(slots)
        self._largest = self._kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, context.device)
        self._groups = self._automatic_groups()

    def call(self, global_size: int | Sequence[int], local_size: int | Sequence[int] | None, *args: Any) -> None:
        """Launch the kernel on so many work items, in groups of so many.

        Parameters
        ----------
        global_size : int or sequence of int
            The number of all work items, in each dimension. With 0 of them, nothing happens.
        local_size : int or sequence of int or None
            The number of those in a group, which has to divide `global_size`. With None, the driver chooses.
        *args
            One for each of the kernel's params.

        Raises
        ------
        KernelArgumentError
            If the arguments, or the sizes, are not what the kernel takes.
        """
        items = _sizes(global_size)
        group = None if local_size is None else _sizes(local_size)
        bound = self._bind(args)
        self._check_sizes(items, group)
        if 0 in items:
            return
        self._kernel.set_args(*bound)
        cl.enqueue_nd_range_kernel(self._context.queue, self._kernel, items, group)

    def scall(self, n: int | Sequence[int], *args: Any) -> None:
        """Launch the kernel on at least `n` work items, in groups of a size that suits the device.

        There are more items than asked for where the groups do not fit: kernels leave them out with
        ``if (i < n)``, or step through their work by the number of all items.
        """
        wanted = _sizes(n)
        if len(wanted) not in self._groups:
            raise KernelArgumentError(f"kernel {self.name} is launched in {len(wanted)} dimensions, of at most 3")
        group = self._groups[len(wanted)]
        self.call([-(-items // size) * size for items, size in zip(wanted, group)], group, *args)

    def _bind(self, args: Sequence[Any]) -> list[Any]:
        if len(args) != len(self.params):
            raise KernelArgumentError(
                f"kernel {self.name} takes {len(self.params)} arguments {self.params}, and was given {len(args)}"
            )
        bound: list[Any] = []
        for i, (param, arg) in enumerate(zip(self.params, args)):
            try:
                bound += param.bind(arg, self._context)
            except KernelArgumentError as error:
                raise KernelArgumentError(f"kernel {self.name}: argument {i} is {error}") from None
        return bound

    def _check_sizes(self, items: tuple[int, ...], group: tuple[int, ...] | None) -> None:
        if not 1 <= len(items) <= 3 or min(items) < 0:
            raise KernelArgumentError(f"kernel {self.name} cannot be launched on {items} work items")
        if group is None:
            return
        if len(group) != len(items) or min(group) < 1 or any(n % size for n, size in zip(items, group)):
            raise KernelArgumentError(f"kernel {self.name}: {items} work items do not divide into groups of {group}")
        if math.prod(group) > self._largest:
            raise KernelArgumentError(
                f"kernel {self.name}: groups of {group} are too large: {self._largest} items at most"
            )

    def _automatic_groups(self) -> dict[int, tuple[int, ...]]:
        """Choose sizes once: a device may compile a kernel anew for each."""
        limits = self._context.device.max_work_item_sizes
        return {dims: _shrunk(group, self._largest, limits) for dims, group in GROUPS[self._context.flavour].items()}


def compile_kernels(kernels: Iterable[Kernel], context: Context, name: str = "a kernel") -> dict[str, CompiledKernel]:
    """Build kernels as one program; return them by name.

    Parameters
    ----------
    kernels : iterable of Kernel
        With different names.
    context : Context
        Where they are to run.
    name : str
        Whose kernels they are, for errors.

    Raises
    ------
    UnsupportedKernel
        If the device lacks what they need.
    BuildError
        If they do not compile.
    """
    kernels = list(kernels)
    names = [kernel.name for kernel in kernels]
    if len(set(names)) < len(names):
        raise ValueError(f"{name} has two kernels of one name among {names}")
    for kernel in kernels:
        kernel.require(context)
    source = PRELUDE + "\n".join(dict.fromkeys(kernel.code for kernel in kernels))
    title = f"{name} (kernels: {', '.join(names)})"
    program = build(context, source, name=title, own_lines=PRELUDE.count("\n"))
    return {kernel.name: CompiledKernel(kernel, program, context) for kernel in kernels}


def _find(kernel: Kernel, program: cl.Program) -> cl.Kernel:
    try:
        return cl.Kernel(program, kernel.name)
    except cl.LogicError:
        there = [found.function_name for found in program.all_kernels()]
        raise ValueError(f"there is no kernel {kernel.name!r} in its code, which has {there}") from None


def _flags(flags: str | Iterable[str], name: str) -> tuple[str, ...]:
    words = flags.split("|") if isinstance(flags, str) else flags
    given = tuple(word.strip() for word in words if word.strip())
    for flag in given:
        if flag not in FLAGS:
            raise ValueError(f"kernel {name} has an unknown flag {flag!r}: there are {', '.join(FLAGS)}")
    return given


def _flags_of(dtype: np.dtype) -> list[str]:
    flags = []
    if dtype in (np.float64, np.complex128):
        flags.append("GA_USE_DOUBLE")
    if dtype.kind == "c":
        flags.append("GA_USE_COMPLEX")
    if dtype == np.float16:
        flags.append("GA_USE_HALF")
    if dtype.itemsize < 4:
        flags.append("GA_USE_SMALL")
    return flags


def _sizes(size: int | Sequence[int]) -> tuple[int, ...]:
    return (int(size),) if isinstance(size, int | np.integer) else tuple(map(int, size))


def _shrunk(group: tuple[int, ...], most: int, limits: Sequence[int]) -> tuple[int, ...]:
    """Halve the sizes of a group until the device can take it."""
    sizes = [min(size, limit) for size, limit in zip(group, limits)]
    while math.prod(sizes) > most:
        largest = sizes.index(max(sizes))
        sizes[largest] //= 2
    return tuple(sizes)
