"""Launches kernels.

Of a program and what is known of a kernel a :class:`CompiledKernel` is made, which checks the arguments of each launch
and puts it into the context's queue. One is enough for all nodes whose kernels are the same.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.kernels.params import ArrayParam, KernelArgumentError, Param, offset_argument
from optdb.runtime import commands
from optdb.runtime.library import cl
from optdb.runtime.sizes import SymInt, as_int

if TYPE_CHECKING:
    from optdb.codegen.kernels.kernel import Kernel
    from optdb.runtime.arrays import Array
    from optdb.runtime.context import Context

#: How many work items a group is given where the caller does not say, by the number of dimensions.
GROUPS = {"cpu": {1: (64,), 2: (8, 8), 3: (4, 4, 4)}, "gpu": {1: (256,), 2: (16, 16), 3: (8, 8, 4)}}


class CompiledKernel:
    """A kernel that can be launched on one context's queue, by any thread.

    Parameters
    ----------
    kernel : Kernel
        What it is called with.
    context : Context
        Where it runs.
    build : callable
        Called at a launch if there is no program by then. It has to call `attach`.
    """

    def __init__(self, kernel: Kernel, context: Context, build: Callable[[], None]) -> None:
        self.name = kernel.name
        self.params = kernel.params
        self._context = context
        self._build = build
        #: The places of the buffers of arrays among what OpenCL is given.
        self.arrays = _array_slots(kernel.params)
        self._kernel: cl.Kernel | None = None
        self._largest = 0
        self._groups: dict[int, tuple[int, ...]] = {}
        # OpenCL keeps the arguments in the kernel until it is launched.
        self._lock = threading.Lock()

    def attach(self, program: cl.Program, name: str) -> None:
        """Take the kernel from a program.

        Parameters
        ----------
        program : pyopencl.Program
            That has been built.
        name : str
            What the kernel is called there.

        Raises
        ------
        ValueError
            If it is not there.
        KernelArgumentError
            If its params do not agree with its code.
        """
        found = self._find(program, name)
        slots = sum(len(param.slots) for param in self.params)
        in_code = found.num_args
        if in_code != slots:
            raise KernelArgumentError(
                f"kernel {self.name} takes {in_code} parameters in its code, but its params {self.params} stand for "
                f"{slots} (an array, '*', stands for two: a pointer, and its offset in bytes)"
            )
        self._kernel = found

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
        bound = self.bind(args)
        self.enqueue(*self.grid(global_size, local_size), bound)

    def scall(self, n: int | Sequence[int], *args: Any) -> None:
        """Launch the kernel on at least `n` work items, in groups of a size that suits the device.

        There are more items than asked for where the groups do not fit: kernels leave them out with
        ``if (i < n)``, or step through their work by the number of all items.
        """
        self.call(*self.automatic_grid(n), *args)

    def automatic_grid(self, n: int | Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
        """Return how many work items `scall` starts for `n`, and the size of their groups."""
        if not self._largest:
            self._prepare()
        wanted = _sizes(n)
        if len(wanted) not in self._groups:
            raise KernelArgumentError(f"kernel {self.name} is launched in {len(wanted)} dimensions, of at most 3")
        group = self._groups[len(wanted)]
        return [-(-items // size) * size for items, size in zip(wanted, group)], group

    def bound(
        self, global_size: int | Sequence[int], local_size: int | Sequence[int] | None, args: Sequence[Any]
    ) -> BoundKernel:
        """Return a launch of which all but the arrays is settled.

        Parameters
        ----------
        global_size, local_size : int or sequence of int
            As for `call`.
        args : sequence
            As for `call`; the arrays among them stand for those to come.

        Raises
        ------
        KernelArgumentError
            As `call` does.
        """
        return BoundKernel(self, *self.grid(global_size, local_size), self.bind(args))

    def grid(
        self, global_size: int | Sequence[int], local_size: int | Sequence[int] | None
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Return the sizes of a launch, as OpenCL takes them.

        Raises
        ------
        KernelArgumentError
            If there are no such groups of work items.
        """
        if not self._largest:
            self._prepare()
        items = _sizes(global_size)
        group = None if local_size is None else _sizes(local_size)
        self._check_sizes(items, group)
        return items, group

    def enqueue(self, items: tuple[int, ...], group: tuple[int, ...] | None, bound: Sequence[Any]) -> None:
        """Launch the kernel with what `grid` and `bind` gave."""
        if 0 in items:
            return
        with self._lock:
            commands.launch(self._context.queue, self._kernel, items, group, bound, self.arrays)

    def _find(self, program: cl.Program, name: str) -> cl.Kernel:
        try:
            return cl.Kernel(program, name)
        except cl.LogicError:
            there = [found.function_name for found in program.all_kernels()]
            raise ValueError(f"there is no kernel {self.name!r} in its code, which has {there}") from None

    def _prepare(self) -> None:
        """Find out, before the first launch, what many kernels of a graph never need."""
        with self._lock:
            if self._largest:
                return
            if self._kernel is None:
                self._build()
            # PyOpenCL need not find out each time: a launch takes half as long.
            self._kernel.set_scalar_arg_dtypes([slot for param in self.params for slot in param.slots])
            device = self._context.device
            largest = self._kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
            # Chosen once: a device may compile a kernel anew for each size.
            limits = self._context.profile.max_local_sizes
            groups = GROUPS[self._context.profile.device_kind].items()
            self._groups = {dims: _shrunk(group, largest, limits) for dims, group in groups}
            self._largest = largest

    def bind(self, args: Sequence[Any]) -> list[Any]:
        """Return what OpenCL is given for arguments of a launch.

        Raises
        ------
        KernelArgumentError
            If they are not what the kernel takes.
        """
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
        if not 1 <= len(items) <= 3 or any(n < 0 for n in items):
            raise KernelArgumentError(f"kernel {self.name} cannot be launched on {items} work items")
        if group is None:
            return
        if len(group) != len(items) or min(group) < 1 or any(n % size for n, size in zip(items, group)):
            raise KernelArgumentError(f"kernel {self.name}: {items} work items do not divide into groups of {group}")
        if math.prod(group) > self._largest:
            raise KernelArgumentError(
                f"kernel {self.name}: groups of {group} are too large: {self._largest} items at most"
            )


