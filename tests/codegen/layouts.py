"""Makes device arrays of all layouts, without Theano, for tests of operations."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optdb.codegen.views import subtensor
from optdb.runtime.arrays import from_host, to_host
from optdb.runtime.context import Context
from tests.opencl_device import new_context

STEPS = st.sampled_from([1, 1, 2, -1, -3])


@functools.cache
def context() -> Context:
    """Return the context that tests compute in."""
    return new_context()


@functools.cache
def gpu_context() -> Context:
    """Return a context that uses the kernels for GPUs, on the device on which tests compute."""
    made = new_context()
    made.profile = made.profile.as_kind("gpu")
    return made


def device_array(value: np.ndarray, steps=None, context=context):
    """Copy `value` to the device; `steps` contains the gap and the direction of each axis."""
    steps = steps or [1] * value.ndim
    base = np.zeros([length * abs(step) for length, step in zip(value.shape, steps)], value.dtype)
    base[tuple(slice(None, None, step) for step in steps)] = value
    view = subtensor(from_host(context(), base), [slice(None, None, step) for step in steps])
    assert view.shape == value.shape
    return view


def compute(operation, *inputs, outputs=1):
    """Run an operation; return its outputs as NumPy arrays."""
    return [to_host(array) for array in operation.compute(*inputs, outputs=outputs)]


@st.composite
def shapes(draw, max_dims=3, min_dims=0):
    return tuple(draw(st.lists(st.integers(0, 4), min_size=min_dims, max_size=max_dims)))


def numbers(dtype: str):
    """Return a Hypothesis strategy for the elements of arrays."""
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
def laid_out(draw, dtype, shape, context=context):
    """Return a value, and the same value on the device in some layout."""
    value = draw(values(dtype, shape))
    return value, device_array(value, [draw(STEPS) for _ in shape], context)


@st.composite
def broadcast_pair(draw, dtypes, context=context):
    """Return two values whose shapes broadcast, each also on the device."""
    shape = draw(shapes())
    small = tuple(1 if draw(st.booleans()) else length for length in shape)
    first, second = draw(st.sampled_from([(shape, small), (small, shape), (small, small)]))
    return [draw(laid_out(dtypes[0], first, context)), draw(laid_out(dtypes[1], second, context))]
