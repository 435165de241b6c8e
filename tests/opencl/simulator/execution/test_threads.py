"""Simulators in several threads and processes return the same results as a single simulator."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.opencl import blas, get_context
from optdb.runtime.arrays import from_host, to_host
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.dispatch import HeldCommands, listened
from tests.effort import examples
from tests.opencl.simulator.elsewhere import answers
from tests.processes import run_code

PURE = theano.Mode(linker="py", optimizer="fast_run")
THREADS = 8
STEPS = 25


def trained(rows=6):
    """Return a new training step with its own variable, and a batch for it."""
    x, w = tt.fmatrix("x"), theano.shared(np.ones((5, 4), "float32") / 4, name="w")
    loss = tt.sqr(tt.tanh(x.dot(w)).sum(axis=1)).mean()
    f = theano.function([x], loss, updates=[(w, w - np.float32(0.01) * tt.grad(loss, w))], mode=PURE)
    return f, np.random.RandomState(rows).randn(rows, 5).astype("float32")


def at_once(call, threads=THREADS):
    """Make one call in each of several threads at the same time; return the results by thread number."""
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
    # Each call has seen a different number: no call was lost or repeated.
    assert sorted(itertools.chain(*seen)) == list(range(THREADS * STEPS))


@pytest.mark.slow
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


@pytest.mark.slow
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


#: With these lengths, products are sums of parts, and convolutions pack their arrays, in scratch memory.
TERMS = 4000
IMAGES, FILTERS = (2, 3, 12, 12), (8, 3, 5, 5)


def product():
    x, w = tt.dmatrix("x"), theano.shared(np.random.RandomState(1).randn(TERMS, 4), name="w")
    return [x], [x.dot(w)], [], (4, TERMS)


def convolution():
    x, w = tt.dtensor4("x"), theano.shared(np.random.RandomState(1).randn(*FILTERS), name="w")
    return [x], [tt.nnet.conv2d(x, w), tt.grad(tt.sqr(tt.nnet.conv2d(x, w)).sum(), w)], [], IMAGES


def update():
    """Return a graph whose product overwrites a shared array, so that calls delay its launches."""
    x, w = tt.dmatrix("x"), theano.shared(np.zeros((4, 4)), name="w")
    return [x], [], [(w, w + x.dot(x.T))], (4, TERMS)


def on_device(way, make):
    """Return a function that computes on the device, and that returns results and values of shared variables."""
    inputs, outputs, updates, _ = make()
    if way == "mode":
        f = theano.function(inputs, outputs, updates=updates, mode=optdb.mode(device="dev0"))
        return lambda x: [*f(x), *(var.get_value() for var, _ in updates)]
    sim = optdb.SimulatorOCL(theano.function(inputs, outputs, updates=updates, mode=PURE), "dev0")
    return lambda x: [*(sim(x) or ()), *(sim.get(var) for var, _ in updates)]


def repeated(f, x, times):
    """Call a function repeatedly; return, for each call, one vector with the elements of all results."""
    return [np.concatenate([np.ravel(result) for result in f(x)]) for _ in range(times)]


@pytest.mark.parametrize("make", [product, convolution, update])
@pytest.mark.parametrize("ways", [("simulator", "simulator"), ("simulator", "mode")], ids="-".join)
def test_launches_of_two_threads_alternate_in_the_queue(make, ways, monkeypatch):
    """The second call makes a plan, and the third one repeats it.

    The first, recorded calls are made one by one, because their launches hold locks of kernels that both threads need.
    """
    *_, shape = make()
    functions = [on_device(way, make) for way in ways]
    alone = [on_device("simulator", make) for _ in ways]
    data = [np.random.RandomState(number).randn(*shape) for number in range(2)]
    expected = [repeated(f, x, 3) for f, x in zip(alone, data)]
    before = [repeated(f, x, 1) for f, x in zip(functions, data)]
    launch, barrier = EnqueueKernel.enqueue, threading.Barrier(2, timeout=10)

    def paced(command):
        launch(command)
        barrier.wait()

    monkeypatch.setattr(EnqueueKernel, "enqueue", paced)
    after = at_once(lambda number: repeated(functions[number], data[number], 2), 2)
    for first, last, wanted in zip(before, after, expected):
        np.testing.assert_allclose(first + last, wanted, rtol=1e-9, atol=1e-9)


def test_launches_that_are_held_back_alternate_in_the_queue():
    context, rng = get_context("dev0"), np.random.RandomState(3)
    pairs = [[rng.randn(4, TERMS), rng.randn(TERMS, 4)] for _ in range(2)]
    held, results = [HeldCommands() for _ in pairs], []
    for held_commands, pair in zip(held, pairs):
        arrays = [from_host(context, value) for value in pair]
        with listened(held_commands):
            results.append(blas.gemm(1.0, *arrays))
    for together in zip(*(held_commands.release() for held_commands in held), strict=True):
        for command in together:
            command.enqueue()
    for (a, b), result in zip(pairs, results):
        np.testing.assert_allclose(to_host(result), a.dot(b), rtol=1e-9, atol=1e-9)


@pytest.mark.thorough_cases("convolution")
@pytest.mark.slow
@pytest.mark.parametrize("make", [product, convolution, update])
def test_many_threads_give_the_answers_of_one(make, monkeypatch):
    *_, shape = make()
    data = [np.random.RandomState(number).randn(*shape) for number in range(THREADS)]
    expected = [repeated(on_device("simulator", make), x, 4) for x in data]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(examples(5)):
            functions = [on_device(("simulator", "mode")[number % 2], make) for number in range(THREADS)]
            got = at_once(lambda number: repeated(functions[number], data[number], 4))  # noqa: B023
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.thorough
@pytest.mark.slow
def test_processes_give_the_same_answers():
    f, batch = trained()
    sim = optdb.SimulatorOCL(f)
    data = pickle.dumps(sim)
    expected = [float(sim(batch)) for _ in range(STEPS)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(answers, [data] * 2, [batch] * 2, [STEPS] * 2))
    assert os.getpid() not in [pid for pid, _ in results]
    assert [losses for _, losses in results] == [expected] * 2


#: Code that forked children try to run although their parent has used a device.
ATTEMPTS = [
    "sim(np.ones(3, 'float32'))",
    "optdb.SimulatorOCL(f)",
    "theano.function([x], x + 1, mode='OPENCL')(np.ones(3, 'float32'))",
    "g(np.ones(3, 'float32'))",
    "sim.sync_to_theano()",
    "sim.set(sim.shared[0], 1)",
    "import pickle; pickle.dumps(sim)",
]
FORKED = f"""
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
    for attempt in {ATTEMPTS}:
        print("attempt:", attempt, flush=True)
        if os.fork() == 0:
            try:
                exec(attempt)
            except BaseException as error:
                print(type(error).__name__, error, flush=True)
            os._exit(0)
        os.wait()
    print(sim(np.ones(3, "float32")).tolist())