class BoundKernel:
    """A launch of which all but the arrays is settled, so that it takes a few microseconds.

    Ops keep such launches by the shapes and strides that they are for.

    Parameters
    ----------
    kernel : CompiledKernel
        What is launched.
    items, group : tuple of int
        How many work items there are, and in a group.
    args : list
        What OpenCL is given.
    """

    def __init__(
        self, kernel: CompiledKernel, items: tuple[int, ...], group: tuple[int, ...] | None, args: list[Any]
    ) -> None:
        self._kernel = kernel
        self._items = items
        self._group = group
        self._args = args
        self._slots = kernel.arrays
        for slot in self._slots:
            args[slot] = None  # nothing is kept alive from here

    def launch(self, arrays: Sequence[Array]) -> None:
        """Launch the kernel with these arrays, in the order of its params; they are of its context."""
        args = self._args.copy()
        for slot, array in zip(self._slots, arrays, strict=True):
            args[slot] = array.base_data
            args[slot + 1] = offset_argument(array.offset)
        self._kernel.enqueue(self._items, self._group, args)


def _array_slots(params: Sequence[Param]) -> tuple[int, ...]:
    """Return the places of the buffers of arrays among what OpenCL is given; each offset comes behind."""
    slots, place = [], 0
    for param in params:
        if type(param) is ArrayParam:
            slots.append(place)
        place += len(param.slots)
    return tuple(slots)


def _sizes(size: int | Sequence[int]) -> tuple[int, ...]:
    return (as_int(size),) if isinstance(size, int | np.integer | SymInt) else tuple(map(as_int, size))


def _shrunk(group: tuple[int, ...], most: int, limits: Sequence[int]) -> tuple[int, ...]:
    """Halve the sizes of a group until the device can take it."""
    sizes = [min(size, limit) for size, limit in zip(group, limits)]
    while math.prod(sizes) > most:
        largest = sizes.index(max(sizes))
        sizes[largest] //= 2
    return tuple(sizes)
