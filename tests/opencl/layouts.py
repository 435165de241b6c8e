"""Makes arrays of all layouts on the device dev0, and runs ops on them without compiling functions, for tests."""

from __future__ import annotations

import functools

import numpy as np

from optdb.opencl import OpenCLArrayType, get_context
from optdb.runtime.arrays import to_host
from tests.codegen import layouts
from tests.codegen.layouts import STEPS, numbers, shapes, values

__all__ = [
    "NAME",
    "STEPS",
    "broadcast_pair",
    "device_array",
    "laid_out",
    "numbers",
    "run",
    "shapes",
    "values",
    "variable",
]

NAME = "dev0"

device_array = functools.partial(layouts.device_array, context=lambda: get_context(NAME))
laid_out = functools.partial(layouts.laid_out, context=lambda: get_context(NAME))
broadcast_pair = functools.partial(layouts.broadcast_pair, context=lambda: get_context(NAME))


def variable(value: np.ndarray, broadcastable=None):
    """Return a variable for a value."""
    return OpenCLArrayType(value.dtype.name, broadcastable or (False,) * value.ndim, NAME)()


def run(node, arrays):
    """Compute a node; return its outputs as NumPy arrays."""
    storage = [[None] for _ in node.outputs]
    node.op.perform(node, arrays, storage)
    for out, (value,) in zip(node.outputs, storage, strict=True):
        assert out.type.is_valid_value(value), out.type.value_validity_msg(value)
    return [to_host(value) for (value,) in storage]
