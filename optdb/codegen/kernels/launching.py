"""Kernel launches.

All nodes with the same kernel share one :class:`CompiledKernel`. Computing the non-array arguments of a launch takes
longer than most launches, so ops cache them as a :class:`BoundKernel`, in a :class:`LaunchCache`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from optdb.codegen.kernels.kernel import Kernel
from optdb.codegen.kernels.params import ArrayParam, KernelArgumentError, Param, offset_argument
from optdb.runtime.arrays import Array
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.dispatch import enqueue, listening
from optdb.runtime.library import cl
from optdb.runtime.sizes import SymInt, as_int

#: Default work-group sizes, by device kind and number of dimensions.
GROUPS = {"cpu": {1: (64,), 2: (8, 8), 3: (4, 4, 4)}, "gpu": {1: (256,), 2: (16, 16), 3: (8, 8, 4)}}

Size = int | Sequence[int]
Value = TypeVar("Value")


class CompiledKernel:
    """A kernel that can be launched on one context's queue, by any thread.

    `build` is called at the first launch if no program has been attached yet; it must call `attach`.
    """

    def __init__(self, kernel: Kernel, context: Context, build: Callable[[], None]) -> None:
        self.name = kernel.name
        self.params = kernel.params
        self._context = context
        self._build = build
        #: Indexes of array buffers among the OpenCL arguments.
        self.arrays = _array_slots(kernel.params)
        #: Set by `attach`.
        self._kernel: cl.Kernel
        self._is_attached = False
        self._largest = 0
        self._groups: dict[int, tuple[int, ...]] = {}
        # The lock is needed because the OpenCL kernel object holds the arguments until the launch.
        self._lock = threading.Lock()

    def attach(self, program: cl.Program, name: str) -> None:
        """Take the kernel called `name` from a built program.

        Raise ValueError if the kernel is missing, and KernelArgumentError if its params do not match its code.
        """
        try:
            kernel = cl.Kernel(program, name)
        except cl.LogicError:
            declared = [kernel.function_name for kernel in program.all_kernels()]
            raise ValueError(f"kernel {self.name!r} is not declared in its code, which declares {declared}") from None
        slots = sum(len(param.slots) for param in self.params)
        if kernel.num_args != slots:
            raise KernelArgumentError(
                f"kernel {self.name} takes {kernel.num_args} parameters in its code, but its params {self.params} "
                f"describe {slots} (an array, '*', counts as two: a pointer, and its offset in bytes)"
            )
        self._kernel, self._is_attached = kernel, True

    def call(self, global_size: Size, local_size: Size | None, *args: Any) -> None:
        """Launch the kernel on `global_size` work items, in groups of `local_size`, which must divide `global_size`.

        Each size is an integer, or a sequence with one integer per dimension. If a size is 0, nothing is launched; if
        `local_size` is None, the driver chooses it. `args` has one argument for each of the kernel's params. Raise
        KernelArgumentError if the kernel does not accept the arguments or the sizes.
        """
        bound = self.bind(args)
        self.enqueue(*self.grid(global_size, local_size), bound)

    def scall(self, n: Size, *args: Any) -> None:
        """Launch the kernel on at least `n` work items, in groups of the device's default size.

        Kernels skip the excess items with ``if (i < n)``, or use a grid-stride loop.
        """
        self.call(*self.automatic_grid(n), *args)

    def automatic_grid(self, n: Size) -> tuple[list[int], tuple[int, ...]]:
        """Return the global and local size with which `scall` launches `n` work items."""
        self._prepare()
        sizes = _sizes(n)
        if len(sizes) not in self._groups:
            raise KernelArgumentError(f"kernel {self.name} is launched in {len(sizes)} dimensions, but the most is 3")
        group = self._groups[len(sizes)]
        return [-(-items // size) * size for items, size in zip(sizes, group)], group

    def bound(self, global_size: Size, local_size: Size | None, args: Sequence[Any]) -> BoundKernel:
        """Return a launch whose arguments are bound, except arrays, for which `args` has placeholders; see `call`."""
        return BoundKernel(self, *self.grid(global_size, local_size), self.bind(args))

    def grid(self, global_size: Size, local_size: Size | None) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Return a launch's global and local size as tuples; raise KernelArgumentError if they are invalid."""
        self._prepare()
        items = _sizes(global_size)
        if not 1 <= len(items) <= 3 or any(n < 0 for n in items):
            raise KernelArgumentError(f"kernel {self.name} cannot be launched on {items} work items")
        if local_size is None:
            return items, None
        group = _sizes(local_size)
        if len(group) != len(items) or min(group) < 1 or any(n % size for n, size in zip(items, group)):
            raise KernelArgumentError(f"kernel {self.name}: {items} work items do not divide into groups of {group}")
        if math.prod(group) > self._largest:
            raise KernelArgumentError(
                f"kernel {self.name}: work groups of {group} are too large: the device runs {self._largest} items at "
                "most"
            )
        return items, group

    def enqueue(self, items: tuple[int, ...], group: tuple[int, ...] | None, bound: Sequence[Any]) -> None:
        """Launch the kernel with sizes that `grid` returned and arguments that `bind` returned."""
        if 0 in items:
            return
        kernel, lock = self._kernel, self._lock
        launch = EnqueueKernel(self._context.queue, kernel, items, group, tuple(bound), self.arrays, lock=lock)
        listener = listening()
        with lock:
            if listener is None or listener.takes_bound:
                kernel.set_args(*bound)
            enqueue(launch)

    def _prepare(self) -> None:
        """Build the kernel and choose group sizes at the first launch, because many kernels are never launched."""
        if self._largest:
            return
        with self._lock:
            if self._largest:
                return
            if not self._is_attached:
                self._build()
            # If the dtypes are set, PyOpenCL does not inspect each argument, which halves launch overhead.
            self._kernel.set_scalar_arg_dtypes([slot for param in self.params for slot in param.slots])
            device = self._context.device
            info = cl.kernel_work_group_info
            largest = self._kernel.get_work_group_info(info.WORK_GROUP_SIZE, device)
            # NVIDIA's driver reports 256 even for kernels that require larger groups, but launches with these groups
            # succeed.
            largest = max(largest, math.prod(self._kernel.get_work_group_info(info.COMPILE_WORK_GROUP_SIZE, device)))
            # The sizes are chosen once, because a driver may recompile a kernel for each size.
            limits = self._context.profile.max_local_sizes
            groups = GROUPS[self._context.profile.device_kind].items()
            self._groups = {dims: _shrunk(group, largest, limits) for dims, group in groups}
            self._largest = largest

    def bind(self, args: Sequence[Any]) -> list[Any]:
        """Return the OpenCL arguments; raise KernelArgumentError if the kernel does not accept `args`."""
        if len(args) != len(self.params):
            raise KernelArgumentError(
                f"kernel {self.name} takes {len(self.params)} arguments {self.params}, but {len(args)} were given"
            )
        bound: list[Any] = []
        for i, (param, arg) in enumerate(zip(self.params, args)):
            try:
                bound += param.bind(arg, self._context)
            except KernelArgumentError as error:
                raise KernelArgumentError(f"kernel {self.name}: argument {i} is {error}") from None
        return bound


