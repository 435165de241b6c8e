"""Lifted sorting ops agree with the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.sort import ArgSortOp, SortOp, TopKOp, argtopk, topk, topk_and_argtopk

from optdb.opencl.ops.axes import OpenCLArgSortOp, OpenCLSortOp, OpenCLTopKOp
from tests.opencl.lifted import both


@pytest.mark.slow
def test_lifted_with_gradients():
    x, axis, k = tt.dmatrix(), tt.iscalar(), tt.iscalar()
    a = np.random.default_rng(0).normal(size=(5, 6))
    outputs = [
        *(tt.sort(x, None), SortOp("heapsort")(x, axis), ArgSortOp("mergesort")(x, axis)),
        theano.grad((tt.sort(x, 0) * x).sum(), x),
        *(topk(x, k, 1, sorted=False), argtopk(x[0], k, sorted=False, idx_dtype="int32")),
        tt.sort(topk_and_argtopk(x, 5, 0, sorted=False)[1], 0),
        theano.grad((topk(x[1], k, sorted=False) ** 2).sum(), x),
    ]
    got, want, ops = both([x, axis, k], outputs, [a, 0, -1], at_home=[axis, k])
    for mine, theirs in zip(got, want):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert {OpenCLSortOp, OpenCLArgSortOp, OpenCLTopKOp} <= set(ops)
    assert not {SortOp, ArgSortOp, TopKOp} & set(ops)
