"""The cost and exactness of data-parallel steps, and the effect of killed workers.

``python -m profiles.distributed --help`` lists the commands.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np
import theano
import theano.tensor as tt
from rich.table import Table

import optdb
from optdb.distributed import DataParallel
from optdb.distributed.worker_threads import switch_interval
from optdb.opencl.simulator.packing import finish
from profiles import models, terminal
from profiles.models import parts
from profiles.steps_of_simulators import batches_of, compiled
from profiles.training import CHAOS, difference, nudged

if TYPE_CHECKING:
    from distributed import Client

#: Seconds that dask may take to restart killed workers before a new cluster is made.
RESTART_S = 30.0
#: Number of consecutive steps in `cost`.
BLOCK = 5
#: Minimum number of warm-up steps of `devices`, which are not counted.
_WARM_UP = 24
#: The configurations that `devices` measures in addition to one device.
_WAYS = ("simulators", "whole", "parts")
#: The models of `devices`, with their sizes; the width is an option.
_SIZES: dict[str, dict[str, Any]] = {
    "cifar_resnet": {"n": 3, "width": 64, "size": 32, "rate": 1e-6},
    "lstm": {"width": 512, "steps": 50, "vocabulary": 10000},
    "mlp": {"width": 4096},
}
#: Maps floatX to the tolerance of exact steps relative to one device; it is larger if nudges have a larger effect.
_TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
#: Maps the name of a model to its sizes and axes.
_CASES: dict[str, tuple[dict[str, Any], dict[str, int] | None]] = {
    "mlp": ({"batch": 24}, None),
    "mlp_adam": ({"batch": 24}, None),
    "cifar_resnet": ({"n": 1, "batch": 8, "size": 8, "rate": 1e-3}, None),
    "lstm": ({"batch": 8}, {"words": 1, "following": 1}),
}


def mlp_adam(width: int = 32, batch: int = 24, classes: int = 10) -> models.Model:
    """Return a training step of a small net with Adam."""
    rng = np.random.RandomState(1)
    x, y = tt.matrix("x"), tt.ivector("y")
    first, second = parts.weights(rng, width, width), parts.weights(rng, width, classes)
    biases = [parts.constant(0.0, width), parts.constant(0.0, classes)]
    hidden = tt.nnet.relu(x.dot(first) + biases[0])
    cost = parts.cross_entropy(hidden.dot(second) + biases[1], y)
    updates = parts.adam(cost, [first, second, *biases])
    data = [parts.floats(rng.standard_normal((batch, width))), parts.labels(rng, batch, classes)]
    return models.Model("mlp_adam", [x, y], [cost], updates, data)


def build(name: str, **sizes: Any) -> models.Model:
    """Return a model of `_CASES`."""
    sizes = {**_CASES[name][0], **sizes}
    return mlp_adam(**sizes) if name == "mlp_adam" else models.build(name, **sizes)


@contextmanager
def local_client(workers: int) -> Iterator[Client]:
    """Start workers in processes of this machine."""
    from distributed import Client

    from optdb.distributed.clusters import RestartingCluster

    with (
        RestartingCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


class Trained(NamedTuple):
    """The shared variables after some steps, and the results of each step."""

    state: list[Any]
    results: list[list[Any]]

    def differences(self, other: Trained) -> list[float]:
        """Return the relative difference of each variable, followed by the largest difference of the results."""
        results = zip(chain(*self.results), chain(*other.results), strict=True)
        return [*map(difference, self.state, other.state), max(starmap(difference, results))]


@click.group()
def main() -> None:
    """Measure data-parallel training."""


@main.command()
@click.option("--workers", multiple=True, type=int, default=(2, 4), show_default=True)
@click.option("--steps", default=20, show_default=True)
@click.option("--model", "names", multiple=True, default=("cifar_resnet", "mlp_adam", "lstm"), show_default=True)
@terminal.device_option("auto", "Device of the run on a single device.")
@click.option("--thread", "threads", multiple=True, help="Devices of threads, instead of dask's workers.")
@click.option("--nudges", default=12, show_default=True, help="Number of runs on one device with nudged first values.")
def equal(
    workers: Sequence[int], steps: int, names: Sequence[str], device: str, threads: Sequence[str], nudges: int
) -> None:
    """Compare exact steps with steps of one device on the whole batch, and with the effect of nudged initial values.

    The exit status is 1 if workers differ by more than rounding explains.
    """
    table = Table("model", "workers", "state", "results", "most different variable", "after nudges: state", "results")
    differ = False
    for name in names:
        model = build(name)
        f, batches = compiled(model), batches_of(model, steps)
        expected = _alone(f, device, batches)
        allowed = _furthest(_alone(f, device, batches, seed).differences(expected) for seed in range(nudges))
        for count in [len(threads)] if threads else workers:
            with _training(f, count, threads, _CASES[name][1]) as train:
                results = train.train(batches)
                found = Trained([train.get(shared) for shared in f.get_shared()], results)
            *of_state, of_results = found.differences(expected)
            most = int(np.argmax(of_state))
            distances = of_state[most], of_results
            differ = differ or any(map(is_far, distances, allowed))
            variable = f"{most}: {f.get_shared()[most]}"
            table.add_row(name, str(count), *map(_short, distances), variable, *map(_short, allowed))
    terminal.console().print(table)
    if differ:
        raise SystemExit(1)


def _short(number: float) -> str:
    return f"{number:.1e}"


def is_far(found: float, allowed: float) -> bool:
    """Return whether workers differ from one device by more than a multiple of the nudges' effect."""
    return not found <= max(_TOLERANCE[theano.config.floatX], CHAOS * allowed)


