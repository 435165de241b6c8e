"""Reduction rounds give the same bits in C and in NumPy; steps on several devices equal those of one device."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op

import optdb
from optdb.distributed import DataParallel, WorkerFailed, worker_threads
from optdb.distributed.exchange import Exchange
from optdb.distributed.sharding import rounds
from optdb.distributed.sharding.collective import MOMENTS, SUM, combined
from optdb.opencl.registry import contexts, get_context
from optdb.runtime import all_reduce, driver_batches
from optdb.runtime.all_reduce import EnqueueAllReduce, ExchangeRound, MemberTable, Moments, VectorSpec
from tests.distributed.hosts import in_threads
from tests.distributed.training import with_memory_of_their_own
from tests.interrupts import ctrl_c_interrupts  # noqa: F401 (a fixture)
from tests.opencl_device import SMALLEST_BATCHES, runtime_context

pytestmark = pytest.mark.usefixtures("engine_where_quick")

with_c_code = pytest.mark.skipif(not driver_batches.loop_library(), reason="there is no C compiler")

LENGTHS = (6, 9)


def round_of(table, rank, count, dtype, counts):
    member = table.member(rank)
    member.begin(1, count, True)
    moments = Moments(LENGTHS, tuple(counts))
    specs = [VectorSpec(np.dtype(dtype), 5, 5), VectorSpec(np.dtype(dtype), sum(LENGTHS), 10, moments)]
    return ExchangeRound(runtime_context(), 3, specs, member, rounds._reduce)


@with_c_code
@pytest.mark.parametrize("kind", ["numbers", "infinite", "alike"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_c_code_and_numpy_find_the_same_bits(count, dtype, kind):
    rng, table = np.random.default_rng(count), MemberTable(count, 20)
    rounds = [round_of(table, rank, count, dtype, rng.integers(1, 9, 2).tolist()) for rank in range(count)]
    for round_ in rounds:
        for vector in round_.vectors:
            vector[...] = 0 if kind == "alike" else rng.standard_normal(vector.size) * 10 ** rng.uniform(-3, 3)
    if kind == "infinite":
        rounds[-1].vectors[0][1], rounds[-1].vectors[1][::4] = -np.inf, [np.inf, np.nan, -np.inf, np.inf]
    in_threads(lambda rank: rounds[rank].run(), count)
    received = [[*each.vectors, np.array(each.specs[1].moments.counts)] for each in rounds]
    wanted = combined([SUM, MOMENTS], received, [np.array(LENGTHS)])
    for round_ in rounds:
        for found, values in zip(round_.results, wanted, strict=True):
            assert found.dtype == dtype and found.shape == values.shape
            np.testing.assert_array_equal(found, values)
            np.testing.assert_array_equal(np.signbit(found[values == 0]), np.signbit(values[values == 0]))


class Trouble:
    """A host node that runs between two rounds; if `how` is set, the node calls it in one device's thread."""

    def __init__(self, rank):
        self.how, self._thread = None, f"optdb-worker-{rank}"
        self.node = as_op(itypes=[tt.dscalar], otypes=[tt.dscalar])(self.__call__)

    def __call__(self, value):
        if self.how is not None and threading.current_thread().name == self._thread:
            self.how()
        return value.copy()


def normalized(between=None):
    """Return a step of a net with two batch normalizations; `between` is applied to a number between their rounds."""
    x = tt.dmatrix("x")
    scales = [theano.shared(np.linspace(0.5, 1.5, 6).reshape(1, 6), f"scale{i}", broadcastable=(1, 0)) for i in "ab"]
    biases = [theano.shared(np.zeros((1, 6)), f"bias{i}", broadcastable=(1, 0)) for i in "ab"]
    mean, variance = (theano.shared(np.ones((1, 6)), name, broadcastable=(1, 0)) for name in ("mean", "variance"))
    values, updates = x, []
    for number, (scale, bias) in enumerate(zip(scales, biases, strict=True)):
        if number and between is not None:
            total = theano.gradient.disconnected_grad(values.sum())
            values = values * (between(total) / total)
        running = {"running_mean": mean, "running_var": variance} if number else {}
        values, _, _, *following = tt.nnet.bn.batch_normalization_train(
            values, scale, bias, "per-activation", **running
        )
        updates += zip((mean, variance), following, strict=False)
        values = tt.tanh(values)
    loss = (values**2).mean()
    shared = [*scales, *biases]
    updates += [(var, var - 0.3 * slope) for var, slope in zip(shared, tt.grad(loss, shared), strict=True)]
    return theano.function([x], loss, updates=updates, mode=theano.Mode("py", "fast_run"), name="normalized")


def given(*rows):
    rng = np.random.RandomState(0)
    return [(rng.standard_normal((count, 6)) + np.arange(6),) for count in rows]


