"""If devices have their own memory, threads begin the next step before a script of commands has ended this step."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.distributed import DataParallel, WorkerFailed
from optdb.distributed.packing import Summands
from optdb.distributed.replicas import SynchronousReplica
from optdb.runtime.driver_batches import loop_library
from optdb.runtime.scripts import Script
from profiles.distributed import build
from profiles.models.feedforward import Network
from profiles.models.parts import images
from profiles.steps_of_simulators import batches_of, compiled
from tests.distributed.training import (
    WIDTH,
    alone,
    batches,
    check,
    check_state,
    state_of,
    step,
    two_devices,
    with_memory_of_their_own,
)
from tests.effort import examples

pytestmark = pytest.mark.skipif(not loop_library(), reason="there is no C compiler")


@pytest.fixture(scope="module")
def devices():
    devices = two_devices()
    with with_memory_of_their_own(devices):
        yield devices


@pytest.fixture
def endings(monkeypatch):
    """Record how many commands of the next step each ending of a step enqueues."""
    noted, end = [], SynchronousReplica.end

    def noting(replica, ending, first):
        try:
            return end(replica, ending, first)
        finally:
            noted.append(ending.leads and len(first))

    monkeypatch.setattr(SynchronousReplica, "end", noting)
    return noted


def normalized():
    """Return the training step of a net with two batch normalizations."""
    net, features = Network(seed=4), tt.tensor4("x")
    x = features
    for channels in (3, 4):
        features = tt.nnet.relu(net.normalization(net.convolution(features, (channels, 4), 3), 4))
    return net.train_step("normalized", x, features, 4, images(net.rng, 8, 3, 8), rate=1e-3)


@pytest.mark.thorough_cases("normalized-parts", "normalized-whole")
@pytest.mark.parametrize("statistics", ["parts", "whole"])
@pytest.mark.parametrize(
    "name",
    ["mlp_adam", "normalized", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("cifar_resnet", "lstm"))],
)
@pytest.mark.slow
def test_steps_in_a_row_equal_steps_one_by_one(name, statistics, devices, endings):
    model = normalized() if name == "normalized" else build(name)
    f, given = compiled(model), batches_of(model, 24)
    axes = {"words": 1, "following": 1} if name == "lstm" else None
    with DataParallel(f, devices=devices, axes=axes, statistics=statistics) as train:
        found = train.train(given)
        state = state_of(train, f)
    # At least one ending enqueues commands of the next step; how many do depends on timing.
    assert any(endings)
    del endings[:]
    with DataParallel(f, devices=devices, axes=axes, statistics=statistics) as train:
        expected = [train(*batch) for batch in given]
        wanted = state_of(train, f)
    assert not endings
    for ours, theirs in zip([*found, state], [*expected, wanted], strict=True):
        for value, like in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(value, like)


ACTIONS = st.lists(st.sampled_from(["step", "step", "step", "short", "wait", "get", "set"]), min_size=4, max_size=24)


@pytest.fixture(scope="module")
def f():
    return step()


@pytest.mark.slow
@settings(max_examples=examples(8))
@given(ACTIONS)
def test_calls_of_all_kinds_between_steps(f, devices, actions):
    shapes, made, results, expected_state = {"step": 7, "short": 4}, [], [], None
    with DataParallel(f, devices=devices) as train:
        for number, action in enumerate(actions):
            if action in shapes:
                (batch,) = batches(1, rows=shapes[action])
                made.append((batch[0] + number, *batch[1:]))
                results.append(train.run_async(*made[-1]))
            elif action == "wait" and results:
                results[-1].wait()
            elif action == "get":
                assert train.get("w").shape == (WIDTH, 4)
            elif action == "set":
                train.set("w", train.get("w"))
        found = [future.wait() for future in results]
        expected_state = state_of(train, f)
        assert train.steps == len(made)
    check(f, found, expected_state, made)


AGREE = None if loop_library() is None else ctypes.cast(loop_library().optdb_agree, ctypes.c_void_p).value
#: The number of batches that a script still runs after all devices have agreed; None if it fails before.
PLACES = {"before all agree": None, "before the update": 1, "after the update": 3}


@pytest.mark.parametrize("place", PLACES)
def test_a_script_that_fails(place, f, devices, monkeypatch, endings):
    given, failed, run = batches(40), [], Script.run

    def failing(script):
        if len(endings) < 5 or failed:
            return run(script)
        script._end_calls()
        batches = script._batches
        agree = next(
            number for number, batch in enumerate(batches) if any(record.function == AGREE for record in batch.records)
        )
        script._batches = batches[: 0 if PLACES[place] is None else agree + PLACES[place]]
        failed.append(script)
        run(script)
        raise MemoryError("no room for a command")

    monkeypatch.setattr(Script, "run", failing)
    with DataParallel(f, devices=devices, timeout=20) as train:
        if PLACES[place] is None:
            with pytest.raises(WorkerFailed, match="no room for a command"):
                train.train(given)
            made = train.steps
            assert made < len(given)
            expected = [None] * made
            found = [*expected, *train.train(given[made:])]
        else:
            made, found = 0, train.train(given)
            assert train.steps == len(given)
        state = state_of(train, f)
    assert failed and len(endings) > 10
    results, wanted = alone(f, given)
    for ours, theirs in zip(found[made:], results[made:], strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-10)
    for value, like in zip(state, wanted, strict=True):
        np.testing.assert_allclose(value, like, rtol=1e-10)


def test_results_in_another_order_are_those_of_their_step(devices):
    x, w = tt.dmatrix("x"), theano.shared(np.arange(6.0).reshape(3, 2), "w")
    loss = tt.sqr(x.dot(w)).mean()
    after = w - 0.01 * tt.grad(loss, w)
    f = theano.function([x], [loss, (2 * w).T, after.T], updates=[(w, after)], mode=theano.Mode("py", "fast_run"))
    given = [(np.random.RandomState(number).standard_normal((4, 3)),) for number in range(24)]
    with DataParallel(f, devices=devices) as train:
        found = train.train(given)
        check(f, found, state_of(train, f), given)


def test_an_ending_that_cannot_be_put_together(f, devices, monkeypatch, endings):
    given, failed, add_lent = batches(40), [], Summands.add_lent

    def failing(summands, exchange, calls):
        add_lent(summands, exchange, calls)
        if isinstance(calls, Script) and len(endings) > 4 and not failed:
            failed.append(calls)
            raise MemoryError("no room for a script")

    monkeypatch.setattr(Summands, "add_lent", failing)
    with DataParallel(f, devices=devices, timeout=20) as train:
        with pytest.raises(WorkerFailed, match="no room for a script"):
            train.train(given)
        made = train.steps
        assert failed and made < len(given)
        train.train(given[made:])
        state = state_of(train, f)
    check_state(f, state, given)


def test_a_batch_that_fails_leaves_the_step_before_it(devices):
    x, index = tt.dmatrix("x"), tt.ivector("index")
    w = theano.shared(np.ones((3, 2)), "w")
    loss = (w.sum(axis=1)[index] * x.sum(axis=1)).mean()
    f = theano.function([x, index], loss, updates=[(w, w - 0.1 * tt.grad(loss, w))], mode=theano.Mode("py"))
    good = np.ones((4, 3)), np.array([0, 1, 2, 0], "int32")
    bad = np.ones((4, 3)), np.array([0, 1, 2, 9], "int32")
    with DataParallel(f, devices=devices, timeout=20) as train:
        train.train([good] * 6)
        with pytest.raises(WorkerFailed, match="IndexError"):
            train.train([good, good, bad, good, good])
        assert train.steps == 8
        train.train([good] * 3)
        found = train.get("w")
    np.testing.assert_allclose(found, alone(f, [good] * 11)[1][0])
