"""Errors about devices. This module does not need PyOpenCL."""

from __future__ import annotations

__all__ = ["DeviceError", "ForkedContext"]


class DeviceError(RuntimeError):
    """There is no such device, or it does not work. The message lists the available devices and the cure."""


class ForkedContext(RuntimeError):
    """OpenCL was used before the process forked, and is used again in the child."""
