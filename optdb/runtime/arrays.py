"""Arrays on a device: allocation, copies to the host and copies from the host.

PyOpenCL copies only contiguous arrays; the functions here, and the methods of `DeviceArray`, accept any view.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime import commands, dispatch
from optdb.runtime.context import Context, context_of_queue
from optdb.runtime.deferred import DeferredArray
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.host_buffers import map_buffer, unmap
from optdb.runtime.library import cl, cl_array
from optdb.runtime.pinned_memory import pinned_memory
from optdb.runtime.sizes import specialize

if TYPE_CHECKING:
    _A = TypeVar("_A", bound="Array")

    class Array(cl_array.Array):
        """Type hints that PyOpenCL's arrays lack."""

        queue: cl.CommandQueue
        #: The buffer is None if the array has no elements. The type hint omits None, because callers check the size
        #: first.
        base_data: cl.Buffer

        def __getitem__(self: _A, index: Any) -> _A:
            """Return a view."""

        def __setitem__(self, index: Any, value: Any) -> None:
            """Write to the selected elements."""

else:
    Array = cl_array.Array

_COPY_NEEDED = "reading an array on a device copies it to the host.\nThe cure: omit copy=False"


class DeviceArray(Array):
    """A PyOpenCL array that NumPy can read, and that can be copied whatever its strides are.

    Most NumPy functions receive a copy on the host and return host arrays. While a function is traced, an array has no
    memory, and its shape may be symbolic.
    """

    #: This priority is lower than that of NumPy's arrays, so that `host + device` is computed on the host, like
    #: `device + host`. The priority is higher than that of NumPy's scalars, so that `np.float32(2) * device` stays on
    #: the device.
    __array_priority__ = -1

    def __init__(self, cq: Any, shape: Any, dtype: Any, *args: Any, **kwargs: Any) -> None:
        if dispatch.tracing() is None:
            super().__init__(cq, shape, dtype, *args, **kwargs)
        else:
            self._outline(cq, shape, dtype, **kwargs)

    def _outline(
        self,
        queue: Any,
        shape: tuple[Any, ...],
        dtype: Any,
        data: Any = None,
        offset: Any = 0,
        strides: tuple[Any, ...] | None = None,
        _queue: Any = None,
        **_: Any,
    ) -> None:
        """Set the attributes that PyOpenCL's constructor sets; shape, strides and offset may be symbolic."""
        self.queue = _queue if queue is None else queue
        self.context = self.queue.context
        self.shape, self.dtype, self.offset = tuple(shape), np.dtype(dtype), offset
        self.strides = c_strides(self.shape, self.dtype.itemsize) if strides is None else tuple(strides)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        if data is None and self.size:
            data = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 1)
        self.base_data = data
        self.events, self.allocator = [], None
        self._flags = None

    @property
    def flags(self) -> Any:
        """The memory layout flags.

        While a function is traced, only the flag `c_contiguous` exists, and reading this flag records a guard.
        """
        if dispatch.tracing() is None:
            return super().flags
        in_order = lies_in_order(self.shape, self.strides, self.dtype.itemsize)
        return SimpleNamespace(c_contiguous=in_order or not self.size)

    def copy(self, queue: Any = None) -> DeviceArray:
        """Return a C-contiguous copy that uses `queue`, by default the array's own queue."""
        return copy(self if queue is None else self.with_queue(queue))

    def get(self, queue: Any = None, ary: HostArray | None = None) -> HostArray:
        """Return the values as a NumPy array, which is `ary` if `ary` is given."""
        if ary is not None and not _fits(ary, self):
            raise TypeError(f"expected an array of {self.dtype} {self.shape} in C order, got {ary.dtype} {ary.shape}")
        return to_host(self if queue is None else self.with_queue(queue), ary)

    def __getitem__(self, index: Any) -> DeviceArray:
        if dispatch.tracing() is not None:
            # PyOpenCL does not accept a SymInt as an index.
            index = tuple(map(_plain_index, index if isinstance(index, tuple) else (index,)))
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, Array):
            part = self[index]
            if not value.flags.c_contiguous or may_share_memory(part, value):
                value = copy(value)
            if _fits(part, value):
                # Copy bytes directly, since PyOpenCL's own check rejects arrays with different strides along axes of
                # length 1.
                copy_bytes(part, value)
                return
        dispatch.enqueue(commands.HostCall("PyOpenCL writes into a part of an array"))
        super().__setitem__(index, value)

    @property
    def gpudata(self) -> tuple[int | None, int]:
        """The address that Theano's `Scan` compares: the buffer's handle or None, and the offset of the values."""
        return None if self.base_data is None else self.base_data.int_ptr, self.offset

    def all(self, queue: Any = None, wait_for: Any = None, **reduction: Any) -> Any:
        """Return whether all elements are true; if an axis is given, the host computes the result."""
        return np.all(self.get(), **reduction) if reduction else super().all(queue, wait_for)

    def any(self, queue: Any = None, wait_for: Any = None, **reduction: Any) -> Any:
        """Return whether any element is true; if an axis is given, the host computes the result."""
        return np.any(self.get(), **reduction) if reduction else super().any(queue, wait_for)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        if copy is False:
            raise ValueError(_COPY_NEEDED)
        return np.asarray(to_host(self), dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        # Return DLPack's device type for the host: `__dlpack__` copies the values to the host, because functions may
        # write to the buffer later.
        return 1, 0

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        if copy is False:
            raise BufferError(_COPY_NEEDED)
        return to_host(self).__dlpack__(**options)

    def __copy__(self) -> DeviceArray:
        # Copy the values, as NumPy does: host functions use copy.copy to separate inputs that share memory.
        return copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceArray:
        return copy(self)


def _plain_index(entry: Any) -> Any:
    if isinstance(entry, slice):
        return slice(specialize(entry.start), specialize(entry.stop), specialize(entry.step))
    return specialize(entry)


def lies_in_order(shape: Sequence[Any], strides: Sequence[Any], itemsize: int) -> bool:
    """Return whether strides are C-contiguous; the stride of an axis of length 1 is ignored."""
    in_order = c_strides(shape, itemsize)
    return all(step == wanted or length == 1 for step, wanted, length in zip(strides, in_order, shape, strict=True))


def c_strides(shape: Sequence[Any], itemsize: int) -> tuple[Any, ...]:
    """Return the strides, in bytes, of a C-contiguous array."""
    strides = [itemsize]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * (length or 1))
    return tuple(strides[::-1]) if shape else ()