class BoundKernel:
    """A launch with all arguments bound except arrays; launching takes a few microseconds."""

    def __init__(
        self, kernel: CompiledKernel, items: tuple[int, ...], group: tuple[int, ...] | None, args: list[Any]
    ) -> None:
        self._kernel = kernel
        self._items = items
        self._group = group
        self._args = args
        self._slots = kernel.arrays
        for slot in self._slots:
            args[slot] = None  # do not keep arrays alive

    def launch(self, arrays: Sequence[Array]) -> None:
        """Launch the kernel with arrays of its context, given in the order of its params."""
        args = self._args.copy()
        for slot, array in zip(self._slots, arrays, strict=True):
            args[slot] = array.base_data
            args[slot + 1] = offset_argument(array.offset)
        self._kernel.enqueue(self._items, self._group, args)


class LaunchCache(Generic[Value]):
    """A cache of at most `size` values that threads may share; it drops all values when it is full."""

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._entries: dict[Hashable, tuple[object, Value]] = {}

    def get(self, key: Hashable, make: Callable[[], Value], owner: object = None) -> Value:
        """Return a key's value if it was computed for `owner`; otherwise, compute and store the value."""
        entry = self._entries.get(key)
        if entry is not None and entry[0] is owner:
            return entry[1]
        value = make()
        if len(self._entries) >= self._size:
            self._entries.clear()
        self._entries[key] = owner, value
        return value


def _array_slots(params: Sequence[Param]) -> tuple[int, ...]:
    slots, index = [], 0
    for param in params:
        if type(param) is ArrayParam:
            slots.append(index)
        index += len(param.slots)
    return tuple(slots)


def _sizes(size: Size) -> tuple[int, ...]:
    return (as_int(size),) if isinstance(size, int | np.integer | SymInt) else tuple(map(as_int, size))


def _shrunk(group: tuple[int, ...], most: int, limits: Sequence[int]) -> tuple[int, ...]:
    sizes = [min(size, limit) for size, limit in zip(group, limits)]
    while math.prod(sizes) > most:
        largest = sizes.index(max(sizes))
        sizes[largest] //= 2
    return tuple(sizes)
