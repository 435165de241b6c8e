"""How an array is seen from a kernel that goes over a shape of other axes.

A frame has an entry for each axis of the kernel: the array's own axis, or ``'x'`` where the
array is the same all along. A DimShuffle's ``new_order`` is a frame.
"""

from __future__ import annotations

from collections.abc import Sequence

from optdb.host.graph import Variable
from optdb.opencl.ops.views import OpenCLDimShuffle

Frame = tuple[int | str, ...]


def identity(ndim: int) -> Frame:
    """Return the frame of an array of the kernel's own axes."""
    return tuple(range(ndim))


def through(frame: Frame, new_order: Sequence[int | str]) -> Frame:
    """Return how the input of a DimShuffle is seen where its output is seen by `frame`."""
    return tuple("x" if axis == "x" else new_order[axis] for axis in frame)


def seen_through(var: Variable, frame: Frame) -> tuple[Variable, Frame]:
    """Return what an array is a DimShuffle of, and how that is seen where the array is seen by `frame`."""
    while var.owner is not None and type(var.owner.op) is OpenCLDimShuffle:
        frame = through(frame, var.owner.op.new_order)
        (var,) = var.owner.inputs
    return var, frame


def pattern(var: Variable, frame: Frame) -> tuple[bool, ...]:
    """Return along which axes of the kernel an array is known to be the same."""
    return tuple(axis == "x" or var.type.broadcastable[axis] for axis in frame)


def seen(var: Variable, frame: Frame) -> Variable:
    """Return an array as it is seen by `frame`: itself, or a view."""
    if frame == identity(var.type.ndim):
        return var
    return OpenCLDimShuffle(var.type.broadcastable, frame)(var)
