"""DataParallel trains with threads of one process."""

from __future__ import annotations

import io
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.distributed import DataParallel, NoGradients, WorkerFailed, threads
from optdb.distributed.replica import Replica
from optdb.distributed.threads import ThreadGroup
from optdb.distributed.worker_threads import switch_interval
from optdb.opencl.registry import context_of, get_context
from optdb.runtime.packing import StagingBuffer
from tests.distributed.training import alone, batches, check, step, two_devices, with_memory_of_their_own

pytestmark = pytest.mark.usefixtures("engine_where_quick")


@pytest.fixture(scope="module", params=["shared memory", "memory of their own"])
def devices(request):
    devices = two_devices()
    if request.param == "shared memory":
        yield devices
        return
    with with_memory_of_their_own(devices):
        yield devices


@pytest.fixture(scope="module")
def f():
    return step()


def test_exact_steps(f, devices):
    given = [*batches(4), *batches(2, rows=1), *batches(2, rows=2)]
    with DataParallel(f, devices=devices) as train:
        found = train.train(given)
        state = [train.get(shared) for shared in f.get_shared()]
        assert train.steps == len(given)
    check(f, found, state, given)


def test_results_are_the_callers_own(f, devices):
    first, second = batches(2)
    with DataParallel(f, devices=devices) as train:
        loss, rows = train(*first)
        before = loss.copy(), rows.copy()
        train(*second)
    assert loss == before[0] and (rows == before[1]).all()


def test_one_device_is_enough(f):
    given = batches(3)
    with DataParallel(f, devices=["opencl"]) as train:
        found = train.train(given)
        state = [train.get(shared) for shared in f.get_shared()]
    check(f, found, state, given)


def test_by_name_and_with_the_functions_signature(f, devices):
    ((x, y, rate),) = batches(1)
    with DataParallel(f, devices=devices) as train:
        by_name = train.train([{"x": x, "rate": rate, "y": y}])
    assert by_name[0][0] == pytest.approx(alone(f, [(x, y, rate)])[0][0][0])


def test_a_failed_step_changes_nothing(devices):
    x, numbers = tt.dmatrix("x"), tt.lvector("numbers")
    w = theano.shared(np.ones(3), "w")
    table = w[numbers]
    loss = (x.sum(axis=1) * table).mean()
    f = theano.function([x, numbers], loss, updates=[(w, w - tt.grad(loss, w))], mode=theano.Mode("py", "fast_run"))
    good = np.ones((4, 3)), np.array([0, 1, 2, 0])
    bad = np.ones((4, 3)), np.array([0, 1, 2, 9])
    with DataParallel(f, devices=devices, timeout=20) as train:
        train(*good)
        before = train.get("w")
        # The second worker fails, and the first one waits for it.
        with pytest.raises(WorkerFailed, match=r"\[2/2\].*IndexError"):
            train(*bad)
        assert train.steps == 1
        np.testing.assert_array_equal(train.get("w"), before)
        train(*good)
    state = alone(f, [good, good])[1]
    with DataParallel(f, devices=devices) as again:
        again.train([good, good])
        np.testing.assert_allclose(again.get("w"), state[0])


def test_shared_variables(f, devices):
    w = next(shared for shared in f.get_shared() if shared.name == "w")
    start = w.get_value()
    try:
        with DataParallel(f, devices=devices) as train:
            assert w in train.shared
            train.set("w", start * 2)
            np.testing.assert_array_equal(train.get(w), start * 2)
            np.testing.assert_array_equal(w.get_value(), start)
            (batch,) = batches(1)
            train(*batch)
            train.sync_to_theano()
            np.testing.assert_array_equal(w.get_value(), train.get("w"))
            w.set_value(start)
            train.sync_from_theano()
            np.testing.assert_array_equal(train.get("w"), start)
            with pytest.raises(KeyError, match=r"^no shared variable is named 'z'"):
                train.get("z")
    finally:
        w.set_value(start)
        for shared in f.get_shared():
            if shared.name.startswith("velocity"):
                shared.set_value(np.zeros_like(shared.get_value()))


