"""The inputs and outputs of a device function, which connect Theano's storage to the virtual machine (VM).

An :class:`Input` uploads or lends an argument; an :class:`Output` downloads a result. On a device that shares the
host's memory, :class:`ZeroCopyScope` binds the caller's arrays during a call. After the call, even if it was
interrupted, the device has no reference to the caller's arrays.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.host.api.graph import Variable
from optdb.lifters.transfers import record_transfer
from optdb.numpy_types import HostArray
from optdb.opencl.linking.nodes import on_device
from optdb.opencl.linking.planned_vm import PlannedVM
from optdb.opencl.transfers import as_typed
from optdb.runtime.arrays import Array, DeviceArray, as_host_value, deep_copy, empty, fetch, fitting, from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.host_buffers import sync_to_host, wrap_host_array
from optdb.runtime.packing import Staged
from optdb.runtime.recording import ArrayLayout

if TYPE_CHECKING:
    from optdb.opencl.simulator.execution.executable import Executable

#: The names under which transfers without an op are recorded.
ARGUMENTS, RESULTS = "arguments of a call", "results of a call"
#: The maximum number of shapes for which an input keeps an array on the device.
_KEPT = 8


@dataclass(eq=False)
class Input:
    """An input that is not a shared variable."""

    variable: Variable
    #: The storage cell in which Theano's Function stores the input's value.
    storage: list[Any]
    #: The storage cell from which the VM reads the input's value.
    cell: list[Any]
    placed: bool
    #: Whether the VM computes the input's next value.
    updated: bool
    mutable: bool
    #: Whether a user's op overwrites the input, so that the caller sees the new values.
    overwritten_by_user: bool = False
    #: Whether later calls read the caller's array again; if so, the VM gets copies of arrays that it might overwrite.
    spares_argument: bool = False

    def __post_init__(self) -> None:
        self.may_change = self.updated or self.mutable
        #: Whether the VM may read the caller's array directly.
        self.may_be_external = self.placed and not self.may_change
        self._dtype = np.dtype(self.variable.type.dtype) if self.may_be_external else None
        self._lent: Array | None = None
        self._kept: OrderedDict[tuple[int, ...], Array] = OrderedDict()

    def take(self, context: Context, events: list[Any] | None = None, scope: ZeroCopyScope | None = None) -> None:
        """Pass the value to the VM; `scope` lends the array if possible, and `events` receives the event of a copy."""
        value = self.storage[0]
        if value is None and self.placed:
            raise TypeError(f"the input {self.variable} is None; it must be {self.variable.type}")
        if not self.placed:  # some host ops accept None in place of a number
            # If a mutable input has no next value, the VM may leave intermediate values in its array.
            may_be_spent = self.mutable and not (self.updated or self.overwritten_by_user)
            self.cell[0] = deep_copy(value) if self.spares_argument and may_be_spent else value
            if scope is not None:
                scope.track(value)
            return
        if isinstance(value, Staged):
            record_transfer(ARGUMENTS, value.nbytes)
            target = self._kept.get(value.shape)
            if target is None:
                target = empty(context, value.shape, value.dtype)
            value.move_to(target)
            self._keep(target)
            return
        value = as_typed(value, self.variable)
        if scope is not None and self.may_be_external:
            buffer = scope.take(self.cell, value)
            if buffer is not None:
                self.cell[0] = self._around(context, buffer, value.shape)
                return
        if scope is not None:
            scope.track(self.storage[0])  # track the caller's array, since `value` may be a converted copy
        record_transfer(ARGUMENTS, value.nbytes)
        cached = self._kept.get(value.shape)
        self._keep(from_host(context, value, cached, events=events))

    def _keep(self, array: Array) -> None:
        """Pass an array to the VM and keep its memory for later calls."""
        self.cell[0] = array
        self._kept[array.shape] = array
        self._kept.move_to_end(array.shape)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _around(self, context: Context, buffer: Any, shape: tuple[int, ...]) -> Array:
        """Return a device array that uses the caller's buffer; reuse the last array object if it fits."""
        if self._lent is None or self._lent.shape != shape:
            self._lent = DeviceArray(context.queue, shape, self._dtype, data=buffer)
        self._lent.base_data = buffer
        return self._lent

    def give_back(self) -> None:
        if self.updated:
            self.storage[0] = as_host_value(self.cell[0])


