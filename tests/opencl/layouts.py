"""Arrays of all layouts on the device, and ops that are run on them without a function, for tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optdb.opencl import OpenCLArrayType, get_context
from optdb.opencl.ops.views import subtensor
from optdb.runtime.arrays import from_host, to_host

NAME = "dev0"
STEPS = st.sampled_from([1, 1, 2, -1, -3])


def device_array(value: np.ndarray, steps=None):
    """Return `value` on the device, with gaps and in the directions that `steps` says."""
    steps = steps or [1] * value.ndim
    base = np.zeros([length * abs(step) for length, step in zip(value.shape, steps)], value.dtype)
    base[tuple(slice(None, None, step) for step in steps)] = value
    view = subtensor(from_host(get_context(NAME), base), [slice(None, None, step) for step in steps])
    assert view.shape == value.shape
    return view


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


@st.composite
def shapes(draw, max_dims=3, min_dims=0):
    return tuple(draw(st.lists(st.integers(0, 4), min_size=min_dims, max_size=max_dims)))


def numbers(dtype: str):
    """Return a strategy for elements."""
    if dtype == "bool":
        return st.booleans()
    if dtype.startswith("float"):
        width = int(dtype[5:])
        return st.floats(-8, 8, width=width) | st.sampled_from([float("nan"), float("inf"), -float("inf"), -0.0])
    return st.integers(*{"u": (0, 200), "i": (-100, 100)}[dtype[0]])


@st.composite
def values(draw, dtype, shape):
    return draw(hnp.arrays(dtype, shape, elements=numbers(dtype)))


@st.composite
def laid_out(draw, dtype, shape):
    """Return a value, and the same on the device, in some layout."""
    value = draw(values(dtype, shape))
    return value, device_array(value, [draw(STEPS) for _ in shape])
