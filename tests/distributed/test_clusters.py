"""DataParallel on dask's workers: values, workers that die, errors, and the traffic through the scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from optdb.device.plans.linked import LinkedFunction
from optdb.distributed import DataParallel, StateLost, WorkerFailed, WorkerRefused
from optdb.distributed.cluster_members import local_devices
from optdb.distributed.clusters import RestartingCluster, _KeepingNanny
from profiles.clusters import counted_bytes
from tests.distributed.training import alone, batches, check, step, two_devices, wide_step
from tests.distributed.whole_steps import (
    BATCH,
    CALLS,
    check_whole,
    counting_step,
    failing_once,
    interrupt_everywhere,
    limited,
    replicas_of,
    set_everywhere,
)
from tests.interrupts import ctrl_c_interrupts, interrupt_at  # noqa: F401 (a fixture)

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TIMEOUT = 60


@pytest.fixture(scope="module")
def f():
    return step()


@pytest.fixture
def cluster():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


def kill(client, address):
    (pid,) = client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGKILL)


def finish(f, train, found, given):
    """Run the remaining steps, and compare all results and the state with those of one device."""
    found += train.train(given[len(found) :])
    state = [train.get(shared) for shared in f.get_shared()]
    check(f, found, state, given)


def test_steps_a_death_between_them_and_one_within(f, client, caplog):
    given = batches(30)
    with DataParallel(f, client, timeout=TIMEOUT) as train:
        assert len(train.workers) == 2
        found = train.train(given[:5])
        kill(client, train.addresses[0])
        found += train.train(given[5:8])
        assert len(train.workers) == 1
        assert "is dropped" in caplog.text and "repeated without it" in caplog.text
        # Dask replaces the dead worker; the new one gets the state from the remaining worker.
        end = time.monotonic() + TIMEOUT
        while len(train.refresh()) < 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        found += train.train(given[8:12])
        killer = threading.Timer(0.005, kill, (client, train.addresses[1]))
        killer.start()
        found += train.train(given[12:20])
        killer.join()
        finish(f, train, found, given)


def test_all_workers_die(f, client, tmp_path):
    given = batches(7)
    with DataParallel(f, client, timeout=TIMEOUT, checkpoint=tmp_path, checkpoint_every=3) as train:
        found = train.train(given[:5])
        for address in train.addresses:
            kill(client, address)
        with pytest.raises(StateLost, match=r"after 5 steps[\s\S]*checkpoint='folder'"):
            train.train(given[5:])
    client.wait_for_workers(2, timeout=TIMEOUT)
    with DataParallel(f, client, timeout=TIMEOUT, checkpoint=tmp_path) as train:
        assert train.steps == 3
        finish(f, train, found[:3], given)


def die_within_a_step(addresses):
    """Make each worker die when it has computed its part of a step."""
    from optdb.distributed.replica import Replica

    Replica.finish = lambda replica: os._exit(1)


@pytest.mark.parametrize("when", ["before", "within"])
def test_all_workers_die_in_the_first_step(when, f, client):
    (batch,) = batches(1)
    with DataParallel(f, client, timeout=TIMEOUT) as train:
        for address in train.addresses:
            if when == "before":
                kill(client, address)
            else:
                client.run(die_within_a_step, address, workers=[address])
        with pytest.raises(StateLost, match="after 0 steps"):
            train(*batch)


@pytest.fixture
def workers_here():
    """Return a client whose workers are threads of this process."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.usefixtures("ctrl_c_interrupts")
@pytest.mark.parametrize("what", CALLS)
def test_an_interrupt_at_each_place_of_a_call(what, workers_here):
    with DataParallel(counting_step(), workers_here, two_devices(), timeout=TIMEOUT) as train:
        train.train([(BATCH,)] * 4)
        places, interrupted = interrupt_everywhere(train, *CALLS[what], 1)
    print("places:", places)
    assert places > 50 and interrupted >= 0.9 * places


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_an_interrupt_at_each_place_of_setting_values(workers_here):
    with DataParallel(counting_step(), workers_here, two_devices(), timeout=TIMEOUT) as train:
        places = set_everywhere(train, 1)
    print("places:", places)


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_an_interrupt_at_each_place_of_closing(workers_here):
    f, number, is_over = counting_step(), 0, False
    while not is_over:
        train = DataParallel(f, workers_here, two_devices(), timeout=TIMEOUT)
        train(BATCH)
        is_over, error = interrupt_at(number, train.close)
        assert error is None or isinstance(error, KeyboardInterrupt)
        train.close()
        assert not replicas_of(train)
        number += 7
    print("places:", number)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_at_each_node_of_a_step(rank, workers_here, monkeypatch):
    f, number, has_failed = counting_step(), 0, True
    while has_failed:
        with DataParallel(f, workers_here, two_devices(), timeout=TIMEOUT) as train:
            address = train.addresses[rank]
            fails = failing_once(number, lambda address=address: distributed.get_worker().address == address)
            with monkeypatch.context() as patch:
                patch.setattr(LinkedFunction, "run", fails)
                try:
                    train(BATCH)
                    has_failed = False
                except WorkerFailed as error:
                    assert "no luck" in str(error)
            if has_failed:
                check_whole(train, [0])
                train.train([(BATCH,)] * 2)
                check_whole(train, [2])
        number += 1
    assert number > 4


