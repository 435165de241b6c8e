"""What can go wrong with a device. These names need no PyOpenCL."""

from __future__ import annotations

__all__ = ["DeviceError", "ForkedContext"]


class DeviceError(RuntimeError):
    """There is no such device, or it does not work. The message names what there is and the cure."""


class ForkedContext(RuntimeError):
    """OpenCL was used before the process forked, and is asked for in the child."""
