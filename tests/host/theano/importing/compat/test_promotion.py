"""Operators give the types and values of NumPy 1, with any NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from optdb.host.theano.importing.compat import promotion
from optdb.host.theano.importing.compat.promotion import OPERATORS
from tests.host.theano.importing.compat import numpy1

NUMPY_1 = np.lib.NumpyVersion(np.__version__) < "2.0.0"


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _lines():
    return [line.split(" ") for line in numpy1.TABLE.read_text().splitlines()]


@pytest.mark.skipif(not NUMPY_1, reason="compares the table with NumPy 1")
def test_the_table_tells_what_numpy_1_gives():
    for role, code, types in _lines():
        a = numpy1.left(role, code)
        assert "".join(numpy1.type_of(a + operand) for operand in numpy1.OPERANDS) == types


@pytest.mark.skipif(NUMPY_1, reason="operators are replaced for NumPy 2 only")
@pytest.mark.parametrize(("role", "code", "types"), _lines())
def test_types_are_those_of_numpy_1(role, code, types):
    a = numpy1.left(role, code)
    for operand, wanted in zip(numpy1.OPERANDS, types, strict=True):
        assert numpy1.type_of(OPERATORS["Add"](a, operand)) == wanted, f"{a!r} + {operand!r}"
        assert numpy1.type_of(OPERATORS["Add"](operand, a)) == wanted, f"{operand!r} + {a!r}"


@pytest.mark.parametrize(("a", "b"), [("%d", 3), ([1], [2]), ((), (1,)), (object, None), (True, 2), (2, 3), (1.5, "x")])
def test_other_operands_are_left_alone(a, b):
    assert promotion.convert(a, b) == (a, b)
    assert promotion.convert(a, b)[0] is a


def test_a_value_of_an_array_is_compared_in_the_array_s_type():
    array = np.array([0.1], "float32")
    assert OPERATORS["Eq"](array, 0.1)
    assert OPERATORS["Eq"](array, np.float64(0.1))
    # If both operands are scalars, their types determine the common type: 0.1 is not rounded to a float32.
    assert not OPERATORS["Eq"](array[0], 0.1)


def test_in_place_operators_work_in_place():
    array = np.array([1.0], "float32")
    assert OPERATORS["IMult"](array, np.float64(2)) is array
    assert array[0] == 2
    small = np.array([1], "int8")
    assert OPERATORS["IAdd"](small, 300) is small
    assert small[0] == np.array(301).astype("int8")


def test_the_type_of_several_operands():
    f32 = np.ones(2, "float32")
    assert promotion.result_type([f32, np.float64(0.1)]) == "float32"
    assert promotion.result_type([f32, 1e300]) == "float64"
    assert promotion.result_type([np.float32(1), 0.1]) == "float64"
    assert promotion.result_type([np.dtype("int8"), 300]) == "int16"
    assert promotion.result_type(["int8", "uint8"]) == "int16"


@pytest.mark.parametrize(
    ("value", "dtype", "fits"),
    [(100, "int8", True), (200, "int8", False), (200, "uint8", True), (-1, "uint8", False), (1.5, "float16", True)],
)
def test_whether_a_value_can_be_cast(value, dtype, fits):
    assert promotion.can_cast_value(value, np.dtype(dtype)) is fits
