"""Command buffers, which a driver enqueues by one call: OpenCL's cl_khr_command_buffer.

PyOpenCL does not wrap the extension, so this module calls it by ctypes, through the loader that PyOpenCL
itself uses. Where the extension is missing, or a command buffer cannot be enqueued again before it is done,
:func:`kept_by_driver` returns None, and the caller enqueues one command after the other.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.runtime.commands import EnqueueCopy, EnqueueFill, EnqueueKernel
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.driver_calls import icd_loader
from optdb.runtime.library import cl

#: The commands that the extension has functions for.
_KEPT = (EnqueueKernel, EnqueueCopy, EnqueueFill)

_FLAGS, _SIMULTANEOUS_USE = 0x1293, 1
_CAPABILITIES, _CAN_BE_SIMULTANEOUS = 0x12A9, 4
_REQUIRED_OF_QUEUES = 0x12AA

_POINTER, _NUMBER, _SIZE = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t
_Word = ctypes.c_void_p | ctypes.c_uint | ctypes.c_size_t
_TYPES: dict[str, type[_Word]] = {"p": _POINTER, "n": _NUMBER, "s": _SIZE}
#: The functions, and the types of their parameters.
_PARAMETERS = {
    "clCreateCommandBufferKHR": "nppp",
    "clFinalizeCommandBufferKHR": "p",
    "clReleaseCommandBufferKHR": "p",
    "clEnqueueCommandBufferKHR": "nppnpp",
    "clCommandNDRangeKernelKHR": "ppppnpppnppp",
    "clCommandCopyBufferKHR": "ppppsssnppp",
    "clCommandFillBufferKHR": "ppppsssnppp",
}


def kept_by_driver(commands: Sequence[Any]) -> CommandBuffer | None:
    """Return a command buffer, which enqueues many bound commands by a single call of the driver.

    Their kernels' arguments must not change: the specification allows setting them again, but PoCL 3.1 then
    crashes. Return None if the driver cannot keep them all: it lacks the extension, a command brings values from the
    host, or the commands are for several queues.
    """
    if not commands or not all(isinstance(command, _KEPT) for command in commands):
        return None
    queues = {command.queue.int_ptr: command.queue for command in commands}
    if len(queues) != 1:
        return None
    (queue,) = queues.values()
    driver = _driver(queue.device)
    return None if driver is None else CommandBuffer(driver, queue, commands)


class CommandBuffer:
    """Commands in the driver's keeping, in the order of the queue."""

    def __init__(self, driver: _Driver, queue: cl.CommandQueue, commands: Sequence[Any]) -> None:
        self._driver = driver
        #: Keeps kernels and buffers alive as long as the command buffer.
        self._commands = list(commands)
        self._queue = queue
        self._queues = (_POINTER * 1)(queue.int_ptr)
        self._handle = driver.create(self._queues)
        weakref.finalize(self, driver.call, "clReleaseCommandBufferKHR", self._handle)
        for command in commands:
            self._append(command)
        driver.call("clFinalizeCommandBufferKHR", self._handle)

    def enqueue(self) -> None:
        """Enqueue all commands."""
        self._driver.call("clEnqueueCommandBufferKHR", 1, self._queues, self._handle, 0, None, None)

    def _append(self, command: Any) -> None:
        args: tuple[Any, ...]
        match command:
            case EnqueueKernel(kernel=kernel, global_size=items, local_size=group):
                sizes = (_SIZE * len(items))(*items)
                groups = None if group is None else (_SIZE * len(group))(*group)
                name, args = "clCommandNDRangeKernelKHR", (None, kernel.int_ptr, len(items), None, sizes, groups)
            case EnqueueFill(target=target, offset=offset, nbytes=nbytes):
                value = np.asarray(command.pattern).tobytes()
                name, args = "clCommandFillBufferKHR", (target.int_ptr, value, len(value), offset, nbytes)
            case EnqueueCopy():
                name, args = "clCommandCopyBufferKHR", (command.source.int_ptr, command.target.int_ptr)
                args = *args, command.source_offset, command.target_offset, command.nbytes
        self._driver.call(name, self._handle, None, *args, 0, None, ctypes.byref(_NUMBER()), None)


class _Driver:
    """A platform's functions for command buffers; LookupError is raised where it has none."""

    def __init__(self, platform: cl.Platform) -> None:
        address_of = icd_loader().clGetExtensionFunctionAddressForPlatform
        address_of.restype, address_of.argtypes = _POINTER, (_POINTER, ctypes.c_char_p)
        self._functions = {}
        for name, parameters in _PARAMETERS.items():
            address = address_of(platform.int_ptr, name.encode())
            if not address:
                raise LookupError(name)
            result = _POINTER if name == "clCreateCommandBufferKHR" else ctypes.c_int
            self._functions[name] = ctypes.CFUNCTYPE(result, *(_TYPES[parameter] for parameter in parameters))(address)

    def create(self, queues: Any) -> int:
        """Return the handle of a new command buffer, which may be enqueued while it is still at work."""
        status = ctypes.c_int()
        properties = (ctypes.c_uint64 * 3)(_FLAGS, _SIMULTANEOUS_USE, 0)
        create = self._functions["clCreateCommandBufferKHR"]
        handle: int = create(len(queues), queues, ctypes.addressof(properties), ctypes.addressof(status))
        _check("clCreateCommandBufferKHR", status.value)
        return handle

    def call(self, name: str, *args: Any) -> None:
        """Call a function that returns whether it went well; raise RuntimeError if it did not."""
        _check(name, self._functions[name](*args))


def _check(name: str, status: int) -> None:
    if status:
        raise RuntimeError(f"the OpenCL driver's {name} failed with status {status}")


def _driver(device: cl.Device) -> _Driver | None:
    """Return the driver's functions for a device; None if it has none, or allows only one use at a time."""
    if not profile_of(device).command_buffers or not _information(device, _CAPABILITIES) & _CAN_BE_SIMULTANEOUS:
        return None
    return None if _information(device, _REQUIRED_OF_QUEUES) else _driver_of(device.platform)


@functools.cache
def _driver_of(platform: cl.Platform) -> _Driver | None:
    try:
        return _Driver(platform)
    # Where a module's own libraries cannot be asked for functions, as on Windows, the loader has none.
    except (LookupError, AttributeError, OSError):
        return None


def _information(device: cl.Device, what: int) -> int:
    """Return a device's answer to a query, a number; 0 if it does not know the query."""
    try:
        ask = icd_loader().clGetDeviceInfo
    except (AttributeError, OSError):
        return 0
    ask.restype, ask.argtypes = ctypes.c_int, (_POINTER, _NUMBER, _SIZE, _POINTER, _POINTER)
    answer = ctypes.c_uint64()
    return 0 if ask(device.int_ptr, what, ctypes.sizeof(answer), ctypes.addressof(answer), None) else answer.value
