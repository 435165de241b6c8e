"""After Ctrl-C at any point of a call, or an error at any node, the state is consistent and training continues."""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import theano.tensor as tt
from theano.compile.ops import as_op

from optdb.device.plans.linked import LinkedFunction
from optdb.distributed import DataParallel, WorkerFailed
from tests.distributed.training import two_devices, with_memory_of_their_own
from tests.distributed.whole_steps import (
    BATCH,
    CALLS,
    check_whole,
    counting_step,
    failing_once,
    interrupt_everywhere,
    limited,
    set_everywhere,
)
from tests.interrupts import ctrl_c_interrupts, interrupt_at  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.usefixtures("ctrl_c_interrupts"), pytest.mark.timeout(900)]

#: Tests interrupt a call at every n-th place where this is possible; thorough tests interrupt it at every such place.
STRIDES = [
    pytest.param(23, id="some"),
    pytest.param(1, id="all", marks=[pytest.mark.slow, pytest.mark.thorough]),
]


@pytest.fixture(scope="module")
def devices():
    return two_devices()


@pytest.fixture(scope="module", params=["shared memory", pytest.param("own memory", marks=pytest.mark.slow)])
def training(request, devices):
    """Return a trainer that computes on two threads, after some steps."""
    if request.param == "shared memory":
        with DataParallel(counting_step(), devices=devices) as train:
            train.train([(BATCH,)] * 4)
            yield train
        return
    with with_memory_of_their_own(devices), DataParallel(counting_step(), devices=devices) as train:
        train.train([(BATCH,)] * 4)
        yield train


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("what", CALLS)
def test_an_interrupt_at_each_place_of_a_call(what, stride, training):
    places, interrupted = interrupt_everywhere(training, *CALLS[what], stride)
    print("places:", places)
    assert places > 100 and interrupted >= 0.9 * places // stride


@pytest.mark.parametrize("stride", STRIDES)
def test_an_interrupt_at_each_place_of_setting_a_value(stride, training):
    set_everywhere(training, stride)


@pytest.mark.parametrize(
    "stride", [pytest.param(131, id="some"), pytest.param(1, id="all", marks=[pytest.mark.slow, pytest.mark.thorough])]
)
def test_an_interrupt_at_each_place_of_closing(stride, devices):
    f, number, is_over = counting_step(), 0, False
    while not is_over:
        train = DataParallel(f, devices=devices)
        train(BATCH)
        train.run_async(BATCH)
        is_over, error = interrupt_at(number, train.close)
        assert error is None or isinstance(error, KeyboardInterrupt)
        train.close()
        assert not any(thread.end.alive for thread in train._group._threads)
        number += stride


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "stride", [pytest.param(9, id="some"), pytest.param(1, id="all", marks=[pytest.mark.slow, pytest.mark.thorough])]
)
def test_an_error_at_each_node_of_a_step(rank, stride, devices, monkeypatch):
    f, number, has_failed = counting_step(), 0, True
    while has_failed:
        fails = failing_once(number, lambda: threading.current_thread().name == f"optdb-worker-{rank}")
        with DataParallel(f, devices=devices, timeout=60) as train:
            with monkeypatch.context() as patch:
                patch.setattr(LinkedFunction, "run", fails)
                try:
                    train(BATCH)
                    has_failed = False
                except WorkerFailed as error:
                    assert "no luck" in str(error) and f"thread {rank}" in str(error)
            made = check_whole(train, [0 if has_failed else 1])
            train.train([(BATCH,)] * 2)
            check_whole(train, [made + 2])
        number += stride
    assert number > 4


class Trouble:
    """A host node that fails in one thread when a test requests it."""

    def __init__(self, thread) -> None:
        self.how, self._thread = None, thread

    def __call__(self, value):
        if self.how is not None and threading.current_thread().name == self._thread:
            self.how()
        return value.copy()


def raise_error():
    raise ArithmeticError("no luck")


@pytest.mark.parametrize("memory", ["shared", pytest.param("own", marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", ["of_state", "of_next", "of_result"])
def test_a_node_of_the_host_that_fails_in_one_thread(part, memory, devices):
    # Only the first thread computes results.
    rank = int(part != "of_result")
    trouble = Trouble(f"optdb-worker-{rank}")
    kind = tt.fvector if part == "of_next" else tt.fscalar
    node = as_op(itypes=[kind], otypes=[kind])(lambda value: trouble(value))
    f = counting_step(**{part: node})
    scope = with_memory_of_their_own(devices) if memory == "own" else nullcontext()
    with scope, DataParallel(f, devices=devices, timeout=60) as train:
        made = 0
        for steps in (0, 1, 3):
            train.train([(BATCH,)] * steps)
            trouble.how = raise_error
            with pytest.raises(WorkerFailed, match=rf"thread {rank} .*ArithmeticError: no luck"):
                train.train([(BATCH + 1,)] * 2)
            trouble.how = None
            made += steps
            check_whole(train, [made])


def test_a_next_value_that_raises(devices):
    with DataParallel(counting_step(of_next=limited), devices=devices) as train:
        train.train([(BATCH,)] * 4)
        for _ in range(2):
            with pytest.raises(WorkerFailed, match="too large"):
                train(BATCH)
            check_whole(train, [4])
        train.sync_from_theano()
        train._group.load([np.zeros(3, "float32"), np.int64(0)], 0)
        train.train([(BATCH,)] * 3)
        check_whole(train, [3])


def test_a_step_that_was_given_up_does_not_report_the_interrupt_again(training):
    before = training.steps
    waiting = training.run_async(BATCH)
    group = training._group
    _, error = interrupt_at(0, group._end_first)
    assert isinstance(error, KeyboardInterrupt)
    training(BATCH)
    made = check_whole(training, [before + 1, before + 2])
    if made == before + 2:
        waiting.wait()
    else:
        with pytest.raises(WorkerFailed, match="interrupted"):
            waiting.wait()


def test_threads_end_with_what_has_started_them(devices):
    before = set(threading.enumerate())
    DataParallel(counting_step(), devices=devices)(BATCH)
    gc.collect()
    assert set(threading.enumerate()) <= before
