"""Measures steps per second on several devices: the commands `devices` and `scaling` of `profiles.distributed`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import theano
import theano.tensor as tt
from rich.table import Table

import optdb
from optdb.distributed import DataParallel
from optdb.distributed.worker_threads import switch_interval
from profiles import cli, models, terminal
from profiles.clusters import local_client
from profiles.steps_of_simulators import batches_of, compiled
from profiles.stopwatch import seconds_of

#: Minimum number of warm-up steps before a measurement.
_WARM_UP = 24
#: The ways to use several devices that `devices` measures.
_WAYS = ("simulators", "whole", "parts")
#: The models that can be measured, with their default sizes.
_SIZES: dict[str, dict[str, Any]] = {
    "cifar_resnet": {"n": 3, "width": 64, "size": 32, "rate": 1e-6},
    "lstm": {"width": 512, "steps": 50, "vocabulary": 10000},
    "mlp": {"width": 4096},
}
#: For each model, the axes along which its inputs are split; other inputs are split along axis 0.
AXES = {"lstm": {"words": 1, "following": 1}}
#: The parts of a step whose times `scaling` prints.
_PARTS = ("compute", "exchange", "update")


@click.command()
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
    """Train a net on one device, and on several devices in the selected ways; print the steps per second.

    The options for blocks and image size only affect cifar_resnet. With 'simulators', a simulator for each device runs
    in a separate thread, with a whole batch. With 'whole' and 'parts', exact steps are run, with statistics of the
    whole batch or of each worker's part. Exact steps are timed both in calls that wait for their results, and in
    `train`, which is comparable with run_async.
    """
    names = list(devices) or _several_devices(count)
    print("devices:", ", ".join(f"{spec} ({optdb.SimulatorOCL(_tiny(), spec).device})" for spec in names))
    sizes = {key: value for key, value in {"n": blocks, "width": width, "size": size}.items() if key in _SIZES[name]}

    def made(batch: int) -> tuple[Any, list[Any]]:
        model = models.build(name, **{**_SIZES[name], **sizes}, batch=batch)
        return compiled(model), batches_of(model, 4)

    axes = AXES.get(name)
    f, batches = made(batch)
    table = Table("way", "steps a second", "times the rows of one device")
    with optdb.SimulatorOCL(f, names[0]) as alone:
        one, not_awaited = _rates_of_simulator(alone, batches, steps, settle)
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
            rate, parts_ms = _exact_rate(train, batches, steps, settle)
            _show(f"threads, statistics of {statistics}", parts_ms)
            ahead = _ahead_rate(train, batches, steps)
        add(f"exact, threads, statistics of {statistics}", rate)
        add("the same with train, one batch ahead", ahead)
        if dask:
            with (
                local_client(len(names)) as client,
                DataParallel(f, client, names, statistics=statistics, axes=axes) as train,
            ):
                rate, parts_ms = _exact_rate(train, batches, steps, settle)
            _show(f"dask, statistics of {statistics}", parts_ms)
            add(f"exact, dask's workers, statistics of {statistics}", rate)
    terminal.console().print(table)


def _exact_rate(
    train: DataParallel, batches: Sequence[Any], steps: int, settle: float
) -> tuple[float, dict[str, float]]:
    """Return the exact steps per second, and the median milliseconds of the first worker's parts of a step."""
    rows = []

    def step(number: int) -> None:
        train(*batches[number % len(batches)])
        rows.append(train.seconds[0])

    rate = _rate(step, steps, settle)
    return rate, {key: 1e3 * float(np.median([row[key] for row in rows[-steps:]])) for key in rows[0]}


def _show(what: str, parts_ms: dict[str, float]) -> None:
    listed = ", ".join(f"{key} {ms:.1f}" for key, ms in parts_ms.items())
    print(f"{what}: ms of a step, medians: {listed}", flush=True)


def _ahead_rate(train: DataParallel, batches: Sequence[Any], steps: int) -> float:
    """Return the steps per second of `train`, averaged over all steps, because it does not wait for each step."""
    train.train(batches[number % len(batches)] for number in range(2 * _WARM_UP))
    return steps / seconds_of(lambda: train.train(batches[number % len(batches)] for number in range(steps)))


def _several_devices(count: int, at_least: int | None = None) -> list[str]:
    """Return at most `count` GPUs; if there are fewer than `at_least`, return two parts of a processor."""
    found = [row for row in optdb.devices() if row.works and not row.profile.quirks.is_memory_checker]
    gpus = [row.spec for row in found if row.profile.device_kind == "gpu"]
    if len(gpus) >= (at_least or count):
        return gpus[:count]
    print(f"{count} GPUs were not found: using two parts of a processor")
    return [f"{found[0].spec}[{part}/2]" for part in (1, 2)]


def _tiny() -> Any:
    x = tt.vector("x")
    return theano.function([x], x * 2, mode=theano.Mode(linker="py"))


def _warm_up(step: Callable[[], Any], settle: float) -> None:
    """Run steps for `settle` seconds; during this time, kernels are compiled and chosen, and launches are merged."""
    stop = time.perf_counter() + settle
    number = 0
    while number < _WARM_UP or time.perf_counter() < stop:
        step()
        number += 1


def _rate(step: Callable[[int], Any], steps: int, settle: float) -> float:
    """Return the steps per second of a loop, computed from the median time of a step."""
    _warm_up(partial(step, 0), settle)
    return 1 / float(np.median([seconds_of(partial(step, number)) for number in range(steps)]))


