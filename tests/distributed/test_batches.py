"""Arguments are bound to parameters, and batches are divided among workers."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb.distributed.batches import axes_of, bound, parts_of
from optdb.host.theano.functions.originals import original_of
from tests.distributed.hosts import compiled

x, rate = tt.dmatrix("x"), tt.dscalar("rate")


@pytest.fixture
def arguments():
    return original_of(compiled([x, theano.In(rate, value=0.5)], [x * rate])).arguments


def test_arrays_are_split_along_axis_0_and_numbers_are_not(arguments):
    assert axes_of(arguments, None) == {x: 0}
    assert axes_of(arguments, {"x": 1}) == axes_of(arguments, {x: 1}) == {x: 1}


@pytest.mark.parametrize(
    ("axes", "error", "message"),
    [
        ({"z": 0}, KeyError, "not an argument of the function; its arguments are: x, rate"),
        ({"x": 2}, ValueError, "cannot be split along axis 2"),
        ({"rate": 0}, ValueError, "cannot be split along axis 0"),
        ({"x": None}, ValueError, "no argument is split"),
    ],
)
def test_axes_that_are_refused(arguments, axes, error, message):
    with pytest.raises(error, match=message):
        axes_of(arguments, axes)


def test_arguments_by_position_name_and_default(arguments):
    value = np.ones((2, 3))
    for args, kwargs, expected in [((value,), {}, 0.5), ((value, 2.0), {}, 2), ((), {"x": value, "rate": 3.0}, 3)]:
        found, number = bound(arguments, args, kwargs)
        assert (found == value).all() and number == expected


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "x is missing"),
        ((np.ones((2, 3)), 1.0, 2.0), {}, "takes 2 arguments, but 3 were given"),
        ((np.ones((2, 3)),), {"other": 1}, "no argument 'other'"),
        ((np.ones((2, 3)),), {"x": 1}, "given twice"),
        ((np.ones(3),), {}, "dim"),
    ],
)
def test_arguments_that_are_refused(arguments, args, kwargs, message):
    with pytest.raises(TypeError, match=message):
        bound(arguments, args, kwargs)


@pytest.mark.parametrize(("rows", "expected"), [(7, [3, 2, 2]), (6, [2, 2, 2]), (2, [1, 1, 0])])
def test_parts(arguments, rows, expected):
    value = np.arange(rows * 2.0).reshape(rows, 2)
    parts = parts_of(arguments, [value, 0.5], {x: 0}, 3)
    assert [part.rows for part in parts] == expected
    assert all(part.length == rows for part in parts)
    given = [part.arguments[0] for part in parts if part.rows]
    np.testing.assert_array_equal(np.concatenate(given), value)
    assert [part.first for part in parts if part.rows] == list(np.cumsum([0, *map(len, given[:-1])]))


def test_lengths_that_differ_are_refused():
    y = tt.dvector("y")
    arguments = original_of(compiled([x, y], [x.sum() + y.sum()])).arguments
    with pytest.raises(ValueError, match=r"x has 4 along axis 0, y has 3 along axis 0.*\nThe cure"):
        parts_of(arguments, [np.ones((4, 2)), np.ones(3)], {x: 0, y: 0}, 2)
    with pytest.raises(ValueError, match="no rows"):
        parts_of(arguments, [np.ones((0, 2)), np.ones(0)], {x: 0, y: 0}, 2)
