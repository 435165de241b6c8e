"""Functions in mode OPENCL update shared variables, which can also be read and written between repeated calls."""

from __future__ import annotations

import copy
import pickle
import signal

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import optdb.pytensor
from optdb.device.functions.shared_values import ValueOnDevice
from optdb.pytensor import call_warnings, shared_variables
from tests.pytensor.comparing import sort_on_host


@pytest.fixture
def w():
    return pytensor.shared(np.arange(4.0), "w")


x = pt.vector("x")


def training(w, mode, **kwargs):
    return pytensor.function([x], (w * x).sum(), updates={w: w + x}, mode=mode, **kwargs)


def test_values_are_right_whoever_reads_them(w, mode):
    train, ones = training(w, mode), np.ones(4)
    others = [pytensor.function([], w * 2, mode=other) for other in (mode, Mode("py", None), "OPENCL")]
    for number in range(1, 9):
        assert train(ones) == (np.arange(4.0) + number - 1).sum()
        expected = np.arange(4.0) + number
        if number % 3 == 1:
            for other in others:
                np.testing.assert_array_equal(other(), expected * 2)
        if number % 3 == 2:
            for value in (w.get_value(), w.get_value(borrow=True), w.get_value(return_internal_type=True)):
                assert type(value) is np.ndarray
                np.testing.assert_array_equal(value, expected)
        np.testing.assert_array_equal(np.asarray(w.container.storage[0]), expected)


def test_a_value_stays_on_a_device_that_has_memory_of_its_own(w, mode):
    train = training(w, mode)
    for _ in range(4):
        train(np.ones(4))
    context = train.vm.jit_fn.function.context
    value = w.container.storage[0]
    assert isinstance(value, np.ndarray if context.profile.shares_host_memory else ValueOnDevice)


def test_values_that_are_set_are_used(w, mode):
    train, ones = training(w, mode), np.ones(4)
    for number in range(6):
        mine = np.full(4, float(number))
        w.set_value(mine, borrow=number % 2 == 1)
        train(ones)
        train(ones)
        np.testing.assert_array_equal(w.get_value(), np.full(4, number + 2.0))
        np.testing.assert_array_equal(mine, np.full(4, float(number)))
        w.zero()
        train(ones)
        np.testing.assert_array_equal(w.get_value(), ones)
        borrowed = w.get_value(borrow=True)
        borrowed[...] = 5
        w.set_value(borrowed, borrow=True)
        train(ones)
        np.testing.assert_array_equal(w.get_value(), ones + 5)


def test_a_large_array_that_was_edited_is_given_back(mode):
    data = pytensor.shared(np.ones(20_000))
    total = pytensor.function([], data.sum(), mode=mode)
    for number in range(1, 5):
        assert total() == 20_000 * number
        value = data.get_value(borrow=True)
        value += 1
        data.set_value(value, borrow=True)


def test_a_function_of_another_mode_updates_the_variable_in_place(w, mode):
    train, other = training(w, mode), training(w, Mode("py", "fast_run"))
    for number in range(6):
        train(np.ones(4))
        other(np.ones(4))
        np.testing.assert_array_equal(w.get_value(), np.arange(4.0) + 2 * number + 2)


def test_functions_pickle_and_copy(w, mode):
    train, ones = training(w, mode), np.ones(4)
    train(ones)
    train(ones)
    kept = copy.copy(train)
    v = pytensor.shared(np.zeros(4), "v")
    swapped = train.copy(swap={w: v})
    kept(ones)
    swapped(ones)
    np.testing.assert_array_equal(w.get_value(), np.arange(4.0) + 3)
    np.testing.assert_array_equal(v.get_value(), ones)
    without = train.copy(delete_updates=True)
    assert without(ones) == (np.arange(4.0) + 3).sum()
    np.testing.assert_array_equal(w.get_value(), np.arange(4.0) + 3)
    variable = pickle.loads(pickle.dumps(w))
    np.testing.assert_array_equal(variable.get_value(), np.arange(4.0) + 3)
    np.testing.assert_array_equal(copy.deepcopy(w).get_value(), np.arange(4.0) + 3)


def test_a_pickled_function_has_values_of_its_own(w):
    train, ones = training(w, "OPENCL"), np.ones(4)
    train(ones)
    pickled = pickle.loads(pickle.dumps(train))
    for _ in range(3):
        pickled(ones)
    assert pickled(ones) == (np.arange(4.0) + 4).sum()
    np.testing.assert_array_equal(w.get_value(), np.arange(4.0) + 1)


def test_an_argument_may_have_an_update(mode):
    total = pt.vector("total")
    count = pytensor.function([pytensor.compile.io.In(total, update=total + 1)], total * 2, mode=mode)
    argument = np.ones(3)
    for _ in range(3):
        np.testing.assert_array_equal(count(argument), np.full(3, 2.0))
    np.testing.assert_array_equal(optdb.pytensor.call_n_times(count, 3, argument), np.full(3, 2.0))
    np.testing.assert_array_equal(argument, np.ones(3))


