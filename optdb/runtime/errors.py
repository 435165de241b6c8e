"""Errors about devices, exported files and calls of their functions. This module does not need PyOpenCL."""

from __future__ import annotations

from typing import NamedTuple


class DeviceError(RuntimeError):
    """There is no such device, or it does not work. The message lists the available devices and the cure."""


class DeviceFault(NamedTuple):
    """A reason why a device cannot work here, and its cure."""

    reason: str
    cure: str


class ForkedContext(RuntimeError):
    """OpenCL was used before the process forked, and is used again in the child."""


class FileError(ValueError):
    """A file is not valid. The message names the fault and the cure."""


class LimitError(FileError):
    """A file needs more memory or work than its limits allow. The message says how to raise them."""


class ShapeError(ValueError):
    """A function in a file does not support the shapes in a call, or a value that determines shapes."""
