"""Reductions and views, computed on whole arrays, agree with ``perform``."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from theano import scalar as ts
from theano.tensor import TensorType
from theano.tensor.elemwise import All, Any, CAReduce, DimShuffle, Prod, ProdWithoutZeros, Sum

from tests.host.theano.vectorized.nodes import assert_alike, by_perform, by_whole_arrays, numbers

AXES = [None, (), (0,), (1,), (0, 2), (0, 1, 2)]


def integers(shape, dtype="int8"):
    return np.random.RandomState(0).randint(0, 5, shape).astype(dtype)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 1, 1), (2, 0, 3)], ids=str)
@pytest.mark.parametrize(
    "kind, dtype",
    [
        *((kind, dtype) for kind in (Sum, Prod, ProdWithoutZeros) for dtype in ("float32", "float64", "int8", "bool")),
        *((kind, "bool") for kind in (All, Any)),
    ],
)
def test_sums_and_products(kind, dtype, shape, axis):
    node = kind(axis=axis).make_node(TensorType(dtype, [False] * 3)())
    array = integers(shape, dtype)
    array[array == 3] = 0
    assert_alike(by_whole_arrays(node, [array]), by_perform(node, [array]), rtol=1e-6)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("op", [ts.maximum, ts.minimum, ts.and_, ts.or_, ts.xor])
def test_other_scalar_ops(op, axis):
    array = integers((3, 5, 4), "int64")
    node = CAReduce(op, axis).make_node(tt.ltensor3())
    assert_alike(by_whole_arrays(node, [array]), by_perform(node, [array]))


def test_the_input_is_not_returned():
    array = numbers((3, 1, 1))
    for axis in (None, (), (1,)):
        (result,) = by_whole_arrays(Sum(axis=axis).make_node(tt.dtensor3()), [array])
        assert not np.shares_memory(result, array)


def test_the_largest_of_nothing():
    node = CAReduce(ts.maximum, 0).make_node(tt.dvector())
    with pytest.raises(ValueError, match="zero-size"):
        by_whole_arrays(node, [np.zeros(0)])


@pytest.mark.parametrize(
    "pattern, order",
    [
        ((False, False), (1, 0)),
        ((False, True), (0,)),
        ((True, False), ("x", 1, "x")),
        ((True, False, False), (2, "x", 1)),
        ((), ("x", "x")),
        ((True,), ()),
        ((False, False), (0, 1)),
    ],
)
def test_axes(pattern, order):
    array = numbers(tuple(1 if flag else 2 + axis for axis, flag in enumerate(pattern)))
    op = DimShuffle(pattern, order)
    node = op.make_node(TensorType("float64", pattern)())
    results = by_whole_arrays(node, [array])
    assert_alike(results, by_perform(node, [array]))
    assert np.shares_memory(results[0], array)


def test_more_axes_than_arrays_have():
    node = DimShuffle((), ("x",) * 70).make_node(tt.dscalar())
    with pytest.raises(TypeError):
        by_whole_arrays(node, [np.zeros(())])  # there is no function of arrays, so `perform` raises the error


def test_a_dropped_axis_has_one_element():
    node = DimShuffle((False, True), (0,)).make_node(tt.dcol())
    with pytest.raises(ValueError):
        by_whole_arrays(node, [numbers((2, 3))])
