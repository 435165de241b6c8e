"""Checks the lengths of arrays against the broadcast patterns of their types.

A type with a broadcastable axis promises that the axis has length 1. Theano's ops can break that promise: `Split` gives
all pieces of a broadcastable axis the same pattern, whatever their lengths are, and a user's op may return any shape. A
kernel that relies on the pattern would then read and write out of bounds. The checks run when a node is executed in
Python. A plan replays its commands without the checks: the inputs' shapes select the plan, and if the shape of a node's
result changes, Python computes the nodes that read it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host.api.graph import Variable

__all__ = ["check_kinds", "check_lengths", "promised_axes"]


def promised_axes(variables: Sequence[Variable]) -> list[tuple[int, int]]:
    """Return the broadcastable axes of variables, each as a variable's index and an axis's index."""
    patterns = [getattr(var.type, "broadcastable", ()) for var in variables]
    return [(index, axis) for index, pattern in enumerate(patterns) for axis, flag in enumerate(pattern) if flag]


def check_lengths(
    op: Any,
    variables: Sequence[Variable],
    values: Sequence[Any],
    axes: Sequence[tuple[int, int]] | None = None,
    empty: bool = False,
) -> None:
    """Check that broadcastable axes have length 1.

    Parameters
    ----------
    op : object
        The op that relies on the lengths, or a description of it, used in the error message.
    variables, values : sequence
        The op's inputs, and an array for each input.
    axes : sequence of (int, int), optional
        The result of `promised_axes` for the variables, if it is known.
    empty : bool
        Whether length 0 is also allowed, since no kernel is launched for an empty result.

    Raises
    ------
    ValueError
        If a broadcastable axis has another length.
    """
    for index, axis in promised_axes(variables) if axes is None else axes:
        length = values[index].shape[axis]
        # The order matters: while a function is traced, each comparison of a symbolic length becomes a guard.
        if length != 1 and not (empty and length == 0):
            raise ValueError(_broken_promise(op, index, variables[index], axis, length))


def check_kinds(op: Any, variables: Sequence[Variable], values: Sequence[Any]) -> None:
    """Check that device arrays have the dtypes and the numbers of dimensions of their variables.

    Kernels that read the arrays are compiled for these dtypes and dimensions. Values of host variables are not checked.

    Raises
    ------
    TypeError
        If an array has another dtype or number of dimensions.
    """
    for index, (var, value) in enumerate(zip(variables, values, strict=True)):
        if not hasattr(var.type, "context"):
            continue
        seen = (getattr(value, "dtype", None), getattr(value, "ndim", None))
        if seen != (var.type.numpy_dtype, var.type.ndim):
            raise TypeError(
                f"{op} returned output {index} of type {type(value).__name__}, dtype {seen[0]} and {seen[1]} "
                f"dimensions, but its make_node declares {var.type}.\n"
                "The cure: allocate the output with optdb.opencl.kernel_ops.output_array, with that dtype and as "
                "many lengths, or correct make_node"
            )


def _broken_promise(op: Any, index: int, var: Variable, axis: int, length: int) -> str:
    called = var.name or (f"input {index}" if var.owner is None else f"output {var.index} of {var.owner.op}")
    return (
        f"{op} takes {called}, of type {var.type}: axis {axis} is broadcastable, which declares length 1, but the "
        f"array has length {length}.\n"
        f"The cure: apply theano.tensor.unbroadcast(x, {axis}) to the array from which this one is computed, before "
        "the op that changes the length"
    )