def empty(context: Context, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    """Return an uninitialized array; raise MemoryError if it does not fit into the device's memory."""
    return _empty(context.queue, shape, dtype)


def _empty(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    if dispatch.tracing() is None:
        # Some drivers accept any allocation and fail only when the memory is used.
        available = profile_of(queue.device).global_memory_bytes
        if _nbytes(shape, dtype) > available:
            raise _no_room(queue, shape, dtype, f"the device has {available}")
    try:
        array = DeviceArray(queue, shape, dtype)
    except (cl.MemoryError, cl.LogicError) as error:
        raise _no_room(queue, shape, dtype, error) from error
    if array.base_data is not None:
        dispatch.enqueue(commands.AllocateBuffer(array.base_data, array.nbytes))
    return array


def _nbytes(shape: tuple[int, ...], dtype: Any) -> int:
    # Convert to Python integers, which do not overflow.
    return math.prod(map(int, shape)) * np.dtype(dtype).itemsize


def _no_room(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: Any, reason: object) -> MemoryError:
    return MemoryError(f"cannot allocate {_nbytes(shape, dtype)} bytes on {queue.device.name.strip()}: {reason}")


def adopt(context: Context, array: Array) -> DeviceArray:
    """Wait for commands in an array's own queue, and return a view of the array that uses the context's queue."""
    queue = context.queue
    if isinstance(array, DeviceArray) and array.queue == queue:
        return array
    if array.queue is not None and array.queue != queue:
        array.queue.finish()
    if array.events:
        cl.wait_for_events(array.events)
    return DeviceArray(
        queue, array.shape, array.dtype, data=array.base_data, offset=array.offset, strides=array.strides
    )


def from_host(
    context: Context,
    value: HostArray | DeferredArray,
    out: Array | None = None,
    constant: bool = False,
    events: list[Any] | None = None,
) -> Array:
    """Copy a NumPy array with any strides to the device; in a trace, `value` may be a `DeferredArray`.

    The caller may change `value` as soon as this function returns. The values are copied into `out` if it is contiguous
    and fits, else into a new array. A `constant` array is never written again, so replaying a function skips the copy.
    The event of a running copy is appended to `events`; the event's destructor waits for the copy.
    """
    if out is None or constant or not _fits(out, value):
        out = empty(context, value.shape, value.dtype)
    if value.size and (constant or not _uploaded_through_pinned(context, value, out, events)):
        source = value if isinstance(value, DeferredArray) else np.asarray(value, order="C")
        dispatch.upload(context.queue, out.base_data, out.offset, source, constant, events)
    return out


def _uploaded_through_pinned(context: Context, value: Any, out: Array, events: list[Any] | None) -> bool:
    """Start a copy through pinned memory if that is faster, and return whether it was started.

    If the thread has a listener, no copy is started, because listeners receive uploads as commands.
    """
    if dispatch.listening() is not None or value.nbytes < context.options.transfer_sizes.least:
        return False
    pinned = pinned_memory(context)
    if pinned is None or (events is None and not pinned.is_quicker_for(value.nbytes)):
        return False
    event = pinned.upload(context.queue, out.base_data, out.offset, value)
    if event is not None and events is not None:
        events.append(event)
    return event is not None


def fetch(array: Array, events: list[Any]) -> HostArray:
    """Start copying an array from the device; append the event to `events`, or wait if the layout requires it."""
    if not (array.size and array.flags.c_contiguous):
        return to_host(array)
    out = np.empty(array.shape, array.dtype)
    events.append(cl.enqueue_copy(array.queue, out, array.base_data, src_offset=array.offset, is_blocking=False))
    return out


def to_host(array: Array, out: HostArray | None = None, begun: list[Any] | None = None) -> HostArray:
    """Return an array's values as a C-contiguous host array, which is `out` if `out` fits.

    If a list `begun` is given, the values are valid only after the queue has finished, and objects that must live until
    then are appended to the list.
    """
    out = fitting(out, array)
    if not array.size:
        return out
    if _downloaded_through_pinned(array, out):
        return out
    if array.flags.c_contiguous:
        command = commands.EnqueueDownload(array.queue, out, array.base_data, array.offset, begun is None)
        dispatch.enqueue(command)
        if begun is not None:
            begun.append(command)
    else:
        # On a CPU device, mapping copies nothing.
        with seen_by_host(array) as values:
            out[...] = values
    return out


def _downloaded_through_pinned(array: Array, out: HostArray) -> bool:
    """Copy a contiguous array to the host through pinned memory if that is faster; return whether it was copied."""
    if dispatch.listening() is not None or not array.flags.c_contiguous:
        return False
    context = context_of_queue(array.queue)
    if context is None or array.nbytes < context.options.transfer_sizes.least:
        return False
    pinned = pinned_memory(context)
    if pinned is None or not pinned.is_quicker_for(array.nbytes):
        return False
    if not pinned.download(array.queue, array.base_data, array.offset, out):
        return False
    check_launches(array.queue)
    return True


def as_host_value(value: Any) -> Any:
    """Return a device array as a NumPy array, and any other value unchanged."""
    return to_host(value) if isinstance(value, Array) else value


def fitting(out: HostArray | None, value: Any) -> HostArray:
    """Return `out` if it is writable, C-contiguous, and has the shape and dtype of `value`; else return a new array."""
    if out is not None and _fits(out, value) and out.flags.writeable:
        return out
    return np.empty(value.shape, value.dtype)


@contextmanager
def seen_by_host(array: Array) -> Iterator[HostArray]:
    """Map the memory that an array spans; do not write to this memory, and do not read it after the block exits."""
    if not array.size:
        yield to_host(array)
        return
    dispatch.enqueue(commands.HostCall(commands.EnqueueDownload.reason))
    check_launches(array.queue)
    start, stop = span(array)
    memory = map_buffer(array.queue, array.base_data, cl.map_flags.READ, start, stop - start)
    try:
        # SciPy rejects read-only arrays, so the array is not marked read-only.
        yield np.ndarray(array.shape, array.dtype, memory, array.offset - start, array.strides)
    finally:
        unmap(array.queue, memory)


def copy_bytes(target: Array, source: Array) -> None:
    """Copy the bytes of a C-contiguous array to another C-contiguous array of the same size."""
    if target.nbytes:
        operands = target.base_data, target.offset, source.base_data, source.offset
        dispatch.enqueue(commands.EnqueueCopy(target.queue, *operands, target.nbytes))


def fill_zeros(array: Array) -> Array:
    """Fill a C-contiguous array with zeros and return it."""
    if array.size:
        zero = np.zeros((), array.dtype)
        dispatch.enqueue(commands.EnqueueFill(array.queue, array.base_data, array.offset, array.nbytes, zero))
    return array


def copy(array: Array) -> DeviceArray:
    """Return a C-contiguous copy of an array with any strides, on the same device."""
    result = _empty(array.queue, array.shape, array.dtype)
    if not array.size:
        return result
    if array.flags.c_contiguous:
        copy_bytes(result, array)
    else:
        dispatch.upload(array.queue, result.base_data, result.offset, to_host(array))
    return result


def deep_copy(value: Any) -> Any:
    """Return a deep copy of any value; the copy of a device array is on the same device."""
    return copy(value) if isinstance(value, Array) else deepcopy(value)


def overwrite(target: Array, source: Array) -> bool:
    """Copy an array's values into another array; return False if the values do not fit or the queues differ."""
    if not (_fits(target, source) and target.queue == source.queue and source.flags.c_contiguous):
        return False
    copy_bytes(target, source)
    return True


def span(array: Any) -> tuple[int, int]:
    """Return the start and the exclusive end of the bytes that an array or a layout spans in its buffer."""
    if not array.size:
        return array.offset, array.offset
    reach = [stride * (length - 1) for stride, length in zip(array.strides, array.shape)]
    start = array.offset + sum(step for step in reach if step < 0)
    stop = array.offset + sum(step for step in reach if step > 0) + array.dtype.itemsize
    return start, stop


def may_share_memory(a: Array, b: Array) -> bool:
    """Return whether writing to one of two arrays may change the other."""
    if not a.size or not b.size:
        return False
    (a_root, a_shift), (b_root, b_shift) = root_of(a.base_data), root_of(b.base_data)
    if a_root != b_root:
        return False
    (a_start, a_stop), (b_start, b_stop) = span(a), span(b)
    return a_start + a_shift < b_stop + b_shift and b_start + b_shift < a_stop + a_shift


def root_of(data: cl.MemoryObject) -> tuple[int, int]:
    """Return a sub-buffer's parent handle and offset; for any other buffer, its own handle and 0."""
    parent: Any = data.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
    if parent is None:
        return data.int_ptr, 0
    return parent.int_ptr, data.offset


def _fits(out: Any, value: Any) -> bool:
    """Return whether `out` is C-contiguous and has the shape and dtype of `value`."""
    return bool(out.shape == value.shape and out.dtype == value.dtype and out.flags.c_contiguous)