def test_a_next_value_that_raises(workers_here):
    with DataParallel(counting_step(of_next=limited), workers_here, two_devices(), timeout=TIMEOUT) as train:
        train.train([(BATCH,)] * 4)
        for _ in range(2):
            with pytest.raises(WorkerFailed, match="too large"):
                train(BATCH)
            check_whole(train, [4])
        train._group.load([np.zeros(3, "float32"), np.int64(0)], 0)
        train.train([(BATCH,)] * 3)
        check_whole(train, [3])


def map_segments(allowed):
    """Let this worker map other workers' segments, or make it behave as if these workers were on another host."""
    from optdb.distributed import workers
    from optdb.distributed.shared_memory import SharedArrays

    class Apart(SharedArrays):
        def map(self, address, offer):
            return False

    workers.SharedArrays = SharedArrays if allowed else Apart


def readers():
    """Return the number of workers that have mapped this worker's segment."""
    from optdb.distributed import workers

    (session,) = workers._sessions.values()
    return len(session.shared._segment.mapped_by)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="segments need Linux")
@pytest.mark.parametrize("count", [2, 3])
def test_shared_memory_messages_and_both_give_the_same_bits(count):
    f, given = wide_step()
    found = {}
    with (
        RestartingCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        for case in ("shared memory", "messages", "both"):
            addresses = sorted(client.scheduler_info()["workers"])
            apart = {"shared memory": [], "messages": addresses, "both": addresses[:1]}[case]
            for address in addresses:
                client.run(map_segments, address not in apart, workers=[address])
            with DataParallel(f, client, timeout=TIMEOUT) as train:
                train.train(given)
                found[case] = [train.get(shared).tobytes() for shared in f.get_shared()]
                # In a ring, each worker sends to only one other worker, which maps the sender's segment.
                assert sum(client.run(readers).values()) == count - len(apart)
        assert found["shared memory"] == found["messages"] == found["both"]
    assert not list(Path("/dev/shm").glob("optdb-*"))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="segments need Linux")
def test_deaths_leave_no_shared_memory(capfd):
    f, given = wide_step()
    with (
        RestartingCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        DataParallel(f, client, timeout=TIMEOUT) as train,
    ):
        found = train.train(given[:3])
        kill(client, train.addresses[0])
        found += train.train(given[3:5])
        killer = threading.Timer(0.005, kill, (client, train.addresses[1]))
        killer.start()
        found += train.train(given[5:])
        killer.join()
        state = [train.get(shared) for shared in f.get_shared()]
        kill(client, train.addresses[0])
    results, expected = alone(f, given)
    for value, wanted in zip([*found, *state], [*results, *expected], strict=True):
        # Some of the many gradients are differences of nearly equal sums: allow an error relative to the largest one.
        np.testing.assert_allclose(value, wanted, rtol=1e-10, atol=1e-10 * np.max(np.abs(wanted)))
    assert not list(Path("/dev/shm").glob("optdb-*"))
    assert "resource_tracker" not in capfd.readouterr().err