@pytest.fixture
def devices(count):
    """Return the names of `count` devices, each with its own context."""
    names = [f"member{number}" for number in range(count)]
    for name in names:
        if name not in contexts:
            contexts.register(name, "opencl")
        context = get_context(name)
        context.options = replace(context.options, batch_thresholds=SMALLEST_BATCHES)
    return names


@pytest.fixture
def count():
    return 2


def check(f, train, batches):
    """Train from the current state, and check that results and state equal those of one device."""
    with optdb.SimulatorOCL(f) as alone:
        for shared in f.get_shared():
            alone.set(shared, train.get(shared))
        wanted = [alone(*batch) for batch in batches]
        np.testing.assert_allclose(train.train(batches), wanted, rtol=1e-10)
        for shared in f.get_shared():
            np.testing.assert_allclose(train.get(shared), alone.get(shared), rtol=1e-9, atol=1e-12)


def native_lists(train):
    """For each device, yield the longest command list with a reduction round in the last step's plan."""
    for replica in train._group._replicas:
        plan = replica._gradients._function._executable.run.plans[-1]
        lists = [
            step.commands for step in plan._steps if any(isinstance(each, EnqueueAllReduce) for each in step.commands)
        ]
        yield max(lists, key=len)


@pytest.mark.thorough_cases("3-own", "4-own", "4-shared")
@with_c_code
@pytest.mark.parametrize("memory", ["shared", pytest.param("own", marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_rounds_of_a_step_are_one_call(devices, memory, monkeypatch):
    """Python adds up the workers' vectors only in the recorded calls for each batch size; in later calls, C does."""
    f = normalized()
    with (
        with_memory_of_their_own(devices) if memory == "own" else nullcontext(),
        DataParallel(f, devices=devices, timeout=60) as train,
    ):
        assert train._training.rounds == 3
        monkeypatch.setattr(Exchange, "exchange", None)
        check(f, train, given(*[9] * 6, *[8] * 6, *[1] * 4, 9, 5, 8, 9, 9, 9))
        for commands in native_lists(train):
            assert commands.batch.is_native and sum(isinstance(each, EnqueueAllReduce) for each in commands) == 3


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["shared", "own"])
def test_without_a_compiler_python_makes_the_rounds(devices, memory, monkeypatch):
    for module in (worker_threads, all_reduce, driver_batches):
        monkeypatch.setattr(module, "loop_library", lambda: None)
    f = normalized()
    with (
        with_memory_of_their_own(devices) if memory == "own" else nullcontext(),
        DataParallel(f, devices=devices, timeout=60) as train,
    ):
        check(f, train, given(*[9] * 6, 5, 5, 5, 1, 9))


def raise_error():
    raise ArithmeticError("no luck")


@with_c_code
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_device_that_raises_between_rounds_ends_the_waits_of_others(devices, rank):
    trouble = Trouble(rank)
    f, batches = normalized(trouble.node), given(*[9] * 4)
    with DataParallel(f, devices=devices, timeout=60) as train:
        for steps in (0, 1, 3):
            check(f, train, batches[:steps])
            before = train.steps, [train.get(shared) for shared in f.get_shared()]
            trouble.how = raise_error
            with pytest.raises(WorkerFailed, match=f"thread {rank} .*no luck"):
                train.train(batches[:2])
            trouble.how = None
            assert train.steps == before[0]
            for shared, value in zip(f.get_shared(), before[1], strict=True):
                np.testing.assert_array_equal(train.get(shared), value)
        check(f, train, batches)


@with_c_code
@pytest.mark.slow
def test_a_device_that_does_not_come_is_named(devices):
    trouble, is_late = Trouble(1), threading.Event()
    f, batches = normalized(trouble.node), given(*[9] * 4)
    with DataParallel(f, devices=devices, timeout=0.5) as train:
        train.train(batches)
        trouble.how = lambda: is_late.wait(1)
        with pytest.raises(
            WorkerFailed, match=r"thread 0 .*received no part of a sum from thread 1 .* within 0\.5 sec"
        ):
            train(*batches[0])
        trouble.how = None
        check(f, train, batches)


@with_c_code
@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_an_interrupt_while_a_device_waits_in_a_round(devices):
    trouble = Trouble(1)
    f, batches = normalized(trouble.node), given(*[9] * 4)
    with DataParallel(f, devices=devices, timeout=60) as train:
        train.train(batches)

        def interrupt():
            step = train._group._pending[0]
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            while not step.is_given_up:
                time.sleep(1e-3)

        trouble.how = interrupt
        with pytest.raises(KeyboardInterrupt):
            train(*batches[0])
        trouble.how = None
        assert train.steps == 4
        check(f, train, batches)
