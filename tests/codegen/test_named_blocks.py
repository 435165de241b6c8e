"""Products with the blocks of a matrix on the device agree with NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from optdb.codegen.named_blocks import AddBlockProducts, AddOuterProducts
from optdb.codegen.operation import ArraySpec
from optdb.runtime.deferred import DeferredArray, FromArgument, ValuesUnknown
from tests.codegen.blocks import BATCH, COLUMNS, DEPTH, IN, OUT, ROWS, WIDTH, indexes, numbers
from tests.codegen.layouts import compute, context, device_array


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-4), ("float64", 1e-12), ("float16", 2e-2)])
def test_products(dtype, rtol, inplace):
    o, w = numbers(BATCH, OUT, WIDTH, dtype=dtype), numbers(ROWS, COLUMNS, DEPTH, WIDTH, dtype=dtype)
    h, (ins, outs) = numbers(BATCH, IN, DEPTH, dtype=dtype), indexes()
    array = device_array(o, [1, -1, 2])
    arrays = [array, device_array(w, [1, 1, -1, 2]), device_array(h, [-1, 2, 1])]
    (got,) = compute(AddBlockProducts(context(), ArraySpec.of(array), inplace), *arrays, ins, outs)
    want = o.astype("float64")
    for b, j, i in itertools.product(range(BATCH), range(OUT), range(IN)):
        want[b, j] += h[b, i].astype("float64") @ w[ins[b, i], outs[b, j]].astype("float64")
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(array.get(), got if inplace else o)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype, rtol", [("float32", 0), ("float64", 0), ("float16", 1e-2)])
def test_outer_products_are_added_in_order(dtype, rtol, inplace):
    o = numbers(ROWS, COLUMNS, DEPTH, WIDTH, dtype=dtype)
    x, y, (ins, outs) = numbers(BATCH, IN, DEPTH, dtype=dtype), numbers(BATCH, OUT, WIDTH, dtype=dtype), indexes()
    ins[1] = ins[0]
    array = device_array(o, [1, -1, 1, 2])
    arrays = [array, device_array(x, [1, 1, -1]), device_array(y, [2, -1, 1])]
    (got,) = compute(AddOuterProducts(context(), ArraySpec.of(array), inplace), *arrays, ins, outs)
    want = o.copy()
    for b, i, j in itertools.product(range(BATCH), range(IN), range(OUT)):
        want[ins[b, i], outs[b, j]] += np.outer(x[b, i], y[b, j])
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(array.get(), got if inplace else o)


def test_indexes_that_only_a_call_knows_are_refused():
    o, w, h = numbers(1, 1, 2), numbers(2, 2, 3, 2), numbers(1, 1, 3)
    later = DeferredArray((1, 1), np.dtype("int64"), FromArgument(4))
    arrays = [device_array(x) for x in (o, w, h)]
    with pytest.raises(ValuesUnknown, match="the values of argument 4 are not known before a call"):
        compute(AddBlockProducts(context(), ArraySpec.of(o)), *arrays, np.array([[1]]), later)


def test_what_does_not_fit_is_refused():
    o, w, h = numbers(1, 1, 2), numbers(2, 2, 3, 2), numbers(1, 1, 3)
    one, two = np.array([[1]]), np.array([[2]])
    arrays = [device_array(x) for x in (o, w, h)]
    operation = AddBlockProducts(context(), ArraySpec.of(o))
    with pytest.raises(IndexError, match="AddBlockProducts: index 2 is out of bounds for axis 1 with size 2"):
        compute(operation, *arrays, one, two)
    with pytest.raises(IndexError, match="a batch of 1 times 1 blocks"):
        compute(operation, *arrays, one[:0], one)
    with pytest.raises(ValueError, match="shapes do not match"):
        compute(operation, *arrays[:2], device_array(numbers(1, 1, 4)), one, one)
    with pytest.raises(ValueError, match="AddOuterProducts: shapes do not match"):
        compute(AddOuterProducts(context(), ArraySpec.of(w)), arrays[1], arrays[0], arrays[2], one, one)


def test_nothing_is_added_where_nothing_is_named():
    o, w, h = numbers(2, 3, 2), numbers(2, 2, 3, 2), numbers(2, 0, 3)
    ins, outs = np.zeros((2, 0), "int64"), np.zeros((2, 3), "int64")
    arrays = [device_array(x) for x in (o, w, h)]
    (got,) = compute(AddBlockProducts(context(), ArraySpec.of(o)), *arrays, ins, outs)
    np.testing.assert_array_equal(got, o)
    (got,) = compute(AddOuterProducts(context(), ArraySpec.of(w)), arrays[1], arrays[2], arrays[0], ins, outs)
    np.testing.assert_array_equal(got, w)
