"""Calls with little work run in the calling thread if the driver has a device for that."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import optdb.pytensor
from optdb.pytensor.compiled import device_function

SMALL, LARGE = 10, 300_000


def traced_contexts(function):
    return [traced.context for _, traced in device_function(function).function.traced_calls]


@pytest.fixture
def context():
    context = optdb.pytensor.OpenCLLinker().context
    if context.in_caller is None:
        pytest.skip("the driver has no device that runs commands in the calling thread")
    usual = context.options
    yield context
    context.options = usual


def test_small_calls_run_in_the_calling_thread_and_large_calls_do_not(context):
    x = pt.dvector("x")
    function = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
    for size in (SMALL, LARGE, SMALL, LARGE):
        values = np.linspace(-1, 1, size)
        for _ in range(4):
            np.testing.assert_allclose(function(values), np.exp(values).sum(), rtol=1e-12)
    assert traced_contexts(function) == [context.in_caller, context]
    assert optdb.pytensor.explain(function).count("in the calling thread") == 1


def test_work_inside_a_call_counts(context):
    x = pt.dvector("x")
    function = pytensor.function([x], pt.exp(pt.outer(pt.arange(1000) * x[0], x)).sum(), mode="OPENCL")
    values = np.linspace(0, 0.001, 1000)
    np.testing.assert_allclose(function(values), np.exp(np.outer(np.arange(1000) * values[0], values)).sum())
    assert traced_contexts(function) == [context]


def test_calls_with_many_small_launches_run_in_the_calling_thread(context):
    x = pt.dmatrix("x")
    y = x
    for _ in range(6):
        y = pt.tanh(y @ x)
    function = pytensor.function([x], y, mode="OPENCL")
    values = np.random.default_rng(1).normal(size=(50, 50)) / 10
    expected = values
    for _ in range(6):
        expected = np.tanh(expected @ values)
    np.testing.assert_allclose(function(values), expected, rtol=1e-10)
    assert traced_contexts(function) == [context.in_caller]


def test_products_count_by_their_own_operations(context):
    x = pt.dmatrix("x")
    function = pytensor.function([x], x @ x, mode="OPENCL")
    for size, where in ((10, context.in_caller), (100, context)):
        values = np.random.default_rng(1).normal(size=(size, size))
        np.testing.assert_allclose(function(values), values @ values, rtol=1e-10)
        assert traced_contexts(function)[-1] is where


def test_no_call_runs_there_if_the_options_forbid_it(context):
    context.options = replace(context.options, most_work_in_caller=0)
    x = pt.dvector("x")
    function = pytensor.function([x], x * 2, mode="OPENCL")
    np.testing.assert_array_equal(function([1.0, 2.0]), [2.0, 4.0])
    assert traced_contexts(function) == [context]


def test_both_kinds_of_calls_update_the_same_variables(context):
    total = pytensor.shared(np.zeros(3), "total")
    x = pt.dvector("x")
    add = pytensor.function([x], total * 2, updates=[(total, total + x.sum())], mode="OPENCL")
    scale = pytensor.function([], updates=[(total, total * 0.5)], mode="OPENCL")
    expected = np.zeros(3)
    for size in (SMALL, LARGE, SMALL, SMALL, LARGE, LARGE, SMALL):
        values = np.full(size, 1.0 / size)
        np.testing.assert_allclose(add(values), expected * 2, rtol=1e-12)
        expected += values.sum()
        np.testing.assert_allclose(total.get_value(), expected, rtol=1e-12)
        scale()
        expected *= 0.5
        optdb.pytensor.call_n_times(add, 3, values)
        expected += 3 * values.sum()
        future = optdb.pytensor.run_async(add, values)
        np.testing.assert_allclose(future.wait(), expected * 2, rtol=1e-12)
        expected += values.sum()
        held = total.get_value(borrow=True)
        np.testing.assert_allclose(held, expected, rtol=1e-12)
    assert {id(each) for each in traced_contexts(add)} == {id(context), id(context.in_caller)}


def test_a_variable_that_the_host_sets_between_calls(context):
    weights = pytensor.shared(np.ones(4), "weights")
    x = pt.dmatrix("x")
    function = pytensor.function([x], (x * weights).sum(), mode="OPENCL")
    for number, rows in enumerate((2, 100_000, 2, 100_000)):
        weights.set_value(np.full(4, number + 1.0))
        values = np.ones((rows, 4))
        for _ in range(3):
            np.testing.assert_allclose(function(values), rows * 4 * (number + 1.0), rtol=1e-12)


def test_threads_take_turns(context):
    count = pytensor.shared(np.zeros(2), "count")
    x = pt.dvector("x")
    function = pytensor.function([x], updates=[(count, count + x.sum())], mode="OPENCL")
    sizes = (SMALL, LARGE)
    for size in sizes:
        function(np.zeros(size))

    def run(size):
        for _ in range(50):
            device_function(function).run([[np.full(size, 1.0 / size)], cell])

    cell = count.container.storage
    threads = [threading.Thread(target=run, args=(size,)) for size in sizes * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(count.get_value(), 200.0, rtol=1e-9)
