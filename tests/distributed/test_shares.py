"""Each of three devices adds up one share of the sums, which all devices then read."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb.distributed import DataParallel, WorkerFailed, packing
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator.packing import PackedVariables
from optdb.runtime.driver_batches import loop_library
from optdb.runtime.packing import PackedVector
from optdb.runtime.scripts import Script
from tests.distributed.test_endings import AGREE
from tests.distributed.training import (
    alone,
    batches,
    check,
    check_state,
    state_of,
    step,
    two_devices,
    wide_step,
    with_memory_of_their_own,
)


@pytest.fixture(scope="module")
def devices():
    devices = ["opencl", *two_devices()]
    with with_memory_of_their_own(devices):
        yield devices


@pytest.fixture
def shares(monkeypatch):
    """Let each device add up a share of the sums even if they are small; return a list of the downloaded shares."""
    monkeypatch.setattr(packing, "SHARED_NBYTES", 0)
    noted, download = [], PackedVariables.download_share

    def noting(variables, share, calls):
        noted.append((share, type(calls).__name__))
        return download(variables, share, calls)

    monkeypatch.setattr(PackedVariables, "download_share", noting)
    return noted


def mixed_step():
    """Return a step with float32 and float64 gradients, some without elements, and batches."""
    rng = np.random.RandomState(0)
    x = tt.dmatrix("x")
    wide, narrow = theano.shared(rng.standard_normal((5, 70)), "wide"), theano.shared(rng.rand(70).astype("float32"))
    none = theano.shared(np.zeros((0, 3)), "none")
    loss = tt.sqr(tt.tanh(x.dot(wide)).dot(narrow)).mean() + none.sum()
    shared = [wide, narrow, none]
    updates = [
        (var, var - tt.cast(0.01 * grad, var.dtype)) for var, grad in zip(shared, tt.grad(loss, shared), strict=True)
    ]
    f = theano.function([x], [loss], updates=updates, mode=theano.Mode("py", "fast_run"))
    return f, [(rng.standard_normal((9, 5)),) for _ in range(8)]


@pytest.mark.parametrize("build", [lambda: (step(), batches(8)), wide_step, mixed_step], ids=["step", "wide", "mixed"])
def test_sums_in_shares_are_those_of_one_device(build, devices, shares, monkeypatch):
    f, given = build()
    given = 4 * given
    with DataParallel(f, devices=devices) as train:
        found = [*train.train(given[:-2]), *(train(*batch) for batch in given[-2:])]
        state = state_of(train, f)
        states = [replica.state() for replica in train._group._replicas]
    check(f, found, state, given, rtol=1e-6 if build is mixed_step else 1e-10)
    assert {share for share, _ in shares} == {(0, 3), (1, 3), (2, 3)} and len(shares) == 3 * len(given)
    monkeypatch.setattr(packing, "SHARED_NBYTES", 1 << 40)
    with DataParallel(f, devices=devices) as train:
        train.train(given)
        wanted = state_of(train, f)
    assert len(shares) == 3 * len(given)
    for one in [state, *states]:
        for value, like in zip(one, wanted, strict=True):
            np.testing.assert_array_equal(value, like)


def test_two_devices_add_up_all_sums(devices, shares):
    f, given = step(), batches(3)
    with DataParallel(f, devices=devices[1:]) as train:
        check(f, train.train(given), state_of(train, f), given)
    assert not shares


def test_sums_may_change_their_shape(devices, shares):
    x, w = tt.dmatrix("x"), theano.shared(np.ones((4, 3)), "w")
    # The gradient has the shape of `w`, which an assignment below changes.
    loss = tt.sqr(x.dot(w)).mean()
    f = theano.function([x], loss, updates=[(w, w - 0.1 * tt.grad(loss, w))], mode=theano.Mode("py", "fast_run"))
    rng = np.random.RandomState(0)
    given = [(rng.standard_normal((6, 4)),) for _ in range(4)]
    with DataParallel(f, devices=devices) as train:
        train.train(given)
        train.set("w", np.ones((4, 300)))
        train.train(given)
        found = train.get("w")
    w.set_value(np.ones((4, 300)))
    np.testing.assert_allclose(found, alone(f, given)[1][0], rtol=1e-10)
    assert shares


@pytest.mark.skipif(not loop_library(), reason="there is no C compiler")
@pytest.mark.parametrize("method", ["download_share", "upload_shares"])
@pytest.mark.parametrize("calls", ["Script", "Immediate"])
def test_a_device_that_fails(method, calls, devices, shares, monkeypatch):
    f, given, failed, original = step(), batches(40), [], getattr(PackedVariables, method)

    def failing(variables, *args):
        made = original(variables, *args)
        if type(args[-1]).__name__ == calls and len(shares) > 9 and not failed:
            failed.append(variables)
            raise MemoryError("no memory for a share")
        return made

    monkeypatch.setattr(PackedVariables, method, failing)
    with DataParallel(f, devices=devices, timeout=20) as train:
        with pytest.raises(WorkerFailed, match="no memory for a share"):
            for batch in given:
                if calls == "Immediate":
                    train(*batch)
            train.train(given)
        made = train.steps
        assert failed and made < len(given)
        train.train(given[made:])
        state = state_of(train, f)
    check_state(f, state, given)


@pytest.mark.skipif(not loop_library(), reason="there is no C compiler")
@pytest.mark.parametrize("computes", [False, True])
def test_a_script_that_fails(computes, devices, shares, monkeypatch):
    f, given, scripts, run = step(), batches(60), [], Script.run

    def failing(script):
        scripts.append(script)
        if len(scripts) != 4:
            return run(script)
        script._end_calls()
        # The script waits for an agreement twice, first when the devices meet; the commands in between are in one
        # batch.
        agrees = (any(record.function == AGREE for record in batch.records) for batch in script._batches)
        script._batches = script._batches[: list(agrees).index(True) if computes else 0]
        run(script)
        raise MemoryError("no memory for a command")

    monkeypatch.setattr(Script, "run", failing)
    with DataParallel(f, devices=devices, timeout=20) as train:
        with pytest.raises(WorkerFailed, match="no memory for a command"):
            train.train(given)
        made = train.steps
        train.train(given[made:])
        state = state_of(train, f)
    check_state(f, state, given)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_shares_cover_all_elements(dtype, devices):
    context = get_context(context_of(devices[0]))
    for shapes in ([(3, 4), (0, 2), (5, 7)], [(1,)], [(1000,), (3,)]):
        vector = PackedVector(context, dtype, shapes)
        for count in (3, 4, 8):
            parts = [vector.share_of(rank, count) for rank in range(count)]
            covered = [i for part in parts for i in range(part.start, part.stop)]
            assert covered == list(range(vector.whole.stop))
