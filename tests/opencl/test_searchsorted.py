"""Places of values in a sorted vector, on the device against NumPy and the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor.extra_ops import SearchsortedOp

from optdb.opencl.ops.axes import OpenCLSearchsortedOp
from tests.opencl.layouts import device_array, laid_out, run, shapes, variable
from tests.opencl.lifted import both

#: Of the vector, and of the values: equal, promoted to one of them, and to a third one.
DTYPES = [
    *[("float32", "float32"), ("float16", "float16"), ("bool", "bool"), ("int64", "int64"), ("uint64", "uint64")],
    *[("float64", "float32"), ("float16", "float32"), ("bool", "int16"), ("float32", "int8"), ("int32", "float64")],
    *[("int64", "uint64"), ("uint8", "int8"), ("float32", "int32"), ("int16", "float16"), ("float32", "int64")],
]


def numbers(dtype, shape, seed=0):
    """Return numbers of which many are equal, some are none, and some have no end."""
    rng = np.random.default_rng(seed)
    value = np.asarray((np.abs(rng.normal(size=shape)) * 20).round().astype(dtype))
    if dtype.startswith("float"):
        value = np.where(rng.uniform(size=shape) < 0.5, -value, value)
        for share, special in ((0.1, np.nan), (0.05, np.inf), (0.05, -np.inf), (0.05, -0.0)):
            value = np.where(rng.uniform(size=shape) < share, value.dtype.type(special), value)
    return value


def places(side, x, v):
    return run(OpenCLSearchsortedOp(side)(variable(x), variable(v)).owner, [device_array(x), device_array(v)])[0]


@pytest.mark.parametrize("ordered, wanted", DTYPES)
def test_all_dtypes(each_device_kind, ordered, wanted):
    x, v = np.sort(numbers(ordered, 77)), numbers(wanted, (5, 9), seed=1)
    for side in ("left", "right"):
        got = places(side, x, v)
        assert got.dtype == "int64"
        np.testing.assert_array_equal(got, np.searchsorted(x, v, side=side))


def test_large_whole_numbers_are_compared_as_numpy_compares_them():
    x = np.array([2**53, 2**53 + 1, 2**53 + 2], "int64")
    for v in (x, x.astype("uint64"), x.astype("float64")):
        np.testing.assert_array_equal(places("left", x, v), np.searchsorted(x, v))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("length", [0, 1, 2, 1000])
def test_sizes(each_device_kind, length, shape):
    x, v = np.sort(numbers("float32", length)), numbers("float32", shape, seed=1)
    np.testing.assert_array_equal(places("right", x, v), np.searchsorted(x, v, side="right"))


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_all_layouts(data):
    length = data.draw(st.integers(1, 40))
    x, ordered = data.draw(laid_out("float32", (length,)))
    v, wanted = data.draw(laid_out("float32", data.draw(shapes())))
    if not np.array_equal(x, np.sort(x)):
        x = np.sort(x)
        ordered = device_array(x[::-1].copy())[::-1]
    (got,) = run(OpenCLSearchsortedOp("left")(variable(x), variable(v)).owner, [ordered, wanted])
    np.testing.assert_array_equal(got, np.searchsorted(x, v))


def test_lifted(default):
    x, v = tt.fvector("x"), tt.fmatrix("v")
    buckets = tt.extra_ops.searchsorted(x, v * 2, side="right")
    values = [np.linspace(-1, 1, 12, dtype="float32"), numbers("float32", (30, 4))]
    got, want, ops = both([x, v], buckets + 1, values)
    np.testing.assert_array_equal(got[0], want[0])
    assert OpenCLSearchsortedOp in ops and SearchsortedOp not in ops


def test_a_sorter_stays_on_the_host(default):
    x, v, sorter = tt.fvector("x"), tt.fvector("v"), tt.lvector("sorter")
    value = np.array([3, 1, 2], "float32")
    found = tt.extra_ops.searchsorted(x * 2, v, sorter=sorter)
    got, want, ops = both([x, v, sorter], found, [value, value, np.argsort(value)], at_home=[sorter])
    np.testing.assert_array_equal(got[0], want[0])
    assert SearchsortedOp in ops
