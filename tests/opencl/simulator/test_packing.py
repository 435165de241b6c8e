"""Functions read and write contiguous shared variables in place, and one transfer copies all of them."""

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


def commit_of(sim):
    """Return the commands with which a simulator's call commits next values at its end."""
    entry = sim._executable.run._current_entry()
    entry.plan.restore_cells()
    return entry.plan.commit.commands()


def test_next_values_of_scratch_variables_are_computed_where_these_lie(variables):
    a, b, c, d = variables
    for variable in variables[:3]:
        variable.tag.is_scratch = True
    d.set_value(np.zeros(50))
    updates = [(a, x * 2), (b, x.sum(axis=0)), (c, tt.exp(x)), (d, d[::-1] + x.astype("float64").sum(axis=0))]
    f = compiled([x], [x.max()], updates=updates)
    with optdb.SimulatorOCL(f, "dev0") as sim:
        packed = PackedVariables(sim, variables[:3])
        sums = d.get_value()
        for number in range(6):
            value = numbers(40, 50) + number
            assert sim(value)[0] == value.max()
            packed.download()
            packed.release()
            sums = sums[::-1] + value.astype("float64").sum(axis=0)
            wanted = [value * 2, value.sum(axis=0), np.exp(value), sums]
            for variable, each in zip(variables, wanted, strict=True):
                np.testing.assert_allclose(sim.get(variable), each, rtol=1e-4)
        # Only `d` is copied, because the computation of its next value reads its current value.
        assert [command.nbytes for command in commit_of(sim)] == [8 * 50]


@pytest.mark.parametrize("kind", ["read", "returned", "a view", "part of another one", "the same twice"])
def test_values_that_cannot_be_computed_there(kind):
    a, b = (held(2, name) for name in "ab")
    for variable in (a, b):
        variable.tag.is_scratch = True
        variable.set_value(np.ones((6, 5), "float32"))
    following = tt.exp(x)
    updates, outputs = {
        "read": ([(a, a + x), (b, b * 2)], []),
        "returned": ([(a, following), (b, x + 1)], [a, following]),
        "a view": ([(a, following.T.T[::-1]), (b, x + 1)], []),
        "part of another one": ([(a, tt.exp(tt.concatenate([x, x]))[:6]), (b, x + 1)], []),
        "the same twice": ([(a, following), (b, following)], [following * 2]),
    }[kind]
    f = compiled([x], outputs, updates=updates)
    with optdb.SimulatorOCL(f, "dev0") as sim:
        packed = PackedVariables(sim, [a, b])
        for number in range(5):
            value = numbers(6, 5) - number
            results, expected = sim(value), f(value)
            for result, wanted in zip(results, expected, strict=True):
                np.testing.assert_allclose(result, wanted, rtol=1e-5)
            packed.download()
            packed.release()
            for variable in (a, b):
                np.testing.assert_allclose(sim.get(variable), variable.get_value(), rtol=1e-5)


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