def test_a_checkpoint_is_gone_on_from(f, devices, tmp_path):
    given = batches(6)
    with DataParallel(f, devices=devices, checkpoint=tmp_path, checkpoint_every=2) as train:
        found = train.train(given[:5])
    # Steps after the last checkpoint are lost.
    with DataParallel(f, devices=devices, checkpoint=tmp_path) as train:
        assert train.steps == 4
        found[4:] = train.train(given[4:])
        state = [train.get(shared) for shared in f.get_shared()]
    check(f, found, state, given)


def test_steps_of_each_worker_and_averages(devices):
    x = tt.dmatrix("x")
    w = theano.shared(np.zeros(()), "w")
    count = theano.shared(np.int64(0), "count")
    # This update contains no gradient that optdb recognizes: each worker adds the largest element of its own rows.
    f = theano.function([x], x.max(), updates=[(w, w + x.max()), (count, count + 1)], mode=theano.Mode("py", None))
    low, high = np.full((3, 2), 1.0), np.full((1, 2), 5.0)
    with pytest.raises(NoGradients, match=r"average_every=10"):
        DataParallel(f, devices=devices)
    batch = np.concatenate([low, high])
    with DataParallel(f, devices=devices, average_every=2, outputs=["sum"]) as train:
        assert train(batch) == 1 + 5
        train(batch)
        # After two steps, `w` is 2 on one worker and 10 on the other. Both have two rows, so the average is 6.
        assert train.get("w") == 6
        assert train.get("count") == 2


def test_two_devices_that_are_one_are_refused(f, devices):
    for same in (["opencl", "opencl"], [devices[0], devices[0]], []):
        with pytest.raises(ValueError, match="each thread needs a device of its own"):
            DataParallel(f, devices=same)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statistics": "own"}, "'whole' or 'parts'"),
        ({"average_every": 0}, "1 or more"),
        ({"average_every": 2, "gradients": {}}, "one of them"),
        ({"checkpoint_every": 0}, "1 or more"),
        ({"timeout": 0}, "above 0"),
        ({"outputs": {0: "median"}}, "one of 'mean', 'sum', 'concatenate'"),
        ({"outputs": {5: "mean"}}, "names output 5"),
    ],
)
def test_options_that_are_refused(f, options, message):
    with pytest.raises(ValueError, match=message):
        DataParallel(f, devices=["opencl"], **options)


def test_one_name_is_no_list_of_devices(f):
    with pytest.raises(TypeError, match=r"devices must be a list.*'pocl'\.\nThe cure: devices=\['pocl'\]"):
        DataParallel(f, devices="pocl")


def test_a_folder_that_cannot_be_written_is_refused_before_training(f, devices):
    with pytest.raises(OSError, match=r"checkpoint= a folder with space that can be written.*'/proc/none'"):
        DataParallel(f, devices=devices[:1], checkpoint="/proc/none")


def test_wrong_arguments_are_named(f, devices):
    x, y, rate = batches(1)[0]
    with DataParallel(f, devices=devices[:1]) as train:
        with pytest.raises(TypeError, match="the argument x: Wrong number of dimensions: expected 2"):
            train(x[0], y, rate)
        with pytest.raises(ValueError, match="the argument rate: could not convert"):
            train(x, y, "fast")


def test_after_the_end_calls_name_the_cure(f, devices):
    with DataParallel(f, devices=devices[:1]) as train:
        pass
    train.close()
    for call in (lambda: train(*batches(1)[0]), lambda: train.get("w"), train.sync_to_theano, train.sync_from_theano):
        with pytest.raises(RuntimeError, match=r"were closed.*\nThe cure: create another one"):
            call()


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="expected a compiled function"):
        DataParallel(lambda x: x, devices=["opencl"])


