"""Lifted advanced indexing agrees with the host."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb.opencl import HostFromOpenCL
from optdb.opencl.ops import parts
from tests.opencl.lifted import both, host_function, lifted_function, ops_of

ROWS, COLUMNS = np.array([2, 0, -1, 2]), np.array([[1], [-2]], "int8")
FULL, BACK = slice(None), slice(None, None, -1)
RNG = np.random.default_rng(0)
SHAPE = (3, 4, 2)


NO_ELEMENTS = {
    "rows": lambda x, i, v: (x, (i,), v),
    "rows of part": lambda x, i, v: (x[1:], (i,), v),
    "columns": lambda x, i, v: (x, (FULL, i), v),
    "matrix of indexes": lambda x, i, v: (x, (i.dimshuffle("x", 0),), v),
    "two arrays": lambda x, i, v: (x, (i, i), v),
    "a new axis": lambda x, i, v: (x, (i, None), v),
    "three axes": lambda x, i, v: (x.dimshuffle(0, "x", 1), (i,), v),
}


@pytest.mark.parametrize("name", NO_ELEMENTS)
@pytest.mark.parametrize("kind", ["take", "set", "inc"])
def test_indexes_where_rows_have_no_elements_are_checked_as_on_the_host(kind, name):
    """If rows have no elements, NumPy 1 warns about wrong indexes, and NumPy 2 raises; the device does the same."""
    x, i, v = tt.fmatrix(), tt.lvector(), tt.fscalar()
    base, index, value = NO_ELEMENTS[name](x, i, v)
    change = {"take": lambda part, _: part, "set": tt.set_subtensor, "inc": tt.inc_subtensor}[kind]
    out = change(base[index], value)
    on_host, on_device = host_function([x, i, v], out), lifted_function([x, i, v], [out], [i, v])
    for shape in [(0, 0), (2, 0), (0, 3), (2, 3)]:
        for indexes in ([5], [-9], [0, 5], [0], []):
            args = np.ones(shape, "float32"), np.array(indexes, "int64"), np.float32(2)
            wanted, got = outcome(on_host, args), outcome(lambda *args: on_device(*args)[0], args)
            assert got == wanted, (shape, indexes)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(IndexError):
            on_device(np.ones((0, 0), "float32"), np.array([5]), np.float32(2))


def outcome(function, args):
    """Return the shape and the bytes of a function's result, or the class of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            result = np.asarray(function(*args))
        except IndexError as error:
            return type(error)
    return result.shape, result.tobytes()


@pytest.mark.parametrize("x_dtype, y_dtype", [("float32", "float64"), ("int8", "int16"), ("float64", "int64")])
def test_dtypes_that_differ(x_dtype, y_dtype):
    x, y, i = tt.TensorType(x_dtype, (False,))(), tt.TensorType(y_dtype, (False,))(), tt.lvector()
    a, b = np.arange(5).astype(x_dtype), (np.arange(4) * 3 - 5).astype(y_dtype)
    out = parts.host.AdvancedIncSubtensor()(x, y, i)
    got, want, ops = both([x, y, i], [out], [a, b, np.array([0, 4, 0, 2])], at_home=[i])
    np.testing.assert_array_equal(got[0], want[0])
    assert got[0].dtype == want[0].dtype and parts.OpenCLAdvancedIncSubtensor in ops


@pytest.mark.slow
def test_lifted_with_indexes_at_home():
    x, y, i, j, n = tt.ftensor3(), tt.fmatrix(), tt.lvector(), tt.lmatrix(), tt.lscalar()
    a, b = RNG.uniform(-1, 1, SHAPE).astype("float32"), RNG.uniform(-1, 1, (4, 2)).astype("float32")
    outputs = [
        x[i, j],
        x[1:n, i],
        x[:, None, i],
        x[n - 2, :, i % 2],
        tt.inc_subtensor(x[i, i], y),
        tt.set_subtensor(x[i, :, i % 2], 2),
        theano.grad((x[i, j[0]] ** 2).sum(), x),
        tt.inc_subtensor(x[:, n:, i % 2], y[:, 0]),
    ]
    got, want, ops = both([x, y, i, j, n], outputs, [a, b, ROWS, COLUMNS.astype("int64"), 2], at_home=[i, j, n])
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert {parts.OpenCLAdvancedSubtensor, parts.OpenCLAdvancedIncSubtensor} <= set(ops)
    assert not any(op.__name__.startswith("Advanced") for op in ops)


def test_indexes_that_are_computed_on_the_device_come_home():
    x, y = tt.fmatrix(), tt.fmatrix()
    a, b = RNG.uniform(-1, 1, (4, 3)).astype("float32"), RNG.uniform(-1, 1, (4, 3)).astype("float32")
    best = tt.argmax(y, axis=1)
    outputs = [
        x[tt.arange(4), best],
        x[best],
        tt.set_subtensor(x[x > 0], 0.5),
        x[y > 0],
        tt.inc_subtensor(x[(y > 0).nonzero()], 2),
        theano.grad(x[y > 0].sum(), x),
    ]
    got, want, ops = both([x, y], outputs, [a, b])
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    kinds = {parts.OpenCLAdvancedSubtensor, parts.OpenCLAdvancedBooleanSubtensor,
             parts.OpenCLAdvancedIncSubtensor, parts.OpenCLAdvancedBooleanIncSubtensor}  # fmt: skip
    assert kinds <= set(ops)
    f = lifted_function([x, y], [x[tt.arange(4), best], tt.inc_subtensor(x[tt.arange(4), best], 1)])
    assert sum(isinstance(node.op, HostFromOpenCL) for node in f.maker.fgraph.apply_nodes) == 1


def test_what_numpy_does_not_add_stays_on_the_host():
    x, y, i = tt.lvector(), tt.fvector(), tt.lvector()
    f = lifted_function([x, y, i], [parts.host.AdvancedIncSubtensor()(x, y, i)], at_home=[i])
    assert parts.host.AdvancedIncSubtensor in ops_of(f)


def test_worked_in_place_where_nobody_needs_what_was_there(default):
    x, y, i = tt.fmatrix(), tt.fvector(), tt.lvector()
    mode = theano.Mode("py", "fast_run").including("opencl")
    outputs = [tt.inc_subtensor(tt.dot(x, x)[i, i], y), tt.dot(tt.set_subtensor(tt.dot(x, x)[x > 0], 1), x)]
    f = theano.function([x, y, i], outputs, mode=mode)
    nodes = [node for node in f.maker.fgraph.toposort() if hasattr(node.op, "set_instead_of_inc")]
    assert {type(node.op) for node in nodes} == {
        parts.OpenCLAdvancedIncSubtensor,
        parts.OpenCLAdvancedBooleanIncSubtensor,
    }
    a, b, at = np.arange(9, dtype="float32").reshape(3, 3) - 4, np.ones(3, "float32"), np.array([0, 0, 2])
    assert any(node.op.inplace for node in nodes)
    first, second = a @ a, a @ a
    np.add.at(first, (at, at), b)
    second[a > 0] = 1
    for got, want in zip(f(a, b, at), [first, second @ a], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("kind", [parts.OpenCLAdvancedIncSubtensor, parts.OpenCLAdvancedBooleanIncSubtensor])
def test_ops_are_pickled(kind):
    for op in (kind(), kind(True, True)):
        again = pickle.loads(pickle.dumps(op))
        assert again == op and getattr(again, "destroy_map", None) == getattr(op, "destroy_map", None)
