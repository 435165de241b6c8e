"""Arrays joined, split, set and incremented in part on the device, against NumPy and the host."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scalar import int64

from optdb.opencl.ops.advanced import OpenCLAdvancedIncSubtensor1, OpenCLAdvancedSubtensor1
from optdb.opencl.ops.parts import OpenCLIncSubtensor, OpenCLJoin, OpenCLSplit
from tests.opencl.layouts import device_array, laid_out, run, shapes, variable
from tests.opencl.lifted import both, lifted_function, ops_of

#: x[a:b:c] as the host's ops have it.
SLICE = [slice(int64, int64, int64)]


@given(st.data())
@settings(max_examples=30)
def test_joins_are_those_of_numpy(data):
    shape = list(data.draw(shapes(min_dims=1)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    pairs = []
    for dtype in data.draw(st.lists(st.sampled_from(["float32", "int8"]), min_size=1, max_size=3)):
        shape[axis] = data.draw(st.integers(0, 3))
        pairs.append(data.draw(laid_out(dtype, tuple(shape))))
    joined = OpenCLJoin()(axis, *[variable(value) for value, _ in pairs])
    arrays = [array for _, array in pairs]
    if any(x.owner is not None for x in joined.owner.inputs[1:]):  # cast first
        f = theano.function(
            [x.owner.inputs[0] if x.owner else x for x in joined.owner.inputs[1:]], joined, mode=theano.Mode("py", None)
        )
        got = f(*arrays).get()
    else:
        (got,) = run(joined.owner, [np.array(axis), *arrays])
    want = np.concatenate([value for value, _ in pairs], axis)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_what_does_not_join_is_refused():
    a, b = np.ones((2, 3), "float32"), np.ones((2, 4), "float32")
    node = OpenCLJoin()(0, variable(a), variable(b)).owner
    with pytest.raises(ValueError, match=r"shapes are \(2, 3\), \(2, 4\)"):
        run(node, [np.array(0), device_array(a), device_array(b)])
    with pytest.raises(IndexError, match="no axis 2"):
        run(node, [np.array(2), device_array(a), device_array(b)])


def test_splits():
    a = np.arange(12, dtype="int16").reshape(3, 4)
    node = OpenCLSplit(3)(variable(a), 1, np.array([1, 0, 3]))[0].owner
    pieces = run(node, [device_array(a, [-1, 2]), np.array(1), np.array([1, 0, 3])])
    for got, want in zip(pieces, np.split(a, [1, 1], axis=1)):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="cannot cut 4 elements"):
        run(node, [device_array(a), np.array(1), np.array([1, 1, 1])])


@pytest.mark.parametrize("shape", [(0, 0), (2, 0), (0, 2), (0,)])
def test_rows_without_elements_have_the_numbers_that_the_host_accepts(shape):
    """NumPy 1 accepts any number where there is nothing to set; NumPy 2 refuses it."""
    x, i = tt.TensorType("float32", (False,) * len(shape))(), tt.lvector()
    values, rows = np.zeros(shape, "float32"), np.array([0, 5, -9])
    step = lifted_function([x, i], [tt.inc_subtensor(x[i], 1)], at_home=[i])
    assert OpenCLAdvancedIncSubtensor1 in ops_of(step)
    host = theano.function([x, i], tt.inc_subtensor(x[i], 1), mode=theano.Mode("py", None))
    if 0 in shape[1:] and np.lib.NumpyVersion(np.__version__) < "2.0.0":
        assert step(values, rows)[0].shape == host(values, rows).shape == shape
        return
    for function in (step, host):
        with pytest.raises(IndexError):
            function(values, rows)


def test_lifted_with_indexes_at_home():
    x, y, i = tt.fmatrix(), tt.fvector(), tt.lvector()
    a, b, rows = np.arange(12, dtype="float32").reshape(4, 3), np.ones(3, "float32"), np.array([2, -1, 2])
    outputs = [
        tt.concatenate([x, x[::-1]], axis=1),
        *tt.split(x, [1, 2], 2, axis=1),
        tt.inc_subtensor(x[1:3, ::-1], y),
        tt.set_subtensor(x[2], y * 5),
        x[i],
        tt.inc_subtensor(x[i], y),
        tt.set_subtensor(x[i], 2),
    ]
    got, want, ops = both([x, y, i], outputs, [a, b, rows], at_home=[i])
    for mine, theirs in zip(got, want):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    device_ops = {OpenCLJoin, OpenCLSplit, OpenCLIncSubtensor, OpenCLAdvancedSubtensor1, OpenCLAdvancedIncSubtensor1}
    assert device_ops <= set(ops)


def test_ops_are_pickled():
    for op in (OpenCLJoin(), OpenCLSplit(2), OpenCLIncSubtensor(SLICE, True), OpenCLAdvancedIncSubtensor1(True, True)):
        again = pickle.loads(pickle.dumps(op))
        assert again == op and getattr(again, "destroy_map", None) == getattr(op, "destroy_map", None)
