"""Lifted joins, splits and changes of slices agree with the host."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.scalar import int64

from optdb.opencl.ops.parts import (
    OpenCLAdvancedIncSubtensor1,
    OpenCLAdvancedSubtensor1,
    OpenCLIncSubtensor,
    OpenCLJoin,
    OpenCLSplit,
)
from tests.opencl.lifted import both, lifted_function, ops_of

#: The index of x[a:b:c], as the host's ops represent it.
SLICE = [slice(int64, int64, int64)]


def test_joins_of_different_dtypes():
    x, y = tt.fmatrix(), tt.TensorType("int8", (False, False))()
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.arange(4, dtype="int8").reshape(2, 2)
    got, want, ops = both([x, y], tt.join(1, x, y, x), [a, b])
    np.testing.assert_array_equal(got[0], want[0])
    assert got[0].dtype == want[0].dtype and OpenCLJoin in ops


@pytest.mark.parametrize("shape", [(0, 0), (2, 0), (0, 2), (0,)])
def test_rows_without_elements_have_the_numbers_that_the_host_accepts(shape):
    """If rows have no elements, NumPy 1 accepts any index; NumPy 2 rejects indexes that are out of bounds."""
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
