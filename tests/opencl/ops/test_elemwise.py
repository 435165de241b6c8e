"""OpenCLElemwise agrees with NumPy for various shapes, layouts and dtypes, also in place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scalar import basic as scalar

from optdb.opencl import OpenCLArrayType
from optdb.opencl.ops.elemwise import OpenCLElemwise, cast
from tests.effort import examples
from tests.opencl.layouts import broadcast_pair, device_array, laid_out, run, variable
from tests.opencl.lifted import both, lifted_function, ops_of
from tests.opencl.test_scalar_programs import Odd

ODD = Odd(scalar.same_out, name="odd")

DTYPES = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]


def check(op, pairs, patterns=None):
    """Compare an op on the device with the host's Elemwise; `pairs` are NumPy arrays and equal device arrays."""
    hosts, arrays = zip(*pairs)
    patterns = patterns or [tuple(length == 1 for length in value.shape) for value in hosts]
    node = OpenCLElemwise(op)(*[variable(v, p) for v, p in zip(hosts, patterns)], return_list=True)[0].owner
    inputs = [tt.TensorType(v.dtype, p)() for v, p in zip(hosts, patterns)]
    reference = theano.tensor.Elemwise(op).make_node(*inputs)
    storage = [[None] for _ in reference.outputs]
    with np.errstate(all="ignore"):
        reference.op.prepare_node(reference, None, None, "py")
        reference.op.perform(reference, list(hosts), storage)
    for got, (want,) in zip(run(node, list(arrays)), storage, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-3 if got.dtype == "float16" else 1e-5)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(40))
def test_adds_arrays_of_any_layout_that_broadcast(data):
    dtypes = data.draw(st.sampled_from([("float32", "float32"), ("int32", "float32"), ("float64", "int8")]))
    check(scalar.add, data.draw(broadcast_pair(dtypes)))


@pytest.mark.slow
@given(st.data(), st.sampled_from(DTYPES))
@settings(max_examples=examples(30))
def test_dtypes_come_and_go_as_on_the_host(data, dtype):
    pair = [data.draw(laid_out(dtype, (3, 2))), data.draw(laid_out(dtype, (3, 2)))]
    check(scalar.maximum, pair)
    check(scalar.second, pair)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_casts_to_every_other(each_device_kind, dtype):
    value = np.array([[0, 1, 5], [100, 3, 1]]).astype(dtype)
    x = variable(value)
    node = cast(x, "float16" if dtype != "float16" else "float64").owner
    np.testing.assert_array_equal(run(node, [device_array(value, [1, -2])])[0], value)
    for target in ("int16", "bool", "float32"):
        if target != dtype:
            (got,) = run(cast(x, target).owner, [device_array(value)])
            np.testing.assert_array_equal(got, value.astype(target))


def test_several_outputs(each_device_kind):
    x, y = scalar.float32("x"), scalar.int64("y")
    op = scalar.Composite([x, y], [scalar.add(x, y), scalar.mul(y, 3), scalar.lt(x, y)])
    a, b = np.linspace(-2, 2, 5).astype("float32"), np.arange(5)
    node = OpenCLElemwise(op)(variable(a), variable(b), return_list=True)[0].owner
    first, second, third = run(node, [device_array(a), device_array(b, [-2])])
    np.testing.assert_array_equal(first, a + b.astype("float64"))
    np.testing.assert_array_equal(second, 3 * b)
    np.testing.assert_array_equal(third, a < b)


@pytest.mark.parametrize("steps", [[1, 1], [-1, 2]])
def test_in_place(each_device_kind, steps):
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.array([[1, 10, 100]], dtype="float32")
    x, y = device_array(a, steps), device_array(b)
    op = OpenCLElemwise(scalar.add, {0: 0})
    assert op.destroy_map == {0: [0]}
    node = op(variable(a), variable(b, (True, False))).owner
    storage = [[None]]
    node.op.perform(node, [x, y], storage)
    assert storage[0][0] is x
    np.testing.assert_array_equal(x.get(), a + b)


def test_lengths_that_differ_are_refused():
    a, b = np.ones((2, 3), "float32"), np.ones((1, 3), "float32")
    node = OpenCLElemwise(scalar.add)(variable(a), variable(b)).owner
    with pytest.raises(ValueError, match=r"Dimension mismatch at axis 0.*\(2, 3\), \(1, 3\)"):
        run(node, [device_array(a), device_array(b)])


def test_what_has_no_code_is_refused_by_name():
    x = OpenCLArrayType("complex64", (False,), "dev0")()
    with pytest.raises(TypeError, match="Erf of complex numbers"):
        OpenCLElemwise(theano.scalar.erf)(x)
    with pytest.raises(TypeError, match="Odd"):
        OpenCLElemwise(ODD)(variable(np.ones(2, "float32")))


def test_inputs_of_fewer_dimensions_come_from_the_host():
    x = variable(np.ones((2, 3), "float32"))
    y = OpenCLElemwise(scalar.add)(x, tt.fvector(), 2.5)
    assert y.type == OpenCLArrayType("float32", (False, False), "dev0")


def test_an_op_is_pickled_and_equal():
    op = OpenCLElemwise(scalar.add, {0: 0})
    again = pickle.loads(pickle.dumps(op))
    assert again == op and hash(again) == hash(op) and again != theano.tensor.Elemwise(scalar.add, {0: 0})


def test_lifted_with_what_it_cannot_do_left_on_the_host():
    x, z = tt.fmatrix(), tt.cvector()
    a = np.arange(6, dtype="float32").reshape(2, 3)
    c = np.array([1 + 2j, 3], "complex64")
    got, want, ops = both([x, z], [tt.exp(x) * 2 + x[0], tt.Elemwise(ODD)(x + 1)], [a, c])
    for mine, theirs in zip(got, want):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert OpenCLElemwise in ops and tt.Elemwise in ops
    ops = ops_of(lifted_function([z], [tt.erf(z)]))
    assert ops == [tt.Elemwise]


def test_gradients():
    x = variable(np.ones((2, 3), "float32"))
    y = OpenCLElemwise(scalar.mul)(x, x, np.float32(3))
    gradient = theano.grad(y.sum(), x)
    f = theano.function([x], gradient, mode=theano.Mode("py", None))
    a = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(np.asarray(f(device_array(a))), 6 * a)