def test_a_progress_bar(f, devices, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with DataParallel(f, devices=devices, progress_bar=True) as train:
        train.train(batches(3))
    assert "3/3" in shown.getvalue()


def test_without_dask_the_error_names_the_extra(f, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in [name for name in sys.modules if name in ("optdb.distributed.clusters", "optdb.distributed.workers")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'optdb\[distributed\]'"):
        DataParallel(f)


def test_the_public_name():
    assert optdb.distributed.DataParallel is DataParallel
    assert "<DataParallel" in repr(DataParallel(step(), devices=["opencl"]))


def test_threads_pass_pythons_lock_on_at_short_intervals_during_a_step(f, devices, monkeypatch):
    before, seen = sys.getswitchinterval(), []
    launch = Replica.launch

    def noting(replica, *args):
        seen.append(sys.getswitchinterval())
        launch(replica, *args)

    monkeypatch.setattr(Replica, "launch", noting)
    with DataParallel(f, devices=devices) as train:
        train.train(batches(1))
    assert len(seen) == len(devices) and max(seen) < before
    assert sys.getswitchinterval() == before


def test_the_interval_is_put_back_when_the_last_user_ends():
    before = sys.getswitchinterval()
    first, second = switch_interval.held(), switch_interval.held()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() < before
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


@pytest.fixture
def failing():
    """Return a step, arguments for which it works, and arguments for which it fails on the second worker."""
    x, numbers = tt.dmatrix("x"), tt.lvector("numbers")
    w = theano.shared(np.ones(3), "w")
    loss = (x.sum(axis=1) * w[numbers]).mean()
    f = theano.function([x, numbers], loss, updates=[(w, w - tt.grad(loss, w))], mode=theano.Mode("py", "fast_run"))
    good = np.ones((4, 3)), np.array([0, 1, 2, 0])
    return f, good, (np.ones((4, 3)), np.array([0, 1, 2, 9]))


def test_steps_that_nobody_waits_for(f, devices):
    given = [*batches(5), *batches(2, rows=1), *batches(2, rows=2)]
    with DataParallel(f, devices=devices) as train:
        futures = []
        for x, y, rate in given:
            mine = x.copy(), y.copy()
            futures.append(train.run_async(*mine, rate=rate))
            for array in mine:
                array.fill(np.nan)
        # The first steps must have ended long ago, although nothing has waited for them.
        found = [future.wait() for future in reversed(futures)][::-1]
        assert all(future.done() for future in futures)
        assert futures[0].wait() is found[0]
        assert train.steps == len(given)
        state = [train.get(shared) for shared in f.get_shared()]
    check(f, found, state, given)


def test_batches_are_brought_to_a_device_that_is_at_work(devices, monkeypatch):
    """If devices have their own memory, the next batch is copied through pinned memory while they compute."""
    for device in devices:
        context = get_context(context_of(device))
        monkeypatch.setattr(context, "profile", replace(context.profile, shares_host_memory=False))
        monkeypatch.setattr(context, "kept", {})
    f, given = step(), batches(12, rows=2000)
    staged, has_following = [], [threading.Event() for _ in given]
    has_following[-1].set()
    begin_staging, begin, run = StagingBuffer.begin, ThreadGroup.begin, ThreadGroup._run

    def begin_next(group, divide, keep):
        begun = begin(group, divide, keep)
        has_following[begun.number - 1].set()
        return begun

    def run_beside_the_next(group, step, rank):
        has_following[step.number].wait(20)
        run(group, step, rank)

    with DataParallel(f, devices=devices) as train:
        # During the first steps, optdb measures whether pinned memory is faster.
        found = [train(*batch) for batch in given[:4]]
        monkeypatch.setattr(
            StagingBuffer, "begin", lambda buffer, value: (staged.append(begin_staging(buffer, value)), staged[-1])[1]
        )
        monkeypatch.setattr(ThreadGroup, "begin", begin_next)
        monkeypatch.setattr(ThreadGroup, "_run", run_beside_the_next)
        found += train.train(batch for batch in given[4:])
        state = [train.get(shared) for shared in f.get_shared()]
    assert sum(each is not None for each in staged) == len(devices) * 8
    check(f, found, state, given)


def test_the_state_is_that_after_all_steps_that_have_begun(f, devices):
    given = batches(5)
    with DataParallel(f, devices=devices) as train:
        futures = [train.run_async(*batch) for batch in given[:2]]
        state = [train.get(shared) for shared in f.get_shared()]
        check(f, [future.wait() for future in futures], state, given[:2])
        futures += [train.run_async(*given[2])]
        w = train.get("w")
        train.run_async(*given[3])
        train.set("w", w)
        np.testing.assert_array_equal(train.get("w"), w)
        assert np.isfinite(train.run_async(*given[4]).wait()[0])
    assert sys.getswitchinterval() > 1e-4


def test_steps_behind_one_that_fails_are_not_made(failing, devices, monkeypatch):
    f, good, bad = failing
    begun, run = threading.Event(), ThreadGroup._run

    def late(group, step, rank):
        assert step.number == 0 or begun.wait(20)
        run(group, step, rank)

    monkeypatch.setattr(ThreadGroup, "_run", late)
    with DataParallel(f, devices=devices, timeout=20) as train:
        train.run_async(*good)
        wrong, behind = train.run_async(*bad), train.run_async(*good)
        begun.set()
        with pytest.raises(WorkerFailed, match=r"\[2/2\].*IndexError"):
            wrong.wait()
        with pytest.raises(WorkerFailed, match=r"the previous step failed: .*IndexError"):
            behind.wait()
        assert train.steps == 1
        train(*good)
        assert train.steps == 2
        found = train.get("w")
    np.testing.assert_allclose(found, alone(f, [good, good])[1][0])


def test_an_error_that_nobody_waits_for_is_told(failing, devices):
    f, good, bad = failing
    with DataParallel(f, devices=devices, timeout=20) as train:
        for begin in (train, train.run_async):
            train.run_async(*bad)
            with pytest.raises(WorkerFailed, match=r"IndexError"):
                for _ in range(3):
                    begin(*good)
            train(*good)
        train.run_async(*bad)
        before = train.get("w")
        train.set("w", before)
        with pytest.raises(WorkerFailed, match=r"IndexError"):
            train(*good)
        np.testing.assert_array_equal(train.get("w"), before)


def test_training_stops_at_a_step_that_fails(failing, devices):
    f, good, bad = failing
    with DataParallel(f, devices=devices, timeout=20) as train:
        taken = iter([good, good, bad, good, good])
        with pytest.raises(WorkerFailed, match=r"IndexError"):
            train.train(taken)
        assert train.steps == 2
        assert len(list(taken)) == 1
        assert len(train.train([good] * 3)) == 3
        found = train.get("w")
    np.testing.assert_allclose(found, alone(f, [good] * 5)[1][0])


def test_a_checkpoint_has_the_step_that_it_is_due_after(f, devices, tmp_path):
    given = batches(5)
    with DataParallel(f, devices=devices, checkpoint=tmp_path, checkpoint_every=2) as train:
        for batch in given:
            train.run_async(*batch)
    with DataParallel(f, devices=devices, checkpoint=tmp_path) as again:
        assert again.steps == 4
        state = [again.get(shared) for shared in f.get_shared()]
    for value, wanted in zip(state, alone(f, given[:4])[1], strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-10)


def test_an_interrupt_leaves_whole_steps(f, devices, monkeypatch):
    given = batches(6)

    def interrupted(step):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with DataParallel(f, devices=devices) as train:
        found = train.train(given[:2])
        futures = [train.run_async(*batch) for batch in given[2:4]]
        monkeypatch.setattr(threads.PendingStep, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            futures[0].wait()
        made = train.steps
        assert 2 <= made <= 4
        found += [None] * (made - 2) + [train(*batch) for batch in given[made:]]
        state = [train.get(shared) for shared in f.get_shared()]
    results, expected = alone(f, given)
    for ours, theirs in zip(found[made:], results[made:], strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-10)
    for value, wanted in zip(state, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-10)