def wait_until_stopped(pid):
    """Wait until the operating system has stopped a process, which then no longer answers."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


def wait_briefly():
    """Make this worker wait for others for only 0.1 seconds."""
    from optdb.distributed import workers

    for session in workers._sessions.values():
        session.mailbox.timeout = 0.1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the state of a process is read from /proc")
def test_a_worker_that_hangs_is_named(f, client, caplog):
    given = batches(3)
    # The test does not depend on the computer's speed, because the stopped worker never answers the running one.
    with DataParallel(f, client, timeout=600) as train:
        found = train.train(given[:2])
        working, hanging = train.addresses
        (pid,) = client.run(os.getpid, workers=[hanging]).values()
        client.run(wait_briefly, workers=[working])
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until_stopped(pid)
            found.append(train(*given[2]))
            assert train.addresses == [working]
            assert f"received no part of a sum from {hanging} within" in caplog.text
            state = [train.get(shared) for shared in f.get_shared()]
        finally:
            os.kill(pid, signal.SIGCONT)
    check(f, found, state, given)


def test_a_local_worker_is_started_anew_however_soon_it_is_looked_for():
    # After this time, LocalCluster gives up a worker that has died.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}),
        RestartingCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        for _ in range(2):
            (before,) = client.scheduler_info()["workers"]
            assert client.run(allocator_setting) == {before: str(1 << 25)}
            kill(client, before)
            end = time.monotonic() + TIMEOUT
            while set(client.run_on_scheduler(addresses)) <= {before}:
                assert time.monotonic() < end
                time.sleep(0.05)


@pytest.mark.parametrize(("chosen", "expected"), [("4096", "4096"), ("65536", str(1 << 28)), (None, str(1 << 28))])
def test_memory_that_workers_keep_unless_the_user_has_said_how_much(chosen, expected, monkeypatch):
    name = "MALLOC_TRIM_THRESHOLD_"
    if chosen is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, chosen)
    nanny = _KeepingNanny("tcp://127.0.0.1:1")
    assert nanny.pre_spawn_env[name] == nanny.env[name] == expected


def allocator_setting():
    return os.environ["MALLOC_MMAP_THRESHOLD_"]


def addresses(dask_scheduler):
    return list(dask_scheduler.workers)


def test_an_error_on_a_worker(f, client):
    good, *_ = batches(1)
    with DataParallel(f, client, timeout=TIMEOUT) as train:
        train(*good)
        before = train.get("w")
        wrong = np.ones((4, 9)), np.ones(4), 0.1
        with pytest.raises(WorkerFailed, match=r"worker .* on .*ValueError"):
            train(*wrong)
        np.testing.assert_array_equal(train.get("w"), before)
        train(*good)
        assert train.steps == 2


def test_steps_of_workers_and_averages(f, client):
    (batch,) = batches(1)
    with DataParallel(f, client, average_every=2, outputs=["mean", "concatenate"], timeout=TIMEOUT) as train:
        for _ in range(2):
            loss, rows = train(*batch)
        assert np.shape(loss) == () and rows.shape == (7,)
        states = [train.get("w")]
        kill(client, train.addresses[0])
        train(*batch)
        states.append(train.get("w"))
    assert not np.array_equal(*states)


def test_workers_that_differ_are_refused(f, client):
    def pretend(dask_worker):
        from optdb.distributed import workers

        workers.__version__ = "0.0.1"

    (address, _) = client.scheduler_info()["workers"]
    client.run(pretend, workers=[address])
    with pytest.raises(WorkerRefused, match=r"has optdb 0\.0\.1, where the client has"):
        DataParallel(f, client, timeout=TIMEOUT)


def test_a_device_that_a_worker_does_not_have(f, client):
    with pytest.raises(WorkerRefused, match=r"worker .* cannot use opencl77:0"):
        DataParallel(f, client, ["opencl77:0"], timeout=TIMEOUT)


def test_only_descriptions_of_tasks_pass_the_scheduler(f, client):
    def moved(rows):
        (batch,) = batches(1, rows)
        for _ in range(3):
            train(*batch)
        with counted_bytes(client) as total:
            for _ in range(10):
                train(*batch)
        return total() / 10

    with DataParallel(f, client, timeout=TIMEOUT) as train:
        small, large = moved(8), moved(8000)
    # 8,000 rows are 450 kB, which do not pass through the scheduler. The scheduler only gets a varying number of
    # heartbeats.
    assert large < 40_000 and abs(large - small) < 20_000
    prefixes = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert "train-step" in prefixes


def test_workers_by_the_command_line(f, tmp_path):
    given = batches(3)
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    file = str(tmp_path / "scheduler.json")
    options = ["--scheduler-file", file, "--no-dashboard"]
    scheduler = subprocess.Popen([*command, "--port", "0", *options])
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--nthreads", "1"]
    processes = [scheduler, *(subprocess.Popen([*worker, "--no-dashboard"], cwd=tmp_path) for _ in range(2))]
    try:
        with distributed.Client(scheduler_file=file, timeout=TIMEOUT) as client:
            client.wait_for_workers(2, timeout=TIMEOUT)
            with DataParallel(f, client, timeout=TIMEOUT) as train:
                finish(f, train, [], given)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def test_workers_that_are_added_and_taken_away(f, cluster, client):
    given = batches(12)
    with DataParallel(f, client, timeout=TIMEOUT) as train:
        found = train.train(given[:3])
        cluster.scale(3)
        end = time.monotonic() + TIMEOUT
        while len(train.refresh()) < 3:
            assert time.monotonic() < end
            time.sleep(0.1)
        found += train.train(given[3:6])
        cluster.scale(1)
        client.wait_for_workers(1, timeout=TIMEOUT)
        time.sleep(1)
        finish(f, train, found, given)
        assert len(train.workers) == 1


def test_a_cluster_of_its_own(f):
    given = batches(3)
    with DataParallel(f, timeout=TIMEOUT) as train:
        finish(f, train, [], given)


@pytest.mark.parametrize(
    ("found", "count", "expected"),
    [
        ([("a", "gpu", 8), ("b", "gpu", 8), ("c", "cpu", 4)], None, ["a", "b"]),
        ([("a", "gpu", 8), ("b", "gpu", 8)], 3, ["a", "b", "a"]),
        ([("c", "cpu", 4)], None, ["c[1/2]", "c[2/2]"]),
        ([("c", "cpu", 1)], None, ["c"]),
        ([("c", "cpu", 4)], 3, ["c[1/3]", "c[2/3]", "c[3/3]"]),
        ([("c", "cpu", 2)], 3, ["c", "c", "c"]),
        ([], 2, ["auto", "auto"]),
    ],
)
def test_devices_of_one_host(found, count, expected):
    assert local_devices(found, count) == expected
