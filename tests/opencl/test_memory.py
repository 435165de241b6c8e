"""Arrays made on the device out of sizes and numbers, against NumPy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st

from optdb.opencl import OpenCLArrayType
from optdb.opencl.ops.eye import OpenCLEye
from optdb.opencl.ops.memory import OpenCLAlloc, OpenCLAllocEmpty, OpenCLARange, OpenCLTri
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both

DTYPES = ["bool", "int8", "uint32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_value_of_any_dtype_fills_an_array(dtype):
    value = np.array([[1], [3]]).astype(dtype)
    node = OpenCLAlloc("dev0")(variable(value, (False, True)), 4, 2, 3).owner
    (got,) = run(node, [device_array(value, [-1, 1]), *np.array([4, 2, 3])])
    np.testing.assert_array_equal(got, np.broadcast_to(value, (4, 2, 3)))


@pytest.mark.parametrize("shape", [(), (0, 2), (1, 1)])
def test_small_allocs(shape):
    node = OpenCLAlloc("dev0")(np.float32(2.5), *shape).owner
    np.testing.assert_array_equal(run(node, [device_array(np.array(2.5, "float32")), *shape])[0], np.full(shape, 2.5))


def test_values_that_do_not_fit_and_negative_lengths_are_refused():
    value = np.ones(3, "float32")
    node = OpenCLAlloc("dev0")(variable(value), tt.lscalar(), tt.lscalar()).owner
    with pytest.raises(ValueError, match=r"shape \(3,\) to shape \(4,\)"):
        run(node, [device_array(value), 2, 4])
    with pytest.raises(ValueError, match="negative length"):
        run(node, [device_array(value), -2, 3])


def test_memory_is_used_again_where_it_fits():
    node = OpenCLAllocEmpty("float32", "dev0")(tt.lscalar(), 3).owner
    storage = [[None]]
    node.op.perform(node, [2, 3], storage)
    first = storage[0][0]
    node.op.perform(node, [2, 3], storage)
    assert storage[0][0] is first and first.shape == (2, 3)
    node.op.perform(node, [4, 3], storage)
    assert storage[0][0].shape == (4, 3)


@given(st.sampled_from(["int8", "uint16", "int64", "float32", "float64"]), st.data())
def test_aranges_are_those_of_numpy(dtype, data):
    number = st.integers(-20, 20) if "float" not in dtype else st.floats(-20, 20)
    start, stop = data.draw(number), data.draw(number)
    step = data.draw(st.sampled_from([1, 2, -3] if "float" not in dtype else [0.1, -0.3, 7.0]))
    if dtype == "uint16":
        start, stop, step = abs(start), abs(stop), abs(step)
    inputs = [np.array(v) for v in (start, stop, step)]
    node = OpenCLARange(dtype, "dev0")(*[tt.as_tensor_variable(v) for v in inputs]).owner
    (got,) = run(node, inputs)
    want = np.arange(start, stop, step, dtype=dtype)
    assert got.shape == want.shape
    # A factor is as near as what it is multiplied with.
    np.testing.assert_allclose(
        got, want, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-4 if dtype == "float32" else 1e-12
    )


@given(
    st.integers(0, 5), st.integers(0, 5), st.integers(-6, 6), st.sampled_from(["float16", "int8", "bool", "float64"])
)
def test_triangles_are_those_of_numpy(rows, columns, k, dtype):
    node = OpenCLTri(dtype, "dev0")(*map(tt.as_tensor_variable, (rows, columns, k))).owner
    np.testing.assert_array_equal(run(node, [rows, columns, k])[0], np.tri(rows, columns, k, dtype))


def test_lifted_where_they_are_wanted():
    x = tt.fmatrix()
    a = np.arange(9, dtype="float32").reshape(3, 3)
    outputs = [x + tt.alloc(x[0], 3, 3), x * tt.eye(3), x * tt.tri(3, 3), x * tt.arange(3, dtype="float32")]
    got, want, ops = both([x], outputs, [a])
    for mine, theirs in zip(got, want):
        np.testing.assert_array_equal(mine, theirs)
    assert {OpenCLAlloc, OpenCLEye, OpenCLTri, OpenCLARange} <= set(ops)


def test_ops_are_pickled_and_know_their_context():
    for op in (
        OpenCLAlloc("dev0"),
        OpenCLAllocEmpty("int8", "dev0"),
        OpenCLARange("int64", "dev0"),
        OpenCLTri("int8", "dev0"),
    ):
        assert pickle.loads(pickle.dumps(op)) == op
    assert OpenCLAllocEmpty("int8", "dev1")(2).type == OpenCLArrayType("int8", (False,), "dev1")
