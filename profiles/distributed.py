"""Measures the cost and the exactness of data-parallel training steps, and the effect of killed workers.

``python -m profiles.distributed --help`` lists the commands.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from optdb.opencl.simulator.packing import finish
from profiles import models, scaling, terminal
from profiles.clusters import counted_bytes, local_client
from profiles.models import parts
from profiles.scaling import AXES
from profiles.steps_of_simulators import batches_of, compiled
from profiles.stopwatch import seconds_of
from profiles.training import CHAOS, difference, nudged

if TYPE_CHECKING:
    from distributed import Client

#: If dask takes more seconds than this to restart killed workers, a new cluster is started.
RESTART_S = 30.0
#: Number of steps that the command `cost` times in a row.
BLOCK = 5
#: Maps floatX to the accepted relative difference between exact steps and steps of one device; more is accepted if
#: nudges have a larger effect.
_TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
#: Maps the name of a model to its sizes.
_CASES: dict[str, dict[str, Any]] = {
    "mlp": {"batch": 24},
    "mlp_adam": {"batch": 24},
    "cifar_resnet": {"n": 1, "batch": 8, "size": 8, "rate": 1e-3},
    "lstm": {"batch": 8},
}


def mlp_adam(width: int = 32, batch: int = 24, classes: int = 10) -> models.Model:
    """Return a training step, with Adam, of a small net."""
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
    """Build the model with a given name in `_CASES`."""
    sizes = {**_CASES[name], **sizes}
    return mlp_adam(**sizes) if name == "mlp_adam" else models.build(name, **sizes)


class Trained(NamedTuple):
    """The shared variables after some steps, and the results of each step."""

    state: list[Any]
    results: list[list[Any]]

    def differences(self, other: Trained) -> list[float]:
        """Return the relative difference of each variable; append the largest relative difference of a result."""
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
    """Compare exact steps of workers with a single device's steps on the whole batch.

    To estimate the effect of rounding, the single device is also run with nudged initial values. The exit status is 1
    if workers differ by more than rounding explains.
    """
    table = Table("model", "workers", "state", "results", "most different variable", "after nudges: state", "results")
    differ = False
    for name in names:
        model = build(name)
        f, batches = compiled(model), batches_of(model, steps)
        expected = _alone(f, device, batches)
        allowed = _furthest(_alone(f, device, batches, seed).differences(expected) for seed in range(nudges))
        for count in [len(threads)] if threads else workers:
            with _training(f, count, threads, AXES.get(name)) as train:
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
    """Return whether the difference `found` exceeds the tolerance and a multiple of the effect of nudges, `allowed`."""
    return not found <= max(_TOLERANCE[theano.config.floatX], CHAOS * allowed)


def _furthest(rows: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Return the largest differences of a variable and of a result in some rows; zeros if there are no rows."""
    rows = list(rows)
    return max((max(row[:-1]) for row in rows), default=0.0), max((row[-1] for row in rows), default=0.0)


def _alone(f: Any, device: str, batches: Sequence[Any], seed: int | None = None) -> Trained:
    """Train on one device; with a seed, first nudge the initial values up or down by one unit in the last place."""
    with optdb.SimulatorOCL(f, device) as alone:
        if seed is not None:
            for shared in f.get_shared():
                alone.set(shared, nudged(shared.get_value(), seed, units=1))
        results = [alone(*batch) for batch in batches]
        return Trained([alone.get(shared) for shared in f.get_shared()], results)


@contextmanager
def _training(f: Any, count: int, threads: Sequence[str], axes: Mapping[str, int] | None) -> Iterator[DataParallel]:
    """Yield a trainer that has a thread for each device in `threads`; if `threads` is empty, it has dask's workers."""
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
@click.option("--width", default=32, show_default=True, help="Width of the net; 256 uses shared memory for sums.")
@click.option("--timeout", default=60.0, show_default=True, help="Timeout of a step, in seconds.")
@click.option("--seed", default=0, show_default=True)
def kills(runs: int, steps: int, workers: int, kills: int, width: int, timeout: float, seed: int) -> None:
    """Kill workers at random times while they train; the final state has to equal that of an undisturbed run."""
    model = build("mlp_adam", width=width)
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
    """Wait until dask has restarted all workers; return False if this does not happen within `timeout` seconds."""
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
    slowest, killed = 0.0, set[str]()
    with DataParallel(f, client, timeout=timeout) as train:

        def alive() -> list[str]:
            # The last step may have ended before it noticed that a worker was killed.
            train.refresh()
            return [address for address in train.addresses if address not in killed]

        for number, batch in enumerate(batches):
            there: list[str] = []
            if number in at:
                # At least one worker must stay alive, because only the workers hold the state.
                end = time.monotonic() + timeout
                while len(there := alive()) < 2 and time.monotonic() < end:
                    time.sleep(0.1)
            start = time.perf_counter()
            address = rng.choice(there) if len(there) > 1 else ""
            killer = _killer(client, address, rng) if address else None
            train(*batch)
            if killer is not None:
                killer.join()
                killed.add(address)
            slowest = max(slowest, time.perf_counter() - start)
        state = [train.get(shared) for shared in f.get_shared()]
    return max(map(difference, state, expected)), slowest, len(killed)


def _killer(client: Client, address: str, rng: random.Random) -> threading.Thread | None:
    """Start a thread that kills a worker during the next step; return None if the worker has just died."""
    try:
        (pid,) = client.run(os.getpid, workers=[address]).values()
    except OSError:  # dask's CommClosedError
        return None
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
    """Print how long the parts of a training step take, and how many bytes pass through the scheduler."""
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
            """Time some steps and, under the same load, as many steps of one worker's part of the batch."""
            given = batches[number % len(batches)]
            train(*given)  # not measured, because no update of an earlier step is pending
            rows = [_timed(train, given) for _ in range(BLOCK)]
            train.get(train.shared[0])  # waits for the update of the last step
            part = [value[: len(value) // workers] for value in given]
            for row in rows:
                alone_seconds = seconds_of(lambda: alone(*part), lambda: finish(alone))
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


def _timed(train: DataParallel, batch: Sequence[Any]) -> dict[str, float]:
    whole = seconds_of(partial(train, *batch))
    longest = {key: max(seconds[key] for seconds in train.seconds) for key in train.seconds[0]}
    # Take the worker with the shortest exchange, because this worker waits least for others.
    longest["exchange"] = min(seconds["exchange"] for seconds in train.seconds)
    return {
        "whole step": whole,
        "of it, besides the computation": whole - longest["compute"],
        **longest,
        "dask, messages and waiting": whole - sum(longest.values()),
    }


main.add_command(scaling.devices)
main.add_command(scaling.scaling)

if __name__ == "__main__":
    main()
