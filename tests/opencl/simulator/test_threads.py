"""Simulators in several threads and processes give the answers of one."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from tests.opencl.simulator.elsewhere import answers
from tests.processes import run_code

PURE = theano.Mode(linker="py", optimizer="fast_run")
THREADS = 8
STEPS = 25


def trained(rows=6):
    """A training step on a function of its own, and a batch."""
    x, w = tt.fmatrix("x"), theano.shared(np.ones((5, 4), "float32") / 4, name="w")
    loss = tt.sqr(tt.tanh(x.dot(w)).sum(axis=1)).mean()
    f = theano.function([x], loss, updates=[(w, w - np.float32(0.01) * tt.grad(loss, w))], mode=PURE)
    return f, np.random.RandomState(rows).randn(rows, 5).astype("float32")


def at_once(call, threads=THREADS):
    """Let threads begin a call at the same time; return the results in order."""
    barrier = threading.Barrier(threads)

    def begin(number):
        barrier.wait()
        return call(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def test_threads_take_turns_at_one_simulator():
    x = tt.fmatrix("x")
    count = theano.shared(np.zeros(1, "float32"), name="count")
    f = theano.function([x], [count, x.dot(x.T)], updates=[(count, count + 1)], mode=PURE)
    sim = optdb.SimulatorOCL(f, "dev0")

    def call(number):
        data = np.full((2 + number % 3, 7), number, "float32")
        results = [sim(data) for _ in range(STEPS)]
        for _, product in results:
            np.testing.assert_allclose(product, data.dot(data.T), rtol=1e-6)
        return [float(before[0]) for before, _ in results]

    seen = at_once(call)
    assert all(own == sorted(own) for own in seen)
    # Each call has seen another number: none was lost, none was made twice.
    assert sorted(itertools.chain(*seen)) == list(range(THREADS * STEPS))


def test_simulators_run_side_by_side():
    made = [trained(rows=3 + number) for number in range(THREADS)]
    expected = []
    for f, data in made:
        alone = optdb.SimulatorOCL(f, "dev0")
        expected.append([float(alone(data)) for _ in range(STEPS)])

    def call(number):
        f, data = made[number]
        sim = optdb.SimulatorOCL(f, "dev0")
        return [float(sim(data)) for _ in range(STEPS)]

    assert at_once(call) == expected


def test_functions_of_a_mode_run_side_by_side():
    mode = optdb.mode(device="dev0")
    x, w = tt.fmatrix("x"), theano.shared(np.ones((7, 3), "float32"), name="w")
    functions = [theano.function([x], tt.tanh(x.dot(w)) * number, mode=mode) for number in range(THREADS)]

    def call(number):
        data = np.random.RandomState(number).randn(4, 7).astype("float32")
        for _ in range(STEPS):
            np.testing.assert_allclose(
                functions[number](data), np.tanh(data.sum(axis=1))[:, None].repeat(3, 1) * number, rtol=1e-4, atol=1e-5
            )
        return True

    assert all(at_once(call))


def test_processes_give_the_same_answers():
    f, batch = trained()
    sim = optdb.SimulatorOCL(f)
    data = pickle.dumps(sim)
    expected = [float(sim(batch)) for _ in range(STEPS)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(answers, [data] * 2, [batch] * 2, [STEPS] * 2))
    assert os.getpid() not in [pid for pid, _ in results]
    assert [losses for _, losses in results] == [expected] * 2


FORKED = """
    import os, sys
    import numpy as np
    import optdb, theano, theano.tensor as tt
    x = tt.fvector("x")
    w = theano.shared(np.ones(3, "float32"), target="cpu")
    f = theano.function([x], x * w * 2, mode=theano.Mode("py", "fast_run"))
    sim = optdb.SimulatorOCL(f)
    sim(np.ones(3, "float32"))
    g = theano.function([x], x * 3, mode="OPENCL")
    g(np.ones(3, "float32"))
    if os.fork() == 0:
        DO
        os._exit(1)
    os.wait()
    print(sim(np.ones(3, "float32")).tolist())
"""


@pytest.mark.parametrize(
    "do",
    [
        "sim(np.ones(3, 'float32'))",
        "optdb.SimulatorOCL(f)",
        "theano.function([x], x + 1, mode='OPENCL')(np.ones(3, 'float32'))",
        "g(np.ones(3, 'float32'))",
        "sim.sync_to_theano()",
        "sim.set(sim.shared[0], 1)",
        "import pickle; pickle.dumps(sim)",
    ],
)
def test_a_fork_after_use_is_refused(do):
    attempt = f"""
        try:
            {do}
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(0)
    """
    done = run_code(FORKED.replace("        DO\n", attempt.strip("\n").rstrip() + "\n"))
    assert done.returncode == 0, done.stderr
    assert "ForkedContext" in done.stdout and "multiprocessing.set_start_method('spawn')" in done.stdout
    assert done.stdout.splitlines()[-1] == "[2.0, 2.0, 2.0]"
