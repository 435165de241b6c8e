"""Threads that call functions on a device take turns, and each gets its own results."""

from __future__ import annotations

import threading
from unittest import mock

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op

import optdb
from optdb.opencl import as_opencl_variable, linking

pytestmark = pytest.mark.usefixtures("default")

DIRECT = theano.compile.get_default_mode().including("opencl")


def _array(number: int) -> np.ndarray:
    return np.full((number % 4 + 1, number % 3 + 1), number, "float32")


def work_in_threads(work, threads=4, times=25):
    """Call `work(number)` in several threads at once; raise an error if a call raises."""
    errors = []
    start = threading.Barrier(threads)

    def run(first):
        start.wait()
        try:
            for number in range(first, first + times):
                work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(10 * first,), daemon=True) for first in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
        assert not thread.is_alive(), "a thread waits for ever"
    for error in errors:
        raise error


def _function(way):
    x, count = tt.fmatrix("x"), theano.shared(np.zeros((), "int64"), "count")
    outputs = [x.dot(x.T).sum(axis=1), x + 1]
    if way == "direct":
        outputs = [as_opencl_variable(out, "dev0") for out in outputs]
    mode = {"mode": optdb.mode(device="dev0"), "direct": DIRECT, "copy": optdb.mode(device="dev0")}
    f = theano.function([x], outputs, updates=[(count, count + 1)], mode=mode.get(way, theano.Mode("py", "fast_run")))
    if way in mode:
        return (f.copy() if way == "copy" else f), lambda: int(count.get_value())
    sim = optdb.SimulatorOCL(f, "dev0")
    calls = {
        "simulator": sim,
        "loop": lambda x: sim.call_n_times(1, x),
        "async": lambda x: sim.run_async(x).wait(),
    }
    return calls[way], lambda: int(sim.get(count))


@pytest.mark.slow_cases("mode")
@pytest.mark.parametrize("way", ["mode", "direct", "copy", "simulator", "loop", "async"])
def test_each_thread_gets_its_results(way):
    f, count = _function(way)

    def work(number):
        value = _array(number)
        sums, more = map(np.asarray, f(value))
        np.testing.assert_allclose(sums, value.dot(value.T).sum(axis=1))
        np.testing.assert_allclose(more, value + 1)

    work_in_threads(work)
    assert count() == 100 or way == "copy"


@pytest.mark.parametrize("way", ["mode", "direct"])
def test_turns_are_taken_when_no_more_plans_are_made(way, monkeypatch):
    f, _ = _function(way)
    turn = mock.MagicMock()
    monkeypatch.setattr(f.fn, "turn", turn)
    linking.uninstall()
    try:
        f(_array(3))
    finally:
        linking.install()
    turn.return_value.__enter__.assert_called_once()


def test_functions_that_call_each_other_by_way_of_the_host_do_not_wait_for_ever():
    x = tt.fvector("x")
    inner = theano.function([x], x * 2, mode=optdb.mode(device="dev0"))

    @as_op(itypes=[tt.fvector], otypes=[tt.fvector])
    def twice(value):
        return inner(value)

    outer = theano.function([x], twice(x + 1) + 1, mode=optdb.mode(device="dev0"))

    def work(number):
        value = np.full(number % 5 + 1, number, "float32")
        np.testing.assert_allclose(outer(value), value * 2 + 3)
        np.testing.assert_allclose(inner(value), value * 2)

    work_in_threads(work, times=10)


def test_a_function_that_calls_itself_does_not_wait_for_itself():
    x, depth = tt.fvector("x"), [0]

    @as_op(itypes=[tt.fvector], otypes=[tt.fvector])
    def again(value):
        depth[0] += 1
        if depth[0] == 1:
            f(value)
        return value

    f = theano.function([x], again(x), mode=optdb.mode(device="dev0"))
    done = threading.Thread(target=f, args=(np.ones(2, "float32"),), daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive()
    assert depth[0] == 2
