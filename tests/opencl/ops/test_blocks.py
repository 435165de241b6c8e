"""Products of blocks that indexes select, and the gradients of these products, agree with the host."""

from __future__ import annotations

import numpy as np
import theano
import theano.tensor as tt
from theano.tensor.nnet import blocksparse

from optdb.opencl.ops.blas import OpenCLSparseBlockGemv, OpenCLSparseBlockOuter
from tests.codegen.blocks import BATCH, COLUMNS, DEPTH, IN, ROWS, WIDTH, indexes, numbers
from tests.opencl.lifted import both


def test_lifted_with_gradients():
    w, h, b = tt.ftensor4(), tt.ftensor3(), tt.fmatrix()
    ins, outs = tt.lmatrix(), tt.lmatrix()
    out = blocksparse.sparse_block_dot(w, h, ins, b, outs)
    outputs = [out, *theano.grad((out**2).sum(), [w, h, b])]
    values = [numbers(ROWS, COLUMNS, DEPTH, WIDTH), numbers(BATCH, IN, DEPTH), numbers(COLUMNS, WIDTH)]
    values += [index.astype("int64") for index in indexes()]
    got, want, ops = both([w, h, b, ins, outs], outputs, values, at_home=[ins, outs])
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert {OpenCLSparseBlockGemv, OpenCLSparseBlockOuter} <= set(ops)
    assert not {blocksparse.SparseBlockGemv, blocksparse.SparseBlockOuter} & set(ops)


def test_in_place_where_nobody_needs_what_was_there(default):
    w, h, o, ins, outs = tt.ftensor4(), tt.ftensor3(), tt.ftensor3(), tt.lmatrix(), tt.lmatrix()
    mode = theano.Mode("py", "fast_run").including("opencl")
    f = theano.function([w, h, o, ins, outs], blocksparse.sparse_block_gemv(tt.exp(o), w, h, ins, outs), mode=mode)
    (node,) = [node for node in f.maker.fgraph.toposort() if isinstance(node.op, OpenCLSparseBlockGemv)]
    assert node.op.inplace and node.op.destroy_map == {0: [0]}
    values = [numbers(2, 2, 3, 4), numbers(1, 2, 3), numbers(1, 1, 4), np.array([[0, 1]]), np.array([[1]])]
    want = np.exp(values[2]) + values[1][0, 0] @ values[0][0, 1] + values[1][0, 1] @ values[0][1, 1]
    np.testing.assert_allclose(f(*values), want, rtol=1e-5)