def _make_steps(sim: optdb.SimulatorOCL, batches: Sequence[Any], steps: int) -> None:
    for number in range(steps):
        sim(*batches[number % len(batches)])


def _threads(f: Any, names: Sequence[str], batches: Sequence[Any], steps: int, settle: float) -> float:
    """Return the total number of steps per second of several simulators, each of which runs in a separate thread."""
    sims = [optdb.SimulatorOCL(f, name) for name in names]
    for sim in sims:
        _warm_up(partial(_make_steps, sim, batches, 1), settle)
    with switch_interval.held(), ThreadPoolExecutor(len(sims)) as pool:
        seconds = seconds_of(lambda: list(pool.map(lambda sim: _make_steps(sim, batches, steps), sims)))
    rate = len(sims) * steps / seconds
    for sim in sims:
        sim.close()
    return rate


class Scaled(NamedTuple):
    """The number of exact steps per second on some devices, and the milliseconds of each part of a step."""

    statistics: str
    #: 'weak' if each device gets a batch, 'strong' if all devices share one.
    scaling: str
    devices: int
    rows: int
    awaited: float
    ahead: float
    parts_ms: dict[str, float]


@click.command()
@click.option("--count", "counts", multiple=True, type=int, help="Numbers of devices; by default 1, 2, 4 and 8 GPUs.")
@click.option("--model", "name", type=click.Choice(list(_SIZES)), default="cifar_resnet", show_default=True)
@click.option("--batch", default=256, show_default=True, help="Rows of one device.")
@click.option("--statistics", multiple=True, default=("parts", "whole"), show_default=True)
@click.option("--steps", default=20, show_default=True)
@click.option("--settle", default=10.0, show_default=True, help="Seconds of warm-up steps.")
@click.option("--plot", "plot_file", type=cli.PICTURE, help="Draw rows per second into this file.")
def scaling(
    counts: Sequence[int],
    name: str,
    batch: int,
    statistics: Sequence[str],
    steps: int,
    settle: float,
    plot_file: Path | None,
) -> None:
    """Train a net on 1, 2, 4 and more devices, with a batch for each device and with one batch for all devices."""
    found = _several_devices(max(counts, default=8), at_least=1)
    measured = [
        _scaled(name, found[:count], way, kind, batch, steps, settle)
        for way in statistics
        for kind in ("weak", "strong")
        for count in sorted(counts or (1, 2, 4, 8))
        if count <= len(found)
    ]
    table = Table(
        "statistics", "scaling", "devices", "rows", "steps a second", "by train", "rows a second", "ms of a step"
    )
    for row in measured:
        one = next(each for each in measured if each[:2] == row[:2])
        times = row.ahead * row.rows / (one.ahead * one.rows)
        listed = ", ".join(f"{key} {ms:.1f}" for key, ms in row.parts_ms.items() if key in _PARTS)
        table.add_row(
            *(row.statistics, row.scaling, str(row.devices), str(row.rows), f"{row.awaited:.1f}", f"{row.ahead:.1f}"),
            *(f"{row.ahead * row.rows:,.0f} ({times:.2f}x)", listed),
        )
    terminal.console().print(table)
    if plot_file is not None:
        _plot(measured, plot_file)


def _scaled(
    name: str, devices: Sequence[str], statistics: str, kind: str, batch: int, steps: int, settle: float
) -> Scaled:
    """Train on several devices, or on a single device in a simulator, without dividing the function or adding sums."""
    rows = batch * len(devices) if kind == "weak" else batch
    model = models.build(name, **_SIZES[name], batch=rows)
    f, batches = compiled(model), batches_of(model, 4)
    what = statistics, kind, len(devices), rows
    if len(devices) == 1:
        with optdb.SimulatorOCL(f, devices[0]) as alone:
            return Scaled(*what, *_rates_of_simulator(alone, batches, steps, settle), {})
    with DataParallel(f, devices=devices, statistics=statistics, axes=AXES.get(name)) as train:
        awaited, parts_ms = _exact_rate(train, batches, steps, settle)
        return Scaled(*what, awaited, _ahead_rate(train, batches, steps), parts_ms)


def _rates_of_simulator(
    sim: optdb.SimulatorOCL, batches: Sequence[Any], steps: int, settle: float
) -> tuple[float, float]:
    """Return the steps per second if calls wait for their results, and if `run_async` makes the calls."""
    awaited = _rate(lambda number: sim(*batches[number % len(batches)]), steps, settle)
    return awaited, steps / seconds_of(lambda: _run_async(sim, batches, steps).wait())


def _run_async(sim: optdb.SimulatorOCL, batches: Sequence[Any], steps: int) -> Any:
    """Start some steps asynchronously; return the future of the last step."""
    return [sim.run_async(*batches[number % len(batches)]) for number in range(steps)][-1]


def _plot(measured: Sequence[Scaled], path: Path) -> None:
    """Draw rows per second against the number of devices, with a line for each kind of statistics and of scaling."""
    with terminal.drawing(path, (8, 5)) as (_, axes):
        for statistics, kind in dict.fromkeys(row[:2] for row in measured):
            rows = [row for row in measured if row[:2] == (statistics, kind)]
            rates = [row.ahead * row.rows for row in rows]
            axes.plot([row.devices for row in rows], rates, "o-", label=f"statistics of {statistics}, {kind} scaling")
        axes.set(xlabel="devices", ylabel="rows per second", ylim=(0, None))
        axes.grid(True, alpha=0.3)
        axes.legend()
