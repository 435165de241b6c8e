"""Errors for devices, for exported files, and for calls to the functions in those files."""

from __future__ import annotations

from typing import NamedTuple


class DeviceError(RuntimeError):
    """Raised if a device does not exist or does not work. The message lists the devices and says what to do."""


class DeviceFault(NamedTuple):
    """The reason why a device does not work on this machine, and how to fix the problem."""

    reason: str
    cure: str


class ForkedContext(RuntimeError):
    """Raised if a process uses OpenCL although its parent had used it before the fork."""


class FileError(ValueError):
    """Raised if a file is not valid. The message names the fault and says how to fix it."""


class LimitError(FileError):
    """Raised if a file needs more memory or work than the limits allow. The message says how to raise the limits."""


class ShapeError(ValueError):
    """Raised if a function in a file does not support a call's shapes, or a value that determines shapes."""