def test_a_failing_call_changes_nothing(w, mode):
    v = pytensor.shared(np.zeros(()), "v")
    small = pt.lt(x.sum(), 100)
    checked = pytensor.raise_op.Assert("too large")(x, small)
    rng = pytensor.shared(np.random.default_rng(1))
    following, draw = pt.random.normal(rng=rng, return_next_rng=True)
    f = pytensor.function([x], draw, updates={w: w + checked, v: v + w.sum(), rng: following}, mode=mode)
    for number in range(6):
        values = [var.get_value() for var in (w, v)]
        state = rng.get_value().bit_generator.state
        if number in (0, 3):
            with pytest.raises(AssertionError, match="too large"):
                f(np.full(4, 100.0))
            assert rng.get_value().bit_generator.state == state
            np.testing.assert_array_equal(w.get_value(), values[0])
            assert v.get_value() == values[1]
            continue
        f(np.ones(4))
        np.testing.assert_array_equal(w.get_value(), values[0] + 1)
        assert v.get_value() == values[1] + values[0].sum() and rng.get_value().bit_generator.state != state


@pytest.mark.parametrize("times", [1, 2, 9])
def test_many_calls_as_one(times, w, mode):
    train, ones = training(w, mode), np.ones(4)
    for count in range(1, 4):
        assert optdb.pytensor.call_n_times(train, times, ones) == (np.arange(4.0) + count * times - 1).sum()
        np.testing.assert_array_equal(w.get_value(), np.arange(4.0) + count * times)


def test_a_warning_names_the_line_of_the_call(mode, monkeypatch):
    monkeypatch.setattr(call_warnings, "LARGE_SHARE", 0.0)
    shared_variables.let_hosts_fetch()
    f = pytensor.function([x], pt.exp(sort_on_host(x))[::2], mode=mode)
    with pytest.warns(call_warnings.HostNodesWarning) as caught:
        for _ in range(30):
            f(np.ones(3))
    assert [entry.filename for entry in caught if entry.category is call_warnings.HostNodesWarning] == [__file__]


@pytest.mark.parametrize("size", [4, 1 << 18])
def test_what_the_host_updates_in_place_is_read(mode, size):
    """If the host overwrites a variable's array, the device must not use the values that it received earlier."""
    state = pytensor.shared(np.zeros(size))
    read = pytensor.function([], state.sum(), mode=mode)
    step = pytensor.function([], [], updates={state: state + 1}, mode=Mode("py", "fast_run"))
    assert all(node.op.destroy_map for node in step.maker.fgraph.apply_nodes)
    for number in range(1, 6):
        step()
        assert read() == number * size


def test_many_calls_draw_many_numbers(mode):
    rngs = [pytensor.shared(np.random.default_rng(5)) for _ in range(2)]
    total, other = (pytensor.shared(np.zeros(3)) for _ in range(2))
    functions = []
    for rng, sums, chosen in zip(rngs, (total, other), (mode, Mode("py", None)), strict=True):
        following, draws = pt.random.normal(size=(3,), rng=rng, return_next_rng=True)
        functions.append(pytensor.function([], draws, updates={rng: following, sums: sums + draws}, mode=chosen))
    draws = optdb.pytensor.call_n_times(functions[0], 5)
    np.testing.assert_allclose(draws, [functions[1]() for _ in range(5)][-1])
    np.testing.assert_allclose(total.get_value(), other.get_value())


@pytest.mark.parametrize("times", [0, -1])
def test_fewer_calls_than_one_are_refused(times, w):
    train = training(w, "OPENCL")
    with pytest.raises(ValueError, match=f"1 or more, not {times}"):
        optdb.pytensor.call_n_times(train, times, np.ones(4))


def test_functions_of_other_modes_are_refused(w):
    train = training(w, Mode("py", None))
    for call in (lambda: optdb.pytensor.call_n_times(train, 2, np.ones(4)), lambda: optdb.pytensor.run_async(train)):
        with pytest.raises(TypeError, match="not of mode OPENCL"):
            call()


def test_wrong_arguments_raise_as_in_a_call(w):
    train = training(w, "OPENCL")
    for call in (train, lambda *args: optdb.pytensor.run_async(train, *args)):
        with pytest.raises(TypeError, match="Missing input"):
            call()
    train(np.ones(4))
    np.testing.assert_array_equal(w.get_value(), np.arange(4.0) + 1)


def test_a_call_returns_before_the_device_is_done(w, mode):
    train, begun = training(w, mode), []
    argument = np.ones(4)
    train(argument)
    for number in range(5):
        argument[...] = number
        begun.append(optdb.pytensor.run_async(train, argument))
        argument[...] = np.nan
    assert isinstance(w.container.storage[0], ValueOnDevice)
    doubled = pytensor.function([], w * 2, mode=Mode("py", None))
    np.testing.assert_array_equal(doubled(), 2 * (np.arange(4.0) + 11))
    value = np.arange(4.0) + 1
    for number, future in enumerate(begun):
        assert future.wait(timeout=60) == (value * number).sum() and future.done()
        assert future.times.end >= future.times.start
        value += number
    np.testing.assert_array_equal(w.get_value(), value)


def test_an_interrupt_stops_many_calls_after_a_whole_one(w, mode, monkeypatch):
    u = pytensor.shared(np.zeros(4), "u")
    f = pytensor.function([x], [], updates={w: w + x, u: u + x}, mode=mode)
    f(np.ones(4))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    from optdb.runtime.timing import RunAhead

    steps, usual = [], RunAhead.after_step

    def after_step(self):
        steps.append(1)
        if len(steps) == 5:
            signal.raise_signal(signal.SIGINT)
        usual(self)

    monkeypatch.setattr(RunAhead, "after_step", after_step)
    try:
        with pytest.raises(KeyboardInterrupt):
            optdb.pytensor.call_n_times(f, 1000, np.ones(4))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert len(steps) < 20
    np.testing.assert_array_equal(w.get_value() - np.arange(4.0), u.get_value())
    assert u.get_value()[0] == len(steps) + 1