"""


@pytest.mark.slow
def test_a_fork_after_use_is_refused():
    done = run_code(FORKED)
    assert done.returncode == 0, done.stderr
    _, *attempts = done.stdout.split("attempt: ")
    assert len(attempts) == len(ATTEMPTS)
    for found in attempts:
        assert "ForkedContext" in found and "multiprocessing.set_start_method('spawn')" in found, found
    assert done.stdout.splitlines()[-1] == "[2.0, 2.0, 2.0]"


POOLS = """
    import multiprocessing, os, sys
    from concurrent.futures import ProcessPoolExecutor
    import numpy as np
    import optdb, theano, theano.tensor as tt
    x = tt.fvector("x")
    f = theano.function([x], x * 2, mode="OPENCL")
    f(np.ones(3, "float32"))
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        print(type(pool.submit(f, np.ones(3, "float32")).exception()).__name__)
    with context.Pool(1) as pool:
        try:
            pool.apply(f, [np.ones(3, "float32")])
        except Exception as error:
            print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_pool_of_forked_processes_gives_the_reason():
    """The pool neither raises BrokenProcessPool nor waits forever."""
    done = run_code(POOLS)
    assert done.returncode == 0, done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert first == "ForkedContext"
    assert second.startswith("ForkedContext") and "cores=1" in done.stdout
