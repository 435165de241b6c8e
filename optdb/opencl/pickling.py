"""Pickling of device arrays: a pickle stores an array's values and its context's name.

Unpickling copies the array to the context with that name. Pickles contain this module's name, so the module must keep
its path.
"""

from __future__ import annotations

import copyreg
from collections.abc import Hashable
from typing import Any

import numpy as np

from optdb.opencl.registry import contexts, get_context
from optdb.runtime import arrays


def _rebuild(value: np.ndarray, context_name: Hashable) -> arrays.Array:
    return arrays.from_host(get_context(context_name), value)


def reduce_array(array: arrays.Array) -> Any:
    """Return an array's pickle reduction; arrays outside optdb's contexts keep the default reduction."""
    name = contexts.name_of(lambda context: context.queue == array.queue)
    if name is None:
        return object.__reduce_ex__(array, 2)
    return _rebuild, (arrays.to_host(array), name)


copyreg.pickle(arrays.Array, reduce_array)
copyreg.pickle(arrays.DeviceArray, reduce_array)
