"""Products of blocks that indexes name, and their gradients, against the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet import blocksparse

from optdb.opencl.ops.blas import OpenCLSparseBlockGemv, OpenCLSparseBlockOuter
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both

RNG = np.random.default_rng(0)
#: Batch, windows and sizes of input and output, numbers of blocks.
BATCH, IN, OUT, DEPTH, WIDTH, ROWS, COLUMNS = 3, 2, 4, 5, 19, 6, 7


def numbers(*shape, dtype="float32"):
    return RNG.uniform(-1, 1, shape).astype(dtype)


def indexes():
    ins = RNG.integers(-ROWS, ROWS, (BATCH, IN))
    outs = RNG.integers(-COLUMNS, COLUMNS, (BATCH, OUT)).astype("int32")
    outs[0, 1] = outs[0, 0]
    return ins, outs


def on_host(op, values):
    storage = [[None]]
    op.perform(None, values, storage)
    return storage[0][0]


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-4), ("float64", 1e-12), ("float16", 2e-2)])
def test_products(dtype, rtol, inplace):
    o, w = numbers(BATCH, OUT, WIDTH, dtype=dtype), numbers(ROWS, COLUMNS, DEPTH, WIDTH, dtype=dtype)
    h, (ins, outs) = numbers(BATCH, IN, DEPTH, dtype=dtype), indexes()
    node = OpenCLSparseBlockGemv(inplace)(*map(variable, (o, w, h)), ins, outs).owner
    array = device_array(o, [1, -1, 2])
    (got,) = run(node, [array, device_array(w, [1, 1, -1, 2]), device_array(h, [-1, 2, 1]), ins, outs])
    want = on_host(blocksparse.sparse_block_gemv, [o, w, h, ins, outs])
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(array.get(), got if inplace else o)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype, rtol", [("float32", 0), ("float64", 0), ("float16", 1e-2)])
def test_outer_products_in_the_order_of_the_host(dtype, rtol, inplace):
    o = numbers(ROWS, COLUMNS, DEPTH, WIDTH, dtype=dtype)
    x, y, (ins, outs) = numbers(BATCH, IN, DEPTH, dtype=dtype), numbers(BATCH, OUT, WIDTH, dtype=dtype), indexes()
    ins[1] = ins[0]
    node = OpenCLSparseBlockOuter(inplace)(*map(variable, (o, x, y)), ins, outs).owner
    array = device_array(o, [1, -1, 1, 2])
    (got,) = run(node, [array, device_array(x, [1, 1, -1]), device_array(y, [2, -1, 1]), ins, outs, np.float32(1)])
    want = on_host(blocksparse.sparse_block_outer, [o, x, y, ins, outs, 1])
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(array.get(), got if inplace else o)


def test_what_does_not_fit_is_refused():
    o, w, h = numbers(1, 1, 2), numbers(2, 2, 3, 2), numbers(1, 1, 3)
    one, two = np.array([[1]]), np.array([[2]])
    op = OpenCLSparseBlockGemv()
    node = op(*map(variable, (o, w, h)), one, one).owner
    arrays = [device_array(x) for x in (o, w, h)]
    with pytest.raises(IndexError, match="index 2 is out of bounds for axis 1 with size 2"):
        run(node, [*arrays, one, two])
    with pytest.raises(IndexError, match="a batch of 1 times 1 blocks"):
        run(node, [*arrays, one[:0], one])
    with pytest.raises(ValueError, match="shapes do not fit"):
        run(node, [*arrays[:2], device_array(numbers(1, 1, 4)), one, one])
    outer = OpenCLSparseBlockOuter()
    node = outer(variable(w), variable(h), variable(o), one, one).owner
    with pytest.raises(ValueError, match="shapes do not fit"):
        run(node, [arrays[1], arrays[0], arrays[2], one, one, np.float32(1)])


def test_nothing_is_added_where_nothing_is_named():
    o, w, h = numbers(2, 3, 2), numbers(2, 2, 3, 2), numbers(2, 0, 3)
    ins, outs = np.zeros((2, 0), "int64"), np.zeros((2, 3), "int64")
    node = OpenCLSparseBlockGemv()(*map(variable, (o, w, h)), ins, outs).owner
    (got,) = run(node, [device_array(x) for x in (o, w, h)] + [ins, outs])
    np.testing.assert_array_equal(got, o)
    node = OpenCLSparseBlockOuter()(*map(variable, (w, h, o)), ins, outs).owner
    (got,) = run(node, [device_array(x) for x in (w, h, o)] + [ins, outs, np.float32(1)])
    np.testing.assert_array_equal(got, w)


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
