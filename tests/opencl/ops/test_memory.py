"""Lifted ops create arrays from sizes and numbers."""

from __future__ import annotations

import pickle

import numpy as np
import theano.tensor as tt

from optdb.opencl import OpenCLArrayType
from optdb.opencl.ops.memory import OpenCLAlloc, OpenCLAllocEmpty, OpenCLARange, OpenCLEye, OpenCLTri
from tests.opencl.lifted import both


def test_memory_is_used_again_where_it_fits():
    node = OpenCLAllocEmpty("float32", "dev0")(tt.lscalar(), 3).owner
    storage = [[None]]
    node.op.perform(node, [2, 3], storage)
    first = storage[0][0]
    node.op.perform(node, [2, 3], storage)
    assert storage[0][0] is first and first.shape == (2, 3)
    node.op.perform(node, [4, 3], storage)
    assert storage[0][0].shape == (4, 3)


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
