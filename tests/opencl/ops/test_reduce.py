"""Reductions on the device agree with the host's for all axes, layouts and dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scalar import basic as scalar

from optdb.opencl.ops.reduce import OpenCLCAReduce
from tests.effort import examples
from tests.opencl.layouts import device_array, laid_out, run, shapes, variable
from tests.opencl.lifted import both

HOST = tt.elemwise.CAReduceDtype


def host_result(op, value):
    node = HOST(op.scalar_op, op.axis, op.dtype, op.acc_dtype).make_node(
        tt.TensorType(value.dtype, (False,) * value.ndim)()
    )
    storage = [[None]]
    with np.errstate(all="ignore"):
        node.op.perform(node, [value], storage)
    return storage[0][0]


def check(op, value, array):
    node = op(variable(value)).owner
    want = host_result(node.op, value)
    (got,) = run(node, [array])
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-3 if got.dtype == "float16" else 1e-5)


@pytest.mark.slow
@given(st.data(), st.sampled_from(["add", "mul", "maximum", "minimum"]))
@settings(max_examples=examples(50))
def test_any_axes_of_any_layout(data, name):
    shape = data.draw(shapes())
    if name in ("maximum", "minimum"):
        shape = tuple(max(length, 1) for length in shape)
    axes = data.draw(st.none() | st.sets(st.integers(0, len(shape) - 1)) if shape else st.none())
    value, array = data.draw(laid_out("float32", shape))
    check(OpenCLCAReduce(getattr(scalar, name), None if axes is None else sorted(axes)), value, array)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["add", "mul", "maximum"])
def test_dtypes_of_results_are_those_of_the_host(each_device_kind, dtype, name):
    value = np.array([[3, 100, 0], [5, 7, 1]]).astype(dtype)
    op = OpenCLCAReduce(getattr(scalar, name), 1)
    check(op, value, device_array(value, [1, -1]))


@pytest.mark.parametrize("dtype, acc_dtype", [("float32", "float32"), ("int64", "float64"), ("float16", "float32")])
def test_given_dtypes_are_kept(dtype, acc_dtype):
    value = np.arange(6, dtype="float16" if dtype == "float16" else "int8").reshape(2, 3)
    check(OpenCLCAReduce(scalar.add, None, dtype, acc_dtype), value, device_array(value))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_nothing_folds_to_what_adds_nothing(axis):
    for name in ("add", "mul"):
        value = np.zeros((0, 3) if axis != 1 else (3, 0), "float32")
        check(OpenCLCAReduce(getattr(scalar, name), axis), value, device_array(value))
    value = np.zeros((0, 3), "float32")
    node = OpenCLCAReduce(scalar.maximum, 0)(variable(value)).owner
    with pytest.raises(ValueError, match="no elements to reduce"):
        run(node, [device_array(value)])
    assert run(OpenCLCAReduce(scalar.maximum, 1)(variable(value)).owner, [device_array(value)])[0].shape == (0,)


def test_what_cannot_be_folded_is_refused():
    x = variable(np.ones(3, "float32"))
    with pytest.raises(TypeError, match="Sub"):
        OpenCLCAReduce(scalar.sub)(x)


@pytest.mark.slow_cases("cpu-None-bool", "cpu-0-bool", "gpu-None-bool", "gpu-0-bool")
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_products_that_leave_out_zeros(each_device_kind, dtype, axis):
    rng = np.random.default_rng(4)
    value = (rng.choice([0, 0, 1, 2, 3], (21, 37)) * (rng.uniform(size=(21, 37)) < 0.05)).astype(dtype)
    value[:, 5] = value[7] = 0
    op = OpenCLCAReduce(tt.elemwise.mul_without_zeros, axis)
    check(op, value, device_array(value, [-1, 2]))
    check(op, value[:0], device_array(value[:0]))
    check(op, value * 0, device_array(value * 0))


@pytest.mark.slow
def test_gradients_of_products_over_zeros():
    x = tt.fmatrix()
    value = np.random.default_rng(5).uniform(0.5, 2, (4, 6)).astype("float32")
    value[1, 2] = value[2, 1] = value[2, 4] = 0
    for axis in (None, 0, 1):
        got, want, ops = both([x], [theano.grad(tt.sqr(x.prod(axis=axis)).sum() + x.prod(axis=axis).sum(), x)], [value])
        np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
        assert np.asarray(want[0]).any() or axis is None
        assert not any(issubclass(op, HOST) and op is not OpenCLCAReduce for op in ops), ops


@pytest.mark.slow
def test_lifted_from_all_classes():
    x = tt.fmatrix()
    a = np.random.default_rng(1).uniform(-1, 1, (4, 5)).astype("float32")
    caremax = tt.elemwise.CAReduce(scalar.maximum, 0)
    without_zeros = tt.elemwise.ProdWithoutZeros(0)(x)
    outputs = [x.sum(), x.mean(axis=0), x.prod(axis=1), caremax(x), without_zeros]
    outputs += [tt.any(tt.gt(x, 0.5), axis=0), tt.all(tt.gt(x, -1))]
    got, want, ops = both([x], outputs, [a])
    for mine, theirs in zip(got, want):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert ops.count(OpenCLCAReduce) == 7


@pytest.mark.parametrize("name, want", [("add", [[1, 1], [1, 1]]), ("mul", [[2, 1], [4, 3]])])
def test_gradients(name, want):
    value = np.array([[1, 2], [3, 4]], "float32")
    x = variable(value)
    gradient = theano.grad(OpenCLCAReduce(getattr(scalar, name), 1)(x).sum(), x)
    f = theano.function([x], gradient, mode=theano.Mode("py", None))
    np.testing.assert_allclose(np.asarray(f(device_array(value))), want)


def test_what_has_no_gradient_says_so():
    x = variable(np.ones((2, 2), "float32"))
    with pytest.raises(theano.gradient.NullTypeGradError, match="maximum"):
        theano.grad(OpenCLCAReduce(scalar.maximum)(x).sum(), x)
