"""Draws test arrays of all dtypes that a device can hold, with any shape and strides."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


@st.composite
def values(draw):
    """Draw NumPy arrays with any strides, including negative strides."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    value = draw(hnp.arrays(draw(st.sampled_from(DTYPES)), shape))
    value = value.transpose(draw(st.permutations(range(value.ndim))))
    return value[tuple(slice(None, None, draw(st.sampled_from([1, 2, -1, -2]))) for _ in value.shape)]
