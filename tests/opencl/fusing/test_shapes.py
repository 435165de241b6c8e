"""The shape of an elementwise result is taken from its operands: no array is stored only for its shape."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import Shape, Shape_i

from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce

X = np.random.default_rng(3).normal(2, 3, (6, 3, 4, 5)).astype("float32")
ROW = np.arange(5, dtype="float32")


def there(value):
    return theano.shared(value, target="dev0")


def lifted(*outputs):
    return theano.function([], list(outputs), mode=theano.Mode("py", "fast_run").including("opencl"))


def nodes_of(function, *kinds):
    return [node for node in function.maker.fgraph.toposort() if isinstance(node.op, kinds)]


def test_a_variance_is_one_pass_over_its_array():
    x = there(X)
    mean = x.mean((0, 2, 3), keepdims=True)
    squares = (x - mean) ** 2
    # The count is computed from the shape of `squares` instead of `x`, as in an expanded batch normalization.
    count = tt.prod([Shape()(squares)[axis] for axis in (0, 2, 3)]).astype("float32")
    f = lifted(squares.sum((0, 2, 3)) / count, Shape_i(1)(squares))
    variance, channels = f()
    np.testing.assert_allclose(variance, X.astype("float64").var((0, 2, 3)), rtol=1e-5)
    assert channels == 3
    folded = [node.op.pre_scalar_op for node in nodes_of(f, OpenCLCAReduce)]
    assert any(program is not None and "sqr" in str(program) for program in folded), f.maker.fgraph.toposort()
    assert not [node for node in nodes_of(f, OpenCLElemwise) if node.outputs[0].type.ndim == 4]


def test_an_operand_that_is_broadcast_has_another_shape():
    row, x = there(ROW), there(X[:, 0, 0, 0])
    grid = row.dimshuffle("x", 0) + x.dimshuffle(0, "x")
    f = lifted(Shape()(tt.exp(grid * 2)), tt.exp(grid * 2).sum())
    shape, total = f()
    assert tuple(shape) == (6, 5)
    np.testing.assert_allclose(total, np.exp(2 * (ROW + X[:, :1, 0, 0].astype("float64"))).sum(), rtol=1e-5)


@pytest.mark.parametrize("value", [X, X[:0], X[:, :, 0, 0]])
def test_shapes_of_chains(value):
    x = there(value)
    y = tt.tanh(tt.exp(x) + 1)
    f = lifted(Shape()(y), Shape_i(0)(y), y.sum())
    shape, first, total = f()
    assert tuple(shape) == value.shape and first == len(value)
    np.testing.assert_allclose(total, np.tanh(np.exp(value.astype("float64")) + 1).sum(), rtol=1e-5)
    assert not nodes_of(f, OpenCLElemwise)
