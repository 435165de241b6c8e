"""Pickling of device arrays, which stores the values and the context's name.

Unpickling copies the array to the context with that name, which may then belong to another device. Objects that contain
device arrays (constants, shared variables, compiled functions) can be pickled directly.
"""

from __future__ import annotations

import copyreg
from collections.abc import Hashable
from typing import Any

import numpy as np

from optdb.opencl.registry import contexts
from optdb.runtime import arrays

__all__ = ["reduce_array"]


def _rebuild(value: np.ndarray, context_name: Hashable) -> arrays.Array:
    return arrays.from_host(contexts.get(context_name), value)


def reduce_array(array: arrays.Array) -> Any:
    """Return an array's pickle reduction; arrays outside optdb's contexts keep the default reduction."""
    name = contexts.name_of(lambda context: context.queue == array.queue)
    if name is None:
        return object.__reduce_ex__(array, 2)
    return _rebuild, (arrays.to_host(array), name)


copyreg.pickle(arrays.Array, reduce_array)
copyreg.pickle(arrays.DeviceArray, reduce_array)