@dataclass(eq=False)
class Output:
    """An output that the caller receives."""

    cell: list[Any]
    on_host: bool
    #: Whether the next call may overwrite the caller's result.
    borrow: bool
    last: np.ndarray | None = None

    def give(self, scope: ZeroCopyScope | list[Any]) -> Any:
        """Return the value, which `scope` may have lent; if `scope` is a list, it receives the copy's event."""
        value = self.cell[0]
        if not (isinstance(value, Array) and self.on_host):
            return value if self.borrow and not isinstance(scope, list) else deep_copy(value)
        if isinstance(scope, list):
            return fetch(value, scope)
        result = scope.take_output(self.cell)
        if result is None:
            record_transfer(RESULTS, value.nbytes)
            result = to_host(value, scope.reusable(self.last), scope.downloads)
        if self.borrow:
            self.last = result
        return result


class ZeroCopyScope:
    """Binds the caller's arrays to a device within a ``with`` block, in which a function is called.

    The scope lends no arrays to asynchronous calls, nor to functions that return device arrays, since a returned array
    might be a view of an argument. Creating a scope sets the linked function's rebindable inputs and external outputs.
    """

    def __init__(self, context: Context, executable: Executable) -> None:
        self._context = context
        self._executable = executable
        #: The virtual machine that uses the lent arrays within the ``with`` block.
        self._open: PlannedVM | None = None
        #: The downloads that must be complete at the end of the call; None for a single result, which is waited for
        #: immediately.
        self.downloads: list[Any] | None = [] if sum(output.on_host for output in executable.outputs) > 1 else None
        graph, outputs, machine = executable.graph.fgraph, executable.outputs, executable.run
        here = [(var, output) for var, output in zip(graph.outputs, outputs) if on_device(var)]
        stays = all(output.on_host for _, output in here)
        waits = any(output.on_host for output in outputs)
        self._machine: PlannedVM | None = None
        if context.profile.shares_host_memory and isinstance(machine, PlannedVM) and stays and waits:
            self._machine = machine
            linked = machine.linked
            self._by_cell = {id(cell): var for var, cell in zip(graph.inputs, executable.input_cells, strict=True)}
            lendable = (binding for binding in executable.inputs if binding.may_be_external)
            linked.rebindable_inputs = frozenset(self._by_cell[id(binding.cell)] for binding in lendable)
            for var, output in here:
                linked.external_outputs.setdefault(var, functools.partial(self.bind_output, output))
        #: The memory in use during the call: lent arrays and other arguments.
        self._in_use = AddressRanges()
        #: The memory of the values in Theano's shared variables; computed at most once per call.
        self._of_shared: AddressRanges | None = None
        self._buffers: list[Any] = []
        #: Maps the id of a result's cell to the result's array and the buffer that the VM writes.
        self._result_arrays: dict[int, tuple[np.ndarray, Any]] = {}

    def __enter__(self) -> ZeroCopyScope:
        self._settle()  # release arrays left over from a call that was interrupted twice
        self._open = self._machine
        return self

    def __exit__(self, *_: object) -> None:
        self._open = None
        waits = bool(self._buffers or self.downloads)
        self._settle()
        if waits:
            check_launches(self._context.queue)

    def take(self, cell: list[Any], value: Any) -> Any:
        """Lend the argument in a cell for reading; return the lent buffer, or None if the argument must be copied."""
        machine = self._open
        if machine is None or not isinstance(value, np.ndarray):
            return None
        # In OpenCL, access to the same memory through two buffers is undefined.
        if self._by_cell[id(cell)] not in machine.linked.rebindable_inputs or self._in_use.overlap(value):
            return None
        return self._note(value, wrap_host_array(self._context, value))

    def track(self, value: Any) -> None:
        """Record an argument that is not lent, so that no result overwrites it."""
        if isinstance(value, np.ndarray):
            self._in_use.add(value)

    def bind_output(self, output: Output, layout: ArrayLayout) -> Any:
        """Lend an array for a result: the previous call's array if it fits and is not an argument, else a new array.

        Return the array's buffer, which all steps of a call share; return None if the result must be copied.
        """
        if self._open is None:
            return None
        if id(output.cell) in self._result_arrays:
            result, buffer = self._result_arrays[id(output.cell)]
            # A step that takes a different branch than the previous step may need an array with a different layout.
            if result.shape == layout.shape and result.dtype == layout.dtype:
                return buffer
        result = fitting(self.reusable(output.last), layout)
        buffer = self._note(result, wrap_host_array(self._context, result, writes=True))
        if buffer is not None:
            self._result_arrays[id(output.cell)] = result, buffer
        return buffer

    def take_output(self, cell: list[Any]) -> np.ndarray | None:
        """Return the array that was lent for a result, and forget this array; None if no array was lent."""
        result, buffer = self._result_arrays.pop(id(cell), (None, None))
        if result is None or cell[0].base_data is not buffer or cell[0].shape != result.shape:
            return None
        sync_to_host(self._context, buffer)
        return result

    def reusable(self, last: np.ndarray | None) -> np.ndarray | None:
        """Return `last`, or None if `last` overlaps an argument or a shared variable's value."""
        if last is None or self._in_use.overlap(last):
            return None
        if self._of_shared is None:
            self._of_shared = AddressRanges()
            for storage in self._executable.shared_storages:
                if isinstance(storage[0], np.ndarray):
                    self._of_shared.add(storage[0])
        return None if self._of_shared.overlap(last) else last

    def _note(self, value: np.ndarray, buffer: Any) -> Any:
        if buffer is not None:
            self._in_use.add(value)
            self._buffers.append(buffer)
        return buffer

    def _settle(self) -> None:
        self._in_use.clear()
        self._of_shared = None
        if not (self._buffers or self.downloads):
            return
        self._context.queue.finish()
        if self.downloads:
            self.downloads.clear()
        if not self._buffers or self._machine is None:
            return
        self._machine.drop_external()
        handles = {buffer.int_ptr for buffer in self._buffers}
        for cell in (*self._executable.input_cells, *self._executable.output_cells):
            value = cell[0]
            if isinstance(value, Array) and value.base_data is not None and value.base_data.int_ptr in handles:
                # The array object itself may be reused for an array of the same shape.
                value.base_data = None  # type: ignore[assignment]  # PyOpenCL's value for an array without memory
                cell[0] = None
        self._result_arrays.clear()
        self._buffers.clear()


class AddressRanges:
    """The address ranges of arrays, compared as in ``numpy.may_share_memory``."""

    def __init__(self) -> None:
        # The ranges are in ascending order and do not overlap.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, array: HostArray) -> None:
        """Add an array's memory; an array without elements has none."""
        start, end = _byte_range(array)
        if start == end:
            return
        first, last = self._met(start, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def overlap(self, array: HostArray) -> bool:
        """Return whether an array may share memory with any array that was added before."""
        start, end = _byte_range(array)
        first, last = self._met(start, end)
        return start < end and first < last

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()

    def _met(self, start: int, end: int) -> tuple[int, int]:
        """Return the slice that selects the stored ranges that overlap a given range."""
        return bisect_right(self._ends, start), bisect_left(self._starts, end)


def _byte_range(array: HostArray) -> tuple[int, int]:
    start = array.__array_interface__["data"][0]
    if array.flags.c_contiguous or not array.size:
        return start, start + array.nbytes
    spans = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(span, 0) for span in spans), start + sum(max(span, 0) for span in spans) + array.itemsize