def _furthest(rows: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Return the largest difference of any variable and that of the results; zeros if there are no rows."""
    rows = list(rows)
    return max((max(row[:-1]) for row in rows), default=0.0), max((row[-1] for row in rows), default=0.0)


def _alone(f: Any, device: str, batches: Sequence[Any], seed: int | None = None) -> Trained:
    """Train on one device; with a seed, the initial values are nudged up or down by one unit in the last place."""
    with optdb.SimulatorOCL(f, device) as alone:
        if seed is not None:
            for shared in f.get_shared():
                alone.set(shared, nudged(shared.get_value(), seed, units=1))
        results = [alone(*batch) for batch in batches]
        return Trained([alone.get(shared) for shared in f.get_shared()], results)


@contextmanager
def _training(f: Any, count: int, threads: Sequence[str], axes: Mapping[str, int] | None) -> Iterator[DataParallel]:
    """Train on threads with a device each, or else on dask's workers."""
    if threads:
        with DataParallel(f, devices=threads, axes=axes) as train:
            yield train
        return
    with local_client(count) as client, DataParallel(f, client, axes=axes) as train:
        yield train


@main.command()
@click.option("--runs", default=50, show_default=True)
@click.option("--steps", default=200, show_default=True)
@click.option("--workers", default=3, show_default=True)
@click.option("--kills", default=3, show_default=True, help="Number of kills in each run.")
@click.option("--timeout", default=60.0, show_default=True, help="Timeout of a step, in seconds.")
@click.option("--seed", default=0, show_default=True)
def kills(runs: int, steps: int, workers: int, kills: int, timeout: float, seed: int) -> None:
    """Kill workers at random while they train; the final state has to equal that of an undisturbed run."""
    model = build("mlp_adam")
    f, batches = compiled(model), batches_of(model, steps)
    expected = _alone(f, "auto", batches).state
    rng, worst, longest, killed = random.Random(seed), 0.0, 0.0, 0
    run = 0
    while run < runs:
        with local_client(workers) as client:
            while run < runs and _complete(client, workers, RESTART_S):
                difference, slowest, count = _killed_run(f, client, batches, expected, rng, kills, timeout)
                worst, longest, killed = max(worst, difference), max(longest, slowest), killed + count
                print(
                    f"run {run}: {count} killed, difference {difference:.1e}, slowest step {slowest:.1f} s", flush=True
                )
                run += 1
    print(f"{runs} runs, {killed} workers killed: worst difference {worst:.1e}, slowest step {longest:.1f} s")
    if not worst < 1e-10 or longest > timeout:
        raise SystemExit(1)


def _complete(client: Client, workers: int, timeout: float) -> bool:
    """Wait until dask has restarted all workers; return False if it does not."""
    try:
        client.wait_for_workers(workers, timeout=timeout)
    except TimeoutError:
        print(f"dask did not restart all {workers} workers: starting a new cluster", flush=True)
        return False
    return True


def _killed_run(
    f: Any, client: Client, batches: list[Any], expected: list[Any], rng: random.Random, kills: int, timeout: float
) -> tuple[float, float, int]:
    at = sorted(rng.sample(range(1, len(batches)), kills))
    slowest, killed = 0.0, 0
    with DataParallel(f, client, timeout=timeout) as train:
        for number, batch in enumerate(batches):
            kills_one = False
            if number in at:
                # At least one worker must stay alive, because only the workers hold the state.
                end = time.monotonic() + timeout
                while len(train.refresh()) < 2 and time.monotonic() < end:
                    time.sleep(0.1)
                kills_one = len(train.workers) > 1
            start = time.perf_counter()
            killer = _killer(client, train, rng) if kills_one else None
            train(*batch)
            if killer is not None:
                killer.join()
                killed += 1
            slowest = max(slowest, time.perf_counter() - start)
        state = [train.get(shared) for shared in f.get_shared()]
    return max(map(difference, state, expected)), slowest, killed


def _killer(client: Client, train: DataParallel, rng: random.Random) -> threading.Thread:
    """Start a thread that kills one worker during the next step."""
    address = rng.choice(train.addresses)
    (pid,) = client.run(os.getpid, workers=[address]).values()
    delay = rng.random() * 0.02

    def kill() -> None:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@main.command()
@click.option("--width", default=512, show_default=True)
@click.option("--batch", default=128, show_default=True)
@click.option("--steps", default=50, show_default=True)
@click.option("--workers", default=2, show_default=True)
def cost(width: int, batch: int, steps: int, workers: int) -> None:
    """Print the parts of the cost of an mlp's step, and the bytes through the scheduler."""
    from optdb.distributed.cluster_members import local_devices
    from optdb.distributed.workers import device_list

    model = build("mlp", width=width, batch=batch)
    f, batches = compiled(model), batches_of(model, 8)
    table = Table("part of a step", "ms, median", "quickest tenth")
    own_device = local_devices(device_list(), workers)[0]
    with (
        local_client(workers) as client,
        DataParallel(f, client) as train,
        optdb.SimulatorOCL(f, own_device, progress_bar=False) as alone,
    ):

        def block(number: int) -> list[dict[str, float]]:
            """Run some steps, then as many steps of one worker's part: the machine is equally busy during both."""
            given = batches[number % len(batches)]
            train(*given)  # not measured: no update of an earlier step is pending
            rows = [_timed(train, given) for _ in range(BLOCK)]
            train.get(train.shared[0])  # waits for the last update
            part = [value[: len(value) // workers] for value in given]
            for row in rows:
                alone_seconds = _seconds(lambda: alone(*part), lambda: finish(alone))
                row["a worker's part alone, with its update"] = alone_seconds
                row["besides it"] = row["whole step"] - alone_seconds
            return rows

        for number in range(4):
            block(number)
        with counted_bytes(client) as total:
            rows = [row for number in range(-(-steps // BLOCK)) for row in block(number)]
            moved = total() / len(rows) * BLOCK / (BLOCK + 1)
    for key in rows[0]:
        quickest, median = np.percentile([1e3 * row[key] for row in rows], [10, 50])
        table.add_row(key, f"{median:.2f}", f"{quickest:.2f}")
    terminal.console().print(table)
    size = sum(shared.get_value(borrow=True).nbytes for shared in f.get_shared())
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"state {size:,} bytes, batch {sum(a.nbytes for a in batches[0]):,} bytes")
    print(f"through the scheduler: {moved:,.0f} bytes a step, both ways")


def _seconds(*calls: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - start


def _timed(train: DataParallel, batch: Sequence[Any]) -> dict[str, float]:
    whole = _seconds(partial(train, *batch))
    longest = {key: max(seconds[key] for seconds in train.seconds) for key in train.seconds[0]}
    # The worker that waits least for other workers shows the time of the work itself.
    longest["exchange"] = min(seconds["exchange"] for seconds in train.seconds)
    return {
        "whole step": whole,
        "of it, besides the computation": whole - longest["compute"],
        **longest,
        "dask, messages and waiting": whole - sum(longest.values()),
    }


@contextmanager
def counted_bytes(client: Client) -> Iterator[Callable[[], int]]:
    """Count the bytes that the scheduler reads and writes over all connections; yield a function that returns them."""

    def written(dask_scheduler: Any) -> int:
        return sum(comm.stream._total_write_index for comm in _connections(dask_scheduler))

    def begin(dask_scheduler: Any) -> None:
        dask_scheduler.optdb_bytes = -written(dask_scheduler)

        def counting(method: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
            def count(data: Any, *args: Any, **kwargs: Any) -> Any:
                dask_scheduler.optdb_bytes += size(data)
                return method(data, *args, **kwargs)

            return count

        for comm in _connections(dask_scheduler):
            comm.stream.read_into = counting(comm.stream.read_into, lambda data: memoryview(data).nbytes)
            comm.stream.read_bytes = counting(comm.stream.read_bytes, int)

    def end(dask_scheduler: Any) -> None:
        for comm in _connections(dask_scheduler):
            for name in ("read_into", "read_bytes"):
                vars(comm.stream).pop(name, None)

    client.run_on_scheduler(begin)
    try:
        yield lambda: client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.optdb_bytes + written(dask_scheduler)
        )
    finally:
        client.run_on_scheduler(end)


def _connections(scheduler: Any) -> list[Any]:
    batched = [*scheduler.stream_comms.values(), *scheduler.client_comms.values()]
    comms = {id(comm): comm for comm in [*scheduler._comms, *(each.comm for each in batched)]}
    return [comm for comm in comms.values() if getattr(comm, "stream", None) is not None]


@main.command()
@click.option(
    "--device", "devices", multiple=True, help="Two or more devices; by default GPUs, or two parts of a processor."
)
@click.option("--count", default=2, show_default=True, help="Number of GPUs.")
@click.option("--model", "name", type=click.Choice(list(_SIZES)), default="cifar_resnet", show_default=True)
@click.option("--width", default=64, show_default=True)
@click.option("--batch", default=256, show_default=True)
@click.option(
    "--each/--together",
    default=False,
    show_default=True,
    help="Whether each device gets a batch of this size, or all devices together.",
)
@click.option("--blocks", default=3, show_default=True, help="The n of the network, which has 9n+2 layers.")
@click.option("--size", default=32, show_default=True, help="Height and width of images.")
@click.option("--steps", default=20, show_default=True)
@click.option(
    "--settle", default=10.0, show_default=True, help="Seconds of warm-up steps, during which launches are merged."
)
@click.option("--dask/--no-dask", default=True, show_default=True)
@click.option("--way", "ways", multiple=True, type=click.Choice(_WAYS), default=_WAYS, show_default=True)
def devices(
    devices: Sequence[str],
    count: int,
    name: str,
    width: int,
    batch: int,
    each: bool,
    blocks: int,
    size: int,
    steps: int,
    settle: float,
    dask: bool,
    ways: Sequence[str],
) -> None:
    """Train a net on one device and on several; call simulators in threads; print the steps per second.

    Blocks and image sizes are those of cifar_resnet. The ways: 'simulators' runs a simulator with a whole batch in each
    of several threads; 'whole' and 'parts' run exact steps, with statistics of the whole batch or of each worker's
    part. Exact steps are timed in calls that wait for their results, and in `train`; compare the latter with run_async.
    """
    names = list(devices) or _several_devices(count)
    print("devices:", ", ".join(f"{spec} ({optdb.SimulatorOCL(_tiny(), spec).device})" for spec in names))
    sizes = {key: value for key, value in {"n": blocks, "width": width, "size": size}.items() if key in _SIZES[name]}

    def made(batch: int) -> tuple[Any, list[Any]]:
        model = models.build(name, **{**_SIZES[name], **sizes}, batch=batch)
        return compiled(model), batches_of(model, 4)

    axes = _CASES[name][1]
    f, batches = made(batch)
    table = Table("way", "steps a second", "times the rows of one device")
    with optdb.SimulatorOCL(f, names[0]) as alone:
        one = _rate(lambda number: alone(*batches[number % 4]), steps, settle)
        not_awaited = steps / _seconds(lambda: [alone.run_async(*batches[i % 4]) for i in range(steps)][-1].wait())
    table.add_row(f"one simulator, batch {batch}", f"{one:.2f}", "1.00")
    table.add_row("the same with run_async", f"{not_awaited:.2f}", f"{not_awaited / one:.2f}")
    if "simulators" in ways:
        both = _threads(f, names, batches, steps, settle)
        table.add_row(f"simulators in as many threads, batch {batch} each", f"{both:.2f}", f"{both / one:.2f}")
    times = len(names) if each else 1
    if each:
        f, batches = made(batch * times)

    def add(what: str, rate: float) -> None:
        table.add_row(f"{what}, batch {batch * times}", f"{rate:.2f}", f"{rate * times / one:.2f}")

    for statistics in [way for way in ways if way != "simulators"]:
        with DataParallel(f, devices=names, statistics=statistics, axes=axes) as train:
            rate = _exact_rate("threads", statistics, train, batches, steps, settle)
            ahead = _ahead_rate(train, batches, steps)
        add(f"exact, threads, statistics of {statistics}", rate)
        add("the same with train, one batch ahead", ahead)
        if dask:
            with (
                local_client(len(names)) as client,
                DataParallel(f, client, names, statistics=statistics, axes=axes) as train,
            ):
                rate = _exact_rate("dask", statistics, train, batches, steps, settle)
            add(f"exact, dask's workers, statistics of {statistics}", rate)
    terminal.console().print(table)


def _exact_rate(
    workers: str, statistics: str, train: DataParallel, batches: Sequence[Any], steps: int, settle: float
) -> float:
    """Return the exact steps per second of workers; print the parts of the first worker's time."""
    rows = []

    def step(number: int) -> None:
        train(*batches[number % len(batches)])
        rows.append(train.seconds[0])

    rate = _rate(step, steps, settle)
    medians = {key: 1e3 * np.median([row[key] for row in rows[-steps:]]) for key in rows[0]}
    listed = ", ".join(f"{key} {value:.1f}" for key, value in medians.items())
    print(f"{workers}, statistics of {statistics}: ms of a step, medians: {listed}", flush=True)
    return rate


def _ahead_rate(train: DataParallel, batches: Sequence[Any], steps: int) -> float:
    """Return the steps per second of `train`: all steps divided by all seconds, as single steps are not awaited."""
    train.train(batches[number % len(batches)] for number in range(2 * _WARM_UP))
    return steps / _seconds(lambda: train.train(batches[number % len(batches)] for number in range(steps)))


def _several_devices(count: int) -> list[str]:
    found = [row for row in optdb.devices() if row.works and not row.profile.quirks.is_memory_checker]
    gpus = [row.spec for row in found if row.profile.device_kind == "gpu"]
    if len(gpus) >= count:
        return gpus[:count]
    print(f"{count} GPUs were not found: using two parts of a processor")
    return [f"{found[0].spec}[{part}/2]" for part in (1, 2)]


def _tiny() -> Any:
    x = tt.vector("x")
    return theano.function([x], x * 2, mode=theano.Mode(linker="py"))


def _warm_up(step: Callable[[], Any], settle: float) -> None:
    """Run steps until kernels are compiled and chosen, and launches are merged."""
    stop = time.perf_counter() + settle
    number = 0
    while number < _WARM_UP or time.perf_counter() < stop:
        step()
        number += 1


def _rate(step: Callable[[int], Any], steps: int, settle: float) -> float:
    """Return the steps per second of a loop, computed from the median time of a step."""
    _warm_up(partial(step, 0), settle)
    return 1 / float(np.median([_seconds(partial(step, number)) for number in range(steps)]))


def _make_steps(sim: optdb.SimulatorOCL, batches: Sequence[Any], steps: int) -> None:
    for number in range(steps):
        sim(*batches[number % len(batches)])


def _threads(f: Any, names: Sequence[str], batches: Sequence[Any], steps: int, settle: float) -> float:
    """Return the total steps per second of several simulators, each in its own thread."""
    sims = [optdb.SimulatorOCL(f, name) for name in names]
    for sim in sims:
        _warm_up(partial(_make_steps, sim, batches, 1), settle)
    with switch_interval.held(), ThreadPoolExecutor(len(sims)) as pool:
        seconds = _seconds(lambda: list(pool.map(lambda sim: _make_steps(sim, batches, steps), sims)))
    rate = len(sims) * steps / seconds
    for sim in sims:
        sim.close()
    return rate


if __name__ == "__main__":
    main()
