"""Shared variables that lie next to each other: functions write and read them there, and one transfer moves all."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.opencl.simulator.packing import PackedVariables, finish, is_placed
from optdb.runtime.arrays import Array

x = tt.matrix("x", dtype="float32")


def compiled(inputs, outputs=(), **kwargs):
    return theano.function(inputs, list(outputs), mode=theano.Mode("py", "fast_run"), **kwargs)


def held(rank, name, dtype="float32"):
    return theano.shared(np.zeros((0,) * rank, dtype), name)


@pytest.fixture
def variables():
    return [held(2, "a"), held(1, "b"), held(2, "c"), held(1, "d", "float64")]


@pytest.fixture
def sim(variables):
    a, b, c, d = variables
    updates = [(a, x * 2), (b, x.sum(axis=0)), (c, x.T), (d, x.astype("float64").mean(axis=1))]
    with optdb.SimulatorOCL(compiled([x], updates=updates), "dev0") as sim:
        sim.add_method("sums", compiled([], [tt.exp(a), b + 1, c.sum(axis=0), d * 3]))
        yield sim


def expected(value):
    return [value * 2, value.sum(axis=0), value.T, value.astype("float64").mean(axis=1)]


def check(sim, value):
    a, b, c, d = expected(value)
    for found, wanted in zip(sim.sums(), [np.exp(a), b + 1, c.sum(axis=0), d * 3], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def numbers(*shape):
    return np.random.RandomState(sum(shape)).uniform(-1, 1, shape).astype("float32")


def test_functions_write_and_read_where_the_variables_lie(sim, variables):
    packed = PackedVariables(sim, variables)
    for number in range(6):
        value = numbers(4, 5) + number
        sim(value)
        vectors = packed.download()
        assert [vector.dtype for vector in vectors] == ["float32", "float64"]
        for vector, members in zip(vectors, ([0, 1, 2], [3]), strict=True):
            total = sum(expected(value)[i].sum() for i in members)
            np.testing.assert_allclose(vector.sum(dtype="float64"), total, rtol=1e-5)
        packed.release()
        check(sim, value)
        for vector in packed.open():
            vector *= 2
        packed.upload()
        for variable, wanted in zip(variables, expected(value), strict=True):
            np.testing.assert_allclose(sim.get(variable), 2 * wanted, rtol=1e-5)


def test_other_shapes_are_packed_anew(sim, variables):
    packed = PackedVariables(sim, variables)
    for shape in [(4, 5), (2, 3), (2, 3), (0, 3), (1, 1), (4, 5), (4, 5)]:
        value = numbers(*shape)
        sim(value)
        packed.download()
        packed.release()
        assert packed.shapes == [np.shape(wanted) for wanted in expected(value)]
        for variable, wanted in zip(variables, expected(value), strict=True):
            np.testing.assert_allclose(sim.get(variable), wanted, rtol=1e-5)


def test_arrays_stay_where_they_are(sim, variables):
    packed = PackedVariables(sim, variables[:2])
    cells = [sim._state.find(variable).cell for variable in variables[:2]]
    places = set()
    for _ in range(5):
        sim(numbers(4, 5))
        packed.download()
        packed.release()
        places.add(tuple((cell[0].base_data.int_ptr, cell[0].offset) for cell in cells))
    ((first, second),) = places
    assert first[0] == second[0] and first[1] != second[1]


def test_a_layout_that_is_given(sim, variables):
    packed = PackedVariables(sim, variables)
    value = numbers(2, 3)
    packed.lay_out([wanted.shape for wanted in expected(value)])
    assert packed.shapes == [wanted.shape for wanted in expected(value)]
    sim(value)
    finish(sim)
    other = PackedVariables(sim, variables)
    other.pack()
    for variable, wanted in zip(variables, expected(value), strict=True):
        np.testing.assert_allclose(sim.get(variable), wanted, rtol=1e-5)


def test_which_variables_are_on_the_device(sim, variables):
    assert all(is_placed(sim, variable) for variable in variables)
    assert all(isinstance(sim._state.find(variable).cell[0], Array) for variable in variables)
    count = theano.shared(np.zeros((), "int64"), "count")
    sim.add_method("counted", compiled([x], updates=[(count, x.shape[0])]))
    assert not is_placed(sim, count)
